package verdict

import (
	"fmt"
	"slices"
)

// checkContent tries the proofs in order. A proof compares content: digests
// that pin bytes, or hash-checked ostree objects. Labels, versions, names and
// origins never take part.
func checkContent(b Booted, t Target) finding {
	mc, ok := t.MachineConfig.Get()
	if !ok {
		return unknownBecause("the target is not known: " + t.MachineConfig.Why())
	}
	bi, ti := b.Identity, t.Identity
	booted, isContainer := bi.ManifestDigest.Get()
	// The pinned digest names one manifest's bytes. If the deployed commit was
	// made from just that manifest, nothing is left to ask.
	if isContainer && mc.Digest != "" && booted == mc.Digest {
		return proven(ProofManifestDigest, string(booted), string(mc.Digest))
	}
	target, ok := ti.ManifestDigest.Get()
	if !ok {
		return need(ti.ManifestDigest, "target manifest", NeedInstance)
	}
	if isContainer && booted == target {
		return proven(ProofManifestDigest, string(booted), string(target))
	}
	config, ok := ti.ConfigDigest.Get()
	if !ok {
		return need(ti.ConfigDigest, "target manifest", NeedManifest)
	}
	if bc, ok := bi.ConfigDigest.Get(); ok && bc == config && sameLayerCount(bi, ti) {
		return proven(ProofConfigDigest, string(bc), string(config))
	}
	diffIDs, ok := ti.DiffIDs.Get()
	if !ok {
		return need(ti.DiffIDs, "target config", NeedConfig)
	}
	if sameDiffIDs(bi, ti) {
		what := fmt.Sprintf("%d layers", len(diffIDs))
		return proven(ProofDiffIDs, what, what)
	}
	return checkCommit(b, t)
}

// sameLayerCount: a manifest may list more layers than its config accounts for,
// and an import takes them all.
func sameLayerCount(b, t Identity) bool {
	diffIDs, ok1 := b.DiffIDs.Get()
	bn, ok2 := b.Layers.Get()
	tn, ok3 := t.Layers.Get()
	return ok1 && ok2 && ok3 && bn > 0 && bn == len(diffIDs) && bn == tn
}

// sameDiffIDs is proof 3: the same uncompressed layers in the same order, as
// many as the manifests have, with the same last ostree layer.
func sameDiffIDs(b, t Identity) bool {
	bd, ok1 := b.DiffIDs.Get()
	td, ok2 := t.DiffIDs.Get()
	bn, ok3 := b.Layers.Get()
	tn, ok4 := t.Layers.Get()
	bf, ok5 := b.FinalDiffID.Get()
	tf, ok6 := t.FinalDiffID.Get()
	return ok1 && ok2 && ok3 && ok4 && ok5 && ok6 &&
		len(bd) > 0 && slices.Equal(bd, td) && bn == len(bd) && tn == len(td) && bf == tf
}

// checkCommit is proofs 4 and 5: both sides are one ostree commit with nothing
// on top of it.
func checkCommit(b Booted, t Target) finding {
	dep, ok := b.Deployment.Get()
	if !ok {
		return unknownBecause("the booted deployment is not known: " + b.Deployment.Why())
	}
	derived, ok := t.Identity.DerivedLayers.Get()
	if !ok {
		return unknownBecause("whether the target has layers beyond its ostree commit is not known: " + t.Identity.DerivedLayers.Why())
	}
	shown := string(dep.Checksum)
	if c, ok := b.Identity.InnerCommit.Get(); ok {
		shown = string(c.Checksum)
	}
	if derived > 0 {
		if why := unreadImage(b.Identity, dep); why != "" {
			return unknownBecause(why)
		}
		return differs(shown, imageName(t), fmt.Sprintf("the target lays %d more on its ostree layers, so only the very same image can be equal", derived))
	}
	commit, ok := t.Identity.InnerCommit.Get()
	if !ok {
		return need(t.Identity.InnerCommit, "target ostree commit", NeedInnerCommit)
	}
	if !commit.Source.Proving() || commit.Checksum == "" || commit.Root.DirTree == "" || commit.Root.DirMeta == "" {
		return unknownBecause("the target's ostree commit is known from " + string(commit.Source) + " only, which proves nothing")
	}
	if sameCommit(b.Identity, dep, commit) {
		return proven(ProofOSTreeCommit, string(commit.Checksum), string(commit.Checksum))
	}
	root := dep.Root
	if dep.Kind == ClientLayered {
		root = dep.Base.Root
	}
	if root.DirTree == "" || root.DirMeta == "" {
		return unknownBecause("the root of the deployed commit is not known")
	}
	if root == commit.Root {
		name := rootName(root)
		return proven(ProofContentChecksum, name, name)
	}
	return differs(shown, string(commit.Checksum), "another ostree commit with other content")
}

// unreadImage says why the booted image could still be the very same one: a
// container made the deployment, but not all that tells which is known.
func unreadImage(b Identity, dep Deployment) string {
	if dep.Kind != ContainerImage && dep.Base.Kind != ContainerImage {
		return ""
	}
	switch {
	case !b.ManifestDigest.IsKnown():
		return "the booted image is not known: " + b.ManifestDigest.Why()
	case !b.ConfigDigest.IsKnown():
		return "the booted image is not known: " + b.ConfigDigest.Why()
	case !b.DiffIDs.IsKnown():
		return "the booted image is not known: " + b.DiffIDs.Why()
	}
	return ""
}

// sameCommit is proof 4. On a container deployment the merge commit must have
// the very root of the inner commit: nothing was laid over it. Below packages
// that are layered on the host it is the base that counts; the packages are
// another check's matter.
func sameCommit(b Identity, dep Deployment, target InnerCommit) bool {
	inner, ok := b.InnerCommit.Get()
	if !ok || !inner.Source.Proving() || inner.Checksum != target.Checksum {
		return false
	}
	derived, ok := b.DerivedLayers.Get()
	if !ok || derived != 0 {
		return false
	}
	base := Base{Checksum: dep.Checksum, Kind: dep.Kind, Root: dep.Root}
	if dep.Kind == ClientLayered {
		base = dep.Base
	}
	switch base.Kind {
	case PlainCommit:
		// The checksum covers the root. A root that was not read is let pass
		// only where the deployment check cannot say same either.
		unread := base.Root == Root{} && dep.Unseen != ""
		return base.Checksum == target.Checksum && (base.Root == target.Root || unread)
	case ContainerImage:
		return base.Root == inner.Root && inner.Root == target.Root
	case ClientLayered:
		return false
	}
	return false
}

func rootName(r Root) string { return string(r.DirTree) + " " + string(r.DirMeta) }

func proven(p Proof, booted, target string) finding {
	f := same(booted, target)
	f.proof = p
	return f
}

// need asks for a fact that was not gathered; one that could not be learned
// stays unknown for good.
func need[T any](f Fact[T], what string, n Need) finding {
	if f.Gathered() {
		return unknownBecause(what + ": " + f.Why())
	}
	return unknownBecause(what+" not read", n)
}

func imageName(t Target) string {
	if d, ok := t.Identity.ManifestDigest.Get(); ok {
		return string(d)
	}
	return ""
}

// forecastCost says what a pivot would fetch; nil where no manifest was read.
func forecastCost(b Booted, t Target) *Cost {
	layers, ok := t.ManifestLayers.Get()
	if !ok {
		return nil
	}
	c := &Cost{Kernel: "unknown", SameBase: sameBase(b, t)}
	seen := map[Digest]bool{}
	for _, l := range layers {
		if b.Blobs[l.Digest] || seen[l.Digest] {
			continue
		}
		seen[l.Digest] = true
		c.Layers++
		c.Bytes += l.Size
	}
	bk, tk := b.Identity.KernelRelease, t.Identity.KernelRelease
	if looksLikeKernel(bk) && looksLikeKernel(tk) {
		c.Kernel = "other"
		if bk == tk {
			c.Kernel = "same"
		}
	}
	return c
}

// looksLikeKernel leaves out the "true" that some builds write.
func looksLikeKernel(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' }

// sameBase compares what lies below the derived layers; nil if unknown.
func sameBase(b Booted, t Target) *bool {
	answer := func(v bool) *bool { return &v }
	base := func(id Identity) ([]Digest, bool) {
		d, ok := id.DiffIDs.Get()
		n, ok2 := id.DerivedLayers.Get()
		if !ok || !ok2 || n < 0 || n >= len(d) {
			return nil, false
		}
		return d[:len(d)-n], true
	}
	bb, ok1 := base(b.Identity)
	tb, ok2 := base(t.Identity)
	if ok1 && ok2 && slices.Equal(bb, tb) {
		return answer(true)
	}
	bc, ok3 := b.Identity.InnerCommit.Get()
	tc, ok4 := t.Identity.InnerCommit.Get()
	switch {
	case ok3 && ok4 && tc.Checksum != "":
		return answer(bc.Checksum == tc.Checksum)
	case ok1 && ok2:
		return answer(false)
	}
	return nil
}
