package ostree_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// An image is what a merge commit is made from.
type image struct {
	// layers are the digests, inner the layers up to ostree.final-diffid.
	layers  []string
	diffIDs []string
	labels  map[string]string
	arch    string
}

func digest(c string) string { return "sha256:" + strings.Repeat(c, 64) }

func newImage() *image {
	return &image{
		layers: []string{digest("1"), digest("2"), digest("3")}, diffIDs: []string{digest("a"), digest("b"), digest("c")},
		labels: map[string]string{"ostree.final-diffid": digest("c"), "org.opencontainers.image.version": "9.6.2", "version": "old", "ostree.linux": kernel},
		arch:   "amd64",
	}
}

func (i *image) metadata(t testing.TB) []string {
	t.Helper()
	type m = map[string]any
	var layers []m
	for _, l := range i.layers {
		layers = append(layers, m{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": l, "size": 1})
	}
	manifest, err := json.Marshal(m{"schemaVersion": 2, "config": m{"digest": digest("d"), "size": 1}, "layers": layers})
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(m{"architecture": i.arch, "os": "linux", "config": m{"Labels": i.labels}, "rootfs": m{"type": "layers", "diff_ids": i.diffIDs}})
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"--add-metadata-string=ostree.manifest-digest=" + digest("e"), "--add-metadata-string=ostree.manifest=" + string(manifest),
		"--add-metadata-string=ostree.container.image-config=" + string(config), "--add-metadata-string=ostree.importer.version=0.15.3",
	}
}

const blobRef = "ostree/container/blob/sha256_3A_1111111111111111111111111111111111111111111111111111111111111111"

// deployImage commits a base, merges it and deploys the merge.
func (s *system) deployImage(i *image, args ...string) (base, merge string) {
	s.t.Helper()
	base = s.commit(newTree(s.t), blobRef)
	args = append(append([]string{"commit", "-b", "ostree/container/image/x", "--tree=ref=" + base}, i.metadata(s.t)...), args...)
	merge = s.repo(args...)
	s.deploy(merge, "--os="+stateroot)
	replaceFile(s.t, s.deploymentFile(".origin"), []byte("[origin]\ncontainer-image-reference=ostree-unverified-registry:quay.io/x:1\n"))
	return base, merge
}

func TestFactsOfContainer(t *testing.T) {
	s := newSystem(t)
	base, merge := s.deployImage(newImage())
	f := s.facts()
	d := known(t, "deployment", f.Booted.Deployment)
	if d.Kind != verdict.ContainerImage || string(d.Checksum) != merge || len(d.Divergences) != 0 {
		t.Errorf("deployment: got %+v", d)
	}
	id := f.Booted.Identity
	inner := known(t, "inner commit", id.InnerCommit)
	if string(inner.Checksum) != base || inner.Source != verdict.CommitFromBlobRef || inner.Root != d.Root {
		t.Errorf("inner commit: got %+v, deployment's root %+v", inner, d.Root)
	}
	if got := known(t, "manifest digest", id.ManifestDigest); string(got) != digest("e") {
		t.Errorf("manifest digest: got %s", got)
	}
	if got := known(t, "config digest", id.ConfigDigest); string(got) != digest("d") {
		t.Errorf("config digest: got %s", got)
	}
	want := []verdict.Digest{verdict.Digest(digest("a")), verdict.Digest(digest("b")), verdict.Digest(digest("c"))}
	if got := known(t, "diff ids", id.DiffIDs); !cmp.Equal(got, want) {
		t.Errorf("diff ids: got %v", got)
	}
	if got := known(t, "final diff id", id.FinalDiffID); got != want[2] {
		t.Errorf("final diff id: got %s", got)
	}
	if n, m := known(t, "layers", id.Layers), known(t, "derived layers", id.DerivedLayers); n != 3 || m != 0 {
		t.Errorf("layers: got %d, derived %d", n, m)
	}
	if id.Version != "9.6.2" || id.KernelRelease != kernel || known(t, "image architecture", id.Architecture) != "amd64" {
		t.Errorf("got %+v", id)
	}
	if got := known(t, "origin reference", f.Booted.OriginReference); got != "quay.io/x:1" {
		t.Errorf("origin reference: got %s", got)
	}
	if len(f.Booted.Blobs) != 1 || !f.Booted.Blobs[verdict.Digest(digest("1"))] {
		t.Errorf("blobs: got %v", f.Booted.Blobs)
	}
}

func TestContainerVariants(t *testing.T) {
	const none = -1
	tests := []struct {
		name    string
		change  func(i *image)
		parent  string // "base", "" or another
		noBlob  bool
		derived int // none for unknown
		source  verdict.CommitSource
		why     string
	}{
		{name: "derived", change: func(i *image) { i.labels["ostree.final-diffid"] = digest("a") }, derived: 2, source: verdict.CommitFromBlobRef},
		{name: "no final-diffid", change: func(i *image) { delete(i.labels, "ostree.final-diffid") }, derived: none, why: "no label ostree.final-diffid"},
		{name: "squashed", change: func(i *image) { i.labels["ostree.final-diffid"] = digest("9") }, derived: none, source: verdict.CommitFromBlobRef},
		{name: "final-diffid twice", change: func(i *image) { i.diffIDs[0] = digest("c") }, derived: none, source: verdict.CommitFromBlobRef},
		{name: "final-diffid is no digest", change: func(i *image) { i.labels["ostree.final-diffid"] = "x" }, derived: none, source: verdict.CommitFromBlobRef},
		{name: "fewer diff ids", change: func(i *image) { i.diffIDs = i.diffIDs[1:] }, derived: none, source: verdict.CommitFromBlobRef},
		{name: "no blob ref, no parent", change: func(*image) {}, noBlob: true, derived: 0, why: "no parent"},
		{name: "no blob ref, parent without a label", change: func(*image) {}, noBlob: true, parent: "base", derived: 0, why: "no label ostree.commit"},
		{name: "no blob ref, parent is the label", change: func(i *image) { i.labels["ostree.commit"] = "base" }, noBlob: true, parent: "base", derived: 0, source: verdict.CommitFromParent},
		{name: "no blob ref, stale label", change: func(i *image) { i.labels["ostree.commit"] = strings.Repeat("7", 64) }, noBlob: true, parent: "base", derived: 0, why: "is not the label"},
		{name: "blob ref beats label", change: func(i *image) { i.labels["ostree.commit"] = strings.Repeat("7", 64) }, derived: 0, source: verdict.CommitFromBlobRef},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			i := newImage()
			tt.change(i)
			base := s.commit(newTree(t), blobRef)
			if i.labels["ostree.commit"] == "base" {
				i.labels["ostree.commit"] = base
			}
			args := append([]string{"commit", "-b", "ostree/container/image/x", "--tree=ref=" + base}, i.metadata(t)...)
			if tt.parent == "base" {
				args = append(args, "--parent="+base)
			}
			s.deploy(s.repo(args...), "--os="+stateroot)
			if tt.noBlob {
				s.repo("refs", "--delete", blobRef)
			}
			id := s.facts().Booted.Identity
			if tt.derived == none {
				unknown(t, "derived layers", id.DerivedLayers, "")
			} else if n := known(t, "derived layers", id.DerivedLayers); n != tt.derived {
				t.Errorf("derived layers: got %d, want %d", n, tt.derived)
			}
			if _, ok := i.labels["ostree.final-diffid"]; !ok && known(t, "final diff id", id.FinalDiffID) != "" {
				t.Error("final diff id: want it empty")
			}
			if tt.source == "" {
				unknown(t, "inner commit", id.InnerCommit, tt.why)
			} else if c := known(t, "inner commit", id.InnerCommit); string(c.Checksum) != base || c.Source != tt.source {
				t.Errorf("inner commit: got %+v, want %s from %s", c, base, tt.source)
			}
		})
	}
}

// A blob ref that leads to a layer's import, or to nothing, proves nothing.
func TestInnerCommitNotShown(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, s *system, base string)
		why   string
	}{
		{"imported layer", func(t *testing.T, s *system, _ string) {
			s.commit(newTree(t), blobRef, "--add-metadata-string=ostree.importer.version=0.15")
		}, "imported layer"},
		{"commit is gone", func(t *testing.T, s *system, base string) { remove(t, s.object(base, "commit")) }, "no such file"},
		{"commit is corrupt", func(t *testing.T, s *system, base string) {
			replaceFile(t, s.object(base, "commit"), []byte("x"))
		}, "corrupt"},
		{"ref is garbage", func(t *testing.T, s *system, _ string) {
			write(t, filepath.Join(s.dir, "ostree/repo/refs/heads", blobRef), "garbage\n")
		}, "checksum"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			base, _ := s.deployImage(newImage())
			tt.spoil(t, s, base)
			f := s.facts()
			unknown(t, "inner commit", f.Booted.Identity.InnerCommit, tt.why)
			known(t, "manifest digest", f.Booted.Identity.ManifestDigest)
		})
	}
}

func TestContainerMetadataMalformed(t *testing.T) {
	tests := []struct {
		name string
		args []string
		// known facts; the others are unknown.
		manifest, config, diffIDs bool
	}{
		{"digest only", []string{"--add-metadata-string=ostree.manifest-digest=" + digest("e")}, true, false, false},
		{"digest malformed", []string{"--add-metadata-string=ostree.manifest-digest=x"}, false, false, false},
		{"digest of another type", []string{"--add-metadata=ostree.manifest-digest=true"}, false, false, false},
		{"manifest is no JSON", []string{"--add-metadata-string=ostree.manifest={"}, false, false, false},
		{"manifest without layers", []string{"--add-metadata-string=ostree.manifest={}"}, false, false, false},
		{"manifest with a bad layer", []string{`--add-metadata-string=ostree.manifest={"config":{"digest":"` + digest("d") + `"},"layers":[{"digest":"x"}]}`}, false, false, false},
		{"manifest with a bad config", []string{`--add-metadata-string=ostree.manifest={"layers":[{"digest":"` + digest("1") + `"}]}`}, false, false, false},
		{"config only", []string{`--add-metadata-string=ostree.container.image-config={"architecture":"amd64","rootfs":{"diff_ids":["` + digest("a") + `"]}}`}, false, false, true},
		{"config without diff ids", []string{`--add-metadata-string=ostree.container.image-config={"architecture":"amd64"}`}, false, false, false},
		{"config without architecture", []string{`--add-metadata-string=ostree.container.image-config={"rootfs":{"diff_ids":["` + digest("a") + `"]}}`}, false, false, false},
		{"config with a bad diff id", []string{`--add-metadata-string=ostree.container.image-config={"architecture":"amd64","rootfs":{"diff_ids":["x"]}}`}, false, false, false},
		{"config is a list", []string{"--add-metadata-string=ostree.container.image-config=[]"}, false, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			s.commit(newTree(t), testRef, tt.args...)
			s.deploy(testRef, "--os="+stateroot)
			f := s.facts()
			if d := known(t, "deployment", f.Booted.Deployment); d.Kind != verdict.ContainerImage {
				t.Errorf("kind: got %s", d.Kind)
			}
			id := f.Booted.Identity
			got := []bool{id.ManifestDigest.IsKnown(), id.ConfigDigest.IsKnown(), id.DiffIDs.IsKnown(), id.InnerCommit.IsKnown(), id.DerivedLayers.IsKnown()}
			if diff := cmp.Diff([]bool{tt.manifest, tt.config, tt.diffIDs, false, false}, got); diff != "" {
				t.Errorf("known (-want +got):\n%s", diff)
			}
		})
	}
}
