package inspect

import (
	"archive/tar"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// hugeHeader writes an archive with an extended header of size bytes, which a
// reader would have to keep.
func hugeHeader(size int64) func(io.Writer) error {
	return func(out io.Writer) error {
		h := make([]byte, 512)
		copy(h, "PaxHeaders/x")
		copy(h[100:], "0000644\x00")
		copy(h[108:], "0000000\x000000000\x00")
		copy(h[124:], fmt.Sprintf("%011o\x00", size))
		copy(h[136:], "00000000000\x00        x")
		copy(h[257:], "ustar\x0000")
		sum := 0
		for _, c := range h {
			sum += int(c)
		}
		copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
		if _, err := out.Write(h); err != nil {
			return err
		}
		start := fmt.Sprintf("%d comment=", size)
		if _, err := io.WriteString(out, start); err != nil {
			return err
		}
		block := []byte(strings.Repeat("a", 1<<20))
		for left := size - int64(len(start)); left > 0; left -= int64(len(block)) {
			if _, err := out.Write(block[:min(left, int64(len(block)))]); err != nil {
				return err
			}
		}
		return nil
	}
}

// manyEntries writes an archive that never comes to anything.
func manyEntries(n int, name string) func(io.Writer) error {
	return func(out io.Writer) error {
		w := tar.NewWriter(out)
		for i := range n {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%s%d", name, i), Typeflag: tar.TypeReg, Mode: 0o644}); err != nil {
				return err
			}
		}
		return w.Close()
	}
}

// Layers are hostile wherever they are read: on top of an OS, in an extensions
// image, in a release image.
func TestHostileArchives(t *testing.T) {
	l := newLab(t)
	base := l.image(t, sysroot.Tree{FillerBytes: 1 << 20}, sysroot.CommitOptions{Packages: installed()}, nativeimage.Options{})
	other, err := base.Edit(func(c *nativeimage.Config) { c.Labels = map[string]string{} })
	if err != nil {
		t.Fatal(err)
	}
	extensions, release := map[string]string{"io.openshift.os.extensions": "true"}, map[string]string{"io.openshift.release": "4.19.3"}
	const list, references = "usr/share/rpm-ostree/extensions.json", "release-manifests/image-references"
	content := func(name, text string) func(io.Writer) error {
		return func(out io.Writer) error {
			w := tar.NewWriter(out)
			if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}); err != nil {
				return err
			}
			if _, err := io.WriteString(w, text); err != nil {
				return err
			}
			return w.Close()
		}
	}
	tests := []struct {
		name   string
		labels map[string]string
		zip    nativeimage.Compression
		layer  func(io.Writer) error
		want   string
	}{
		{"a header of 512 MiB, gzip", metalayer, nativeimage.Gzip, hugeHeader(512 << 20), "header"},
		{"a header of 512 MiB, zstd", metalayer, nativeimage.Zstd, hugeHeader(512 << 20), "header"},
		{"two hundred thousand entries", metalayer, nativeimage.Zstd, manyEntries(200_000, "usr/share/openshift/"), "over the limit"},
		{"extensions.json of a gigabyte", extensions, nativeimage.Gzip, zeros(list, 1<<30), list},
		{"extensions.json of a gigabyte, zstd", extensions, nativeimage.Zstd, zeros(list, 1<<30), list},
		{"image-references of a gigabyte", release, nativeimage.Gzip, zeros(references, 1<<30), references},
		{"image-references nested a million deep", release, nativeimage.Gzip, content(references, strings.Repeat("[", 1<<20)), references},
		{"image-references that lead elsewhere", release, nativeimage.Gzip,
			content(references, `{"spec":{"tags":[{"name":"rhel-coreos","from":{"kind":"DockerImage","name":"dir:/etc"}}]}}`), `is "dir:/etc", which names no image in a registry`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			on := other
			if tt.labels["io.openshift.metalayer"] != "" {
				on = base
			}
			m, err := nativeimage.AddLayer(t.TempDir(), on, tt.labels, tt.zip, tt.layer)
			if err != nil {
				t.Fatal(err)
			}
			kib, said := l.memory(t, "inspect", "-o", "json", "--full", l.push(t, "hostile", m))
			if kib > maxMemory {
				t.Errorf("it needed %d KiB", kib)
			}
			if !strings.Contains(said, tt.want) || strings.Contains(said, "panic") {
				t.Errorf("it said %.2000s\nwant %q", said, tt.want)
			}
		})
	}
}
