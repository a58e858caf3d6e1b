package bootimage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The format is that of tukaani.org/xz/xz-file-format.txt.
const (
	xzHead = 12 // of a stream, and its end
	// maxXZIndex bounds the list of a stream's blocks, in bytes; a block has some
	// megabytes, and five bytes there.
	maxXZIndex   = 1 << 20
	maxXZPadding = 64 << 10
	lzma2        = 0x21
)

var errNotXZ = errors.New("malformed xz")

// xzDictionary is the largest dictionary that a file's blocks ask for, in bytes: what
// unpacks it allocates as much, up to 4 GiB.
func xzDictionary(f io.ReaderAt, size int64) (largest int64, err error) {
	for padding := 0; size > 0; {
		var end [xzHead]byte
		if size < 2*xzHead || size%4 != 0 {
			return 0, errNotXZ
		}
		if _, err := f.ReadAt(end[:], size-xzHead); err != nil {
			return 0, err
		}
		if [4]byte(end[8:]) == [4]byte{} {
			// Zeros behind a stream.
			if padding += 4; padding > maxXZPadding {
				return 0, errNotXZ
			}
			size -= 4
			continue
		}
		length := (int64(binary.LittleEndian.Uint32(end[4:])) + 1) * 4
		if string(end[10:]) != "YZ" || length > maxXZIndex || length > size-2*xzHead {
			return 0, errNotXZ
		}
		index := make([]byte, length)
		if _, err := f.ReadAt(index, size-xzHead-length); err != nil {
			return 0, err
		}
		blocks, err := xzBlocks(index)
		if err != nil {
			return 0, err
		}
		at := size - xzHead - length
		for i := len(blocks) - 1; i >= 0; i-- {
			if at -= blocks[i]; at < xzHead {
				return 0, errNotXZ
			}
			d, err := xzBlockDictionary(f, at)
			if err != nil {
				return 0, err
			}
			largest = max(largest, d)
		}
		size = at - xzHead
	}
	return largest, nil
}

// xzBlocks are the sizes of a stream's blocks with what fills them up.
func xzBlocks(index []byte) (sizes []int64, err error) {
	next := func() int64 {
		v, n := binary.Uvarint(index)
		if n <= 0 || v > maxFile {
			err = errNotXZ
			return 0
		}
		index = index[n:]
		return int64(v) //nolint:gosec // bounded
	}
	if index[0] != 0 {
		return nil, errNotXZ
	}
	index = index[1:]
	for range next() {
		unpadded, _ := next(), next()
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, (unpadded+3)&^3)
	}
	return sizes, err
}

// xzBlockDictionary is the dictionary that the block at an offset asks for.
func xzBlockDictionary(f io.ReaderAt, at int64) (int64, error) {
	var b [1024]byte
	n, err := f.ReadAt(b[:], at)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	head := b[:min(n, (int(b[0])+1)*4)]
	if len(head) < 8 || b[0] == 0 {
		return 0, errNotXZ
	}
	flags, rest := head[1], head[2:]
	for _, there := range []bool{flags&0x40 != 0, flags&0x80 != 0} {
		if _, n := binary.Uvarint(rest); there {
			if n <= 0 {
				return 0, errNotXZ
			}
			rest = rest[n:]
		}
	}
	// A filter before LZMA2 is one that the unpacker does not know.
	if flags&3 != 0 || len(rest) < 3 || rest[0] != lzma2 || rest[1] != 1 || rest[2] > 40 {
		return 0, fmt.Errorf("%w: not one LZMA2 filter", errNotXZ)
	}
	if rest[2] == 40 {
		return 1<<32 - 1, nil
	}
	return int64(2|rest[2]&1) << (rest[2]/2 + 11), nil
}
