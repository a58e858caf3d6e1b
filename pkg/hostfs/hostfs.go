// Package hostfs reads files below a root directory that may be another
// system's: symbolic links, absolute ones and those with "..", are resolved
// inside the root as the kernel would after a chroot, and nothing outside is
// ever opened. Reads are bounded. It never writes.
package hostfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sort"
	"syscall"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"
)

// ErrTooLarge is wrapped by errors about files over the caller's limit.
var ErrTooLarge = errors.New("file is larger than the limit")

// ErrNotRegular is wrapped by errors about reading something that is not a
// regular file: a directory, a FIFO, a device.
var ErrNotRegular = errors.New("not a regular file")

// ErrDangling is wrapped by errors about a path with a symbolic link that leads
// nowhere. It does not match [fs.ErrNotExist]: someone meant something to be
// there, so it is not known to be absent.
var ErrDangling = errors.New("dangling symbolic link")

// A Root is a directory that serves as "/" for all reads through it. Its
// methods take slash-separated paths, absolute or not, both meaning below the
// root. It is safe for concurrent use.
type Root struct {
	dir *os.File
}

// Open opens dir as a root.
func Open(dir string) (*Root, error) {
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening root: %w", err)
	}
	return &Root{dir: f}, nil
}

// Close closes the root; files opened through it stay open.
func (r *Root) Close() error { return r.dir.Close() }

// maxRetries bounds the attempts at a path below which something is renamed
// all the time: the kernel answers EAGAIN then.
const maxRetries = 64

// open opens a clean absolute path with links resolved inside the root, by the
// kernel itself. Where it cannot (before Linux 5.6, or a seccomp filter
// forbids it) a library walks the path.
func (r *Root) open(name string, flags int) (*os.File, error) {
	how := unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS} //nolint:gosec // flags are not negative
	for range maxRetries {
		fd, err := unix.Openat2(int(r.dir.Fd()), name, &how)
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), name), nil
		case unix.EAGAIN, unix.EINTR:
			continue
		case unix.ENOSYS, unix.EPERM:
			return r.walk(name, flags)
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: unix.EAGAIN}
}

// walk is open without the kernel's help.
func (r *Root) walk(name string, flags int) (*os.File, error) {
	h, err := pathrs.OpenatInRoot(r.dir, name)
	if err != nil || flags&unix.O_PATH != 0 {
		return h, err
	}
	defer h.Close()
	return pathrs.Reopen(h, flags|unix.O_CLOEXEC)
}

// handle returns an O_PATH handle for name, all links followed.
func (r *Root) handle(op, name string) (*os.File, error) {
	// Clean against "/" keeps a leading ".." from being the resolver's concern.
	h, err := r.open(path.Clean("/"+name), unix.O_PATH)
	if errors.Is(err, fs.ErrNotExist) {
		if d := r.dangling(path.Clean("/" + name)); d != nil {
			err = d
		}
	}
	if err != nil {
		return nil, pathError(op, name, err)
	}
	return h, nil
}

// dangling finds the link that a missing path ends at: what is missing first is
// then a link itself. It is nil where there is none.
func (r *Root) dangling(name string) error {
	for i := 1; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		h, err := r.open(name[:i], unix.O_PATH)
		if err == nil {
			h.Close()
			continue
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		target, err := r.Readlink(name[:i])
		if err != nil {
			return nil
		}
		return fmt.Errorf("%w: %s leads to %s", ErrDangling, name[:i], target)
	}
	return nil
}

// pathError names the path below the root, never that of the root itself.
func pathError(op, name string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	var se *os.SyscallError
	if errors.As(err, &se) {
		err = se.Err
	}
	return &fs.PathError{Op: op, Path: path.Clean("/" + name), Err: err}
}

// OpenFile opens a regular file for reading. It never blocks on a FIFO and
// refuses anything that is not a regular file.
func (r *Root) OpenFile(name string) (*os.File, error) {
	h, err := r.handle("open", name)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	fi, err := h.Stat()
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	if !fi.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path.Clean("/" + name), Err: ErrNotRegular}
	}
	// Opened by name again, which is cheaper than through the handle: should
	// another file stand there by now, it is held to the same rule.
	f, err := r.open(path.Clean("/"+name), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		f.Close()
		return nil, &fs.PathError{Op: "open", Path: path.Clean("/" + name), Err: ErrNotRegular}
	}
	return f, nil
}

// ReadFile returns the content of a regular file of at most limit bytes.
// Files of /proc and /sys, whose size is 0, are read to their end. Errors
// wrap [fs.ErrNotExist], [ErrDangling], [fs.ErrPermission], [ErrTooLarge] or
// [ErrNotRegular] where they apply, and name the path below the root.
func (r *Root) ReadFile(name string, limit int64) ([]byte, error) {
	f, err := r.OpenFile(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, pathError("read", name, err)
	}
	if int64(len(b)) > limit {
		return nil, &fs.PathError{Op: "read", Path: path.Clean("/" + name), Err: fmt.Errorf("%w of %d bytes", ErrTooLarge, limit)}
	}
	return b, nil
}

// Stat describes what name leads to, links followed.
func (r *Root) Stat(name string) (fs.FileInfo, error) {
	h, err := r.handle("stat", name)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	fi, err := h.Stat()
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	return fi, nil
}

// DeviceInode returns the device and inode numbers of what name leads to.
func (r *Root) DeviceInode(name string) (dev, ino uint64, err error) {
	fi, err := r.Stat(name)
	if err != nil {
		return 0, 0, err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, &fs.PathError{Op: "stat", Path: name, Err: errors.ErrUnsupported}
	}
	return uint64(st.Dev), st.Ino, nil //nolint:unconvert // Dev is 32 bits wide on some platforms
}

// Exists reports whether name leads to anything. An error other than
// "does not exist" is returned, that of a dangling link too: not knowing is not
// absence.
func (r *Root) Exists(name string) (bool, error) {
	_, err := r.Stat(name)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	default:
		return false, err
	}
}

// Readlink returns the target of the symbolic link name, unresolved.
// The links in the folders above it are followed.
func (r *Root) Readlink(name string) (string, error) {
	name = path.Clean("/" + name)
	parent, err := r.handle("readlink", path.Dir(name))
	if err != nil {
		return "", err
	}
	defer parent.Close()
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(parent.Fd()), path.Base(name), buf)
	if err != nil {
		return "", pathError("readlink", name, err)
	}
	return string(buf[:n]), nil
}

// ReadDir lists a directory sorted by name. A directory of more than limit
// entries is an error that wraps [ErrTooLarge].
func (r *Root) ReadDir(name string, limit int) ([]fs.DirEntry, error) {
	h, err := r.handle("open", name)
	if err != nil {
		return nil, err
	}
	h.Close()
	d, err := r.open(path.Clean("/"+name), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	defer d.Close()
	entries, err := d.ReadDir(limit + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, pathError("readdir", name, err)
	}
	if len(entries) > limit {
		return nil, &fs.PathError{Op: "readdir", Path: path.Clean("/" + name), Err: fmt.Errorf("%w of %d entries", ErrTooLarge, limit)}
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name() < entries[j].Name() })
	return entries, nil
}

// Live reports whether the root is the running host's own root directory, by
// device and inode: that of process 1, so that a container which has the host
// mounted somewhere, and shares its process namespace, sees it too. Where
// /proc/1/root cannot be read the caller's own "/" stands in.
func (r *Root) Live() bool {
	var root, host unix.Stat_t
	if unix.Fstat(int(r.dir.Fd()), &root) != nil {
		return false
	}
	if unix.Stat("/proc/1/root", &host) != nil && unix.Stat("/", &host) != nil {
		return false
	}
	return root.Dev == host.Dev && root.Ino == host.Ino
}
