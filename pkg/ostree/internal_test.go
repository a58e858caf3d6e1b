package ostree

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The wanted results are those of glibc's strverscmp.
func TestCompareVersions(t *testing.T) {
	// In ascending order.
	order := []string{"", "000", "001", "00", "01", "010", "09", "0", "1", "9", "10", "11", "100", "a", "a00", "a01", "a0", "a1", "foo"}
	for i, a := range order {
		for j, b := range order {
			got := compareVersions(a, b)
			if (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%q and %q: got %d", a, b, got)
			}
		}
	}
}

func TestParseBootEntry(t *testing.T) {
	got, err := parseBootEntry("ostree-1-rhcos.conf", []byte(strings.Join([]string{
		"# a comment", "title Red Hat 9.6 (ostree:0)", "version 2", "options  root=x  \"a b\" ostree=/ostree/boot.1/rhcos/abc/0 ",
		"linux /ostree/rhcos-abc/vmlinuz", "initrd /ostree/rhcos-abc/initramfs.img", "initrd\t/overlay.img", "novalue", " version 9", "aboot x", "",
	}, "\n")))
	want := BootEntry{
		File: "ostree-1-rhcos.conf", Title: "Red Hat 9.6 (ostree:0)", Version: "2", Linux: "/ostree/rhcos-abc/vmlinuz",
		Initrds: []string{"/ostree/rhcos-abc/initramfs.img", "/overlay.img"}, Options: " root=x  \"a b\" ostree=/ostree/boot.1/rhcos/abc/0 ",
	}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestELFMachine(t *testing.T) {
	head := func(class, data, lo, hi byte) (h [20]byte) {
		copy(h[:], "\x7fELF")
		h[4], h[5], h[18], h[19] = class, data, lo, hi
		return h
	}
	tests := []struct {
		name string
		head [20]byte
		want string
	}{
		{"amd64", head(2, 1, 62, 0), "amd64"}, {"arm64", head(2, 1, 183, 0), "arm64"}, {"ppc64le", head(2, 1, 21, 0), "ppc64le"},
		{"s390x", head(2, 2, 0, 22), "s390x"}, {"riscv64", head(2, 1, 243, 0), "riscv64"},
		{"big-endian ppc64", head(2, 2, 0, 21), ""}, {"x32", head(1, 1, 62, 0), ""}, {"no byte order", head(2, 0, 62, 0), ""}, {"text", [20]byte{'#', '!'}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := elfMachine(tt.head)
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func FuzzParseBootEntry(f *testing.F) {
	f.Add([]byte("title x\nversion 1\noptions ostree=/ostree/boot.0/rhcos/abc/0\ninitrd /a\ninitrd /b\n"))
	f.Add([]byte("options a\noptions b\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := parseBootEntry("x", b)
		if err == nil && strings.Contains(e.Options, "\n") {
			t.Errorf("options %q", e.Options)
		}
	})
}

// Order must be one: sorting relies on it.
func FuzzCompareVersions(f *testing.F) {
	f.Add("01", "0", "1")
	f.Add("1.10", "1.9", "1.09")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		ab, ba, bc, ac := compareVersions(a, b), compareVersions(b, a), compareVersions(b, c), compareVersions(a, c)
		if (ab < 0) != (ba > 0) || (ab == 0) != (a == b) || ab <= 0 && bc <= 0 && ac > 0 {
			t.Errorf("%q %q %q: %d %d %d %d", a, b, c, ab, ba, bc, ac)
		}
	})
}

func FuzzELFMachine(f *testing.F) {
	f.Add([]byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03\x00\x3e\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var head [20]byte
		copy(head[:], b)
		if arch, err := elfMachine(head); (arch == "") == (err == nil) {
			t.Errorf("got %q, %v", arch, err)
		}
	})
}
