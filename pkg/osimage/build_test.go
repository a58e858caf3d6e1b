package osimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
	imgspecv1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/manifest"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/registry"
)

// commitBytes makes a commit object by hand: no metadata, and a root that the
// seed stands in.
func commitBytes(seed byte) []byte {
	b := []byte{0, 0} // subject and body, empty
	b = append(b, make([]byte, 6)...)
	b = binary.BigEndian.AppendUint64(b, 1700000000)
	b = append(b, bytes.Repeat([]byte{seed}, 32)...)
	b = append(b, bytes.Repeat([]byte{seed + 1}, 32)...)
	return append(b, 48, 2, 1, 0, 0, 0)
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func objectPath(repo, checksum string) string {
	return repo + "/objects/" + checksum[:2] + "/" + checksum[2:] + ".commit"
}

type entry struct {
	name string
	data []byte
	kind byte
}

func file(name string, data []byte) entry { return entry{name, data, tar.TypeReg} }

// commitEntry is a commit object in the place where ostree-ext puts it.
func commitEntry(commit []byte) entry {
	return file(objectPath("sysroot/ostree/repo", sum(commit)), commit)
}

func makeTar(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: 0o644}
		switch e.kind {
		case tar.TypeReg:
			h.Size = int64(len(e.data))
		case tar.TypeLink, tar.TypeSymlink:
			h.Linkname = string(e.data)
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if e.kind == tar.TypeReg {
			if _, err := w.Write(e.data); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// noise does not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	if _, err := r.Read(b); err != nil {
		panic(err) // it never fails
	}
	return b
}

// nativeTar is layer 0 of an encapsulated commit, with content behind it.
func nativeTar(t testing.TB, commit []byte, after ...entry) []byte {
	t.Helper()
	head := []entry{
		{"sysroot/", nil, tar.TypeDir},
		{"sysroot/ostree/repo/", nil, tar.TypeDir},
		file("sysroot/ostree/repo/config", []byte("[core]\nrepo_version=1\nmode=bare-split-xattrs\n")),
		{"ostree", []byte("sysroot/ostree"), tar.TypeSymlink},
		commitEntry(commit),
	}
	return makeTar(t, append(head, after...)...)
}

const (
	plain = ""
	gz    = "gzip"
	zst   = "zstd"
)

func compress(t testing.TB, how string, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	switch how {
	case gz:
		w := gzip.NewWriter(&out)
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	case zst:
		w, err := zstd.NewWriter(&out)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	default:
		return b
	}
	return out.Bytes()
}

// A spec says what image to build.
type spec struct {
	docker bool
	how    string // compression
	tars   [][]byte
	arch   string
	labels map[string]string
	// blobs and diffIDs, where set, stand in for the true ones of the tars.
	blobs   [][]byte
	diffIDs []string
}

// A built image: its bytes.
type built struct {
	manifest, config []byte
	mediaType        string
	blobs            [][]byte
	digest           string
}

func (s spec) build(t testing.TB) built {
	t.Helper()
	var b built
	layerType := map[string]string{plain: imgspecv1.MediaTypeImageLayer, gz: imgspecv1.MediaTypeImageLayerGzip, zst: imgspecv1.MediaTypeImageLayerZstd}[s.how]
	configType := imgspecv1.MediaTypeImageConfig
	b.mediaType = imgspecv1.MediaTypeImageManifest
	if s.docker {
		b.mediaType, configType = manifest.DockerV2Schema2MediaType, manifest.DockerV2Schema2ConfigMediaType
		layerType = map[string]string{plain: "application/vnd.docker.image.rootfs.diff.tar", gz: manifest.DockerV2Schema2LayerMediaType, zst: "application/vnd.docker.image.rootfs.diff.tar.zstd"}[s.how]
	}
	b.blobs = s.blobs
	diffIDs := s.diffIDs
	var layers []map[string]any
	for i, tarball := range s.tars {
		if s.blobs == nil || i >= len(b.blobs) {
			b.blobs = append(b.blobs, compress(t, s.how, tarball))
		}
		if s.diffIDs == nil {
			diffIDs = append(diffIDs, "sha256:"+sum(tarball))
		}
		layers = append(layers, map[string]any{"mediaType": layerType, "digest": "sha256:" + sum(b.blobs[i]), "size": len(b.blobs[i])})
	}
	arch := s.arch
	if arch == "" {
		arch = "amd64"
	}
	b.config = mustJSON(t, map[string]any{
		"architecture": arch, "os": "linux", "config": map[string]any{"Labels": s.labels},
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs},
	})
	b.manifest = mustJSON(t, map[string]any{
		"schemaVersion": 2, "mediaType": b.mediaType, "layers": layers,
		"config": map[string]any{"mediaType": configType, "digest": "sha256:" + sum(b.config), "size": len(b.config)},
	})
	b.digest = "sha256:" + sum(b.manifest)
	return b
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// native is an encapsulated commit with a label that says so.
func native(t testing.TB, commit []byte) spec {
	t.Helper()
	tarball := nativeTar(t, commit)
	return spec{how: gz, tars: [][]byte{tarball}, labels: labelsFor(tarball, commit)}
}

func labelsFor(finalLayer, commit []byte, more ...string) map[string]string {
	l := map[string]string{LabelFinalDiffID: "sha256:" + sum(finalLayer)}
	if commit != nil {
		l[LabelCommit] = sum(commit)
	}
	for i := 0; i+1 < len(more); i += 2 {
		l[more[i]] = more[i+1]
	}
	return l
}

func startRegistry(t testing.TB, opts registry.Options) *registry.Registry {
	t.Helper()
	r, err := registry.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// push stores an image and returns its pull spec by digest.
func push(t testing.TB, r *registry.Registry, b built) string {
	t.Helper()
	blobs := b.blobs
	if b.config != nil {
		blobs = append([][]byte{b.config}, blobs...)
	}
	for _, blob := range blobs {
		if err := r.PutBlob("os", nativeimage.BytesBlob(blob)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.PutManifest("os", b.digest, b.mediaType, b.manifest); err != nil {
		t.Fatal(err)
	}
	return r.Reference("os", b.digest)
}

const acceptAnything = `{"default":[{"type":"insecureAcceptAnything"}]}`

// insecure allows plain HTTP to a registry.
func insecure(r *registry.Registry) string {
	return "[[registry]]\nlocation = \"" + r.Host + "\"\ninsecure = true\n"
}

// writeRoot makes a root with files.
func writeRoot(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func openRoot(t testing.TB, dir string) *hostfs.Root {
	t.Helper()
	root, err := hostfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func loadConfig(t testing.TB, files map[string]string, opts ConfigOptions) *Config {
	t.Helper()
	c, err := LoadConfig(openRoot(t, writeRoot(t, files)), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// configFor is a host that reaches r by plain HTTP.
func configFor(t testing.TB, r *registry.Registry, more map[string]string) *Config {
	t.Helper()
	files := map[string]string{registriesConf: insecure(r), policyPath: acceptAnything}
	maps.Copy(files, more)
	return loadConfig(t, files, ConfigOptions{})
}

func openImage(t testing.TB, ref string, c *Config) *Image {
	t.Helper()
	img, err := Open(ref, c, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { img.Close() })
	return img
}
