package bootimage

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"golang.org/x/sys/unix"
)

// ownFile refuses a file through which another user could change what was verified.
func ownFile(f *os.File) error {
	var st unix.Stat_t
	switch err := unix.Fstat(int(f.Fd()), &st); {
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return errors.New("it is not a regular file")
	case int(st.Uid) != os.Geteuid() || st.Nlink != 1:
		return errors.New("it is another user's, or has another name too")
	}
	return nil
}

// lock takes a partial file for this call alone. Who had it before may have given it
// the file's own name since it was opened: then nobody may write to it any more.
func lock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return ErrBusy
	}
	own, err := f.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Lstat(f.Name()); err != nil || !os.SameFile(own, named) {
		return ErrBusy
	}
	return nil
}

func (t *transfer) check() error {
	if got := hex.EncodeToString(t.hash.Sum(nil)); got != t.part.SHA256 {
		return &ChecksumError{t.part.Name, t.part.SHA256, got}
	}
	return nil
}

// settle gives the partial file its name.
func (t *transfer) settle(partial, name string) error {
	if err := t.file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(partial, name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// unpack writes what is in the file, which was checked, and checks that.
func (t *transfer) unpack(ctx context.Context, name string) (err error) {
	if _, err := t.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if t.part.Compression() == "xz" {
		switch d, err := xzDictionary(t.file, t.size); {
		case err != nil:
			return err
		case d > maxWindow:
			return fmt.Errorf("it needs %d bytes of memory, over the limit of %d", d, maxWindow)
		}
	}
	z, err := unpacker(t.part.Compression(), contextReader{ctx, t.file})
	if err != nil {
		return err
	}
	defer z.Close()
	// What a call that was killed has left; the partial file's lock keeps others away.
	if err := ignoreMissing(os.Remove(name)); err != nil {
		return err
	}
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, sum), io.LimitReader(z, maxFile+1))
	if err != nil {
		return err
	}
	if n > maxFile {
		return fmt.Errorf("more than %d bytes", int64(maxFile))
	}
	if got := hex.EncodeToString(sum.Sum(nil)); t.part.UncompressedSHA256 != "" && got != t.part.UncompressedSHA256 {
		return &ChecksumError{filepath.Base(name), t.part.UncompressedSHA256, got}
	}
	return out.Sync()
}

func unpacker(compression string, r io.Reader) (io.ReadCloser, error) {
	switch compression {
	case "gz":
		return gzip.NewReader(r)
	case "xz":
		z, err := xz.NewReader(r)
		return io.NopCloser(z), err
	case "zst":
		z, err := zstd.NewReader(r, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return nil, fmt.Errorf("a compression that is not known: %q", compression)
}

// sumOf is the checksum of a file.
func sumOf(ctx context.Context, name string) (string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.Join(err, fmt.Errorf("%s: it is not a regular file", name))
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, contextReader{ctx, f}); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context //nolint:containedctx // as long as one call
	r   io.Reader
}

func (c contextReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
