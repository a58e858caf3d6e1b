package inspect

import (
	"archive/tar"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// maxMemory is the most that the program may need, in KiB.
const maxMemory = 64 << 10

// zeros writes an archive with one file of zeros.
func zeros(name string, size int64) func(io.Writer) error {
	return func(out io.Writer) error {
		w := tar.NewWriter(out)
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: size}); err != nil {
			return err
		}
		block := make([]byte, 1<<20)
		for size > 0 {
			n := min(size, int64(len(block)))
			if _, err := w.Write(block[:n]); err != nil {
				return err
			}
			size -= n
		}
		return w.Close()
	}
}

// memory is the most that a run of the program has needed, in KiB, and what it
// said. The run ends within a minute.
func (l *lab) memory(t *testing.T, args ...string) (kib int64, said string) {
	t.Helper()
	began := time.Now()
	out, errs, _, peak := l.measure(t, args...)
	if d := time.Since(began); d > time.Minute {
		t.Errorf("it took %s", d)
	}
	return peak, out + errs
}

func TestHostile(t *testing.T) {
	l := newLab(t)
	base := l.image(t, sysroot.Tree{FillerBytes: 4 << 20}, sysroot.CommitOptions{Packages: installed()}, nativeimage.Options{})
	meta := "usr/share/openshift/base/meta.json"
	deep := strings.Repeat("[", 1<<20)
	onTop := func(labels map[string]string, name, content string) *nativeimage.Image {
		return derive(t, base, labels, nativeimage.DerivedLayer{Files: map[string]sysroot.File{name: {Content: content}}})
	}
	var entries strings.Builder
	entries.WriteString(`{"rpmdb.pkglist":[`)
	for range 100_000 {
		entries.WriteString(`["a","0","1","1","noarch"],`)
	}
	entries.WriteString(`["a","0","1","1","noarch"]]}`)
	tests := []struct {
		name  string
		image *nativeimage.Image
		layer func(io.Writer) error
		zip   nativeimage.Compression
		args  []string
		want  string
	}{
		{"a metadata file of a gigabyte, gzip", base, zeros(meta, 1<<30), nativeimage.Gzip, nil, ""},
		{"a metadata file of a gigabyte, zstd", base, zeros(meta, 1<<30), nativeimage.Zstd, nil, ""},
		{"metadata nested a million deep", onTop(metalayer, meta, deep), nil, 0, nil, "meta.json"},
		{"a hundred thousand packages", onTop(metalayer, meta, entries.String()), nil, 0, nil, "100001 packages"},
		{"a package with a name of a megabyte", onTop(metalayer, meta, `{"rpmdb.pkglist":[["`+strings.Repeat("a", 1<<20)+`","0","1","1","noarch"]]}`), nil, 0, nil, "meta.json"},
		{"keys that stand twice", onTop(metalayer, meta, `{"rpmdb.pkglist":[["a","0","1","1","noarch"]],"rpmdb.pkglist":[["b","0","1","1","noarch"]]}`), nil, 0, nil, "meta.json"},
		{"a database that is none", onTop(nil, "usr/share/rpm/rpmdb.sqlite", "SQLite format 3\x00"+strings.Repeat("\xff", 4096)), nil, 0, []string{"--full"}, "rpmdb.sqlite"},
		{"a database of a gigabyte", base, zeros("usr/share/rpm/rpmdb.sqlite", 1<<30), nativeimage.Gzip, []string{"--full"}, "over the limit"},
		{"a database in a folder that is a link out", onTop(nil, "usr/share/rpm/../../../../etc/rpmdb.sqlite", "x"), nil, 0, []string{"--full"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := tt.image
			if tt.layer != nil {
				var err error
				if m, err = nativeimage.AddLayer(t.TempDir(), m, metalayer, tt.zip, tt.layer); err != nil {
					t.Fatal(err)
				}
			}
			ref := l.push(t, "hostile", m)
			kib, said := l.memory(t, append(append([]string{"inspect", "-o", "json"}, tt.args...), ref)...)
			if kib > maxMemory {
				t.Errorf("it needed %d KiB", kib)
			}
			if !strings.Contains(said, tt.want) || strings.Contains(said, "panic") {
				t.Errorf("it said %.2000s\nwant %q", said, tt.want)
			}
			if strings.Contains(said, `"packages": [`) && strings.Contains(said, `"packagesSource"`) && tt.want != "" {
				t.Errorf("packages of a hostile image are listed: %.2000s", said)
			}
		})
	}
}
