package rpmdb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// publicKey is the name under which rpm stores a key.
const publicKey = "gpg-pubkey"

// Tags and types of an rpm header (rpmtag.h).
const (
	tagName    = 1000
	tagVersion = 1001
	tagRelease = 1002
	tagEpoch   = 1003
	tagArch    = 1022

	typeInt32  = 4
	typeString = 6
)

const (
	introSize = 8
	entrySize = 16
	// maxTags is rpm's own limit (header.c).
	maxTags = 0xffff
	maxText = 256
)

// parseHeader reads a package's name and version from its header: the number
// of index entries and the size of the data, both big-endian 32-bit numbers,
// the entries (tag, type, offset into the data and count, likewise) and the
// data. What follows an immutable region has the same form. The entries of
// other tags are not looked at.
func parseHeader(b []byte) (verdict.Package, error) {
	if len(b) < introSize {
		return verdict.Package{}, errors.New("header ends early")
	}
	tags, size := int64(binary.BigEndian.Uint32(b)), int64(binary.BigEndian.Uint32(b[4:]))
	if tags > maxTags || introSize+tags*entrySize+size != int64(len(b)) {
		return verdict.Package{}, fmt.Errorf("header of %d tags and %d bytes of data in %d bytes", tags, size, len(b))
	}
	h := header{data: b[introSize+tags*entrySize:], text: map[uint32]string{}}
	for i := range tags {
		if err := h.read(b[introSize+i*entrySize:]); err != nil {
			return verdict.Package{}, err
		}
	}
	name, version, release, arch := h.text[tagName], h.text[tagVersion], h.text[tagRelease], h.text[tagArch]
	switch {
	case name == "" || version == "" || release == "":
		return verdict.Package{}, errors.New("header without a name, version or release")
	case arch == "" && name != publicKey:
		return verdict.Package{}, fmt.Errorf("header of %s without an architecture", name)
	}
	p := verdict.Package{Name: name, EVRA: version + "-" + release + "." + arch}
	if epoch := h.text[tagEpoch]; epoch != "" && epoch != "0" {
		p.EVRA = epoch + ":" + p.EVRA
	}
	return p, nil
}

// A header is what has been read of one so far.
type header struct {
	data []byte
	text map[uint32]string
}

// read reads the entry at the start of b.
func (h *header) read(b []byte) error {
	tag, typ := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	offset, count := int64(binary.BigEndian.Uint32(b[8:])), binary.BigEndian.Uint32(b[12:])
	want := uint32(typeString)
	switch tag {
	case tagName, tagVersion, tagRelease, tagArch:
	case tagEpoch:
		want = typeInt32
	default:
		return nil
	}
	if _, twice := h.text[tag]; twice {
		return fmt.Errorf("header with tag %d twice", tag)
	}
	if typ != want || count != 1 || offset > int64(len(h.data)) {
		return fmt.Errorf("header with tag %d of type %d, count %d, offset %d", tag, typ, count, offset)
	}
	rest := h.data[offset:]
	if typ == typeInt32 {
		if len(rest) < 4 {
			return fmt.Errorf("header whose tag %d ends early", tag)
		}
		h.text[tag] = strconv.FormatUint(uint64(binary.BigEndian.Uint32(rest)), 10)
		return nil
	}
	text, err := readText(rest)
	if err != nil {
		return fmt.Errorf("header with tag %d: %w", tag, err)
	}
	h.text[tag] = text
	return nil
}

// readText reads a string up to its NUL. rpm allows no other characters in
// names and versions.
func readText(b []byte) (string, error) {
	end := bytes.IndexByte(b[:min(len(b), maxText+1)], 0)
	if end < 0 {
		return "", fmt.Errorf("no end within %d bytes", maxText)
	}
	for _, c := range b[:end] {
		if c <= ' ' || c > '~' {
			return "", fmt.Errorf("character %q", c)
		}
	}
	return string(b[:end]), nil
}
