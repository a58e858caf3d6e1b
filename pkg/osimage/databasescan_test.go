package osimage

import (
	"archive/tar"
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/test/sysroot"
)

// The list is that of the database which a node that boots the image would have, or
// there is none.
func TestDatabaseOfLayers(t *testing.T) {
	db := func(version string) []byte {
		b, err := sysroot.RPMDatabase([]sysroot.Package{{Name: "a", Epoch: "0", Version: version, Release: "1", Arch: "x86_64"}})
		if err != nil {
			t.Fatal(err)
		}
		return []byte(b)
	}
	const share, sysimage = "usr/share/rpm/rpmdb.sqlite", "usr/lib/sysimage/rpm/rpmdb.sqlite"
	object := func(n int) string { return fmt.Sprintf("sysroot/ostree/repo/objects/%02x/%062x.file", n, n) }
	one, two := db("1"), db("2")
	nothing, err := sysroot.RPMDatabase(nil)
	if err != nil {
		t.Fatal(err)
	}
	symlink := func(name, to string) entry { return entry{name, []byte(to), tar.TypeSymlink} }
	hard := func(name, to string) entry { return entry{name, []byte(to), tar.TypeLink} }
	gone := func(name string) entry { return file(name, nil) }
	many := []entry{file(share, one)}
	for i := range 20_000 {
		many = append(many, symlink(fmt.Sprintf("sysroot/ostree/repo/objects/ff/%062x.file", i), "../../lib/x"))
	}
	many = append(many, symlink(object(3), "../../share/rpm"), hard("usr/lib/sysimage/rpm", object(3)))
	tests := []struct {
		name   string
		layers [][]entry // the base first
		want   string    // the version, none, or the error
	}{
		{"one", [][]entry{{file(share, one)}}, "1-1.x86_64"},
		{"the upper one", [][]entry{{file(share, one)}, {file(share, two)}}, "2-1.x86_64"},
		{"an object and its name", [][]entry{{file(object(1), one), hard(share, object(1))}}, "1-1.x86_64"},
		{"an empty log", [][]entry{{file(share, one), file(share+"-wal", nil)}}, "1-1.x86_64"},
		{"an empty log that is an object", [][]entry{{file(object(1), one), hard(share, object(1)), file(object(2), nil), hard(share+"-wal", object(2))}}, "1-1.x86_64"},
		{"a log", [][]entry{{file(share, one), file(share+"-wal", []byte("x"))}}, "changes that are not in the database yet"},
		{"a log that is an object", [][]entry{{file(object(1), one), hard(share, object(1)), file(object(2), []byte("x")), hard(share+"-wal", object(2))}}, "changes that are not in the database yet"},
		{"a log that is a link", [][]entry{{file(share, one), symlink(share+"-wal", "/x")}}, "changes that are not in the database yet"},
		{"a log in a layer above", [][]entry{{file(share, one)}, {file(share+"-wal", []byte("x"))}}, "changes that are not in the database yet"},
		{"a journal in a layer above", [][]entry{{file(share, one)}, {file(share+"-journal", []byte("x"))}, {file("etc/motd", nil)}}, "changes that are not in the database yet"},
		{"a log that a layer above takes away", [][]entry{{file(share, one), file(share+"-wal", []byte("x"))}, {gone("usr/share/rpm/.wh.rpmdb.sqlite-wal")}}, "1-1.x86_64"},
		{"a log that a layer above empties", [][]entry{{file(share, one), file(share+"-wal", []byte("x"))}, {file(share+"-wal", nil)}}, "1-1.x86_64"},

		{"a folder that is a link to the other one", [][]entry{{file(share, one), symlink("usr/lib/sysimage/rpm", "../../share/rpm")}}, "1-1.x86_64"},
		{"a folder that is an absolute link", [][]entry{{file(share, one), symlink("usr/lib/sysimage/rpm", "/usr/share/rpm")}}, "1-1.x86_64"},
		{"a folder that is a link as an object", [][]entry{{file(share, one), symlink(object(3), "../../share/rpm"), hard("usr/lib/sysimage/rpm", object(3))}}, "1-1.x86_64"},
		{"a folder that is a link among many", [][]entry{many}, "1-1.x86_64"},
		{"a database that is a link", [][]entry{{file(sysimage, one), symlink(share, "../../lib/sysimage/rpm/rpmdb.sqlite")}}, "1-1.x86_64"},
		{"a link above the database", [][]entry{{file(share, one), file(sysimage, two)}, {symlink("usr/share/rpm", "../lib/sysimage/rpm")}}, "2-1.x86_64"},
		{"a folder that becomes a link", [][]entry{{file(share, one)}, {file(sysimage, two)}, {symlink("usr/share/rpm", "../lib/sysimage/rpm")}}, "2-1.x86_64"},
		{"a folder that becomes a link out", [][]entry{{file(share, one)}, {symlink("usr/share/rpm", "/opt/rpm"), file("opt/rpm/rpmdb.sqlite", two)}}, "/usr/share/rpm is not a folder"},
		{"a folder that becomes a link in a circle", [][]entry{{file(share, one)}, {symlink("usr/share/rpm", "../share/rpm")}}, "/usr/share/rpm is not a folder"},
		{"a folder above that becomes a link out", [][]entry{{file(share, one)}, {symlink("usr/share", "/opt")}}, "/usr/share is not a folder"},
		{"a folder that becomes a file", [][]entry{{file(share, one)}, {file("usr/share/rpm", nil)}}, "/usr/share/rpm is not a folder"},
		{"a folder that becomes an object", [][]entry{{file(share, one)}, {file(object(1), nil), hard("usr/share/rpm", object(1))}}, "/usr/share/rpm is not a folder"},
		{"a database that becomes a link out", [][]entry{{file(share, one)}, {symlink(share, "/opt/db")}}, "rpmdb.sqlite is not a folder or a database"},
		{"a database that becomes a pipe", [][]entry{{file(share, one)}, {entry{share, nil, tar.TypeFifo}}}, "rpmdb.sqlite is not a folder or a database"},
		{"a database that becomes a folder", [][]entry{{file(share, one)}, {entry{share + "/", nil, tar.TypeDir}}}, "rpmdb.sqlite is not a folder or a database"},

		{"taken away", [][]entry{{file(share, one)}, {gone("usr/share/rpm/.wh.rpmdb.sqlite")}}, "none"},
		{"taken away, and another one beneath", [][]entry{{file(share, one)}, {gone("usr/.wh..wh..opq"), file(share, two)}}, "2-1.x86_64"},
		{"there and taken away", [][]entry{{gone("usr/share/rpm/.wh.rpmdb.sqlite"), file(share, one)}}, "both there and taken away"},
		{"twice", [][]entry{{file(share, one), file(share, two)}}, "is there twice"},
		{"two", [][]entry{{file(share, one), file(sysimage, two)}}, "two rpm databases"},
		{"one without packages", [][]entry{{file(share, one)}, {file(share, []byte(nothing))}}, "lists no package"},
		{"one of something else", [][]entry{{file("var/lib/rpm/rpmdb.sqlite", one)}}, "none"},
		{"one of something else above", [][]entry{{file(share, one)}, {file("var/lib/rpm/rpmdb.sqlite", two)}}, "1-1.x86_64"},
		{"objects that look like one", [][]entry{{file(object(1), two), file(object(2), two), file(object(3), two), file(object(4), two), file(object(5), one), hard(share, object(5))}}, "1-1.x86_64"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := "none"
			scan := newDatabaseScan()
			for i := len(tt.layers) - 1; i >= 0 && got == "none"; i-- {
				err := scan.read(t.Context(), bytes.NewReader(makeTar(t, tt.layers[i]...)))
				if err == nil {
					packages, why := scan.packages()
					if err = why; len(packages) == 1 {
						got = packages[0].EVRA
					}
				}
				scan.close()
				if err != nil {
					got = err.Error()
				}
			}
			if got != tt.want && (tt.want == "none" || !strings.Contains(got, tt.want)) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// A few kilobytes do not fill the disk: one database is kept, and few that may be.
func TestDatabaseRoom(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var entries []entry
	for range 50 {
		entries = append(entries, file("usr/share/rpm/rpmdb.sqlite", make([]byte, 1<<20)))
	}
	scan := newDatabaseScan()
	defer scan.close()
	err := scan.read(t.Context(), bytes.NewReader(makeTar(t, entries...)))
	if err == nil || len(scan.spools) > 2 {
		t.Errorf("%d files are kept, %v", len(scan.spools), err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// A package that is there twice has no one version.
func TestFactsOfSeveralVersions(t *testing.T) {
	tests := []struct {
		arch     string
		versions []string
		want     string
	}{
		{"amd64", []string{"1-1.i686", "2-1.x86_64"}, "2-1.x86_64"},
		{"amd64", []string{"1-1.x86_64", "2-1.x86_64"}, "1-1.x86_64 2-1.x86_64"},
		{"amd64", []string{"1-1.noarch"}, "1-1.noarch"},
		{"s390x", []string{"1-1.s390x", "1-1.s390"}, "1-1.s390x"},
	}
	for _, tt := range tests {
		if got := strings.Join((&Inspection{Architecture: tt.arch}).ofArchitecture(tt.versions), " "); got != tt.want {
			t.Errorf("%s, %v: %s, want %s", tt.arch, tt.versions, got, tt.want)
		}
	}
}
