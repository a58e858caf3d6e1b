package verdict

import (
	"fmt"
	"slices"
)

// holds reports whether a release is in the range, or may be: the zero release
// is not known.
func (r ReleaseRange) holds(x release) bool {
	return x == release{} || !x.before(parseRelease(r.Since)) && x.before(parseRelease(r.Before))
}

// Holds reports whether a release such as "4.16.3" is in the range, or may be since
// it cannot be read.
func (r ReleaseRange) Holds(version string) bool { return r.holds(parseRelease(version)) }

// String names the range for a person.
func (r ReleaseRange) String() string { return fmt.Sprintf("%s to before %s", r.Since, r.Before) }

// setsOf are the kernel replacements of a release.
func setsOf(sets []KernelPackageSet, x release) []KernelPackageSet {
	return slices.DeleteFunc(slices.Clone(sets), func(s KernelPackageSet) bool { return !s.Releases.holds(x) })
}

// A chosenSet is the package set by which one wanted extension is present.
type chosenSet struct {
	extension string
	set       PackageSet
	// others are packages that other releases' sets for the same extension
	// have beyond this one. Where the target's extensions image offers them, a
	// later patch of the release may layer them too.
	others []string
}

// An extensionMatch compares wanted extensions with layered packages.
type extensionMatch struct {
	// chosen has one set for each wanted and known extension, in the order of
	// their names: those that fit best, all of them where satisfied.
	chosen []chosenSet
	// missing are the packages of the chosen sets that are not requested.
	missing []string
	// extra are the requested packages that belong to no chosen set.
	extra []string
	// unknown are the wanted extensions that the release is not known to have.
	unknown []string
}

// matchExtensions finds for each wanted extension one known package set such
// that the sets together are exactly the requested packages, and says what
// differs where there is no such choice. Order and repetition mean nothing on
// either side. Only the sets of the release count.
func matchExtensions(wanted []string, sets map[string][]PackageSet, x release, requested []string) extensionMatch {
	wanted, requested = sorted(wanted), sorted(requested)
	var m extensionMatch
	var names []string
	var options [][]PackageSet
	for _, extension := range wanted {
		own := slices.DeleteFunc(slices.Clone(sets[extension]), func(s PackageSet) bool { return !s.Releases.holds(x) })
		if len(own) == 0 {
			m.unknown = append(m.unknown, extension)
			continue
		}
		names, options = append(names, extension), append(options, own)
	}
	var all []string
	for i, c := range bestChoice(options, requested) {
		set := options[i][c]
		chosen := chosenSet{extension: names[i], set: set}
		for _, other := range sets[names[i]] {
			chosen.others = append(chosen.others, without(sorted(other.Packages), sorted(set.Packages))...)
		}
		chosen.others = sorted(chosen.others)
		m.chosen = append(m.chosen, chosen)
		all = append(all, set.Packages...)
	}
	all = sorted(all)
	m.missing, m.extra = without(all, requested), without(requested, all)
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

// A kernelTypeMatch compares a wanted kernel type with a deployment's package
// overrides and layered packages.
type kernelTypeMatch struct {
	// chosen is the replacement that fits best, the one found where satisfied.
	chosen KernelPackageSet
	// missingRemovals and extraRemovals compare the removed base packages.
	missingRemovals, extraRemovals []string
	// missingPackages and extraPackages compare the layered kernel packages.
	missingPackages, extraPackages []string
}

func (m kernelTypeMatch) distance() int {
	return len(m.missingRemovals) + len(m.extraRemovals) + len(m.missingPackages) + len(m.extraPackages)
}

// matchKernelType compares the removed base packages and the requested kernel
// packages of a deployment with the replacements of a kernel type, of which
// there is at least one. Every removal counts, whatever the package.
func matchKernelType(sets []KernelPackageSet, removed, kernelPackages []string) kernelTypeMatch {
	removed, kernelPackages = sorted(removed), sorted(kernelPackages)
	matches := make([]kernelTypeMatch, 0, len(sets))
	for _, set := range sets {
		wantRemoved, wantInstalled := sorted(set.Removed), sorted(set.Installed)
		matches = append(matches, kernelTypeMatch{
			chosen:          set,
			missingRemovals: without(wantRemoved, removed),
			extraRemovals:   without(removed, wantRemoved),
			missingPackages: without(wantInstalled, kernelPackages),
			extraPackages:   without(kernelPackages, wantInstalled),
		})
	}
	// MinFunc returns the first of equals: the newest release.
	return slices.MinFunc(matches, func(a, b kernelTypeMatch) int { return a.distance() - b.distance() })
}

// split divides requested packages into those of some kernel type and the
// rest, which can only belong to extensions.
func split(requested, kernelTypePackages []string) (kernels, rest []string) {
	requested = sorted(requested)
	rest = without(requested, sorted(kernelTypePackages))
	return without(requested, rest), rest
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
