package ostree

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// maxXattrs bounds the list of names, and each value, of extended attributes:
// Linux's own limit.
const maxXattrs = 64 << 10

// A content is the content of a regular file of a commit.
type content struct {
	io.ReaderAt
	size int64
	io.Closer
}

// content opens the content of a regular file and compares the object's
// checksum, which covers owner, mode and extended attributes too.
func (r *Repo) content(c verdict.Checksum, limit int64) (*content, error) {
	kind := format.FileObject
	if r.config.Mode == modeArchive || r.config.Mode == modeArchiveZ2 {
		kind = format.FileZObject
	}
	name := path.Join(r.dir, format.ObjectPath(c, kind))
	f, err := r.root.OpenFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading file object: %w", err)
	}
	var header format.FileHeader
	opened := &content{ReaderAt: f, Closer: f}
	if kind == format.FileZObject {
		header, err = opened.inflate(f, limit)
	} else {
		header, err = r.bareHeader(int(f.Fd()), opened)
	}
	if err == nil {
		err = opened.check(header, c, limit)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("reading file object %s: %w", name, err)
	}
	return opened, nil
}

// check compares the checksum.
func (o *content) check(header format.FileHeader, c verdict.Checksum, limit int64) error {
	if header.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("not a regular file")
	}
	if o.size > limit {
		return fmt.Errorf("%d bytes, over the limit of %d", o.size, limit)
	}
	hash := sha256.New()
	hash.Write(header.Bytes())
	if n, err := io.Copy(hash, io.NewSectionReader(o, 0, o.size)); err != nil || n != o.size {
		return fmt.Errorf("only %d of %d bytes are readable: %w", n, o.size, errors.Join(err, io.ErrUnexpectedEOF))
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != string(c) {
		return fmt.Errorf("its checksum is %s: the repository is corrupt, see ostree fsck", got)
	}
	return nil
}

// bareHeader is that of a file that stands in the repository as such: with its
// own owner and attributes, with them in an attribute, or without.
func (r *Repo) bareHeader(fd int, o *content) (h format.FileHeader, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return h, err
	}
	o.size = st.Size
	switch r.config.Mode {
	case modeBare:
		h = format.FileHeader{UID: st.Uid, GID: st.Gid, Mode: st.Mode}
		h.Xattrs, err = xattrs(fd)
		return h, err
	case modeBareUser:
		b, err := xattr(fd, userMeta)
		if err != nil {
			return h, err
		}
		meta, err := format.ParseUserMeta(b)
		if err != nil {
			return h, fmt.Errorf("%s: %w", userMeta, err)
		}
		return *meta, nil
	case modeBareUserOnly:
		return format.FileHeader{Mode: st.Mode}, nil
	}
	return h, fmt.Errorf("content is not read in a repository of mode %q", r.config.Mode)
}

func xattrs(fd int) ([]format.Xattr, error) {
	buf := make([]byte, maxXattrs)
	n, err := unix.Flistxattr(fd, buf)
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing extended attributes: %w", err)
	}
	var list []format.Xattr
	for name := range strings.SplitSeq(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		value, err := xattr(fd, name)
		if err != nil {
			return nil, err
		}
		list = append(list, format.Xattr{Name: name, Value: value})
	}
	return list, nil
}

func xattr(fd int, name string) ([]byte, error) {
	buf := make([]byte, maxXattrs)
	n, err := unix.Fgetxattr(fd, name, buf)
	if err != nil {
		return nil, fmt.Errorf("reading extended attribute %s: %w", name, err)
	}
	return buf[:n], nil
}

// archiveHeader reads the header at the start of an archive's object and
// leaves the reader at the compressed content.
func archiveHeader(f io.Reader) (*format.ArchiveFileHeader, error) {
	var head [8]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return nil, errors.New("header ends early")
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > format.MaxFileHeader {
		return nil, fmt.Errorf("header of %d bytes", size)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, errors.New("header ends early")
	}
	return format.ParseArchiveFileHeader(b)
}

// inflate reads an archive's object into memory.
func (o *content) inflate(f io.Reader, limit int64) (format.FileHeader, error) {
	h, err := archiveHeader(f)
	if err != nil {
		return format.FileHeader{}, err
	}
	if h.Size > uint64(limit) { //nolint:gosec // the limit is not negative
		return format.FileHeader{}, fmt.Errorf("%d bytes, over the limit of %d", h.Size, limit)
	}
	b, err := io.ReadAll(io.LimitReader(flate.NewReader(f), limit+1))
	if err != nil {
		return format.FileHeader{}, fmt.Errorf("decompressing: %w", err)
	}
	o.ReaderAt, o.size = bytes.NewReader(b), int64(len(b))
	return h.FileHeader, nil
}
