package osimage

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// Bounds of machine-os-content images, which have 1 to 2 GB.
const (
	maxLegacyBytes   = 6 << 30  // all layers, as fetched
	maxLegacyContent = 16 << 30 // one layer, uncompressed
	maxLegacyCommits = 1000
	maxLegacyRefs    = 1000
	maxRefBytes      = 4 << 10
	// maxForRebuild bounds the layers, as fetched, that are read for a commit
	// which is not the booted one.
	maxForRebuild = 64 << 20
)

// An encapsulation is how an image carries its ostree commit.
type encapsulation int

const (
	// unknownEncapsulation is that of an OS image which does not say it.
	unknownEncapsulation encapsulation = iota
	// noEncapsulation is that of an image which is no OS image.
	noEncapsulation
	// nativeEncapsulation is that of ostree-ext (container/encapsulate.rs).
	nativeEncapsulation
	// legacyEncapsulation is a repository in the image, at /srv/repo: the
	// machine-os-content images before OpenShift 4.12 (coreos-assembler,
	// oscontainer-deprecated-legacy-format.py).
	legacyEncapsulation
)

// encapsulationOf tells it from what an image says of itself; where it cannot
// be used, why says so.
//
// From 4.12 on the machine-config-daemon deploys an image with the label
// ostree.bootable as a container and takes any other for machine-os-content,
// and later it knows no other than containers. So an image counts as
// machine-os-content only where nothing about it recalls a native one, be it
// one that lost its other labels.
func encapsulationOf(m Manifest, c format.ImageConfig) (form encapsulation, why string) {
	switch {
	case c.Labels[LabelFinalDiffID] != "":
		return nativeEncapsulation, ""
	case nativeKey(c.Labels) != "":
		return unknownEncapsulation, fmt.Sprintf("the image has no label %s, though %s: its ostree commit cannot be told", LabelFinalDiffID, nativeKey(c.Labels))
	case nativeKey(m.Annotations) != "":
		return unknownEncapsulation, fmt.Sprintf("the image has no label %s, though the annotation %s: its ostree commit cannot be told", LabelFinalDiffID, nativeKey(m.Annotations))
	case c.Labels[LabelLegacyCommit] != "":
		return legacyEncapsulation, ""
	case c.Labels[labelComponent] != "":
		// The base image of machine-os-content has the label too, but what
		// was built on it has that of the commit. Images without it come from
		// CI and have no labels at all.
		return noEncapsulation, fmt.Sprintf("not an OS image: it is %.100q and has none of the labels of one", c.Labels[labelComponent])
	default:
		return legacyEncapsulation, ""
	}
}

// CheckOS fails, with the code NotAnOSImage, where the image's manifest and
// config show that it is no OS image. One without any labels may be one.
func (img *Image) CheckOS(ctx context.Context) error {
	img.mu.Lock()
	defer img.mu.Unlock()
	m, err := img.getParsedManifest(ctx)
	if err != nil {
		return err
	}
	c, err := img.getConfig(ctx)
	if err != nil {
		return err
	}
	if form, why := encapsulationOf(m, c); form == noEncapsulation {
		return failText(NotAnOSImage, img.name, why)
	}
	return nil
}

// nativeKey returns the first key that a native image has and that
// machine-os-content has not, or "".
func nativeKey(keys map[string]string) string {
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		switch lower := strings.ToLower(k); {
		case lower == "containers.bootc", strings.HasPrefix(lower, "ostree."), strings.HasPrefix(lower, "rpmostree."):
			return k
		}
	}
	return ""
}

// legacyCommit finds the commit of a machine-os-content image as the
// machine-config-daemon did (pkg/daemon/rpm-ostree.go up to 4.13): the label
// names it. The daemon without a label took the only ref; here there must be
// only one commit.
func (img *Image) legacyCommit(ctx context.Context, m Manifest, c format.ImageConfig, booted verdict.Checksum) (verdict.InnerCommit, error) {
	total := int64(0)
	for _, l := range m.Layers {
		if total += l.Size; l.Size > maxLegacyBytes || total > maxLegacyBytes {
			return verdict.InnerCommit{}, failText(LayerInvalid, img.name, fmt.Sprintf("layers of more than %d bytes, which are not read for the ostree commit", int64(maxLegacyBytes)))
		}
	}
	label := c.Labels[LabelLegacyCommit]
	switch {
	case label == "":
		return img.legacyUnlabelled(ctx, m, c)
	case !isChecksum(label):
		return verdict.InnerCommit{}, failText(ManifestInvalid, img.name, fmt.Sprintf("label %s: its %d characters are not a checksum", LabelLegacyCommit, len(label)))
	case booted != "" && booted != verdict.Checksum(label) && total > maxForRebuild:
		return verdict.InnerCommit{}, failText(CommitNotRead, img.name, fmt.Sprintf("label %s says %s, and %s is booted: the two could only be equal if one content was built twice, and the %d MB of layers were not read to see that; --full reads them",
			LabelLegacyCommit, label, booted, total/1e6))
	}
	return img.legacyLabelled(ctx, m, c, verdict.Checksum(label))
}

// legacyLabelled looks for the label's commit object, from the last layer on,
// and stops there. The label is pinned by the config's digest, and the object
// by its checksum. The layers above it are read whole and verified: they must
// not hide it.
func (img *Image) legacyLabelled(ctx context.Context, m Manifest, c format.ImageConfig, label verdict.Checksum) (verdict.InnerCommit, error) {
	s := &legacyScan{want: label}
	for i := len(m.Layers) - 1; i >= 0; i-- {
		if err := img.readLayer(ctx, m, c, i, layerScan{part: firstPart, limit: maxLegacyContent, read: s.read}); err != nil {
			return verdict.InnerCommit{}, err
		}
		if s.found.checksum != "" {
			return img.innerCommit(s.found, verdict.CommitFromLegacyRepo)
		}
		if s.hides != "" {
			return verdict.InnerCommit{}, failText(CommitLabelMismatch, img.name, fmt.Sprintf("label %s says %s, but %s has no such commit and removes %s of the layers below",
				LabelLegacyCommit, label, layerName(m, i), s.hides))
		}
	}
	return verdict.InnerCommit{}, failText(CommitLabelMismatch, img.name, fmt.Sprintf("label %s says %s, but /srv/repo holds %s", LabelLegacyCommit, label, s.others()))
}

// legacyUnlabelled reads all layers, which must hold one commit object, in
// /srv/repo, and no ref that names another.
func (img *Image) legacyUnlabelled(ctx context.Context, m Manifest, c format.ImageConfig) (verdict.InnerCommit, error) {
	s := &legacyScan{commits: map[verdict.Checksum]bool{}, refs: map[string]string{}}
	for i := range m.Layers {
		had := s.seen
		if err := img.readLayer(ctx, m, c, i, layerScan{part: largeLayerPart, limit: maxLegacyContent, read: s.read}); err != nil {
			return verdict.InnerCommit{}, err
		}
		if had && s.hides != "" {
			return verdict.InnerCommit{}, failText(LayerInvalid, img.name, fmt.Sprintf("%s removes %s of the layers below", layerName(m, i), s.hides))
		}
		s.hides = ""
	}
	switch n := len(s.commits); {
	case n == 0:
		return verdict.InnerCommit{}, failText(NotAnOSImage, img.name, fmt.Sprintf("not an OS image: no label %s or %s, and no ostree commit in /srv/repo", LabelFinalDiffID, LabelLegacyCommit))
	case n > 1:
		return verdict.InnerCommit{}, failText(CommitAmbiguous, img.name, fmt.Sprintf("/srv/repo holds %s, and no label %s says which counts", s.others(), LabelLegacyCommit))
	}
	for _, name := range slices.Sorted(maps.Keys(s.refs)) {
		if s.refs[name] != string(s.found.checksum) {
			return verdict.InnerCommit{}, failText(CommitAmbiguous, img.name, fmt.Sprintf("/srv/repo holds commit %s, but its ref %.100q names %.100q", s.found.checksum, name, s.refs[name]))
		}
	}
	return img.innerCommit(s.found, verdict.CommitFromLayer)
}

const (
	legacyRepo    = "srv/repo"
	removedPrefix = ".wh."
	// hideAll hides all that lower layers have in its folder.
	hideAll = ".wh..wh..opq"
)

// legacyCommitPath is a commit object in the repository.
var legacyCommitPath = regexp.MustCompile(`^srv/repo/objects/([0-9a-f]{2})/([0-9a-f]{62})\.commit$`)

// legacyFolder is what must be a folder for a name below it to mean it.
var legacyFolder = regexp.MustCompile(`^srv(?:/repo(?:/objects(?:/[0-9a-f]{2})?|/refs)?)?$`)

// A legacyScan collects what layers hold of /srv/repo.
type legacyScan struct {
	// want is the commit to stop at; where empty, all are collected.
	want verdict.Checksum

	found commitObject // the wanted one, or the first
	// commits are the checksums of all commits: read and checked where none
	// is wanted, else just named.
	commits map[verdict.Checksum]bool
	refs    map[string]string // contents by name
	seen    bool              // anything in the repository
	hides   string            // what the last layer hides of those below
}

// others tells of the commits for a person.
func (s *legacyScan) others() string {
	switch len(s.commits) {
	case 0:
		return "no commit"
	case 1:
		for c := range s.commits {
			return "commit " + string(c)
		}
	}
	return fmt.Sprintf("%d commits", len(s.commits))
}

// read reads a layer's uncompressed tar, to its end or to the wanted commit.
func (s *legacyScan) read(ctx context.Context, r io.Reader) (stop bool, err error) {
	t := tar.NewReader(r)
	for {
		h, err := nextEntry(ctx, t)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if err := s.entry(t, h); err != nil {
			return false, err
		}
		if s.want != "" && s.found.checksum != "" {
			return true, nil
		}
	}
}

// entry takes in one entry. What could make a name mean something else than it
// says is an error.
func (s *legacyScan) entry(t *tar.Reader, h *tar.Header) error {
	if !plainName(h.Name) {
		return fmt.Errorf("an entry's name has \"..\" in it: %.200q", h.Name)
	}
	name := entryName(h)
	if base := path.Base(name); strings.HasPrefix(base, removedPrefix) {
		s.hide(name, base)
		return nil
	}
	if legacyFolder.MatchString(name) && h.Typeflag != tar.TypeDir {
		return fmt.Errorf("/%s is not a folder", name)
	}
	if !strings.HasPrefix(name, legacyRepo+"/") {
		if anyCommitPath.MatchString(name) {
			return fmt.Errorf("holds a commit object in an unexpected place: %.200q", h.Name)
		}
		return nil
	}
	s.seen = true
	switch {
	case anyCommitPath.MatchString(name):
		return s.commit(t, h, name)
	case s.want == "" && strings.HasPrefix(name, legacyRepo+"/refs/") && h.Typeflag != tar.TypeDir:
		return s.ref(t, h, strings.TrimPrefix(name, legacyRepo+"/refs/"))
	}
	return nil
}

// hide notes a whiteout that concerns the repository.
func (s *legacyScan) hide(name, base string) {
	hidden := path.Join(path.Dir(name), strings.TrimPrefix(base, removedPrefix))
	if base == hideAll {
		hidden = path.Dir(name)
	}
	above := hidden == "." || strings.HasPrefix(legacyRepo+"/", hidden+"/")
	if above || strings.HasPrefix(hidden, legacyRepo+"/") {
		s.hides = "/" + strings.TrimPrefix(hidden, ".")
	}
}

// commit takes in a commit object.
func (s *legacyScan) commit(t *tar.Reader, h *tar.Header, name string) error {
	if s.commits == nil {
		s.commits = map[verdict.Checksum]bool{}
	}
	if len(s.commits) >= maxLegacyCommits {
		return fmt.Errorf("holds more than %d ostree commits", maxLegacyCommits)
	}
	if m := legacyCommitPath.FindStringSubmatch(name); m != nil && s.want != "" && m[1]+m[2] != string(s.want) {
		s.commits[verdict.Checksum(m[1]+m[2])] = true
		return nil
	}
	c, err := readCommit(t, h, legacyCommitPath)
	if err != nil {
		return err
	}
	s.commits[c.checksum] = true
	if s.found.checksum == "" {
		s.found = c
	}
	return nil
}

// ref takes in a ref, whose file holds a checksum.
func (s *legacyScan) ref(t *tar.Reader, h *tar.Header, name string) error {
	if h.Typeflag != tar.TypeReg {
		return fmt.Errorf("the ref %.200q is not a regular file", name)
	}
	if len(s.refs) >= maxLegacyRefs {
		return fmt.Errorf("holds more than %d refs", maxLegacyRefs)
	}
	b, err := io.ReadAll(io.LimitReader(t, maxRefBytes))
	if err != nil {
		return err
	}
	s.refs[name] = string(bytes.TrimSpace(b))
	return nil
}
