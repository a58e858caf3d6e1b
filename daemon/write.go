package daemon

import (
	"fmt"
	"os"
	"path"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"
)

// writeFile replaces a file below the root whole: a temporary file beside it,
// synced, renamed over it, the folder synced. Links in the folders above are
// followed inside the root; one at the file itself is replaced, not followed.
func writeFile(rootDir, name string, data []byte, perm os.FileMode) error {
	root, err := os.OpenFile(rootDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("writing %s: opening root: %w", name, err)
	}
	defer root.Close()
	handle, err := pathrs.MkdirAllHandle(root, path.Dir(name), 0o755)
	if err != nil {
		return fmt.Errorf("writing %s: making its folder: %w", name, err)
	}
	defer handle.Close()
	dir, err := pathrs.Reopen(handle, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err != nil {
		return fmt.Errorf("writing %s: opening its folder: %w", name, err)
	}
	defer dir.Close()
	if err := replaceAt(dir, path.Base(name), data, perm); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

func replaceAt(dir *os.File, base string, data []byte, perm os.FileMode) error {
	temp := fmt.Sprintf(".%s.%d.tmp", base, os.Getpid())
	fd, err := unix.Openat(int(dir.Fd()), temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(perm.Perm()))
	if err != nil {
		return fmt.Errorf("creating %s: %w", temp, err)
	}
	f := os.NewFile(uintptr(fd), temp)
	err = func() error {
		defer f.Close()
		if _, err := f.Write(data); err != nil {
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
