package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// A Form is what a file that may be a disk image is made of.
type Form string

// The forms. A file that starts like none of the others is raw.
const (
	FormRaw   Form = "raw"
	FormGzip  Form = "gzip"
	FormXZ    Form = "xz"
	FormZstd  Form = "zstd"
	FormBzip2 Form = "bzip2"
	FormQCOW2 Form = "qcow2"
	FormVMDK  Form = "vmdk"
	FormVHDX  Form = "vhdx"
	FormISO   Form = "iso"
	FormTar   Form = "tar"
)

// ReadForm tells a file's form by its first bytes. A file too short for any of
// them is raw.
func ReadForm(r io.ReaderAt) (Form, error) {
	for _, m := range []struct {
		form  Form
		at    int64
		magic string
	}{
		{FormGzip, 0, "\x1f\x8b"},
		{FormXZ, 0, "\xfd7zXZ\x00"},
		{FormZstd, 0, "\x28\xb5\x2f\xfd"},
		{FormBzip2, 0, "BZh"},
		{FormQCOW2, 0, "QFI\xfb"},
		{FormVMDK, 0, "KDMV"},
		{FormVHDX, 0, "vhdxfile"},
		{FormTar, 257, "ustar"},
		{FormISO, 16*2048 + 1, "CD001"},
	} {
		ok, err := hasMagic(r, m.at, m.magic)
		if err != nil {
			return "", fmt.Errorf("reading form: %w", err)
		}
		if ok {
			return m.form, nil
		}
	}
	return FormRaw, nil
}

// hasMagic reports whether the bytes are there; behind the end they are not.
func hasMagic(r io.ReaderAt, at int64, magic string) (bool, error) {
	b := make([]byte, len(magic))
	n, err := r.ReadAt(b, at)
	if n == len(b) || errors.Is(err, io.EOF) {
		err = nil
	}
	return bytes.Equal(b[:n], []byte(magic)), err
}
