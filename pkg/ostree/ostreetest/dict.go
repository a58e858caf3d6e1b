// Package ostreetest makes, for tests, the files that libostree keeps below
// /run: serialized GVariants of type a{sv}.
package ostreetest

import (
	"encoding/binary"
	"fmt"
)

// An Entry is a key and a value: a string, bool, uint32, []string, [2]uint64
// (type (tt)) or []Entry (type a{sv}).
type Entry struct {
	Key   string
	Value any
}

// EncodeDict serializes entries in their order. It panics on a value of
// another type.
func EncodeDict(entries []Entry) []byte {
	var b []byte
	var ends []int
	for _, e := range entries {
		b = pad(b, 8)
		b = append(b, encodeEntry(e)...)
		ends = append(ends, len(b))
	}
	return appendOffsets(b, ends)
}

func encodeEntry(e Entry) []byte {
	b := append([]byte(e.Key), 0)
	end := len(b)
	b = pad(b, 8)
	data, typ := encodeValue(e.Value)
	b = append(b, data...)
	b = append(b, 0)
	b = append(b, typ...)
	return appendOffsets(b, []int{end})
}

func encodeValue(v any) (data []byte, typ string) {
	switch v := v.(type) {
	case string:
		return append([]byte(v), 0), "s"
	case bool:
		if v {
			return []byte{1}, "b"
		}
		return []byte{0}, "b"
	case uint32:
		return binary.LittleEndian.AppendUint32(nil, v), "u"
	case [2]uint64:
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, v[0]), v[1]), "(tt)"
	case []string:
		var ends []int
		for _, s := range v {
			data = append(append(data, s...), 0)
			ends = append(ends, len(data))
		}
		return appendOffsets(data, ends), "as"
	case []Entry:
		return EncodeDict(v), "a{sv}"
	default:
		panic(fmt.Sprintf("cannot encode a %T", v))
	}
}

func pad(b []byte, n int) []byte {
	for len(b)%n != 0 {
		b = append(b, 0)
	}
	return b
}

// appendOffsets appends a table of framing offsets, whose width depends on
// the size that results.
func appendOffsets(b []byte, ends []int) []byte {
	if len(ends) == 0 {
		return b
	}
	size := 1
	for _, next := range []int{2, 4} {
		if len(b)+size*len(ends) > 1<<(8*size)-1 {
			size = next
		}
	}
	for _, end := range ends {
		var raw [8]byte
		binary.LittleEndian.PutUint64(raw[:], uint64(end))
		b = append(b, raw[:size]...)
	}
	return b
}
