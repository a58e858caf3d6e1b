package verdict

import (
	"reflect"
	"slices"
	"testing"
)

func TestMatchExtensions(t *testing.T) {
	usbguard := PackageSet{[]string{"usbguard"}, ReleaseRange{"4.12", "5.3"}}
	ipsec := PackageSet{[]string{"NetworkManager-libreswan", "libreswan", "openvswitch3.5-ipsec"}, ReleaseRange{"4.23", "5.3"}}
	ipsecOld := PackageSet{[]string{"NetworkManager-libreswan", "libreswan"}, ReleaseRange{"4.14", "4.23"}}
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
			extensionMatch{chosen: []chosenSet{{extension: "ipsec", set: ipsecOld, others: ovs}}}, true},
		{"part of the older set", []string{"ipsec"}, []string{"libreswan"},
			extensionMatch{chosen: []chosenSet{{extension: "ipsec", set: ipsecOld, others: ovs}}, missing: []string{"NetworkManager-libreswan"}}, false},
		{"between two sets", []string{"ipsec"}, []string{"libreswan", "openvswitch3.5-ipsec"},
			extensionMatch{chosen: []chosenSet{{extension: "ipsec", set: ipsec}}, missing: []string{"NetworkManager-libreswan"}}, false},
		{"unknown", []string{"tailscale", "usbguard"}, []string{"tailscale", "usbguard"},
			extensionMatch{chosen: []chosenSet{{extension: "usbguard", set: usbguard}}, extra: []string{"tailscale"}, unknown: []string{"tailscale"}}, false},
		{"unknown alone", []string{"Usbguard"}, nil, extensionMatch{unknown: []string{"Usbguard"}}, false},
		{"empty name", []string{""}, nil, extensionMatch{unknown: []string{""}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := matchExtensions(tt.wanted, sets, release{}, tt.requested)
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
	since420, before422 := ReleaseRange{"4.20", "5.3"}, ReleaseRange{"4.13", "4.22"}
	only412, since415 := ReleaseRange{"4.12", "4.13"}, ReleaseRange{"4.15", "5.3"}
	sets := map[string][]KernelPackageSet{
		"default": {{Releases: ReleaseRange{"4.12", "5.3"}}},
		"realtime": {
			{base9, realtime, since420},
			{base9, withKVM, before422},
			{base8, withKVM, only412},
		},
		"64k-pages": {{base9, pages, since415}},
	}
	tests := []struct {
		name               string
		kernelType         string
		removed, requested []string
		releases           ReleaseRange // of the chosen set
		satisfied          bool
		rest               []string
	}{
		{"default", "default", nil, nil, ReleaseRange{"4.12", "5.3"}, true, nil},
		{"default with an extension", "default", nil, []string{"usbguard"}, ReleaseRange{"4.12", "5.3"}, true, []string{"usbguard"}},
		{"default but something removed", "default", []string{"zincati"}, nil, ReleaseRange{"4.12", "5.3"}, false, nil},
		{"default but realtime layered", "default", base9, withKVM, ReleaseRange{"4.12", "5.3"}, false, nil},
		{"realtime of 4.12", "realtime", base8, withKVM, only412, true, nil},
		{"realtime of 4.18", "realtime", base9, withKVM, before422, true, nil},
		{"realtime of 4.22", "realtime", base9, realtime, since420, true, nil},
		{"realtime with an extension", "realtime", base9, append([]string{"usbguard"}, realtime...), since420, true, []string{"usbguard"}},
		{"realtime, absent", "realtime", nil, nil, since420, false, nil},
		{"realtime, one package less", "realtime", base9, realtime[1:], since420, false, nil},
		{"realtime, one removal more", "realtime", append([]string{"zincati"}, base9...), realtime, since420, false, nil},
		{"realtime, 64k beside it", "realtime", base9, append(slices.Clone(pages), realtime...), since420, false, nil},
		{"4.12 removals, 4.22 packages", "realtime", base8, realtime, since420, false, nil},
		{"64k", "64k-pages", base9, pages, since415, true, nil},
		{"64k wanted, realtime there", "64k-pages", base9, withKVM, since415, false, nil},
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

func TestMatchExtensionsOfARelease(t *testing.T) {
	ipsec := PackageSet{[]string{"NetworkManager-libreswan", "libreswan", "openvswitch3.5-ipsec"}, ReleaseRange{"4.23", "5.3"}}
	ipsecOld := PackageSet{[]string{"NetworkManager-libreswan", "libreswan"}, ReleaseRange{"4.14", "4.23"}}
	sets := map[string][]PackageSet{"ipsec": {ipsec, ipsecOld}}
	tests := []struct {
		name      string
		release   string
		requested []string
		satisfied bool
		unknown   bool
		others    []string
	}{
		{"its own", "4.20.3", ipsecOld.Packages, true, false, []string{"openvswitch3.5-ipsec"}},
		{"a later one's", "4.20.3", ipsec.Packages, false, false, []string{"openvswitch3.5-ipsec"}},
		{"its own, the new set", "5.0.0", ipsec.Packages, true, false, nil},
		{"an earlier one's", "4.23.0-rc.1", ipsecOld.Packages, false, false, nil},
		{"before the first", "4.12.9", ipsecOld.Packages, false, true, nil},
		{"behind the last", "5.3.0", ipsec.Packages, false, true, nil},
		{"long behind", "9.9.0", ipsec.Packages, false, true, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := matchExtensions([]string{"ipsec"}, sets, parseRelease(tt.release), tt.requested)
			if satisfied := len(m.missing)+len(m.extra)+len(m.unknown) == 0; satisfied != tt.satisfied || (len(m.unknown) > 0) != tt.unknown {
				t.Errorf("got %+v", m)
			}
			if len(m.chosen) == 1 && !slices.Equal(m.chosen[0].others, tt.others) {
				t.Errorf("others %q, want %q", m.chosen[0].others, tt.others)
			}
		})
	}
}
