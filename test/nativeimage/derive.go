package nativeimage

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"

	"github.com/oneboot/oneboot/test/sysroot"
)

// A DerivedLayer is what a container build puts on top of an image.
type DerivedLayer struct {
	// Files are new or replaced files by path, as the running system names
	// them: "etc/motd", not "usr/etc/motd".
	Files map[string]sysroot.File
	// Removed are paths that the layer hides.
	Removed []string
	// CreatedBy is the step of the build.
	CreatedBy string
}

// paths are the names of the layer's entries, whiteouts included.
func (d DerivedLayer) paths() []string {
	names := slices.Collect(maps.Keys(d.Files))
	for _, r := range d.Removed {
		names = append(names, path.Dir(r)+"/.wh."+path.Base(r))
	}
	slices.Sort(names)
	return names
}

// Derive builds an image FROM base as buildah does: the labels and the layers
// are inherited, the annotations of the layers are lost.
func Derive(dir string, base *Image, labels map[string]string, layers ...DerivedLayer) (*Image, error) {
	m := base.clone()
	m.keptConfig = nil
	for i := range m.Layers {
		m.Layers[i].Annotations = nil
	}
	compression := base.Layers[0].Compression
	for _, d := range layers {
		l, err := writeLayer(dir, compression, func(w io.Writer) error { return writeFiles(w, d) })
		if err != nil {
			return nil, fmt.Errorf("writing a derived layer: %w", err)
		}
		l.derived = &d
		l.CreatedBy = d.CreatedBy
		if l.CreatedBy == "" {
			l.CreatedBy = "/bin/sh -c true"
		}
		m.addLayer(l)
	}
	maps.Copy(m.Config.Labels, labels)
	return m, m.seal()
}

// AddLayer puts a layer on an image whose archive the caller writes, whatever is
// in it.
func AddLayer(dir string, base *Image, labels map[string]string, c Compression, write func(io.Writer) error) (*Image, error) {
	m := base.clone()
	m.keptConfig = nil
	l, err := writeLayer(dir, c, write)
	if err != nil {
		return nil, fmt.Errorf("writing a layer: %w", err)
	}
	l.CreatedBy = "/bin/sh -c true"
	m.addLayer(l)
	maps.Copy(m.Config.Labels, labels)
	return m, m.seal()
}

// Recompress copies an image with other compression: the same config, so the
// same diff ids, and other layers.
func Recompress(dir string, base *Image, c Compression) (*Image, error) {
	if base.Format == DockerV2S2 && c == Zstd {
		return nil, fmt.Errorf("recompressing an image: Docker's format has no zstd layers")
	}
	m := base.clone()
	for i, old := range m.Layers {
		l, err := recompressLayer(dir, old, c)
		if err != nil {
			return nil, fmt.Errorf("recompressing layer %d: %w", i, err)
		}
		m.Layers[i].Blob, m.Layers[i].Compression = l.Blob, c
	}
	return m, m.seal()
}

func recompressLayer(dir string, old Layer, c Compression) (Layer, error) {
	plain, err := old.Tar()
	if err != nil {
		return Layer{}, err
	}
	defer plain.Close()
	l, err := writeLayer(dir, c, func(w io.Writer) error {
		_, err := io.Copy(w, plain)
		return err
	})
	if err == nil && l.DiffID != old.DiffID {
		return Layer{}, fmt.Errorf("tar stream is %s, not %s", l.DiffID, old.DiffID)
	}
	return l, err
}

// ConvertToV2S2 is the copy that `skopeo copy --format v2s2` makes of an OCI
// image: the same config bytes and blobs, no annotations.
func ConvertToV2S2(base *Image) (*Image, error) {
	m := base.clone()
	for i, l := range m.Layers {
		if l.Compression == Zstd {
			return nil, fmt.Errorf("converting to v2s2: layer %d is zstd, which the format has not", i)
		}
	}
	m.Format = DockerV2S2
	m.keptConfig = m.ConfigBytes
	return m, m.seal()
}

// ConvertToOCI is the copy that a conversion makes of a v2s2 image: the same
// blobs, and a config of other bytes with the same content. An OCI image gets
// a config of other bytes too.
func ConvertToOCI(base *Image) (*Image, error) {
	m := base.clone()
	m.Format = OCI
	m.remarshalled, m.keptConfig = true, nil
	return m, m.seal()
}

// ReplaceLayer0 puts another layer in the place of the first one. The config's
// diff ids follow, unless keepDiffID: then it contradicts the layer.
func ReplaceLayer0(base *Image, with Layer, keepDiffID bool) (*Image, error) {
	m := base.clone()
	m.keptConfig = nil
	with.Annotations, with.CreatedBy = m.Layers[0].Annotations, m.Layers[0].CreatedBy
	m.Layers[0] = with
	if !keepDiffID {
		m.Config.DiffIDs[0] = with.DiffID
	}
	return m, m.seal()
}
