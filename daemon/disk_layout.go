package daemon

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/disk"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// A filesystem is a partition with what is on it.
type filesystem struct {
	disk.Partition
	disk.Filesystem
	// err: the superblock could not be read.
	err error
}

// A layout is what is known of a disk's partitions.
type layout struct {
	// err says why there is no table.
	err   error
	size  int64
	table *disk.Table
	list  []filesystem
	// journal is the check of that name.
	journal verdict.Check
}

func unknownLayout(err error) layout {
	return layout{err: err, journal: verdict.Check{Detail: err.Error()}}
}

// readLayout reads the table and the superblocks of a disk.
func readLayout(r io.ReaderAt, size int64) layout {
	table, err := disk.ReadTable(r, size)
	if err != nil {
		return unknownLayout(err)
	}
	l := layout{table: table, size: size}
	for _, p := range table.Partitions {
		fs, err := disk.ReadFilesystem(io.NewSectionReader(r, p.Start, p.Size))
		l.list = append(l.list, filesystem{Partition: p, Filesystem: fs, err: err})
	}
	return l
}

// The labels that CoreOS finds its file systems by on the first boot.
const (
	labelBoot = "boot"
	labelRoot = "root"
	labelEFI  = "EFI-SYSTEM"
)

// find returns the root and boot file systems, each the only one of its label.
func (l layout) find() (root, boot filesystem, err error) {
	if l.err != nil {
		return root, boot, l.err
	}
	if root, err = l.labelled(labelRoot); err == nil {
		boot, err = l.labelled(labelBoot)
	}
	return root, boot, err
}

func (l layout) labelled(label string) (filesystem, error) {
	var found []filesystem
	for _, fs := range l.list {
		if fs.Label == label {
			found = append(found, fs)
		}
	}
	switch len(found) {
	case 0:
		return filesystem{}, fmt.Errorf("no file system has the label %s", label)
	case 1:
		return found[0], nil
	}
	return filesystem{}, fmt.Errorf("partitions %d and %d both have the label %s", found[0].Number, found[1].Number, label)
}

// views are the partitions for the report.
func (l layout) views() []DiskPartitionView {
	out := []DiskPartitionView{}
	for _, fs := range l.list {
		out = append(out, DiskPartitionView{
			Number: fs.Number, Name: fs.Name, Bytes: fs.Size, Filesystem: fs.Type, Label: fs.Label, UUID: fs.UUID,
		})
	}
	return out
}

// mountedLayout reads the disk that a folder's file system is on. A root that is
// no part of a disk, or a caller who may not read it, leaves it unknown.
func mountedLayout(dir string) layout {
	f, start, err := mountedDisk(dir)
	if err != nil {
		return unknownLayout(fmt.Errorf("the disk that is mounted at %s is not read: %w: check the image file too", dir, err))
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return unknownLayout(fmt.Errorf("reading the size of %s: %w", f.Name(), bare(err)))
	}
	l := readLayout(f, size)
	if l.err == nil && !slices.ContainsFunc(l.list, func(fs filesystem) bool { return fs.Start == start && fs.Label == labelRoot }) {
		return unknownLayout(fmt.Errorf("what is mounted at %s is not the file system %s of %s", dir, labelRoot, f.Name()))
	}
	return l
}

// mountedDisk opens the disk or image file that holds what is mounted, by what
// sysfs says of the device, and says where on it that starts.
func mountedDisk(dir string) (f *os.File, start int64, err error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return nil, 0, err
	}
	device, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return nil, 0, errors.New("it is no block device")
	}
	if name, err := os.ReadFile(path.Join(device, "loop/backing_file")); err == nil {
		return openDisk(strings.TrimSuffix(string(name), "\n"), path.Join(device, "loop/offset"), 1)
	}
	if _, err := os.Stat(path.Join(device, "partition")); err != nil {
		return nil, 0, errors.New("it is no partition")
	}
	// Its device has another name only where somebody made it by hand.
	name := strings.ReplaceAll(path.Base(path.Dir(device)), "!", "/")
	// In sectors of 512 bytes, whatever the disk has.
	return openDisk(path.Join("/dev", name), path.Join(device, "start"), 512)
}

// openDisk opens a disk, and reads a number of units of bytes from a file of
// sysfs.
func openDisk(name, startFile string, unit int64) (*os.File, int64, error) {
	text, err := os.ReadFile(startFile)
	if err != nil {
		return nil, 0, err
	}
	start, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || start < 0 || start > math.MaxInt64/unit {
		return nil, 0, fmt.Errorf("reading %s: %.20q is no place on a disk", startFile, text)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("opening %s: %w", name, bare(err))
	}
	return f, start * unit, nil
}
