package rpmdb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// The format is that of a hash in Berkeley DB, versions 8 and 9 (src/dbinc/db_page.h
// of libdb): rpm's file Packages up to EL 8. A page begins with its own number at
// 8, the next one's at 16, the number of items or, on an overflow page, of bytes at
// 20 and 22, and its type at 25. A hash page has offsets of its items from 26 on,
// which are keys and values in turn.
const (
	hashMagic      = 0x061561
	hashMagicAt    = 12
	hashMetaSize   = 72
	hashPageHead   = 26
	offPageItem    = 12
	pageUnsorted   = 2 // before Berkeley DB 4.6
	pageOverflow   = 7
	pageHash       = 13
	itemInline     = 1
	itemOffPage    = 3
	minPage        = 512
	maxPage        = 64 << 10
	maxHashEntries = maxPage / 2
)

// A berkeley is such a file.
type berkeley struct {
	db       io.ReaderAt
	order    binary.ByteOrder
	pageSize int
	pages    uint32
	// seen marks the overflow pages that were read: none has two uses.
	seen []bool
}

// berkeleyOrder is the byte order of a file's head, nil where it is none.
func berkeleyOrder(head []byte) binary.ByteOrder {
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		if len(head) >= hashMagicAt+4 && order.Uint32(head[hashMagicAt:]) == hashMagic {
			return order
		}
	}
	return nil
}

func listBerkeley(db io.ReaderAt, size int64, order binary.ByteOrder) ([]verdict.Package, error) {
	head := make([]byte, hashMetaSize)
	if err := readAt(db, head, 0); err != nil {
		return nil, err
	}
	f := &berkeley{db: db, order: order}
	page, last := int64(order.Uint32(head[20:])), int64(order.Uint32(head[32:]))
	if page < minPage || page > maxPage || page&(page-1) != 0 || size%page != 0 || last >= size/page {
		return nil, fmt.Errorf("malformed: %d pages of %d bytes in %d bytes", last+1, page, size)
	}
	if head[24] != 0 {
		return nil, errors.New("an encrypted database")
	}
	f.pageSize, f.pages = int(page), uint32(last+1) //nolint:gosec // both are bounded by the size
	f.seen = make([]bool, f.pages)
	packages := []verdict.Package{}
	b := make([]byte, f.pageSize)
	for number := uint32(1); number < f.pages; number++ {
		if err := readAt(db, b, int64(number)*page); err != nil {
			return nil, err
		}
		if b[25] != pageHash && b[25] != pageUnsorted {
			continue
		}
		more, err := f.hashPage(b, len(packages))
		if err != nil {
			return nil, fmt.Errorf("page %d: %w", number, err)
		}
		packages = append(packages, more...)
	}
	return packages, nil
}

// hashPage reads the packages whose values a page has.
func (f *berkeley) hashPage(b []byte, had int) ([]verdict.Package, error) {
	entries := int(f.order.Uint16(b[20:]))
	if entries%2 != 0 || hashPageHead+2*entries > len(b) {
		return nil, fmt.Errorf("malformed: %d items", entries)
	}
	var packages []verdict.Package
	for i := 1; i < entries; i += 2 {
		header, err := f.value(b, i)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		if header == nil {
			continue
		}
		p, err := parseHeader(header)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		if had+len(packages) >= maxPackages {
			return nil, fmt.Errorf("more than %d packages", maxPackages)
		}
		if p.Name != publicKey {
			packages = append(packages, p)
		}
	}
	return packages, nil
}

// value is the header that an item is; nil for the highest number of a package,
// which rpm keeps under the number 0.
func (f *berkeley) value(b []byte, i int) ([]byte, error) {
	at := int(f.order.Uint16(b[hashPageHead+2*i:]))
	end := int(f.order.Uint16(b[hashPageHead+2*(i-1):]))
	if at < hashPageHead || at >= end || end > len(b) {
		return nil, fmt.Errorf("malformed: from %d to %d of %d bytes", at, end, len(b))
	}
	item := b[at:end]
	switch item[0] {
	case itemInline:
		if len(item) == 1+4 {
			return nil, nil
		}
		return item[1:], nil
	case itemOffPage:
		if len(item) < offPageItem {
			return nil, errors.New("malformed: it ends early")
		}
		return f.overflow(f.order.Uint32(item[4:]), f.order.Uint32(item[8:]))
	}
	return nil, fmt.Errorf("malformed: type %d", item[0])
}

// overflow reads a value that is on pages of its own.
func (f *berkeley) overflow(number, total uint32) ([]byte, error) {
	if total > maxHeaderSize {
		return nil, fmt.Errorf("a header of %d bytes, over the limit of %d", total, maxHeaderSize)
	}
	var value []byte
	b := make([]byte, f.pageSize)
	for uint32(len(value)) < total {
		if number == 0 || number >= f.pages || f.seen[number] {
			return nil, fmt.Errorf("malformed: its page %d is none, or of another use", number)
		}
		f.seen[number] = true
		if err := readAt(f.db, b, int64(number)*int64(f.pageSize)); err != nil {
			return nil, err
		}
		n := int(f.order.Uint16(b[22:]))
		if b[25] != pageOverflow || n == 0 || hashPageHead+n > len(b) {
			return nil, fmt.Errorf("malformed: page %d is of type %d, with %d bytes", number, b[25], n)
		}
		value = append(value, b[hashPageHead:hashPageHead+n]...)
		number = f.order.Uint32(b[16:])
	}
	if uint32(len(value)) != total || number != 0 {
		return nil, fmt.Errorf("malformed: %d bytes where %d are expected", len(value), total)
	}
	return value, nil
}

// readAt fills b.
func readAt(db io.ReaderAt, b []byte, offset int64) error {
	n, err := db.ReadAt(b, offset)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return errors.New("malformed: it ends early")
	}
	return err
}
