package ostree_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/ostree"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/sysroot"
)

const packageList = "--add-metadata=rpmostree.rpmdb.pkglist=[('listed','0','1','2','noarch')]"

// listed is what packageList lists.
func listed() []verdict.Package { return []verdict.Package{{Name: "listed", EVRA: "1-2.noarch"}} }

// database is an rpm database that holds the package in-database.
func database(t *testing.T) string {
	t.Helper()
	content, err := sysroot.RPMDatabase([]sysroot.Package{{Name: "in-database", Epoch: "1", Version: "2", Release: "3", Arch: "x86_64"}})
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func inDatabase() []verdict.Package {
	return []verdict.Package{{Name: "in-database", EVRA: "1:2-3.x86_64"}}
}

func (s *system) packages() (packages, base verdict.Fact[[]verdict.Package]) {
	s.t.Helper()
	sys, b := s.booted()
	return sys.Packages(b)
}

func TestPackagesOfDatabase(t *testing.T) {
	content := database(t)
	const share, sysimage = "usr/share/rpm/rpmdb.sqlite", "usr/lib/sysimage/rpm/rpmdb.sqlite"
	tests := []struct {
		name string
		tree func(t *testing.T, tree string)
		why  string // unknown, where not empty
	}{
		{"in usr/share", func(t *testing.T, tree string) { write(t, filepath.Join(tree, share), content) }, ""},
		{"in usr/lib/sysimage", func(t *testing.T, tree string) { write(t, filepath.Join(tree, sysimage), content) }, ""},
		{"usr/share is a link", func(t *testing.T, tree string) {
			write(t, filepath.Join(tree, sysimage), content)
			symlink(t, "../lib/sysimage/rpm", filepath.Join(tree, "usr/share/rpm"))
		}, ""},
		{"usr/lib/sysimage is a link", func(t *testing.T, tree string) {
			write(t, filepath.Join(tree, share), content)
			symlink(t, "../../share/rpm", filepath.Join(tree, "usr/lib/sysimage/rpm"))
		}, ""},
		{"both, the same", func(t *testing.T, tree string) {
			write(t, filepath.Join(tree, share), content)
			write(t, filepath.Join(tree, sysimage), content)
		}, ""},
		{"empty logs", func(t *testing.T, tree string) {
			for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
				write(t, filepath.Join(tree, share+suffix), map[bool]string{true: content}[suffix == ""])
			}
			write(t, filepath.Join(tree, share+"-shm"), "shared memory is not read")
		}, ""},
		{"both, different", func(t *testing.T, tree string) {
			write(t, filepath.Join(tree, share), content)
			write(t, filepath.Join(tree, sysimage), content+"x")
		}, "differ"},
		{"write-ahead log", func(t *testing.T, tree string) {
			write(t, filepath.Join(tree, share), content)
			write(t, filepath.Join(tree, share+"-wal"), "x")
		}, "rpmdb.sqlite-wal is not empty"},
		{"journal", func(t *testing.T, tree string) {
			write(t, filepath.Join(tree, share), content)
			write(t, filepath.Join(tree, share+"-journal"), "x")
		}, "rpmdb.sqlite-journal is not empty"},
		{"log is a folder", func(t *testing.T, tree string) {
			write(t, filepath.Join(tree, share), content)
			write(t, filepath.Join(tree, share+"-wal/x"), "")
		}, "is a directory"},
		{"database is a link", func(t *testing.T, tree string) { symlink(t, "/etc/rpmdb.sqlite", filepath.Join(tree, share)) }, "reading file object"},
		{"database is a folder", func(t *testing.T, tree string) { mkdir(t, filepath.Join(tree, share)) }, "is a directory"},
		{"none", func(*testing.T, string) {}, "there is no rpm database"},
		{"Berkeley DB", func(t *testing.T, tree string) { write(t, filepath.Join(tree, "usr/share/rpm/Packages"), "x") }, "there is no rpm database"},
		{"no database", func(t *testing.T, tree string) { write(t, filepath.Join(tree, share), "x") }, "not an rpm database"},
		{"half a database", func(t *testing.T, tree string) { write(t, filepath.Join(tree, share), content[:len(content)/2]) }, "malformed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			tree := newTree(t)
			tt.tree(t, tree)
			s.commit(tree, testRef)
			s.deploy(testRef, "--os="+stateroot)
			// What the running system has does not count.
			write(t, filepath.Join(s.top, share), "live")
			if f := s.facts(); f.Booted.Packages.Gathered() || f.Booted.BasePackages.Gathered() {
				t.Error("gathered by Facts")
			}
			packages, base := s.packages()
			if base.Gathered() {
				t.Error("base packages of a commit that is not layered")
			}
			if tt.why != "" {
				unknown(t, "packages", packages, tt.why)
				return
			}
			if diff := cmp.Diff(inDatabase(), known(t, "packages", packages)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The object of the database is evidence: it must be what the commit names.
func TestPackagesCorrupt(t *testing.T) {
	s := newSystem(t)
	tree := newTree(t)
	write(t, filepath.Join(tree, "usr/share/rpm/rpmdb.sqlite"), database(t))
	sum := s.commit(tree, testRef)
	s.deploy(testRef, "--os="+stateroot)
	sys := s.open()
	c, err := sys.Repo().Commit(verdict.Checksum(sum))
	if err != nil {
		t.Fatal(err)
	}
	e, err := sys.Repo().Lookup(c.Root, "usr/share/rpm/rpmdb.sqlite")
	if err != nil {
		t.Fatal(err)
	}
	other, err := sysroot.RPMDatabase(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.object(string(e.File), "file"), []byte(other), 0); err != nil {
		t.Fatal(err)
	}
	packages, _ := s.packages()
	unknown(t, "packages", packages, "corrupt")
}

// A list in a commit's metadata saves reading the database.
func TestPackagesListed(t *testing.T) {
	content := database(t)
	withDatabase := func(t *testing.T) string {
		tree := newTree(t)
		write(t, filepath.Join(tree, "usr/share/rpm/rpmdb.sqlite"), content)
		return tree
	}
	tests := []struct {
		name   string
		deploy func(t *testing.T, s *system)
		free   []verdict.Package // by Facts alone
		want   []verdict.Package
		why    string
	}{
		{"plain", func(t *testing.T, s *system) {
			s.commit(withDatabase(t), testRef, packageList)
			s.deploy(testRef, "--os="+stateroot)
		}, listed(), listed(), ""},
		{"list of another type", func(t *testing.T, s *system) {
			s.commit(withDatabase(t), testRef, "--add-metadata=rpmostree.rpmdb.pkglist='x'")
			s.deploy(testRef, "--os="+stateroot)
		}, nil, nil, "rpmostree.rpmdb.pkglist"},
		{"image of a commit with a list", func(t *testing.T, s *system) {
			s.commit(withDatabase(t), blobRef, packageList)
			s.deploy(s.merge(newImage(), blobRef), "--os="+stateroot)
		}, listed(), listed(), ""},
		{"image of a commit with a bad list", func(t *testing.T, s *system) {
			s.commit(withDatabase(t), blobRef, "--add-metadata=rpmostree.rpmdb.pkglist=true")
			s.deploy(s.merge(newImage(), blobRef), "--os="+stateroot)
		}, nil, nil, "rpmostree.rpmdb.pkglist"},
		{"image with other files than the commit with a list", func(t *testing.T, s *system) {
			s.commit(newTree(t), blobRef, packageList)
			s.commit(withDatabase(t), testRef)
			s.deploy(s.merge(newImage(), testRef), "--os="+stateroot)
		}, nil, inDatabase(), ""},
		{"image of a commit without a list", func(t *testing.T, s *system) {
			s.commit(withDatabase(t), blobRef)
			s.deploy(s.merge(newImage(), blobRef), "--os="+stateroot)
		}, nil, inDatabase(), ""},
		{"image of a commit that is gone", func(t *testing.T, s *system) {
			s.commit(withDatabase(t), blobRef, packageList)
			s.deploy(s.merge(newImage(), blobRef), "--os="+stateroot)
			s.repo("refs", "--delete", blobRef)
		}, nil, inDatabase(), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			tt.deploy(t, s)
			f := s.facts()
			if got, _ := f.Booted.Packages.Get(); !cmp.Equal(tt.free, got) {
				t.Errorf("free packages: got %v, want %v", got, tt.free)
			}
			packages, base := s.packages()
			if base.Gathered() {
				t.Error("base packages of a commit that is not layered")
			}
			if tt.why != "" {
				unknown(t, "packages", f.Booted.Packages, tt.why)
				unknown(t, "packages", packages, tt.why)
				return
			}
			if diff := cmp.Diff(tt.want, known(t, "packages", packages)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// merge commits the tree of a ref as the image.
func (s *system) merge(i *image, ref string) string {
	s.t.Helper()
	return s.repo(append([]string{"commit", "-b", "ostree/container/image/x", "--tree=ref=" + ref}, i.metadata(s.t)...)...)
}

// Layered packages in the real forms: lists, databases, or one of each.
func TestPackagesLayered(t *testing.T) {
	base := []sysroot.Package{
		{Name: "kernel-core", Version: "5", Release: "1", Arch: "x86_64"}, {Name: "bash", Epoch: "2", Version: "5", Release: "1", Arch: "x86_64"},
	}
	baseWant := []verdict.Package{{Name: "kernel-core", EVRA: "5-1.x86_64"}, {Name: "bash", EVRA: "2:5-1.x86_64"}}
	rt := sysroot.Package{Name: "kernel-rt-core", Version: "5", Release: "1", Arch: "x86_64"}
	want := []verdict.Package{{Name: "bash", EVRA: "2:5-1.x86_64"}, {Name: "kernel-rt-core", EVRA: "5-1.x86_64"}}
	tests := []struct {
		name         string
		baseDatabase bool
		baseList     bool
		layerList    bool
		baseFree     bool
		lie          string // another list
		why          string // the packages are unknown
		baseWhy      string // those of the base are
	}{
		{"lists", true, true, true, true, "", "", ""},
		{"lists alone", false, true, true, true, "", "", ""},
		{"databases", true, false, false, false, "", "", ""},
		{"a list and a database", true, false, true, false, "", "", ""},
		{"a list, and nothing below", false, false, true, false, "", "", "there is no rpm database"},
		{"a list that the database contradicts", true, true, false, true, "[('bash','2','5','1','x86_64'),('kernel-rt-core','0','6','1','x86_64')]", "is not what its rpm database holds", ""},
		{"a list with a package less", true, true, false, true, "[('bash','2','5','1','x86_64')]", "is not what its rpm database holds", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root, err := sysroot.NewRoot(filepath.Join(sysroot.TempDir(t), "root"))
			if err != nil {
				t.Fatal(err)
			}
			var tree sysroot.Tree
			var opts sysroot.CommitOptions
			if tt.baseDatabase {
				tree.Packages = base
			}
			if tt.baseList {
				opts.Packages = base
			}
			commit, err := root.Sysroot.CommitTree(tree, opts)
			if err != nil {
				t.Fatal(err)
			}
			var lie map[string]string
			if tt.lie != "" {
				lie = map[string]string{"rpmostree.rpmdb.pkglist": tt.lie}
			}
			layer, err := root.Sysroot.CommitLayer(sysroot.ClientLayer{
				Base: commit, BasePackages: base, Requested: []string{rt.Name}, Added: []sysroot.Package{rt}, Removed: []string{"kernel-core"},
				Kernel: kernel + "+rt", NoList: !tt.layerList, Metadata: lie,
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := root.Sysroot.Deploy(layer, sysroot.DeployOptions{}); err != nil {
				t.Fatal(err)
			}
			sys := openAt(t, root.Sysroot.Dir)
			d, err := sys.Default()
			if err != nil {
				t.Fatal(err)
			}
			b := &ostree.Booted{Deployment: d}
			f := sys.Facts(b)
			dep := known(t, "deployment", f.Booted.Deployment)
			if dep.Kind != verdict.ClientLayered || string(dep.Base.Checksum) != commit || !slices.Equal(dep.RemovedPackages, []string{"kernel-core"}) || len(dep.Divergences) > 0 {
				t.Errorf("deployment: got %+v", dep)
			}
			if f.Booted.Packages.Gathered() || f.Booted.BasePackages.Gathered() != tt.baseFree {
				t.Errorf("free: got %v, %v", f.Booted.Packages, f.Booted.BasePackages)
			}
			packages, below := sys.Packages(b)
			if tt.why != "" {
				unknown(t, "packages", packages, tt.why)
			} else if diff := cmp.Diff(want, known(t, "packages", packages)); diff != "" {
				t.Errorf("packages (-want +got):\n%s", diff)
			}
			if tt.baseWhy != "" {
				unknown(t, "base packages", below, tt.baseWhy)
				return
			}
			if diff := cmp.Diff(baseWant, known(t, "base packages", below)); diff != "" {
				t.Errorf("base packages (-want +got):\n%s", diff)
			}
		})
	}
}

// What cannot be read is unknown, not absent.
func TestPackagesUnreadable(t *testing.T) {
	s := newSystem(t)
	s.deployTest()
	sys, b := s.booted()
	replaceFile(t, s.object(string(b.Checksum), "commit"), []byte("x"))
	packages, _ := sys.Packages(b)
	unknown(t, "packages", packages, "corrupt")

	s = newSystem(t)
	s.layer("", clientLayer, noPackages, noRemoved, noReplaced, packageList)
	packages, below := s.packages()
	if diff := cmp.Diff(listed(), known(t, "packages", packages)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	unknown(t, "base packages", below, "below the layered packages")
}

// BenchmarkPackages reads 500 packages of real size from a commit's database.
func BenchmarkPackages(b *testing.B) {
	s := newSystem(b)
	packages := sysroot.Packages(490, sysroot.DefaultKernel)
	for i := range packages {
		packages[i].Weight = 50 << 10
	}
	content, err := sysroot.RPMDatabase(packages)
	if err != nil {
		b.Fatal(err)
	}
	tree := newTree(b)
	write(b, filepath.Join(tree, "usr/share/rpm/rpmdb.sqlite"), content)
	s.commit(tree, testRef)
	s.deploy(testRef, "--os="+stateroot)
	sys, booted := s.booted()
	for b.Loop() {
		f, _ := sys.Packages(booted)
		if list, ok := f.Get(); !ok || len(list) != 500 || !strings.HasPrefix(list[0].Name, "kernel") {
			b.Fatal(f.Why())
		}
	}
}
