package osimage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"

	"github.com/oneboot/oneboot/pkg/verdict"
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
	LabelVersion      = "org.opencontainers.image.version"
	LabelOldVersion   = "version"
	// labelComponent is the product that Red Hat's build system made.
	labelComponent = "com.redhat.component"
)

// An ImageConfig is an image's config blob, checked against its digest.
type ImageConfig struct {
	// Architecture and OS are in Go's naming.
	Architecture string
	OS           string
	// Created is the time of the build as written there (RFC 3339), or empty.
	Created string
	// DiffIDs are the digests of the uncompressed layers, the base first.
	DiffIDs []verdict.Digest
	Labels  map[string]string
}

// Config returns the image config.
func (img *Image) Config(ctx context.Context) (ImageConfig, error) {
	img.mu.Lock()
	defer img.mu.Unlock()
	return img.getConfig(ctx)
}

func (img *Image) getConfig(ctx context.Context) (ImageConfig, error) {
	return img.config.do(func() (ImageConfig, error) {
		m, err := img.getParsedManifest(ctx)
		if err != nil {
			return ImageConfig{}, err
		}
		var b []byte
		err = img.fetch(ctx, "fetching the image config", maxImageConfig, func(ctx context.Context) error {
			b, err = img.configBytes(ctx, m)
			return err
		})
		if err != nil {
			return ImageConfig{}, err
		}
		c, err := parseConfig(b)
		if err != nil {
			return ImageConfig{}, fail(ManifestInvalid, img.name, fmt.Errorf("parsing the image config: %w", err))
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

// parseConfig reads an OCI or Docker image config (the fields used are named
// alike in both).
func parseConfig(b []byte) (ImageConfig, error) {
	var raw struct {
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
	if err := json.Unmarshal(b, &raw); err != nil {
		return ImageConfig{}, fmt.Errorf("JSON%s: %w", jsonPosition(b, err), err)
	}
	if err := unambiguous(b); err != nil {
		return ImageConfig{}, err
	}
	c := ImageConfig{Architecture: raw.Architecture, OS: raw.OS, Created: raw.Created, Labels: raw.Config.Labels}
	if len(raw.RootFS.DiffIDs) == 0 || len(raw.RootFS.DiffIDs) > maxLayers {
		return ImageConfig{}, fmt.Errorf("rootfs.diff_ids: %d entries, where 1 to %d are expected", len(raw.RootFS.DiffIDs), maxLayers)
	}
	for i, s := range raw.RootFS.DiffIDs {
		d, err := checkDigest(s)
		if err != nil {
			return ImageConfig{}, fmt.Errorf("rootfs.diff_ids[%d]: %w", i, err)
		}
		c.DiffIDs = append(c.DiffIDs, d)
	}
	if c.OS != "" && c.OS != "linux" {
		return ImageConfig{}, errors.New("os: not an image for Linux")
	}
	return c, nil
}
