package machineconfig

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTablesAreSorted(t *testing.T) {
	for _, extension := range []string{"ipsec", "kerberos", "kernel-devel", "sandboxed-containers", "sysstat", "two-node-ha", "usbguard", "wasm"} {
		sets, ok := PackageSets(extension)
		if !ok || len(sets) == 0 {
			t.Errorf("%s is not known", extension)
		}
		for _, set := range sets {
			if len(set.Packages) == 0 || !slices.IsSorted(set.Packages) || set.Releases == "" {
				t.Errorf("%s: %+v", extension, set)
			}
		}
	}
	for _, kernelType := range []string{KernelTypeDefault, KernelTypeRealtime, KernelType64kPages} {
		sets, ok := KernelTypePackages(kernelType)
		if !ok {
			t.Errorf("%s is not known", kernelType)
		}
		for _, set := range sets {
			if !slices.IsSorted(set.Removed) || !slices.IsSorted(set.Installed) || set.Releases == "" {
				t.Errorf("%s: %+v", kernelType, set)
			}
		}
	}
}

func TestMatchExtensions(t *testing.T) {
	usbguard := PackageSet{[]string{"usbguard"}, "4.12 and later"}
	ipsec := PackageSet{[]string{"NetworkManager-libreswan", "libreswan", "openvswitch3.5-ipsec"}, "4.23, 5.0 and later"}
	ipsecOld := PackageSet{[]string{"NetworkManager-libreswan", "libreswan"}, "4.14 to 4.22"}
	ovs := []string{"openvswitch3.5-ipsec"}
	tests := []struct {
		name              string
		wanted, requested []string
		want              ExtensionMatch
		satisfied         bool
	}{
		{"nothing", nil, nil, ExtensionMatch{}, true},
		{"nothing wanted", nil, []string{"zsh"}, ExtensionMatch{Extra: []string{"zsh"}}, false},
		{"absent", []string{"usbguard"}, nil, ExtensionMatch{Chosen: []ChosenSet{{Extension: "usbguard", Set: usbguard}}, Missing: []string{"usbguard"}}, false},
		{"present", []string{"usbguard"}, []string{"usbguard"}, ExtensionMatch{Chosen: []ChosenSet{{Extension: "usbguard", Set: usbguard}}}, true},
		{"one more", []string{"usbguard"}, []string{"usbguard", "zsh"}, ExtensionMatch{Chosen: []ChosenSet{{Extension: "usbguard", Set: usbguard}}, Extra: []string{"zsh"}}, false},
		{"order and repetition", []string{"usbguard", "ipsec", "usbguard"}, []string{"usbguard", "openvswitch3.5-ipsec", "libreswan", "NetworkManager-libreswan", "libreswan"},
			ExtensionMatch{Chosen: []ChosenSet{{Extension: "ipsec", Set: ipsec}, {Extension: "usbguard", Set: usbguard}}}, true},
		{"the older set", []string{"ipsec"}, []string{"libreswan", "NetworkManager-libreswan"},
			ExtensionMatch{Chosen: []ChosenSet{{Extension: "ipsec", Set: ipsecOld, Later: ovs}}}, true},
		{"part of the older set", []string{"ipsec"}, []string{"libreswan"},
			ExtensionMatch{Chosen: []ChosenSet{{Extension: "ipsec", Set: ipsecOld, Later: ovs}}, Missing: []string{"NetworkManager-libreswan"}}, false},
		{"between two sets", []string{"ipsec"}, []string{"libreswan", "openvswitch3.5-ipsec"},
			ExtensionMatch{Chosen: []ChosenSet{{Extension: "ipsec", Set: ipsec}}, Missing: []string{"NetworkManager-libreswan"}}, false},
		{"unknown", []string{"tailscale", "usbguard"}, []string{"tailscale", "usbguard"},
			ExtensionMatch{Chosen: []ChosenSet{{Extension: "usbguard", Set: usbguard}}, Extra: []string{"tailscale"}, Unknown: []string{"tailscale"}}, false},
		{"unknown alone", []string{"Usbguard"}, nil, ExtensionMatch{Unknown: []string{"Usbguard"}}, false},
		{"empty name", []string{""}, nil, ExtensionMatch{Unknown: []string{""}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := MatchExtensions(tt.wanted, tt.requested)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("match (-want +got):\n%s", diff)
			}
			if got.Satisfied() != tt.satisfied {
				t.Errorf("Satisfied() = %t, want %t", got.Satisfied(), tt.satisfied)
			}
		})
	}
}

func TestMatchKernelType(t *testing.T) {
	base8 := []string{"kernel", "kernel-core", "kernel-modules", "kernel-modules-extra"}
	base9 := append([]string{"kernel-modules-core"}, base8...)
	realtime := []string{"kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"}
	withKVM := append([]string{"kernel-rt-kvm"}, realtime...)
	pages := []string{"kernel-64k-core", "kernel-64k-modules", "kernel-64k-modules-core", "kernel-64k-modules-extra"}
	tests := []struct {
		name               string
		kernelType         string
		removed, requested []string
		releases           string // of the chosen set
		satisfied          bool
		rest               []string
	}{
		{"default", "default", nil, nil, "4.12 and later", true, nil},
		{"default with an extension", "default", nil, []string{"usbguard"}, "4.12 and later", true, []string{"usbguard"}},
		{"default but something removed", "default", []string{"zincati"}, nil, "4.12 and later", false, nil},
		{"default but realtime layered", "default", base9, withKVM, "4.12 and later", false, nil},
		{"realtime of 4.12", "realtime", base8, withKVM, "4.12", true, nil},
		{"realtime of 4.18", "realtime", base9, withKVM, "4.13 to 4.19; 4.20 and 4.21 on RHEL 9", true, nil},
		{"realtime of 4.22", "realtime", base9, realtime, "4.22 and later; 4.20 and 4.21 on RHEL 10", true, nil},
		{"realtime with an extension", "realtime", base9, append([]string{"usbguard"}, realtime...), "4.22 and later; 4.20 and 4.21 on RHEL 10", true, []string{"usbguard"}},
		{"realtime, absent", "realtime", nil, nil, "4.22 and later; 4.20 and 4.21 on RHEL 10", false, nil},
		{"realtime, one package less", "realtime", base9, realtime[1:], "4.22 and later; 4.20 and 4.21 on RHEL 10", false, nil},
		{"realtime, one removal more", "realtime", append([]string{"zincati"}, base9...), realtime, "4.22 and later; 4.20 and 4.21 on RHEL 10", false, nil},
		{"realtime, 64k beside it", "realtime", base9, append(slices.Clone(pages), realtime...), "4.22 and later; 4.20 and 4.21 on RHEL 10", false, nil},
		{"4.12 removals, 4.22 packages", "realtime", base8, realtime, "4.22 and later; 4.20 and 4.21 on RHEL 10", false, nil},
		{"64k", "64k-pages", base9, pages, "4.15 and later", true, nil},
		{"64k wanted, realtime there", "64k-pages", base9, withKVM, "4.15 and later", false, nil},
		{"unknown", "debug", nil, []string{"kernel-rt-core", "a"}, "", false, []string{"a"}},
		{"not canonical", "", nil, nil, "", false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := MatchKernelType(tt.kernelType, tt.removed, tt.requested)
			if got.Satisfied() != tt.satisfied {
				t.Errorf("Satisfied() = %t, want %t: %+v", got.Satisfied(), tt.satisfied, got)
			}
			if got.Chosen.Releases != tt.releases {
				t.Errorf("chosen %q, want %q", got.Chosen.Releases, tt.releases)
			}
			if diff := cmp.Diff(tt.rest, got.Rest); diff != "" {
				t.Errorf("Rest (-want +got):\n%s", diff)
			}
		})
	}
}
