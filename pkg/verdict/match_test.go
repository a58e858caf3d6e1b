package verdict

import (
	"reflect"
	"slices"
	"testing"
)

func TestMatchExtensions(t *testing.T) {
	usbguard := PackageSet{[]string{"usbguard"}, "4.12 and later"}
	ipsec := PackageSet{[]string{"NetworkManager-libreswan", "libreswan", "openvswitch3.5-ipsec"}, "4.23, 5.0 and later"}
	ipsecOld := PackageSet{[]string{"NetworkManager-libreswan", "libreswan"}, "4.14 to 4.22"}
	sets := map[string][]PackageSet{"usbguard": {usbguard}, "ipsec": {ipsec, ipsecOld}}
	ovs := []string{"openvswitch3.5-ipsec"}
	tests := []struct {
		name              string
		wanted, requested []string
		want              extensionMatch
		satisfied         bool
	}{
		{"nothing", nil, nil, extensionMatch{}, true},
		{"nothing wanted", nil, []string{"zsh"}, extensionMatch{extra: []string{"zsh"}}, false},
		{"absent", []string{"usbguard"}, nil, extensionMatch{chosen: []chosenSet{{extension: "usbguard", set: usbguard}}, missing: []string{"usbguard"}}, false},
		{"present", []string{"usbguard"}, []string{"usbguard"}, extensionMatch{chosen: []chosenSet{{extension: "usbguard", set: usbguard}}}, true},
		{"one more", []string{"usbguard"}, []string{"usbguard", "zsh"}, extensionMatch{chosen: []chosenSet{{extension: "usbguard", set: usbguard}}, extra: []string{"zsh"}}, false},
		{"order and repetition", []string{"usbguard", "ipsec", "usbguard"}, []string{"usbguard", "openvswitch3.5-ipsec", "libreswan", "NetworkManager-libreswan", "libreswan"},
			extensionMatch{chosen: []chosenSet{{extension: "ipsec", set: ipsec}, {extension: "usbguard", set: usbguard}}}, true},
		{"the older set", []string{"ipsec"}, []string{"libreswan", "NetworkManager-libreswan"},
			extensionMatch{chosen: []chosenSet{{extension: "ipsec", set: ipsecOld, later: ovs}}}, true},
		{"part of the older set", []string{"ipsec"}, []string{"libreswan"},
			extensionMatch{chosen: []chosenSet{{extension: "ipsec", set: ipsecOld, later: ovs}}, missing: []string{"NetworkManager-libreswan"}}, false},
		{"between two sets", []string{"ipsec"}, []string{"libreswan", "openvswitch3.5-ipsec"},
			extensionMatch{chosen: []chosenSet{{extension: "ipsec", set: ipsec}}, missing: []string{"NetworkManager-libreswan"}}, false},
		{"unknown", []string{"tailscale", "usbguard"}, []string{"tailscale", "usbguard"},
			extensionMatch{chosen: []chosenSet{{extension: "usbguard", set: usbguard}}, extra: []string{"tailscale"}, unknown: []string{"tailscale"}}, false},
		{"unknown alone", []string{"Usbguard"}, nil, extensionMatch{unknown: []string{"Usbguard"}}, false},
		{"empty name", []string{""}, nil, extensionMatch{unknown: []string{""}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := matchExtensions(tt.wanted, sets, tt.requested)
			if !reflect.DeepEqual(tt.want, got) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if satisfied := len(got.missing)+len(got.extra)+len(got.unknown) == 0; satisfied != tt.satisfied {
				t.Errorf("satisfied: %t, want %t", satisfied, tt.satisfied)
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
	sets := map[string][]KernelPackageSet{
		"default": {{Releases: "4.12 and later"}},
		"realtime": {
			{base9, realtime, "4.22 and later; 4.20 and 4.21 on RHEL 10"},
			{base9, withKVM, "4.13 to 4.19; 4.20 and 4.21 on RHEL 9"},
			{base8, withKVM, "4.12"},
		},
		"64k-pages": {{base9, pages, "4.15 and later"}},
	}
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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			kernels, rest := split(tt.requested, slices.Concat(withKVM, pages))
			if !slices.Equal(tt.rest, rest) {
				t.Errorf("rest %q, want %q", rest, tt.rest)
			}
			got := matchKernelType(sets[tt.kernelType], tt.removed, kernels)
			if satisfied := got.distance() == 0; satisfied != tt.satisfied {
				t.Errorf("satisfied: %t, want %t: %+v", satisfied, tt.satisfied, got)
			}
			if got.chosen.Releases != tt.releases {
				t.Errorf("chosen %q, want %q", got.chosen.Releases, tt.releases)
			}
		})
	}
}
