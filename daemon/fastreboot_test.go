package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/sysroot"
)

// A rebooting is a node at the end of its first boot: the second deployment is
// finalized.
type rebooting struct {
	*sysroot.Root
	booted, next sysroot.Deployment
	armed        armed
}

const wantedImage = "registry.invalid/os@sha256:79e11009606d229b3f3bbbb2dc36f7639c03146f4928bb6f7c205a9075c94c49"

func newRebooting(t *testing.T) *rebooting {
	t.Helper()
	root, err := sysroot.NewRoot(filepath.Join(sysroot.TempDir(t), "root"))
	if err != nil {
		t.Fatal(err)
	}
	n := &rebooting{Root: root}
	for i, d := range []*sysroot.Deployment{&n.booted, &n.next} {
		commit, err := root.Sysroot.CommitTree(sysroot.Tree{Files: map[string]sysroot.File{"usr/share/build": {Content: strings.Repeat("x", i)}}}, sysroot.CommitOptions{})
		if err != nil {
			t.Fatal(err)
		}
		origin := []string{"ostree-image-signed:oci-archive:/os.ociarchive", "ostree-unverified-registry:" + wantedImage}[i]
		*d, err = root.Sysroot.Deploy(commit, sysroot.DeployOptions{KernelArguments: []string{"root=UUID=1", "rw", "$ignition_firstboot"}, Origin: sysroot.ContainerOrigin(origin)})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := root.Boot(n.booted, sysroot.BootOptions{}); err != nil {
		t.Fatal(err)
	}
	n.armed = armed{BootID: "this", OSImageURL: wantedImage, Booted: n.booted.Checksum}
	return n
}

// entry changes the text of the boot entry that comes next.
func (n *rebooting) entry(t *testing.T, from, to string) {
	t.Helper()
	name, _, err := n.next.BootEntry()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), from) {
		t.Fatalf("%q is not in %s", from, text)
	}
	if err := os.WriteFile(name, []byte(strings.Replace(string(text), from, to, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// What is loaded is the new deployment of the wanted image, or nothing.
func TestExpected(t *testing.T) {
	file := func(name string) func(*testing.T, *rebooting) {
		return func(t *testing.T, n *rebooting) {
			if err := n.WriteFile(name, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		name string
		edit func(*testing.T, *rebooting)
		want string
	}{
		{"as it should be", func(*testing.T, *rebooting) {}, ""},
		{"still staged", file(stagedPath), "was not finalized"},
		{"finalizing failed", file(finalizeFailed), "finalizing failed"},
		{"joined in this boot", file(kubeletCertPath), "has joined"},
		{"another image is wanted", func(_ *testing.T, n *rebooting) { n.armed.OSImageURL += "0" }, "not of the wanted image"},
		{"no image is wanted", func(_ *testing.T, n *rebooting) { n.armed.OSImageURL = "" }, "not of the wanted image"},
		{"another deployment runs", func(_ *testing.T, n *rebooting) { n.armed.Booted = n.next.Checksum }, "another deployment runs"},
		{"the new one is gone", func(t *testing.T, n *rebooting) {
			if err := errors.Join(n.Sysroot.Undeploy(n.next), n.Boot(n.booted, sysroot.BootOptions{})); err != nil {
				t.Fatal(err)
			}
		}, "no new deployment boots next"},
		{"a variable", func(t *testing.T, n *rebooting) { n.entry(t, "root=UUID=1", "root=$root") }, "the variable root=$root"},
		{"no ramdisk", func(t *testing.T, n *rebooting) { n.entry(t, "\ninitrd ", "\n#initrd ") }, "not one kernel and one initial ramdisk"},
		{"two ramdisks", func(t *testing.T, n *rebooting) { n.entry(t, "\ninitrd ", "\ninitrd /early.img\ninitrd ") }, "not one kernel and one initial ramdisk"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newRebooting(t)
			tt.edit(t, n)
			root, err := hostfs.Open(n.Dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			d, err := expected(root, n.armed)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want == "" && d.Checksum != verdict.Checksum(n.next.Checksum):
				t.Errorf("got %s, want %s", d.Name(), n.next.Checksum)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// The copy for the end of a shutdown is this program, with the label of a program of
// the host where there are labels.
func TestInstallFastReboot(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, likeProgram), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	// On a kernel without SELinux any label can be set, and none is looked at.
	const label = "system_u:object_r:bin_t:s0\x00"
	if err := unix.Setxattr(filepath.Join(dir, likeProgram), selinuxLabel, []byte(label), 0); err != nil {
		t.Fatal(err)
	}
	if err := InstallFastReboot(dir); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, programPath)
	got := make([]byte, len(label)+1)
	n, err := unix.Getxattr(copied, selinuxLabel, got)
	if err != nil || string(got[:n]) != label {
		t.Errorf("the label is %q, %v; want %q", got[:max(n, 0)], err, label)
	}
	want, err := os.Stat("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if have, err := os.Stat(copied); err != nil || have.Size() != want.Size() || have.Mode().Perm() != 0o755 {
		t.Errorf("got %v, %v; want %d bytes that can be run", have, err, want.Size())
	}
}
