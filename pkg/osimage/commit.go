package osimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// A CommitMismatchError says that layer 0 holds another commit than the
// image's label: a stale or lying label. An [*Error] with the code
// CommitLabelMismatch wraps it.
type CommitMismatchError struct {
	Label verdict.Checksum // what the label ostree.commit says
	Layer verdict.Checksum // what the layer holds
}

func (e *CommitMismatchError) Error() string {
	return fmt.Sprintf("label %s says %s, but the first layer holds commit %s", LabelCommit, e.Label, e.Layer)
}

// InnerCommit returns the ostree commit that the image encapsulates.
//
// Where the image has the label ostree.commit, the head of layer 0 is read, by
// HTTP range, up to the first commit object. Its checksum must be that of its
// own name and of the label: the digest-verified config pins the commit, and
// the layer shows that the label is not stale. Without the label the whole
// layer is read; it must match its digest and diff id and hold exactly one
// commit object.
func (img *Image) InnerCommit(ctx context.Context) (verdict.InnerCommit, error) {
	img.mu.Lock()
	defer img.mu.Unlock()
	return img.commit.do(func() (verdict.InnerCommit, error) {
		m, err := img.getParsedManifest(ctx)
		if err != nil {
			return verdict.InnerCommit{}, err
		}
		c, err := img.getConfig(ctx)
		if err != nil {
			return verdict.InnerCommit{}, err
		}
		if c.Labels[LabelFinalDiffID] == "" {
			return verdict.InnerCommit{}, failText(NotAnOSImage, img.name, "not an ostree-encapsulated image: its config has no label "+LabelFinalDiffID)
		}
		if len(m.Layers) != len(c.DiffIDs) {
			return verdict.InnerCommit{}, failText(ManifestInvalid, img.name, fmt.Sprintf("the manifest has %d layers, the config %d diff ids", len(m.Layers), len(c.DiffIDs)))
		}
		if label := c.Labels[LabelCommit]; label != "" {
			return img.labelledCommit(ctx, m, label)
		}
		return img.unlabelledCommit(ctx, m, c)
	})
}

// labelledCommit reads the head of layer 0.
func (img *Image) labelledCommit(ctx context.Context, m Manifest, label string) (verdict.InnerCommit, error) {
	if !isChecksum(label) {
		return verdict.InnerCommit{}, failText(ManifestInvalid, img.name, fmt.Sprintf("label %s: %.80q is not a checksum", LabelCommit, label))
	}
	var found commitObject
	err := img.fetch(ctx, "reading the head of the first layer", maxHead, func(ctx context.Context) error {
		src, err := img.source(ctx)
		if err != nil {
			return err
		}
		h := &headReader{ctx: ctx, src: src, info: layerInfo(m, 0), meter: &img.meter, next: firstPart}
		if !compressedType(m.LayerMediaTypes[0]) {
			h.next = firstPartUncompressed
		}
		defer h.Close()
		r, done, err := decompress(h)
		if err != nil {
			return img.layerError(ctx, err)
		}
		defer done()
		found, err = firstCommit(r)
		return img.layerError(ctx, err)
	})
	if err != nil {
		return verdict.InnerCommit{}, err
	}
	if string(found.checksum) != label {
		return verdict.InnerCommit{}, fail(CommitLabelMismatch, img.name, &CommitMismatchError{Label: verdict.Checksum(label), Layer: found.checksum})
	}
	return img.innerCommit(found, verdict.CommitFromLayerHead)
}

// unlabelledCommit reads all of layer 0.
func (img *Image) unlabelledCommit(ctx context.Context, m Manifest, c ImageConfig) (verdict.InnerCommit, error) {
	var found commitObject
	err := img.fetch(ctx, "reading the first layer", m.Layers[0].Size, func(ctx context.Context) error {
		src, err := img.source(ctx)
		if err != nil {
			return err
		}
		r, _, err := src.GetBlob(ctx, layerInfo(m, 0), none.NoCache)
		if err != nil {
			return err
		}
		defer r.Close()
		found, err = img.wholeLayer(ctx, r, m.Layers[0], c.DiffIDs[0])
		return err
	})
	if err != nil {
		return verdict.InnerCommit{}, err
	}
	return img.innerCommit(found, verdict.CommitFromLayer)
}

// wholeLayer reads a layer to its end, and checks size, digest and diff id.
func (img *Image) wholeLayer(ctx context.Context, r io.Reader, layer verdict.Layer, diffID verdict.Digest) (commitObject, error) {
	blob := &hashingReader{r: movingReader{countingReader{r, &img.meter}}, hash: sha256.New(), limit: layer.Size}
	z, done, err := decompress(blob)
	if err != nil {
		return commitObject{}, img.layerError(ctx, err)
	}
	defer done()
	content := &hashingReader{r: z, hash: sha256.New(), limit: maxLayerBytes}
	found, scanErr := onlyCommit(content)
	if scanErr != nil {
		return commitObject{}, img.layerError(ctx, scanErr)
	}
	if _, err := io.Copy(io.Discard, blob); err != nil {
		return commitObject{}, img.layerError(ctx, err)
	}
	if blob.n != layer.Size {
		return commitObject{}, img.layerError(ctx, errTruncated)
	}
	if got := blob.digest(); got != layer.Digest {
		return commitObject{}, failText(DigestMismatch, img.name, fmt.Sprintf("layer %s was served with the digest %s", layer.Digest, got))
	}
	if got := content.digest(); got != diffID {
		return commitObject{}, failText(DigestMismatch, img.name, fmt.Sprintf("the first layer's diff id is %s, the config says %s", got, diffID))
	}
	return found, nil
}

// innerCommit reads the commit's own fields.
func (img *Image) innerCommit(found commitObject, source verdict.CommitSource) (verdict.InnerCommit, error) {
	c, err := format.ParseCommit(found.bytes)
	if err != nil {
		return verdict.InnerCommit{}, fail(LayerInvalid, img.name, fmt.Errorf("parsing commit %s: %w", found.checksum, err))
	}
	return verdict.InnerCommit{Checksum: found.checksum, Source: source, Root: c.Root, Timestamp: c.Timestamp}, nil
}

func layerInfo(m Manifest, i int) types.BlobInfo {
	return types.BlobInfo{Digest: digest.Digest(m.Layers[i].Digest), Size: m.Layers[i].Size, MediaType: m.LayerMediaTypes[i]}
}

// layerError gives codes to what a layer's content can be wrong by; errors of
// the transfer go on to be classified by the caller.
func (img *Image) layerError(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	moved, ok := errors.AsType[*transferError](err)
	switch {
	case ok && !errors.Is(err, errTruncated):
		return moved.err
	case ok, errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fail(LayerTruncated, img.name, errTruncated)
	}
	return fail(LayerInvalid, img.name, fmt.Errorf("the first layer: %w", err))
}

// A transferError is a failure to get a layer's bytes, as opposed to one of
// their content. It keeps its identity through the decompressors.
type transferError struct{ err error }

func (e *transferError) Error() string { return e.err.Error() }
func (e *transferError) Unwrap() error { return e.err }

// moved marks an error of getting bytes.
func moved(err error) error {
	switch {
	case err == nil, err == io.EOF: //nolint:errorlint // the end itself, not an error about it
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &transferError{errTruncated}
	default:
		return &transferError{fmt.Errorf("%w: %w", errBody, err)}
	}
}

// A movingReader marks the errors of getting a blob's bytes.
type movingReader struct{ r io.Reader }

func (m movingReader) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	return n, moved(err)
}

// A hashingReader hashes what is read through it, up to a limit.
type hashingReader struct {
	r     io.Reader
	hash  hash.Hash
	n     int64
	limit int64
}

func (h *hashingReader) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	h.hash.Write(p[:n])
	h.n += int64(n)
	if h.n > h.limit {
		return n, errTooLong
	}
	return n, err
}

func (h *hashingReader) digest() verdict.Digest {
	return verdict.Digest("sha256:" + hex.EncodeToString(h.hash.Sum(nil)))
}
