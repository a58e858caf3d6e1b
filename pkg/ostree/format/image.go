package format

import (
	"encoding/json"
	"fmt"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// Bounds of the image documents that a merge commit stores.
const (
	maxStoredJSON   = 4 << 20
	maxStoredLayers = 4096
)

// A StoredManifest is the image manifest as ostree-ext keeps it in a merge
// commit's ostree.manifest (store.rs), and rpm-ostree shows it in
// base-commit-meta. It was serialized anew, so the digest of its bytes means
// nothing.
type StoredManifest struct {
	// Config is the digest of the image config.
	Config verdict.Digest
	// Layers are the digests of the compressed layers, in order.
	Layers []verdict.Digest
}

// ParseStoredManifest decodes a stored manifest. One without layers, or with a
// malformed digest, is an error.
func ParseStoredManifest(b []byte) (StoredManifest, error) {
	if len(b) > maxStoredJSON {
		return StoredManifest{}, malformed("manifest of %d bytes", len(b))
	}
	type descriptor struct {
		Digest string `json:"digest"`
	}
	var m struct {
		Config descriptor   `json:"config"`
		Layers []descriptor `json:"layers"`
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return StoredManifest{}, malformed("manifest: %v", err)
	}
	if n := len(m.Layers); n == 0 || n > maxStoredLayers {
		return StoredManifest{}, malformed("manifest with %d layers", n)
	}
	config, err := ParseDigest(m.Config.Digest)
	if err != nil {
		return StoredManifest{}, fmt.Errorf("config.digest: %w", err)
	}
	out := StoredManifest{Config: config}
	for i, l := range m.Layers {
		d, err := ParseDigest(l.Digest)
		if err != nil {
			return StoredManifest{}, fmt.Errorf("layers[%d].digest: %w", i, err)
		}
		out.Layers = append(out.Layers, d)
	}
	return out, nil
}

// An ImageConfig is an image's config, OCI's or Docker's (the fields used are
// named alike in both): as a registry serves it, or as ostree-ext keeps it in a
// merge commit's ostree.container.image-config.
type ImageConfig struct {
	// Architecture and OS are in Go's naming; Architecture is never empty.
	Architecture string
	OS           string
	// Created is the time of the build as written there (RFC 3339), or empty.
	Created string
	Labels  map[string]string
	// DiffIDs are the digests of the uncompressed layers, in order.
	DiffIDs []verdict.Digest
}

// ParseImageConfig decodes an image config. One without an architecture or
// diff ids, or with a malformed digest, is an error.
func ParseImageConfig(b []byte) (ImageConfig, error) {
	if len(b) > maxStoredJSON {
		return ImageConfig{}, malformed("image config of %d bytes", len(b))
	}
	var c struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
		Created      string `json:"created"`
		Config       struct {
			Labels map[string]string `json:"Labels"`
		} `json:"config"`
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return ImageConfig{}, fmt.Errorf("%w: image config: %w", ErrMalformed, err)
	}
	if c.Architecture == "" {
		return ImageConfig{}, malformed("image config without an architecture")
	}
	if n := len(c.RootFS.DiffIDs); n == 0 || n > maxStoredLayers {
		return ImageConfig{}, malformed("image config with %d diff ids", n)
	}
	out := ImageConfig{Architecture: c.Architecture, OS: c.OS, Created: c.Created, Labels: c.Config.Labels}
	for i, s := range c.RootFS.DiffIDs {
		d, err := ParseDigest(s)
		if err != nil {
			return ImageConfig{}, fmt.Errorf("rootfs.diff_ids[%d]: %w", i, err)
		}
		out.DiffIDs = append(out.DiffIDs, d)
	}
	return out, nil
}

// Version is the version label, for show.
func (c ImageConfig) Version() string {
	if v := c.Labels["org.opencontainers.image.version"]; v != "" {
		return v
	}
	return c.Labels["version"]
}

// FinalDiffID is the label ostree.final-diffid; known and empty where there is
// no such label.
func (c ImageConfig) FinalDiffID() verdict.Fact[verdict.Digest] {
	label, ok := c.Labels["ostree.final-diffid"]
	if !ok {
		return verdict.Known(verdict.Digest(""))
	}
	d, err := ParseDigest(label)
	if err != nil {
		return verdict.Unknown[verdict.Digest]("label ostree.final-diffid: " + err.Error())
	}
	return verdict.Known(d)
}

// DerivedLayers counts the layers behind the one that ostree.final-diffid
// names, as ostree-ext's parse_manifest_layout does; layers is the number of
// layers in the manifest. Where there is room for doubt the count is unknown.
func (c ImageConfig) DerivedLayers(layers int) verdict.Fact[int] {
	fact := c.FinalDiffID()
	final, ok := fact.Get()
	if !ok {
		return verdict.Unknown[int](fact.Why())
	}
	if final == "" {
		return verdict.Unknown[int]("the image has no label ostree.final-diffid")
	}
	if layers != len(c.DiffIDs) {
		return verdict.Unknown[int](fmt.Sprintf("the image has %d layers and %d diff ids", layers, len(c.DiffIDs)))
	}
	at, found := 0, 0
	for i, d := range c.DiffIDs {
		if d == final {
			at = i
			found++
		}
	}
	switch {
	case found == 0:
		return verdict.Unknown[int]("label ostree.final-diffid names 0 of the image's layers, want 1: a squashed image")
	case found > 1:
		return verdict.Unknown[int](fmt.Sprintf("label ostree.final-diffid names %d of the image's layers, want 1", found))
	}
	return verdict.Known(len(c.DiffIDs) - 1 - at)
}
