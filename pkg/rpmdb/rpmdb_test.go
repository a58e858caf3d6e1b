package rpmdb_test

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite"

	"github.com/oneboot/oneboot/pkg/rpmdb"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/sysroot"
)

func list(content string) ([]verdict.Package, error) {
	return rpmdb.List(strings.NewReader(content), int64(len(content)))
}

func database(t testing.TB, packages ...sysroot.Package) string {
	t.Helper()
	content, err := sysroot.RPMDatabase(packages)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestList(t *testing.T) {
	key := sysroot.Package{Name: "gpg-pubkey", Version: "fd431d51", Release: "4ae0493b"}
	bash := sysroot.Package{Name: "bash", Version: "5.1.8", Release: "9.el9", Arch: "x86_64"}
	skopeo := sysroot.Package{Name: "skopeo", Epoch: "2", Version: "1.14~rc1^git", Release: "3", Arch: "noarch"}
	zero := sysroot.Package{Name: "zero", Epoch: "0", Version: "1", Release: "1", Arch: "aarch64"}
	tests := []struct {
		name     string
		packages []sysroot.Package
		want     []verdict.Package
	}{
		{"none", nil, []verdict.Package{}},
		{"some", []sysroot.Package{skopeo, key, bash, zero, bash}, []verdict.Package{
			{Name: "skopeo", EVRA: "2:1.14~rc1^git-3.noarch"}, {Name: "bash", EVRA: "5.1.8-9.el9.x86_64"},
			{Name: "zero", EVRA: "1-1.aarch64"}, {Name: "bash", EVRA: "5.1.8-9.el9.x86_64"},
		}},
		{"a large header", []sysroot.Package{{Name: "a", Version: "1", Release: "1", Arch: "noarch", Weight: 4 << 20}}, []verdict.Package{{Name: "a", EVRA: "1-1.noarch"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := list(database(t, tt.packages...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Packages built and installed by rpm itself, with all that their headers hold.
func TestListInstalled(t *testing.T) {
	dir := t.TempDir()
	spec := filepath.Join(dir, "x.spec")
	text := `Name: tool
Epoch: 3
Version: 1.2
Release: 4.el9
Summary: A tool
License: MIT
Provides: other = 1
%description
A tool.
%package data
Summary: Data
BuildArch: noarch
%description data
Data.
%install
mkdir -p %{buildroot}/usr/share/tool
for i in $(seq 200); do echo $i >%{buildroot}/usr/share/tool/$i; done
%post
echo installed
%files
/usr/share/tool/1*
%files data
/usr/share/tool/[2-9]*
%changelog
* Wed Oct 16 2024 A Person <a@example.com> - 1.2-4
- First
`
	if err := os.WriteFile(spec, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "rpmbuild", "-bb", "--quiet", "--define", "_topdir "+dir, "--target", "x86_64", spec)
	files, err := filepath.Glob(filepath.Join(dir, "RPMS/*/*.rpm"))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	db := filepath.Join(dir, "db")
	run(t, "rpm", append([]string{"--dbpath", db, "-i", "--justdb", "--nodeps", "--ignorearch"}, files...)...)
	got := listFile(t, filepath.Join(db, "rpmdb.sqlite"))
	slices.SortFunc(got, func(a, b verdict.Package) int { return strings.Compare(a.Name, b.Name) })
	want := []verdict.Package{{Name: "tool", EVRA: "3:1.2-4.el9.x86_64"}, {Name: "tool-data", EVRA: "3:1.2-4.el9.noarch"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A package that was removed again is still in the file's free pages.
	run(t, "rpm", "--dbpath", db, "-e", "--justdb", "--nodeps", "tool-data")
	if diff := cmp.Diff(want[:1], listFile(t, filepath.Join(db, "rpmdb.sqlite"))); diff != "" {
		t.Errorf("after a removal (-want +got):\n%s", diff)
	}
}

func listFile(t *testing.T, name string) []verdict.Package {
	t.Helper()
	if info, err := os.Stat(name + "-wal"); err == nil && info.Size() > 0 {
		t.Fatal("rpm left changes in its write-ahead log")
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	packages, err := rpmdb.List(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// craft makes a database by SQL.
func craft(t testing.TB, statements ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "db")
	db, err := sql.Open("sqlite", name)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, s := range append([]string{"PRAGMA page_size=512", "PRAGMA synchronous=OFF", "PRAGMA journal_mode=MEMORY"}, statements...) {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// packagesTable is rpm's own.
const packagesTable = "CREATE TABLE 'Packages' (hnum INTEGER PRIMARY KEY AUTOINCREMENT,blob BLOB NOT NULL)"

// No database but rpm's own is read.
func TestHostile(t *testing.T) {
	real := database(t, sysroot.Packages(40, sysroot.DefaultKernel)...)
	change := func(at int, b string) string { return real[:at] + b + real[at+len(b):] }
	const page = 4096
	tests := []struct{ name, content, want string }{
		{"empty", "", "not an rpm database"},
		{"text", strings.Repeat("no database\n", 100), "not an rpm database"},
		{"Berkeley DB", strings.Repeat("\x00", 12) + "\x61\x15\x06\x00" + strings.Repeat("\x00", 4096), "pages of 0 bytes"},
		{"ndb", "RpmP" + strings.Repeat("\x00", 4096), "0 pages of slots"},
		{"magic alone", "SQLite format 3\x00", "header ends early"},
		{"header alone", real[:100], "malformed"},
		{"half", real[:len(real)/2], "malformed"},
		{"a page less", real[:len(real)-page], "malformed"},
		{"a page of nothing", change(page, strings.Repeat("\x00", page)), "page 2 of type 0"},
		{"page size of 0", change(16, "\x00\x00"), "pages of 0 bytes"},
		{"page size of 3", change(16, "\x00\x03"), "pages of 3 bytes"},
		{"all reserved", change(16, "\x02\x00\x02\x02\xff"), "255 reserved"},
		{"future version", change(18, "\x03\x03"), "unknown version"},
		{"UTF-16", change(56, "\x00\x00\x00\x02"), "text encoding 2"},
		{"many pages", change(28, "\xff\xff\xff\xff"), "of 4294967295 pages"},
		{"an index for a table", change(page, "\x0a"), "page 2 of type 10"},
		{"too many cells", change(page+3, "\xff\xff"), "cells"},
		{"a cell in the header", change(page+12, "\x00\x01"), "cell at 1"},
		{"a cell at the end", change(page+12, "\x0f\xff"), "cell at 4095"},
		{"no tables", craft(t, "CREATE TABLE x(y)"), "no table Packages"},
		{"a view", craft(t, "CREATE VIEW Packages AS SELECT 1 AS hnum, zeroblob(1000) AS blob"), "not rpm's table"},
		{"a virtual table", craft(t, "CREATE VIRTUAL TABLE packages USING fts5(hnum, blob)"), "not rpm's table"},
		{"a computed column", craft(t, "CREATE TABLE Packages(hnum INTEGER PRIMARY KEY, x, blob AS (zeroblob(x)))"), "not rpm's table"},
		{"without row numbers", craft(t, "CREATE TABLE Packages(hnum INTEGER PRIMARY KEY, blob BLOB NOT NULL) WITHOUT ROWID"), "not rpm's table"},
		{"other columns", craft(t, "CREATE TABLE Packages(hnum INTEGER PRIMARY KEY, data BLOB)"), "not rpm's table"},
		{"a long schema", craft(t, packagesTable, "CREATE VIEW v AS SELECT '"+strings.Repeat("x", 70000)+"' AS z"), "over the limit"},
		{"no header", craft(t, packagesTable, "INSERT INTO Packages VALUES (1, x'')"), "header ends early"},
		{"a number", craft(t, packagesTable, "INSERT INTO Packages VALUES (1, 12)"), "not a blob"},
		{"a text", craft(t, packagesTable, "INSERT INTO Packages VALUES (1, 'text')"), "not a blob"},
		{"a column more", craft(t, "CREATE TABLE 'Packages' (hnum INTEGER PRIMARY KEY AUTOINCREMENT,blob BLOB NOT NULL, x)",
			"INSERT INTO Packages VALUES (1, x'00', 1)"), "not rpm's table"},
		{"zeroes", craft(t, packagesTable, "INSERT INTO Packages VALUES (1, zeroblob(100000))"), "header of 0 tags"},
		{"a large header", craft(t, packagesTable, "INSERT INTO Packages VALUES (1, zeroblob(33554432))"), "over the limit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			packages, err := list(tt.content)
			if err == nil || packages != nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v; want an error with %q", packages, err, tt.want)
			}
		})
	}
}

// Pages that lead to each other, or to the same ones, end at once.
func TestLoops(t *testing.T) {
	content := manyRows(t, 2000)
	page := int(content[16])<<8 | int(content[17])
	// The table has interior pages; page 2 is its root.
	if content[page] != 5 {
		t.Fatalf("page of type %d", content[page])
	}
	first := page + (int(content[page+12])<<8 | int(content[page+13]))
	tests := []struct {
		name string
		at   int
		to   uint32
	}{
		{"to itself", first, 2}, {"to the schema", first, 1}, {"to nothing", first, 0}, {"far away", first, 0xffffffff}, {"last child to itself", page + 8, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := []byte(content)
			binary.BigEndian.PutUint32(b[tt.at:], tt.to)
			if got, err := list(string(b)); err == nil || !strings.Contains(err.Error(), "does not exist or is used twice") {
				t.Errorf("got %d packages, %v", len(got), err)
			}
		})
	}
	t.Run("a child twice", func(t *testing.T) {
		b := []byte(content)
		second := page + (int(content[page+14])<<8 | int(content[page+15]))
		copy(b[second:second+4], b[first:])
		if got, err := list(string(b)); err == nil || !strings.Contains(err.Error(), "used twice") {
			t.Errorf("got %d packages, %v", len(got), err)
		}
	})
	t.Run("children in another order", func(t *testing.T) {
		b := []byte(content)
		copy(b[page+12:], []byte{content[page+14], content[page+15], content[page+12], content[page+13]})
		if got, err := list(string(b)); err == nil || !strings.Contains(err.Error(), "behind row") {
			t.Errorf("got %d packages, %v", len(got), err)
		}
	})
}

// manyRows makes a database of so many small packages.
func manyRows(t testing.TB, n int) string {
	return craft(t, packagesTable,
		fmt.Sprintf("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<%d) INSERT INTO Packages SELECT i, x'%x' FROM n", n, header(nil)))
}

// The rows are those that SQLite itself reads, whatever was done to the file.
func TestAgainstSQLite(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, pageSize := range []int{512, 1024, 4096, 8192, 65536} {
		for _, vacuum := range []string{"", "PRAGMA auto_vacuum=1", "PRAGMA auto_vacuum=2"} {
			t.Run(fmt.Sprintf("%d %s", pageSize, vacuum), func(t *testing.T) {
				steps := []string{fmt.Sprintf("PRAGMA page_size=%d", pageSize), vacuum, "CREATE TABLE other(x)", packagesTable, "CREATE TABLE 'Name' (key TEXT NOT NULL, hnum INTEGER NOT NULL)"}
				for i := range 150 {
					// Around every size at which a row is stored differently.
					size := random.IntN(3 * pageSize)
					if i%50 == 0 {
						size = random.IntN(1 << 20)
					}
					steps = append(steps, fmt.Sprintf("INSERT INTO Packages(blob) VALUES (x'%x')", headerOf(i, size)), "INSERT INTO other VALUES (zeroblob(300))")
					if i%7 == 0 {
						steps = append(steps, fmt.Sprintf("DELETE FROM Packages WHERE hnum=%d", random.IntN(i+1)))
					}
				}
				steps = append(steps, fmt.Sprintf("INSERT INTO Packages VALUES (%d, x'%x')", int64(1)<<40, headerOf(1000, 10)))
				if vacuum == "" {
					steps = append(steps, "DROP TABLE other")
				}
				content := craft(t, steps...)
				got, err := list(content)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(bySQLite(t, content), got); diff != "" {
					t.Errorf("(-SQLite +got):\n%s", diff)
				}
			})
		}
	}
}

// headerOf is the header of package number i with so many bytes of other data.
func headerOf(i, size int) []byte {
	return header(func(index []entry, data string) ([]entry, string) {
		index[0].offset = uint32(len(data))
		return index, data + fmt.Sprintf("p%d\x00", i) + strings.Repeat("x", size)
	})
}

// bySQLite reads the names of packages made by headerOf through SQLite.
func bySQLite(t testing.TB, content string) []verdict.Package {
	t.Helper()
	name := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", name)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query("SELECT blob FROM Packages ORDER BY hnum")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var packages []verdict.Package
	for rows.Next() {
		var blob []byte
		if err := rows.Scan(&blob); err != nil {
			t.Fatal(err)
		}
		at := 8 + 5*16 + binary.BigEndian.Uint32(blob[8+8:])
		text, _, _ := strings.Cut(string(blob[at:]), "\x00")
		packages = append(packages, verdict.Package{Name: text, EVRA: "1:5-9.noarch"})
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return packages
}

func TestManyPackages(t *testing.T) {
	if packages, err := list(manyRows(t, 20000)); err != nil || len(packages) != 20000 {
		t.Errorf("got %d, %v", len(packages), err)
	}
	if _, err := list(manyRows(t, 20001)); err == nil || !strings.Contains(err.Error(), "more than 20000 packages") {
		t.Errorf("got %v", err)
	}
}

// failing fails to read what lies behind its first bytes.
type failing struct {
	content string
	good    int64
}

func (f failing) ReadAt(b []byte, offset int64) (int, error) {
	if offset+int64(len(b)) > f.good {
		return 0, errors.New("input/output error")
	}
	return strings.NewReader(f.content).ReadAt(b, offset)
}

func TestReadError(t *testing.T) {
	content := database(t, sysroot.Packages(40, sysroot.DefaultKernel)...)
	for good := int64(0); good < int64(len(content)); good += 4096 {
		// Indexes are not read, so pages of theirs may fail.
		packages, err := rpmdb.List(failing{content, good}, int64(len(content)))
		if err == nil && len(packages) != 50 {
			t.Errorf("%d bytes: got %d packages and no error", good, len(packages))
		}
		if good == 0 && (err == nil || !strings.Contains(err.Error(), "input/output error")) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := rpmdb.List(strings.NewReader(content), rpmdb.MaxSize+1); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("got %v", err)
	}
	if _, err := list(""); !errors.Is(err, rpmdb.ErrNotDatabase) {
		t.Errorf("got %v", err)
	}
}

func FuzzList(f *testing.F) {
	blob := fmt.Sprintf("x'%x'", header(nil))
	f.Add([]byte(craft(f, packagesTable, "INSERT INTO Packages VALUES (1, "+blob+"), (2, "+blob+")")))
	f.Add([]byte(craft(f, packagesTable, "INSERT INTO Packages VALUES (1, zeroblob(2000))")))
	f.Add([]byte(manyRows(f, 60)))
	f.Add([]byte("SQLite format 3\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		packages, err := rpmdb.List(bytes.NewReader(b), int64(len(b)))
		if (err == nil) != (packages != nil) {
			t.Errorf("got %v, %v", packages, err)
		}
		for _, p := range packages {
			if p.Name == "" || strings.ContainsAny(p.Name+p.EVRA, " \n\x00") {
				t.Errorf("got %+v", p)
			}
		}
	})
}

// BenchmarkList reads 500 packages with headers of real size.
func BenchmarkList(b *testing.B) {
	packages := sysroot.Packages(490, sysroot.DefaultKernel)
	for i := range packages {
		packages[i].Weight = 50 << 10
	}
	content := database(b, packages...)
	name := filepath.Join(b.TempDir(), "rpmdb.sqlite")
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		b.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		list, err := rpmdb.List(io.NewSectionReader(f, 0, int64(len(content))), int64(len(content)))
		if err != nil || len(list) != 500 {
			b.Fatal(len(list), err)
		}
	}
}
