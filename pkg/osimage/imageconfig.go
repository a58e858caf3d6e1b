package osimage

import (
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"

	"github.com/oneboot/oneboot/pkg/ostree/format"
)

// maxImageConfig bounds an image config, as the library does.
const maxImageConfig = 4 << 20

// Labels of OS images. The first three come from ostree-ext (container/
// encapsulate.rs), the fourth from coreos-assembler's machine-os-content.
const (
	LabelCommit       = "ostree.commit"
	LabelFinalDiffID  = "ostree.final-diffid"
	LabelKernel       = "ostree.linux"
	LabelLegacyCommit = "com.coreos.ostree-commit"
	// labelComponent is the product that Red Hat's build system made.
	labelComponent = "com.redhat.component"
)

// Config returns the image config, checked against its digest.
func (img *Image) Config(ctx context.Context) (format.ImageConfig, error) {
	img.mu.Lock()
	defer img.mu.Unlock()
	return img.getConfig(ctx)
}

func (img *Image) getConfig(ctx context.Context) (format.ImageConfig, error) {
	return img.config.do(ctx, img.name, func() (format.ImageConfig, error) {
		m, err := img.getParsedManifest(ctx)
		if err != nil {
			return format.ImageConfig{}, err
		}
		var b []byte
		err = img.fetch(ctx, "fetching the image config", maxImageConfig, func(ctx context.Context) error {
			b, err = img.configBytes(ctx, m)
			return err
		})
		if err != nil {
			return format.ImageConfig{}, err
		}
		c, err := parseConfig(b)
		if err != nil {
			return format.ImageConfig{}, fail(ManifestInvalid, img.name, fmt.Errorf("parsing the image config: %w", err))
		}
		return c, nil
	})
}

func (img *Image) configBytes(ctx context.Context, m Manifest) ([]byte, error) {
	src, err := img.source(ctx)
	if err != nil {
		return nil, err
	}
	r, _, err := src.GetBlob(ctx, types.BlobInfo{Digest: digest.Digest(m.ConfigDigest), Size: m.ConfigSize}, none.NoCache)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := img.readBody(r, maxImageConfig)
	if err != nil {
		return nil, err
	}
	if got := digestOf(b); got != m.ConfigDigest {
		return nil, failText(DigestMismatch, img.name, fmt.Sprintf("config %s was served with the digest %s", m.ConfigDigest, got))
	}
	return b, nil
}

// parseConfig reads an image config. Unlike one that a commit stores, it may
// come from anyone.
func parseConfig(b []byte) (format.ImageConfig, error) {
	c, err := format.ParseImageConfig(b)
	if err != nil {
		if at := jsonPosition(b, err); at != "" {
			err = fmt.Errorf("JSON%s: %w", at, err)
		}
		return format.ImageConfig{}, err
	}
	if err := unambiguous(b); err != nil {
		return format.ImageConfig{}, err
	}
	if c.OS != "" && c.OS != "linux" {
		return format.ImageConfig{}, errors.New("os: not an image for Linux")
	}
	return c, nil
}
