package rpmdb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The format is that of sqlite.org/fileformat2.html.
const (
	magic          = "SQLite format 3\x00"
	fileHeaderSize = 100
	minUsable      = 480
	encodingUTF8   = 1

	interiorTable = 5
	leafTable     = 13
	maxDepth      = 20
)

// A file is a SQLite database file.
type file struct {
	db       io.ReaderAt
	pageSize int
	// usable is the part of a page that holds data.
	usable int
	// pages is the number of pages; the first has number 1.
	pages uint32
	// seen marks the pages that were read. No page has two uses, so to read
	// one twice is an error, which bounds the time and ends every loop.
	seen []bool
}

// openFile reads the file's header.
func openFile(db io.ReaderAt, size int64) (*file, error) {
	var h [fileHeaderSize]byte
	n, err := io.NewSectionReader(db, 0, size).ReadAt(h[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if n < len(magic) || string(h[:len(magic)]) != magic {
		return nil, ErrNotDatabase
	}
	if n < len(h) {
		return nil, errors.New("malformed: the header ends early")
	}
	f := &file{db: db, pageSize: int(binary.BigEndian.Uint16(h[16:]))}
	if f.pageSize == 1 {
		f.pageSize = 1 << 16
	}
	f.usable = f.pageSize - int(h[20])
	readVersion, encoding := h[19], binary.BigEndian.Uint32(h[56:])
	switch {
	case f.pageSize < 512 || f.pageSize&(f.pageSize-1) != 0 || f.usable < minUsable:
		return nil, fmt.Errorf("malformed: pages of %d bytes with %d reserved", f.pageSize, h[20])
	case readVersion != 1 && readVersion != 2 || h[21] != 64 || h[22] != 32 || h[23] != 32:
		return nil, errors.New("malformed: header of an unknown version")
	case encoding != encodingUTF8:
		return nil, fmt.Errorf("text encoding %d is not read", encoding)
	}
	inFile := size / int64(f.pageSize)
	f.pages = uint32(inFile) //nolint:gosec // MaxSize bounds it
	// The number in the header counts where the change counter says that it
	// was written with the last change.
	if inHeader := binary.BigEndian.Uint32(h[28:]); inHeader != 0 && string(h[24:28]) == string(h[92:96]) {
		if int64(inHeader) > inFile {
			return nil, fmt.Errorf("malformed: %d of %d pages", inFile, inHeader)
		}
		f.pages = inHeader
	}
	f.seen = make([]bool, f.pages+1)
	return f, nil
}

// page reads a page, for the first and only time, into a buffer.
func (f *file) page(number uint32, b []byte) error {
	if number < 1 || number > f.pages || f.seen[number] {
		return fmt.Errorf("malformed: page %d of %d does not exist or is used twice", number, f.pages)
	}
	f.seen[number] = true
	n, err := f.db.ReadAt(b, int64(number-1)*int64(f.pageSize))
	if n == len(b) {
		return nil
	}
	return fmt.Errorf("page %d: %w", number, err)
}

// A scan walks one table.
type scan struct {
	*file
	limit int
	row   func(number int64, record []byte) error
	// last is the number of the row before; numbers ascend.
	last   int64
	rows   int
	record []byte
}

// scan calls row for every row of the table whose root page is given, in
// order. The record is only valid during the call. One longer than limit is an
// error.
func (f *file) scan(root uint32, limit int, row func(number int64, record []byte) error) error {
	s := &scan{file: f, limit: limit, row: row}
	return s.tree(root, 0)
}

// tree reads a page and what is below it.
func (s *scan) tree(number uint32, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("malformed: a tree deeper than %d", maxDepth)
	}
	b := make([]byte, s.pageSize)
	if err := s.page(number, b); err != nil {
		return err
	}
	b = b[:s.usable]
	start := 0
	if number == 1 {
		start = fileHeaderSize
	}
	kind, cells, pointers := b[start], int(binary.BigEndian.Uint16(b[start+3:])), start+8
	if kind == interiorTable {
		pointers += 4
	}
	content := pointers + 2*cells
	switch {
	case kind != interiorTable && kind != leafTable:
		return fmt.Errorf("malformed: page %d of type %d in a table", number, kind)
	case content > len(b) || cells == 0 && depth > 0:
		return fmt.Errorf("malformed: page %d with %d cells", number, cells)
	}
	for i := range cells {
		at := int(binary.BigEndian.Uint16(b[pointers+2*i:]))
		if at < content || at > len(b)-4 {
			return fmt.Errorf("malformed: page %d with a cell at %d", number, at)
		}
		var err error
		if kind == interiorTable {
			err = s.tree(binary.BigEndian.Uint32(b[at:]), depth+1)
		} else {
			err = s.leaf(number, b[at:])
		}
		if err != nil {
			return err
		}
	}
	if kind == interiorTable {
		return s.tree(binary.BigEndian.Uint32(b[start+8:]), depth+1)
	}
	return nil
}

// leaf reads a cell with a row: the record's size, the row's number, the
// record and, where it does not fit, the first of further pages.
func (s *scan) leaf(number uint32, b []byte) error {
	size, n := varint(b)
	row, m := varint(b[n:])
	b = b[n+m:]
	if n == 0 || m == 0 || size > uint64(s.limit) { //nolint:gosec // the limit is not negative
		return fmt.Errorf("malformed: page %d with a row of %d bytes, over the limit of %d", number, size, s.limit)
	}
	rowNumber := int64(row) //nolint:gosec // stored as two's complement
	if s.rows++; s.rows > 1 && rowNumber <= s.last {
		return fmt.Errorf("malformed: page %d with row %d behind row %d", number, rowNumber, s.last)
	}
	s.last = rowNumber
	total := int(size) //nolint:gosec // no larger than the limit
	local := s.local(total)
	next := local
	if local < total {
		next += 4
	}
	if next > len(b) {
		return fmt.Errorf("malformed: page %d with a row that ends early", number)
	}
	s.record = append(s.record[:0], b[:local]...)
	if local < total {
		if err := s.overflow(binary.BigEndian.Uint32(b[local:]), total); err != nil {
			return err
		}
	}
	return s.row(rowNumber, s.record)
}

// local is how much of a record of so many bytes stands in the leaf.
func (f *file) local(total int) int {
	most := f.usable - 35
	if total <= most {
		return total
	}
	least := (f.usable-12)*32/255 - 23
	if k := least + (total-least)%(f.usable-4); k <= most {
		return k
	}
	return least
}

// overflow reads the rest of a record from a chain of pages, each with the
// number of the next one in front.
func (s *scan) overflow(next uint32, total int) error {
	b := make([]byte, s.pageSize)
	for len(s.record) < total {
		if err := s.page(next, b); err != nil {
			return err
		}
		next = binary.BigEndian.Uint32(b)
		s.record = append(s.record, b[4:min(s.usable, 4+total-len(s.record))]...)
	}
	return nil
}

// varint reads SQLite's variable-length integer: big-endian, seven bits a
// byte, eight in the ninth. n is 0 where it ends early.
func varint(b []byte) (v uint64, n int) {
	for n < len(b) {
		c := b[n]
		n++
		if n == 9 {
			return v<<8 | uint64(c), n
		}
		v = v<<7 | uint64(c&0x7f)
		if c < 0x80 {
			return v, n
		}
	}
	return 0, 0
}
