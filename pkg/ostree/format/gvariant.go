package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Bounds on GVariant data. They are far above anything that libostree or
// rpm-ostree write.
const (
	// MaxObjectSize is the largest metadata object, in bytes, that is read:
	// libostree's own limit (OSTREE_MAX_METADATA_SIZE).
	MaxObjectSize = 128 << 20

	maxTypeLength = 256
	maxDepth      = 32
	// maxElements bounds what is held of one array; validation itself holds
	// nothing.
	maxElements = 1 << 20
	// maxWork bounds the time that validation takes: a few hundred
	// milliseconds. The largest real commits need a hundredth of it.
	maxWork = 1 << 24
)

// ErrMalformed is wrapped by the errors about bytes that are not in the
// expected form.
var ErrMalformed = errors.New("malformed data")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// A value is a serialized GVariant and its type string. The format is GLib's
// "GVariant Specification" (little-endian).
type value struct {
	typ string
	b   []byte
}

// typeEnd returns the length of the first complete type in s.
func typeEnd(s string, depth int) (int, error) {
	if depth > maxDepth {
		return 0, malformed("type nested deeper than %d", maxDepth)
	}
	if s == "" {
		return 0, malformed("type string ends early")
	}
	switch s[0] {
	case 'b', 'y', 'n', 'q', 'i', 'u', 'h', 'x', 't', 'd', 's', 'o', 'g', 'v':
		return 1, nil
	case 'a', 'm':
		n, err := typeEnd(s[1:], depth+1)
		return n + 1, err
	case '(', '{':
		closing := byte(')')
		if s[0] == '{' {
			closing = '}'
		}
		i, members := 1, 0
		for {
			if i >= len(s) {
				return 0, malformed("type string ends early")
			}
			if s[i] == closing {
				break
			}
			n, err := typeEnd(s[i:], depth+1)
			if err != nil {
				return 0, err
			}
			i += n
			members++
		}
		if closing == '}' && members != 2 {
			return 0, malformed("dictionary entry with %d members", members)
		}
		return i + 1, nil
	default:
		return 0, malformed("unknown type character %q", s[0])
	}
}

// checkType checks that s is one complete type.
func checkType(s string) error {
	if len(s) > maxTypeLength {
		return malformed("type string longer than %d", maxTypeLength)
	}
	n, err := typeEnd(s, 0)
	if err != nil {
		return err
	}
	if n != len(s) {
		return malformed("type string holds more than one type")
	}
	return nil
}

// members splits the inner types of a checked tuple or dictionary entry.
func members(typ string) []string {
	var out []string
	for s := typ[1 : len(typ)-1]; s != ""; {
		n, err := typeEnd(s, 0)
		if err != nil {
			return out // not reached: typ was checked
		}
		out = append(out, s[:n])
		s = s[n:]
	}
	return out
}

// layout returns the alignment of a checked type and its size, 0 where that
// varies.
func layout(typ string) (alignment, size int) {
	switch typ[0] {
	case 'b', 'y':
		return 1, 1
	case 'n', 'q':
		return 2, 2
	case 'i', 'u', 'h':
		return 4, 4
	case 'x', 't', 'd':
		return 8, 8
	case 's', 'o', 'g':
		return 1, 0
	case 'v':
		return 8, 0
	case 'a', 'm':
		alignment, _ = layout(typ[1:])
		return alignment, 0
	}
	alignment = 1
	fixed := true
	for _, m := range members(typ) {
		a, s := layout(m)
		alignment = max(alignment, a)
		if s == 0 {
			fixed = false
		}
		size = align(size, a) + s
	}
	if !fixed {
		return alignment, 0
	}
	// The unit type takes one byte.
	return alignment, max(align(size, alignment), 1)
}

func align(n, a int) int { return (n + a - 1) / a * a }

// offsetSize is the size of the framing offsets of a container of n bytes.
func offsetSize(n int) int {
	switch {
	case n == 0:
		return 0
	case n <= 0xff:
		return 1
	case n <= 0xffff:
		return 2
	case uint64(n) <= 0xffffffff:
		return 4
	default:
		return 8
	}
}

// offset reads the framing offset at b[at:] of the given size.
func offset(b []byte, at, size int) (int, error) {
	if at < 0 || at+size > len(b) {
		return 0, malformed("framing offset outside the data")
	}
	var v uint64
	for i := size - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[at+i])
	}
	if v > uint64(len(b)) {
		return 0, malformed("framing offset %d beyond %d bytes", v, len(b))
	}
	return int(v), nil
}

func checkPadding(b []byte, from, to int) error {
	for _, c := range b[from:to] {
		if c != 0 {
			return malformed("padding that is not zero")
		}
	}
	return nil
}

// each calls f for every element of an array.
func (v value) each(f func(elem value) error) error {
	elem := v.typ[1:]
	alignment, size := layout(elem)
	b := v.b
	if size > 0 {
		if len(b)%size != 0 {
			return malformed("array of %s has %d bytes", elem, len(b))
		}
		for i := 0; i < len(b); i += size {
			if err := f(value{elem, b[i : i+size]}); err != nil {
				return err
			}
		}
		return nil
	}
	if len(b) == 0 {
		return nil
	}
	osz := offsetSize(len(b))
	table, err := offset(b, len(b)-osz, osz)
	if err != nil {
		return err
	}
	if table > len(b)-osz || (len(b)-table)%osz != 0 {
		return malformed("array of %s: bad offset table", elem)
	}
	pos := 0
	for at := table; at < len(b); at += osz {
		end, err := offset(b, at, osz)
		if err != nil {
			return err
		}
		start := align(pos, alignment)
		if end < start || end > table {
			// An empty element may end before its own alignment only if it
			// starts there, so this is never normal form.
			return malformed("array of %s: offsets out of order", elem)
		}
		if err := checkPadding(b, pos, start); err != nil {
			return err
		}
		if err := f(value{elem, b[start:end]}); err != nil {
			return err
		}
		pos = end
	}
	if pos != table {
		return malformed("array of %s: unused bytes", elem)
	}
	return nil
}

// fields splits a tuple or dictionary entry.
func (v value) fields() ([]value, error) {
	types := members(v.typ)
	if len(types) == 0 {
		if len(v.b) != 1 || v.b[0] != 0 {
			return nil, malformed("unit type with %d bytes", len(v.b))
		}
		return nil, nil
	}
	alignment, total := layout(v.typ)
	if total > 0 && len(v.b) != total {
		return nil, malformed("%s has %d bytes, want %d", v.typ, len(v.b), total)
	}
	osz := 0
	if total == 0 {
		osz = offsetSize(len(v.b))
	}
	out := make([]value, 0, len(types))
	pos, tail := 0, len(v.b)
	for i, t := range types {
		a, size := layout(t)
		start := align(pos, a)
		var end int
		switch {
		case size > 0:
			end = start + size
		case i == len(types)-1:
			end = tail
		default:
			tail -= osz
			var err error
			if end, err = offset(v.b, tail, osz); err != nil {
				return nil, err
			}
		}
		if start > end || end > tail || start > len(v.b) {
			return nil, malformed("%s: member %d outside the data", v.typ, i)
		}
		if err := checkPadding(v.b, pos, start); err != nil {
			return nil, err
		}
		out = append(out, value{t, v.b[start:end]})
		pos = end
	}
	if total > 0 {
		if err := checkPadding(v.b, pos, len(v.b)); err != nil {
			return nil, err
		}
		pos = align(pos, alignment)
	}
	if pos != tail {
		return nil, malformed("%s: unused bytes", v.typ)
	}
	return out, nil
}

// unbox returns the value inside a variant.
func (v value) unbox() (value, error) {
	for i := len(v.b) - 1; i >= 0; i-- {
		// The last NUL stands between the value and its type.
		if v.b[i] != 0 {
			if len(v.b)-i > maxTypeLength {
				return value{}, malformed("variant without a type")
			}
			continue
		}
		typ := string(v.b[i+1:])
		if err := checkType(typ); err != nil {
			return value{}, err
		}
		return value{typ, v.b[:i]}, nil
	}
	return value{}, malformed("variant without a type")
}

// text returns the content of a string.
func (v value) text() (string, error) {
	n := len(v.b) - 1
	if n < 0 || v.b[n] != 0 {
		return "", malformed("string without its end byte")
	}
	for _, c := range v.b[:n] {
		if c == 0 {
			return "", malformed("string with a NUL inside")
		}
	}
	if !utf8.Valid(v.b[:n]) {
		return "", malformed("string that is not UTF-8")
	}
	return string(v.b[:n]), nil
}

// texts returns the strings of an array of strings.
func (v value) texts() ([]string, error) {
	out := []string{}
	err := v.each(func(e value) error {
		if len(out) >= maxElements {
			return malformed("array of more than %d strings", maxElements)
		}
		s, err := e.text()
		out = append(out, s)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Integers of plain GVariant data are little-endian; the ones that libostree
// itself puts into objects are big-endian on every machine.
func (v value) uint32LE() uint32 { return binary.LittleEndian.Uint32(v.b) }
func (v value) uint64LE() uint64 { return binary.LittleEndian.Uint64(v.b) }
func (v value) uint32BE() uint32 { return binary.BigEndian.Uint32(v.b) }
func (v value) uint64BE() uint64 { return binary.BigEndian.Uint64(v.b) }
