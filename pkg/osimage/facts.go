package osimage

import (
	"fmt"

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
func configFacts(id *verdict.Identity, c ImageConfig, err error, m verdict.Fact[Manifest]) {
	if err != nil {
		why := err.Error()
		id.Architecture = verdict.Unknown[string](why)
		id.DiffIDs = verdict.Unknown[[]verdict.Digest](why)
		id.FinalDiffID = verdict.Unknown[verdict.Digest](why)
		id.DerivedLayers = verdict.Unknown[int](why)
		return
	}
	id.Architecture = verdict.Known(c.Architecture)
	if c.Architecture == "" {
		id.Architecture = verdict.Unknown[string]("the image config names no architecture")
	}
	id.DiffIDs = verdict.Known(c.DiffIDs)
	id.FinalDiffID = finalDiffID(c)
	id.DerivedLayers = derivedLayers(c, id.FinalDiffID, m)
	id.Version = c.Labels[LabelVersion]
	if id.Version == "" {
		id.Version = c.Labels[LabelOldVersion]
	}
	// Derived node images set the label to "true".
	if k := c.Labels[LabelKernel]; k != "true" {
		id.KernelRelease = k
	}
}

// finalDiffID returns the label; known and empty where there is none.
func finalDiffID(c ImageConfig) verdict.Fact[verdict.Digest] {
	label, ok := c.Labels[LabelFinalDiffID]
	if !ok {
		return verdict.Known(verdict.Digest(""))
	}
	d, err := checkDigest(label)
	if err != nil {
		return verdict.Unknown[verdict.Digest](fmt.Sprintf("label %s: %v", LabelFinalDiffID, err))
	}
	return verdict.Known(d)
}

// derivedLayers counts the layers after ostree.final-diffid by the rules of
// ostree-ext (container/store.rs), which also refuses a squashed image, whose
// label names no layer, and a layer that stands there twice. machine-os-content
// has none: only the repository in it is deployed.
func derivedLayers(c ImageConfig, final verdict.Fact[verdict.Digest], manifest verdict.Fact[Manifest]) verdict.Fact[int] {
	label, ok := final.Get()
	if !ok {
		return verdict.Unknown[int](final.Why())
	}
	m, ok := manifest.Get()
	if !ok {
		return verdict.Unknown[int](manifest.Why())
	}
	form, why := encapsulationOf(m, c)
	if form != nativeEncapsulation && form != legacyEncapsulation {
		return verdict.Unknown[int](why)
	}
	if len(m.Layers) != len(c.DiffIDs) {
		return verdict.Unknown[int](fmt.Sprintf("the manifest has %d layers, the config %d diff ids", len(m.Layers), len(c.DiffIDs)))
	}
	if form == legacyEncapsulation {
		return verdict.Known(0)
	}
	position := -1
	for i, d := range c.DiffIDs {
		if d != label {
			continue
		}
		if position >= 0 {
			return verdict.Unknown[int]("the layer that " + LabelFinalDiffID + " names stands there more than once")
		}
		position = i
	}
	if position < 0 {
		return verdict.Unknown[int]("no layer is the one that " + LabelFinalDiffID + " names: a squashed image")
	}
	for i, l := range m.Layers {
		if i != position && l.Digest == m.Layers[position].Digest {
			return verdict.Unknown[int]("the layer that " + LabelFinalDiffID + " names stands there more than once")
		}
	}
	return verdict.Known(len(c.DiffIDs) - 1 - position)
}
