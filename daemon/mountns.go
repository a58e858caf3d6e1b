package daemon

import (
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// physicalRoot is where a booted ostree system has the disk, mounted read-only.
const physicalRoot = "/sysroot"

// onOwnThread runs f on a thread that nothing else uses, and that ends with it:
// what f does to the thread's mount namespace is seen by f alone.
func onOwnThread[T any](f func() (T, error)) (T, error) {
	var (
		value T
		err   error
		done  = make(chan struct{})
	)
	go func() {
		defer close(done)
		// Never unlocked, so that the thread is not used again.
		runtime.LockOSThread()
		value, err = f()
	}()
	<-done
	return value, err
}

// makeWritable makes sure that a file's folder is on a mount that can be
// written to. Where it is not and lies below /sysroot, the thread gets a mount
// namespace of its own in which /sysroot, and nothing else, is remounted
// read-write: nobody else sees that. Where that is refused the error wraps
// EROFS.
func (w *hostWriter) makeWritable(name string) error {
	readOnly, err := w.readOnly(path.Dir(name))
	if err != nil || !readOnly {
		return err
	}
	if !onPhysicalRoot(name) {
		return fileError(name, unix.EROFS)
	}
	if w.private == nil {
		if err := w.unsharePhysicalRoot(); err != nil {
			return fmt.Errorf("%s: %w: remounting %s in a private mount namespace: %w", name, unix.EROFS, physicalRoot, err)
		}
		readOnly, err = w.readOnly(path.Dir(name))
	}
	if err == nil && readOnly {
		err = fileError(name, unix.EROFS)
	}
	return err
}

func onPhysicalRoot(name string) bool {
	return strings.HasPrefix(name+"/", "/ostree/") || strings.HasPrefix(name+"/", physicalRoot+"/")
}

func (w *hostWriter) readOnly(dir string) (bool, error) {
	f, err := w.openFolder(dir)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return false, fileError(dir, err)
	}
	return st.Flags&stReadOnly != 0, nil
}

// unsharePhysicalRoot must only be called on a thread of its own.
func (w *hostWriter) unsharePhysicalRoot() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	// What was opened before is on the mounts of the other namespace.
	root, err := openRoot(w.dir)
	if err != nil {
		return err
	}
	w.private = root
	sysroot, err := w.openFolder(physicalRoot)
	if err != nil {
		return err
	}
	defer sysroot.Close()
	return remountWritable(sysroot)
}

// remountWritable remounts the mount point that is open, with its other flags
// kept. It changes the mount, not the file system below it. The thread's working
// directory names the mount, so that no /proc is needed.
func remountWritable(dir *os.File) error {
	if err := unix.Fchdir(int(dir.Fd())); err != nil {
		return err
	}
	// Nothing done to it from here on reaches another namespace.
	err := unix.Mount("", ".", "", unix.MS_PRIVATE, "")
	if errors.Is(err, unix.EINVAL) {
		return errors.New("it is no mount point")
	}
	if err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return err
	}
	return unix.Mount("", ".", "", unix.MS_REMOUNT|unix.MS_BIND|mountFlags(int64(st.Flags)), "")
}

// Flags of statfs(2) that package unix lacks (include/linux/statfs.h).
const (
	stReadOnly    = 0x0001
	stNoSUID      = 0x0002
	stNoDev       = 0x0004
	stNoExec      = 0x0008
	stNoATime     = 0x0400
	stNoDirATime  = 0x0800
	stRelATime    = 0x1000
	stNoSymFollow = 0x2000
)

// mountFlags are the flags of a mount, as mount(2) wants them, but read-only.
func mountFlags(statfs int64) uintptr {
	var flags uintptr
	for _, f := range []struct {
		st int64
		ms uintptr
	}{
		{stNoSUID, unix.MS_NOSUID}, {stNoDev, unix.MS_NODEV}, {stNoExec, unix.MS_NOEXEC},
		{stNoATime, unix.MS_NOATIME}, {stNoDirATime, unix.MS_NODIRATIME}, {stRelATime, unix.MS_RELATIME},
		{stNoSymFollow, unix.MS_NOSYMFOLLOW},
	} {
		if statfs&f.st != 0 {
			flags |= f.ms
		}
	}
	return flags
}
