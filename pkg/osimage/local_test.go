package osimage

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"

	imgspecv1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// layout is an OCI layout, file by file.
func layout(t testing.TB, b built) map[string]string {
	t.Helper()
	files := map[string]string{
		"oci-layout": `{"imageLayoutVersion":"1.0.0"}`,
		"index.json": string(mustJSON(t, map[string]any{
			"schemaVersion": 2, "mediaType": imgspecv1.MediaTypeImageIndex,
			"manifests": []map[string]any{{"mediaType": b.mediaType, "digest": b.digest, "size": len(b.manifest)}},
		})),
	}
	for _, blob := range append([][]byte{b.manifest, b.config}, b.blobs...) {
		files["blobs/sha256/"+sum(blob)] = string(blob)
	}
	return files
}

// Images on this machine are read like those in a registry, with no request.
func TestLocalImages(t *testing.T) {
	commit := commitBytes(7)
	tarball := nativeTar(t, commit, file("x", noise(1<<20)))
	b := spec{how: gz, tars: [][]byte{tarball}, labels: labelsFor(tarball, commit)}.build(t)
	files := layout(t, b)
	var entries []entry
	for _, dir := range []string{"blobs/", "blobs/sha256/"} {
		entries = append(entries, entry{dir, nil, tar.TypeDir})
	}
	for name, content := range files {
		entries = append(entries, file(name, []byte(content)))
	}
	archive := filepath.Join(t.TempDir(), "os.ociarchive")
	if err := os.WriteFile(archive, makeTar(t, entries...), 0o644); err != nil {
		t.Fatal(err)
	}
	folder := map[string]string{"version": "Directory Transport Version: 1.1\n", "manifest.json": string(b.manifest)}
	for _, blob := range append([][]byte{b.config}, b.blobs...) {
		folder[sum(blob)] = string(blob)
	}
	c := loadConfig(t, nil, ConfigOptions{})
	for _, ref := range []string{"oci:" + writeRoot(t, files), "oci-archive:" + archive, "dir:" + writeRoot(t, folder)} {
		img := openImage(t, ref, c)
		got, err := img.InnerCommit(t.Context(), "")
		if err != nil || got != wantCommit(commit, verdict.CommitFromLayerHead) {
			t.Errorf("%s: got %v, %v", ref, got, err)
		}
		if d, ok := img.Identity().ManifestDigest.Get(); !ok || string(d) != b.digest {
			t.Errorf("%s: manifest digest %s", ref, d)
		}
		if cost := img.Transfer(); cost.Requests != 0 || cost.Bytes > 270<<10 || !img.Local() {
			t.Errorf("%s: got %+v, local %v", ref, cost, img.Local())
		}
	}
	for _, ref := range []string{"oci:/does/not/exist", "oci-archive:/does/not/exist", "dir:" + t.TempDir()} {
		img, err := Open(ref, c, "amd64")
		if err == nil {
			_, err = img.Instance(t.Context())
			img.Close()
		}
		if code := CodeOf(err); code != ImageNotFound && code != ReferenceInvalid {
			t.Errorf("%s: got %q: %v", ref, code, err)
		}
	}
	// A blob that was changed is found out.
	b.config = append(b.config, ' ')
	folder[sum(b.config[:len(b.config)-1])] = string(b.config)
	if _, err := openImage(t, "dir:"+writeRoot(t, folder), c).Config(t.Context()); CodeOf(err) != DigestMismatch {
		t.Errorf("changed config: got %v", err)
	}
}
