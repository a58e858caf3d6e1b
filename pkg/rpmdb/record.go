package rpmdb

import (
	"errors"
	"fmt"
)

// A column is a value of a record: its serial type and bytes.
type column struct {
	kind uint64
	b    []byte
}

// parseRecord splits a record of just so many columns: the size of its header,
// the columns' types, their values.
func parseRecord(b []byte, columns int) ([]column, error) {
	size, n := varint(b)
	if n == 0 || size > uint64(len(b)) {
		return nil, errors.New("malformed: a record ends early")
	}
	types, values := b[n:max(size, uint64(n))], b[max(size, uint64(n)):] //nolint:gosec // n is at most 9
	var out []column
	for len(types) > 0 {
		kind, n := varint(types)
		length := valueSize(kind)
		if n == 0 || length > uint64(len(values)) || len(out) == columns {
			return nil, fmt.Errorf("malformed: a record without its %d columns", columns)
		}
		out = append(out, column{kind, values[:length]})
		types, values = types[n:], values[length:]
	}
	if len(out) != columns || len(values) > 0 {
		return nil, fmt.Errorf("malformed: a record without its %d columns", columns)
	}
	return out, nil
}

// valueSize is the number of bytes of a value of the serial type.
func valueSize(kind uint64) uint64 {
	switch {
	case kind <= 4:
		return kind
	case kind == 5:
		return 6
	case kind <= 7:
		return 8
	case kind <= 11:
		// 0, 1 and two kinds that no file has.
		return 0
	}
	return (kind - 12) / 2
}

// text is the value of a text, empty for another type.
func (c column) text() []byte {
	if c.kind >= 13 && c.kind%2 == 1 {
		return c.b
	}
	return nil
}

// blob is the value of a blob.
func (c column) blob() ([]byte, bool) {
	return c.b, c.kind >= 12 && c.kind%2 == 0
}

// integer is the value of an integer, 0 for another type.
func (c column) integer() int64 {
	switch {
	case c.kind == 9:
		return 1
	case c.kind == 0 || c.kind > 6:
		return 0
	}
	v := int64(int8(c.b[0])) //nolint:gosec // two's complement
	for _, b := range c.b[1:] {
		v = v<<8 | int64(b)
	}
	return v
}
