package osimage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// packageListFile is what the builds of machine-os-content left of the database
// at the image's root, a package a line (coreos-assembler,
// oscontainer-deprecated-legacy-format.py).
const packageListFile = "pkglist.txt"

// databaseNames are where an OS image may have its rpm database: /var is not part
// of a deployment, and one there is of something else.
func databaseNames() []string {
	var all []string
	for _, dir := range []string{"usr/share/rpm", "usr/lib/sysimage/rpm"} {
		for _, file := range []string{"rpmdb.sqlite", "Packages.db", "Packages"} {
			all = append(all, dir+"/"+file)
		}
	}
	return all
}

// logNames are the files beside a database in which changes wait that are not in it
// yet (sqlite.org/tempfiles.html).
func logNames() []string {
	var all []string
	for _, name := range databaseNames() {
		if strings.HasSuffix(name, ".sqlite") {
			all = append(all, name+"-wal", name+"-journal")
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
	scan := newDatabaseScan()
	left := int64(maxFilesLayers)
	for i := len(m.Layers) - 1; i >= 0 && len(scan.open) > 0; i-- {
		if left -= m.Layers[i].Size; left < 0 {
			return nil, fmt.Errorf("%w: none in the last %d layers, and the one before them goes beyond %d bytes", errNotHere, len(m.Layers)-1-i, int64(maxFilesLayers))
		}
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
