package bootimage

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os/exec"
	"strings"
	"testing"

	"github.com/ulikunitz/xz"
)

// packed is a file made by xz.
func packed(t testing.TB, b []byte, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("xz", append([]string{"-c"}, args...)...)
	cmd.Stdin = bytes.NewReader(b)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// hostileXZ asks for a dictionary of 4 GiB in its first block.
func hostileXZ(t testing.TB) []byte {
	b := packed(t, content(1000))
	head := b[xzHead : xzHead+(int(b[xzHead])+1)*4]
	i := bytes.IndexByte(head, lzma2)
	head[i+2] = 40
	binary.LittleEndian.PutUint32(head[len(head)-4:], crc32.ChecksumIEEE(head[:len(head)-4]))
	return b
}

func TestXZDictionary(t *testing.T) {
	plain := content(300_000)
	var library bytes.Buffer
	w, err := xz.NewWriter(&library)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	one := packed(t, plain, "-1")
	tests := []struct {
		name string
		file []byte
		want int64
		err  string
	}{
		{"xz -9", packed(t, plain, "-9"), 64 << 20, ""},
		{"xz -0", packed(t, plain, "-0"), 256 << 10, ""},
		{"blocks", packed(t, plain, "-1", "-T2", "--block-size=100000"), 1 << 20, ""},
		{"nothing in it", packed(t, nil), 0, ""},
		{"by the library", library.Bytes(), 8 << 20, ""},
		{"two streams", append(bytes.Clone(one), packed(t, plain, "-6")...), 8 << 20, ""},
		{"two streams with zeros between", append(append(bytes.Clone(one), make([]byte, 4)...), one...), 1 << 20, ""},
		{"zeros without end", append(bytes.Clone(one), make([]byte, 1<<20)...), 0, "malformed"},
		{"4 GiB", hostileXZ(t), 1<<32 - 1, ""},
		{"4 GiB in the second stream", append(bytes.Clone(one), hostileXZ(t)...), 1<<32 - 1, ""},
		{"cut off", one[:len(one)-40], 0, "malformed"},
		{"none", plain[:1000], 0, "malformed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := xzDictionary(bytes.NewReader(tt.file), int64(len(tt.file)))
			if got != tt.want || tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got %d, %v; want %d", got, err, tt.want)
			}
		})
	}
	s, d := newServer(t, hostileXZ(t)), newDownloader(t)
	d.Decompress = true
	if _, err := d.Get(t.Context(), s.part("disk.xz")); err == nil || !strings.Contains(err.Error(), "bytes of memory, over the limit") {
		t.Errorf("got %v", err)
	}
}

func FuzzXZDictionary(f *testing.F) {
	f.Add(packed(f, content(1000)))
	f.Add(hostileXZ(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := xzDictionary(bytes.NewReader(b), int64(len(b))); err == nil && (d < 0 || d >= 1<<32) {
			t.Errorf("%d bytes", d)
		}
	})
}
