package sysroot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// immutableFlag is FS_IMMUTABLE_FL of linux/fs.h.
const immutableFlag = 0x10

func setXattrs(name string, xattrs map[string]string) error {
	for _, k := range sortedKeys(xattrs) {
		if err := unix.Lsetxattr(name, k, []byte(xattrs[k]), 0); err != nil {
			return fmt.Errorf("setting %s on %s: %w", k, name, err)
		}
	}
	return nil
}

// Remove deletes dir and all sysroots in it. Deployment folders are immutable,
// which makes os.RemoveAll fail even for root.
func Remove(dir string) error {
	return errors.Join(Unlock(dir), os.RemoveAll(dir))
}

// Unlock makes the deployment folders anywhere below dir mutable, as chattr -i
// does, so that they can be changed or removed.
func Unlock(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		case d.Name() == "objects":
			return fs.SkipDir
		case filepath.Base(filepath.Dir(path)) != "deploy":
			return nil
		}
		if err := clearImmutable(path); err != nil {
			return err
		}
		// A stateroot is a child of "deploy" too and holds deployments; a
		// deployment holds none.
		if _, err := os.Stat(filepath.Join(path, "deploy")); err == nil {
			return nil
		}
		return fs.SkipDir
	})
}

func clearImmutable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil // a file system without such flags
	}
	if err != nil {
		return fmt.Errorf("reading the flags of %s: %w", path, err)
	}
	if flags&immutableFlag == 0 {
		return nil
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags&^immutableFlag); err != nil {
		return fmt.Errorf("making %s mutable: %w", path, err)
	}
	return nil
}
