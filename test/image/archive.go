package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	_ "crypto/sha256" // for go-digest
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// An archive is an OCI image layout with one image, or one for each
// architecture in an index.
type archive struct {
	// name is the program's, and the image's title.
	name      string
	blobs     map[digest.Digest][]byte
	manifests []v1.Descriptor
}

func newArchive(name string) *archive {
	return &archive{name: name, blobs: map[digest.Digest][]byte{}}
}

// entrypoint is where the binary is in the image.
func (a *archive) entrypoint() string { return "/usr/bin/" + a.name }

// add adds the image for an architecture, by the name that Go and OCI give it.
func (a *archive) add(arch string, binary []byte) error {
	if err := static(binary); err != nil {
		return err
	}
	content, diffID, err := layer(a.entrypoint(), binary)
	if err != nil {
		return err
	}
	platform := v1.Platform{Architecture: arch, OS: "linux"}
	config, err := a.blob(v1.MediaTypeImageConfig, v1.Image{
		Platform: platform,
		Config: v1.ImageConfig{
			Entrypoint: []string{a.entrypoint()},
			Labels:     map[string]string{v1.AnnotationTitle: a.name, v1.AnnotationSource: "https://github.com/oneboot/oneboot"},
		},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{diffID}},
	})
	if err != nil {
		return err
	}
	m, err := a.blob(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageManifest,
		Config:    config,
		Layers:    []v1.Descriptor{a.put(v1.MediaTypeImageLayerGzip, content)},
	})
	if err != nil {
		return err
	}
	m.Platform = &platform
	a.manifests = append(a.manifests, m)
	return nil
}

// static refuses a program that needs a loader or libraries: the image has
// none.
func static(binary []byte) error {
	f, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		return err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("it is linked dynamically; build it with CGO_ENABLED=0")
		}
	}
	return nil
}

func layer(entrypoint string, binary []byte) (compressed []byte, diffID digest.Digest, err error) {
	var plain bytes.Buffer
	w := tar.NewWriter(&plain)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "usr/", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "usr/bin/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: entrypoint[1:], Mode: 0o755, Size: int64(len(binary))},
	} {
		if err := w.WriteHeader(&h); err != nil {
			return nil, "", err
		}
	}
	if _, err := w.Write(binary); err != nil {
		return nil, "", err
	}
	if err := w.Close(); err != nil {
		return nil, "", err
	}
	var small bytes.Buffer
	z, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err != nil {
		return nil, "", err
	}
	if _, err := z.Write(plain.Bytes()); err != nil {
		return nil, "", err
	}
	if err := z.Close(); err != nil {
		return nil, "", err
	}
	return small.Bytes(), digest.FromBytes(plain.Bytes()), nil
}

func (a *archive) put(mediaType string, content []byte) v1.Descriptor {
	d := digest.FromBytes(content)
	a.blobs[d] = content
	return v1.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(content))}
}

func (a *archive) blob(mediaType string, content any) (v1.Descriptor, error) {
	b, err := json.Marshal(content)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return a.put(mediaType, b), nil
}

// bytes is the archive. Its index names one thing, so that no reader has to be
// told which.
func (a *archive) bytes() ([]byte, error) {
	top := a.manifests
	if len(top) > 1 {
		list, err := a.blob(v1.MediaTypeImageIndex, index(a.manifests))
		if err != nil {
			return nil, err
		}
		top = []v1.Descriptor{list}
	}
	first, err := json.Marshal(index(top))
	if err != nil {
		return nil, err
	}
	layout, err := json.Marshal(v1.ImageLayout{Version: v1.ImageLayoutVersion})
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{v1.ImageLayoutFile: layout, v1.ImageIndexFile: first}
	for d, content := range a.blobs {
		files[fmt.Sprintf("%s/%s/%s", v1.ImageBlobsDir, d.Algorithm(), d.Encoded())] = content
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(files[name]))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func index(manifests []v1.Descriptor) v1.Index {
	return v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: manifests}
}
