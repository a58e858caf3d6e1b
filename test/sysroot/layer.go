package sysroot

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A ClientLayer says how rpm-ostree changes a commit on the node: packages
// layered and base packages left out.
type ClientLayer struct {
	// Base is the commit beneath: a plain one or a merge commit.
	Base string
	// BasePackages are those of Base.
	BasePackages []Package
	// Requested are the names in rpmostree.packages.
	Requested []string
	// Added are the packages that are layered, dependencies included.
	Added []Package
	// Removed are the names of the base packages that are left out.
	Removed []string

	// Kernel is the release of the only kernel of the layered tree; that of
	// the base where empty.
	Kernel string
	// Files and Without change the base's tree like those of a [Tree].
	Files   map[string]File
	Without []string
	// NoList leaves rpmostree.rpmdb.pkglist out, which rpm-ostree never does.
	NoList bool
	// Metadata are further keys as in [CommitOptions]; they replace those that
	// a client layer has anyway.
	Metadata map[string]string
}

// Packages are those of the layered commit: the base's without the removed and
// with the added ones.
func (l ClientLayer) Packages() []Package {
	list := []Package{}
	for _, p := range l.BasePackages {
		if !slices.Contains(l.Removed, p.Name) {
			list = append(list, p)
		}
	}
	return append(list, l.Added...)
}

// CommitLayer makes a client-layered commit with the metadata that rpm-ostree
// writes (version 6). Where the base has an rpm database, so has the commit.
func (s *Sysroot) CommitLayer(l ClientLayer) (string, error) {
	dir, err := s.scratch("layer-")
	if err != nil {
		return "", err
	}
	defer Remove(dir)
	root := filepath.Join(dir, "root")
	// Copies, not hard links into the repository.
	if _, err := Ostree("checkout", "--repo="+s.Repo(), "--force-copy", "--fsync=false", l.Base, root); err != nil {
		return "", err
	}
	if err := l.change(root); err != nil {
		return "", fmt.Errorf("changing the tree of %s: %w", l.Base, err)
	}
	opts := CommitOptions{Parent: l.Base, Metadata: l.metadata()}
	if !l.NoList {
		opts.Packages = l.Packages()
	}
	if version, err := Ostree("show", "--repo="+s.Repo(), "--print-metadata-key=version", l.Base); err == nil {
		opts.Version = strings.Trim(version, "'")
	}
	return s.Commit(root, opts)
}

func (l ClientLayer) change(root string) error {
	files := map[string]File{}
	remove := slices.Clone(l.Without)
	if l.Kernel != "" {
		remove = append(remove, "usr/lib/modules")
		maps.Copy(files, kernelFiles(l.Kernel))
	}
	if _, err := os.Stat(filepath.Join(root, RPMDatabasePath)); err == nil {
		database, err := rpmDatabaseFiles(l.Packages())
		if err != nil {
			return err
		}
		maps.Copy(files, database)
	}
	maps.Copy(files, l.Files)
	for _, name := range append(remove, sortedKeys(files)...) {
		if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
			return err
		}
	}
	for name, f := range files {
		if err := writeFile(root, name, f); err != nil {
			return err
		}
	}
	return nil
}

// metadata has the types of rpmostree-core.cxx.
func (l ClientLayer) metadata() map[string]string {
	removed := []string{}
	for _, p := range l.BasePackages {
		if slices.Contains(l.Removed, p.Name) {
			removed = append(removed, "<"+p.nevra()+">")
		}
	}
	requested := make([]string, len(l.Requested))
	for i, name := range l.Requested {
		requested[i] = "'" + name + "'"
	}
	metadata := map[string]string{
		"rpmostree.clientlayer":                   "true",
		"rpmostree.clientlayer_version":           "uint32 6",
		"rpmostree.rpmmd-repos":                   "@aa{sv} []",
		"rpmostree.packages":                      "@as [" + strings.Join(requested, ",") + "]",
		"rpmostree.modules":                       "@as []",
		"rpmostree.removed-base-packages":         "@av [" + strings.Join(removed, ",") + "]",
		"rpmostree.replaced-base-packages":        "@a(vv) []",
		"rpmostree.replaced-base-remote-packages": "@a{sv} {}",
		"rpmostree.state-sha512":                  "'" + strings.Repeat("0", 128) + "'",
	}
	maps.Copy(metadata, l.Metadata)
	return metadata
}

// nevra is the text form of (sstsss).
func (p Package) nevra() string {
	epoch, prefix := p.Epoch, p.Epoch+":"
	if epoch == "" || epoch == "0" {
		epoch, prefix = "0", ""
	}
	return fmt.Sprintf("('%s-%s%s-%s.%s','%s',uint64 %s,'%s','%s','%s')",
		p.Name, prefix, p.Version, p.Release, p.Arch, p.Name, epoch, p.Version, p.Release, p.Arch)
}
