package nativeimage

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/test/sysroot"
)

// newSource makes a sysroot whose repository holds a commit.
func newSource(t *testing.T, opts sysroot.CommitOptions) (s *sysroot.Sysroot, commit string) {
	t.Helper()
	s, err := sysroot.New(filepath.Join(sysroot.TempDir(t), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	tree := sysroot.Tree{FillerBytes: 9 << 20, Files: map[string]sysroot.File{
		"usr/share/attributes": {Content: "x", Xattrs: map[string]string{"user.b": "2", "user.a": strings.Repeat("1", 300)}},
	}}
	if commit, err = s.CommitTree(tree, opts); err != nil {
		t.Fatal(err)
	}
	return s, commit
}

func build(t *testing.T, s *sysroot.Sysroot, commit string, opts Options) *Image {
	t.Helper()
	m, err := Build(t.TempDir(), s.Repo(), commit, opts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func ostree(t *testing.T, args ...string) string {
	t.Helper()
	out, err := sysroot.Ostree(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// unpack extracts the layers of an image in order. The tar reader of the
// standard library stands between the writer and the file system.
func unpack(t *testing.T, dir string, layers ...Layer) (names [][]string) {
	t.Helper()
	for _, l := range layers {
		names = append(names, unpackLayer(t, dir, l))
	}
	return names
}

func unpackLayer(t *testing.T, dir string, l Layer) (names []string) {
	t.Helper()
	plain, err := l.Tar()
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	r := tar.NewReader(plain)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.ModTime.Unix() != 0 {
			t.Errorf("%s has the time %v, want zero", h.Name, h.ModTime)
		}
		names = append(names, h.Name)
		if err := extract(filepath.Join(dir, h.Name), dir, h, r); err != nil {
			t.Fatal(err)
		}
	}
}

func extract(target, dir string, h *tar.Header, r io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(target, 0o755)
	case tar.TypeLink:
		return os.Link(filepath.Join(dir, h.Linkname), target)
	case tar.TypeSymlink:
		return os.Symlink(h.Linkname, target)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(target, data, 0o644); err != nil {
		return err
	}
	return os.Chmod(target, h.FileInfo().Mode())
}

func TestLayersAreARepository(t *testing.T) {
	s, commit := newSource(t, sysroot.CommitOptions{Packages: sysroot.Packages(100, sysroot.DefaultKernel)})
	tests := []struct {
		name   string
		opts   Options
		layers int
	}{
		{"chunks", Options{}, 1 + DefaultChunks},
		{"commit layer alone", Options{Chunks: -1, Compression: Zstd}, 1},
		{"linked attributes, many chunks", Options{Chunks: 40, HardlinkXattrs: true, Compression: Uncompressed, Format: DockerV2S2}, 9},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := build(t, s, commit, tt.opts)
			if len(m.Layers) != tt.layers {
				t.Fatalf("%d layers, want %d", len(m.Layers), tt.layers)
			}
			if got, want := m.FinalLayer(), tt.layers-1; got != want {
				t.Errorf("ostree.final-diffid names layer %d, want %d", got, want)
			}
			dir := t.TempDir()
			names := unpack(t, dir, m.Layers...)
			checkOrder(t, names, commit)
			repo := filepath.Join(dir, "sysroot/ostree/repo")
			ostree(t, "show", "--repo="+repo, commit)
			if got, want := ostree(t, "ls", "--repo="+repo, "-RCX", commit), ostree(t, "ls", "--repo="+s.Repo(), "-RCX", commit); got != want {
				t.Errorf("the commit lists otherwise:\n%s", cmp.Diff(want, got))
			}
			// It reads every object and hashes it.
			ostree(t, "fsck", "--repo="+repo, "--all")
			damage(t, repo)
			if _, err := sysroot.Ostree("fsck", "--repo="+repo, "--all"); err == nil {
				t.Error("fsck does not see a damaged object: it checks nothing")
			}
			if link, err := os.Readlink(filepath.Join(dir, "ostree")); err != nil || link != "sysroot/ostree" {
				t.Errorf("the image's /ostree: %q, %v", link, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "etc/passwd")); err != nil {
				t.Errorf("the image's own tree: %v", err)
			}
		})
	}
}

// damage appends a byte to a content object of a repository.
func damage(t *testing.T, repo string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repo, "objects/*/*.file"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if info, err := os.Lstat(name); err != nil || !info.Mode().IsRegular() {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, append(data, '!'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("no regular content object")
}

// checkOrder holds what an importer relies on: the commit is the first object,
// attributes precede their object, metadata is in the first layer alone.
func checkOrder(t *testing.T, layers [][]string, commit string) {
	t.Helper()
	const objects = "sysroot/ostree/repo/objects/"
	for i, names := range layers {
		if names[0] != "./" {
			t.Errorf("layer %d starts with %s", i, names[0])
		}
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool {
			return !strings.HasPrefix(n, objects) || strings.HasSuffix(n, "/")
		})
		if i == 0 {
			if want := objects + commit[:2] + "/" + commit[2:] + ".commit"; names[0] != want {
				t.Errorf("first object %s, want %s", names[0], want)
			}
		}
		for j, n := range names {
			switch filepath.Ext(n) {
			case ".file":
				if want := strings.TrimSuffix(n, ".file") + ".file-xattrs-link"; names[j-1] != want {
					t.Errorf("layer %d: %s follows %s", i, n, names[j-1])
				}
			case ".commit", ".dirtree", ".dirmeta":
				if i > 0 {
					t.Errorf("layer %d holds metadata: %s", i, n)
				}
			}
		}
	}
}

func TestBuildIsDeterministicAndDigestsHold(t *testing.T) {
	s, commit := newSource(t, sysroot.CommitOptions{})
	m := build(t, s, commit, Options{})
	again := build(t, s, commit, Options{})
	if m.Digest != again.Digest {
		t.Error("two builds of one commit differ")
	}
	for _, b := range append(m.Blobs(), Blob{Digest: m.Digest, Size: int64(len(m.ManifestBytes)), data: m.ManifestBytes}) {
		r, err := b.Open()
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		n, err := io.Copy(h, r)
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); got != b.Digest || n != b.Size {
			t.Errorf("blob %s of %d bytes is %s of %d", b.Digest, b.Size, got, n)
		}
	}
	want := map[string]string{
		"ostree.commit": commit, "ostree.final-diffid": m.Layers[3].DiffID, "ostree.bootable": "true",
		"ostree.linux": sysroot.DefaultKernel, "version": sysroot.DefaultVersion,
		"org.opencontainers.image.version": sysroot.DefaultVersion, "containers.bootc": "1",
	}
	if diff := cmp.Diff(want, m.Config.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if got, want := m.Config.Created.Unix(), int64(sysroot.DefaultTimestamp); got != want {
		t.Errorf("created %d, want the commit's time %d", got, want)
	}
}

func TestVariants(t *testing.T) {
	s, commit := newSource(t, sysroot.CommitOptions{})
	dir := t.TempDir()
	docker := build(t, s, commit, Options{Format: DockerV2S2})
	oci := build(t, s, commit, Options{})
	must := func(m *Image, err error) *Image {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	lying := build(t, s, commit, Options{Labels: map[string]string{"ostree.commit": "0000"}, WithoutLabels: []string{"version"}})
	other := build(t, s, commit, Options{Chunks: -1})
	tests := []struct {
		name                      string
		a, b                      *Image
		manifest, config, diffIDs bool // the same in both
	}{
		{"recompressed", oci, must(Recompress(dir, oci, Zstd)), false, true, true},
		{"oci to v2s2", oci, must(ConvertToV2S2(oci)), false, true, true},
		{"v2s2 to oci", docker, must(ConvertToOCI(docker)), false, false, true},
		{"v2s2 and back", oci, must(ConvertToOCI(must(ConvertToV2S2(oci)))), false, false, true},
		{"lying label", oci, lying, false, false, true},
		{"edited", oci, must(oci.Edit(func(c *Config) { c.Architecture = "s390x" })), false, false, true},
		{"edited to nothing new", oci, must(oci.Edit(func(*Config) {})), true, true, true},
		{"other first layer", oci, must(ReplaceLayer0(oci, other.Layers[0], false)), false, false, false},
		{"other first layer, old diff id", oci, must(ReplaceLayer0(oci, other.Layers[0], true)), false, true, true},
		{"derived", oci, must(Derive(dir, oci, nil, DerivedLayer{})), false, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := []bool{
				tt.a.Digest == tt.b.Digest, string(tt.a.ConfigBytes) == string(tt.b.ConfigBytes),
				slices.Equal(tt.a.Config.DiffIDs, tt.b.Config.DiffIDs),
			}
			if diff := cmp.Diff([]bool{tt.manifest, tt.config, tt.diffIDs}, got); diff != "" {
				t.Errorf("same manifest, config, diff ids (-want +got):\n%s", diff)
			}
			if strings.Contains(string(tt.b.ManifestBytes), "annotations") != (tt.b.Format == OCI) {
				t.Errorf("annotations in the wrong format: %s", tt.b.ManifestBytes)
			}
		})
	}
	if lying.Config.Labels["version"] != "" || lying.Annotations["ostree.commit"] != "0000" {
		t.Errorf("labels %v, annotations %v", lying.Config.Labels, lying.Annotations)
	}
}

func TestLegacy(t *testing.T) {
	s, commit := newSource(t, sysroot.CommitOptions{})
	second, err := s.CommitTree(sysroot.Tree{Version: "48.1.2-0"}, sysroot.CommitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	extensions := t.TempDir()
	if err := os.WriteFile(filepath.Join(extensions, "usbguard.rpm"), []byte("rpm"), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name    string
		commits []string
		opts    LegacyOptions
		layers  int
	}{
		{"label", []string{commit}, LegacyOptions{Format: DockerV2S2, Label: commit, PackageList: "bash-5.1\n", Extensions: extensions}, 2},
		{"from scratch, two commits, a ref", []string{commit, second}, LegacyOptions{
			Compression: Uncompressed, WithoutBase: true, Refs: map[string]string{"fedora/x86_64/coreos": second}, RepoFirst: true, Extensions: extensions,
		}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := BuildLegacy(t.TempDir(), s.Repo(), tt.commits, tt.opts)
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Layers) != tt.layers || m.Config.Labels["com.coreos.ostree-commit"] != tt.opts.Label {
				t.Errorf("%d layers, labels %v", len(m.Layers), m.Config.Labels)
			}
			dir := t.TempDir()
			unpack(t, dir, m.Layers...)
			repo := filepath.Join(dir, "srv/repo")
			for _, c := range tt.commits {
				ostree(t, "show", "--repo="+repo, c)
			}
			ostree(t, "fsck", "--repo="+repo, "--all")
			if got := ostree(t, "refs", "--repo="+repo); (got != "") != (tt.opts.Refs != nil) {
				t.Errorf("refs: %q", got)
			}
			if _, err := os.Stat(filepath.Join(dir, "extensions/usbguard.rpm")); err != nil {
				t.Error(err)
			}
		})
	}
}
