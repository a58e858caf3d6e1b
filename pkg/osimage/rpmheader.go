package osimage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// The layout of an RPM file (rpm docs/manual/format.md): a lead, a header of
// signatures padded to 8 bytes, and the header that names the package.
const (
	rpmLeadSize  = 96
	rpmLeadMagic = 0xedabeedb
	// rpmHeaderMagic is the magic number and the version of a header.
	rpmHeaderMagic = 0x8eade801
	rpmEntrySize   = 16

	maxRPMEntries = 10_000
	// maxRPMStore bounds a header's data, as rpm itself does.
	maxRPMStore = 256 << 20
	// rpmStoreHead is how much of it is kept. The tags wanted are the lowest,
	// and the data lies in the order of the tags.
	rpmStoreHead = 256 << 10
)

// Tags of the package header and their types (rpm include/rpm/rpmtag.h).
const (
	rpmTagName    = 1000
	rpmTagVersion = 1001
	rpmTagRelease = 1002
	rpmTagEpoch   = 1003
	rpmTagArch    = 1022

	rpmTypeInt32  = 4
	rpmTypeString = 6
)

// An rpmError is a fault of an RPM file, as opposed to one of reading it.
type rpmError struct{ message string }

func (e *rpmError) Error() string { return "RPM: " + e.message }

func rpmFault(format string, args ...any) error {
	return &rpmError{fmt.Sprintf(format, args...)}
}

// readRPM reads the name of a package from the start of its file.
func readRPM(r io.Reader) (verdict.Package, error) {
	lead := make([]byte, rpmLeadSize)
	if _, err := io.ReadFull(r, lead); err != nil {
		return verdict.Package{}, rpmRead(err)
	}
	if binary.BigEndian.Uint32(lead) != rpmLeadMagic {
		return verdict.Package{}, rpmFault("not an RPM file")
	}
	entries, size, err := rpmIntro(r)
	if err != nil {
		return verdict.Package{}, err
	}
	signatures := int64(entries)*rpmEntrySize + (int64(size)+7)/8*8
	if _, err := io.CopyN(io.Discard, r, signatures); err != nil {
		return verdict.Package{}, rpmRead(err)
	}
	if entries, size, err = rpmIntro(r); err != nil {
		return verdict.Package{}, err
	}
	index := make([]byte, entries*rpmEntrySize)
	if _, err := io.ReadFull(r, index); err != nil {
		return verdict.Package{}, rpmRead(err)
	}
	store := make([]byte, min(size, rpmStoreHead))
	if _, err := io.ReadFull(r, store); err != nil {
		return verdict.Package{}, rpmRead(err)
	}
	tags, err := rpmTags(index, store)
	if err != nil {
		return verdict.Package{}, err
	}
	p, err := makePackage(tags[rpmTagName], tags[rpmTagEpoch], tags[rpmTagVersion], tags[rpmTagRelease], tags[rpmTagArch])
	if err != nil {
		return verdict.Package{}, rpmFault("%v", err)
	}
	return p, nil
}

// rpmRead tells an RPM file that ends early from a layer that does.
func rpmRead(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // the file's own end
		return rpmFault("the file ends early")
	}
	return err
}

// rpmIntro reads how many entries and bytes of data a header has.
func rpmIntro(r io.Reader) (entries, size uint32, err error) {
	intro := make([]byte, 16)
	if _, err := io.ReadFull(r, intro); err != nil {
		return 0, 0, rpmRead(err)
	}
	if binary.BigEndian.Uint32(intro) != rpmHeaderMagic {
		return 0, 0, rpmFault("no header where one must be")
	}
	entries, size = binary.BigEndian.Uint32(intro[8:]), binary.BigEndian.Uint32(intro[12:])
	if entries > maxRPMEntries || size > maxRPMStore {
		return 0, 0, rpmFault("header of %d entries and %d bytes", entries, size)
	}
	return entries, size, nil
}

// rpmTags reads the tags that name a package.
func rpmTags(index, store []byte) (map[uint32]string, error) {
	tags := map[uint32]string{}
	for ; len(index) >= rpmEntrySize; index = index[rpmEntrySize:] {
		tag, kind := binary.BigEndian.Uint32(index), binary.BigEndian.Uint32(index[4:])
		offset, count := binary.BigEndian.Uint32(index[8:]), binary.BigEndian.Uint32(index[12:])
		want := uint32(rpmTypeString)
		switch tag {
		case rpmTagName, rpmTagVersion, rpmTagRelease, rpmTagArch:
		case rpmTagEpoch:
			want = rpmTypeInt32
		default:
			continue
		}
		if _, ok := tags[tag]; ok || kind != want || count != 1 || int64(offset) >= int64(len(store)) {
			return nil, rpmFault("tag %d: type %d, count %d, offset %d", tag, kind, count, offset)
		}
		data := store[offset:]
		if want == rpmTypeInt32 {
			if len(data) < 4 {
				return nil, rpmFault("tag %d goes beyond the header", tag)
			}
			tags[tag] = strconv.FormatUint(uint64(binary.BigEndian.Uint32(data)), 10)
			continue
		}
		text, _, ok := bytes.Cut(data, []byte{0})
		if !ok {
			return nil, rpmFault("tag %d goes beyond the header", tag)
		}
		tags[tag] = string(text)
	}
	return tags, nil
}
