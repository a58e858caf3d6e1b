package rpmdb_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	for _, s := range append([]string{"PRAGMA page_size=512"}, statements...) {
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

const packagesTable = "CREATE TABLE 'Packages' (hnum INTEGER PRIMARY KEY AUTOINCREMENT, blob BLOB NOT NULL)"

// No database but rpm's own is read, and none for long.
func TestHostile(t *testing.T) {
	const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n)"
	real := database(t, sysroot.Packages(40, sysroot.DefaultKernel)...)
	tests := []struct{ name, content, want string }{
		{"empty", "", "not a sqlite database"},
		{"text", strings.Repeat("no database\n", 100), "not a sqlite database"},
		{"Berkeley DB", strings.Repeat("\x00", 12) + "\x61\x15\x06\x00" + strings.Repeat("\x00", 4096), "not a sqlite database"},
		{"ndb", "RpmP" + strings.Repeat("\x00", 4096), "not a sqlite database"},
		{"magic alone", "SQLite format 3\x00", "database"},
		{"half", real[:len(real)/2], "malformed"},
		{"a page less", real[:len(real)-4096], "malformed"},
		{"a page of nothing", real[:4096] + strings.Repeat("\x00", 4096) + real[8192:], "malformed"},
		{"no tables", craft(t, "CREATE TABLE x(y)"), "no table Packages"},
		{"a view", craft(t, "CREATE VIEW Packages AS "+endless+" SELECT i AS hnum, zeroblob(1000) AS blob FROM n"), "not an ordinary table"},
		{"a view without rows", craft(t, "CREATE VIEW Packages AS "+endless+" SELECT i AS hnum, zeroblob(1) AS blob FROM n WHERE i<0"), "not an ordinary table"},
		{"a virtual table", craft(t, "CREATE VIRTUAL TABLE Packages USING fts5(hnum, blob)"), "not an ordinary table"},
		{"a computed column", craft(t, "CREATE TABLE Packages(hnum INTEGER PRIMARY KEY, x, blob AS (zeroblob(x)))", "INSERT INTO Packages(x) VALUES (900000000)"), "not rpm's"},
		{"without row numbers", craft(t, "CREATE TABLE Packages(hnum INTEGER PRIMARY KEY, blob BLOB) WITHOUT ROWID"), "not an ordinary table"},
		{"other columns", craft(t, "CREATE TABLE Packages(hnum INTEGER PRIMARY KEY, data BLOB)"), "not rpm's"},
		{"many columns", craft(t, "CREATE TABLE Packages(hnum INTEGER PRIMARY KEY, blob BLOB"+columns(500)+")"), "not rpm's"},
		{"no header", craft(t, packagesTable, "INSERT INTO Packages VALUES (1, x'')"), "header ends early"},
		{"no value", craft(t, "CREATE TABLE Packages(hnum INTEGER PRIMARY KEY, blob BLOB)", "INSERT INTO Packages VALUES (1, NULL)"), "header ends early"},
		{"a number", craft(t, packagesTable, "INSERT INTO Packages VALUES (1, 12)"), "header ends early"},
		{"zeroes", craft(t, packagesTable, "INSERT INTO Packages VALUES (1, zeroblob(100000))"), "header of 0 tags"},
		{"negative number", craft(t, packagesTable, "INSERT INTO Packages VALUES (-5, zeroblob(8))"), "corrupt"},
		{"a huge schema", craft(t, packagesTable, "CREATE TABLE x(y"+columns(1900)+")", "CREATE VIEW v AS SELECT '"+strings.Repeat("x", 200000)+"' AS z"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			packages, err := list(tt.content)
			if tt.want == "" {
				if err == nil && len(packages) > 0 {
					t.Errorf("got %v", packages)
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v; want an error with %q", packages, err, tt.want)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func columns(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ", c%d", i)
	}
	return b.String()
}

func TestManyPackages(t *testing.T) {
	content := craft(t, packagesTable,
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<20001) INSERT INTO Packages SELECT i, x'"+fmt.Sprintf("%x", header(nil))+"' FROM n")
	if _, err := list(content); err == nil || !strings.Contains(err.Error(), "too many packages") {
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
	if _, err := list(""); !errors.Is(err, rpmdb.ErrNotSQLite) {
		t.Errorf("got %v", err)
	}
}

// Several databases may be read at once.
func TestConcurrent(t *testing.T) {
	content := database(t, sysroot.Packages(40, sysroot.DefaultKernel)...)
	done := make(chan error)
	for range 4 {
		go func() {
			packages, err := list(content)
			if err == nil && len(packages) != 50 {
				err = fmt.Errorf("%d packages", len(packages))
			}
			done <- err
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func FuzzList(f *testing.F) {
	blob := fmt.Sprintf("x'%x'", header(nil))
	f.Add([]byte(craft(f, packagesTable, "INSERT INTO Packages VALUES (1, "+blob+"), (2, "+blob+")")))
	f.Add([]byte(craft(f, packagesTable, "INSERT INTO Packages VALUES (1, zeroblob(2000))")))
	f.Add([]byte(craft(f, packagesTable, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<60) INSERT INTO Packages SELECT i, "+blob+" FROM n")))
	f.Add([]byte("SQLite format 3\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		start := time.Now()
		packages, err := rpmdb.List(bytes.NewReader(b), int64(len(b)))
		if err != nil && packages != nil {
			t.Error("packages with an error")
		}
		if err != nil && strings.Contains(err.Error(), "library failed") {
			t.Log(err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("took %s", took)
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
