package bootimage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/bootimage"
	"github.com/oneboot/oneboot/pkg/hostfs"
)

const (
	alephCommit = "b2ea6159d6274e1bbbb49aa0ef093eda5d53a75c8a793dbe184f760ed64dc862"
	alephDigest = "sha256:3bdf633fb6c027a01688aecf1d3f33bbecf8975b138c1861cb89ae20f3e3e7db"
)

func TestParseAleph(t *testing.T) {
	tests := []struct {
		file string
		want bootimage.Aleph
	}{
		{"aleph-2019.json", bootimage.Aleph{Form: bootimage.AlephCosa, Version: "32.20201002.dev.2", Ref: "fedora/x86_64/coreos/testing-devel", Commit: alephCommit}},
		{"aleph-2023-container.json", bootimage.Aleph{Form: bootimage.AlephOSBuild, Version: "39.20231101.3.0", Ref: "quay.io/fedora/fedora-coreos:stable", ConfigDigest: alephDigest, Stream: "stable"}},
		{"aleph-osbuild-rhcos.json", bootimage.Aleph{Form: bootimage.AlephOSBuild, Version: "9.6.20251212-1", Ref: "ostree-image-signed:oci-archive:/rhcos-9.6.20251212-1-ostree.x86_64.ociarchive", Commit: alephCommit, ConfigDigest: alephDigest, Stream: "rhel-9.6"}},
		{"aleph-bootc-2026-03.json", bootimage.Aleph{Form: bootimage.AlephBootc, Version: "43.20260301.20.dev1", Kernel: "6.18.12-200.fc43.x86_64"}},
		{"aleph-bootc-labels.json", bootimage.Aleph{Form: bootimage.AlephBootc, Version: "43.20260301.20.dev1", Ref: "quay.io/fedora/fedora-coreos:testing-devel", Stream: "testing-devel", Kernel: "6.18.13-200.fc43.x86_64", ManifestDigest: "sha256:07bf537cc4e4d208eb0b978f76e5046e55529ce6192b982d8c1a41fa1d61b95a"}},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			got, err := bootimage.ParseAleph(read(t, "aleph/"+tt.file))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseAlephOdd(t *testing.T) {
	tests := []struct {
		name, text string
		want       *bootimage.Aleph
		err        string
	}{
		{"a ref that is none", `{"build":"410.84.1-0","ref":"None","ostree-commit":"x","imgid":"rhcos.qcow2"}`, &bootimage.Aleph{Form: bootimage.AlephCosa, Version: "410.84.1-0"}, ""},
		{"both build and version", `{"build":"1","version":"2","ref":"","imgid":"i"}`, &bootimage.Aleph{Form: bootimage.AlephCosa, Version: "2"}, ""},
		{"a digest that is none", `{"version":"1","container-image":{"image-digest":"latest"}}`, &bootimage.Aleph{Form: bootimage.AlephOSBuild, Version: "1"}, ""},
		{"half a file", `{`, nil, "cut off"},
		{"empty", "", nil, "empty"},
		{"something else", `{"a":1}`, nil, "none of the keys"},
		{"of a wrong type", `{"version":["1"]}`, nil, "cannot unmarshal"},
		{"too large", strings.Repeat(" ", 1<<20) + "{}", nil, "more than"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := bootimage.ParseAleph([]byte(tt.text))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
		})
	}
}

// One name may be a link to another one, or to nothing.
func TestReadAleph(t *testing.T) {
	text := string(read(t, "aleph/aleph-bootc-labels.json"))
	tests := []struct {
		name  string
		files map[string]string
		where string
		fails bool
	}{
		{"none", nil, "", false},
		{"a file", map[string]string{"sysroot/.aleph-version.json": text}, "/sysroot/.aleph-version.json", false},
		{"a link", map[string]string{"sysroot/.bootc-aleph.json": text, "sysroot/.coreos-aleph-version.json": "-> .bootc-aleph.json"}, "/sysroot/.coreos-aleph-version.json", false},
		{"a link to nothing", map[string]string{"sysroot/.coreos-aleph-version.json": "-> .bootc-aleph.json"}, "", false},
		{"a disk's own root", map[string]string{".aleph-version.json": text}, "/.aleph-version.json", false},
		{"a folder", map[string]string{"sysroot/.aleph-version.json/x": text}, "/sysroot/.aleph-version.json", true},
		{"garbage", map[string]string{"sysroot/.aleph-version.json": "{"}, "/sysroot/.aleph-version.json", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range tt.files {
				name = filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				var err error
				if target, ok := strings.CutPrefix(content, "-> "); ok {
					err = os.Symlink(target, name)
				} else {
					err = os.WriteFile(name, []byte(content), 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			root, err := hostfs.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			a, where, err := bootimage.ReadAleph(root)
			if where != tt.where || (err != nil) != tt.fails || (a != nil) != (tt.where != "" && !tt.fails) {
				t.Errorf("got %v, %q, %v", a, where, err)
			}
		})
	}
}

func FuzzParseAleph(f *testing.F) {
	names, err := filepath.Glob("testdata/aleph/*.json")
	if err != nil || len(names) < 5 {
		f.Fatal(names, err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := bootimage.ParseAleph(b); err == nil && a.Form == "" {
			t.Error("no form")
		}
	})
}
