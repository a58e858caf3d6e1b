package osimage

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/registry"
)

func listFile(text string) entry { return file(extensionsList, []byte(text)) }

// repoFiles are a repository's metadata for one package.
func repoFiles(dir, name, version string) []entry {
	primary := []byte(primaryXML(name, version))
	where := "repodata/" + sum(primary) + "-primary.xml"
	return []entry{
		file(dir+"/"+where, primary),
		file(dir+"/"+repomd, []byte(repomdXML(where, sum(primary)))),
	}
}

func primaryXML(name, version string) string {
	return `<?xml version="1.0" encoding="UTF-8"?>
<metadata xmlns="http://linux.duke.edu/metadata/common" xmlns:rpm="http://linux.duke.edu/metadata/rpm" packages="1">
<package type="rpm"><name>` + name + `</name><arch>x86_64</arch><version epoch="0" ver="` + version + `" rel="1"/>
<format><rpm:provides><rpm:entry name="other" ver="9"/></rpm:provides></format></package></metadata>`
}

func repomdXML(where, checksum string) string {
	return `<repomd xmlns="http://linux.duke.edu/metadata/repo"><revision>1</revision><data type="filelists">
<checksum type="sha256">` + checksum + `</checksum><location href="repodata/filelists.xml.gz"/></data><data type="primary">
<checksum type="sha256">` + checksum + `</checksum><location href="` + where + `"/></data></repomd>`
}

// rpmStart is as much of an RPM file as is read.
func rpmStart(name, version string) []byte {
	var b bytes.Buffer
	put := func(words ...uint32) {
		for _, w := range words {
			b.Write([]byte{byte(w >> 24), byte(w >> 16), byte(w >> 8), byte(w)})
		}
	}
	put(rpmLeadMagic)
	b.Write(make([]byte, rpmLeadSize-4))
	put(rpmHeaderMagic, 0, 1, 5, 1, 7, 0, 5)
	b.Write(make([]byte, 8))
	store := name + "\x00" + version + "\x001\x00x86_64\x00"
	n := uint32(len(name) + 1)
	v := n + uint32(len(version)+1)
	put(rpmHeaderMagic, 0, 4, uint32(len(store)),
		rpmTagName, rpmTypeString, 0, 1, rpmTagVersion, rpmTypeString, n, 1,
		rpmTagRelease, rpmTypeString, v, 1, rpmTagArch, rpmTypeString, v+2, 1)
	b.WriteString(store)
	return b.Bytes()
}

func TestLayersOfAnOffer(t *testing.T) {
	t.Parallel()
	folder := func(name string) entry { return entry{name, nil, tar.TypeDir} }
	link := func(name, to string) entry { return entry{name, []byte(to), tar.TypeSymlink} }
	hard := func(name, to string) entry { return entry{name, []byte(to), tar.TypeLink} }
	gone := func(name string) entry { return file(name, nil) }
	one := `{"a":"1-1.x86_64"}`
	repo1, repo2 := repoFiles(extensionsDir, "a", "1"), repoFiles(extensionsDir, "a", "2")
	legacy1 := repoFiles(legacyExtensionsDir, "a", "1")
	with := func(entries []entry, more ...entry) []entry { return append(more, entries...) }
	tests := []struct {
		name   string
		layers [][]entry // the base first
		want   string    // EVRAs of a, or the error
	}{
		{"a list", [][]entry{{listFile(one)}}, "1-1.x86_64"},
		{"a list by other spellings of its name", [][]entry{{file("./"+extensionsList, []byte(one))}}, "1-1.x86_64"},
		{"an absolute name", [][]entry{{file("/"+extensionsList, []byte(one))}}, "1-1.x86_64"},
		{"a list under other layers", [][]entry{{listFile(one)}, {file("etc/motd", nil)}, {}}, "1-1.x86_64"},
		{"the upper list", [][]entry{{listFile(`{"a":"2-1.x86_64"}`)}, {listFile(one)}}, "1-1.x86_64"},
		{"the list above a repository", [][]entry{repo2, {listFile(one)}}, "1-1.x86_64"},
		{"a repository above the list", [][]entry{{listFile(one)}, repo2}, "2-1.x86_64"},
		{"a repository and a list in one layer", [][]entry{with(repo2, listFile(one))}, "2-1.x86_64"},
		{"an index whose packages are below", [][]entry{{repo1[0]}, {repo1[1]}}, "1-1.x86_64"},
		{"an index whose packages are above", [][]entry{{repo1[1]}, {repo1[0]}}, "1-1.x86_64"},
		{"an index whose packages are nowhere", [][]entry{{file("x", nil)}, {repo1[1]}}, "-primary.xml: no such file in the image"},
		{"an index whose packages were taken away", [][]entry{{repo1[0]}, {gone(extensionsDir + "/repodata/.wh." + sum([]byte(primaryXML("a", "1"))) + "-primary.xml")}, {repo1[1]}}, "no such file in the image"},
		{"an older list of packages beside it", [][]entry{with(repo1, repo2[0])}, "1-1.x86_64"},
		{"an index of another list", [][]entry{{repo1[0], file(extensionsDir+"/"+repomd, []byte(repomdXML("repodata/"+sum([]byte(primaryXML("a", "1")))+"-primary.xml", sum(nil))))}}, "is not the file that repomd.xml names"},

		{"a list twice", [][]entry{{listFile(one), listFile(one)}}, "is there twice"},
		{"a list twice, differently spelled", [][]entry{{listFile(one), file("usr/./share/rpm-ostree//extensions.json", []byte(one))}}, "is there twice"},
		{"a list and a whiteout of it in one layer", [][]entry{{gone("usr/share/rpm-ostree/.wh.extensions.json"), listFile(one)}}, "both there and taken away"},
		{"a list in a folder taken away in one layer", [][]entry{{listFile(one), gone("usr/share/.wh.rpm-ostree")}}, "both there and taken away"},
		{"a list in an opaque folder", [][]entry{{listFile(`{"a":"2-1.x86_64"}`)}, {gone("usr/share/rpm-ostree/.wh..wh..opq"), listFile(one)}}, "1-1.x86_64"},
		{"a list taken away, a repository left", [][]entry{repo1, {listFile(`{"a":"2-1.x86_64"}`)}, {gone("usr/share/rpm-ostree/.wh.extensions.json")}}, "1-1.x86_64"},
		{"all taken away", [][]entry{with(repo1, listFile(one)), {gone("usr/share/.wh.rpm-ostree")}}, "offers no extensions"},
		{"all hidden by an opaque root", [][]entry{with(repo1, listFile(one)), {gone(".wh..wh..opq"), file("etc/motd", nil)}}, "offers no extensions"},
		{"all hidden by an opaque folder", [][]entry{with(repo1, listFile(one)), {folder("usr/"), gone("usr/.wh..wh..opq")}}, "offers no extensions"},
		{"an opaque folder beside", [][]entry{{listFile(one)}, {gone("usr/share/doc/.wh..wh..opq"), gone("usr/.wh.lib"), gone(".wh.extensions")}}, "1-1.x86_64"},
		{"a symbolic link", [][]entry{{link(extensionsList, "/tmp/list"), file("tmp/list", []byte(one))}}, "is not a regular file"},
		{"a hard link", [][]entry{{file("tmp/list", []byte(one)), hard(extensionsList, "tmp/list")}}, "is not a regular file"},
		{"a folder that is a link", [][]entry{{link("usr/share/rpm-ostree", "/opt"), file("opt/extensions.json", []byte(one))}}, "/usr/share/rpm-ostree is not a folder"},
		{"a folder that is a file", [][]entry{{listFile(one)}, {file("usr/share", nil)}}, "/usr/share is not a folder"},
		{"dots in the name", [][]entry{{file("usr/lib/../share/rpm-ostree/extensions.json", []byte(one))}}, `is named "usr/lib/..`},
		{"too large", [][]entry{{listFile(`{"a":"1-1.x86_64"}` + strings.Repeat(" ", maxOfferFile))}}, "is over the limit"},
		{"nothing in the list", [][]entry{{listFile(`{}`)}}, ""},
		{"bad list", [][]entry{{listFile(`{"a":1}`)}}, "extensions.json: \"a\": the value is no text"},

		{"legacy repository", [][]entry{legacy1}, "1-1.x86_64"},
		{"rpm-ostree's list beside it", [][]entry{with(legacy1, file("extensions/extensions.json", []byte(`{"extensions":{}}`)))}, "1-1.x86_64"},
		{"repositories of two kinds", [][]entry{append(repo1[:2:2], legacy1...)}, "two sets of extensions"},
		{"files under a repository", [][]entry{legacy1, {file("extensions/b.rpm", nil)}}, "1-1.x86_64"},
		{"files", [][]entry{{file("extensions/a/a.rpm", rpmStart("a", "1")), file("extensions/a/a.src.rpm", []byte("not read"))}}, "1-1.x86_64"},
		{"files in several layers", [][]entry{
			{file("extensions/a.rpm", rpmStart("a", "1")), file("extensions/x.rpm", []byte("x")), file("extensions/d/y.rpm", nil)},
			{gone("extensions/.wh.x.rpm"), gone("extensions/d/.wh..wh..opq")},
			{file("a2.rpm", rpmStart("a", "2"))},
		}, "1-1.x86_64 2-1.x86_64"},
		{"a file replaced", [][]entry{{file("a.rpm", []byte("x"))}, {file("a.rpm", rpmStart("a", "1"))}}, "1-1.x86_64"},
		{"a folder replaced by a file", [][]entry{{file("extensions/d/a.rpm", rpmStart("a", "2"))}, {file("extensions/d", nil), file("a.rpm", rpmStart("a", "1"))}}, "1-1.x86_64"},
		{"a file that is no package", [][]entry{{file("extensions/a.rpm", rpmStart("a", "1")), file("extensions/b.rpm", []byte("x"))}}, "extensions/b.rpm: RPM: the file ends early"},
		{"a file that is a link", [][]entry{{file("extensions/a.rpm", rpmStart("a", "1")), link("extensions/b.rpm", "a.rpm")}}, "extensions/b.rpm: is not a regular file"},
		{"a folder of files that is a link", [][]entry{{file("extensions/a.rpm", rpmStart("a", "1")), link("extensions/b", "/opt")}}, "extensions/b: is neither"},
		{"nothing", [][]entry{{file("etc/motd", nil)}}, "offers no extensions"},
	}
	r := startRegistry(t, registry.Options{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := spec{how: gz}
			for _, l := range tt.layers {
				s.tars = append(s.tars, makeTar(t, l...))
			}
			img := openImage(t, push(t, r, s.build(t)), configFor(t, r, nil))
			packages, err := img.Extensions(t.Context())
			if err != nil {
				if tt.want == "" || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
				return
			}
			var got []string
			for _, p := range packages {
				if p.Name == "a" {
					got = append(got, p.EVRA)
				}
			}
			if diff := gocmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A layer must be what the manifest and the config say, down to the one that
// answers.
func TestOfferIsVerified(t *testing.T) {
	lower, upper := makeTar(t, listFile(`{"a":"1-1.x86_64"}`)), makeTar(t, file("etc/motd", nil))
	two := []string{"sha256:" + sum(lower), "sha256:" + sum(upper)}
	tests := []struct {
		name string
		spec spec
		want Code
	}{
		{"true", spec{how: gz, tars: [][]byte{lower, upper}}, ""},
		{"what follows the archive counts", spec{how: gz, tars: [][]byte{append(bytes.Clone(lower), 1, 2, 3)}}, ""},
		{"diff id of the lower", spec{how: gz, tars: [][]byte{lower, upper}, diffIDs: []string{two[1], two[1]}}, DigestMismatch},
		{"diff id of the upper", spec{how: gz, tars: [][]byte{lower, upper}, diffIDs: []string{two[0], two[0]}}, DigestMismatch},
		{"too few diff ids", spec{how: gz, tars: [][]byte{lower, upper}, diffIDs: two[:1]}, ManifestInvalid},
		{"half a layer", spec{tars: [][]byte{lower}, blobs: [][]byte{lower[:520]}, how: plain}, LayerTruncated},
		{"no tar", spec{tars: [][]byte{noise(5000)}, how: plain}, LayerInvalid},
	}
	r := startRegistry(t, registry.Options{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			img := openImage(t, push(t, r, tt.spec.build(t)), configFor(t, r, nil))
			got, err := img.Extensions(t.Context())
			if CodeOf(err) != tt.want || (err == nil) != (len(got) == 1) {
				t.Errorf("%v, %v: %q, want %q", got, err, CodeOf(err), tt.want)
			}
		})
	}
}

func FuzzOffer(f *testing.F) {
	f.Add(makeTar(f, listFile(`{"a":"1-1.x86_64"}`)), makeTar(f, repoFiles(extensionsDir, "a", "1")...))
	f.Add(makeTar(f, repoFiles(legacyExtensionsDir, "a", "1")...), makeTar(f, file("extensions/.wh.repodata", nil), file("extensions/a.rpm", rpmStart("a", "1"))))
	f.Add(makeTar(f, file("a.rpm", rpmStart("a", "1"))), makeTar(f, file(".wh..wh..opq", nil)))
	f.Fuzz(func(t *testing.T, upper, lower []byte) {
		o := newOffer()
		var packages []verdict.Package
		for i, layer := range [][]byte{upper, lower} {
			l, err := o.scan(t.Context(), bytes.NewReader(layer))
			if err != nil || o.put(l) != nil {
				return
			}
			if packages, err = o.packages(t.Context(), i == 1); err != nil || packages != nil {
				break
			}
		}
		checkPackages(t, packages)
	})
}

// checkPackages: whatever was read, names and versions are well formed.
func checkPackages(t *testing.T, packages []verdict.Package) {
	t.Helper()
	for _, p := range packages {
		if again, err := splitEVRA(p.Name, p.EVRA); err != nil || again != p {
			t.Errorf("%+v: %v", p, err)
		}
		if strings.HasPrefix(p.EVRA, "0:") {
			t.Errorf("%+v has an epoch of 0", p)
		}
	}
}
