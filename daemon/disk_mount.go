package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/disk"
)

// maxLoopTries bounds the race for a free loop device with other programs.
const maxLoopTries = 16

// withMounted mounts the root and boot file systems of a disk image and has f
// read them, at a folder that no other thread of no other program sees mounted.
// All is read-only, down to the device; no program, device file or set-user-ID
// bit on it is of any effect. stale names those whose journal the node would
// replay first: what f read may not be what the node sees. An error says that f
// was not called.
func withMounted(image *os.File, root, boot filesystem, f func(dir string)) (stale []string, err error) {
	for _, fs := range []filesystem{root, boot} {
		if mountOptions(fs.Type) == nil {
			return nil, fmt.Errorf("mounting partition %d: a file system of type %q is not one of CoreOS", fs.Number, fs.Type)
		}
	}
	dir, err := os.MkdirTemp("", "oneboot-disk-")
	if err != nil {
		return nil, fmt.Errorf("making a folder to mount on: %w", err)
	}
	// Empty again once the thread's mounts are gone.
	defer os.Remove(dir)
	return onOwnThread(func() ([]string, error) {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return nil, fmt.Errorf("making a private mount namespace: %w: only root may", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
			return nil, fmt.Errorf("making the mount namespace private: %w", err)
		}
		return mountBoth(image, root, boot, dir, f)
	})
}

func mountBoth(image *os.File, root, boot filesystem, dir string, f func(dir string)) (stale []string, err error) {
	target, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", dir, err)
	}
	defer unix.Close(target)
	old, err := mountPartition(image, root, target)
	if err != nil {
		return nil, err
	}
	defer unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) //nolint:errcheck // the namespace ends with the thread
	if old {
		stale = append(stale, root.Label)
	}
	// The disk's own /boot may be a link to anywhere.
	bootTarget, err := unix.Open(filepath.Join(dir, "boot"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("mounting partition %d: the folder boot of the root file system: %w", boot.Number, err)
	}
	old, err = mountPartition(image, boot, bootTarget)
	// Held open, it would keep the root from being let go of.
	unix.Close(bootTarget)
	if err != nil {
		return nil, err
	}
	if old {
		stale = append(stale, boot.Label)
	}
	f(dir)
	return stale, nil
}

// mountOptions are those that a type needs; nil where it is not mounted at all.
func mountOptions(kind string) []string {
	switch kind {
	case disk.TypeXFS:
		// The same image may be mounted already.
		return []string{"nouuid"}
	case disk.TypeExt4:
		return []string{}
	}
	return nil
}

// withoutJournal are those of a mount that replays no journal.
func withoutJournal(kind string) []string {
	if kind == disk.TypeXFS {
		return append(mountOptions(kind), "norecovery")
	}
	return append(mountOptions(kind), "noload")
}

// mountPartition mounts one partition of an image on the folder that is open.
// The kernel refuses a file system with a journal to be replayed on a device
// that cannot be written to: then it is mounted without, and stale.
func mountPartition(image *os.File, fs filesystem, target int) (stale bool, err error) {
	loop, err := attachLoop(image, fs.Start, fs.Size)
	if err != nil {
		return false, fmt.Errorf("mounting partition %d: %w", fs.Number, err)
	}
	// The mount keeps it; without one it is gone.
	defer loop.Close()
	mount := func(options []string) error {
		return unix.Mount(loop.Name(), fmt.Sprintf("/proc/self/fd/%d", target), fs.Type,
			unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_NOATIME, strings.Join(options, ","))
	}
	err = mount(mountOptions(fs.Type))
	if errors.Is(err, unix.EROFS) {
		stale, err = true, mount(withoutJournal(fs.Type))
	}
	if err != nil {
		return false, fmt.Errorf("mounting partition %d as %s: %w: the kernel's log says why", fs.Number, fs.Type, err)
	}
	return stale, nil
}

// attachLoop makes a read-only loop device of a part of an image. It is let go
// of by the kernel with the last that uses it.
func attachLoop(image *os.File, start, size int64) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("opening /dev/loop-control: %w", bare(err))
	}
	defer control.Close()
	for range maxLoopTries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("finding a free loop device: %w", err)
		}
		loop, err := os.Open(fmt.Sprintf("/dev/loop%d", n))
		if err != nil {
			return nil, fmt.Errorf("opening /dev/loop%d: %w", n, bare(err))
		}
		config := unix.LoopConfig{Fd: uint32(image.Fd())} //nolint:gosec // a descriptor
		config.Info.Offset, config.Info.Sizelimit = uint64(start), uint64(size)
		config.Info.Flags = unix.LO_FLAGS_READ_ONLY | unix.LO_FLAGS_AUTOCLEAR
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		if err == nil {
			return loop, nil
		}
		loop.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("setting up /dev/loop%d: %w", n, err)
		}
	}
	return nil, errors.New("finding a free loop device: others take them all the time")
}
