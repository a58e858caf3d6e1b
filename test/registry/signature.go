package registry

import (
	"encoding/json"
	"fmt"
	"strings"

	imgspecv1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/signing"
)

// Attach stores sigstore signatures of a manifest as cosign does: as the layers
// of an image with the tag [SignatureTag]. It replaces those attached before.
func (r *Registry) Attach(repository, digest string, signatures ...signing.Attachment) error {
	config := []byte("{}")
	m := map[string]any{
		"schemaVersion": 2, "mediaType": imgspecv1.MediaTypeImageManifest,
		"config": descriptor(imgspecv1.MediaTypeImageConfig, config, nil),
	}
	blobs := [][]byte{config}
	var layers []any
	for _, s := range signatures {
		layers = append(layers, descriptor(signing.MediaType, s.Payload, s.Annotations))
		blobs = append(blobs, s.Payload)
	}
	m["layers"] = layers
	for _, b := range blobs {
		if err := r.PutBlob(repository, nativeimage.BytesBlob(b)); err != nil {
			return fmt.Errorf("attaching a signature: %w", err)
		}
	}
	manifest, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return r.PutManifest(repository, SignatureTag(digest), imgspecv1.MediaTypeImageManifest, manifest)
}

// SignatureTag is the tag of the image that holds a manifest's signatures.
func SignatureTag(digest string) string {
	return strings.Replace(digest, ":", "-", 1) + ".sig"
}

func descriptor(mediaType string, b []byte, annotations map[string]string) map[string]any {
	d := map[string]any{"mediaType": mediaType, "digest": nativeimage.BytesBlob(b).Digest, "size": len(b)}
	if annotations != nil {
		d["annotations"] = annotations
	}
	return d
}
