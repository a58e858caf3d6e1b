package osimage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"
)

// How a layer's head is asked for.
const (
	firstPart             = 128 << 10
	firstPartUncompressed = 256 << 10
	secondPart            = 512 << 10
	largestPart           = 2 << 20
	maxHead               = 8 << 20
	// largeLayerPart is for layers that are read for long; one is in memory.
	largeLayerPart = 8 << 20
)

// errHeadLimit says that what was looked for is not near a layer's start.
var errHeadLimit = errors.New("not near the layer's start")

// errTruncated says that a layer has fewer bytes than its manifest says.
var errTruncated = errors.New("the layer ends early")

// A headReader reads a blob from its start, part by part, as its consumer
// needs more, and gives up after a limit. One part is in memory.
type headReader struct {
	ctx   context.Context //nolint:containedctx // an io.Reader has no other way
	src   types.ImageSource
	info  types.BlobInfo
	meter *meter
	next  int64 // size of the next part
	// largest is that of the largest part; largestPart where zero.
	largest int64
	// limit is how much may be read; maxHead where zero.
	limit int64
	// attempt runs the request for one part of n bytes, again where it may
	// pass; where nil, a request is made once.
	attempt func(n int64, request func(context.Context) error) error

	offset int64
	buf    []byte
	memory []byte // what parts are read into
	filled int64  // how much of the part at offset has come; a new try asks for the rest
	got    int64  // how much of the blob has come
	// whole is the blob from offset on, where the source sends no parts.
	whole io.ReadCloser
}

func (h *headReader) Read(p []byte) (int, error) {
	if len(h.buf) == 0 {
		if err := h.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, h.buf)
	h.buf = h.buf[n:]
	return n, nil
}

// fill fetches the next part.
func (h *headReader) fill() error {
	if h.offset >= h.info.Size {
		return io.EOF
	}
	limit, largest := cmp.Or(h.limit, maxHead), cmp.Or(h.largest, largestPart)
	n := min(h.next, h.info.Size-h.offset, limit-h.offset)
	if n <= 0 {
		return fmt.Errorf("%w: not within %d bytes", errHeadLimit, limit)
	}
	buf, err := h.fetch(n)
	if err != nil {
		if _, ok := errors.AsType[*transferError](err); !ok {
			err = &transferError{err}
		}
		return err
	}
	h.buf = buf
	h.offset += n
	h.next = min(max(2*h.next, secondPart), largest)
	return nil
}

func (h *headReader) fetch(n int64) ([]byte, error) {
	h.filled = 0
	if h.whole == nil {
		buf, err := h.part(n)
		if !errors.Is(err, errNoRange) {
			return buf, err
		}
		if err := h.openWhole(); err != nil {
			return nil, err
		}
		h.filled = 0
	}
	return h.read(h.whole, n)
}

// part asks for the next n bytes alone; errNoRange says that this source sends
// whole blobs only.
func (h *headReader) part(n int64) (buf []byte, err error) {
	if h.attempt == nil {
		return h.request(h.ctx, n)
	}
	whole := false
	err = h.attempt(n, func(ctx context.Context) error {
		buf, err = h.request(ctx, n)
		if whole = errors.Is(err, errNoRange); whole {
			return nil // no failure: trying again is useless
		}
		return err
	})
	if whole {
		return nil, errNoRange
	}
	return buf, err
}

func (h *headReader) request(ctx context.Context, n int64) ([]byte, error) {
	p, err := blobPart(ctx, h.src, h.info, uint64(h.offset+h.filled), uint64(n-h.filled)) //nolint:gosec // none is negative
	if err != nil {
		return nil, err
	}
	defer p.close()
	if !p.ranged && h.offset > 0 {
		// The server sends the blob from its start each time; asking it for
		// every part would read the same bytes over and over.
		return nil, errNoRange
	}
	return h.read(p, n)
}

// openWhole opens the blob from its start and skips what was read before.
func (h *headReader) openWhole() error {
	r, _, err := h.src.GetBlob(h.ctx, h.info, none.NoCache)
	if err != nil {
		return err
	}
	h.whole = r
	if _, err := io.CopyN(io.Discard, countingReader{r, h.meter}, h.offset); err != nil {
		return moved(noEOF(err))
	}
	return nil
}

// read fills the part of n bytes up.
func (h *headReader) read(r io.Reader, n int64) ([]byte, error) {
	if int64(cap(h.memory)) < n {
		h.memory = make([]byte, n)
	}
	buf := h.memory[:n]
	more, err := io.ReadFull(countingReader{r, h.meter}, buf[h.filled:])
	h.filled += int64(more)
	h.got = max(h.got, h.offset+h.filled)
	if err != nil {
		return nil, moved(noEOF(err))
	}
	return buf, nil
}

// noEOF makes an end that comes too early an error.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Close ends the reading. It returns no error: nothing more is wanted.
func (h *headReader) Close() {
	if h.whole != nil {
		h.whole.Close()
	}
}
