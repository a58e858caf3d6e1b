package osimage

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/oneboot/oneboot/pkg/ostree/format"
)

const (
	// maxFileBytes bounds one file that is read out of an image.
	maxFileBytes = 16 << 20
	// maxFilesLayers bounds the compressed layers that are read for files. The
	// layer of an installer image with its manifests has some 500 MiB.
	maxFilesLayers = 2 << 30
)

// Files returns the files of these names, such as
// "release-manifests/image-references"; a name that the image does not have is
// not in the result. The layers are read from the last one down to the one that
// settles the last name, whiteouts heeded. Each is read whole and must match
// its digest and its diff id.
//
// The files of a release image are in its last layer, which has less than 1 MiB.
// A name that is not there costs all layers.
func (img *Image) Files(ctx context.Context, names ...string) (map[string][]byte, error) {
	img.mu.Lock()
	defer img.mu.Unlock()
	m, err := img.getParsedManifest(ctx)
	if err != nil {
		return nil, err
	}
	c, err := img.getConfig(ctx)
	if err != nil {
		return nil, err
	}
	if len(m.Layers) != len(c.DiffIDs) {
		return nil, failText(ManifestInvalid, img.name, fmt.Sprintf("the manifest has %d layers, the config %d diff ids", len(m.Layers), len(c.DiffIDs)))
	}
	return img.files(ctx, m, c, names)
}

func (img *Image) files(ctx context.Context, m Manifest, c format.ImageConfig, names []string) (map[string][]byte, error) {
	out := map[string][]byte{}
	open := map[string]bool{}
	for _, name := range names {
		open[name] = true
	}
	left := int64(maxFilesLayers)
	for i := len(m.Layers) - 1; i >= 0 && len(open) > 0; i-- {
		if left -= m.Layers[i].Size; left < 0 {
			return nil, failText(LayerInvalid, img.name, fmt.Sprintf("%s is not in the last %d layers, and the one before them goes beyond %d bytes", anyOf(open), len(m.Layers)-1-i, int64(maxFilesLayers)))
		}
		var found layerFiles
		err := img.readLayer(ctx, m, c, i, layerScan{part: largeLayerPart, limit: maxLayerBytes, read: func(ctx context.Context, r io.Reader) (stop bool, err error) {
			found, err = scanFiles(ctx, r, open)
			return false, err
		}})
		if err != nil {
			return nil, err
		}
		for name, content := range found.content {
			out[name] = content
			delete(open, name)
		}
		for name := range found.hidden {
			delete(open, name)
		}
	}
	return out, nil
}

// anyOf is one of the names, for a message.
func anyOf(names map[string]bool) string {
	least := ""
	for name := range names {
		if least == "" || name < least {
			least = name
		}
	}
	return least
}

// layerFiles is what a layer says about names.
type layerFiles struct {
	content map[string][]byte
	// hidden are the names that the layers beneath cannot have.
	hidden map[string]bool
}

// scanFiles reads a layer's archive to its end.
func scanFiles(ctx context.Context, r io.Reader, open map[string]bool) (layerFiles, error) {
	found := layerFiles{map[string][]byte{}, map[string]bool{}}
	removed := map[string]bool{}
	t := tar.NewReader(r)
	for {
		h, err := nextEntry(ctx, t)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return layerFiles{}, err
		}
		name := entryName(h)
		dir, base := parent(name), path.Base(name)
		switch {
		case base == opaqueWhiteout:
			found.hide(dir, open, nil)
		case strings.HasPrefix(base, whiteout):
			found.hide(path.Join(dir, strings.TrimPrefix(base, whiteout)), open, removed)
		case open[name]:
			if err := found.add(timedReader{ctx, t}, h, name); err != nil {
				return layerFiles{}, err
			}
		case h.Typeflag != tar.TypeDir:
			// Where a folder is meant to be, it is not the file's own place.
			for n := range open {
				if strings.HasPrefix(n, name+"/") {
					return layerFiles{}, fmt.Errorf("/%.200s is not a folder", name)
				}
			}
		}
	}
	for name := range found.content {
		if removed[name] {
			return layerFiles{}, fmt.Errorf("%s is both there and taken away", name)
		}
	}
	return found, nil
}

// hide takes note that a path of the layers beneath is gone, with all in it.
func (f *layerFiles) hide(gone string, open, removed map[string]bool) {
	for name := range open {
		if name == gone || gone == "" || strings.HasPrefix(name, gone+"/") {
			f.hidden[name] = true
			if removed != nil {
				removed[name] = true
			}
		}
	}
}

func (f *layerFiles) add(content io.Reader, h *tar.Header, name string) error {
	switch _, twice := f.content[name]; {
	case twice:
		return fmt.Errorf("%s is there twice", name)
	case !plainName(h.Name):
		return fmt.Errorf("%s is named %.200q", name, h.Name)
	case h.Typeflag != tar.TypeReg:
		return fmt.Errorf("%s is not a regular file", name)
	case h.Size > maxFileBytes:
		return fmt.Errorf("%s has %d bytes, over the limit of %d", name, h.Size, maxFileBytes)
	}
	b, err := io.ReadAll(content)
	if err != nil {
		return noEOF(err)
	}
	f.content[name] = b
	return nil
}
