package rpmdb_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// An entry is one of an rpm header's index.
type entry struct {
	tag, kind, offset, count uint32
}

// header makes a small header; change may spoil its index and data.
func header(change func(index []entry, data string) ([]entry, string)) []byte {
	const text = 6
	index := []entry{{1000, text, 0, 1}, {1001, text, 5, 1}, {1002, text, 7, 1}, {1022, text, 9, 1}, {1003, 4, 16, 1}}
	data := "bash\x005\x009\x00noarch\x00\x00\x00\x00\x01"
	if change != nil {
		index, data = change(index, data)
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(len(index)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	for _, e := range index {
		for _, n := range []uint32{e.tag, e.kind, e.offset, e.count} {
			b = binary.BigEndian.AppendUint32(b, n)
		}
	}
	return append(b, data...)
}

// Headers are read from databases, there is no other way to them.
func TestHeaders(t *testing.T) {
	type change = func(index []entry, data string) ([]entry, string)
	tests := []struct {
		name   string
		change change
		// want is the EVRA, or "" for an error with why.
		want, why string
	}{
		{"sound", nil, "1:5-9.noarch", ""},
		{"no epoch", func(i []entry, d string) ([]entry, string) { return i[:4], d }, "5-9.noarch", ""},
		{"large epoch", func(i []entry, d string) ([]entry, string) { return i, d[:16] + "\xff\xff\xff\xff" }, "4294967295:5-9.noarch", ""},
		{"other tags count for nothing", func(i []entry, d string) ([]entry, string) {
			return append(i, entry{5093, 99, 0xffffffff, 0xffffffff}, entry{63, 7, 5, 16}), d
		}, "1:5-9.noarch", ""},
		{"name twice", func(i []entry, d string) ([]entry, string) { return append(i, i[0]), d }, "", "twice"},
		{"epoch twice", func(i []entry, d string) ([]entry, string) { return append(i, i[4]), d }, "", "twice"},
		{"no name", func(i []entry, d string) ([]entry, string) { return i[1:], d }, "", "without a name"},
		{"no architecture", func(i []entry, d string) ([]entry, string) { return append(i[:3:3], i[4]), d }, "", "without an architecture"},
		{"name of another type", func(i []entry, d string) ([]entry, string) { i[0].kind = 8; return i, d }, "", "type 8"},
		{"epoch of another type", func(i []entry, d string) ([]entry, string) { i[4].kind = 6; return i, d }, "", "type 6"},
		{"several epochs", func(i []entry, d string) ([]entry, string) { i[4].count = 2; return i, d }, "", "count 2"},
		{"epoch ends early", func(i []entry, d string) ([]entry, string) { i[4].offset = 17; return i, d }, "", "ends early"},
		{"name outside", func(i []entry, d string) ([]entry, string) { i[0].offset = 21; return i, d }, "", "offset 21"},
		{"name far outside", func(i []entry, d string) ([]entry, string) { i[0].offset = 0xffffffff; return i, d }, "", "offset"},
		{"name without an end", func(i []entry, d string) ([]entry, string) { i[0].offset = 20; return i, d + "x" }, "", "no end"},
		{"long name", func(i []entry, d string) ([]entry, string) {
			i[0].offset = 20
			return i, d + strings.Repeat("x", 300) + "\x00"
		}, "", "no end"},
		{"name with a blank", func(i []entry, d string) ([]entry, string) { return i, "ba h" + d[4:] }, "", "character"},
		{"name with a byte of UTF-8", func(i []entry, d string) ([]entry, string) { return i, "ba\xc3h" + d[4:] }, "", "character"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := list(craft(t, packagesTable, fmt.Sprintf("INSERT INTO Packages VALUES (1, x'%x')", header(tt.change))))
			if tt.why != "" {
				if err == nil || !strings.Contains(err.Error(), tt.why) {
					t.Errorf("got %v, %v; want an error with %q", got, err, tt.why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]verdict.Package{{Name: "bash", EVRA: tt.want}}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for name, spoil := range map[string]func([]byte) []byte{
		"a byte more":    func(b []byte) []byte { return append(b, 0) },
		"a byte less":    func(b []byte) []byte { return b[:len(b)-1] },
		"too many tags":  func(b []byte) []byte { b[0] = 1; return b },
		"all tags":       func(b []byte) []byte { copy(b, "\xff\xff\xff\xff"); return b },
		"too many bytes": func(b []byte) []byte { copy(b[4:], "\xff\xff\xff\xff"); return b },
	} {
		if got, err := list(craft(t, packagesTable, fmt.Sprintf("INSERT INTO Packages VALUES (1, x'%x')", spoil(header(nil))))); err == nil {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
