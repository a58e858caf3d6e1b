package ostree

import (
	"errors"
	"fmt"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// Keys of the merge commit's metadata, written by ostree-ext (store.rs).
const (
	keyManifestDigest = "ostree.manifest-digest"
	keyManifest       = "ostree.manifest"
	keyImageConfig    = "ostree.container.image-config"
	keyImporter       = "ostree.importer.version"
)

// Labels of the image config (ostree-ext encapsulate.rs, image-spec).
const (
	labelCommit      = "ostree.commit"
	labelFinalDiffID = "ostree.final-diffid"
	labelLinux       = "ostree.linux"
)

// identity says what content the deployment is. Below client-side layering it
// describes the base: the layers' own packages are another matter.
func (r *factReader) identity() verdict.Identity {
	if r.baseErr != nil {
		r.unreadable(r.baseErr)
		return verdict.UnknownIdentity(r.baseErr.Error())
	}
	if r.base.kind == verdict.ContainerImage {
		return r.containerIdentity(r.base.commit, r.base.sum)
	}
	source := verdict.CommitFromDeployment
	if r.base.commit != r.commit {
		source = verdict.CommitFromParent
	}
	return plainIdentity(r.base.commit, r.base.sum, source)
}

// plainIdentity describes a commit that no image made: it has no digests.
func plainIdentity(c *format.Commit, sum verdict.Checksum, source verdict.CommitSource) verdict.Identity {
	id := verdict.UnknownIdentity("the deployment was not made from a container image")
	// What is for show only is left out where it cannot be read.
	id.Version, _, _ = c.Metadata.String("version")
	id.KernelRelease, _, _ = c.Metadata.String(labelLinux)
	id.DerivedLayers = verdict.Known(0)
	id.InnerCommit = verdict.Known(innerCommit(c, sum, source))
	return id
}

func innerCommit(c *format.Commit, sum verdict.Checksum, source verdict.CommitSource) verdict.InnerCommit {
	return verdict.InnerCommit{Checksum: sum, Source: source, Root: c.Root, Timestamp: c.Timestamp}
}

// containerIdentity describes a merge commit.
func (r *factReader) containerIdentity(c *format.Commit, sum verdict.Checksum) verdict.Identity {
	where := "reading commit " + string(sum)
	id := verdict.UnknownIdentity(where)
	id.ManifestDigest = fact(r, func() (verdict.Digest, error) {
		s, err := metadataString(c, keyManifestDigest)
		if err != nil {
			return "", fmt.Errorf("%s: %w", where, err)
		}
		d, err := format.ParseDigest(s)
		if err != nil {
			return "", fmt.Errorf("%s: %s: %w", where, keyManifestDigest, err)
		}
		return d, nil
	})
	var layers []verdict.Digest
	id.ConfigDigest = fact(r, func() (verdict.Digest, error) {
		m, err := parseMetadata(c, keyManifest, format.ParseStoredManifest)
		if err != nil {
			return "", fmt.Errorf("%s: %w", where, err)
		}
		layers = m.Layers
		id.Layers = verdict.Known(len(layers))
		return m.Config, nil
	})
	config, err := parseMetadata(c, keyImageConfig, format.ParseImageConfig)
	if err != nil {
		err = fmt.Errorf("%s: %w", where, err)
		r.unreadable(err)
		unknown := verdict.UnknownIdentity(err.Error())
		id.Architecture, id.DiffIDs = unknown.Architecture, unknown.DiffIDs
		id.FinalDiffID, id.DerivedLayers, id.InnerCommit = unknown.FinalDiffID, unknown.DerivedLayers, unknown.InnerCommit
		return id
	}
	id.Architecture = verdict.Known(config.Architecture)
	id.DiffIDs = verdict.Known(config.DiffIDs)
	id.KernelRelease = config.Labels[labelLinux]
	id.Version = config.Version()
	id.FinalDiffID = config.FinalDiffID()
	id.DerivedLayers = config.DerivedLayers(len(layers))
	id.InnerCommit = r.innerOf(c, config.Labels, layers)
	return id
}

func metadataString(c *format.Commit, key string) (string, error) {
	s, ok, err := c.Metadata.String(key)
	if err == nil && !ok {
		err = errors.New("no metadata key " + key)
	}
	return s, err
}

func parseMetadata[T any](c *format.Commit, key string, parse func([]byte) (T, error)) (T, error) {
	s, err := metadataString(c, key)
	if err != nil {
		var zero T
		return zero, err
	}
	v, err := parse([]byte(s))
	if err != nil {
		err = fmt.Errorf("%s: %w", key, err)
	}
	return v, err
}

// innerOf finds the ostree commit that the image encapsulates: the commit that
// layer 0 was imported as, else the parent where that is shown to be it.
func (r *factReader) innerOf(c *format.Commit, labels map[string]string, layers []verdict.Digest) verdict.Fact[verdict.InnerCommit] {
	if labels[labelFinalDiffID] == "" {
		// Layer 0 of other images is imported as a commit too, one of no meaning.
		return verdict.Unknown[verdict.InnerCommit]("the image encapsulates no ostree commit: it has no label " + labelFinalDiffID)
	}
	if len(layers) == 0 {
		return verdict.Unknown[verdict.InnerCommit]("the image's layers are not known")
	}
	inner, err := r.innerFromBlob(layers[0])
	if err == nil {
		return verdict.Known(inner)
	}
	inner, parentErr := r.innerFromParent(c, labels)
	if parentErr == nil {
		return verdict.Known(inner)
	}
	return verdict.Unknown[verdict.InnerCommit](fmt.Sprintf("%v; %v", err, parentErr))
}

func (r *factReader) innerFromBlob(layer verdict.Digest) (verdict.InnerCommit, error) {
	ref, err := format.BlobRef(layer)
	if err != nil {
		return verdict.InnerCommit{}, err
	}
	sum, err := r.s.repo.ResolveRef(ref)
	if err != nil {
		return verdict.InnerCommit{}, err
	}
	c, err := r.s.repo.Commit(sum)
	if err != nil {
		return verdict.InnerCommit{}, err
	}
	if c.Metadata.Has(keyImporter) {
		return verdict.InnerCommit{}, fmt.Errorf("commit %s of ref %s is an imported layer, not an encapsulated commit", sum, ref)
	}
	return innerCommit(c, sum, verdict.CommitFromBlobRef), nil
}

func (r *factReader) innerFromParent(c *format.Commit, labels map[string]string) (verdict.InnerCommit, error) {
	switch label := labels[labelCommit]; {
	case c.Parent == "":
		return verdict.InnerCommit{}, errors.New("the merge commit has no parent")
	case label == "":
		return verdict.InnerCommit{}, errors.New("the image has no label " + labelCommit)
	case label != string(c.Parent):
		return verdict.InnerCommit{}, fmt.Errorf("the merge commit's parent %s is not the label %s", c.Parent, labelCommit)
	}
	parent, err := r.s.repo.Commit(c.Parent)
	if err != nil {
		return verdict.InnerCommit{}, err
	}
	return innerCommit(parent, c.Parent, verdict.CommitFromParent), nil
}
