package osimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	imgspecv1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/manifest"

	"github.com/oneboot/oneboot/pkg/verdict"
)

const (
	// maxManifest is the limit of the library, for transports that have none.
	maxManifest = 4 << 20
	maxLayers   = 1000
)

// A Manifest is the manifest of one image for one architecture: OCI, or Docker
// version 2 schema 2.
type Manifest struct {
	// Digest is that of the manifest's own bytes.
	Digest       verdict.Digest
	MediaType    string
	ConfigDigest verdict.Digest
	// ConfigSize is the size of the config in bytes.
	ConfigSize int64
	// Layers are the layers, the base first.
	Layers []verdict.Layer
	// LayerMediaTypes are the media types of Layers, in the same order.
	LayerMediaTypes []string
	// Components are what the layers' annotations name as their content: packages,
	// without versions, sorted; nil where no layer has the annotation.
	Components []string
	// Annotations are the manifest's; Docker manifests have none.
	Annotations map[string]string
}

// rawManifest is a manifest or a list as served, its digest checked.
type rawManifest struct {
	bytes     []byte
	digest    verdict.Digest
	mediaType string
}

func digestOf(b []byte) verdict.Digest {
	sum := sha256.Sum256(b)
	return verdict.Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// topLevel fetches what the reference names: a manifest or a list.
func (img *Image) topLevel(ctx context.Context) (rawManifest, error) {
	return img.top.do(ctx, img.name, func() (raw rawManifest, err error) {
		err = img.fetch(ctx, "fetching the manifest", maxManifest, func(ctx context.Context) error {
			raw, err = img.getManifest(ctx, img.pinned, nil)
			return err
		})
		return raw, err
	})
}

// getManifest fetches a manifest and checks it against want, where not empty.
func (img *Image) getManifest(ctx context.Context, want verdict.Digest, instance *digest.Digest) (rawManifest, error) {
	src, err := img.source(ctx)
	if err != nil {
		return rawManifest{}, err
	}
	b, served, err := src.GetManifest(ctx, instance)
	if err != nil {
		return rawManifest{}, err
	}
	img.meter.bytes.Add(int64(len(b)))
	if len(b) > maxManifest {
		return rawManifest{}, failText(ManifestInvalid, img.name, fmt.Sprintf("manifest of more than %d bytes", maxManifest))
	}
	raw := rawManifest{bytes: b, digest: digestOf(b)}
	if want != "" && raw.digest != want {
		return rawManifest{}, failText(DigestMismatch, img.name, fmt.Sprintf("manifest %s was served with the digest %s", want, raw.digest))
	}
	raw.mediaType, err = mediaTypeOf(b, served)
	if err == nil {
		err = unambiguous(b)
	}
	if err != nil {
		return rawManifest{}, fail(ManifestInvalid, img.name, err)
	}
	return raw, nil
}

// mediaTypeOf tells a manifest's type from its bytes, which a digest may pin,
// and not from the server's word; the two must not contradict.
func mediaTypeOf(b []byte, served string) (string, error) {
	guess := manifest.GuessMIMEType(b)
	switch guess {
	case imgspecv1.MediaTypeImageManifest, imgspecv1.MediaTypeImageIndex,
		manifest.DockerV2Schema2MediaType, manifest.DockerV2ListMediaType:
	case manifest.DockerV2Schema1MediaType, manifest.DockerV2Schema1SignedMediaType:
		return "", errors.New("a manifest of schema 1, which OS images never have")
	default:
		return "", errors.New("neither an image manifest nor a manifest list")
	}
	switch served {
	case imgspecv1.MediaTypeImageManifest, imgspecv1.MediaTypeImageIndex,
		manifest.DockerV2Schema2MediaType, manifest.DockerV2ListMediaType,
		manifest.DockerV2Schema1MediaType, manifest.DockerV2Schema1SignedMediaType:
		if served != guess {
			return "", fmt.Errorf("manifest of type %s served as %s", guess, served)
		}
	}
	return guess, nil
}

// Instance returns the digest of the manifest for the architecture: the
// image's own, or the one that a manifest list holds for it.
func (img *Image) Instance(ctx context.Context) (verdict.Digest, error) {
	img.mu.Lock()
	defer img.mu.Unlock()
	top, err := img.topLevel(ctx)
	if err != nil {
		return "", err
	}
	return img.instanceDigest(top)
}

func (img *Image) instanceDigest(top rawManifest) (verdict.Digest, error) {
	if !manifest.MIMETypeIsMultiImage(top.mediaType) {
		return top.digest, nil
	}
	d, err := chooseInstance(top.bytes, img.sys)
	if errors.Is(err, errNoInstance) {
		return "", fail(NoInstance, img.name, err)
	}
	if err != nil {
		return "", fail(ManifestInvalid, img.name, fmt.Errorf("parsing the manifest list: %w", err))
	}
	return d, nil
}

// Manifest returns the manifest for the architecture.
func (img *Image) Manifest(ctx context.Context) (Manifest, error) {
	img.mu.Lock()
	defer img.mu.Unlock()
	return img.getParsedManifest(ctx)
}

func (img *Image) getParsedManifest(ctx context.Context) (Manifest, error) {
	return img.manifest.do(ctx, img.name, func() (Manifest, error) {
		raw, err := img.instanceManifest(ctx)
		if err != nil {
			return Manifest{}, err
		}
		m, err := parseManifest(raw)
		if err != nil {
			return Manifest{}, fail(ManifestInvalid, img.name, fmt.Errorf("parsing the manifest: %w", err))
		}
		return m, nil
	})
}

func (img *Image) instanceManifest(ctx context.Context) (rawManifest, error) {
	return img.instance.do(ctx, img.name, func() (raw rawManifest, err error) {
		top, err := img.topLevel(ctx)
		if err != nil {
			return rawManifest{}, err
		}
		want, err := img.instanceDigest(top)
		if err != nil || want == top.digest {
			return top, err
		}
		d := digest.Digest(want)
		err = img.fetch(ctx, "fetching the manifest for "+img.arch, maxManifest, func(ctx context.Context) error {
			raw, err = img.getManifest(ctx, want, &d)
			return err
		})
		return raw, err
	})
}

// parseManifest reads an OCI or Docker schema 2 manifest.
func parseManifest(raw rawManifest) (Manifest, error) {
	m := Manifest{Digest: raw.digest, MediaType: raw.mediaType}
	var parsed manifest.Manifest
	switch raw.mediaType {
	case imgspecv1.MediaTypeImageManifest:
		oci, err := manifest.OCI1FromManifest(raw.bytes)
		if err != nil {
			return Manifest{}, err
		}
		switch oci.Config.MediaType {
		case imgspecv1.MediaTypeImageConfig, manifest.DockerV2Schema2ConfigMediaType:
		default:
			return Manifest{}, fmt.Errorf("config of type %q: not a container image", oci.Config.MediaType)
		}
		m.Annotations = oci.Annotations
		m.Components = componentsOf(oci.Layers)
		parsed = oci
	case manifest.DockerV2Schema2MediaType:
		v2, err := manifest.Schema2FromManifest(raw.bytes)
		if err != nil {
			return Manifest{}, err
		}
		parsed = v2
	default:
		return Manifest{}, fmt.Errorf("manifest of type %s where an image was expected", raw.mediaType)
	}
	config := parsed.ConfigInfo()
	var err error
	if m.ConfigDigest, err = checkDigest(config.Digest.String()); err != nil {
		return Manifest{}, fmt.Errorf("config: %w", err)
	}
	m.ConfigSize = config.Size
	layers := parsed.LayerInfos()
	if len(layers) == 0 || len(layers) > maxLayers {
		return Manifest{}, fmt.Errorf("%d layers, where 1 to %d are expected", len(layers), maxLayers)
	}
	for i, l := range layers {
		d, err := checkDigest(l.Digest.String())
		if err != nil {
			return Manifest{}, fmt.Errorf("layer %d: %w", i, err)
		}
		if l.Size < 0 {
			return Manifest{}, fmt.Errorf("layer %d: size %d", i, l.Size)
		}
		m.Layers = append(m.Layers, verdict.Layer{Digest: d, Size: l.Size, Zstd: strings.HasSuffix(l.MediaType, "+zstd")})
		m.LayerMediaTypes = append(m.LayerMediaTypes, l.MediaType)
	}
	return m, nil
}

// compressedType reports whether a layer's media type announces compression.
// It only chooses how much to ask for first: the bytes tell what they are.
func compressedType(mediaType string) bool {
	return strings.HasSuffix(mediaType, "gzip") || strings.HasSuffix(mediaType, "zstd")
}

// annotationComponents is what ostree-ext writes on the layers of an image that it
// chunks (container/encapsulate.rs): the components in the layer, separated by
// commas. Builds upon the image lose it.
const annotationComponents = "ostree.components"

func componentsOf(layers []imgspecv1.Descriptor) []string {
	var all []string
	for _, l := range layers {
		for name := range strings.SplitSeq(l.Annotations[annotationComponents], ",") {
			if name = strings.TrimSpace(name); name != "" && len(all) < maxPackages {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
