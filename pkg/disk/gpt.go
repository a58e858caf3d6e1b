package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"unicode/utf16"
)

// What the kernel takes too: its entries have just this size.
const (
	entrySize  = 128
	maxEntries = 1024
	headerSize = 92
	signature  = "EFI PART"
)

// ErrNoTable is wrapped by errors about a disk that has no GUID partition table
// at either sector size.
var ErrNoTable = errors.New("no GUID partition table (GPT)")

// ErrDamaged is wrapped by errors about a table that is there, but is not whole
// or contradicts itself.
var ErrDamaged = errors.New("damaged partition table")

// ErrTruncated is wrapped by errors about a disk that ends before its table
// says. Such an error also matches [ErrDamaged].
var ErrTruncated = fmt.Errorf("%w: the image is cut short", ErrDamaged)

// A Table is a GUID partition table.
type Table struct {
	// SectorSize is the disk's logical sector size in bytes, 512 or 4096: the
	// one at which the table was found.
	SectorSize int
	// GUID is the disk's own, in lower case.
	GUID string
	// Partitions are those in use, in the order of their numbers.
	Partitions []Partition
	// Spare says how many bytes follow the last sector that the table knows
	// of: not 0 where an image was grown, or was copied to a larger disk.
	Spare int64
}

// A Partition is an entry of a [Table] that is in use.
type Partition struct {
	// Number counts from 1, as in the device's name.
	Number int
	// TypeGUID and GUID are in lower case.
	TypeGUID, GUID string
	// Name is the partition's label, not that of the file system on it.
	Name string
	// Start and Size are in bytes.
	Start, Size int64
}

// ReadTable reads the table of a disk of size bytes and checks it as the kernel
// does: both headers, the checksums, that all partitions lie on the disk and
// that none overlaps another. An error wraps [ErrNoTable], [ErrDamaged] or
// [ErrTruncated], or is one of reading.
func ReadTable(r io.ReaderAt, size int64) (*Table, error) {
	for _, sector := range []int64{512, 4096} {
		ok, err := hasMagic(r, sector, signature)
		if err != nil {
			return nil, fmt.Errorf("reading partition table: %w", err)
		}
		if !ok {
			continue
		}
		t, err := readTable(r, sector, size)
		if err != nil {
			return nil, fmt.Errorf("reading partition table with sectors of %d bytes: %w", sector, err)
		}
		return t, nil
	}
	return nil, fmt.Errorf("reading partition table: %w", ErrNoTable)
}

// A header is one of the two headers of a table; positions are in sectors.
type header struct {
	own, other, first, last, entries uint64
	guid                             string
	count, entriesSum                uint32
}

func readTable(r io.ReaderAt, sector, size int64) (*Table, error) {
	sectors := uint64(size / sector) //nolint:gosec // a size is not negative
	primary, err := readHeader(r, sector, 1)
	if err != nil {
		return nil, fmt.Errorf("primary header: %w", err)
	}
	if primary.other < primary.last || primary.last < primary.first {
		return nil, fmt.Errorf("primary header: %w: its parts are out of order", ErrDamaged)
	}
	if primary.other >= sectors {
		return nil, fmt.Errorf("%w: the table needs %d sectors, there are %d: copy or download it again", ErrTruncated, primary.other+1, sectors)
	}
	backup, err := readHeader(r, sector, primary.other)
	if err != nil {
		return nil, fmt.Errorf("backup header: %w", err)
	}
	if backup.other != 1 || backup.guid != primary.guid || backup.entriesSum != primary.entriesSum || backup.count != primary.count ||
		backup.first != primary.first || backup.last != primary.last {
		return nil, fmt.Errorf("%w: the two headers contradict each other", ErrDamaged)
	}
	for _, h := range []header{backup, primary} {
		if h.entries > sectors {
			return nil, fmt.Errorf("%w: the entries are not on the disk", ErrDamaged)
		}
	}
	t := &Table{SectorSize: int(sector), GUID: primary.guid, Spare: int64(sectors-primary.other-1) * sector} //nolint:gosec // below size
	if t.Partitions, err = readEntries(r, sector, primary); err != nil {
		return nil, err
	}
	if _, err = readEntries(r, sector, backup); err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	return t, checkOverlap(t.Partitions)
}

func readHeader(r io.ReaderAt, sector int64, at uint64) (header, error) {
	b := make([]byte, headerSize)
	if err := readFull(r, b, int64(at)*sector); err != nil { //nolint:gosec // on the disk, by the caller
		return header{}, err
	}
	le := binary.LittleEndian
	if string(b[:8]) != signature {
		return header{}, fmt.Errorf("%w: there is none at sector %d", ErrDamaged, at)
	}
	// A longer header is allowed; nobody writes one, and the kernel takes it
	// only where the checksum covers it.
	if n := le.Uint32(b[12:]); n != headerSize {
		return header{}, fmt.Errorf("%w: it has %d bytes, want %d", ErrDamaged, n, headerSize)
	}
	sum := le.Uint32(b[16:])
	clear(b[16:20])
	if crc32.ChecksumIEEE(b) != sum {
		return header{}, fmt.Errorf("%w: its checksum is wrong", ErrDamaged)
	}
	h := header{
		own: le.Uint64(b[24:]), other: le.Uint64(b[32:]), first: le.Uint64(b[40:]), last: le.Uint64(b[48:]),
		guid: guid(b[56:72]), entries: le.Uint64(b[72:]), count: le.Uint32(b[80:]), entriesSum: le.Uint32(b[88:]),
	}
	switch n := le.Uint32(b[84:]); {
	case h.own != at:
		return header{}, fmt.Errorf("%w: it belongs to sector %d, not %d", ErrDamaged, h.own, at)
	case n != entrySize:
		return header{}, fmt.Errorf("%w: entries of %d bytes, want %d", ErrDamaged, n, entrySize)
	case h.count == 0 || h.count > maxEntries:
		return header{}, fmt.Errorf("%w: %d entries, want 1 to %d", ErrDamaged, h.count, maxEntries)
	}
	return h, nil
}

func readEntries(r io.ReaderAt, sector int64, h header) ([]Partition, error) {
	b := make([]byte, int(h.count)*entrySize)
	if err := readFull(r, b, int64(h.entries)*sector); err != nil { //nolint:gosec // on the disk, by the caller
		return nil, fmt.Errorf("entries: %w", err)
	}
	if crc32.ChecksumIEEE(b) != h.entriesSum {
		return nil, fmt.Errorf("%w: the checksum of the entries is wrong", ErrDamaged)
	}
	var list []Partition
	le := binary.LittleEndian
	for i := range int(h.count) {
		e := b[i*entrySize : (i+1)*entrySize]
		if !slices.ContainsFunc(e[:16], func(c byte) bool { return c != 0 }) {
			continue
		}
		start, end := le.Uint64(e[32:]), le.Uint64(e[40:])
		if start < h.first || end > h.last || end < start {
			return nil, fmt.Errorf("%w: partition %d (sectors %d to %d) is not within sectors %d to %d", ErrDamaged, i+1, start, end, h.first, h.last)
		}
		list = append(list, Partition{
			Number: i + 1, TypeGUID: guid(e[:16]), GUID: guid(e[16:32]), Name: name(e[56:entrySize]),
			Start: int64(start) * sector, Size: int64(end-start+1) * sector, //nolint:gosec // on the disk
		})
	}
	return list, nil
}

// checkOverlap refuses two partitions that share a sector.
func checkOverlap(list []Partition) error {
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b Partition) int { return int(min(1, max(-1, a.Start-b.Start))) })
	for i := 1; i < len(sorted); i++ {
		if a, b := sorted[i-1], sorted[i]; a.Start+a.Size > b.Start {
			return fmt.Errorf("%w: partitions %d and %d overlap", ErrDamaged, a.Number, b.Number)
		}
	}
	return nil
}

// readFull fills b. Where the disk ends it is cut short.
func readFull(r io.ReaderAt, b []byte, at int64) error {
	n, err := r.ReadAt(b, at)
	switch {
	case n == len(b):
		return nil
	case err == nil, errors.Is(err, io.EOF):
		return ErrTruncated
	}
	return err
}

// guid writes a GUID, whose first three fields are little-endian, as text.
func guid(b []byte) string {
	le := binary.LittleEndian
	return fmt.Sprintf("%08x-%04x-%04x-%x-%x", le.Uint32(b), le.Uint16(b[4:]), le.Uint16(b[6:]), b[8:10], b[10:16])
}

// name is UTF-16, up to the first zero.
func name(b []byte) string {
	var units []uint16
	for i := 0; i+1 < len(b); i += 2 {
		u := binary.LittleEndian.Uint16(b[i:])
		if u == 0 {
			break
		}
		units = append(units, u)
	}
	return string(utf16.Decode(units))
}
