package osimage

import (
	"fmt"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// Identity returns what is known of the image's content from the parts fetched
// so far. Parts that were never asked for stay not gathered; those that failed
// are unknown, with the reason.
func (img *Image) Identity() verdict.Identity {
	img.mu.Lock()
	defer img.mu.Unlock()
	var id verdict.Identity
	switch {
	case img.manifest.done && img.manifest.err == nil:
		id.ManifestDigest = verdict.Known(img.manifest.value.Digest)
	case img.top.done:
		id.ManifestDigest = factOf(img.topInstance())
	}
	m := factOf(img.manifest.value, img.manifest.err)
	if !img.manifest.done {
		m = verdict.Fact[Manifest]{}
	}
	id.ConfigDigest = mapFact(m, func(m Manifest) verdict.Digest { return m.ConfigDigest })
	id.Layers = mapFact(m, func(m Manifest) int { return len(m.Layers) })
	if img.config.done {
		configFacts(&id, img.config.value, img.config.err, m)
	}
	if img.commit.done {
		id.InnerCommit = factOf(img.commit.value, img.commit.err)
	}
	return id
}

func (img *Image) topInstance() (verdict.Digest, error) {
	if img.top.err != nil {
		return "", img.top.err
	}
	return img.instanceDigest(img.top.value)
}

// ManifestLayers returns the manifest's layers, if it was fetched.
func (img *Image) ManifestLayers() verdict.Fact[[]verdict.Layer] {
	img.mu.Lock()
	defer img.mu.Unlock()
	if !img.manifest.done {
		return verdict.Fact[[]verdict.Layer]{}
	}
	return mapFact(factOf(img.manifest.value, img.manifest.err), func(m Manifest) []verdict.Layer { return m.Layers })
}

func factOf[T any](v T, err error) verdict.Fact[T] {
	if err != nil {
		return verdict.Unknown[T](err.Error())
	}
	return verdict.Known(v)
}

func mapFact[T, U any](f verdict.Fact[T], to func(T) U) verdict.Fact[U] {
	v, ok := f.Get()
	switch {
	case ok:
		return verdict.Known(to(v))
	case f.Gathered():
		return verdict.Unknown[U](f.Why())
	default:
		return verdict.Fact[U]{}
	}
}

// configFacts fills in what the image config says.
func configFacts(id *verdict.Identity, c format.ImageConfig, err error, m verdict.Fact[Manifest]) {
	if err != nil {
		why := err.Error()
		id.Architecture = verdict.Unknown[string](why)
		id.DiffIDs = verdict.Unknown[[]verdict.Digest](why)
		id.FinalDiffID = verdict.Unknown[verdict.Digest](why)
		id.DerivedLayers = verdict.Unknown[int](why)
		return
	}
	id.Architecture = verdict.Known(c.Architecture)
	id.DiffIDs = verdict.Known(c.DiffIDs)
	id.FinalDiffID = c.FinalDiffID()
	id.DerivedLayers = derivedLayers(c, m)
	id.Version = c.Version()
	// Derived node images set the label to "true".
	if k := c.Labels[LabelKernel]; k != "true" {
		id.KernelRelease = k
	}
}

// derivedLayers counts the layers after ostree.final-diffid, by the rules of
// ostree-ext (container/store.rs). machine-os-content has none: only the
// repository in it is deployed.
func derivedLayers(c format.ImageConfig, manifest verdict.Fact[Manifest]) verdict.Fact[int] {
	m, ok := manifest.Get()
	if !ok {
		return verdict.Unknown[int](manifest.Why())
	}
	if len(m.Layers) != len(c.DiffIDs) {
		return verdict.Unknown[int](fmt.Sprintf("the manifest has %d layers, the config %d diff ids", len(m.Layers), len(c.DiffIDs)))
	}
	switch form, why := encapsulationOf(m, c); form {
	case legacyEncapsulation:
		return verdict.Known(0)
	case nativeEncapsulation:
	default:
		return verdict.Unknown[int](why)
	}
	derived := c.DerivedLayers(len(m.Layers))
	n, ok := derived.Get()
	if !ok {
		return derived
	}
	final := len(m.Layers) - 1 - n
	for i, l := range m.Layers {
		if i != final && l.Digest == m.Layers[final].Digest {
			return verdict.Unknown[int]("the layer that " + LabelFinalDiffID + " names stands there more than once")
		}
	}
	return derived
}
