package nativeimage

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/oneboot/oneboot/test/sysroot"
)

// BlobRefPrefix is where a host's repository has the refs of image layers.
const BlobRefPrefix = "ostree/container/blob/"

// ImageRefPrefix is where it has the refs of merge commits.
const ImageRefPrefix = "ostree/container/image/"

// ImportOptions says what the pull was like.
type ImportOptions struct {
	// PullSpec is the image's name in a registry ("quay.io/os@sha256:...");
	// there is no image ref where it is empty.
	PullSpec string
	// WithParent gives the merge commit the inner commit as its parent, as
	// newer versions do.
	WithParent bool
	// WithoutBlobRefs leaves out the refs of the layers.
	WithoutBlobRefs bool
	// ManifestDigest is stored in place of the image's own: the digest of
	// the v2s2 manifest that the registry served, where the image given is
	// the converted one.
	ManifestDigest string
	// Metadata are further keys of the merge commit, in GVariant text form.
	Metadata map[string]string
}

// Import makes in a host's repository of mode bare what ostree-ext leaves
// there after it has pulled the image: the inner commit, a commit and a ref
// for each layer, and the merge commit with the image's manifest and config
// (bootc crates/ostree-ext/src/container/store.rs). It returns the merge
// commit, which is what gets deployed.
func Import(repo string, m *Image, opts ImportOptions) (string, error) {
	if m.Commit == "" {
		return "", fmt.Errorf("importing an image: it encapsulates no single commit")
	}
	if !hasObject(repo, m.Commit, "commit") {
		if _, err := sysroot.Ostree("pull-local", "--repo="+repo, "--disable-fsync", m.Repo, m.Commit); err != nil {
			return "", err
		}
	}
	for i, l := range m.Layers {
		if err := importLayer(repo, m.Commit, i, l, opts); err != nil {
			return "", fmt.Errorf("importing layer %d: %w", i, err)
		}
	}
	merge, err := commitMerge(repo, m, opts)
	if err != nil {
		return "", fmt.Errorf("writing the merge commit: %w", err)
	}
	if opts.PullSpec == "" {
		return merge, nil
	}
	return merge, setRef(repo, ImageRefPrefix+EscapeRef("docker://"+opts.PullSpec), merge)
}

func setRef(repo, ref, commit string) error {
	_, err := sysroot.Ostree("refs", "--repo="+repo, "--force", "--create="+ref, commit)
	return err
}

// importLayer gives a layer a commit and a ref. The commit layer's is the
// inner commit itself.
func importLayer(repo, inner string, i int, l Layer, opts ImportOptions) error {
	commit := inner
	if i > 0 {
		var err error
		if commit, err = commitLayerContent(repo, l); err != nil {
			return err
		}
	}
	if opts.WithoutBlobRefs {
		return nil
	}
	return setRef(repo, BlobRefPrefix+EscapeRef(l.Digest), commit)
}

// commitLayerContent commits the objects of a chunk layer under their
// checksums, or the files of a derived layer.
func commitLayerContent(repo string, l Layer) (string, error) {
	dir, err := os.MkdirTemp(filepath.Join(repo, "tmp"), "layer-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if l.derived != nil {
		if err := applyDerived(dir, *l.derived); err != nil {
			return "", err
		}
	}
	for _, o := range l.objects {
		if err := os.Link(filepath.Join(repo, objectFile(o, "file")), filepath.Join(dir, o)); err != nil {
			return "", err
		}
	}
	return sysroot.Ostree("commit", "--repo="+repo, "--orphan", "--no-bindings", "--link-checkout-speedup",
		"--tree=dir="+dir, "--timestamp="+stamp(time.Unix(0, 0)), "--add-metadata-string=ostree.importer.version="+importerVersion)
}

// importerVersion is the version of ostree-ext that the commits name.
const importerVersion = "0.14.2"

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// applyDerived changes a checked-out tree as a derived layer does. The tree's
// files are hard links to objects, so they are replaced and never written to.
func applyDerived(dir string, d DerivedLayer) error {
	for _, name := range d.Removed {
		if err := os.RemoveAll(filepath.Join(dir, deployedPath(name))); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(d.Files) {
		target := filepath.Join(dir, deployedPath(name))
		if err := os.RemoveAll(target); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		f := d.Files[name]
		if f.Link != "" {
			if err := os.Symlink(f.Link, target); err != nil {
				return err
			}
			continue
		}
		mode := f.Mode.Perm()
		if mode == 0 {
			mode = 0o644
		}
		if err := os.WriteFile(target, []byte(f.Content), mode); err != nil {
			return err
		}
		if err := os.Chmod(target, mode); err != nil {
			return err
		}
	}
	return nil
}

// deployedPath is where a path of the running system is in a commit.
func deployedPath(name string) string {
	if name == "etc" || strings.HasPrefix(name, "etc/") {
		return "usr/" + name
	}
	return name
}

// commitMerge commits the inner commit's tree with the derived layers applied.
func commitMerge(repo string, m *Image, opts ImportOptions) (string, error) {
	manifest, config, err := m.storedForms()
	if err != nil {
		return "", err
	}
	digest := m.Digest
	if opts.ManifestDigest != "" {
		digest = opts.ManifestDigest
	}
	args := []string{"commit", "--repo=" + repo, "--orphan", "--no-bindings", "--link-checkout-speedup",
		"--timestamp=" + stamp(m.Config.Created),
		"--add-metadata-string=ostree.manifest-digest=" + digest,
		"--add-metadata-string=ostree.manifest=" + manifest,
		"--add-metadata-string=ostree.container.image-config=" + config,
		"--add-metadata-string=ostree.importer.version=" + importerVersion,
	}
	if opts.WithParent {
		args = append(args, "--parent="+m.Commit)
	}
	for _, k := range sortedKeys(opts.Metadata) {
		args = append(args, "--add-metadata="+k+"="+opts.Metadata[k])
	}
	if !slices.ContainsFunc(m.Layers, func(l Layer) bool { return l.derived != nil }) {
		return sysroot.Ostree(append(args, "--tree=ref="+m.Commit)...)
	}
	dir, err := os.MkdirTemp(filepath.Join(repo, "tmp"), "merge-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	tree := filepath.Join(dir, "tree")
	if _, err := sysroot.Ostree("checkout", "--repo="+repo, "--require-hardlinks", m.Commit, tree); err != nil {
		return "", err
	}
	for _, l := range m.Layers {
		if l.derived == nil {
			continue
		}
		if err := applyDerived(tree, *l.derived); err != nil {
			return "", err
		}
	}
	return sysroot.Ostree(append(args, "--tree=dir="+tree)...)
}

// storedForms are the manifest and the config as ostree-ext stores them: in
// OCI form and written anew, so that neither has the bytes, or the digest, that
// the registry holds.
func (m *Image) storedForms() (manifest, config string, err error) {
	stored := m
	if m.Format == DockerV2S2 {
		if stored, err = ConvertToOCI(m); err != nil {
			return "", "", err
		}
	}
	if manifest, err = rewrite(stored.ManifestBytes); err != nil {
		return "", "", err
	}
	config, err = rewrite(stored.ConfigBytes)
	return manifest, config, err
}

// rewrite encodes a JSON document again, with its keys in order.
func rewrite(doc []byte) (string, error) {
	var v any
	if err := json.Unmarshal(doc, &v); err != nil {
		return "", err
	}
	text, err := json.Marshal(v)
	return string(text), err
}

// EscapeRef writes any text as an ostree ref, as ostree-ext does
// (crates/ostree-ext/src/refescape.rs): letters, digits and "-" stay, "/" stays
// between two parts that it can separate, "_" is doubled, and any other byte is
// its code between underscores.
func EscapeRef(text string) string {
	var b strings.Builder
	alnum := func(c byte) bool {
		return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	for i := range len(text) {
		c := text[i]
		switch {
		case alnum(c) || c == '-':
			b.WriteByte(c)
		case c == '/' && i > 0 && i < len(text)-1 && alnum(text[i-1]):
			b.WriteByte(c)
		case c == '_':
			b.WriteString("__")
		default:
			fmt.Fprintf(&b, "_%02X_", c)
		}
	}
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
