package osimage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/oneboot/oneboot/pkg/verdict"
)

const (
	// maxPrimaryBytes bounds the uncompressed list of packages, which is
	// never kept: a repository of 300 packages has about 2 MiB.
	maxPrimaryBytes = 16 << 20
	// maxRepomd bounds the index, which has 3 KiB.
	maxRepomd = 1 << 20
	// maxXMLToken bounds one tag or one text, which are kept.
	maxXMLToken = 1 << 20
	maxXMLDepth = 32
)

// primaryName is a repository's list of packages as createrepo_c names it. The
// zchunk form is never alone.
var primaryName = regexp.MustCompile(`^repodata/(?:[A-Za-z0-9._]+-)?primary\.xml(?:\.gz|\.zst)?$`)

// A primaryFile is the list of packages that a repository's index names.
type primaryFile struct {
	name   string // below the repository: "repodata/<checksum>-primary.xml.gz"
	sha256 string
}

// parseRepomd reads a repository's index, repodata/repomd.xml
// (createrepo_c src/xml_dump_repomd.c).
func parseRepomd(b []byte) (primaryFile, error) {
	if len(b) > maxRepomd {
		return primaryFile{}, fmt.Errorf("has %d bytes, over the limit of %d", len(b), maxRepomd)
	}
	var doc struct {
		XMLName xml.Name `xml:"http://linux.duke.edu/metadata/repo repomd"`
		Data    []struct {
			Type     string `xml:"type,attr"`
			Checksum []struct {
				Type string `xml:"type,attr"`
				Text string `xml:",chardata"`
			} `xml:"checksum"`
			Location []struct {
				Href  string     `xml:"href,attr"`
				Other []xml.Attr `xml:",any,attr"`
			} `xml:"location"`
		} `xml:"data"`
	}
	dec := xml.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(&doc); err != nil {
		return primaryFile{}, fmt.Errorf("XML: %w", err)
	}
	if err := atEnd(dec); err != nil {
		return primaryFile{}, err
	}
	var p primaryFile
	for _, d := range doc.Data {
		if d.Type != "primary" {
			continue
		}
		if p.name != "" {
			return primaryFile{}, errors.New("two entries of type primary")
		}
		if len(d.Location) != 1 || len(d.Location[0].Other) > 0 || len(d.Checksum) != 1 {
			return primaryFile{}, errors.New("the entry of type primary has not one plain location and one checksum")
		}
		p = primaryFile{name: d.Location[0].Href, sha256: d.Checksum[0].Text}
		if !primaryName.MatchString(p.name) {
			return primaryFile{}, fmt.Errorf("primary: location %.200q is not one that this program reads (plain, gzip or zstd)", p.name)
		}
		if d.Checksum[0].Type != "sha256" || !isChecksum(p.sha256) {
			return primaryFile{}, errors.New("primary: no SHA-256 checksum")
		}
	}
	if p.name == "" {
		return primaryFile{}, errors.New("no entry of type primary")
	}
	return p, nil
}

// parse reads the list of packages.
func (p primaryFile) parse(ctx context.Context, b []byte) ([]verdict.Package, error) {
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != p.sha256 {
		return nil, errors.New("is not the file that repomd.xml names by its checksum")
	}
	r, done, err := decompress(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	defer done()
	return parsePrimary(timedReader{ctx, r})
}

// parsePrimary reads primary.xml (createrepo_c src/xml_dump_primary.c).
func parsePrimary(r io.Reader) ([]verdict.Package, error) {
	limited := &limitedReader{r: &limitedReader{r: r, left: maxPrimaryBytes}}
	dec := xml.NewDecoder(limited)
	var list primaryList
	for {
		limited.left = maxXMLToken
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = list.token(token)
		}
		if err != nil {
			return nil, fmt.Errorf("XML: %w", err)
		}
	}
	if list.packages == nil {
		return nil, errors.New("XML: no document")
	}
	return list.packages, nil
}

// A primaryList collects packages from a stream of tokens.
type primaryList struct {
	packages []verdict.Package
	path     []xml.Name // the open elements
	current  primaryPackage
}

func (l *primaryList) token(token xml.Token) error {
	inPackage := len(l.path) > 1 && l.path[1] == common("package")
	switch token := token.(type) {
	case xml.StartElement:
		switch {
		case len(l.path) == 0 && token.Name != common("metadata"):
			return fmt.Errorf("starts with %.80q, not with metadata", token.Name.Local)
		case len(l.path) == 0 && l.packages != nil:
			return errors.New("something follows the document")
		case len(l.path) == 0:
			l.packages = []verdict.Package{}
		case len(l.path) == 1:
			l.current = primaryPackage{}
		case len(l.path) == 2 && inPackage:
			if err := l.current.start(token); err != nil {
				return err
			}
		}
		if l.path = append(l.path, token.Name); len(l.path) > maxXMLDepth {
			return fmt.Errorf("nested deeper than %d", maxXMLDepth)
		}
	case xml.CharData:
		if len(l.path) == 3 && inPackage {
			return l.current.text(l.path[2], token)
		}
	case xml.EndElement:
		if len(l.path) == 2 && inPackage {
			p, err := l.current.done()
			if err != nil {
				return fmt.Errorf("package %d: %w", len(l.packages), err)
			}
			if l.packages = append(l.packages, p); len(l.packages) > maxPackages {
				return fmt.Errorf("more than %d packages", maxPackages)
			}
		}
		l.path = l.path[:len(l.path)-1]
	}
	return nil
}

func common(local string) xml.Name {
	return xml.Name{Space: "http://linux.duke.edu/metadata/common", Local: local}
}

// A primaryPackage collects the elements of a package that name it.
type primaryPackage struct {
	name, arch              string
	names, arches, versions int
	epoch, version, release string
}

func (p *primaryPackage) start(e xml.StartElement) error {
	switch e.Name {
	case common("name"):
		p.names++
	case common("arch"):
		p.arches++
	case common("version"):
		p.versions++
		seen := map[string]bool{}
		for _, a := range e.Attr {
			if seen[a.Name.Local] {
				return fmt.Errorf("version: the attribute %.80q is there twice", a.Name.Local)
			}
			seen[a.Name.Local] = true
			switch a.Name {
			case xml.Name{Local: "epoch"}:
				p.epoch = a.Value
			case xml.Name{Local: "ver"}:
				p.version = a.Value
			case xml.Name{Local: "rel"}:
				p.release = a.Value
			}
		}
	}
	return nil
}

// text adds to an element's text, which comments can split.
func (p *primaryPackage) text(element xml.Name, text []byte) error {
	switch element {
	case common("name"):
		p.name += string(text)
	case common("arch"):
		p.arch += string(text)
	}
	if len(p.name)+len(p.arch) > maxXMLToken {
		return errors.New("a name that is too long")
	}
	return nil
}

func (p *primaryPackage) done() (verdict.Package, error) {
	if p.names != 1 || p.arches != 1 || p.versions != 1 {
		return verdict.Package{}, errors.New("has not one name, arch and version")
	}
	return makePackage(p.name, p.epoch, p.version, p.release, p.arch)
}

// atEnd refuses more than white space and comments after a document.
func atEnd(dec *xml.Decoder) error {
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("XML: %w", err)
		}
		if _, ok := token.(xml.StartElement); ok {
			return errors.New("XML: something follows the document")
		}
	}
}

// parseExtensionsList reads extensions.json: an object of names and
// "[epoch:]version-release.arch". A name that is there twice is an error: the
// file is written line by line from a query, and readers take one of the two.
func parseExtensionsList(r io.Reader) ([]verdict.Package, error) {
	dec := json.NewDecoder(r)
	if token, err := dec.Token(); err != nil || token != json.Delim('{') {
		return nil, errors.New("JSON: no object")
	}
	packages := []verdict.Package{}
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("JSON: %w", err)
		}
		value, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("JSON: %w", err)
		}
		name, _ := key.(string)
		evra, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("%.80q: the value is no text", name)
		}
		if seen[name] {
			return nil, fmt.Errorf("%.80q is there twice", name)
		}
		seen[name] = true
		p, err := splitEVRA(name, evra)
		if err != nil {
			return nil, err
		}
		if packages = append(packages, p); len(packages) > maxPackages {
			return nil, fmt.Errorf("more than %d packages", maxPackages)
		}
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return nil, fmt.Errorf("JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("JSON: something follows the document")
	}
	return packages, nil
}

// splitEVRA reads [epoch:]version-release.arch.
func splitEVRA(name, evra string) (verdict.Package, error) {
	epoch, rest, ok := strings.Cut(evra, ":")
	if !ok {
		epoch, rest = "", evra
	}
	dash, dot := strings.IndexByte(rest, '-'), strings.LastIndexByte(rest, '.')
	if dash < 0 || dot < dash {
		return verdict.Package{}, fmt.Errorf("%.80q: %.80q is not [epoch:]version-release.arch", name, evra)
	}
	return makePackage(name, epoch, rest[:dash], rest[dash+1:dot], rest[dot+1:])
}

// What RPM allows in a package's name, version and architecture (rpm
// build/parsePreamble.c).
var (
	packageName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._+-]{0,255}$`)
	versionText = regexp.MustCompile(`^[A-Za-z0-9._+~^]{1,255}$`)
	archText    = regexp.MustCompile(`^[a-z0-9_]{1,32}$`)
)

// makePackage checks the parts of a package's name; epoch may be empty.
func makePackage(name, epoch, version, release, arch string) (verdict.Package, error) {
	if !packageName.MatchString(name) {
		return verdict.Package{}, fmt.Errorf("%.80q is not a package name", name)
	}
	if !versionText.MatchString(version) || !versionText.MatchString(release) || !archText.MatchString(arch) {
		return verdict.Package{}, fmt.Errorf("package %s: version %.80q, release %.80q, arch %.80q", name, version, release, arch)
	}
	evra := version + "-" + release + "." + arch
	if epoch == "" {
		epoch = "0"
	}
	n, err := strconv.ParseUint(epoch, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != epoch {
		return verdict.Package{}, fmt.Errorf("package %s: epoch %.80q", name, epoch)
	}
	if n > 0 {
		evra = epoch + ":" + evra
	}
	return verdict.Package{Name: name, EVRA: evra}, nil
}
