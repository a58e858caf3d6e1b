package osimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"

	"github.com/opencontainers/go-digest"
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
//
// The commit of a machine-os-content image lies in the repository /srv/repo.
// The object that the label com.coreos.ostree-commit names is looked for from
// the last layer on, as far as needed; without that label all layers are read,
// which must match their digests and hold exactly one commit object.
//
// Where booted is not empty, it is the commit that the caller hopes to find. An
// image of more than 64 MiB whose label com.coreos.ostree-commit names another
// one is then not read, which is an error with the code CommitNotRead: such
// images have 1 to 2 GB, and nothing in them could show more than that the
// content was built twice with the same result. The first call decides.
func (img *Image) InnerCommit(ctx context.Context, booted verdict.Checksum) (verdict.InnerCommit, error) {
	img.mu.Lock()
	defer img.mu.Unlock()
	m, err := img.getParsedManifest(ctx)
	if err == nil {
		var c format.ImageConfig
		if c, err = img.getConfig(ctx); err == nil {
			return img.innerCommitOf(ctx, m, c, booted)
		}
	}
	return img.commit.do(ctx, img.name, func() (verdict.InnerCommit, error) { return verdict.InnerCommit{}, err })
}

func (img *Image) innerCommitOf(ctx context.Context, m Manifest, c format.ImageConfig, booted verdict.Checksum) (verdict.InnerCommit, error) {
	return img.commit.do(ctx, img.name, func() (verdict.InnerCommit, error) {
		form, why := encapsulationOf(m, c)
		if form != nativeEncapsulation && form != legacyEncapsulation {
			return verdict.InnerCommit{}, failText(NotAnOSImage, img.name, why)
		}
		if len(m.Layers) != len(c.DiffIDs) {
			return verdict.InnerCommit{}, failText(ManifestInvalid, img.name, fmt.Sprintf("the manifest has %d layers, the config %d diff ids", len(m.Layers), len(c.DiffIDs)))
		}
		switch label := c.Labels[LabelCommit]; {
		case form == legacyEncapsulation:
			return img.legacyCommit(ctx, m, c, booted)
		case label != "":
			return img.labelledCommit(ctx, m, label)
		default:
			return img.unlabelledCommit(ctx, m, c)
		}
	})
}

// labelledCommit reads the head of layer 0.
func (img *Image) labelledCommit(ctx context.Context, m Manifest, label string) (verdict.InnerCommit, error) {
	if !isChecksum(label) {
		return verdict.InnerCommit{}, failText(ManifestInvalid, img.name, fmt.Sprintf("label %s: its %d characters are not a checksum", LabelCommit, len(label)))
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
			return img.layerError(ctx, "the first layer", err)
		}
		defer done()
		found, err = firstCommit(ctx, r)
		return img.layerError(ctx, "the first layer", err)
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
func (img *Image) unlabelledCommit(ctx context.Context, m Manifest, c format.ImageConfig) (verdict.InnerCommit, error) {
	var found commitObject
	err := img.readLayer(ctx, m, c, 0, layerScan{part: largeLayerPart, limit: maxLayerBytes, read: func(ctx context.Context, r io.Reader) (bool, error) {
		var err error
		found, err = onlyCommit(ctx, r)
		return false, err
	}})
	if err != nil {
		return verdict.InnerCommit{}, err
	}
	return img.innerCommit(found, verdict.CommitFromLayer)
}

// A layerScan says how to read a layer.
type layerScan struct {
	part  int64 // how much to fetch first; the parts grow to largeLayerPart
	limit int64 // of uncompressed bytes
	// read is given the uncompressed bytes. By answering true it stops early.
	read func(context.Context, io.Reader) (stop bool, err error)
}

// readLayer reads a layer. Unless the scan stops early, the layer is read to
// its end, and its size, digest and diff id must be right: then what was seen
// is all that the layer holds. The blob is fetched part by part, so that a
// failure that may pass costs a part.
func (img *Image) readLayer(callers context.Context, m Manifest, c format.ImageConfig, i int, scan layerScan) error {
	ctx, cancel := context.WithTimeout(callers, longestStep)
	defer cancel()
	src, err := img.source(ctx)
	if err != nil {
		return err
	}
	parts, done := img.layerParts(ctx, src, layerInfo(m, i), scan.part)
	defer done()
	if err = img.scanLayer(ctx, parts, m, c, i, scan); err == nil {
		return nil
	}
	if errors.Is(context.Cause(parts.ctx), errFlood) {
		return fail(RegistryServerError, img.name, fmt.Errorf("reading %s: %w", layerName(m, i), errFlood))
	}
	if classify(ctx, err) == Timeout {
		return fail(Timeout, img.name, &unfinishedError{
			layer: layerName(m, i), got: parts.got, size: m.Layers[i].Size,
			longest: callers.Err() == nil && ctx.Err() != nil, err: err,
		})
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return fail(classify(ctx, err), img.name, fmt.Errorf("reading %s: %w", layerName(m, i), err))
}

// An unfinishedError says how far a layer was read when the time was over.
type unfinishedError struct {
	layer     string
	got, size int64 // bytes
	longest   bool  // the time is that of longestStep, not the caller's
	err       error
}

func (e *unfinishedError) Error() string {
	unit, name := int64(1), "bytes"
	switch {
	case e.size >= 10e6:
		unit, name = 1e6, "MB"
	case e.size >= 10e3:
		unit, name = 1e3, "kB"
	}
	text := fmt.Sprintf("read %d of %d %s of %s when the time was over", e.got/unit, e.size/unit, name, e.layer)
	if e.got >= e.size {
		text = fmt.Sprintf("read all %d %s of %s, but had not unpacked them when the time was over", e.size/unit, name, e.layer)
	}
	if e.longest {
		return text + fmt.Sprintf(": no layer is read for more than %v", longestStep)
	}
	return text + "; --timeout gives more"
}

func (e *unfinishedError) Unwrap() error { return e.err }

// layerParts reads a layer of any size, part by part.
func (img *Image) layerParts(ctx context.Context, src types.ImageSource, info types.BlobInfo, first int64) (*headReader, func()) {
	var gate floodGate
	whole, stop := gate.watch(ctx, info.Size)
	h := &headReader{
		ctx: img.meter.watch(whole, &gate), src: src, info: info, meter: &img.meter,
		next: first, largest: largeLayerPart, limit: math.MaxInt64,
	}
	h.attempt = func(n int64, request func(context.Context) error) error {
		// A server without ranges begins to send all of the blob.
		return img.fetch(ctx, "reading a layer", max(n, maxHead), func(ctx context.Context) error {
			err := request(ctx)
			if _, ok := errors.AsType[*transferError](err); !ok {
				return err // of asking, not of the bytes
			}
			return img.layerError(ctx, "a layer", err)
		})
	}
	return h, func() { h.Close(); stop() }
}

// scanLayer is readLayer on what is fetched.
func (img *Image) scanLayer(ctx context.Context, parts io.Reader, m Manifest, c format.ImageConfig, i int, scan layerScan) error {
	name, layer := layerName(m, i), m.Layers[i]
	blob := &hashingReader{r: timedReader{ctx, parts}, hash: sha256.New(), limit: layer.Size}
	z, done, err := decompress(blob)
	if err != nil {
		return img.layerError(ctx, name, err)
	}
	defer done()
	content := &hashingReader{r: timedReader{ctx, z}, hash: sha256.New(), limit: scan.limit}
	if stop, err := scan.read(ctx, content); err != nil || stop {
		return img.layerError(ctx, name, err)
	}
	// What follows the archive's end counts for the digests.
	for _, rest := range []io.Reader{content, blob} {
		if _, err := io.Copy(io.Discard, rest); err != nil {
			return img.layerError(ctx, name, err)
		}
	}
	if blob.n != layer.Size {
		return img.layerError(ctx, name, errTruncated)
	}
	if got := blob.digest(); got != layer.Digest {
		return failText(DigestMismatch, img.name, fmt.Sprintf("layer %s was served with the digest %s", layer.Digest, got))
	}
	if got := content.digest(); got != c.DiffIDs[i] {
		return failText(DigestMismatch, img.name, fmt.Sprintf("%s: its diff id is %s, the config says %s", name, got, c.DiffIDs[i]))
	}
	return nil
}

// innerCommit reads the commit's own fields.
func (img *Image) innerCommit(found commitObject, source verdict.CommitSource) (verdict.InnerCommit, error) {
	c, err := format.ParseCommit(found.bytes)
	if err != nil {
		return verdict.InnerCommit{}, fail(LayerInvalid, img.name, fmt.Errorf("parsing commit %s: %w", found.checksum, err))
	}
	img.listed, img.listErr = commitList(c)
	return verdict.InnerCommit{Checksum: found.checksum, Source: source, Root: c.Root, Timestamp: c.Timestamp}, nil
}

// layerName names a layer for a person.
func layerName(m Manifest, i int) string {
	if i == 0 {
		return "the first layer"
	}
	return fmt.Sprintf("layer %d of %d", i+1, len(m.Layers))
}

func layerInfo(m Manifest, i int) types.BlobInfo {
	return types.BlobInfo{Digest: digest.Digest(m.Layers[i].Digest), Size: m.Layers[i].Size, MediaType: m.LayerMediaTypes[i]}
}

// layerError gives codes to what a layer's content can be wrong by; errors of
// the transfer go on to be classified by the caller.
func (img *Image) layerError(ctx context.Context, layer string, err error) error {
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
	return fail(LayerInvalid, img.name, fmt.Errorf("%s: %w", layer, err))
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
