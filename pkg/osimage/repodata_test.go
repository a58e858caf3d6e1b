package osimage

import (
	"bytes"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/verdict"
)

func TestParsePrimary(t *testing.T) {
	const head = `<metadata xmlns="http://linux.duke.edu/metadata/common" xmlns:rpm="http://linux.duke.edu/metadata/rpm">`
	one := func(inner string) string { return head + "<package>" + inner + "</package></metadata>" }
	const arch, version = `<arch>x86_64</arch>`, `<version epoch="0" ver="1" rel="2"/>`
	tests := []struct {
		name, text, want string // "name evra", or the error
	}{
		{"as createrepo_c writes", primaryXML("a", "1"), "a 1-1.x86_64"},
		{"epoch", one(`<name>a</name>` + arch + `<version epoch="3" ver="1" rel="2"/>`), "a 3:1-2.x86_64"},
		{"no epoch", one(`<name>a</name>` + arch + `<version ver="1" rel="2"/>`), "a 1-2.x86_64"},
		{"a comment in a name", one(`<name>a<!-- x -->b</name>` + arch + version), "ab 1-2.x86_64"},
		{"an entity in a name", one(`<name>a&amp;b</name>` + arch + version), "is not a package name"},
		{"an entity of its own", `<!DOCTYPE x [<!ENTITY a "aaaa">]>` + one(`<name>&a;</name>`+arch+version), "XML"},
		{"two names", one(`<name>a</name><name>b</name>` + arch + version), "has not one name"},
		{"no name", one(arch + version), "has not one name"},
		{"two versions", one(`<name>a</name>` + arch + version + version), "has not one name"},
		{"two epochs", one(`<name>a</name>` + arch + `<version epoch="0" epoch="1" ver="1" rel="2"/>`), "is there twice"},
		{"an element in the name", one(`<name>a<name>b</name></name>` + arch + version), "a 1-2.x86_64"},
		{"a name of another namespace", one(`<rpm:name>a</rpm:name>` + arch + version), "has not one name"},
		{"a bad epoch", one(`<name>a</name>` + arch + `<version epoch="x" ver="1" rel="2"/>`), `epoch "x"`},
		{"an epoch with zeros", one(`<name>a</name>` + arch + `<version epoch="01" ver="1" rel="2"/>`), `epoch "01"`},
		{"a dash in the version", one(`<name>a</name>` + arch + `<version epoch="0" ver="1-1" rel="2"/>`), `version "1-1"`},
		{"no release", one(`<name>a</name>` + arch + `<version epoch="0" ver="1"/>`), `release ""`},
		{"none", head + "</metadata>", ""},
		{"cut off", head + "<package>", "unexpected EOF"},
		{"empty", "", "no document"},
		{"two documents", head + "</metadata>" + head + "</metadata>", "something follows"},
		{"another document", "<html/>", "not with metadata"},
		{"deep", head + strings.Repeat("<a>", 50), "nested deeper"},
		{"a long text", one("<name>" + strings.Repeat("a", 2*maxXMLToken) + "</name>"), "too long"},
		{"a name in many parts", one("<name>" + strings.Repeat(strings.Repeat("a", 1<<19)+"<!---->", 3) + "</name>"), "too long"},
		{"a long tag", one("<name " + strings.Repeat(`a="a" `, maxXMLToken/4) + "/>"), "over the limit"},
		{"another encoding", `<?xml version="1.0" encoding="UTF-16"?>` + head + "</metadata>", "XML"},
		{"too many", head + strings.Repeat("<package><name>a</name>"+arch+version+"</package>", maxPackages+1), "more than 20000"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			packages, err := parsePrimary(strings.NewReader(tt.text))
			comparePackages(t, packages, err, tt.want)
		})
	}
}

func comparePackages(t *testing.T, packages []verdict.Package, err error, want string) {
	t.Helper()
	if err != nil {
		if want == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		return
	}
	var got []string
	for _, p := range packages {
		got = append(got, p.Name+" "+p.EVRA)
	}
	if diff := gocmp.Diff(want, strings.Join(got, " ")); diff != "" {
		t.Error(diff)
	}
}

func TestParseExtensionsList(t *testing.T) {
	tests := []struct {
		name, text, want string
	}{
		{"as dnf prints", "{\n\"a\": \"1.0-2.el9.x86_64\",\n\"b\": \"1:2-3.noarch\"\n}\n", "a 1.0-2.el9.x86_64 b 1:2-3.noarch"},
		{"epoch 0", `{"a":"0:1-2.x86_64"}`, "a 1-2.x86_64"},
		{"names that differ in case", `{"a":"1-2.x86_64","A":"1-3.x86_64"}`, "a 1-2.x86_64 A 1-3.x86_64"},
		{"names of the image specification", `{"Digest":"1-2.x86_64"}`, "Digest 1-2.x86_64"},
		{"none", "{\n}\n", ""},
		{"a name twice", `{"a":"1-2.x86_64","a":"1-2.x86_64"}`, "is there twice"},
		{"a version alone", `{"a":"1"}`, "is not [epoch:]version-release.arch"},
		{"no arch", `{"a":"1-2"}`, "is not [epoch:]version-release.arch"},
		{"rpm-ostree's own", `{"extensions":{"a":{}},"repos":[]}`, "the value is no text"},
		{"a list", `["a"]`, "no object"},
		{"null", `null`, "no object"},
		{"empty", ``, "no object"},
		{"cut off", `{"a":"1-2.x86_64"`, "JSON"},
		{"a comma too many", `{"a":"1-2.x86_64",}`, "JSON"},
		{"two documents", `{}{}`, "something follows"},
		{"no name", `{"":"1-2.x86_64"}`, "is not a package name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			packages, err := parseExtensionsList(strings.NewReader(tt.text))
			comparePackages(t, packages, err, tt.want)
		})
	}
}

func TestParseRepomd(t *testing.T) {
	s := strings.Repeat("0a", 32)
	name := "repodata/" + s + "-primary.xml.gz"
	data := `<data type="primary"><checksum type="sha256">` + s + `</checksum><location href="` + name + `"/></data>`
	doc := func(inner string) string {
		return `<repomd xmlns="http://linux.duke.edu/metadata/repo">` + inner + `</repomd>`
	}
	tests := []struct {
		name, text, want string
	}{
		{"as createrepo_c writes", doc(data), ""},
		{"beside others", doc(`<data type="primary_db"><location href="x"/></data>` + data), ""},
		{"two", doc(data + data), "two entries"},
		{"none", doc(""), "no entry"},
		{"another place", doc(strings.ReplaceAll(data, `href="`, `xml:base="http://example.com/" href="`)), "plain location"},
		{"out of the folder", doc(strings.ReplaceAll(data, "repodata/", "repodata/../../")), "location"},
		{"xz", doc(strings.ReplaceAll(data, ".gz", ".xz")), "is not one that this program reads"},
		{"another checksum", doc(strings.ReplaceAll(data, "sha256", "sha")), "no SHA-256"},
		{"no checksum", doc(`<data type="primary"><location href="` + name + `"/></data>`), "one checksum"},
		{"another document", "<html/>", "XML"},
		{"two documents", doc(data) + doc(data), "something follows"},
		{"empty", "", "XML"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := parseRepomd([]byte(tt.text))
			switch {
			case err != nil && (tt.want == "" || !strings.Contains(err.Error(), tt.want)), err == nil && tt.want != "":
				t.Errorf("got %v, want %q", err, tt.want)
			case err == nil && p != primaryFile{name, s}:
				t.Errorf("got %+v", p)
			}
		})
	}
}

func FuzzPrimary(f *testing.F) {
	f.Add([]byte(primaryXML("a", "1")))
	f.Add([]byte(`<metadata xmlns="http://linux.duke.edu/metadata/common"><package><name>a<!-- -->b</name></package></metadata>`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if packages, err := parsePrimary(bytes.NewReader(b)); err == nil {
			checkPackages(t, packages)
		}
	})
}

func FuzzRepomd(f *testing.F) {
	f.Add([]byte(repomdXML("repodata/primary.xml.gz", strings.Repeat("0", 64))))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parseRepomd(b); err == nil && (!isChecksum(p.sha256) || strings.Contains(p.name, "..")) {
			t.Errorf("%+v", p)
		}
	})
}

func FuzzExtensionsList(f *testing.F) {
	f.Add([]byte(`{"a":"1-2.x86_64","b":"3:1-2.noarch"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if packages, err := parseExtensionsList(bytes.NewReader(b)); err == nil {
			checkPackages(t, packages)
		}
	})
}

func FuzzRPM(f *testing.F) {
	f.Add(rpmStart("a", "1"))
	f.Add(rpmStart("kernel-rt-core", "5.14.0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := readRPM(bytes.NewReader(b)); err == nil {
			checkPackages(t, []verdict.Package{p})
		}
	})
}
