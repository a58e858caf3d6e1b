package sysroot

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rpmQuery lists the packages of a database as rpm sees them.
func rpmQuery(t *testing.T, content string) []string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rpmdb.sqlite"), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("rpm", "--dbpath", dir, "-qa", "--qf", `%{NAME} %|EPOCH?{%{EPOCH}}:{0}| %{VERSION} %{RELEASE} %{ARCH}\n`).Output()
	if err != nil {
		t.Fatal(err)
	}
	list := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(list)
	return list
}

func names(packages []Package) []string {
	var list []string
	for _, p := range packages {
		list = append(list, fmt.Sprintf("%s %s %s %s %s", p.Name, p.Epoch, p.Version, p.Release, p.Arch))
	}
	slices.Sort(list)
	return list
}

func TestRPMDatabase(t *testing.T) {
	packages := Packages(500, DefaultKernel)
	first, err := RPMDatabase(packages)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(names(packages), rpmQuery(t, first)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	second, err := RPMDatabase(packages)
	if err != nil {
		t.Fatal(err)
	}
	if first != second {
		t.Error("equal lists made different databases")
	}
}

func TestCommitLayer(t *testing.T) {
	r := newRoot(t)
	s := r.Sysroot
	packages := Packages(5, DefaultKernel)
	base := commitTree(t, s, Tree{Packages: packages}, CommitOptions{Packages: packages})
	const kernel = "5.14.0-427.35.1.el9_4.x86_64+rt"
	layer := ClientLayer{
		Base: base, BasePackages: packages, Requested: []string{"kernel-rt-core"}, Removed: []string{"kernel", "kernel-core"},
		Added:  []Package{{Name: "kernel-rt-core", Version: "5.14.0", Release: "427.35.1.el9_4", Arch: "x86_64", Epoch: "0"}},
		Kernel: kernel, Files: map[string]File{"usr/bin/usbguard": {Content: "x"}}, Without: []string{"usr/bin/crio"},
	}
	commit, err := s.CommitLayer(layer)
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Deploy(commit, DeployOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := d.Kernel(); err != nil || got != kernel {
		t.Errorf("kernel: got %s, %v", got, err)
	}
	if got := ostree(t, "rev-parse", "--repo="+s.Repo(), commit+"^"); got != base {
		t.Errorf("parent: got %s, want %s", got, base)
	}
	if diff := cmp.Diff(names(layer.Packages()), rpmQuery(t, readFile(t, filepath.Join(d.Dir, RPMDatabasePath)))); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
	for name, want := range map[string]bool{"usr/bin/usbguard": true, "usr/bin/crio": false, "usr/bin/kubelet": true} {
		if _, err := os.Stat(filepath.Join(d.Dir, name)); (err == nil) != want {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for key, want := range map[string]string{
		"version":               "'" + DefaultVersion + "'",
		"rpmostree.clientlayer": "true",
		// The tool shows numbers with their bytes swapped.
		"rpmostree.clientlayer_version":   "uint32 100663296",
		"rpmostree.packages":              "['kernel-rt-core']",
		"rpmostree.removed-base-packages": "[<('kernel-5.14.0-427.35.1.el9_4.x86_64', 'kernel', uint64 0, '5.14.0', '427.35.1.el9_4', 'x86_64')>, <('kernel-core-5.14.0-427.35.1.el9_4.x86_64', 'kernel-core', uint64 0, '5.14.0', '427.35.1.el9_4', 'x86_64')>]",
	} {
		if got := ostree(t, "show", "--repo="+s.Repo(), "--print-metadata-key="+key, commit); got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
	ostree(t, "fsck", "--repo="+s.Repo())
}
