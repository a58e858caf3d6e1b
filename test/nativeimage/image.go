// Package nativeimage builds OS images for tests, the demo and benchmarks from
// commits in real ostree repositories: ostree-native container images in the
// tar layout, labels and history that ostree-ext's encapsulation writes
// (bootc crates/ostree-ext/src/tar/export.rs and container/encapsulate.rs),
// and the older machine-os-content images ([BuildLegacy]). It also makes what
// a pull of such an image leaves in a host's repository ([Import]).
//
// An image is a value: its manifest and config are bytes, its layers are files
// in a folder that the caller owns.
//
// It is the side that oneboot is measured against, so it imports none of
// oneboot's own readers.
package nativeimage

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"
)

// A Format is a family of media types.
type Format int

// The two formats of images.
const (
	OCI Format = iota
	DockerV2S2
)

// A Compression is how layers are compressed.
type Compression int

// The compressions that registries hold.
const (
	Gzip Compression = iota
	Zstd
	Uncompressed
)

// A Blob is content with its digest.
type Blob struct {
	// Digest is "sha256:" and 64 hexadecimal digits.
	Digest string
	Size   int64

	file string // where set, it holds the content
	data []byte
}

// BytesBlob is a blob in memory.
func BytesBlob(data []byte) Blob {
	return Blob{Digest: digestOf(data), Size: int64(len(data)), data: data}
}

// Open opens the content for reading.
func (b Blob) Open() (io.ReadCloser, error) {
	if b.file == "" {
		return io.NopCloser(bytes.NewReader(b.data)), nil
	}
	return os.Open(b.file)
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// A Layer is a layer of an image.
type Layer struct {
	Blob
	Compression Compression
	// DiffID is the digest of the uncompressed tar stream.
	DiffID string
	// Annotations go into the manifest of an OCI image.
	Annotations map[string]string
	// CreatedBy is what the history says.
	CreatedBy string

	objects []string      // content objects of a chunk layer, by checksum
	derived *DerivedLayer // what a layer on top of the ostree layers changes
}

// A Config is the part of an image config that images differ in.
type Config struct {
	// Created is the image's time.
	Created time.Time
	// Architecture is the CPU architecture in Go's naming.
	Architecture string
	Labels       map[string]string
	// DiffIDs are the diff ids that the config claims, usually those of the
	// layers.
	DiffIDs []string
	// History is what made each layer.
	History []string
}

// An Image is one image: what it says and what it holds.
type Image struct {
	Format Format
	Config Config
	Layers []Layer
	// Annotations are those of the manifest; Docker's format has none.
	Annotations map[string]string

	// ManifestBytes, ConfigBytes and Digest are what a registry holds: the
	// manifest, the config and the manifest's digest.
	ManifestBytes []byte
	ConfigBytes   []byte
	Digest        string

	// Commit is the ostree commit that the image encapsulates, Repo the
	// repository that it was read from.
	Commit string
	Repo   string

	remarshalled bool   // the config was read and written again by another program
	keptConfig   []byte // where set, the config's bytes stay whatever the format
}

// ManifestMediaType is the media type of the manifest.
func (m *Image) ManifestMediaType() string {
	if m.Format == DockerV2S2 {
		return "application/vnd.docker.distribution.manifest.v2+json"
	}
	return "application/vnd.oci.image.manifest.v1+json"
}

// ConfigBlob is the config as a blob.
func (m *Image) ConfigBlob() Blob { return BytesBlob(m.ConfigBytes) }

// Blobs are the config and the layers.
func (m *Image) Blobs() []Blob {
	blobs := []Blob{m.ConfigBlob()}
	for _, l := range m.Layers {
		blobs = append(blobs, l.Blob)
	}
	return blobs
}

// Size is the size of all layers in bytes, as a registry holds them.
func (m *Image) Size() int64 {
	var n int64
	for _, l := range m.Layers {
		n += l.Size
	}
	return n
}

// FinalLayer is the position of the layer that ostree.final-diffid names, or
// -1: the layers after it are derived.
func (m *Image) FinalLayer() int {
	return slices.Index(m.Config.DiffIDs, m.Config.Labels["ostree.final-diffid"])
}

// Edit returns a copy of the image with another config. The layers stay; the
// manifest's annotations follow the labels.
func (m *Image) Edit(change func(*Config)) (*Image, error) {
	edited := m.clone()
	change(&edited.Config)
	edited.keptConfig = nil
	for k := range m.Config.Labels {
		delete(edited.Annotations, k)
	}
	if edited.Format == OCI {
		maps.Copy(edited.Annotations, edited.Config.Labels)
	}
	return edited, edited.seal()
}

func (m *Image) clone() *Image {
	c := *m
	c.Layers = slices.Clone(m.Layers)
	c.Annotations = maps.Clone(m.Annotations)
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Config.Labels = maps.Clone(m.Config.Labels)
	c.Config.DiffIDs = slices.Clone(m.Config.DiffIDs)
	c.Config.History = slices.Clone(m.Config.History)
	return &c
}

// A descriptor names a blob in a manifest.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    *Platform         `json:"platform,omitempty"`
}

type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType,omitempty"`
	Config        descriptor        `json:"config"`
	Layers        []descriptor      `json:"layers"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// seal writes the config and the manifest.
func (m *Image) seal() error {
	config, err := m.marshalConfig()
	if err != nil {
		return fmt.Errorf("encoding the image config: %w", err)
	}
	m.ConfigBytes = config
	doc := manifest{SchemaVersion: 2, MediaType: m.ManifestMediaType(), Config: descriptor{
		MediaType: "application/vnd.oci.image.config.v1+json", Digest: digestOf(config), Size: int64(len(config)),
	}}
	if m.Format == DockerV2S2 {
		doc.Config.MediaType = "application/vnd.docker.container.image.v1+json"
	} else {
		doc.Annotations = m.Annotations
	}
	for _, l := range m.Layers {
		d := descriptor{MediaType: layerMediaType(m.Format, l.Compression), Digest: l.Digest, Size: l.Size}
		if m.Format == OCI {
			d.Annotations = l.Annotations
		}
		doc.Layers = append(doc.Layers, d)
	}
	if m.ManifestBytes, err = json.Marshal(doc); err != nil {
		return fmt.Errorf("encoding the manifest: %w", err)
	}
	m.Digest = digestOf(m.ManifestBytes)
	return nil
}

func layerMediaType(f Format, c Compression) string {
	name, sep := "application/vnd.oci.image.layer.v1.tar", "+"
	if f == DockerV2S2 {
		name, sep = "application/vnd.docker.image.rootfs.diff.tar", "."
	}
	switch c {
	case Gzip:
		return name + sep + "gzip"
	case Zstd:
		return name + sep + "zstd"
	case Uncompressed:
	}
	return name
}

type historyEntry struct {
	Created   string `json:"created"`
	CreatedBy string `json:"created_by"`
}

// marshalConfig writes the config: as the encapsulating program does, or with
// other bytes where a conversion has read and written it again.
func (m *Image) marshalConfig() ([]byte, error) {
	created := m.Config.Created.UTC().Format("2006-01-02T15:04:05Z")
	var history []historyEntry
	for _, by := range m.Config.History {
		history = append(history, historyEntry{created, by})
	}
	doc := map[string]any{
		"created": created, "architecture": m.Config.Architecture, "os": "linux",
		"config":  map[string]any{"Labels": m.Config.Labels},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": m.Config.DiffIDs},
		"history": history,
	}
	if m.keptConfig != nil {
		return m.keptConfig, nil
	}
	if m.remarshalled {
		return json.MarshalIndent(doc, "", " ")
	}
	if m.Format == DockerV2S2 {
		// Fields of Docker's own that a conversion to OCI drops.
		doc["docker_version"] = ""
		doc["container_config"] = map[string]any{}
	}
	return json.Marshal(doc)
}

// A Platform says which machines an instance of a list is for.
type Platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant,omitempty"`
}

// An Instance is an image in a [List].
type Instance struct {
	Image *Image
	// Platform is linux on the image's own architecture where zero.
	Platform Platform
}

// A List is a manifest list (Docker) or an index (OCI).
type List struct {
	Format        Format
	Instances     []Instance
	ManifestBytes []byte
	// Digest is that of the list's own manifest.
	Digest string
}

// MediaType is the media type of the list.
func (l *List) MediaType() string {
	if l.Format == DockerV2S2 {
		return "application/vnd.docker.distribution.manifest.list.v2+json"
	}
	return "application/vnd.oci.image.index.v1+json"
}

// NewList makes a list of instances in the order given.
func NewList(format Format, instances ...Instance) (*List, error) {
	l := &List{Format: format, Instances: instances}
	doc := struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Manifests     []descriptor `json:"manifests"`
	}{2, l.MediaType(), []descriptor{}}
	for _, i := range instances {
		p := i.Platform
		if p == (Platform{}) {
			p = Platform{Architecture: i.Image.Config.Architecture, OS: "linux"}
		}
		doc.Manifests = append(doc.Manifests, descriptor{
			MediaType: i.Image.ManifestMediaType(), Digest: i.Image.Digest, Size: int64(len(i.Image.ManifestBytes)), Platform: &p,
		})
	}
	var err error
	if l.ManifestBytes, err = json.Marshal(doc); err != nil {
		return nil, fmt.Errorf("encoding the list: %w", err)
	}
	l.Digest = digestOf(l.ManifestBytes)
	return l, nil
}
