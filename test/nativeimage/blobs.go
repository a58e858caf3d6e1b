package nativeimage

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// A countingHash passes bytes on and remembers their digest and number.
type countingHash struct {
	to   io.Writer
	hash hash.Hash
	size int64
}

func newCountingHash(to io.Writer) *countingHash {
	return &countingHash{to: to, hash: sha256.New()}
}

func (c *countingHash) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.hash.Write(p[:n])
	c.size += int64(n)
	return n, err
}

func (c *countingHash) digest() string { return "sha256:" + hex.EncodeToString(c.hash.Sum(nil)) }

// writeLayer stores what write writes, compressed, as a file in dir.
func writeLayer(dir string, c Compression, write func(io.Writer) error) (l Layer, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Layer{}, err
	}
	f, err := os.CreateTemp(dir, "layer-")
	if err != nil {
		return Layer{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	stored := newCountingHash(f)
	packed, err := compressor(c, stored)
	if err != nil {
		return Layer{}, err
	}
	plain := newCountingHash(packed)
	if err := write(plain); err != nil {
		return Layer{}, err
	}
	if err := packed.Close(); err != nil {
		return Layer{}, err
	}
	name := filepath.Join(dir, stored.digest()[len("sha256:"):])
	if err := os.Rename(f.Name(), name); err != nil {
		return Layer{}, err
	}
	return Layer{
		Blob:        Blob{Digest: stored.digest(), Size: stored.size, file: name},
		Compression: c, DiffID: plain.digest(),
	}, nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func compressor(c Compression, w io.Writer) (io.WriteCloser, error) {
	switch c {
	case Gzip:
		return gzip.NewWriterLevel(w, gzip.BestSpeed)
	case Zstd:
		return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	case Uncompressed:
		return nopCloser{w}, nil
	}
	return nil, fmt.Errorf("compressing a layer: unknown compression %d", c)
}

// Tar opens the layer's uncompressed tar stream.
func (l Layer) Tar() (io.ReadCloser, error) {
	blob, err := l.Open()
	if err != nil {
		return nil, err
	}
	switch l.Compression {
	case Gzip:
		r, err := gzip.NewReader(blob)
		if err != nil {
			return nil, errors.Join(err, blob.Close())
		}
		return readCloser{r, blob.Close}, nil
	case Zstd:
		r, err := zstd.NewReader(blob)
		if err != nil {
			return nil, errors.Join(err, blob.Close())
		}
		return readCloser{r, func() error { r.Close(); return blob.Close() }}, nil
	case Uncompressed:
	}
	return blob, nil
}

type readCloser struct {
	io.Reader
	close func() error
}

func (r readCloser) Close() error { return r.close() }
