package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The types of file systems that are told apart, by the names that blkid and
// mount give them.
const (
	TypeExt4  = "ext4"
	TypeXFS   = "xfs"
	TypeBtrfs = "btrfs"
	TypeVFAT  = "vfat"
	TypeLUKS  = "crypto_LUKS"
)

// A Filesystem is what a superblock says. The zero Filesystem is none that is
// known.
type Filesystem struct {
	// Type is ext4 for all of ext2, ext3 and ext4.
	Type string
	// Label is what /dev/disk/by-label has, UUID what root=UUID= means: in
	// lower case, for vfat in its own short form.
	Label, UUID string
}

// ErrAmbivalent is wrapped by errors about a partition that has the superblocks
// of two file systems.
var ErrAmbivalent = errors.New("superblocks of two file systems")

// ReadFilesystem reads the superblock of the file system on a partition. What
// it does not know is the zero Filesystem.
func ReadFilesystem(r io.ReaderAt) (Filesystem, error) {
	var found Filesystem
	for _, read := range []func(io.ReaderAt) (Filesystem, error){readXFS, readExt4, readBtrfs, readVFAT, readLUKS} {
		fs, err := read(r)
		if err != nil {
			return Filesystem{}, fmt.Errorf("reading superblock: %w", err)
		}
		switch {
		case fs.Type == "":
		case found.Type != "":
			return Filesystem{}, fmt.Errorf("reading superblock: %w: %s and %s", ErrAmbivalent, found.Type, fs.Type)
		default:
			found = fs
		}
	}
	return found, nil
}

// A part is a piece of a superblock, all of it or none.
func part(r io.ReaderAt, at int64, n int) ([]byte, error) {
	b := make([]byte, n)
	got, err := r.ReadAt(b, at)
	switch {
	case got == n:
		return b, nil
	case err == nil, errors.Is(err, io.EOF):
		return nil, nil
	}
	return nil, err
}

// readXFS: all numbers of xfs_dsb are big-endian.
func readXFS(r io.ReaderAt) (Filesystem, error) {
	b, err := part(r, 0, 264)
	if b == nil || string(b[:4]) != "XFSB" {
		return Filesystem{}, err
	}
	return Filesystem{TypeXFS, text(b[108:120]), uuid(b[32:48])}, nil
}

func readExt4(r io.ReaderAt) (Filesystem, error) {
	b, err := part(r, 1024, 1024)
	if b == nil || binary.LittleEndian.Uint16(b[56:]) != 0xef53 {
		return Filesystem{}, err
	}
	return Filesystem{TypeExt4, text(b[120:136]), uuid(b[104:120])}, nil
}

func readBtrfs(r io.ReaderAt) (Filesystem, error) {
	b, err := part(r, 64<<10, 4096)
	if b == nil || string(b[64:72]) != "_BHRfS_M" {
		return Filesystem{}, err
	}
	return Filesystem{TypeBtrfs, text(b[299:555]), uuid(b[32:48])}, nil
}

// readVFAT takes the label of the boot sector, which mkfs and bootupd write the
// same as the one in the root folder.
func readVFAT(r io.ReaderAt) (Filesystem, error) {
	b, err := part(r, 0, 512)
	if b == nil || b[510] != 0x55 || b[511] != 0xaa {
		return Filesystem{}, err
	}
	at := 0
	switch {
	case string(b[82:87]) == "FAT32":
		at = 67
	case string(b[54:57]) == "FAT":
		at = 39
	default:
		return Filesystem{}, nil
	}
	label := strings.TrimRight(text(b[at+4:at+15]), " ")
	if label == "NO NAME" {
		label = ""
	}
	id := binary.LittleEndian.Uint32(b[at:])
	return Filesystem{TypeVFAT, label, fmt.Sprintf("%04x-%04x", id>>16, id&0xffff)}, nil
}

func readLUKS(r io.ReaderAt) (Filesystem, error) {
	b, err := part(r, 0, 208)
	if b == nil || string(b[:6]) != "LUKS\xba\xbe" {
		return Filesystem{}, err
	}
	fs := Filesystem{Type: TypeLUKS, UUID: text(b[168:208])}
	if binary.BigEndian.Uint16(b[6:]) == 2 {
		fs.Label = text(b[24:72])
	}
	return fs, nil
}

// text is what is before the first zero.
func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}

func uuid(b []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
