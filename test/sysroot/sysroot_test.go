package sysroot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func newRoot(t *testing.T) *Root {
	t.Helper()
	r, err := NewRoot(filepath.Join(TempDir(t), "root"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func commitTree(t *testing.T, s *Sysroot, tree Tree, opts CommitOptions) string {
	t.Helper()
	c, err := s.CommitTree(tree, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ostree(t *testing.T, args ...string) string {
	t.Helper()
	out, err := Ostree(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestBootedRoot(t *testing.T) {
	r := newRoot(t)
	s := r.Sysroot
	tree := Tree{FillerBytes: 5 << 20, Files: map[string]File{"usr/share/x": {Content: "x", Xattrs: map[string]string{"user.test": "v"}}}}
	c := commitTree(t, s, tree, CommitOptions{Packages: Packages(500, DefaultKernel)})
	d, err := s.Deploy(c, DeployOptions{KernelArguments: []string{"rw", "console=tty0", "console=ttyS0"}})
	if err != nil {
		t.Fatal(err)
	}
	err = r.Boot(d, BootOptions{
		MachineConfig: &MachineConfig{OSImageURL: "localhost/os@sha256:00"}, CommandLine: []string{"extra"},
		InsecureRegistries: []string{"127.0.0.1:5000"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ostree(t, "fsck", "--repo="+s.Repo())

	line := readFile(t, r.Path(CommandLinePath))
	if !strings.HasSuffix(line, " extra\n") || !strings.Contains(line, " rw console=tty0 console=ttyS0 ostree=/ostree/boot.") {
		t.Errorf("command line: %q", line)
	}
	for arg := range strings.FieldsSeq(line) {
		if link, ok := strings.CutPrefix(arg, "ostree="); ok {
			got, err := filepath.EvalSymlinks(r.Path(link))
			if want := d.Dir; err != nil || got != want {
				t.Errorf("ostree= leads to %s, want %s (%v)", got, want, err)
			}
		}
	}
	if got, want := readFile(t, r.Path(OSReleasePath)), DefaultKernel+"\n"; got != want {
		t.Errorf("running kernel: got %q, want %q", got, want)
	}
	if got, want := readFile(t, d.OriginFile()), "[origin]\nrefspec="+c+"\n"; got != want {
		t.Errorf("origin: got %q, want %q", got, want)
	}
	if got := readFile(t, r.Path("usr/bin/kubelet")); !strings.HasPrefix(got, "\x7fELF") {
		t.Error("the kubelet is no ELF file")
	}
	if _, err := os.Stat(r.Path(FillerDir)); !os.IsNotExist(err) {
		t.Errorf("the filler was copied: %v", err)
	}
	show := ostree(t, "show", "--repo="+s.Repo(), "--print-metadata-key=rpmostree.rpmdb.pkglist", c)
	if got := strings.Count(show, "("); got != 510 {
		t.Errorf("%d packages in the commit, want 510", got)
	}
}

func TestCommitIsDeterministic(t *testing.T) {
	tree := Tree{FillerBytes: 1 << 20}
	var commits, roots [][2]string
	for range 2 {
		s, err := New(filepath.Join(TempDir(t), "disk"))
		if err != nil {
			t.Fatal(err)
		}
		first := commitTree(t, s, tree, CommitOptions{})
		rebuilt := commitTree(t, s, tree, CommitOptions{Timestamp: DefaultTimestamp + 60})
		commits = append(commits, [2]string{first, rebuilt})
		roots = append(roots, [2]string{rootOf(t, s, first), rootOf(t, s, rebuilt)})
	}
	if diff := cmp.Diff(commits[0], commits[1]); diff != "" {
		t.Errorf("commits of two repositories differ:\n%s", diff)
	}
	if commits[0][0] == commits[0][1] || roots[0][0] != roots[0][1] {
		t.Errorf("a rebuild: commits %q, content %q; want other commits, same content", commits[0], roots[0])
	}
}

func rootOf(t *testing.T, s *Sysroot, c string) string {
	t.Helper()
	for line := range strings.Lines(ostree(t, "show", "--repo="+s.Repo(), c)) {
		if sum, ok := strings.CutPrefix(line, "ContentChecksum:"); ok {
			return strings.TrimSpace(sum)
		}
	}
	t.Fatalf("no content checksum of %s", c)
	return ""
}

func TestSeveralDeployments(t *testing.T) {
	r := newRoot(t)
	s := r.Sysroot
	if err := s.AddStateroot("install"); err != nil {
		t.Fatal(err)
	}
	c := commitTree(t, s, Tree{}, CommitOptions{})
	other := commitTree(t, s, Tree{Version: "416.2"}, CommitOptions{Ref: "rhcos/x86_64"})
	var all []Deployment
	for _, opts := range []DeployOptions{
		{KernelArguments: []string{"a=1"}},
		{KernelArguments: []string{"a=2"}, Origin: ContainerOrigin("ostree-unverified-registry:localhost/os:1")},
		{KernelArguments: []string{"a=3"}, Stateroot: "install"},
		{KernelArguments: []string{"a=4"}, NotAsDefault: true},
	} {
		rev := c
		if opts.NotAsDefault {
			rev = other
		}
		d, err := s.Deploy(rev, opts)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	type row struct {
		Stateroot, Version, Argument string
		Serial                       int
	}
	var got []row
	for _, d := range all {
		_, entry, err := d.BootEntry()
		if err != nil {
			t.Fatal(err)
		}
		argument, _, _ := strings.Cut(entry["options"], " ")
		got = append(got, row{d.Stateroot, entry["version"], argument, d.Serial})
	}
	want := []row{{"rhcos", "3", "a=1", 0}, {"rhcos", "3", "a=2", 1}, {"install", "4", "a=3", 0}, {"rhcos", "1", "a=4", 0}}
	for i := range want {
		want[i].Version, got[i].Version = "", "" // the order is ostree's own business
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
	if err := s.Undeploy(all[3]); err != nil {
		t.Fatal(err)
	}
	if left, err := s.Deployments(); err != nil || len(left) != 3 {
		t.Errorf("%d deployments after one was removed, want 3 (%v)", len(left), err)
	}
	if err := all[0].SetBootOptions("b=1", "quiet"); err != nil {
		t.Fatal(err)
	}
	if _, entry, err := all[0].BootEntry(); err != nil || !strings.HasPrefix(entry["options"], "b=1 quiet ostree=") {
		t.Errorf("boot options after a change: %q (%v)", entry["options"], err)
	}
}

func TestRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "disk")
	s, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Deploy(commitTree(t, s, Tree{}, CommitOptions{}), DeployOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
}
