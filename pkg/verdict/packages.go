package verdict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const defaultKernelType = "default"

// checkKernelType: the daemon replaces the kernel's packages by rpm-ostree
// override remove ... --install .... Just that replacement must be asked for,
// in place and running.
func checkKernelType(b Booted, mc MachineConfig) finding {
	dep, ok := b.Deployment.Get()
	if !ok {
		return unknownBecause("the booted deployment is not known: " + b.Deployment.Why())
	}
	sets := setsOf(mc.KernelTypeSets, parseRelease(mc.Release))
	if mc.KernelType == defaultKernelType {
		sets = []KernelPackageSet{{}}
	}
	if len(sets) == 0 {
		return unknownBecause("kernelType " + strconv.Quote(mc.KernelType) + " is not one that this program knows" + ofRelease(mc))
	}
	kernels, _ := split(dep.RequestedPackages, mc.KernelTypePackages)
	have := "default"
	if len(kernels)+len(dep.RequestedRemovals)+len(dep.RemovedPackages) > 0 {
		have = replacement(dep.RequestedRemovals, kernels)
	}
	m := matchKernelType(sets, dep.RequestedRemovals, kernels)
	if m.distance() > 0 {
		return differs(have, mc.KernelType, listed(
			"not removed from the base", m.missingRemovals, "removed from the base", m.extraRemovals,
			"not requested", m.missingPackages, "requested", m.extraPackages))
	}
	removed, layered := sorted(dep.RemovedPackages), sorted(dep.LayeredPackages)
	wantRemoved := sorted(m.chosen.Removed)
	still, gone, inactive := without(wantRemoved, removed), without(removed, wantRemoved), without(sorted(m.chosen.Installed), layered)
	if len(still)+len(gone)+len(inactive) > 0 {
		return differs(have, mc.KernelType, listed(
			"asked to be removed but part of the booted deployment", still, "not part of the booted deployment", gone,
			"requested but not layered", inactive))
	}
	if mc.KernelType == defaultKernelType {
		return same(have, mc.KernelType)
	}
	if parseRelease(mc.Release) == (release{}) {
		return unknownBecause(noRelease)
	}
	return checkReplacedKernel(b, mc.KernelType, m.chosen)
}

// noRelease: what a name stands for differs from release to release.
const noRelease = "the MachineConfig does not say which release it is of, so which packages its names stand for is not known"

// ofRelease names the release, if it is known.
func ofRelease(mc MachineConfig) string {
	if r := parseRelease(mc.Release); r != (release{}) {
		return fmt.Sprintf(" for release %d.%d", r.major, r.minor)
	}
	return ""
}

// checkReplacedKernel compares the running kernel with the layered one.
func checkReplacedKernel(b Booted, kernelType string, set KernelPackageSet) finding {
	packages, ok := b.Packages.Get()
	if !ok {
		return need(b.Packages, "the booted deployment's packages", NeedPackages)
	}
	running, ok := b.RunningKernel.Get()
	if !ok {
		return unknownBecause("the running kernel is not known: " + b.RunningKernel.Why())
	}
	for _, name := range set.Installed {
		flavour, ok := strings.CutSuffix(strings.TrimPrefix(name, "kernel-"), "-core")
		if !ok || strings.Contains(flavour, "-") {
			continue
		}
		for _, p := range packages {
			if p.Name != name {
				continue
			}
			// Up to RHEL 9.2 the realtime kernel has its mark in its version,
			// since then, and the 64k kernel always, behind the architecture.
			release := withoutEpoch(p.EVRA)
			marked := strings.Contains(release, "."+flavour)
			if running == release+"+"+flavour || marked && running == release {
				return same(running, kernelType)
			}
			return differs(running, release+"+"+flavour, "the running kernel is not that of the layered "+name)
		}
		return unknownBecause(name + " is layered, but not among the booted deployment's packages")
	}
	return unknownBecause("which package of kernelType " + kernelType + " is the kernel is not known")
}

func withoutEpoch(evra string) string {
	if _, rest, ok := strings.Cut(evra, ":"); ok {
		return rest
	}
	return evra
}

// checkExtensions: exactly the packages of the wanted extensions must be asked
// for and layered, at the versions that the target's extensions image offers.
// It answers for all layered packages, those of a kernel type included.
func checkExtensions(b Booted, t Target, mc MachineConfig) finding {
	dep, ok := b.Deployment.Get()
	if !ok {
		return unknownBecause("the booted deployment is not known: " + b.Deployment.Why())
	}
	kernels, rest := split(dep.RequestedPackages, mc.KernelTypePackages)
	have, want := strings.Join(rest, " "), strings.Join(mc.Extensions, " ")
	m := matchExtensions(mc.Extensions, mc.ExtensionSets, parseRelease(mc.Release), rest)
	switch {
	case len(m.unknown) > 0:
		return unknownBecause("extensions that this program does not know" + ofRelease(mc) + ": " + strings.Join(m.unknown, " "))
	case len(m.missing)+len(m.extra) > 0:
		return differs(have, want, listed("not requested", m.missing, "requested beyond them", m.extra))
	}
	requested, layered := sorted(dep.RequestedPackages), sorted(dep.LayeredPackages)
	if inactive, more := without(requested, layered), without(layered, requested); len(inactive)+len(more) > 0 {
		return differs(have, want, listed("requested but not layered", inactive, "layered but not requested", more))
	}
	switch {
	case dep.Kind != ClientLayered && len(requested) == 0:
		return same(have, want)
	case dep.Kind != ClientLayered:
		return unknownBecause("packages are requested, but the deployed commit is not layered")
	case len(rest)+len(kernels) == 0:
		return differs("packages layered", want, "the deployed commit has layered packages that the MachineConfig does not want")
	case parseRelease(mc.Release) == release{}:
		return unknownBecause(noRelease)
	}
	return checkLayeredPackages(b, t, dep, m, chosenReplacement(mc, dep, kernels))
}

// checkLayeredPackages compares what layering has changed, dependencies
// included, with what the target's extensions image offers.
func checkLayeredPackages(b Booted, t Target, dep Deployment, m extensionMatch, kernel replacedKernel) finding {
	packages, ok := b.Packages.Get()
	if !ok {
		return need(b.Packages, "the booted deployment's packages", NeedPackages)
	}
	base, ok := b.BasePackages.Get()
	if !ok {
		return need(b.BasePackages, "the base packages", NeedPackages)
	}
	added, gone := minus(packages, base), minus(base, packages)
	removed := sorted(dep.RemovedPackages)
	if other := without(names(gone), removed); len(other) > 0 {
		return differs(strings.Join(other, " "), "", "base packages are not as in the base")
	}
	if present := without(removed, names(gone)); len(present) > 0 {
		return unknownBecause("asked to be removed, but not seen to be: " + strings.Join(present, " "))
	}
	if missing := without(sorted(dep.LayeredPackages), names(added)); len(missing) > 0 {
		return unknownBecause("layered, but not among the packages beyond the base: " + strings.Join(missing, " "))
	}
	offered, ok := t.Extensions.Get()
	if !ok {
		return need(t.Extensions, "the target's extensions", NeedExtensions)
	}
	for _, chosen := range m.chosen {
		for _, other := range chosen.others {
			if slices.Contains(names(offered), other) {
				return unknownBecause(fmt.Sprintf("extension %s: the target offers %s, so a release that also layers it may be wanted", chosen.extension, other))
			}
		}
	}
	if why := kernel.ambiguous(names(base), names(offered)); why != "" {
		return unknownBecause(why)
	}
	for _, p := range added {
		if f, ok := checkOffered(p, offered); !ok {
			return f
		}
	}
	return same(packageList(added), packageList(added))
}

// A replacedKernel is the replacement by which a kernel type is present, with
// those that other releases make for it.
type replacedKernel struct {
	chosen KernelPackageSet
	sets   []KernelPackageSet
}

// chosenReplacement is the zero replacedKernel where no kernel is replaced.
func chosenReplacement(mc MachineConfig, dep Deployment, kernels []string) replacedKernel {
	if len(setsOf(mc.KernelTypeSets, parseRelease(mc.Release))) == 0 || mc.KernelType == defaultKernelType {
		return replacedKernel{}
	}
	own := setsOf(mc.KernelTypeSets, parseRelease(mc.Release))
	return replacedKernel{matchKernelType(own, dep.RequestedRemovals, kernels).chosen, mc.KernelTypeSets}
}

// ambiguous says why another release's replacement may be the wanted one, newer
// or older: it layers a package more that the target offers, or removes one
// more that the base has. The extensions images for RHEL offer kernel-rt-kvm
// just where the daemon layers it (extensions/ in openshift/os).
func (k replacedKernel) ambiguous(base, offered []string) string {
	removed, installed := sorted(k.chosen.Removed), sorted(k.chosen.Installed)
	for _, other := range k.sets {
		for _, name := range without(sorted(other.Installed), installed) {
			if slices.Contains(offered, name) {
				return fmt.Sprintf("the target offers %s, so a release that also layers it (%s) may be wanted", name, other.Releases)
			}
		}
		for _, name := range without(sorted(other.Removed), removed) {
			if slices.Contains(base, name) {
				return fmt.Sprintf("the base has %s, so a release that also removes it (%s) may be wanted", name, other.Releases)
			}
		}
	}
	return ""
}

// checkOffered: the package is offered at just this version.
func checkOffered(p Package, offered []Package) (finding, bool) {
	var versions []string
	for _, o := range offered {
		if o.Name == p.Name && arch(o.EVRA) == arch(p.EVRA) {
			versions = append(versions, o.EVRA)
		}
	}
	versions = sorted(versions)
	switch {
	case len(versions) == 0:
		return differs(p.Name+"-"+p.EVRA, "", "the target does not offer this package"), false
	case len(versions) > 1:
		return unknownBecause("the target offers several versions of " + p.Name + ": " + strings.Join(versions, " ")), false
	case versions[0] != p.EVRA:
		return differs(p.Name+"-"+p.EVRA, p.Name+"-"+versions[0], "another version of "+p.Name), false
	}
	return finding{}, true
}

// arch is what follows the last dot.
func arch(evra string) string { return evra[strings.LastIndexByte(evra, '.')+1:] }

// minus returns the packages of a that are not in b, each as often as it is
// there more.
func minus(a, b []Package) []Package {
	count := map[Package]int{}
	for _, p := range b {
		count[p]++
	}
	var out []Package
	for _, p := range a {
		if count[p] > 0 {
			count[p]--
			continue
		}
		out = append(out, p)
	}
	return out
}

// names are the sorted, distinct names.
func names(packages []Package) []string {
	var out []string
	for _, p := range packages {
		out = append(out, p.Name)
	}
	return sorted(out)
}

func packageList(packages []Package) string {
	var out []string
	for _, p := range packages {
		out = append(out, p.Name+"-"+p.EVRA)
	}
	return strings.Join(sorted(out), " ")
}

func replacement(removed, installed []string) string {
	return strings.TrimSpace(listed("without", removed, "with", installed))
}

// listed joins the lists that are not empty, each behind what it is.
func listed(pairs ...any) string {
	var out []string
	for i := 0; i+1 < len(pairs); i += 2 {
		what, _ := pairs[i].(string)
		if list, _ := pairs[i+1].([]string); len(list) > 0 {
			out = append(out, what+": "+strings.Join(list, " "))
		}
	}
	return strings.Join(out, "; ")
}
