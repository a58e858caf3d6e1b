package osimage

import (
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
)

// errHeadLimit says that what was looked for is not near a layer's start.
var errHeadLimit = fmt.Errorf("not within the layer's first %d bytes", maxHead)

// errTruncated says that a layer has fewer bytes than its manifest says.
var errTruncated = errors.New("the layer ends early")

// A headReader reads a blob from its start, part by part, as its consumer
// needs more, and gives up after maxHead bytes. One part is in memory.
type headReader struct {
	ctx   context.Context //nolint:containedctx // an io.Reader has no other way
	src   types.ImageSource
	info  types.BlobInfo
	meter *meter
	next  int64 // size of the next part

	offset int64
	buf    []byte
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
	n := min(h.next, h.info.Size-h.offset, maxHead-h.offset)
	if n <= 0 {
		return errHeadLimit
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
	h.next = min(max(2*h.next, secondPart), largestPart)
	return nil
}

func (h *headReader) fetch(n int64) ([]byte, error) {
	if h.whole == nil {
		p, err := blobPart(h.ctx, h.src, h.info, uint64(h.offset), uint64(n)) //nolint:gosec // neither is negative
		switch {
		case err == nil && (p.ranged || h.offset == 0):
			defer p.close()
			return h.read(p, n)
		case err == nil:
			// The server sends the blob from its start each time; asking it
			// for every part would read the same bytes over and over.
			p.close()
		case !errors.Is(err, errNoRange):
			return nil, err
		}
		if err := h.openWhole(); err != nil {
			return nil, err
		}
	}
	return h.read(h.whole, n)
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

func (h *headReader) read(r io.Reader, n int64) ([]byte, error) {
	buf := make([]byte, n)
	if _, err := io.ReadFull(countingReader{r, h.meter}, buf); err != nil {
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
