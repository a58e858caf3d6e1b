package osimage

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/rpmdb"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// packageListFile is what the builds of machine-os-content left of the database
// at the image's root, a package a line (coreos-assembler,
// oscontainer-deprecated-legacy-format.py).
const packageListFile = "pkglist.txt"

// databaseNames are where an image may have its rpm database: those of
// rpm-ostree, and rpm's own.
func databaseNames() []string {
	var all []string
	for _, dir := range []string{"usr/share/rpm", "usr/lib/sysimage/rpm", "var/lib/rpm"} {
		for _, file := range []string{"rpmdb.sqlite", "Packages.db", "Packages"} {
			all = append(all, dir+"/"+file)
		}
	}
	return all
}

// objectFile is a file's content in a native image; its names are hard links.
var objectFile = regexp.MustCompile(`^(?:sysroot/)?ostree/repo/objects/[0-9a-f]{2}/[0-9a-f]{62}\.file$`)

// databasePackages reads the rpm database. Of several layers with one the last
// counts, as when they are laid upon each other.
func (img *Image) databasePackages(ctx context.Context, m Manifest, c format.ImageConfig) ([]verdict.Package, error) {
	if form, _ := encapsulationOf(m, c); form == legacyEncapsulation {
		return img.listedPackages(ctx, m, c)
	}
	open := map[string]bool{}
	for _, name := range databaseNames() {
		open[name] = true
	}
	left := int64(maxFilesLayers)
	for i := len(m.Layers) - 1; i >= 0 && len(open) > 0; i-- {
		if left -= m.Layers[i].Size; left < 0 {
			return nil, fmt.Errorf("%w: none in the last %d layers, and the one before them goes beyond %d bytes", errNotHere, len(m.Layers)-1-i, int64(maxFilesLayers))
		}
		scan := &databaseScan{open: open}
		err := img.readLayer(ctx, m, c, i, layerScan{part: largeLayerPart, limit: maxLayerBytes, read: func(ctx context.Context, r io.Reader) (bool, error) {
			return false, scan.read(ctx, r)
		}})
		if err != nil {
			scan.close()
			return nil, err
		}
		packages, err := scan.packages()
		scan.close()
		if err != nil {
			return nil, fail(LayerInvalid, img.name, fmt.Errorf("%s: %w", layerName(m, i), err))
		}
		if packages != nil {
			return packages, nil
		}
	}
	return nil, fmt.Errorf("%w: no layer has one", errNotHere)
}

// listedPackages reads the list of a machine-os-content image.
func (img *Image) listedPackages(ctx context.Context, m Manifest, c format.ImageConfig) ([]verdict.Package, error) {
	files, err := img.files(ctx, m, c, []string{packageListFile})
	if err != nil {
		return nil, err
	}
	b, ok := files[packageListFile]
	if !ok {
		return nil, fmt.Errorf("%w: the image has no /%s", errNotHere, packageListFile)
	}
	packages, err := parsePackageList(b)
	if err != nil {
		return nil, fail(LayerInvalid, img.name, fmt.Errorf("%s: %w", packageListFile, err))
	}
	return packages, nil
}

// parsePackageList reads lines of name-[epoch:]version-release.arch.
func parsePackageList(b []byte) ([]verdict.Package, error) {
	var packages []verdict.Package
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if len(packages) == maxPackages {
			return nil, fmt.Errorf("more than %d packages", maxPackages)
		}
		release := strings.LastIndexByte(line, '-')
		version := strings.LastIndexByte(line[:max(release, 0)], '-')
		if version <= 0 {
			return nil, fmt.Errorf("line %d: %.100q is no package", len(packages)+1, line)
		}
		p, err := splitEVRA(line[:version], line[version+1:])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", len(packages)+1, err)
		}
		packages = append(packages, p)
	}
	if len(packages) == 0 {
		return nil, errors.New("it is empty")
	}
	return packages, nil
}

// maxSpools is how many files that look like a database are kept until their
// names are seen, each in a file without a name.
const maxSpools = 3

// A spool is a file of a layer on this machine's disk.
type spool struct {
	name string
	file *os.File
	size int64
}

// A databaseScan looks for the database in one layer.
type databaseScan struct {
	// open are the names that no layer above has settled.
	open   map[string]bool
	spools []spool
	// found are the names with the spool that is theirs.
	found  map[string]spool
	hidden map[string]bool
	// unwritten is a log with changes that are not in the database yet.
	unwritten string
}

func (s *databaseScan) close() {
	for _, p := range s.spools {
		p.file.Close()
	}
	s.spools = nil
}

func (s *databaseScan) read(ctx context.Context, r io.Reader) error {
	s.found, s.hidden = map[string]spool{}, map[string]bool{}
	t := tar.NewReader(r)
	for {
		h, err := nextEntry(ctx, t)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.entry(ctx, t, h); err != nil {
			return err
		}
	}
}

func (s *databaseScan) entry(ctx context.Context, t *tar.Reader, h *tar.Header) error {
	name := entryName(h)
	dir, base := parent(name), path.Base(name)
	switch {
	case base == opaqueWhiteout:
		s.hide(dir)
	case strings.HasPrefix(base, whiteout):
		s.hide(path.Join(dir, strings.TrimPrefix(base, whiteout)))
	case h.Typeflag == tar.TypeReg && (s.open[name] || objectFile.MatchString(name)):
		return s.keep(ctx, t, h, name)
	case h.Typeflag == tar.TypeLink && s.open[name]:
		target := entryName(&tar.Header{Name: h.Linkname})
		i := slices.IndexFunc(s.spools, func(p spool) bool { return p.name == target })
		if i < 0 {
			return fmt.Errorf("/%s is a link to /%.200s, which is not before it in the layer, or no database", name, target)
		}
		s.found[name] = s.spools[i]
	case h.Typeflag == tar.TypeReg && h.Size > 0 && (strings.HasSuffix(name, "rpmdb.sqlite-wal") || strings.HasSuffix(name, "rpmdb.sqlite-journal")):
		s.unwritten = name
	}
	return nil
}

func (s *databaseScan) hide(gone string) {
	for name := range s.open {
		if name == gone || gone == "" || strings.HasPrefix(name, gone+"/") {
			s.hidden[name] = true
		}
	}
}

// keep copies a file that may be the database to the disk.
func (s *databaseScan) keep(ctx context.Context, t io.Reader, h *tar.Header, name string) error {
	content := bufio.NewReader(timedReader{ctx, t})
	magic, err := content.Peek(16)
	if err != nil && !errors.Is(err, io.EOF) {
		return noEOF(err)
	}
	named := s.open[name]
	if !named && !rpmdb.Looks(magic) {
		return nil
	}
	if h.Size > rpmdb.MaxSize {
		if named {
			return fmt.Errorf("/%s has %d bytes, over the limit of %d", name, h.Size, int64(rpmdb.MaxSize))
		}
		return nil
	}
	f, err := os.CreateTemp("", "oneboot-rpmdb-")
	if err != nil {
		return fmt.Errorf("making room for the rpm database: %w", bare(err))
	}
	p := spool{name: name, file: f, size: h.Size}
	s.spools = append(s.spools, p)
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("making room for the rpm database: %w", bare(err))
	}
	if _, err := io.Copy(f, content); err != nil {
		return noEOF(err)
	}
	if named {
		s.found[name] = p
		return nil
	}
	if len(s.spools) > maxSpools {
		i := slices.IndexFunc(s.spools, func(p spool) bool { return !s.isFound(p) })
		s.spools[i].file.Close()
		s.spools = slices.Delete(s.spools, i, i+1)
	}
	return nil
}

func (s *databaseScan) isFound(p spool) bool {
	for _, f := range s.found {
		if f.file == p.file {
			return true
		}
	}
	return false
}

// packages reads the database that the layer has; nil where it has none.
func (s *databaseScan) packages() ([]verdict.Package, error) {
	var file *os.File
	size, at := int64(0), ""
	for _, name := range databaseNames() {
		p, ok := s.found[name]
		switch {
		case !ok:
		case file != nil && p.file != file:
			return nil, fmt.Errorf("two rpm databases, /%s and /%s", at, name)
		default:
			file, size, at = p.file, p.size, name
		}
	}
	for name := range s.hidden {
		if _, ok := s.found[name]; !ok {
			delete(s.open, name)
		}
	}
	switch {
	case file == nil:
		return nil, nil
	case s.unwritten != "":
		return nil, fmt.Errorf("/%s has changes that are not in the database yet", s.unwritten)
	}
	packages, err := rpmdb.List(file, size)
	if err != nil {
		return nil, fmt.Errorf("/%s: %w", at, err)
	}
	return packages, nil
}
