package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"
)

// stateDir holds what oneboot writes for itself: the record, the journal of an
// act and the lock.
const stateDir = "/var/lib/oneboot"

// lockPath is locked (flock) by the one instance that may write.
const lockPath = stateDir + "/lock"

// errBusy: another instance has the lock.
var errBusy = errors.New("another oneboot is at work on this host; nothing was done")

// makeStateDir makes the folder of oneboot's own files, durably.
func (w *hostWriter) makeStateDir() error {
	dir, err := w.openFolder(stateDir)
	if err == nil {
		return dir.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	handle, err := pathrs.MkdirAllHandle(w.root, stateDir, 0o755)
	if err != nil {
		return fileError(stateDir, err)
	}
	if err := handle.Close(); err != nil {
		return err
	}
	for name := stateDir; name != "/"; name = path.Dir(name) {
		parent, _, err := w.folder(name)
		if err == nil {
			err = parent.Sync()
			parent.Close()
		}
		if err != nil {
			return fileError(path.Dir(name), err)
		}
	}
	return nil
}

// lock takes the lock until the file is closed. The error is errBusy where
// another instance has it.
func (w *hostWriter) lock() (*os.File, error) {
	if err := w.makeStateDir(); err != nil {
		return nil, err
	}
	dir, base, err := w.folder(lockPath)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Openat(int(dir.Fd()), base, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fileError(lockPath, err)
	}
	f := os.NewFile(uintptr(fd), lockPath)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errBusy
		}
		return nil, fileError(lockPath, err)
	}
	return f, nil
}

// writeOwn replaces one of oneboot's own files whole. A link there is replaced,
// not followed; attributes are those that the folder hands down.
func (w *hostWriter) writeOwn(name string, data []byte, mode uint32) error {
	dir, base, err := w.folder(name)
	if err != nil {
		return fmt.Errorf("writing %w", err)
	}
	defer dir.Close()
	if err := replaceOwn(dir, base, data, mode); err != nil {
		return fmt.Errorf("writing %w", fileError(name, err))
	}
	return nil
}

func replaceOwn(dir *os.File, base string, data []byte, mode uint32) error {
	temp := tempName(base)
	if err := removeAt(dir, temp); err != nil {
		return err
	}
	fd, err := unix.Openat(int(dir.Fd()), temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), temp)
	err = func() error {
		defer f.Close()
		if _, err := f.Write(data); err != nil {
			return err
		}
		// Whatever the umask.
		if err := unix.Fchmod(fd, mode); err != nil {
			return err
		}
		return f.Sync()
	}()
	if err == nil {
		err = unix.Renameat(int(dir.Fd()), temp, int(dir.Fd()), base)
	}
	if err != nil {
		_ = unix.Unlinkat(int(dir.Fd()), temp, 0)
		return err
	}
	return dir.Sync()
}
