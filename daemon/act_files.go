package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"
)

// tempSuffix ends the name of the temporary file beside one that is being
// replaced. Only one instance writes at a time, so the name needs nothing else,
// and the next run finds what a killed one has left.
const tempSuffix = ".oneboot-tmp"

// maxChangedFile bounds a file that an act changes, in bytes.
const maxChangedFile = 1 << 20

// A hostWriter changes files below a root: links in the folders above a file
// are followed inside the root, the file itself must not be one. All its calls
// are made on one thread, which may get a mount namespace of its own.
type hostWriter struct {
	// dir is the root as the caller names it.
	dir  string
	root *os.File
	// private is the same root in a mount namespace that only this thread is in,
	// where /sysroot is writable; nil before that was needed. Nothing but
	// ostree's own files is reached through it, whatever a link in /etc or /var
	// leads to.
	private *os.File
}

func openWriter(dir string) (*hostWriter, error) {
	root, err := openRoot(dir)
	if err != nil {
		return nil, err
	}
	return &hostWriter{dir: dir, root: root}, nil
}

func openRoot(dir string) (*os.File, error) {
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening root: %w", err)
	}
	return root, nil
}

func (w *hostWriter) close() {
	_ = w.root.Close()
	if w.private != nil {
		_ = w.private.Close()
	}
}

// folder opens the folder that a file is in, and returns the file's name there.
func (w *hostWriter) folder(name string) (dir *os.File, base string, err error) {
	dir, err = w.openFolder(path.Dir(name))
	return dir, path.Base(name), err
}

func (w *hostWriter) openFolder(name string) (*os.File, error) {
	root := w.root
	if w.private != nil && onPhysicalRoot(name) {
		root = w.private
	}
	handle, err := pathrs.OpenatInRoot(root, name)
	if err != nil {
		return nil, fileError(name, err)
	}
	defer handle.Close()
	dir, err := pathrs.Reopen(handle, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err != nil {
		return nil, fileError(name, err)
	}
	return dir, nil
}

// fileError names the path below the root, never that of the root itself.
func fileError(name string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	var se *os.SyscallError
	if errors.As(err, &se) {
		err = se.Err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// A fileState is a regular file's content and what stands around it.
type fileState struct {
	Content []byte `json:"content"`
	// Mode is the permissions with the set-id and sticky bits.
	Mode uint32 `json:"mode"`
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	// ModTime is in nanoseconds since the epoch.
	ModTime int64 `json:"modTime"`
	// XAttrs are the extended attributes, the SELinux label among them.
	XAttrs map[string][]byte `json:"xattrs,omitempty"`
}

// read reads a regular file. Its error wraps [fs.ErrNotExist] where there is
// none.
func (w *hostWriter) read(name string, limit int64) (fileState, error) {
	dir, base, err := w.folder(name)
	if err != nil {
		return fileState{}, err
	}
	defer dir.Close()
	st, err := readAt(dir, base, limit)
	if err != nil {
		return fileState{}, fileError(name, err)
	}
	return st, nil
}

func readAt(dir *os.File, base string, limit int64) (fileState, error) {
	f, stat, err := openRegular(dir, base)
	if err != nil {
		return fileState{}, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return fileState{}, err
	}
	if int64(len(content)) > limit {
		return fileState{}, fmt.Errorf("file is larger than the limit of %d bytes", limit)
	}
	xattrs, err := readXAttrs(f)
	if err != nil {
		return fileState{}, err
	}
	return fileState{Content: content, Mode: stat.Mode & 0o7777, UID: stat.Uid, GID: stat.Gid, ModTime: stat.Mtim.Nano(), XAttrs: xattrs}, nil
}

// openRegular opens a regular file for reading; a link is none.
func openRegular(dir *os.File, base string) (*os.File, unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := unix.Openat(int(dir.Fd()), base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, st, errors.New("is a symbolic link, not a regular file")
	}
	if err != nil {
		return nil, st, err
	}
	f := os.NewFile(uintptr(fd), base)
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, st, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		f.Close()
		return nil, st, errors.New("is not a regular file")
	}
	return f, st, nil
}

// replace makes a file what st says, whole: a temporary file beside it with
// everything, synced, renamed over it, the folder synced, read back. The
// modification time is set where exact is.
func (w *hostWriter) replace(name string, st fileState, exact bool) error {
	dir, base, err := w.folder(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := replaceAt(dir, base, st, exact); err != nil {
		return fileError(name, err)
	}
	got, err := readAt(dir, base, int64(len(st.Content)))
	if err != nil {
		return fmt.Errorf("reading back: %w", fileError(name, err))
	}
	if !bytes.Equal(got.Content, st.Content) || got.Mode != st.Mode || got.UID != st.UID || got.GID != st.GID || !sameXAttrs(got.XAttrs, st.XAttrs) {
		return fmt.Errorf("%s: is not what was written there", name)
	}
	return nil
}

func replaceAt(dir *os.File, base string, st fileState, exact bool) error {
	temp := tempName(base)
	if err := removeAt(dir, temp); err != nil {
		return err
	}
	fd, err := unix.Openat(int(dir.Fd()), temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), temp)
	err = fillFile(f, st)
	if err == nil && exact {
		times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(st.ModTime)}
		err = unix.UtimesNanoAt(int(dir.Fd()), temp, times, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = unix.Renameat(int(dir.Fd()), temp, int(dir.Fd()), base)
	}
	if err != nil {
		_ = unix.Unlinkat(int(dir.Fd()), temp, 0)
		return err
	}
	return dir.Sync()
}

// fillFile writes everything but the name. The owner comes first: a change of
// it clears mode bits and capabilities.
func fillFile(f *os.File, st fileState) error {
	if _, err := f.Write(st.Content); err != nil {
		return err
	}
	fd := int(f.Fd())
	if err := unix.Fchown(fd, int(st.UID), int(st.GID)); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, st.Mode); err != nil {
		return err
	}
	return writeXAttrs(f, st.XAttrs)
}

func tempName(base string) string { return "." + base + tempSuffix }

// removeAt removes a file that may not be there.
func removeAt(dir *os.File, base string) error {
	if err := unix.Unlinkat(int(dir.Fd()), base, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// removeTemp removes what a killed run may have left beside a file.
func (w *hostWriter) removeTemp(name string) error {
	dir, base, err := w.folder(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	return removeAt(dir, tempName(base))
}

// setMode changes a file's permissions.
func (w *hostWriter) setMode(name string, mode uint32) error {
	dir, base, err := w.folder(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	f, _, err := openRegular(dir, base)
	if err != nil {
		return fileError(name, err)
	}
	defer f.Close()
	err = unix.Fchmod(int(f.Fd()), mode)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return fileError(name, err)
	}
	return nil
}

// rename renames a file within its folder, never over another one.
func (w *hostWriter) rename(from, to string) error {
	dir, base, err := w.folder(from)
	if err != nil {
		return err
	}
	defer dir.Close()
	err = unix.Renameat2(int(dir.Fd()), base, int(dir.Fd()), path.Base(to), unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// The file system cannot promise it; no other instance runs.
		var st unix.Stat_t
		if err = unix.Fstatat(int(dir.Fd()), path.Base(to), &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
			err = unix.EEXIST
		} else if errors.Is(err, unix.ENOENT) {
			err = unix.Renameat(int(dir.Fd()), base, int(dir.Fd()), path.Base(to))
		}
	}
	if err == nil {
		err = dir.Sync()
	}
	if err != nil {
		return fileError(from, err)
	}
	return nil
}

// touchFolder sets a folder's modification time to now.
func (w *hostWriter) touchFolder(name string) error {
	dir, err := w.openFolder(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	now := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_NOW}}
	if err := unix.UtimesNanoAt(int(dir.Fd()), ".", now, 0); err != nil {
		return fileError(name, err)
	}
	return nil
}

// contentBound are attributes that the kernel makes from a file's content or
// keeps for itself: they are not carried over.
func contentBound(name string) bool {
	return name == "security.ima" || name == "security.evm" || strings.HasPrefix(name, "system.") && name != "system.posix_acl_access"
}

// maxXAttrs bounds the list and each value of extended attributes; both limits
// are the kernel's own.
const maxXAttrs = 64 << 10

func readXAttrs(f *os.File) (map[string][]byte, error) {
	buf := make([]byte, maxXAttrs)
	n, err := unix.Flistxattr(int(f.Fd()), buf)
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing extended attributes: %w", err)
	}
	out := map[string][]byte{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00") {
		if name == "" || contentBound(name) {
			continue
		}
		value := make([]byte, maxXAttrs)
		n, err := unix.Fgetxattr(int(f.Fd()), name, value)
		if err != nil {
			return nil, fmt.Errorf("reading extended attribute %s: %w", name, err)
		}
		out[name] = value[:n]
	}
	return out, nil
}

// writeXAttrs gives a new file exactly these attributes. One that it has
// already, such as the label that its folder hands down, is not set again.
func writeXAttrs(f *os.File, want map[string][]byte) error {
	have, err := readXAttrs(f)
	if err != nil {
		return err
	}
	for name := range have {
		if _, ok := want[name]; ok {
			continue
		}
		if err := unix.Fremovexattr(int(f.Fd()), name); err != nil {
			return fmt.Errorf("removing extended attribute %s: %w", name, err)
		}
	}
	for name, value := range want {
		if old, ok := have[name]; ok && bytes.Equal(old, value) {
			continue
		}
		if err := unix.Fsetxattr(int(f.Fd()), name, value, 0); err != nil {
			return fmt.Errorf("setting extended attribute %s: %w", name, err)
		}
	}
	return nil
}

func sameXAttrs(a, b map[string][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for name, value := range a {
		if other, ok := b[name]; !ok || !bytes.Equal(other, value) {
			return false
		}
	}
	return true
}
