package osimage

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// A Source says where a fact of an image was read. It is a stable code.
type Source string

const (
	// SourceConfig is the image's config, checked against its digest.
	SourceConfig Source = "config"
	// SourceLabel is a label of the config: what the builder says. Images built
	// upon this one inherit it, so it counts only where none of its layers is such.
	SourceLabel Source = "label"
	// SourceMetadata is the list in the layer that the builds of node images put
	// on top (openshift/os Containerfile), the label io.openshift.metalayer.
	SourceMetadata Source = "metadata-layer"
	// SourceCommit is the package list in the inner ostree commit.
	SourceCommit Source = "commit"
	// SourceDatabase is the image's own rpm database.
	SourceDatabase Source = "rpm-database"
	// SourceExtensions is what an extensions image or /extensions offers.
	SourceExtensions Source = "extensions"
	// SourceDriverToolkit is the driver-toolkit image of the same release.
	SourceDriverToolkit Source = "driver-toolkit"
	// SourcePackages is what the packages' own names and versions tell.
	SourcePackages Source = "packages"
)

// A PackageList is what is installed in an image.
type PackageList struct {
	Packages []verdict.Package
	Source   Source
}

const (
	// labelMetadata marks an image with a metadata layer.
	labelMetadata = "io.openshift.metalayer"
	openshiftDir  = "usr/share/openshift/"
	packagesFile  = openshiftDir + "base/meta.json"
	// maxMetadataLayer bounds that layer, as fetched: it has some 100 kB.
	maxMetadataLayer = 4 << 20
	// keyPackageList is rpm-ostree's list in a commit's metadata.
	keyPackageList = "rpmostree.rpmdb.pkglist"
)

// A PackagesUnknownError says that no place tells what is installed.
type PackagesUnknownError struct {
	// Places are those that were looked at, each with the reason.
	Places []string
}

func (e *PackagesUnknownError) Error() string { return strings.Join(e.Places, "; ") }

// errNotHere says that a source does not have what was looked for.
var errNotHere = errors.New("not there")

// Packages returns the packages that the image has, from the cheapest source
// that is sure to say what is in the image: the metadata layer where it is the
// last one, the inner commit where no layer follows it. With the database they are
// read from the rpm database, layer by layer from the last one, which may cost the
// whole image. Where none answers the error is a
// [*PackagesUnknownError].
func (img *Image) Packages(ctx context.Context, database bool) (PackageList, error) {
	img.mu.Lock()
	defer img.mu.Unlock()
	m, err := img.getParsedManifest(ctx)
	if err != nil {
		return PackageList{}, err
	}
	c, err := img.getConfig(ctx)
	if err != nil {
		return PackageList{}, err
	}
	if len(m.Layers) != len(c.DiffIDs) {
		return PackageList{}, failText(ManifestInvalid, img.name, fmt.Sprintf("the manifest has %d layers, the config %d diff ids", len(m.Layers), len(c.DiffIDs)))
	}
	var tried []string
	for _, s := range []struct {
		source Source
		read   func() ([]verdict.Package, error)
	}{
		{SourceMetadata, func() ([]verdict.Package, error) { return img.metadataPackages(ctx, m, c) }},
		{SourceCommit, func() ([]verdict.Package, error) { return img.commitPackages(ctx, m, c, database) }},
		{SourceDatabase, func() ([]verdict.Package, error) {
			if !database && layerBytes(m) > maxCheap {
				return nil, fmt.Errorf("%w: reading it costs up to %d MB, which --full allows", errNotHere, layerBytes(m)/1e6)
			}
			return img.databasePackages(ctx, m, c)
		}},
	} {
		packages, err := s.read()
		switch {
		case err == nil:
			return PackageList{Packages: packages, Source: s.source}, nil
		case ctx.Err() != nil, !errors.Is(err, errNotHere) && passes(err):
			return PackageList{}, err
		}
		tried = append(tried, fmt.Sprintf("%s: %s", s.source, strings.TrimPrefix(err.Error(), errNotHere.Error()+": ")))
	}
	return PackageList{}, &PackagesUnknownError{Places: tried}
}

// passes reports whether another source would fail alike: the registry does not
// answer, rather than what it gives being of no use.
func passes(err error) bool {
	switch CodeOf(err) {
	case LayerInvalid, LayerTruncated, DigestMismatch, CommitLabelMismatch, CommitAmbiguous, NotAnOSImage, ManifestInvalid:
		return false
	}
	return true
}

func layerBytes(m Manifest) int64 {
	total := int64(0)
	for _, l := range m.Layers {
		total += l.Size
	}
	return total
}

// metadataPackages reads the last layer, if it is the metadata layer: one that
// has nothing but its files. A label alone is inherited by every image that is
// built upon the node image.
func (img *Image) metadataPackages(ctx context.Context, m Manifest, c format.ImageConfig) ([]verdict.Package, error) {
	last := len(m.Layers) - 1
	switch {
	case c.Labels[labelMetadata] == "":
		return nil, fmt.Errorf("%w: no label %s", errNotHere, labelMetadata)
	case m.Layers[last].Size > maxMetadataLayer:
		return nil, fmt.Errorf("%w: the last layer has %d bytes: something was built upon the image", errNotHere, m.Layers[last].Size)
	}
	var (
		packages []verdict.Package
		why      error
	)
	err := img.readLayer(ctx, m, c, last, layerScan{part: maxMetadataLayer, limit: maxFileBytes, read: func(ctx context.Context, r io.Reader) (bool, error) {
		packages, why = scanMetadata(ctx, r)
		return false, errors.Join(ctx.Err(), badArchive(why))
	}})
	if err != nil {
		return nil, err
	}
	return packages, why
}

// badArchive is an error unless it only says that the layer is another.
func badArchive(err error) error {
	if errors.Is(err, errNotHere) {
		return nil
	}
	return err
}

// scanMetadata reads a metadata layer.
func scanMetadata(ctx context.Context, r io.Reader) ([]verdict.Package, error) {
	var list []byte
	other := ""
	t := tar.NewReader(r)
	for {
		h, err := nextEntry(ctx, t)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		switch name := entryName(h); {
		case name == packagesFile && h.Typeflag == tar.TypeReg && list == nil && plainName(h.Name):
			if list, err = io.ReadAll(timedReader{ctx, t}); err != nil {
				return nil, noEOF(err)
			}
		case h.Typeflag == tar.TypeDir && (name == "" || strings.HasPrefix(openshiftDir, name+"/") || strings.HasPrefix(name+"/", openshiftDir)):
		case strings.HasPrefix(name, openshiftDir) && h.Typeflag == tar.TypeReg && name != packagesFile && !strings.HasPrefix(path.Base(name), whiteout):
		default:
			other = name
		}
	}
	switch {
	case other != "":
		return nil, fmt.Errorf("%w: the last layer has /%.200s too: it is not the metadata layer", errNotHere, other)
	case list == nil:
		return nil, fmt.Errorf("%w: the last layer has no /%s", errNotHere, packagesFile)
	}
	return parseMetadata(list)
}

// parseMetadata reads meta.json: the key rpmdb.pkglist with a list of name, epoch,
// version, release and architecture each.
func parseMetadata(b []byte) ([]verdict.Package, error) {
	var doc struct {
		Packages [][]string `json:"rpmdb.pkglist"`
	}
	if err := unambiguous(b); err != nil {
		return nil, fmt.Errorf("%s: %w", packagesFile, err)
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", packagesFile, err)
	}
	if len(doc.Packages) == 0 || len(doc.Packages) > maxPackages {
		return nil, fmt.Errorf("%s: rpmdb.pkglist: %d packages", packagesFile, len(doc.Packages))
	}
	packages := make([]verdict.Package, 0, len(doc.Packages))
	for i, f := range doc.Packages {
		if len(f) != 5 {
			return nil, fmt.Errorf("%s: rpmdb.pkglist[%d]: %d fields, not 5", packagesFile, i, len(f))
		}
		p, err := makePackage(f[0], f[1], f[2], f[3], f[4])
		if err != nil {
			return nil, fmt.Errorf("%s: rpmdb.pkglist[%d]: %w", packagesFile, i, err)
		}
		packages = append(packages, p)
	}
	return packages, nil
}

// commitPackages are those that the inner commit lists, if nothing follows it.
// The head of a native image's first layer costs next to nothing; for the commit
// of any other image much may have to be read.
func (img *Image) commitPackages(ctx context.Context, m Manifest, c format.ImageConfig, full bool) ([]verdict.Package, error) {
	n, ok := derivedLayers(c, verdict.Known(m)).Get()
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: whether layers follow the commit is not known", errNotHere)
	case n > 0:
		return nil, fmt.Errorf("%w: %d layers follow the commit", errNotHere, n)
	case !full && !img.commit.done && !headHasCommit(m, c) && layerBytes(m) > maxForRebuild:
		return nil, fmt.Errorf("%w: finding the commit costs up to %d MB, which --full allows", errNotHere, layerBytes(m)/1e6)
	}
	if _, err := img.innerCommitOf(ctx, m, c, ""); err != nil {
		return nil, err
	}
	return img.listed, img.listErr
}

// headHasCommit reports whether the commit is at the head of the first layer.
func headHasCommit(m Manifest, c format.ImageConfig) bool {
	form, _ := encapsulationOf(m, c)
	return form == nativeEncapsulation && c.Labels[LabelCommit] != ""
}

// commitList are the packages that a commit lists.
func commitList(c *format.Commit) ([]verdict.Package, error) {
	list, ok, err := c.Metadata.Packages(keyPackageList)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: the commit's list cannot be read: %w", errNotHere, err)
	case !ok:
		return nil, fmt.Errorf("%w: the commit has no list %s", errNotHere, keyPackageList)
	}
	packages := make([]verdict.Package, 0, len(list))
	for _, p := range list {
		packages = append(packages, verdict.Package{Name: p.Name, EVRA: p.EVRA()})
	}
	return packages, nil
}
