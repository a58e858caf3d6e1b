package cases

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// A lab is what all cases share: OS builds and a registry's store.
type lab struct {
	dir     string
	build   *sysroot.Sysroot
	net     *network
	commits map[string]string
	// images are those that say nothing of their case, machines the sysroots
	// made so far, by what is deployed in them.
	images   map[string]*nativeimage.Image
	machines map[string]*machine
	made     int
}

var theLab *lab

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == childArgument {
		os.Exit(childMain())
	}
	l, err := newLab()
	if err != nil {
		fmt.Fprintln(os.Stderr, "making the lab:", err)
		os.Exit(1)
	}
	theLab = l
	code := m.Run()
	l.net.close()
	if err := sysroot.Remove(l.dir); err != nil {
		fmt.Fprintln(os.Stderr, "removing the lab:", err)
		code = 1
	}
	os.Exit(code)
}

func newLab() (*lab, error) {
	dir, err := os.MkdirTemp("", "cases-")
	if err != nil {
		return nil, err
	}
	l := &lab{dir: dir, commits: map[string]string{},
		images: map[string]*nativeimage.Image{}, machines: map[string]*machine{}}
	if l.build, err = sysroot.New(filepath.Join(dir, "build")); err != nil {
		return nil, err
	}
	if l.net, err = newNetwork(filepath.Join(dir, "registry")); err != nil {
		return nil, err
	}
	return l, nil
}

// trees are the builds that a case may name: base is an OS, rebuilt the same
// files committed a day later, other another build.
func treeOf(name string) (tree sysroot.Tree, later int64, ok bool) {
	switch name {
	case "base":
		return sysroot.Tree{}, 0, true
	case "rebuilt":
		return sysroot.Tree{}, 86400, true
	case "other":
		return sysroot.Tree{Version: "416.94.202411050000-0", Files: map[string]sysroot.File{
			"usr/share/other": {Content: "another build\n"}}}, 172800, true
	}
	return sysroot.Tree{}, 0, false
}

// A world is what one case has built.
type world struct {
	*testCase
	t       testing.TB
	lab     *lab
	dir     string
	images  map[string]*nativeimage.Image
	pending map[string]bool // names that are being resolved
}

func newWorld(t testing.TB, c *testCase) *world {
	return &world{testCase: c, t: t, lab: theLab, dir: sysroot.TempDir(t),
		images: map[string]*nativeimage.Image{}, pending: map[string]bool{}}
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// commit is the checksum of an OS build.
func (w *world) commit(name string) string {
	w.t.Helper()
	s, own := w.Commits[name]
	key := name
	if own {
		key = w.testCase.name + " " + name
	}
	if c, ok := w.lab.commits[key]; ok {
		return c
	}
	c := must[string](w.t)(w.makeCommit(name, s))
	w.lab.commits[key] = c
	return c
}

func (w *world) makeCommit(name string, s commitSpec) (string, error) {
	if s.Tree == "" {
		s.Tree = name
		if _, _, ok := treeOf(name); !ok {
			s.Tree = "base"
		}
	}
	tree, later, ok := treeOf(s.Tree)
	if !ok {
		return "", fmt.Errorf("no tree is named %q", s.Tree)
	}
	if s.Version != "" {
		tree.Version = s.Version
	}
	if s.Kernel != "" {
		tree.Kernels = []string{s.Kernel}
	}
	tree.Without = s.Without
	opts := sysroot.CommitOptions{Timestamp: sysroot.DefaultTimestamp + later, Packages: packagesOf(s, tree.Kernel())}
	if s.Bare {
		dir := filepath.Join(w.dir, "tree-"+name)
		// The mode of the root that CommitTree gives all others.
		if err := os.Mkdir(dir, 0o700); err != nil {
			return "", err
		}
		if err := tree.Write(dir); err != nil {
			return "", err
		}
		opts.Packages = nil
		return w.lab.build.Commit(dir, opts)
	}
	return w.lab.build.CommitTree(tree, opts)
}

// packagesOf are a few packages of a real size of list, with those that the
// case names.
func packagesOf(s commitSpec, kernel string) []sysroot.Package {
	list := sysroot.Packages(20, kernel)
	for i, p := range list {
		evr, ok := s.Packages[p.Name]
		if !ok {
			continue
		}
		list[i].Epoch, list[i].Version, list[i].Release = splitEVR(evr)
	}
	return list
}

func splitEVR(evr string) (epoch, version, release string) {
	epoch, rest, found := strings.Cut(evr, ":")
	if !found {
		epoch, rest = "0", evr
	}
	version, release, _ = strings.Cut(rest, "-")
	return epoch, version, release
}

// image builds an image once.
func (w *world) image(name string) *nativeimage.Image {
	w.t.Helper()
	if m, ok := w.images[name]; ok {
		return m
	}
	s, ok := w.Images[name]
	if !ok {
		w.t.Fatalf("no image is named %q", name)
	}
	// Most cases only need some image of a common build.
	key, common := "", false
	if _, own := w.Commits[s.Commit]; !own && s.Commit != "" {
		key = fmt.Sprintf("%+v", s)
		common = s.Labels == "" && len(s.Label) == 0
	}
	if m, ok := w.lab.images[key]; ok && common {
		w.images[name] = m
		return m
	}
	dir := must[string](w.t)(os.MkdirTemp(w.lab.dir, "image-"))
	labels := w.labels(s)
	m, err := w.buildImage(dir, s, labels)
	if err == nil && s.Compression == "mixed" {
		m, err = mixCompression(dir, m)
	}
	if err != nil {
		w.t.Fatalf("building image %s: %v", name, err)
	}
	w.images[name] = m
	if common {
		w.lab.images[key] = m
	}
	return m
}

func (w *world) buildImage(dir string, s imageSpec, labels map[string]string) (*nativeimage.Image, error) {
	format, compression := nativeimage.OCI, nativeimage.Gzip
	if s.Format == "v2s2" {
		format = nativeimage.DockerV2S2
	}
	if s.Compression == "zstd" {
		compression = nativeimage.Zstd
	}
	repo := w.lab.build.Repo()
	switch {
	case s.Derived != "":
		var layers []nativeimage.DerivedLayer
		for i := range s.Layers {
			layers = append(layers, nativeimage.DerivedLayer{Files: map[string]sysroot.File{
				fmt.Sprintf("usr/share/layer-%d", i): {Content: "a layer more\n"}}})
		}
		return nativeimage.Derive(dir, w.image(s.Derived), labels, layers...)
	case len(s.Extensions) > 0:
		return nativeimage.BuildExtensions(dir, nativeimage.ExtensionsOptions{
			Format: format, Compression: compression, Packages: rpmsOf(s.Extensions)})
	case s.Plain:
		return w.plainImage(dir, labels)
	case len(s.Legacy) > 0:
		commits := make([]string, len(s.Legacy))
		for i, c := range s.Legacy {
			commits[i] = w.commit(c)
		}
		refs := map[string]string{}
		for ref, c := range s.Refs {
			refs[ref] = w.commit(c)
		}
		label := labels["com.coreos.ostree-commit"]
		return nativeimage.BuildLegacy(dir, repo, commits, nativeimage.LegacyOptions{
			Format: format, Compression: compression, Label: label, Labels: labels, Refs: refs})
	}
	return nativeimage.Build(dir, repo, w.commit(s.Commit), nativeimage.Options{
		Format: format, Compression: compression, Labels: labels, WithoutLabels: s.WithoutLabels})
}

// rpmsOf are packages to build.
func rpmsOf(list map[string]string) []nativeimage.RPM {
	var rpms []nativeimage.RPM
	for _, name := range slices.Sorted(maps.Keys(list)) {
		p := nativeimage.RPM{Name: name, Arch: "x86_64"}
		_, p.Version, p.Release = splitEVR(list[name])
		rpms = append(rpms, p)
	}
	return rpms
}

// plainImage is an image of one layer without an OS.
func (w *world) plainImage(dir string, labels map[string]string) (*nativeimage.Image, error) {
	base := nativeimage.Options{Chunks: -1}
	m, err := nativeimage.Build(dir, w.lab.build.Repo(), w.commit("base"), base)
	if err != nil {
		return nil, err
	}
	derived, err := nativeimage.Derive(dir, m, nil, nativeimage.DerivedLayer{Files: map[string]sysroot.File{
		"etc/os-release": {Content: "ID=rhel\nVERSION_ID=8.7\n"}}})
	if err != nil {
		return nil, err
	}
	// What is left is the layer on top.
	top := len(derived.Layers) - 1
	derived.Layers = derived.Layers[top:]
	return derived.Edit(func(c *nativeimage.Config) {
		c.DiffIDs, c.History, c.Labels = c.DiffIDs[top:], c.History[top:], labels
	})
}

// mixCompression gives every other layer zstd in place of gzip.
func mixCompression(dir string, m *nativeimage.Image) (*nativeimage.Image, error) {
	zstd, err := nativeimage.Recompress(dir, m, nativeimage.Zstd)
	if err != nil {
		return nil, err
	}
	mixed := *m
	mixed.Layers = slices.Clone(m.Layers)
	for i := 1; i < len(mixed.Layers); i += 2 {
		mixed.Layers[i] = zstd.Layers[i]
	}
	return mixed.Edit(func(*nativeimage.Config) {})
}

// labels are those of a file: a map, or the document of skopeo inspect or an
// image config that has them inside. The ones that the builder must compute
// are its own unless the case names them one by one.
func (w *world) labels(s imageSpec) map[string]string {
	labels := map[string]string{}
	if s.Labels != "" {
		var doc map[string]any
		if err := json.Unmarshal([]byte(w.text(s.Labels)), &doc); err != nil {
			w.t.Fatalf("%s: %v", s.Labels, err)
		}
		if inner, ok := doc["config"].(map[string]any); ok {
			doc = inner
		}
		if inner, found := doc["Labels"]; found {
			doc, _ = inner.(map[string]any)
		}
		for k, v := range doc {
			if text, ok := v.(string); ok && k != "ostree.commit" && k != "ostree.final-diffid" {
				labels[k] = text
			}
		}
	}
	for k, v := range s.Label {
		labels[k] = w.substitute(v)
	}
	for _, k := range s.WithoutLabels {
		delete(labels, k)
	}
	return labels
}

// text is a file of the case with the real digests in the place of the
// reported ones.
func (w *world) text(name string) string {
	w.t.Helper()
	raw, ok := w.files[name]
	if !ok {
		w.t.Fatalf("no file is named %q; there are %q", name, w.inputs())
	}
	return w.substitute(raw)
}

// substitute puts what a name stands for in its place. A name that is being
// resolved stays: an image cannot hold its own digest.
func (w *world) substitute(text string) string {
	for name, meaning := range w.Names {
		if !w.pending[name] && strings.Contains(text, name) {
			w.pending[name] = true
			value := w.resolve(meaning)
			delete(w.pending, name)
			text = strings.ReplaceAll(text, name, value)
		}
	}
	return bracketed.ReplaceAllStringFunc(text, func(s string) string {
		return w.resolve(s[1 : len(s)-1])
	})
}

// bracketed is what a case writes of its own: <digest os>.
var bracketed = regexp.MustCompile(`<(commit|merge|digest|config|document) [^>]+>`)

// resolve tells what a name stands for.
func (w *world) resolve(meaning string) string {
	what, name, _ := strings.Cut(meaning, " ")
	switch what {
	case "commit":
		return w.commit(name)
	case "merge":
		// What a pull of the image leaves on every host is the same.
		return must[string](w.t)(nativeimage.Import(w.lab.build.Repo(), w.image(name), nativeimage.ImportOptions{}))
	case "digest":
		return w.image(name).Digest
	case "config":
		return w.image(name).ConfigBlob().Digest
	case "document":
		return digestOf(w.text(name))
	case "proxy":
		return w.lab.net.proxyHost
	}
	w.t.Fatalf("a name cannot stand for %q", meaning)
	return ""
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}
