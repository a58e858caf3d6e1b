package verdict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Reconcile brings together what a sysroot and what rpm-ostree say of one
// booted system. The sysroot comes first: what it left unknown of Identity,
// Deployment and OriginReference is taken from the status where that knows it,
// all other facts are the sysroot's. Where both know and disagree, and where
// the status shows a divergence that the sysroot does not, the deployment gets
// a divergence [SourcesDisagree], so that no check can make up for it.
//
// A status sees a deployment in part only. So it takes no divergence and no
// Unseen of the sysroot away, and a deployment that it alone knows keeps an
// Unseen, whatever else it says.
func Reconcile(sysroot, status Booted) Booted {
	out := sysroot
	var c conflicts
	own, isOwn := sysroot.Deployment.Get()
	told, isTold := status.Deployment.Get()
	if isOwn && isTold {
		c.text("stateroot", own.Stateroot, told.Stateroot)
		c.text("checksum", string(own.Checksum), string(told.Checksum))
		c.text("serial", strconv.Itoa(own.Serial), strconv.Itoa(told.Serial))
		if len(c) > 0 {
			// What is said of another deployment tells nothing of this one.
			out.Deployment = own.disputed(c)
			return out
		}
		c.deployment(own, told)
	}
	out.Identity = c.identity(sysroot.Identity, status.Identity)
	out.OriginReference = pick(&c, "origin reference", sysroot.OriginReference, status.OriginReference, showText)
	switch {
	case isOwn:
		out.Deployment = own.disputed(c)
	case isTold:
		told.Unseen = strings.TrimPrefix(told.Unseen+"; the sysroot's own: "+sysroot.Deployment.Why(), "; ")
		out.Deployment = told.disputed(c)
	case len(c) > 0:
		out.Deployment = Unknown[Deployment](c.String())
	case !sysroot.Deployment.Gathered():
		out.Deployment = status.Deployment
	}
	return out
}

// disputed is the deployment with the conflicts among its divergences.
func (d Deployment) disputed(c conflicts) Fact[Deployment] {
	d.Divergences = slices.Clone(d.Divergences)
	for _, detail := range c {
		d.Divergences = append(d.Divergences, Divergence{Kind: SourcesDisagree, Detail: detail})
	}
	return Known(d)
}

// maxShown bounds, in bytes, a value in the words about a conflict.
const maxShown = 400

// conflicts says in words what the two sources disagree on.
type conflicts []string

func (c conflicts) String() string { return "the sources disagree: " + strings.Join(c, "; ") }

func (c *conflicts) text(field, sysroot, status string) {
	if sysroot == status {
		return
	}
	say := func(s string) string {
		switch {
		case s == "":
			return "nothing"
		case len(s) > maxShown:
			return strings.ToValidUTF8(s[:maxShown], "") + "..."
		}
		return s
	}
	*c = append(*c, fmt.Sprintf("%s: the sysroot says %s, rpm-ostree %s", field, say(sysroot), say(status)))
}

func (c *conflicts) list(field string, sysroot, status []string) {
	c.text(field, strings.Join(sorted(sysroot), " "), strings.Join(sorted(status), " "))
}

// deployment compares what both say of one deployment.
func (c *conflicts) deployment(own, told Deployment) {
	c.text("kind", string(own.Kind), string(told.Kind))
	c.text("base checksum", string(own.Base.Checksum), string(told.Base.Checksum))
	c.text("base kind", string(own.Base.Kind), string(told.Base.Kind))
	c.list("requested packages", packageNames(own.RequestedPackages), packageNames(told.RequestedPackages))
	c.list("requested removals", own.RequestedRemovals, told.RequestedRemovals)
	c.list("layered packages", own.LayeredPackages, told.LayeredPackages)
	c.list("removed packages", own.RemovedPackages, told.RemovedPackages)
	for _, d := range told.Divergences {
		if !slices.ContainsFunc(own.Divergences, func(o Divergence) bool { return o.Kind == d.Kind }) {
			c.text(string(d.Kind), "", strconv.Quote(d.Detail))
		}
	}
}

// packageNames takes the checksum away that the origin file puts before the
// name of a local package: SHA256:NEVRA. rpm-ostree shows the name alone.
func packageNames(requested []string) []string {
	var out []string
	for _, name := range requested {
		if sum, rest, ok := strings.Cut(name, ":"); ok && len(sum) == 64 && strings.Trim(sum, "0123456789abcdef") == "" {
			name = rest
		}
		out = append(out, name)
	}
	return out
}

func (c *conflicts) identity(own, told Identity) Identity {
	out := own
	out.Architecture = pick(c, "architecture", own.Architecture, told.Architecture, showText)
	out.ManifestDigest = pick(c, "manifest digest", own.ManifestDigest, told.ManifestDigest, showDigest)
	out.ConfigDigest = pick(c, "config digest", own.ConfigDigest, told.ConfigDigest, showDigest)
	out.Layers = pick(c, "layers", own.Layers, told.Layers, strconv.Itoa)
	out.FinalDiffID = pick(c, "final diff id", own.FinalDiffID, told.FinalDiffID, showDigest)
	out.DerivedLayers = pick(c, "derived layers", own.DerivedLayers, told.DerivedLayers, strconv.Itoa)
	out.DiffIDs = choose(own.DiffIDs, told.DiffIDs)
	if a, b, both := values(own.DiffIDs, told.DiffIDs); both && !slices.Equal(a, b) {
		c.text(firstDifference(a, b))
	}
	out.InnerCommit = choose(own.InnerCommit, told.InnerCommit)
	// A label may well be wrong, and proves nothing.
	if a, b, both := values(own.InnerCommit, told.InnerCommit); both && a.Source.Proving() && b.Source.Proving() {
		c.text("inner commit", string(a.Checksum), string(b.Checksum))
	}
	if out.Version == "" {
		out.Version = told.Version
	}
	if out.KernelRelease == "" {
		out.KernelRelease = told.KernelRelease
	}
	return out
}

// firstDifference names where two lists of diff ids that are not equal part.
func firstDifference(a, b []Digest) (field, first, second string) {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("diff id %d", i), string(a[i]), string(b[i])
		}
	}
	return "diff ids", strconv.Itoa(len(a)), strconv.Itoa(len(b))
}

func showText(s string) string { return s }

func showDigest(d Digest) string { return string(d) }

// pick chooses a fact, and notes where both are known and show differently.
func pick[T any](c *conflicts, field string, first, second Fact[T], show func(T) string) Fact[T] {
	if a, b, both := values(first, second); both {
		c.text(field, show(a), show(b))
	}
	return choose(first, second)
}

// choose is the first fact unless only the second knows, or was asked for.
func choose[T any](first, second Fact[T]) Fact[T] {
	if first.IsKnown() || first.Gathered() && !second.IsKnown() {
		return first
	}
	return second
}

func values[T any](first, second Fact[T]) (a, b T, both bool) {
	a, ok1 := first.Get()
	b, ok2 := second.Get()
	return a, b, ok1 && ok2
}
