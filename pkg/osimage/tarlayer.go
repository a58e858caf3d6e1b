package osimage

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

const (
	maxCommit = 16 << 20
	// maxHeadEntries and maxHeadBytes bound the uncompressed head of a layer:
	// before the commit there are a few dozen directories and the
	// repository's config.
	maxHeadEntries = 10_000
	maxHeadBytes   = 64 << 20
	// maxNameBytes bounds an entry's name, as Linux does a path.
	maxNameBytes = 4096
	// maxLayerBytes bounds a whole uncompressed layer.
	maxLayerBytes = 32 << 30
	maxZstdWindow = 32 << 20
)

var (
	errNoCommit   = errors.New("holds no ostree commit object")
	errTwoCommits = errors.New("holds more than one ostree commit object")
	errTooLong    = errors.New("uncompressed data over the limit")
	// errUnpacking marks the end of the time as one that came between requests.
	errUnpacking = errors.New("unpacking")
)

// commitPath is where ostree-ext puts the commit in layer 0 (tar/export.rs);
// /ostree is a link to /sysroot/ostree.
var commitPath = regexp.MustCompile(`^(?:sysroot/)?ostree/repo/objects/([0-9a-f]{2})/([0-9a-f]{62})\.commit$`)

// anyCommitPath is a commit object in any repository.
var anyCommitPath = regexp.MustCompile(`(?:^|/)objects/[0-9a-f]{2}/[0-9a-f]{62}\.commit$`)

// A commitObject is a commit whose bytes match its name.
type commitObject struct {
	checksum verdict.Checksum
	bytes    []byte
}

// decompress recognizes gzip and zstd (zstd:chunked too) by their first bytes;
// anything else is read as it is.
func decompress(r io.Reader) (io.Reader, func(), error) {
	b := bufio.NewReaderSize(r, 32<<10)
	magic, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, nil, err
		}
		return z, func() { z.Close() }, nil
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}), len(magic) == 4 && magic[0]&0xf0 == 0x50 && bytes.Equal(magic[1:], []byte{0x2a, 0x4d, 0x18}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	default:
		return b, func() {}, nil
	}
}

// firstCommit reads a layer's uncompressed tar up to its first commit object.
func firstCommit(ctx context.Context, r io.Reader) (commitObject, error) {
	t := tar.NewReader(&limitedReader{r: timedReader{ctx, r}, left: maxHeadBytes})
	for range maxHeadEntries {
		h, err := nextEntry(ctx, t)
		if errors.Is(err, io.EOF) {
			return commitObject{}, errNoCommit
		}
		if err != nil {
			return commitObject{}, err
		}
		// In an unexpected place it is an error, not passed over.
		if anyCommitPath.MatchString(entryName(h)) {
			return readCommit(t, h, commitPath)
		}
	}
	return commitObject{}, fmt.Errorf("%w among its first %d entries", errNoCommit, maxHeadEntries)
}

// onlyCommit reads a whole uncompressed tar, which must hold exactly one
// commit object, in any repository. The caller bounds what there is to read.
func onlyCommit(ctx context.Context, r io.Reader) (commitObject, error) {
	var found commitObject
	seen := false
	t := tar.NewReader(r)
	for {
		h, err := nextEntry(ctx, t)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return commitObject{}, err
		}
		if !anyCommitPath.MatchString(entryName(h)) {
			continue
		}
		if seen {
			return commitObject{}, errTwoCommits
		}
		seen = true
		if found, err = readCommit(t, h, commitPath); err != nil {
			return commitObject{}, err
		}
	}
	if !seen {
		return commitObject{}, errNoCommit
	}
	return found, nil
}

// nextEntry goes on to a layer's next entry until the time is over. What is in a
// sparse file costs time and no bytes, so the reader beneath does not see it.
func nextEntry(ctx context.Context, t *tar.Reader) (*tar.Header, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	h, err := t.Next()
	if err == nil && len(h.Name) > maxNameBytes {
		return nil, fmt.Errorf("an entry's name, %.100q..., has %d bytes, over the limit of %d", h.Name, len(h.Name), maxNameBytes)
	}
	return h, err
}

func entryName(h *tar.Header) string { return path.Clean("/" + h.Name)[1:] }

// plainName reports whether a name has no ".." in it, which the importer does
// not resolve.
func plainName(name string) bool { return !slices.Contains(strings.Split(name, "/"), "..") }

// readCommit reads a commit object, whose name where must match, and checks it
// against that name.
func readCommit(t *tar.Reader, h *tar.Header, where *regexp.Regexp) (commitObject, error) {
	m := where.FindStringSubmatch(entryName(h))
	if m == nil || !plainName(h.Name) {
		return commitObject{}, fmt.Errorf("holds a commit object in an unexpected place: %.200q", h.Name)
	}
	if h.Typeflag != tar.TypeReg {
		return commitObject{}, fmt.Errorf("%s is not a regular file", path.Base(h.Name))
	}
	if h.Size > maxCommit {
		return commitObject{}, fmt.Errorf("commit object of %d bytes, over the limit of %d", h.Size, maxCommit)
	}
	var b bytes.Buffer // grows with the data: a header can promise anything
	if _, err := io.Copy(&b, io.LimitReader(t, maxCommit+1)); err != nil {
		return commitObject{}, err
	}
	c := commitObject{checksum: verdict.Checksum(m[1] + m[2]), bytes: b.Bytes()}
	if got := format.SumMetadata(c.bytes); got != c.checksum {
		return commitObject{}, fmt.Errorf("commit object %s has the checksum %s", c.checksum, got)
	}
	return c, nil
}

// A timedReader ends with its context. A few bytes of a layer can unpack to so
// many that the time runs out between two requests.
type timedReader struct {
	ctx context.Context //nolint:containedctx // an io.Reader has no other way
	r   io.Reader
}

func (t timedReader) Read(p []byte) (int, error) {
	if t.ctx.Err() != nil {
		return 0, fmt.Errorf("%w: %w", errUnpacking, context.Cause(t.ctx))
	}
	return t.r.Read(p)
}

// limitedReader fails, where io.LimitReader ends, so that a limit is never
// taken for the end of the data.
type limitedReader struct {
	r    io.Reader
	left int64
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooLong
	}
	if int64(len(p)) > l.left {
		p = p[:l.left]
	}
	n, err := l.r.Read(p)
	l.left -= int64(n)
	return n, err
}
