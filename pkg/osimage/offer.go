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
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// Where an image keeps what it offers.
const (
	// extensionsDir is the repository of an extensions image.
	extensionsDir = "usr/share/rpm-ostree/extensions"
	// extensionsList names the packages in that repository.
	extensionsList = "usr/share/rpm-ostree/extensions.json"
	// legacyExtensionsDir is the repository of a machine-os-content image.
	legacyExtensionsDir = "extensions"
	repomd              = "repodata/repomd.xml"
)

const (
	maxOfferFile = 4 << 20
	// maxOfferBytes bounds all files of an image that are kept, and
	// maxOfferNames the names.
	maxOfferBytes = 8 << 20
	maxOfferNames = 4 << 20
	// maxOfferDepth bounds the folders that a file which matters is in.
	maxOfferDepth = 32
	// maxPackages bounds packages, and the entries of an image that matter.
	maxPackages = 20_000
)

const (
	whiteout       = ".wh."
	opaqueWhiteout = ".wh..wh..opq"
)

var errNoExtensions = errors.New("offers no extensions: neither " + extensionsDir + " nor /" + legacyExtensionsDir + " nor RPM files at its root")

// A layerOffer is what one layer says about the packages on offer.
type layerOffer struct {
	files map[string][]byte
	rpms  map[string]verdict.Package
	// faults are files that matter and cannot be believed.
	faults map[string]error
	// removed are paths that the layer takes away, opaque are folders of
	// which it hides all that layers below have put there.
	removed, opaque map[string]bool

	// bytes and names are the sizes of all files and names that are kept, those
	// of the layers above included.
	bytes, names int
}

func newLayerOffer() layerOffer {
	return layerOffer{
		files: map[string][]byte{}, rpms: map[string]verdict.Package{}, faults: map[string]error{},
		removed: map[string]bool{}, opaque: map[string]bool{},
	}
}

// has reports whether there is a file of this name, good or not.
func (l *layerOffer) has(name string) bool {
	_, file := l.files[name]
	_, rpm := l.rpms[name]
	_, fault := l.faults[name]
	return file || rpm || fault
}

func (l *layerOffer) entries() int {
	return len(l.files) + len(l.rpms) + len(l.faults) + len(l.removed) + len(l.opaque)
}

// full reports that there are more entries that matter than any image has.
func (l *layerOffer) full() bool { return l.entries() > maxPackages || l.names > maxOfferNames }

// An offer is what the layers read so far, the last one first, say together.
type offer struct {
	layerOffer
	// indexes are the repositories' indexes, parsed.
	indexes map[string]primaryFile
}

func newOffer() *offer { return &offer{newLayerOffer(), map[string]primaryFile{}} }

// settled reports whether a layer above decides about a path.
func (o *offer) settled(name string) bool {
	if o.has(name) || o.removed[name] {
		return true
	}
	for dir := name; dir != ""; {
		dir = parent(dir)
		if o.removed[dir] || o.opaque[dir] {
			return true
		}
	}
	return false
}

// put adds what the layer beneath says.
func (o *offer) put(l layerOffer) error {
	maps.Copy(o.files, l.files)
	maps.Copy(o.rpms, l.rpms)
	maps.Copy(o.faults, l.faults)
	maps.Copy(o.removed, l.removed)
	maps.Copy(o.opaque, l.opaque)
	o.bytes, o.names = l.bytes, l.names
	if o.full() {
		return errTooManyEntries
	}
	return nil
}

var errTooManyEntries = fmt.Errorf("more than %d entries in extensions folders", maxPackages)

// packages answers, if the layers so far can; nil says that the layer beneath
// must be read. last says that there is none.
func (o *offer) packages(ctx context.Context, last bool) ([]verdict.Package, error) {
	modern, legacy := o.has(extensionsDir+"/"+repomd), o.has(legacyExtensionsDir+"/"+repomd)
	list := o.has(extensionsList)
	switch {
	case legacy && (modern || list):
		return nil, fmt.Errorf("two sets of extensions, in %s and in %s", extensionsDir, legacyExtensionsDir)
	case modern:
		return o.repository(ctx, extensionsDir, last)
	case list:
		b, err := o.file(extensionsList)
		if err != nil {
			return nil, err
		}
		packages, err := parseExtensionsList(timedReader{ctx, bytes.NewReader(b)})
		return answer(extensionsList, packages, err)
	case legacy:
		return o.repository(ctx, legacyExtensionsDir, last)
	case !last:
		return nil, nil
	}
	for _, name := range slices.Sorted(maps.Keys(o.faults)) {
		return nil, fmt.Errorf("%s: %w", name, o.faults[name])
	}
	if len(o.rpms) == 0 {
		return nil, errNoExtensions
	}
	return answer("", slices.Collect(maps.Values(o.rpms)), nil)
}

// repository reads a repository's metadata.
func (o *offer) repository(ctx context.Context, dir string, last bool) ([]verdict.Package, error) {
	primary, err := o.index(dir)
	if err != nil {
		return nil, err
	}
	name := dir + "/" + primary.name
	if !o.has(name) && !last {
		return nil, nil
	}
	b, err := o.file(name)
	if err != nil {
		return nil, err
	}
	packages, err := primary.parse(ctx, b)
	return answer(name, packages, err)
}

// index reads a repository's index, once for all layers.
func (o *offer) index(dir string) (primaryFile, error) {
	if p, ok := o.indexes[dir]; ok {
		return p, nil
	}
	b, err := o.file(dir + "/" + repomd)
	if err != nil {
		return primaryFile{}, err
	}
	p, err := parseRepomd(b)
	if err != nil {
		return primaryFile{}, fmt.Errorf("%s/%s: %w", dir, repomd, err)
	}
	o.indexes[dir] = p
	return p, nil
}

// file returns a file that a layer has.
func (o *offer) file(name string) ([]byte, error) {
	if err := o.faults[name]; err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	b, ok := o.files[name]
	if !ok {
		return nil, fmt.Errorf("%s: no such file in the image", name)
	}
	return b, nil
}

// answer sorts packages; a package may be in a repository twice.
func answer(name string, packages []verdict.Package, err error) ([]verdict.Package, error) {
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	slices.SortFunc(packages, func(a, b verdict.Package) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(a.EVRA, b.EVRA)
	})
	if packages = slices.Compact(packages); packages == nil {
		packages = []verdict.Package{}
	}
	return packages, nil
}

// scan reads the archive of the layer beneath to its end. Names that are
// settled are passed over.
func (o *offer) scan(ctx context.Context, r io.Reader) (layerOffer, error) {
	l := newLayerOffer()
	l.bytes, l.names = o.bytes, o.names
	t := tar.NewReader(r)
	for {
		h, err := nextEntry(ctx, t)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return layerOffer{}, err
		}
		had := l.entries()
		if err := l.add(timedReader{ctx, t}, h, o.settled); err != nil {
			return layerOffer{}, err
		}
		if l.entries() > had {
			l.names += len(h.Name)
		}
		if l.full() {
			return layerOffer{}, errTooManyEntries
		}
	}
	return l, l.consistent()
}

// consistent refuses a layer that takes away what it holds: which of the two
// is meant depends on who unpacks it. An opaque folder is no such case, since
// it hides what is beneath only.
func (l *layerOffer) consistent() error {
	own := offer{layerOffer: layerOffer{removed: l.removed}}
	for _, names := range [][]string{slices.Collect(maps.Keys(l.files)), slices.Collect(maps.Keys(l.rpms)), slices.Collect(maps.Keys(l.faults))} {
		for _, name := range names {
			if own.settled(name) {
				return fmt.Errorf("%s is both there and taken away", name)
			}
		}
	}
	return nil
}

// add takes note of an entry, if it matters.
func (l *layerOffer) add(content io.Reader, h *tar.Header, settled func(string) bool) error {
	name := entryName(h)
	if dir, base := parent(name), path.Base(name); strings.HasPrefix(base, whiteout) {
		return l.hide(dir, base)
	}
	if onTheWay(name) {
		if h.Typeflag != tar.TypeDir && !settled(name) {
			return fmt.Errorf("/%.200s is not a folder", name)
		}
		return nil
	}
	kind := kindOf(name)
	if kind == otherFile && (h.Typeflag == tar.TypeDir || !strings.HasPrefix(name, legacyExtensionsDir+"/")) {
		return nil
	}
	if err := checkDepth(name); err != nil {
		return err
	}
	if settled(name) {
		return nil
	}
	switch {
	case kind == otherFile:
		l.addOther(name, h)
	case l.has(name):
		return fmt.Errorf("%.200s is there twice", name)
	case !plainName(h.Name):
		l.faults[name] = fmt.Errorf("is named %.200q", h.Name)
	case h.Typeflag != tar.TypeReg:
		l.faults[name] = errors.New("is not a regular file")
	case kind == rpmFile:
		return l.addRPM(name, content)
	default:
		return l.addFile(name, h.Size, content)
	}
	return nil
}

// hide takes note of a whiteout, if what it hides matters.
func (l *layerOffer) hide(dir, base string) error {
	hides, set := path.Join(dir, strings.TrimPrefix(base, whiteout)), l.removed
	if base == opaqueWhiteout {
		hides, set = dir, l.opaque
	}
	if !concerns(hides) {
		return nil
	}
	if err := checkDepth(hides); err != nil {
		return err
	}
	set[hides] = true
	return nil
}

// addOther takes note of what may stand in for a folder of RPM files.
func (l *layerOffer) addOther(name string, h *tar.Header) {
	if h.Typeflag != tar.TypeReg {
		l.faults[name] = errors.New("is neither a file nor a folder")
	}
	l.opaque[name] = true
}

func (l *layerOffer) addRPM(name string, content io.Reader) error {
	p, err := readRPM(content)
	if err != nil {
		if _, ok := errors.AsType[*rpmError](err); !ok {
			return err // of the layer
		}
		l.faults[name] = err
		return nil
	}
	l.rpms[name] = p
	return nil
}

func (l *layerOffer) addFile(name string, size int64, content io.Reader) error {
	if size > min(maxOfferFile, int64(maxOfferBytes-l.bytes)) {
		l.faults[name] = fmt.Errorf("is over the limit of %d bytes, or with other such files of the image over %d", maxOfferFile, maxOfferBytes)
		return nil
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(content, b); err != nil {
		return noEOF(err)
	}
	l.bytes += len(b)
	l.files[name] = b
	return nil
}
