package ostree_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/ostree"
)

const (
	stateroot = "rhcos"
	testRef   = "rhcos/x86_64/test"
	kernel    = "5.14.0-570.el9.x86_64"
)

// A system is a real sysroot, made with the ostree program.
type system struct {
	t testing.TB
	// top is the root as a booted node sees it, dir the physical root below.
	top, dir string
}

// newSystem makes a booted node's layout: top has links to the physical root
// in top/sysroot. Nothing is deployed yet.
func newSystem(t testing.TB) *system {
	t.Helper()
	s := &system{t: t, top: t.TempDir()}
	s.dir = filepath.Join(s.top, "sysroot")
	mkdir(t, s.dir)
	s.run("ostree", "admin", "init-fs", s.dir)
	s.run("ostree", "admin", "os-init", "--sysroot="+s.dir, stateroot)
	symlink(t, "sysroot/ostree", filepath.Join(s.top, "ostree"))
	symlink(t, "sysroot/boot", filepath.Join(s.top, "boot"))
	write(t, filepath.Join(s.top, "run/ostree-booted"), "")
	t.Cleanup(func() {
		deployments, err := filepath.Glob(filepath.Join(s.dir, "ostree/deploy/*/deploy/*"))
		if err != nil {
			t.Error(err)
		}
		for _, d := range deployments {
			// Deployment folders are immutable.
			_ = exec.Command("chattr", "-i", d).Run()
		}
	})
	return s
}

func (s *system) run(name string, args ...string) string {
	s.t.Helper()
	cmd := exec.Command(name, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return strings.TrimSpace(string(out))
}

// repo runs an ostree command on the sysroot's repository.
func (s *system) repo(args ...string) string {
	s.t.Helper()
	return s.run("ostree", append([]string{"--repo=" + filepath.Join(s.dir, "ostree/repo")}, args...)...)
}

// commit commits a tree with the extra arguments and returns the checksum.
func (s *system) commit(tree, ref string, args ...string) string {
	s.t.Helper()
	return s.repo(append([]string{"commit", "-b", ref, "--tree=dir=" + tree}, args...)...)
}

func (s *system) deploy(ref string, args ...string) {
	s.t.Helper()
	s.run("ostree", append(append([]string{"admin", "deploy", "--sysroot=" + s.dir}, args...), ref)...)
}

// deployTest commits the usual tree and deploys it.
func (s *system) deployTest() string {
	s.t.Helper()
	c := s.commit(newTree(s.t), testRef, "--add-metadata-string=version=9.6.1")
	s.deploy(testRef, "--os="+stateroot, "--karg=root=LABEL=root")
	return c
}

func (s *system) open() *ostree.Sysroot {
	s.t.Helper()
	return openAt(s.t, s.top)
}

func openAt(t testing.TB, dir string) *ostree.Sysroot {
	t.Helper()
	root, err := hostfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	sys, err := ostree.OpenSysroot(root)
	if err != nil {
		t.Fatal(err)
	}
	return sys
}

// booted finds the deployment of the default boot entry's options.
func (s *system) booted() (*ostree.Sysroot, *ostree.Booted) {
	s.t.Helper()
	sys := s.open()
	b, err := sys.Booted("BOOT_IMAGE=(hd0,gpt3)/ostree/vmlinuz " + s.options() + "\n")
	if err != nil {
		s.t.Fatal(err)
	}
	return sys, b
}

// options are those of the default boot entry.
func (s *system) options() string {
	s.t.Helper()
	d, err := s.open().Default()
	if err != nil {
		s.t.Fatal(err)
	}
	return d.Entry.Options
}

// deploymentFile is a path beside or in the default deployment.
func (s *system) deploymentFile(suffix string) string {
	s.t.Helper()
	d, err := s.open().Default()
	if err != nil {
		s.t.Fatal(err)
	}
	return filepath.Join(s.dir, strings.TrimPrefix(d.Dir, "/")) + suffix
}

func (s *system) object(checksum, kind string) string {
	return filepath.Join(s.dir, "ostree/repo/objects", checksum[:2], checksum[2:]+"."+kind)
}

// newTree makes a small OS tree.
func newTree(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	modules := filepath.Join(dir, "usr/lib/modules")
	write(t, filepath.Join(modules, kernel, "vmlinuz"), "kernel")
	write(t, filepath.Join(modules, kernel, "initramfs.img"), "initramfs")
	write(t, filepath.Join(modules, "6.0.0-without-a-kernel/modules.dep"), "")
	write(t, filepath.Join(dir, "usr/lib/os-release"), "NAME=RHCOS\nID=rhcos\nVERSION_ID=9.6\nPRETTY_NAME=RHCOS\n")
	elf, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "usr/bin/kubelet"), string(elf))
	write(t, filepath.Join(dir, "usr/libexec/crio"), "crio")
	symlink(t, "../libexec/crio", filepath.Join(dir, "usr/bin/crio"))
	symlink(t, "usr/bin", filepath.Join(dir, "bin"))
	symlink(t, "sysroot/ostree", filepath.Join(dir, "ostree"))
	for _, d := range []string{"usr/etc", "boot", "dev", "proc", "run", "sys", "sysroot", "tmp", "var"} {
		mkdir(t, filepath.Join(dir, d))
	}
	return dir
}

func mkdir(t testing.TB, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, name, content string) {
	t.Helper()
	mkdir(t, filepath.Dir(name))
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func symlink(t testing.TB, target, name string) {
	t.Helper()
	mkdir(t, filepath.Dir(name))
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, name string) {
	t.Helper()
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
}
