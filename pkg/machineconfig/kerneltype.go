package machineconfig

import (
	"slices"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// Kernel types, from pkg/controller/common/constants.go of the
// machine-config-operator.
const (
	KernelTypeDefault  = "default"   // KernelTypeDefault: the throughput kernel
	KernelTypeRealtime = "realtime"  // KernelTypeRealtime
	KernelType64kPages = "64k-pages" // KernelType64kPages: arm64 only, 4.15 and later
)

// CanonicalKernelType turns the empty kernel type into "default". Any other
// value stays: upstream's CanonicalizeKernelType (pkg/helpers/helpers.go)
// takes a type it does not know for the default kernel, and a later release
// may know it.
func CanonicalKernelType(kernelType string) string {
	if kernelType == "" {
		return KernelTypeDefault
	}
	return kernelType
}

// KernelTypePackages returns the replacements that a canonical kernel type has
// stood for since OpenShift 4.12, newest first; ok is false for a type that no
// release knows. The default kernel replaces nothing.
//
// Read from switchKernel and the functions it calls in pkg/daemon/update.go of
// the machine-config-operator at the commits named at [PackageSets]. (The
// list in GetPackagesForSupportedKernelType is for image builds and is another.)
func KernelTypePackages(kernelType string) (sets []verdict.KernelPackageSet, ok bool) {
	// kernel-modules-core came with RHEL 9.2: a0e77c248, not in 4.12.
	base8 := []string{"kernel", "kernel-core", "kernel-modules", "kernel-modules-extra"}
	base9 := []string{"kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"}
	switch kernelType {
	case KernelTypeDefault:
		return []verdict.KernelPackageSet{{Releases: verdict.ReleaseRange{Since: "4.12", Before: unread}}}, true
	case KernelTypeRealtime:
		realtime := []string{"kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"}
		withKVM := []string{"kernel-rt-core", "kernel-rt-kvm", "kernel-rt-modules", "kernel-rt-modules-extra"}
		return []verdict.KernelPackageSet{
			// In 4.20 and 4.21 the first set is that of RHEL 10, the second that of RHEL 9.
			// 857645986, before it 6e6477a53.
			{Removed: base9, Installed: realtime, Releases: verdict.ReleaseRange{Since: "4.20", Before: unread}},
			{Removed: base9, Installed: withKVM, Releases: verdict.ReleaseRange{Since: "4.13", Before: "4.22"}},
			{Removed: base8, Installed: withKVM, Releases: verdict.ReleaseRange{Since: "4.12", Before: "4.13"}},
		}, true
	case KernelType64kPages: // ca0f40781
		return []verdict.KernelPackageSet{{
			Removed:   base9,
			Installed: []string{"kernel-64k-core", "kernel-64k-modules", "kernel-64k-modules-core", "kernel-64k-modules-extra"},
			Releases:  verdict.ReleaseRange{Since: "4.15", Before: unread},
		}}, true
	}
	return nil, false
}

// layeredKernelPackages are the packages that any kernel type layers, sorted.
func layeredKernelPackages() []string {
	var all []string
	for _, kernelType := range [...]string{KernelTypeRealtime, KernelType64kPages} {
		sets, _ := KernelTypePackages(kernelType)
		for _, set := range sets {
			all = append(all, set.Installed...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// addPackageSets resolves the kernel type and the extensions by the tables.
func addPackageSets(mc *verdict.MachineConfig) {
	mc.KernelTypeSets, _ = KernelTypePackages(mc.KernelType)
	mc.KernelTypePackages = layeredKernelPackages()
	for _, extension := range mc.Extensions {
		sets, ok := PackageSets(extension)
		if !ok {
			continue
		}
		if mc.ExtensionSets == nil {
			mc.ExtensionSets = map[string][]verdict.PackageSet{}
		}
		mc.ExtensionSets[extension] = sets
	}
}
