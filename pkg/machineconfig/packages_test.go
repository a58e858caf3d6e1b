package machineconfig

import (
	"slices"
	"strings"
	"testing"
)

func TestTablesAreSorted(t *testing.T) {
	for _, extension := range []string{"ipsec", "kerberos", "kernel-devel", "sandboxed-containers", "sysstat", "two-node-ha", "usbguard", "wasm"} {
		sets, ok := PackageSets(extension)
		if !ok || len(sets) == 0 {
			t.Errorf("%s is not known", extension)
		}
		for _, set := range sets {
			if len(set.Packages) == 0 || !slices.IsSorted(set.Packages) || set.Releases.Since == "" || set.Releases.Before == "" {
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
			if !slices.IsSorted(set.Removed) || !slices.IsSorted(set.Installed) || set.Releases.Since == "" || set.Releases.Before == "" {
				t.Errorf("%s: %+v", kernelType, set)
			}
		}
	}
}

func TestParseResolvesPackageSets(t *testing.T) {
	mc, err := Parse([]byte(`{"spec":{"osImageURL":"quay.io/os@sha256:` + strings.Repeat("a", 64) + `","kernelType":"realtime","extensions":["ipsec","tailscale"],"config":{"ignition":{"version":"3.4.0"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(mc.KernelTypeSets) != 3 || !slices.Contains(mc.KernelTypePackages, "kernel-64k-core") {
		t.Errorf("kernel type: %+v, %q", mc.KernelTypeSets, mc.KernelTypePackages)
	}
	if _, ok := mc.ExtensionSets["tailscale"]; ok || len(mc.ExtensionSets["ipsec"]) != 2 {
		t.Errorf("extensions: %+v", mc.ExtensionSets)
	}
}
