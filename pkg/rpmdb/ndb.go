package rpmdb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"io"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// The format is rpm's own (lib/backend/ndb/rpmpkg.c): the file Packages.db. The head
// has a magic, a version, a generation and the number of pages with slots. A slot
// has a magic, a package's number, its place and its length, both in blocks of 16
// bytes. There stand a magic, the number, a generation and the length of the header
// in bytes, the header, zeros up to a block's end, and a checksum, the length and a
// magic.
const (
	ndbMagic     = "RpmP"
	ndbSlot      = "Slot"
	ndbBlobStart = "BlbS"
	ndbBlobEnd   = "BlbE"
	ndbPage      = 4096
	ndbBlock     = 16
	ndbHead      = 32
	ndbTail      = 12
	maxNDBPages  = 2048
)

func listNDB(db io.ReaderAt, size int64) ([]verdict.Package, error) {
	head := make([]byte, ndbHead)
	if err := readAt(db, head, 0); err != nil {
		return nil, err
	}
	version, pages := binary.LittleEndian.Uint32(head[4:]), int64(binary.LittleEndian.Uint32(head[12:]))
	if version != 0 || pages == 0 || pages > maxNDBPages || pages*ndbPage > size {
		return nil, fmt.Errorf("malformed: version %d, %d pages of slots", version, pages)
	}
	slots := make([]byte, pages*ndbPage)
	if err := readAt(db, slots, 0); err != nil {
		return nil, err
	}
	packages := []verdict.Package{}
	var used int64
	for at := ndbHead; at < len(slots); at += ndbBlock {
		slot := slots[at : at+ndbBlock]
		number := binary.LittleEndian.Uint32(slot[4:])
		if string(slot[:4]) != ndbSlot {
			return nil, fmt.Errorf("malformed: what is at %d is no slot", at)
		}
		if number == 0 {
			continue
		}
		blocks := int64(binary.LittleEndian.Uint32(slot[12:]))
		// Packages do not share blocks: together they are no more than the file.
		if used += blocks * ndbBlock; used > size {
			return nil, errors.New("malformed: packages overlap")
		}
		header, err := ndbBlob(db, size, number, int64(binary.LittleEndian.Uint32(slot[8:]))*ndbBlock, blocks*ndbBlock)
		if err != nil {
			return nil, fmt.Errorf("package %d: %w", number, err)
		}
		p, err := parseHeader(header)
		if err != nil {
			return nil, fmt.Errorf("package %d: %w", number, err)
		}
		if len(packages) >= maxPackages {
			return nil, fmt.Errorf("more than %d packages", maxPackages)
		}
		if p.Name != publicKey {
			packages = append(packages, p)
		}
	}
	return packages, nil
}

// ndbBlob reads and checks a package's header.
func ndbBlob(db io.ReaderAt, size int64, number uint32, at, length int64) ([]byte, error) {
	if length < ndbBlock+ndbTail || length > maxHeaderSize || at > size-length {
		return nil, fmt.Errorf("malformed: %d bytes at %d of %d", length, at, size)
	}
	b := make([]byte, length)
	if err := readAt(db, b, at); err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(b[12:]))
	tail := b[length-ndbTail:]
	if string(b[:4]) != ndbBlobStart || string(tail[8:]) != ndbBlobEnd || binary.LittleEndian.Uint32(b[4:]) != number ||
		n > length-ndbBlock-ndbTail || int64(binary.LittleEndian.Uint32(tail[4:])) != n {
		return nil, fmt.Errorf("malformed: what is at %d is not its header", at)
	}
	if adler32.Checksum(b[:length-ndbTail]) != binary.LittleEndian.Uint32(tail) {
		return nil, fmt.Errorf("the checksum of what is at %d is not its own", at)
	}
	return b[ndbBlock : ndbBlock+n], nil
}
