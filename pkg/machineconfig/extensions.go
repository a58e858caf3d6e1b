package machineconfig

import (
	"slices"
)

// A PackageSet is what one release line of the machine-config-operator layers
// for an extension.
type PackageSet struct {
	// Packages are RPM names, sorted.
	Packages []string
	// Releases names the OpenShift releases, for a person: "4.12 and later".
	Releases string
}

// PackageSets returns the package sets that an extension has stood for since
// OpenShift 4.12, newest first; ok is false for a name that no release knows.
// The sets are those of RHCOS and SCOS; on Fedora CoreOS, up to 4.19, the
// daemon took any extension for the name of a package, and here such a name is
// unknown.
//
// Read from getSupportedExtensions in pkg/daemon/update.go (4.12 to 4.15) and
// SupportedExtensions in pkg/controller/common/helpers.go (4.16 on) of the
// machine-config-operator, at release-4.12@1d4cfffaad, 4.13@a57ca29123,
// 4.14@00b2e0b1cc, 4.15@1ffa8341fb, 4.16@7327bb2359, 4.17@3bdd678e83,
// 4.18@f313997e0b, 4.19@1a6905d980, 4.20@afed09939d, 4.21@db84d8368e,
// 4.22@9027c94cde, 4.23 and 5.0@d20efd9b9b, main@7ff337a4ff.
func PackageSets(extension string) (sets []PackageSet, ok bool) {
	switch extension {
	case "kerberos": // a5bb45ccc, 4.11
		return []PackageSet{{[]string{"krb5-workstation", "libkadm5"}, "4.12 and later"}}, true
	case "kernel-devel":
		return []PackageSet{{[]string{"kernel-devel", "kernel-headers"}, "4.12 and later"}}, true
	case "sandboxed-containers":
		return []PackageSet{{[]string{"kata-containers"}, "4.12 and later"}}, true
	case "usbguard":
		return []PackageSet{{[]string{"usbguard"}, "4.12 and later"}}, true
	case "ipsec":
		return []PackageSet{
			// 098552cd5. LegacyExtensionPackages keeps the older set valid there.
			{[]string{"NetworkManager-libreswan", "libreswan", "openvswitch3.5-ipsec"}, "4.23, 5.0 and later"},
			{[]string{"NetworkManager-libreswan", "libreswan"}, "4.14 to 4.22"},
		}, true
	case "sysstat": // 8ed4eb6c7
		return []PackageSet{{[]string{"sysstat"}, "4.18 and later"}}, true
	case "two-node-ha": // a4131ad63
		return []PackageSet{{[]string{"fence-agents-all", "pacemaker", "pcs"}, "4.19 and later"}}, true
	case "wasm": // ffb664e20, removed by 28f9c7246
		return []PackageSet{{[]string{"crun-wasm"}, "4.14 to 4.21"}}, true
	}
	return nil, false
}

// A ChosenSet is the package set by which one wanted extension is present.
type ChosenSet struct {
	Extension string
	Set       PackageSet
	// Later are packages that a newer release's set for the same extension
	// has beyond this one. Where the target's extensions image offers them,
	// the target may want that newer set.
	Later []string
}

// An ExtensionMatch compares wanted extensions with layered packages.
type ExtensionMatch struct {
	// Chosen has one set for each wanted and known extension, in the order of
	// their names: those that fit best, all of them where Satisfied.
	Chosen []ChosenSet
	// Missing are the packages of the chosen sets that are not requested.
	Missing []string
	// Extra are the requested packages that belong to no chosen set.
	Extra []string
	// Unknown are the wanted extensions that no release knows.
	Unknown []string
}

// Satisfied reports whether the requested packages are exactly those of the
// wanted extensions, none missing, none more, and every extension is known.
func (m ExtensionMatch) Satisfied() bool {
	return len(m.Missing) == 0 && len(m.Extra) == 0 && len(m.Unknown) == 0
}

// MatchExtensions finds for each wanted extension one known package set such
// that the sets together are exactly the requested (layered) packages, and
// says what differs where there is no such choice. Order and repetition mean
// nothing on either side. The packages of a kernel type are not extensions:
// take them out of requested first, see [MatchKernelType].
func MatchExtensions(wanted, requested []string) ExtensionMatch {
	wanted, requested = sorted(wanted), sorted(requested)
	var m ExtensionMatch
	var names []string
	var options [][]PackageSet
	for _, extension := range wanted {
		sets, ok := PackageSets(extension)
		if !ok {
			m.Unknown = append(m.Unknown, extension)
			continue
		}
		names, options = append(names, extension), append(options, sets)
	}
	choice := bestChoice(options, requested)
	var all []string
	for i, c := range choice {
		set := options[i][c]
		chosen := ChosenSet{Extension: names[i], Set: set}
		for _, later := range options[i][:c] {
			chosen.Later = append(chosen.Later, without(later.Packages, set.Packages)...)
		}
		chosen.Later = sorted(chosen.Later)
		m.Chosen = append(m.Chosen, chosen)
		all = append(all, set.Packages...)
	}
	all = sorted(all)
	m.Missing, m.Extra = without(all, requested), without(requested, all)
	return m
}

// bestChoice returns an index into each option such that the union of the
// chosen sets is closest to the requested packages; of equals the newest.
// There are as many unions as the product of the options: two today.
func bestChoice(options [][]PackageSet, requested []string) []int {
	best, bestDistance := make([]int, len(options)), -1
	choice := make([]int, len(options))
	for {
		var all []string
		for i, c := range choice {
			all = append(all, options[i][c].Packages...)
		}
		all = sorted(all)
		distance := len(without(all, requested)) + len(without(requested, all))
		if bestDistance < 0 || distance < bestDistance {
			bestDistance = distance
			copy(best, choice)
		}
		if !next(choice, options) {
			return best
		}
	}
}

// next advances choice to the following combination, last option fastest.
func next(choice []int, options [][]PackageSet) bool {
	for i := len(choice) - 1; i >= 0; i-- {
		if choice[i]++; choice[i] < len(options[i]) {
			return true
		}
		choice[i] = 0
	}
	return false
}

// sorted returns the distinct strings of s in order, nil for none.
func sorted(s []string) []string {
	if len(s) == 0 {
		return nil
	}
	out := slices.Clone(s)
	slices.Sort(out)
	return slices.Compact(out)
}

// without returns the strings of a that are not in b, which is sorted.
func without(a, b []string) []string {
	var out []string
	for _, s := range a {
		if _, found := slices.BinarySearch(b, s); !found {
			out = append(out, s)
		}
	}
	return out
}
