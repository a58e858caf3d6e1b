package nativeimage

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/oneboot/oneboot/test/sysroot"
)

// LegacyOptions says how to build a machine-os-content image. The zero value
// is an OCI image without a label, whose repository has no ref.
type LegacyOptions struct {
	Format      Format
	Compression Compression
	// Architecture is what the config says; the host's where empty.
	Architecture string
	// Created is the image's time; the first commit's own where zero.
	Created time.Time
	// Label is com.coreos.ostree-commit, true or stale; absent where empty.
	Label string
	// Labels are further ones.
	Labels map[string]string
	// Refs are the refs in /srv/repo: names and commits.
	Refs map[string]string
	// WithoutBase leaves out the layer of the base image, as FROM scratch.
	WithoutBase bool
	// PackageList is the text of /pkglist.txt; no file where empty.
	PackageList string
	// Extensions is a folder that becomes /extensions; none where empty.
	Extensions string
	// Directories are more folders, by their names at the image's root.
	Directories map[string]string
	// RepoFirst writes /srv before the rest of the layer, not after it.
	RepoFirst bool
}

// BuildLegacy builds a machine-os-content image with the commits in an
// archive repository at /srv/repo, which the ostree tool makes.
func BuildLegacy(dir, repo string, commits []string, opts LegacyOptions) (*Image, error) {
	if opts.Format == DockerV2S2 && opts.Compression == Zstd {
		return nil, fmt.Errorf("building an image: Docker's format has no zstd layers")
	}
	content, err := os.MkdirTemp("", "machine-os-content-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(content)
	if err := legacyContent(content, repo, commits, opts); err != nil {
		return nil, err
	}
	m := &Image{Format: opts.Format, Repo: repo}
	if len(commits) == 1 {
		m.Commit = commits[0]
	}
	if !opts.WithoutBase {
		base, err := writeLayer(dir, opts.Compression, func(w io.Writer) error { return writeFiles(w, baseLayer()) })
		if err != nil {
			return nil, fmt.Errorf("writing the base layer: %w", err)
		}
		base.CreatedBy = "base image"
		m.addLayer(base)
	}
	top, err := writeLayer(dir, opts.Compression, func(w io.Writer) error {
		return writeFolders(w, content, opts)
	})
	if err != nil {
		return nil, fmt.Errorf("writing the content layer: %w", err)
	}
	top.CreatedBy = "/bin/sh"
	m.addLayer(top)
	if err := m.legacyConfig(commits, opts); err != nil {
		return nil, err
	}
	return m, m.seal()
}

func (m *Image) legacyConfig(commits []string, opts LegacyOptions) error {
	m.Config.Architecture = opts.Architecture
	if m.Config.Architecture == "" {
		m.Config.Architecture = runtime.GOARCH
	}
	m.Config.Created = opts.Created
	if m.Config.Created.IsZero() && len(commits) > 0 {
		seconds, err := commitTime(m.Repo, commits[0])
		if err != nil {
			return err
		}
		m.Config.Created = time.Unix(seconds, 0)
	}
	m.Config.Labels = map[string]string{}
	if !opts.WithoutBase {
		m.Config.Labels["name"] = "ubi8"
		m.Config.Labels["release"] = "1054"
	}
	if opts.Label != "" {
		m.Config.Labels["com.coreos.ostree-commit"] = opts.Label
		if v := metadataString(m.Repo, opts.Label, "version"); v != "" {
			m.Config.Labels["version"] = v
			m.Config.Labels["io.openshift.build.versions"] = "machine-os=" + v
		}
	}
	maps.Copy(m.Config.Labels, opts.Labels)
	return nil
}

// baseLayer stands for the layers of the base image.
func baseLayer() DerivedLayer {
	return DerivedLayer{Files: map[string]sysroot.File{
		"etc/os-release": {Content: "ID=rhel\nVERSION_ID=8.3\n"},
		"etc/passwd":     {Content: "root:x:0:0:root:/root:/bin/bash\n"},
	}}
}

// legacyContent makes what the one layer holds, in folders of dir.
func legacyContent(dir, repo string, commits []string, opts LegacyOptions) error {
	srv := filepath.Join(dir, "srv/repo")
	if err := os.MkdirAll(srv, 0o755); err != nil {
		return err
	}
	if _, err := sysroot.Ostree("init", "--repo="+srv, "--mode=archive"); err != nil {
		return err
	}
	for _, c := range commits {
		if _, err := sysroot.Ostree("pull-local", "--repo="+srv, "--disable-fsync", repo, c); err != nil {
			return err
		}
	}
	for name, c := range opts.Refs {
		if _, err := sysroot.Ostree("refs", "--repo="+srv, "--create="+name, c); err != nil {
			return err
		}
	}
	if opts.PackageList == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, "pkglist.txt"), []byte(opts.PackageList), 0o644)
}

// writeFolders writes the layer: what is in content, and the caller's folders
// under their names.
func writeFolders(w io.Writer, content string, opts LegacyOptions) error {
	t := &layerWriter{Writer: tar.NewWriter(w), wrote: map[string]bool{}}
	repo := func() error { return t.addFolder("srv", filepath.Join(content, "srv")) }
	if opts.RepoFirst {
		if err := repo(); err != nil {
			return err
		}
	}
	folders := maps.Clone(opts.Directories)
	if folders == nil {
		folders = map[string]string{}
	}
	if opts.Extensions != "" {
		folders["extensions"] = opts.Extensions
	}
	for _, name := range sortedKeys(folders) {
		if err := t.addFolder(name, folders[name]); err != nil {
			return err
		}
	}
	if opts.PackageList != "" {
		if err := t.file("pkglist.txt", 0o644, []byte(opts.PackageList)); err != nil {
			return err
		}
	}
	if !opts.RepoFirst {
		if err := repo(); err != nil {
			return err
		}
	}
	return t.Close()
}

// addFolder writes a folder of the file system under another name, in the
// order of its names.
func (w *layerWriter) addFolder(name, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(name, rel)
		switch {
		case strings.HasSuffix(target, "srv/repo/.lock"):
			return nil // a lock of the tool that made the repository
		case d.IsDir():
			return w.dir(target, 0o755, 0, 0)
		case d.Type() == fs.ModeSymlink:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return w.header(tar.Header{Typeflag: tar.TypeSymlink, Name: target, Linkname: link, Mode: 0o777})
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return w.file(target, 0o644, data)
	})
}
