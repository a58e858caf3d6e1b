package format

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxFileHeader bounds the header of a content object, in bytes. Extended
// attributes are limited to 64 KiB each by Linux.
const MaxFileHeader = 1 << 20

// A FileHeader is what the checksum of a content object covers besides the
// content.
type FileHeader struct {
	// Mode holds the file type and the permissions, as st_mode does.
	UID, GID, Mode uint32
	// Target is a symbolic link's target, else empty.
	Target string
	Xattrs []Xattr
}

// An Xattr is an extended attribute.
type Xattr struct {
	Name  string
	Value []byte
}

// An ArchiveFileHeader is the header of a content object in an archive
// repository.
type ArchiveFileHeader struct {
	FileHeader
	// Size is that of the uncompressed content, in bytes.
	Size uint64
}

// ParseArchiveFileHeader decodes the GVariant (tuuuusa(ayay)) that follows
// the eight bytes of length and padding (OSTREE zlib file header).
func ParseArchiveFileHeader(b []byte) (*ArchiveFileHeader, error) {
	fs, err := parseObject("(tuuuusa(ayay))", b)
	if err != nil {
		return nil, err
	}
	h := &ArchiveFileHeader{Size: fs[0].uint64BE()}
	h.UID, h.GID, h.Mode = fs[1].uint32BE(), fs[2].uint32BE(), fs[3].uint32BE()
	if h.Target, err = fs[5].text(); err != nil {
		return nil, fmt.Errorf("symlink target: %w", err)
	}
	h.Xattrs, err = parseXattrs(fs[6])
	return h, err
}

// ParseUserMeta decodes the GVariant (uuua(ayay)) in the extended attribute
// user.ostreemeta of a content object in a repository of mode bare-user. A
// link's target is not in it.
func ParseUserMeta(b []byte) (*FileHeader, error) {
	fs, err := parseObject(dirMetaType, b)
	if err != nil {
		return nil, err
	}
	h := &FileHeader{UID: fs[0].uint32BE(), GID: fs[1].uint32BE(), Mode: fs[2].uint32BE()}
	h.Xattrs, err = parseXattrs(fs[3])
	return h, err
}

// parseXattrs decodes a(ayay).
func parseXattrs(v value) ([]Xattr, error) {
	var list []Xattr
	err := v.each(func(e value) error {
		fs, err := e.fields()
		if err != nil {
			return err
		}
		name, ok := bytes.CutSuffix(fs[0].b, []byte{0})
		if !ok || len(name) == 0 || bytes.IndexByte(name, 0) >= 0 || !utf8.Valid(name) {
			return malformed("name of an extended attribute")
		}
		if len(list) >= maxElements {
			return malformed("more than %d extended attributes", maxElements)
		}
		list = append(list, Xattr{string(name), append([]byte(nil), fs[1].b...)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Bytes returns what stands before the content where its checksum is taken:
// the length, padding, and the GVariant (uuuusa(ayay)) with the extended
// attributes sorted by name (variant_to_lenprefixed_buffer in libostree's
// ostree-core.c).
func (h FileHeader) Bytes() []byte {
	xattrs := slices.Clone(h.Xattrs)
	slices.SortFunc(xattrs, func(a, b Xattr) int { return strings.Compare(a.Name, b.Name) })
	var array []byte
	var ends []int
	for _, x := range xattrs {
		tuple := append([]byte(x.Name), 0)
		end := len(tuple)
		array = append(array, appendOffsets(append(tuple, x.Value...), end)...)
		ends = append(ends, len(array))
	}
	var b []byte
	// The fourth is reserved for a device number.
	for _, n := range []uint32{h.UID, h.GID, h.Mode, 0} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	b = append(append(b, h.Target...), 0)
	end := len(b)
	b = appendOffsets(append(b, appendOffsets(array, ends...)...), end)
	prefix := binary.BigEndian.AppendUint32(nil, uint32(len(b))) //nolint:gosec // xattrs are far smaller
	return append(append(prefix, 0, 0, 0, 0), b...)
}

// appendOffsets appends a container's framing offsets, whose width depends on
// the size that results.
func appendOffsets(b []byte, ends ...int) []byte {
	if len(ends) == 0 {
		return b
	}
	size := 1
	for offsetSize(len(b)+size*len(ends)) > size {
		size *= 2
	}
	for _, end := range ends {
		var raw [8]byte
		binary.LittleEndian.PutUint64(raw[:], uint64(end)) //nolint:gosec // a length
		b = append(b, raw[:size]...)
	}
	return b
}
