package osimage

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

func layerOf(files map[string]string, removed ...string) nativeimage.DerivedLayer {
	l := nativeimage.DerivedLayer{Files: map[string]sysroot.File{}, Removed: removed}
	for name, text := range files {
		l.Files[name] = sysroot.File{Content: text}
	}
	return l
}

func TestFiles(t *testing.T) {
	t.Parallel()
	const a, b = "manifests/a.yaml", "manifests/b.yaml"
	tests := []struct {
		name   string
		layers []nativeimage.DerivedLayer
		want   map[string]string
		// read is how many layers are read.
		read int
	}{
		{"in the last layer", []nativeimage.DerivedLayer{layerOf(map[string]string{a: "old"}), layerOf(map[string]string{a: "1", b: "2"})}, map[string]string{a: "1", b: "2"}, 1},
		{"in two layers", []nativeimage.DerivedLayer{layerOf(map[string]string{a: "1"}), layerOf(map[string]string{b: "2"}), layerOf(map[string]string{"etc/x": ""})}, map[string]string{a: "1", b: "2"}, 3},
		{"taken away", []nativeimage.DerivedLayer{layerOf(map[string]string{a: "1"}), layerOf(map[string]string{b: "2"}, a)}, map[string]string{b: "2"}, 1},
		{"its folder taken away", []nativeimage.DerivedLayer{layerOf(map[string]string{a: "1", b: "2"}), layerOf(nil, "manifests")}, map[string]string{}, 1},
		{"hidden by an opaque folder", []nativeimage.DerivedLayer{layerOf(map[string]string{a: "1", b: "2"}), layerOf(map[string]string{b: "3"}, "manifests/.wh..opq")}, map[string]string{b: "3"}, 1},
		{"not there", []nativeimage.DerivedLayer{layerOf(map[string]string{"manifests/a.yaml.bak": "1"})}, map[string]string{}, -1},
	}
	base, err := nativeimage.BuildExtensions(t.TempDir(), nativeimage.ExtensionsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := nativeimage.Derive(t.TempDir(), base, nil, tt.layers...)
			if err != nil {
				t.Fatal(err)
			}
			img, _ := pushImage(t, m)
			files, err := img.Files(t.Context(), a, b)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for name, content := range files {
				got[name] = string(content)
			}
			if diff := gocmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			read := tt.read
			if read < 0 {
				read = len(m.Layers)
			}
			if n := img.Transfer().Requests; n != 3+read {
				t.Errorf("%d requests, want those of %d layers", n, read)
			}
		})
	}
}

// What could be read in two ways is no answer.
func TestFilesRefuses(t *testing.T) {
	tests := []struct {
		name    string
		entries []tar.Header
		want    string
	}{
		{"twice", []tar.Header{{Name: "d/a", Typeflag: tar.TypeReg}, {Name: "./d/a", Typeflag: tar.TypeReg}}, "twice"},
		{"a link", []tar.Header{{Name: "d/a", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}}, "not a regular file"},
		{"a hard link", []tar.Header{{Name: "d/a", Typeflag: tar.TypeLink, Linkname: "b"}}, "not a regular file"},
		{"a folder that is a link", []tar.Header{{Name: "d", Typeflag: tar.TypeSymlink, Linkname: "e"}}, "/d is not a folder"},
		{"a way around", []tar.Header{{Name: "x/../d/a", Typeflag: tar.TypeReg}}, "is named"},
		{"there and gone", []tar.Header{{Name: "d/a", Typeflag: tar.TypeReg}, {Name: "d/.wh.a", Typeflag: tar.TypeReg}}, "both there and taken away"},
		{"too large", []tar.Header{{Name: "d/a", Typeflag: tar.TypeReg, Size: maxFileBytes + 1}}, "over the limit"},
		{"cut off", []tar.Header{{Name: "d/a", Typeflag: tar.TypeReg, Size: 10_000}}, "EOF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for _, h := range tt.entries {
				if err := w.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
			}
			_, err := scanFiles(t.Context(), &b, map[string]bool{"d/a": true})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func FuzzScanFiles(f *testing.F) {
	for _, name := range []string{"d/a", "d/.wh.a", "d/.wh..wh..opq", "d", "./d/../d/a"} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg}); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		found, err := scanFiles(t.Context(), bytes.NewReader(b), map[string]bool{"d/a": true})
		if err != nil {
			return
		}
		for name, content := range found.content {
			if name != "d/a" || len(content) > maxFileBytes {
				t.Errorf("%q of %d bytes", name, len(content))
			}
		}
	})
}
