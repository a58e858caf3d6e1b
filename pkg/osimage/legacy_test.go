package osimage

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/sysroot"
)

func legacyPath(commit []byte) string { return objectPath("srv/repo", sum(commit)) }

func legacyEntry(commit []byte) entry { return file(legacyPath(commit), commit) }

func legacyLabel(commit []byte) map[string]string {
	return map[string]string{LabelLegacyCommit: sum(commit), "version": "47.83", "com.redhat.component": "ubi8-container"}
}

// legacySource makes a repository with two commits of half a MiB.
func legacySource(t *testing.T) (repo, commit, other string) {
	t.Helper()
	s, err := sysroot.New(filepath.Join(sysroot.TempDir(t), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	var commits [2]string
	for i := range commits {
		tree := sysroot.Tree{FillerBytes: 512 << 10, Version: fmt.Sprintf("47.83.%d", i)}
		if commits[i], err = s.CommitTree(tree, sysroot.CommitOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return s.Repo(), commits[0], commits[1]
}

// rootOf asks the ostree tool for a commit's root.
func rootOf(t *testing.T, repo, commit string) verdict.Root {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(repo, "objects", commit[:2], commit[2:]+".commit"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := format.ParseCommit(b)
	if err != nil {
		t.Fatal(err)
	}
	return c.Root
}

// Images as coreos-assembler and CI made them, in every form; where a label
// names the commit, no more is read than lies before its object.
func TestLegacyCommit(t *testing.T) {
	t.Parallel()
	repo, commit, other := legacySource(t)
	extensions := t.TempDir()
	if err := os.WriteFile(filepath.Join(extensions, "kernel-rt.rpm"), noise(1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	r := startRegistry(t, registry.Options{})
	c := configFor(t, r, nil)
	ref := map[string]string{"fedora/x86_64/coreos/stable": commit}
	tests := []struct {
		name    string
		opts    nativeimage.LegacyOptions
		commits []string
		want    string // a commit's source, or an error's code
		most    int64  // bytes; all of the image where zero
	}{
		// The layer ends with 1 MiB of extensions.
		{"label, repository first", nativeimage.LegacyOptions{Label: commit, RepoFirst: true}, []string{commit}, "legacy-repo", 1 << 20},
		{"label, repository last", nativeimage.LegacyOptions{Label: commit}, []string{commit}, "legacy-repo", 0},
		{"label, from scratch", nativeimage.LegacyOptions{Label: commit, WithoutBase: true}, []string{commit}, "legacy-repo", 0},
		{"label, a newer commit under a ref", nativeimage.LegacyOptions{Label: commit, Refs: map[string]string{"stable": other}}, []string{commit, other}, "legacy-repo", 0},
		{"stale label", nativeimage.LegacyOptions{Label: other}, []string{commit}, "commit-label-mismatch", 0},
		{"stale label, a ref", nativeimage.LegacyOptions{Label: other, Refs: ref}, []string{commit}, "commit-label-mismatch", 0},
		{"one commit", nativeimage.LegacyOptions{}, []string{commit}, "layer", 0},
		{"one commit and its ref", nativeimage.LegacyOptions{WithoutBase: true, Refs: ref, RepoFirst: true}, []string{commit}, "layer", 0},
		{"two commits", nativeimage.LegacyOptions{Refs: ref}, []string{commit, other}, "commit-ambiguous", 0},
		{"no commit", nativeimage.LegacyOptions{}, nil, "not-an-os-image", 0},
	}
	forms := []struct {
		name        string
		format      nativeimage.Format
		compression nativeimage.Compression
	}{
		{"v2s2 gzip", nativeimage.DockerV2S2, nativeimage.Gzip},
		{"v2s2 uncompressed", nativeimage.DockerV2S2, nativeimage.Uncompressed},
		{"OCI gzip", nativeimage.OCI, nativeimage.Gzip},
		{"OCI zstd", nativeimage.OCI, nativeimage.Zstd},
		{"OCI uncompressed", nativeimage.OCI, nativeimage.Uncompressed},
	}
	for i, tt := range tests {
		for _, form := range forms {
			if i > 0 && i != 6 && form.name != "v2s2 gzip" {
				continue // the layer is read alike
			}
			t.Run(tt.name+", "+form.name, func(t *testing.T) {
				tt.opts.Format, tt.opts.Compression, tt.opts.Extensions, tt.opts.Architecture = form.format, form.compression, extensions, "amd64"
				m, err := nativeimage.BuildLegacy(t.TempDir(), repo, tt.commits, tt.opts)
				if err != nil {
					t.Fatal(err)
				}
				digest, err := r.Push("os", m)
				if err != nil {
					t.Fatal(err)
				}
				img := openImage(t, r.Reference("os", digest), c)
				start := time.Now()
				got, err := img.InnerCommit(t.Context(), "")
				cost := img.Transfer()
				t.Logf("%d requests, %d of %d bytes, %v", cost.Requests, cost.Bytes, m.Size(), time.Since(start).Round(time.Millisecond))
				if err != nil {
					if string(CodeOf(err)) != tt.want || !img.Identity().InnerCommit.Gathered() {
						t.Errorf("got %v, want %s", err, tt.want)
					}
					return
				}
				want := verdict.InnerCommit{Checksum: verdict.Checksum(commit), Source: verdict.CommitSource(tt.want), Root: rootOf(t, repo, commit), Timestamp: got.Timestamp}
				if diff := cmp.Diff(got, want); diff != "" || !got.Source.Proving() {
					t.Errorf("got-, want+:\n%s", diff)
				}
				if tt.most > 0 && cost.Bytes > tt.most {
					t.Errorf("read %d bytes, more than %d", cost.Bytes, tt.most)
				}
				id := img.Identity()
				if n, ok := id.DerivedLayers.Get(); !ok || n != 0 {
					t.Errorf("derived layers: %d, %v %s", n, ok, id.DerivedLayers.Why())
				}
				if f, ok := id.FinalDiffID.Get(); !ok || f != "" {
					t.Errorf("final diff id: %q, %v", f, ok)
				}
			})
		}
	}
}

// What an image says of itself decides whether it may be machine-os-content.
func TestEncapsulation(t *testing.T) {
	hex := strings.Repeat("a", 64)
	tests := []struct {
		name                string
		labels, annotations map[string]string
		want                encapsulation
	}{
		{"native", map[string]string{LabelFinalDiffID: "sha256:" + hex, LabelCommit: hex}, nil, nativeEncapsulation},
		{"native with an old label", map[string]string{LabelFinalDiffID: "sha256:" + hex, LabelLegacyCommit: hex}, nil, nativeEncapsulation},
		{"machine-os-content", map[string]string{LabelLegacyCommit: hex, "com.redhat.component": "ubi8-container"}, nil, legacyEncapsulation},
		{"from scratch", nil, nil, legacyEncapsulation},
		{"UBI", map[string]string{"com.redhat.component": "ubi8-container", "name": "ubi8"}, nil, noEncapsulation},
		{"rebuilt by another tool", map[string]string{"containers.bootc": "1"}, nil, unknownEncapsulation},
		{"both old label and new", map[string]string{LabelLegacyCommit: hex, "ostree.bootable": "true"}, nil, unknownEncapsulation},
		{"an empty label", map[string]string{LabelLegacyCommit: hex, LabelFinalDiffID: ""}, nil, unknownEncapsulation},
		{"in another case", map[string]string{LabelLegacyCommit: hex, "OSTree.Bootable": "1"}, nil, unknownEncapsulation},
		{"without chunks' labels", map[string]string{LabelLegacyCommit: hex, "rpmostree.inputhash": hex}, nil, unknownEncapsulation},
		{"only annotations are left", nil, map[string]string{LabelCommit: hex}, unknownEncapsulation},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, why := encapsulationOf(Manifest{Annotations: tt.annotations}, format.ImageConfig{Labels: tt.labels})
			usable := got == nativeEncapsulation || got == legacyEncapsulation
			if got != tt.want || usable != (why == "") {
				t.Errorf("got %d: %q, want %d", got, why, tt.want)
			}
		})
	}
}

// An image that says it is another product is refused by its config alone.
func TestNotAnOSImage(t *testing.T) {
	r := startRegistry(t, registry.Options{})
	c := configFor(t, r, nil)
	ubi := spec{how: gz, tars: [][]byte{makeTar(t, file("x", noise(1<<20)))}, labels: map[string]string{"com.redhat.component": "ubi8-container"}}
	img := openImage(t, push(t, r, ubi.build(t)), c)
	for what, ask := range map[string]func() error{
		"check":  func() error { return img.CheckOS(t.Context()) },
		"commit": func() error { _, err := img.InnerCommit(t.Context(), ""); return err },
	} {
		if err := ask(); CodeOf(err) != NotAnOSImage || !strings.Contains(err.Error(), "ubi8-container") {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if got := img.Transfer(); got.Requests != 3 || got.Bytes > 4096 {
		t.Errorf("got %+v", got)
	}
	if id := img.Identity(); id.DerivedLayers.IsKnown() {
		t.Error("derived layers are known")
	}
	commit := commitBytes(7)
	for name, s := range map[string]spec{
		"native":             native(t, commit),
		"no labels":          {how: gz, tars: [][]byte{makeTar(t, file("x", nil))}},
		"bootc without more": {how: gz, tars: [][]byte{makeTar(t, file("x", nil))}, labels: map[string]string{"containers.bootc": "1"}},
	} {
		if err := openImage(t, push(t, r, s.build(t)), c).CheckOS(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Layers that are made by hand: where the commit may lie, and what makes it
// doubtful.
func TestLegacyLayers(t *testing.T) {
	t.Parallel()
	r := startRegistry(t, registry.Options{})
	c := configFor(t, r, nil)
	commit, other := commitBytes(7), commitBytes(9)
	dir := func(name string) entry { return entry{name, nil, tar.TypeDir} }
	link := func(name, to string) entry { return entry{name, []byte(to), tar.TypeSymlink} }
	ref := func(name string, to []byte) entry { return file("srv/repo/refs/"+name, []byte(sum(to)+"\n")) }
	base := makeTar(t, dir("srv/"), file("etc/os-release", []byte("ID=rhel\n")))
	full := makeTar(t, legacyEntry(commit))
	const found, labelled, unlabelled = "", true, false
	type layers = [][]byte
	tests := []struct {
		name  string
		label bool
		tars  layers
		want  Code // found where empty
		text  string
	}{
		{"dot before the name", labelled, layers{makeTar(t, file("./"+legacyPath(commit), commit))}, found, ""},
		{"slash before the name", unlabelled, layers{makeTar(t, file("/"+legacyPath(commit), commit))}, found, ""},
		{"under another layer", labelled, layers{base, full, makeTar(t, file("x", nil))}, found, ""},
		{"under another layer, no label", unlabelled, layers{base, full, makeTar(t, file("x", nil))}, found, ""},
		{"in two layers", unlabelled, layers{full, full}, found, ""},
		{"twice in one layer", unlabelled, layers{makeTar(t, legacyEntry(commit), legacyEntry(commit))}, found, ""},
		{"whiteout in its own layer", labelled, layers{base, makeTar(t, file("srv/repo/.wh..wh..opq", nil), legacyEntry(commit))}, found, ""},
		{"whiteout in its own layer, no label", unlabelled, layers{base, makeTar(t, file("srv/repo/.wh..wh..opq", nil), legacyEntry(commit))}, found, ""},
		{"whiteout elsewhere", unlabelled, layers{full, makeTar(t, file("srv/.wh.repository", nil), file(".wh.tmp", nil), file("usr/.wh..wh..opq", nil))}, found, ""},
		{"ref that names it", unlabelled, layers{makeTar(t, ref("heads/a", commit), legacyEntry(commit))}, found, ""},
		{"among other commits", labelled, layers{makeTar(t, legacyEntry(other), legacyEntry(commitBytes(11)), legacyEntry(commit))}, found, ""},

		{"another commit", labelled, layers{makeTar(t, legacyEntry(other))}, CommitLabelMismatch, sum(other)},
		{"other commits", labelled, layers{makeTar(t, legacyEntry(other)), makeTar(t, legacyEntry(commitBytes(11)))}, CommitLabelMismatch, "2 commits"},
		{"no repository", labelled, layers{base}, CommitLabelMismatch, "no commit"},
		{"no repository, no label", unlabelled, layers{base}, NotAnOSImage, LabelLegacyCommit},
		{"two commits", unlabelled, layers{makeTar(t, legacyEntry(other), legacyEntry(commit))}, CommitAmbiguous, "2 commits"},
		{"two commits in two layers", unlabelled, layers{full, makeTar(t, legacyEntry(other))}, CommitAmbiguous, "2 commits"},
		{"ref that names another", unlabelled, layers{makeTar(t, legacyEntry(commit), ref("heads/a/b", other))}, CommitAmbiguous, "heads/a/b"},
		{"ref that is a link", unlabelled, layers{makeTar(t, legacyEntry(commit), link("srv/repo/refs/heads/a", "b"))}, LayerInvalid, "ref"},
		{"hidden by a later layer", labelled, layers{full, makeTar(t, file("srv/repo/objects/.wh.aa", nil))}, CommitLabelMismatch, "/srv/repo/objects/aa"},
		{"folder hidden", labelled, layers{full, makeTar(t, file(".wh.srv", nil))}, CommitLabelMismatch, "/srv"},
		{"all hidden", unlabelled, layers{full, makeTar(t, file(".wh..wh..opq", nil))}, LayerInvalid, "removes /"},
		{"hidden, no label", unlabelled, layers{full, makeTar(t, file("srv/.wh.repo", nil)), makeTar(t, legacyEntry(commit))}, LayerInvalid, "/srv/repo"},
		{"object hidden, no label", unlabelled, layers{makeTar(t, legacyEntry(commit), legacyEntry(other)), makeTar(t, file(strings.Replace(legacyPath(other), sum(other)[2:], ".wh."+sum(other)[2:], 1), nil))}, LayerInvalid, "removes"},
		{"folder is a link", labelled, layers{full, makeTar(t, link("srv", "other"))}, LayerInvalid, "not a folder"},
		{"repository is a link", unlabelled, layers{full, makeTar(t, link("srv/repo", "../other"))}, LayerInvalid, "not a folder"},
		{"objects are a link", unlabelled, layers{makeTar(t, link("srv/repo/objects", "/x")), full}, LayerInvalid, "not a folder"},
		{"objects' folder is a file", labelled, layers{makeTar(t, file("srv/repo/objects/3f", nil), legacyEntry(commit))}, LayerInvalid, "not a folder"},
		{"object is a link", labelled, layers{makeTar(t, link(legacyPath(commit), "x"))}, LayerInvalid, "regular"},
		{"object is a hard link", labelled, layers{makeTar(t, entry{legacyPath(commit), []byte("x"), tar.TypeLink})}, LayerInvalid, "regular"},
		{"object has other content", labelled, layers{makeTar(t, file(legacyPath(commit), other))}, LayerInvalid, "has the checksum"},
		{"object is empty", labelled, layers{makeTar(t, file(legacyPath(commit), nil))}, LayerInvalid, "has the checksum"},
		{"dots in a name", labelled, layers{makeTar(t, file("srv/x/../repo/config", nil), legacyEntry(commit))}, LayerInvalid, `".."`},
		{"in another repository", labelled, layers{makeTar(t, commitEntry(commit))}, LayerInvalid, "unexpected place"},
		{"in another repository too", unlabelled, layers{makeTar(t, legacyEntry(commit), commitEntry(commit))}, LayerInvalid, "unexpected place"},
		{"below the repository", labelled, layers{makeTar(t, file("srv/repo/"+legacyPath(commit), commit))}, LayerInvalid, "unexpected place"},
		{"not a tar archive", labelled, layers{noise(4096)}, LayerInvalid, ""},
		{"ends early", labelled, layers{makeTar(t, file("srv/repo/config", noise(2000)))[:1500]}, LayerTruncated, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := spec{how: gz, tars: tt.tars}
			source := verdict.CommitFromLayer
			if tt.label {
				s.labels, source = legacyLabel(commit), verdict.CommitFromLegacyRepo
			}
			img := openImage(t, push(t, r, s.build(t)), c)
			got, err := img.InnerCommit(t.Context(), "")
			if tt.want == found {
				if err != nil || got != wantCommit(commit, source) {
					t.Errorf("got %v, %v", got, err)
				}
				return
			}
			if CodeOf(err) != tt.want || !strings.Contains(fmt.Sprint(err), tt.text) || got != (verdict.InnerCommit{}) {
				t.Errorf("got %v, %q: %v; want %s with %q", got, CodeOf(err), err, tt.want, tt.text)
			}
			if img.Identity().InnerCommit.IsKnown() {
				t.Error("the fact is known")
			}
		})
	}
}

// Layers that are read whole must be those that manifest and config name.
func TestLegacyLayersVerified(t *testing.T) {
	r := startRegistry(t, registry.Options{})
	c := configFor(t, r, nil)
	commit := commitBytes(7)
	full, top := makeTar(t, legacyEntry(commit)), makeTar(t, file("x", nil))
	other := "sha256:" + sum(commit)
	label := legacyLabel(commit)
	// The object lies in a layer of which nothing else is looked at.
	tests := []struct {
		name string
		spec spec
		want Code
	}{
		{"diff id of the layer", spec{how: gz, tars: [][]byte{full}, diffIDs: []string{other}}, DigestMismatch},
		{"diff id of another layer", spec{how: gz, tars: [][]byte{full, top}, diffIDs: []string{"sha256:" + sum(full), other}}, DigestMismatch},
		{"diff id of the layer above", spec{how: gz, labels: label, tars: [][]byte{full, top}, diffIDs: []string{"sha256:" + sum(full), other}}, DigestMismatch},
		{"fewer diff ids", spec{how: gz, labels: label, tars: [][]byte{full, top}, diffIDs: []string{other}}, ManifestInvalid},
		{"label is no checksum", spec{how: gz, tars: [][]byte{full}, labels: map[string]string{LabelLegacyCommit: "stable"}}, ManifestInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := openImage(t, push(t, r, tt.spec.build(t)), c).InnerCommit(t.Context(), "")
			if CodeOf(err) != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
	b := spec{how: gz, tars: [][]byte{full, top}, labels: label}.build(t)
	ref := push(t, r, b)
	swapped := append(bytes.Clone(b.blobs[1]), 0)[:len(b.blobs[1])]
	swapped[4] ^= 0xff // the time in gzip's header
	r.AddFault(&registry.Fault{Path: regexp.MustCompile(sum(b.blobs[1])), Do: registry.Answer(swapped)})
	if _, err := openImage(t, ref, c).InnerCommit(t.Context(), ""); CodeOf(err) != DigestMismatch {
		t.Errorf("a layer with other bytes: %v", err)
	}
	huge := b
	huge.manifest = bytes.Replace(b.manifest, []byte(fmt.Sprintf(`"size":%d`, len(b.blobs[0]))), []byte(`"size":9000000000000000000`), 1)
	huge.digest = "sha256:" + sum(huge.manifest)
	if _, err := parseManifest(rawManifest{bytes: huge.manifest, mediaType: huge.mediaType}); err != nil {
		t.Fatal(err)
	}
	img := openImage(t, ref, c)
	m, err := parseManifest(rawManifest{bytes: huge.manifest, mediaType: huge.mediaType})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := img.legacyCommit(t.Context(), m, format.ImageConfig{Labels: label}, ""); CodeOf(err) != LayerInvalid || img.Transfer().Requests != 0 {
		t.Errorf("a layer of many bytes: %v, %+v", err, img.Transfer())
	}
}
