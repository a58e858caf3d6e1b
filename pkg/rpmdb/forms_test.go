package rpmdb_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	gorpmdb "github.com/knqyf263/go-rpmdb/pkg"

	"github.com/oneboot/oneboot/pkg/rpmdb"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// libraryData is the test data of go-rpmdb: databases of real systems in forms
// that Debian's rpm reads and does not write.
func libraryData(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/knqyf263/go-rpmdb").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "pkg/testdata")
}

// byRPM is what rpm lists in a database, with the backend that reads it.
func byRPM(t *testing.T, file, backend string) []verdict.Package {
	t.Helper()
	dir := t.TempDir()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), content, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("rpm", "--dbpath", dir, "--define", "_db_backend "+backend, "-qa", "--qf", "%{name}\t%|epoch?{%{epoch}:}|%{version}-%{release}.%{arch}\n").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []verdict.Package
	for line := range strings.Lines(string(out)) {
		name, evra, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if name != "gpg-pubkey" {
			all = append(all, verdict.Package{Name: name, EVRA: strings.TrimPrefix(evra, "0:")})
		}
	}
	if len(all) == 0 {
		t.Fatalf("rpm lists no packages in %s", file)
	}
	return sorted(all)
}

// byLibrary is what go-rpmdb lists: Debian's rpm knows no ndb.
func byLibrary(t *testing.T, file, _ string) []verdict.Package {
	t.Helper()
	db, err := gorpmdb.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	list, err := db.ListPackages()
	if err != nil || len(list) == 0 {
		t.Fatalf("%d packages, %v", len(list), err)
	}
	var all []verdict.Package
	for _, p := range list {
		evra := p.Version + "-" + p.Release + "." + p.Arch
		if p.EpochNum() != 0 {
			evra = strconv.Itoa(p.EpochNum()) + ":" + evra
		}
		if p.Name != "gpg-pubkey" {
			all = append(all, verdict.Package{Name: p.Name, EVRA: evra})
		}
	}
	return sorted(all)
}

func sorted(list []verdict.Package) []verdict.Package {
	slices.SortFunc(list, func(a, b verdict.Package) int { return strings.Compare(a.Name+a.EVRA, b.Name+b.EVRA) })
	return list
}

func TestForms(t *testing.T) {
	data := libraryData(t)
	tests := []struct{ file, backend string }{
		{"centos5-plain/Packages", "bdb_ro"}, {"centos6-plain/Packages", "bdb_ro"}, {"centos7-plain/Packages", "bdb_ro"},
		{"centos7-many/Packages", "bdb_ro"}, {"centos8-modularitylabel/Packages", "bdb_ro"}, {"ubi8-s390x/Packages", "bdb_ro"},
		{"libuuid/Packages", "bdb_ro"}, {"sle15-bci/Packages.db", "ndb"}, {"fedora35/rpmdb.sqlite", "sqlite"}, {"cbl-mariner-2.0/rpmdb.sqlite", "sqlite"},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			file := filepath.Join(data, tt.file)
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := rpmdb.List(bytes.NewReader(content), int64(len(content)))
			if err != nil {
				t.Fatal(err)
			}
			want := byRPM
			if tt.backend == "ndb" {
				want = byLibrary
			}
			if d := cmp.Diff(want(t, file, tt.backend), sorted(got)); d != "" {
				t.Errorf("(-want +List)\n%s", d)
			}
		})
	}
}

// small are the smallest databases of the two older forms.
func small(t testing.TB) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, name := range []string{"libuuid/Packages", "sle15-bci/Packages.db"} {
		content, err := os.ReadFile(filepath.Join(libraryData(t), name))
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(name)] = content
	}
	return all
}

// A damaged database is an error: never a part of the list, and never a loop.
func TestDamagedForms(t *testing.T) {
	all := small(t)
	edit := func(name string, at int, b ...byte) []byte {
		c := bytes.Clone(all[name])
		copy(c[at:], b)
		return c
	}
	// The first page of values, its first value and the page that it begins on.
	bdb := all["Packages"]
	page := int(binary.LittleEndian.Uint32(bdb[20:]))
	hash := 0
	for at := page; at < len(bdb) && hash == 0; at += page {
		if bdb[at+25] == 13 && binary.LittleEndian.Uint16(bdb[at+20:]) >= 2 {
			hash = at
		}
	}
	if hash == 0 {
		t.Fatal("the database has no page of values")
	}
	tests := []struct {
		name    string
		content []byte
	}{
		{"Berkeley DB, cut off", bdb[:len(bdb)/2]},
		{"Berkeley DB, a page size of 3", edit("Packages", 20, 3, 0, 0, 0)},
		{"Berkeley DB, more pages than there are", edit("Packages", 32, 0xff, 0xff, 0xff, 0x7f)},
		{"Berkeley DB, an odd number of items", edit("Packages", hash+20, 3, 0)},
		{"Berkeley DB, more items than fit", edit("Packages", hash+20, 0xfe, 0xff)},
		{"Berkeley DB, an item outside of its page", edit("Packages", hash+28, 0xff, 0xff)},
		{"Berkeley DB, an item in the head", edit("Packages", hash+28, 1, 0)},
		{"Berkeley DB, encrypted", edit("Packages", 24, 1)},
		{"ndb, cut off", all["Packages.db"][:5000]},
		{"ndb, no pages", edit("Packages.db", 12, 0, 0, 0, 0)},
		{"ndb, pages without end", edit("Packages.db", 12, 0xff, 0xff, 0xff, 0xff)},
		{"ndb, another version", edit("Packages.db", 4, 1)},
		{"ndb, no slot", edit("Packages.db", 32, 'X')},
		{"ndb, a package outside of the file", edit("Packages.db", 40, 0xff, 0xff, 0xff, 0xff)},
		{"ndb, a package of no length", edit("Packages.db", 44, 0, 0, 0, 0)},
		{"ndb, a package of 64 GiB", edit("Packages.db", 44, 0xff, 0xff, 0xff, 0xff)},
		{"ndb, another checksum", edit("Packages.db", 4096*int(binary.LittleEndian.Uint32(all["Packages.db"][12:]))+100, 0xff, 0xfe, 0xfd)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := rpmdb.List(bytes.NewReader(tt.content), int64(len(tt.content))); err == nil {
				t.Errorf("%d packages are listed", len(got))
			}
		})
	}
}

func FuzzForms(f *testing.F) {
	for _, content := range small(f) {
		f.Add(content[:min(len(content), 128<<10)])
	}
	f.Add([]byte("RpmP"))
	f.Fuzz(func(t *testing.T, b []byte) {
		packages, err := rpmdb.List(bytes.NewReader(b), int64(len(b)))
		if err != nil && packages != nil {
			t.Error("both a list and an error")
		}
	})
}
