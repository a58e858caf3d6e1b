package format_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/ostree/ostreetest"
	"github.com/oneboot/oneboot/pkg/verdict"
)

func TestParseDict(t *testing.T) {
	long := strings.Repeat("x", 70_000)
	tests := []struct {
		name string
		text string
	}{{"one-byte offsets", "v"}, {"two-byte offsets", strings.Repeat("y", 300)}, {"four-byte offsets", long}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := format.ParseDict(ostreetest.EncodeDict([]ostreetest.Entry{
				{Key: "text", Value: tt.text},
				{Key: "yes", Value: true},
				{Key: "list", Value: []string{"a", "", "c"}},
				{Key: "pair", Value: [2]uint64{1, 1 << 40}},
				{Key: "number", Value: uint32(6)},
				{Key: "inner", Value: []ostreetest.Entry{{Key: "k", Value: "v"}}},
				{Key: "twice", Value: "a"},
				{Key: "twice", Value: "b"},
			}))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"text", "yes", "list", "pair", "number", "inner", "twice"}, d.Keys()); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
			if s, ok, err := d.String("text"); s != tt.text || !ok || err != nil {
				t.Errorf("String: got %d bytes, %v, %v", len(s), ok, err)
			}
			if v, ok, err := d.Bool("yes"); !v || !ok || err != nil {
				t.Errorf("Bool: got %v, %v, %v", v, ok, err)
			}
			if l, ok, err := d.Strings("list"); !cmp.Equal(l, []string{"a", "", "c"}) || !ok || err != nil {
				t.Errorf("Strings: got %q, %v, %v", l, ok, err)
			}
			if n, ok, err := d.Len("list"); n != 3 || !ok || err != nil {
				t.Errorf("Len: got %v, %v, %v", n, ok, err)
			}
			if p, ok, err := d.Uint64Pair("pair"); p != [2]uint64{1, 1 << 40} || !ok || err != nil {
				t.Errorf("Uint64Pair: got %v, %v, %v", p, ok, err)
			}
			if n, ok, err := d.Uint32("number"); n != 6 || !ok || err != nil {
				t.Errorf("Uint32: got %v, %v, %v", n, ok, err)
			}
			inner, ok, err := d.Dict("inner")
			if !ok || err != nil {
				t.Fatalf("Dict: got %v, %v", ok, err)
			}
			if s, ok, err := inner.String("k"); s != "v" || !ok || err != nil {
				t.Errorf("inner String: got %q, %v, %v", s, ok, err)
			}
			if _, ok, err := d.String("none"); ok || err != nil {
				t.Errorf("absent key: got %v, %v", ok, err)
			}
			for _, key := range []string{"yes", "twice"} {
				if _, ok, err := d.String(key); ok || !errors.Is(err, format.ErrMalformed) {
					t.Errorf("String(%s): got %v, %v; want an error", key, ok, err)
				}
			}
		})
	}
}

func TestParseDictMalformed(t *testing.T) {
	good := ostreetest.EncodeDict([]ostreetest.Entry{{Key: "key", Value: "value"}, {Key: "flag", Value: true}})
	tests := []struct {
		name string
		b    []byte
	}{
		{"one byte", []byte{1}},
		{"offset beyond the end", []byte{0, 0, 0xff}},
		{"no type", ostreetest.EncodeDict([]ostreetest.Entry{{Key: "k", Value: ""}})[:3]},
		{"zeros", make([]byte, 64)},
		{"text", []byte("not a variant at all, but some text that goes on")},
		{"boolean of 2", replace(good, []byte{1, 0, 'b'}, []byte{2, 0, 'b'})},
		{"padding", replace(good, []byte("key\x00\x00"), []byte("key\x00\x01"))},
		{"not UTF-8", replace(good, []byte("value"), []byte("val\xffe"))},
		{"NUL inside", replace(good, []byte("value"), []byte("va\x00ue"))},
		{"unknown type", replace(good, []byte{'e', 0, 0, 's'}, []byte{'e', 0, 0, 'z'})},
		{"wrong type", replace(good, []byte{'e', 0, 0, 's'}, []byte{'e', 0, 0, 'u'})},
	}
	for i := 1; i < len(good); i++ {
		tests = append(tests, struct {
			name string
			b    []byte
		}{"cut", good[:i]})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if d, err := format.ParseDict(tt.b); !errors.Is(err, format.ErrMalformed) {
				t.Errorf("got %v, %v; want malformed", d.Keys(), err)
			}
		})
	}
}

// A type string may nest and repeat; neither makes reading slow or deep.
func TestDictBounds(t *testing.T) {
	for _, typ := range []string{
		strings.Repeat("a", 100) + "s", strings.Repeat("(", 100) + strings.Repeat(")", 100),
		strings.Repeat("m", 300) + "s", "(" + strings.Repeat("s", 400) + ")",
	} {
		b := append([]byte("k\x00\x00\x00\x00\x00\x00\x00\x00\x00"), typ...)
		b = append(b, 2)
		b = append(b, byte(len(b)))
		if _, err := format.ParseDict(b); !errors.Is(err, format.ErrMalformed) {
			t.Errorf("type %.20s...: got %v, want malformed", typ, err)
		}
	}
	// Variants inside variants.
	deep := []byte{'v', 0, 0, 's'}
	for range 100 {
		deep = append(deep, 0, 'v')
	}
	b := append([]byte("k\x00\x00\x00\x00\x00\x00\x00"), deep...)
	b = append(b, 2)
	b = append(b, byte(len(b)))
	if _, err := format.ParseDict(b); !errors.Is(err, format.ErrMalformed) {
		t.Errorf("nested variants: got %v, want malformed", err)
	}
}

// Many values of a costly type end in an error, soon.
func TestDictWork(t *testing.T) {
	for _, typ := range []string{"a" + strings.Repeat("(", 20) + strings.Repeat("y", 190) + strings.Repeat(")", 20), "a()", "a(y)", "ab"} {
		b := append([]byte("k\x00\x00\x00\x00\x00\x00\x00"), make([]byte, 190<<17)...)
		b = append(append(b, 0), typ...)
		b = append(b, 2, 0, 0, 0)
		n := len(b)
		b = append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
		start := time.Now()
		_, err := format.ParseDict(b)
		if !errors.Is(err, format.ErrMalformed) || !strings.Contains(err.Error(), "too many") {
			t.Errorf("%.10s: got %v, want malformed", typ, err)
		}
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("%.10s took %v", typ, d)
		}
	}
}

func replace(b, old, with []byte) []byte {
	out := strings.Replace(string(b), string(old), string(with), 1)
	if out == string(b) {
		panic("nothing replaced")
	}
	return []byte(out)
}

func TestRefEscape(t *testing.T) {
	tests := []struct{ name, want string }{
		{"sha256:0123", "sha256_3A_0123"},
		{"docker://quay.io/fedora/fedora-coreos:stable", "docker_3A__2F__2F_quay_2E_io/fedora/fedora-coreos_3A_stable"},
		{"oci-archive:/rhcos-416.92.202401191512-0-ostree.x86_64.ociarchive", "oci-archive_3A__2F_rhcos-416_2E_92_2E_202401191512-0-ostree_2E_x86__64_2E_ociarchive"},
		{"localhost:5000/foo:latest", "localhost_3A_5000/foo_3A_latest"},
		{"/", "_2F_"},
		{"blah/", "blah_2F_"},
		{"/foo/", "_2F_foo_2F_"},
		{"a//b", "a/_2F_b"},
		{"a-/b", "a-_2F_b"},
		{"é", "_E9_"},
		{"foo/bar/baz-blah/foo", "foo/bar/baz-blah/foo"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := format.EscapeRef(tt.name)
			if err != nil || got != tt.want {
				t.Errorf("EscapeRef: got %q, %v; want %q", got, err, tt.want)
			}
			back, err := format.UnescapeRef(tt.want)
			if err != nil || back != tt.name {
				t.Errorf("UnescapeRef: got %q, %v; want %q", back, err, tt.name)
			}
		})
	}
	for _, s := range []string{"", "a\x00b", "\xff"} {
		if got, err := format.EscapeRef(s); err == nil {
			t.Errorf("EscapeRef(%q): got %q, want an error", s, got)
		}
	}
	for _, s := range []string{"", "_", "_3A", "_zz_", "a.b", "_3a_", "_41_", "a_2F_b", "_110000_", "_00_"} {
		if got, err := format.UnescapeRef(s); err == nil {
			t.Errorf("UnescapeRef(%q): got %q, want an error", s, got)
		}
	}
}

func TestBlobRef(t *testing.T) {
	sum := strings.Repeat("0123456789abcdef", 4)
	ref, err := format.BlobRef(verdict.Digest("sha256:" + sum))
	if err != nil || ref != "ostree/container/blob/sha256_3A_"+sum {
		t.Errorf("got %q, %v", ref, err)
	}
	if d, err := format.ParseBlobRef(ref); err != nil || string(d) != "sha256:"+sum {
		t.Errorf("got %q, %v", d, err)
	}
	for _, d := range []string{"", "sha256:", "sha512:" + sum, "sha256:" + strings.ToUpper(sum), "sha256:" + sum + "0"} {
		if got, err := format.ParseDigest(d); err == nil {
			t.Errorf("ParseDigest(%q): got %q, want an error", d, got)
		}
	}
}

func TestParseBootLink(t *testing.T) {
	tests := []struct {
		in   string
		want format.BootLink
		ok   bool
	}{
		{"/ostree/boot.0/rhcos/abc/0", format.BootLink{BootVersion: 0, Stateroot: "rhcos", BootCsum: "abc"}, true},
		{"/ostree/boot.1/fedora-coreos/abc/12", format.BootLink{BootVersion: 1, Stateroot: "fedora-coreos", BootCsum: "abc", Index: 12}, true},
		{"/ostree/root.a", format.BootLink{}, false},
		{"/ostree/boot.2/rhcos/abc/0", format.BootLink{}, false},
		{"/ostree/boot.1/../abc/0", format.BootLink{}, false},
		{"/ostree/boot.1/rhcos//0", format.BootLink{}, false},
		{"/ostree/boot.1/rhcos/abc/-1", format.BootLink{}, false},
		{"/ostree/boot.1/rhcos/abc/0/", format.BootLink{}, false},
		{"ostree/boot.1/rhcos/abc/0", format.BootLink{}, false},
		{"", format.BootLink{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := format.ParseBootLink(tt.in)
			if (err == nil) != tt.ok || got != tt.want {
				t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
			}
			if tt.ok && got.Path() != tt.in {
				t.Errorf("Path: got %q, want %q", got.Path(), tt.in)
			}
		})
	}
}

func TestParseDeploymentName(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	if c, n, err := format.ParseDeploymentName(sum + ".10"); string(c) != sum || n != 10 || err != nil {
		t.Errorf("got %v, %v, %v", c, n, err)
	}
	for _, s := range []string{"", sum, sum + ".", sum + ".x", sum + ".-1", sum + ".01", sum + ".99999999999", "abc.0", strings.ToUpper(sum) + ".0", sum + ".0.origin"} {
		if c, n, err := format.ParseDeploymentName(s); err == nil {
			t.Errorf("%q: got %v, %v; want an error", s, c, n)
		}
	}
}
