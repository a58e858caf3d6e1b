package osimage

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/registry"
)

func wantCommit(commit []byte, source verdict.CommitSource) verdict.InnerCommit {
	seed := fmt.Sprintf("%02x", commit[16])
	next := fmt.Sprintf("%02x", commit[48])
	return verdict.InnerCommit{
		Checksum: verdict.Checksum(sum(commit)), Source: source, Timestamp: 1700000000,
		Root: verdict.Root{DirTree: verdict.Checksum(strings.Repeat(seed, 32)), DirMeta: verdict.Checksum(strings.Repeat(next, 32))},
	}
}

// The commit is read from every kind of layer, with four requests and few
// bytes where a label names it.
func TestInnerCommit(t *testing.T) {
	t.Parallel()
	r := startRegistry(t, registry.Options{})
	c := configFor(t, r, nil)
	commit := commitBytes(7)
	content := file("sysroot/ostree/repo/objects/aa/big.file", noise(3<<20))
	for _, docker := range []bool{false, true} {
		for _, how := range []string{plain, gz, zst} {
			for _, labelled := range []bool{true, false} {
				t.Run(fmt.Sprintf("docker=%v,%s,label=%v", docker, how, labelled), func(t *testing.T) {
					s := spec{docker: docker, how: how, tars: [][]byte{nativeTar(t, commit, content)}}
					s.labels = labelsFor(s.tars[0], nil)
					source := verdict.CommitFromLayer
					if labelled {
						s.labels = labelsFor(s.tars[0], commit)
						source = verdict.CommitFromLayerHead
					}
					img := openImage(t, push(t, r, s.build(t)), c)
					r.ResetRequests()
					got, err := img.InnerCommit(t.Context(), "")
					if err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(got, wantCommit(commit, source)); diff != "" {
						t.Errorf("got-, want+:\n%s", diff)
					}
					if again, err := img.InnerCommit(t.Context(), ""); err != nil || again != got {
						t.Errorf("again: got %v, %v", again, err)
					}
					// The registry writes its log after the answer.
					for until := time.Now().Add(2 * time.Second); len(r.Requests()) < 4 && time.Now().Before(until); time.Sleep(time.Millisecond) {
					}
					if n := len(r.Requests()); n != 4 {
						t.Errorf("the registry saw %d requests, want 4", n)
					}
					if cost := img.Transfer(); cost.Requests != 4 || labelled != (cost.Bytes < 270<<10) {
						t.Errorf("got %+v; want 4 requests, and less than 270 KiB with a label", cost)
					}
				})
			}
		}
	}
}

// The commit's place is where the importer looks, however the name is written.
func TestInnerCommitPlaces(t *testing.T) {
	r := startRegistry(t, registry.Options{})
	c := configFor(t, r, nil)
	commit := commitBytes(7)
	for _, repo := range []string{"sysroot/ostree/repo", "./sysroot/ostree/repo", "ostree/repo", "./ostree/repo", "/ostree/repo"} {
		t.Run(repo, func(t *testing.T) {
			tarball := makeTar(t, file(objectPath(repo, sum(commit)), commit))
			s := spec{how: gz, tars: [][]byte{tarball}, labels: labelsFor(tarball, commit)}
			got, err := openImage(t, push(t, r, s.build(t)), c).InnerCommit(t.Context(), "")
			if err != nil || got != wantCommit(commit, verdict.CommitFromLayerHead) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// Whatever is wrong with a layer is an error with a code, never a commit.
func TestInnerCommitRefused(t *testing.T) {
	t.Parallel()
	r := startRegistry(t, registry.Options{})
	c := configFor(t, r, nil)
	commit, other := commitBytes(7), commitBytes(9)
	good := nativeTar(t, commit)
	withLabel, without := labelsFor(good, commit), labelsFor(good, nil)
	one := func(tarball []byte, labels map[string]string) spec {
		return spec{how: gz, tars: [][]byte{tarball}, labels: labels}
	}
	tests := []struct {
		name string
		spec spec
		want Code
		text string
	}{
		{"stale label", one(nativeTar(t, other), labelsFor(good, commit)), CommitLabelMismatch, sum(other)},
		{"label is no checksum", one(good, labelsFor(good, nil, LabelCommit, "4.16")), ManifestInvalid, "not a checksum"},
		{"content under another name", one(makeTar(t, file(objectPath("sysroot/ostree/repo", sum(commit)), other)), withLabel), LayerInvalid, "has the checksum " + sum(other)},
		{"no commit", one(makeTar(t, file("usr/bin/bash", nil)), withLabel), LayerInvalid, "no ostree commit"},
		{"no commit, no label", one(makeTar(t, file("usr/bin/bash", nil)), without), LayerInvalid, "no ostree commit"},
		{"two commits, no label", one(makeTar(t, commitEntry(commit), commitEntry(other)), without), LayerInvalid, "more than one"},
		{"the same commit twice", one(makeTar(t, commitEntry(commit), commitEntry(commit)), without), LayerInvalid, "more than one"},
		{"another repository's commit, no label", one(makeTar(t, commitEntry(commit), file(objectPath("srv/repo", sum(other)), other)), without), LayerInvalid, "more than one"},
		{"commit in another repository alone", one(makeTar(t, file(objectPath("srv/repo", sum(other)), other)), without), LayerInvalid, "unexpected place"},
		{"commit is a link", one(makeTar(t, entry{objectPath("sysroot/ostree/repo", sum(commit)), []byte("x"), tar.TypeLink}), withLabel), LayerInvalid, "regular"},
		{"commit is empty", one(makeTar(t, commitEntry(nil)), labelsFor(good, []byte{})), LayerInvalid, "parsing commit"},
		{"not a tar archive", one(noise(4096), withLabel), LayerInvalid, ""},
		{"tar ends early", one(good[:3100], withLabel), LayerTruncated, ""},
		{"gzip ends early", spec{how: gz, tars: [][]byte{good}, labels: withLabel, blobs: [][]byte{compress(t, gz, good)[:100]}}, LayerTruncated, ""},
		{"zstd ends early", spec{how: zst, tars: [][]byte{good}, labels: withLabel, blobs: [][]byte{compress(t, zst, good)[:100]}}, LayerTruncated, ""},
		{"diff id of another layer", spec{how: gz, tars: [][]byte{good}, labels: without, diffIDs: []string{"sha256:" + sum(other)}}, DigestMismatch, "diff id"},
		{"fewer layers than diff ids", spec{how: gz, tars: [][]byte{good}, labels: withLabel, diffIDs: []string{"sha256:" + sum(good), "sha256:" + sum(other)}}, ManifestInvalid, "1 layers"},
		{"native, says not which layer", one(good, map[string]string{LabelCommit: sum(commit)}), NotAnOSImage, LabelFinalDiffID},
		{"empty layer", spec{how: gz, tars: [][]byte{good}, labels: withLabel, blobs: [][]byte{{}}}, LayerInvalid, "no ostree commit"},
		{"commit too far in", one(makeTar(t, file("sysroot/x", noise(maxHead+1)), commitEntry(commit)), withLabel), LayerInvalid, "not within"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			img := openImage(t, push(t, r, tt.spec.build(t)), c)
			got, err := img.InnerCommit(t.Context(), "")
			if CodeOf(err) != tt.want || !strings.Contains(fmt.Sprint(err), tt.text) || got != (verdict.InnerCommit{}) {
				t.Errorf("got %v, %q: %v; want %s with %q", got, CodeOf(err), err, tt.want, tt.text)
			}
			if f := img.Identity().InnerCommit; f.IsKnown() || !f.Gathered() {
				t.Errorf("the fact: known %v, gathered %v", f.IsKnown(), f.Gathered())
			}
		})
	}
	img := openImage(t, push(t, r, tests[0].spec.build(t)), c)
	_, err := img.InnerCommit(t.Context(), "")
	if m, ok := errors.AsType[*CommitMismatchError](err); !ok || string(m.Label) != sum(commit) || string(m.Layer) != sum(other) {
		t.Errorf("got %#v", err)
	}
}

// A layer that was exchanged for a valid one is caught by its digest.
func TestSwappedLayer(t *testing.T) {
	commit, booted := commitBytes(7), commitBytes(9)
	s := native(t, commit)
	s.labels = labelsFor(s.tars[0], nil)
	b := s.build(t)
	swapped := compress(t, gz, nativeTar(t, booted))
	for name, body := range map[string][]byte{"other length": swapped, "same length": append(bytes.Clone(swapped), make([]byte, 64)...)[:len(b.blobs[0])]} {
		t.Run(name, func(t *testing.T) {
			r := startRegistry(t, registry.Options{})
			img := openImage(t, push(t, r, b), configFor(t, r, nil))
			r.AddFault(&registry.Fault{Path: regexp.MustCompile(sum(b.blobs[0])), Do: registry.Answer(body)})
			if got, err := img.InnerCommit(t.Context(), ""); err == nil {
				t.Errorf("got %v; want an error", got)
			}
		})
	}
}

// A commit behind the first part of a layer costs one more request.
func TestSecondPart(t *testing.T) {
	r := startRegistry(t, registry.Options{})
	commit := commitBytes(7)
	tarball := makeTar(t, file("sysroot/ostree/repo/config", noise(300<<10)), commitEntry(commit), file("x", noise(2<<20)))
	s := spec{how: gz, tars: [][]byte{tarball}, labels: labelsFor(tarball, commit)}
	ref := push(t, r, s.build(t))
	c := configFor(t, r, nil)
	img := openImage(t, ref, c)
	if _, err := img.InnerCommit(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if got := img.Transfer(); got.Requests != 5 || got.Bytes > 700<<10 {
		t.Errorf("got %+v", got)
	}
	// Without ranges, the blob is asked for once more and read on.
	r.AddFault(&registry.Fault{Path: regexp.MustCompile("/blobs/"), Do: ignoreRange})
	img = openImage(t, ref, c)
	if got, err := img.InnerCommit(t.Context(), ""); err != nil || got != wantCommit(commit, verdict.CommitFromLayerHead) {
		t.Fatalf("got %v, %v", got, err)
	}
	if got := img.Transfer(); got.Requests != 6 || got.Bytes > 900<<10 {
		t.Errorf("got %+v", got)
	}
}

// ignoreRange is a registry that sends whole blobs only.
func ignoreRange(w http.ResponseWriter, req *http.Request, next http.Handler) {
	req.Header.Del("Range")
	next.ServeHTTP(w, req)
}

// A registry without ranges is read as far as needed.
func TestRangeIgnored(t *testing.T) {
	t.Parallel()
	r := startRegistry(t, registry.Options{})
	commit := commitBytes(7)
	tarball := nativeTar(t, commit, file("x", noise(20<<20)))
	s := spec{how: gz, tars: [][]byte{tarball}, labels: labelsFor(tarball, commit)}
	ref := push(t, r, s.build(t))
	r.AddFault(&registry.Fault{Path: regexp.MustCompile("/blobs/"), Do: ignoreRange})
	c := configFor(t, r, nil)
	// The library's goroutines must survive a reader that stops early.
	for range 20 {
		img := openImage(t, ref, c)
		got, err := img.InnerCommit(t.Context(), "")
		if err != nil || got != wantCommit(commit, verdict.CommitFromLayerHead) {
			t.Fatalf("got %v, %v", got, err)
		}
		if got := img.Transfer(); got.Requests != 4 || got.Bytes > 270<<10 {
			t.Fatalf("got %+v", got)
		}
	}
}
