package nativeimage

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// An RPM is a package to build. It holds no files but a filler.
type RPM struct {
	Name             string
	Epoch            int // left out where zero
	Version, Release string
	// Arch is RPM's name of the architecture: x86_64, noarch.
	Arch string
	// Filler is the size of the one file in it, which does not compress.
	Filler int
}

// EVRA is [epoch:]version-release.arch.
func (p RPM) EVRA() string {
	evra := p.Version + "-" + p.Release + "." + p.Arch
	if p.Epoch > 0 {
		evra = fmt.Sprintf("%d:%s", p.Epoch, evra)
	}
	return evra
}

// FileName is the name of the RPM file, which never has the epoch.
func (p RPM) FileName() string {
	return p.Name + "-" + p.Version + "-" + p.Release + "." + p.Arch + ".rpm"
}

// BuildRPMs builds RPM files with rpmbuild, and puts them into a folder under
// their names.
func BuildRPMs(dir string, rpms ...RPM) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// One spec can hold packages of one architecture, each name once.
	var specs [][]RPM
next:
	for _, p := range rpms {
		for i, s := range specs {
			if s[0].Arch == p.Arch && !hasName(s, p.Name) {
				specs[i] = append(s, p)
				continue next
			}
		}
		specs = append(specs, []RPM{p})
	}
	for _, s := range specs {
		if err := buildSpec(dir, s); err != nil {
			return err
		}
	}
	return nil
}

func hasName(rpms []RPM, name string) bool {
	for _, p := range rpms {
		if p.Name == name {
			return true
		}
	}
	return false
}

// buildSpec builds packages of one architecture.
func buildSpec(dir string, rpms []RPM) error {
	top, err := os.MkdirTemp("", "rpmbuild-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(top)
	spec := filepath.Join(top, "packages.spec")
	if err := os.WriteFile(spec, specText(rpms), 0o644); err != nil {
		return err
	}
	arch := rpms[0].Arch
	out, err := exec.Command("rpmbuild", "-bb", "--quiet", "--target", arch,
		"--define", "_topdir "+top, "--define", "_rpmdir "+dir, "--define", "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
		"--define", "__os_install_post %{nil}", "--define", "_build_id_links none", spec).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building packages: %w: %s", err, out)
	}
	return nil
}

func specText(rpms []RPM) []byte {
	var b, install, files bytes.Buffer
	// The first package of a spec is never built: it has no list of files.
	b.WriteString("Name: none\nVersion: 1\nRelease: 1\nSummary: none\nLicense: MIT\nAutoReqProv: no\n%description\nNone.\n")
	for _, p := range rpms {
		fmt.Fprintf(&b, "%%package -n %s\nSummary: Test package <&>\nVersion: %s\nRelease: %s\n", p.Name, p.Version, p.Release)
		if p.Epoch > 0 {
			fmt.Fprintf(&b, "Epoch: %d\n", p.Epoch)
		}
		fmt.Fprintf(&b, "%%description -n %s\nA package with %s in it.\n", p.Name, p.EVRA())
		fmt.Fprintf(&files, "%%files -n %s\n", p.Name)
		if p.Filler > 0 {
			fmt.Fprintf(&install, "mkdir -p %%{buildroot}/opt\nhead -c %d /dev/urandom >%%{buildroot}/opt/%s\n", p.Filler, p.Name)
			fmt.Fprintf(&files, "/opt/%s\n", p.Name)
		}
	}
	fmt.Fprintf(&b, "%%install\n%s%s", install.Bytes(), files.Bytes())
	return b.Bytes()
}

// CreateRepo writes repodata/ for the RPM files in a folder and below it, with
// createrepo_c: primary.xml.gz, as all builds before its version 1.0. With Zstd
// it has the form that later versions write.
func CreateRepo(dir string, c Compression) error {
	if out, err := exec.Command("createrepo_c", "--quiet", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("creating a repository: %w: %s", err, out)
	}
	if c == Gzip {
		return nil
	}
	return recompressPrimary(filepath.Join(dir, "repodata"), c)
}

// recompressPrimary replaces primary.xml.gz, and what the index says of it.
func recompressPrimary(repodata string, c Compression) error {
	names, err := filepath.Glob(filepath.Join(repodata, "*-primary.xml.gz"))
	if err != nil || len(names) != 1 {
		return fmt.Errorf("recompressing primary.xml: %d files, %w", len(names), err)
	}
	packed, err := os.ReadFile(names[0])
	if err != nil {
		return err
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	suffix := ""
	if c == Zstd {
		w, err := zstd.NewWriter(nil)
		if err != nil {
			return err
		}
		text, suffix = w.EncodeAll(text, nil), ".zst"
	}
	oldSum, newSum := strings.TrimPrefix(digestOf(packed), "sha256:"), strings.TrimPrefix(digestOf(text), "sha256:")
	index := filepath.Join(repodata, "repomd.xml")
	b, err := os.ReadFile(index)
	if err != nil {
		return err
	}
	b = bytes.ReplaceAll(b, []byte(oldSum+"-primary.xml.gz"), []byte(newSum+"-primary.xml"+suffix))
	b = bytes.ReplaceAll(b, []byte(oldSum), []byte(newSum))
	if err := os.WriteFile(index, b, 0o644); err != nil {
		return err
	}
	if err := os.Remove(names[0]); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(repodata, newSum+"-primary.xml"+suffix), text, 0o644)
}

// ExtensionsOptions says how to build an extensions image. The zero value is
// an image that offers nothing.
type ExtensionsOptions struct {
	Format      Format
	Compression Compression
	// Architecture is what the config says; the host's where empty.
	Architecture string
	Packages     []RPM
	// WithoutList leaves out extensions.json and its layer, as releases before
	// 4.19 do.
	WithoutList bool
	// Primary is how primary.xml is compressed.
	Primary Compression
	// Labels are further ones.
	Labels map[string]string
}

// BuildExtensions builds an image as openshift/os extensions/Containerfile
// does: the layers of the base image, one with the RPM files and their
// repository's metadata, and a last one with the list.
func BuildExtensions(dir string, opts ExtensionsOptions) (*Image, error) {
	repo, err := os.MkdirTemp("", "extensions-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(repo)
	if err := BuildRPMs(repo, opts.Packages...); err != nil {
		return nil, err
	}
	if err := CreateRepo(repo, opts.Primary); err != nil {
		return nil, err
	}
	m := &Image{Format: opts.Format}
	m.Config.Architecture = opts.Architecture
	if m.Config.Architecture == "" {
		m.Config.Architecture = runtime.GOARCH
	}
	m.Config.Created = time.Unix(1700000000, 0)
	m.Config.Labels = map[string]string{"name": "ubi9", "io.openshift.os.extensions": "true"}
	maps.Copy(m.Config.Labels, opts.Labels)
	const where = "usr/share/rpm-ostree/extensions"
	layers := []func(io.Writer) error{
		func(w io.Writer) error { return writeFiles(w, baseLayer()) },
		func(w io.Writer) error { return writeFolder(w, where, repo) },
	}
	if !opts.WithoutList {
		list := extensionsList(opts.Packages)
		layers = append(layers, func(w io.Writer) error { return writeFile(w, where+".json", list) })
	}
	for i, write := range layers {
		l, err := writeLayer(dir, opts.Compression, write)
		if err != nil {
			return nil, fmt.Errorf("writing layer %d: %w", i, err)
		}
		l.CreatedBy = "/bin/sh -c #(nop) COPY"
		m.addLayer(l)
	}
	return m, m.seal()
}

// extensionsList is extensions.json as a query of dnf prints it.
func extensionsList(rpms []RPM) []byte {
	var lines []string
	for _, p := range rpms {
		name, _ := json.Marshal(p.Name)   //nolint:errchkjson // strings always can be
		evra, _ := json.Marshal(p.EVRA()) //nolint:errchkjson // strings always can be
		lines = append(lines, string(name)+": "+string(evra))
	}
	return []byte("{\n" + strings.Join(lines, ",\n") + "\n}\n")
}

// writeFolder writes a layer with a folder of the file system.
func writeFolder(w io.Writer, name, from string) error {
	t := &layerWriter{Writer: tar.NewWriter(w), wrote: map[string]bool{}}
	if err := t.parents(name); err != nil {
		return err
	}
	if err := t.addFolder(name, from); err != nil {
		return err
	}
	return t.Close()
}

// writeFile writes a layer with one file.
func writeFile(w io.Writer, name string, data []byte) error {
	t := &layerWriter{Writer: tar.NewWriter(w), wrote: map[string]bool{}}
	if err := t.parents(name); err != nil {
		return err
	}
	if err := t.file(name, 0o644, data); err != nil {
		return err
	}
	return t.Close()
}

// A LegacyLayout is how a machine-os-content image keeps its extensions.
type LegacyLayout int

// The layouts, the latest first.
const (
	// FlatExtensions has all RPM files, repodata and a list of extensions in
	// /extensions (4.7 to 4.12).
	FlatExtensions LegacyLayout = iota
	// FolderExtensions has a folder for each extension, one for what they
	// depend on, and repodata (4.6 and 4.7).
	FolderExtensions
	// OKDExtensions has the RPM files in /extensions/okd and repodata in
	// /extensions.
	OKDExtensions
	// BareExtensions is FolderExtensions without repodata.
	BareExtensions
)

// WriteLegacyExtensions makes the folder that becomes /extensions, for
// [LegacyOptions]. What an extension depends on is under the empty name.
func WriteLegacyExtensions(dir string, layout LegacyLayout, extensions map[string][]RPM) error {
	list := map[string]any{}
	for _, name := range sortedKeys(extensions) {
		folder := name
		switch {
		case layout == FlatExtensions:
			folder = ""
		case layout == OKDExtensions:
			folder = "okd"
		case name == "":
			folder = "dependencies"
		}
		if err := BuildRPMs(filepath.Join(dir, folder), extensions[name]...); err != nil {
			return err
		}
		if name != "" {
			var packages []string
			for _, p := range extensions[name] {
				packages = append(packages, p.Name)
			}
			list[name] = map[string]any{"packages": packages, "architectures": nil, "match-base-evr": nil, "kind": "os-extension"}
		}
	}
	if layout == BareExtensions {
		return nil
	}
	if err := CreateRepo(dir, Gzip); err != nil || layout != FlatExtensions {
		return err
	}
	// rpm-ostree's own list of the same name, of another kind.
	b, err := json.Marshal(map[string]any{"extensions": list, "repos": []string{}})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "extensions.json"), b, 0o644)
}
