package machineconfig

import "slices"

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

// A KernelPackageSet is how one release line of the daemon replaces the kernel:
// rpm-ostree override remove REMOVED... --install INSTALLED...
type KernelPackageSet struct {
	// Removed are the base packages that are removed, sorted.
	Removed []string
	// Installed are the packages that are layered instead, sorted.
	Installed []string
	// Releases names the OpenShift releases, for a person.
	Releases string
}

// KernelTypePackages returns the replacements that a canonical kernel type has
// stood for since OpenShift 4.12, newest first; ok is false for a type that no
// release knows. The default kernel replaces nothing.
//
// Read from switchKernel and the functions it calls in pkg/daemon/update.go of
// the machine-config-operator at the commits named at [PackageSets]. (The
// list in GetPackagesForSupportedKernelType is for image builds and is another.)
func KernelTypePackages(kernelType string) (sets []KernelPackageSet, ok bool) {
	// kernel-modules-core came with RHEL 9.2: a0e77c248, not in 4.12.
	base8 := []string{"kernel", "kernel-core", "kernel-modules", "kernel-modules-extra"}
	base9 := []string{"kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"}
	switch kernelType {
	case KernelTypeDefault:
		return []KernelPackageSet{{Releases: "4.12 and later"}}, true
	case KernelTypeRealtime:
		realtime := []string{"kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"}
		withKVM := []string{"kernel-rt-core", "kernel-rt-kvm", "kernel-rt-modules", "kernel-rt-modules-extra"}
		return []KernelPackageSet{
			// 857645986, before it 6e6477a53.
			{base9, realtime, "4.22 and later; 4.20 and 4.21 on RHEL 10"},
			{base9, withKVM, "4.13 to 4.19; 4.20 and 4.21 on RHEL 9"},
			{base8, withKVM, "4.12"},
		}, true
	case KernelType64kPages: // ca0f40781
		return []KernelPackageSet{{
			base9,
			[]string{"kernel-64k-core", "kernel-64k-modules", "kernel-64k-modules-core", "kernel-64k-modules-extra"},
			"4.15 and later",
		}}, true
	}
	return nil, false
}

// A KernelTypeMatch compares a wanted kernel type with a deployment's package
// overrides and layered packages.
type KernelTypeMatch struct {
	// Known is false for a kernel type that no release knows; the packages
	// are not compared then.
	Known bool
	// Chosen is the replacement that fits best, the one found where Satisfied.
	Chosen KernelPackageSet
	// MissingRemovals and ExtraRemovals compare the removed base packages.
	MissingRemovals, ExtraRemovals []string
	// MissingPackages and ExtraPackages compare the layered kernel packages.
	MissingPackages, ExtraPackages []string
	// Rest are the layered packages that belong to no kernel type, sorted:
	// for [MatchExtensions].
	Rest []string
}

// Satisfied reports whether exactly the replacement of one release line is in
// place: no package removed or layered less, none more.
func (m KernelTypeMatch) Satisfied() bool { return m.Known && m.distance() == 0 }

func (m KernelTypeMatch) distance() int {
	return len(m.MissingRemovals) + len(m.ExtraRemovals) + len(m.MissingPackages) + len(m.ExtraPackages)
}

// MatchKernelType compares the removed base packages and the requested
// (layered) packages of a deployment with the replacements of a canonical
// kernel type. Every removal counts, whatever the package; of the requested
// packages those that belong to some kernel type do.
func MatchKernelType(kernelType string, removed, requested []string) KernelTypeMatch {
	removed, requested = sorted(removed), sorted(requested)
	kernels := layeredKernelPackages()
	rest := without(requested, kernels)
	sets, ok := KernelTypePackages(kernelType)
	if !ok {
		return KernelTypeMatch{Rest: rest}
	}
	layered := without(requested, rest)
	matches := make([]KernelTypeMatch, 0, len(sets))
	for _, set := range sets {
		matches = append(matches, KernelTypeMatch{
			Known:           true,
			Chosen:          set,
			MissingRemovals: without(set.Removed, removed),
			ExtraRemovals:   without(removed, set.Removed),
			MissingPackages: without(set.Installed, layered),
			ExtraPackages:   without(layered, set.Installed),
			Rest:            rest,
		})
	}
	// MinFunc returns the first of equals: the newest release.
	return slices.MinFunc(matches, func(a, b KernelTypeMatch) int { return a.distance() - b.distance() })
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
	return sorted(all)
}
