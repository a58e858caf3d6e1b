package nativeimage

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/test/sysroot"
)

func TestImport(t *testing.T) {
	s, commit := newSource(t, sysroot.CommitOptions{})
	base := build(t, s, commit, Options{Format: DockerV2S2})
	derived, err := Derive(t.TempDir(), base, map[string]string{"io.openshift.metalayer": "true"}, DerivedLayer{
		Files:   map[string]sysroot.File{"usr/bin/oc": {Content: "oc", Mode: 0o755}, "etc/motd": {Content: "hello"}, "usr/bin/oc2": {Link: "oc"}},
		Removed: []string{"usr/share/empty"},
	})
	if err != nil {
		t.Fatal(err)
	}
	root, err := sysroot.NewRoot(filepath.Join(sysroot.TempDir(t), "root"))
	if err != nil {
		t.Fatal(err)
	}
	repo := root.Sysroot.Repo()
	const spec = "quay.io/os_x/rhcos@sha256:0123"
	merge, err := Import(repo, base, ImportOptions{PullSpec: spec, WithParent: true})
	if err != nil {
		t.Fatal(err)
	}
	top, err := Import(repo, derived, ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ostree(t, "fsck", "--repo="+repo)

	if got, want := contentOf(t, repo, merge), contentOf(t, repo, commit); got != want {
		t.Errorf("content of the merge commit %s, want the inner commit's %s", got, want)
	}
	checkEmptyDerivedLayer(t, repo, base)
	if contentOf(t, repo, top) == contentOf(t, repo, commit) {
		t.Error("the derived layer changed nothing")
	}
	if got := ostree(t, "rev-parse", "--repo="+repo, "ostree/container/blob/sha256_3A_"+base.Layers[0].Digest[7:]); got != commit {
		t.Errorf("ref of the first layer: %s, want %s", got, commit)
	}
	if got := ostree(t, "rev-parse", "--repo="+repo, "ostree/container/image/docker_3A__2F__2F_quay_2E_io/os__x/rhcos_40_sha256_3A_0123"); got != merge {
		t.Errorf("ref of the image: %s, want %s", got, merge)
	}
	if got := ostree(t, "rev-parse", "--repo="+repo, merge+"^"); got != commit {
		t.Errorf("parent: %s, want %s", got, commit)
	}
	checkMetadata(t, repo, merge, base)
	for name, want := range map[string]string{"/usr/bin/oc": "-00755 0 0      2", "/usr/etc/motd": "-00644 0 0      5", "/usr/bin/oc2": "l00777 0 0      0"} {
		if got := ostree(t, "ls", "--repo="+repo, top, name); !strings.HasPrefix(got, want) {
			t.Errorf("ls %s: %q, want %q", name, got, want)
		}
	}
	if _, err := sysroot.Ostree("ls", "--repo="+repo, top, "/usr/share/empty"); err == nil {
		t.Error("the removed file is there")
	}
	d, err := root.Sysroot.Deploy(merge, sysroot.DeployOptions{Origin: sysroot.ContainerOrigin("ostree-unverified-registry:" + spec)})
	if err != nil {
		t.Fatal(err)
	}
	if err := root.Boot(d, sysroot.BootOptions{}); err != nil {
		t.Fatal(err)
	}
}

// checkEmptyDerivedLayer holds that the way through a checkout, which derived
// layers take, changes nothing by itself.
func checkEmptyDerivedLayer(t *testing.T, repo string, base *Image) {
	t.Helper()
	empty, err := Derive(t.TempDir(), base, nil, DerivedLayer{})
	if err != nil {
		t.Fatal(err)
	}
	same, err := Import(repo, empty, ImportOptions{WithoutBlobRefs: true})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := contentOf(t, repo, same), contentOf(t, repo, base.Commit); got != want {
		t.Errorf("content with an empty derived layer %s, want the inner commit's %s", got, want)
	}
}

// checkMetadata holds the stored manifest of a v2s2 image against the image.
func checkMetadata(t *testing.T, repo, merge string, m *Image) {
	t.Helper()
	key := func(k string) string {
		out := ostree(t, "show", "--repo="+repo, "--print-metadata-key="+k, merge)
		return strings.Trim(out, "'")
	}
	if got := key("ostree.manifest-digest"); got != m.Digest {
		t.Errorf("manifest digest: %s, want %s", got, m.Digest)
	}
	var stored manifest
	if err := json.Unmarshal([]byte(key("ostree.manifest")), &stored); err != nil {
		t.Fatal(err)
	}
	if got, want := stored.MediaType, "application/vnd.oci.image.manifest.v1+json"; got != want {
		t.Errorf("stored manifest: %s, want %s", got, want)
	}
	if stored.Layers[0].Digest != m.Layers[0].Digest || stored.Config.Digest == m.ConfigBlob().Digest {
		t.Error("the stored manifest is not the converted one")
	}
	var config struct {
		Config struct{ Labels map[string]string }
	}
	if err := json.Unmarshal([]byte(key("ostree.container.image-config")), &config); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m.Config.Labels, config.Config.Labels); diff != "" {
		t.Errorf("labels of the stored config (-want +got):\n%s", diff)
	}
	if _, err := sysroot.Ostree("show", "--repo="+repo, "--print-metadata-key=version", merge); err == nil {
		t.Error("the merge commit has a version")
	}
}

func contentOf(t *testing.T, repo, commit string) string {
	t.Helper()
	for line := range strings.Lines(ostree(t, "show", "--repo="+repo, commit)) {
		if sum, ok := strings.CutPrefix(line, "ContentChecksum:"); ok {
			return strings.TrimSpace(sum)
		}
	}
	t.Fatalf("no content checksum of %s", commit)
	return ""
}

func TestEscapeRef(t *testing.T) {
	tests := []struct{ text, want string }{
		{"docker://quay.io/fedora/fedora-coreos:stable", "docker_3A__2F__2F_quay_2E_io/fedora/fedora-coreos_3A_stable"},
		{"oci-archive:/rhcos-416.92-ostree.x86_64.ociarchive", "oci-archive_3A__2F_rhcos-416_2E_92-ostree_2E_x86__64_2E_ociarchive"},
		{"/a/", "_2F_a_2F_"},
	}
	for _, tt := range tests {
		if got := EscapeRef(tt.text); got != tt.want {
			t.Errorf("EscapeRef(%q): got %s, want %s", tt.text, got, tt.want)
		}
	}
}
