//go:build boots

package boots

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Debian releases of guests: the first has systemd 252 and is the machine's own, whose
// package archive must have the other one too, with systemd 257.
const (
	bookworm = "bookworm"
	trixie   = "trixie"
)

// The guest's packages. An initramfs-tools that came with the kernel would
// remove dracut, so dracut is there before it.
const (
	firstPackages = "systemd,systemd-sysv,ostree,ca-certificates,udev,dbus,iproute2,kmod,strace"
	thenPackages  = "dracut ostree-boot"
	kernelPackage = "linux-image-cloud-amd64"
)

// initramfs is what dracut is asked for: only what these machines need, and
// not compressed, since an emulated processor is slow at that.
const initramfs = `--no-hostonly --no-hostonly-cmdline --no-compress --add ostree --drivers "virtio_blk virtio_pci" ` +
	`--omit "crypt dm nvdimm overlay-root qemu lunmask resume virtiofs terminfo kernel-modules-extra"`

// treeRecipe changes when the steps below make another tree.
const treeRecipe = "3 " + firstPackages + thenPackages + kernelPackage + initramfs

// cacheDir holds what takes long to make and is the same in the next run.
func cacheDir(t *testing.T) string {
	t.Helper()
	base, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "oneboot-boots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// key names what is made from the parts.
func key(parts ...string) string {
	sum := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(sum, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// needTools fails where a tool is missing: these tests are asked for by name.
func needTools(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("booting real nodes needs root")
	}
	for _, tool := range []string{"qemu-system-x86_64", "debootstrap", "unshare", "ostree", "mkfs.ext4", "debugfs", "chattr", "cp", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v: run make deps-full", err)
		}
	}
}

// command runs a program at low priority and returns its output.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command("nice", append([]string{name}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("running %s %s: %v\n%s", name, strings.Join(args, " "), err, tail(string(out), 30))
	}
	return string(out)
}

// tail is the last lines of a text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// debianTree is a Debian tree with a kernel and an initramfs that finds the
// ostree deployment; made once on a machine.
func debianTree(t *testing.T, codename string) string {
	t.Helper()
	dir := filepath.Join(cacheDir(t), "tree-"+key(treeRecipe, codename))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	unfinished := dir + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		t.Fatal(err)
	}
	t.Logf("making %s, once on this machine", dir)
	command(t, "debootstrap", "--variant=minbase", "--include="+firstPackages, codename, unfinished, archive(t))
	makeBootable(t, unfinished)
	if err := os.Rename(unfinished, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// archive is where the machine's own packages come from.
func archive(t *testing.T) string {
	t.Helper()
	out := command(t, "apt-get", "indextargets", "--format", "$(REPO_URI)",
		"Created-By: Packages", "Codename: "+bookworm, "Component: main")
	first, _, _ := strings.Cut(out, "\n")
	if first == "" {
		t.Fatalf("the machine's package sources have no %s", bookworm)
	}
	return first
}

// makeBootable installs dracut and the kernel, which run programs in the tree
// that want /proc, /sys and /dev.
func makeBootable(t *testing.T, dir string) {
	t.Helper()
	// How the machine reaches its archive.
	settings := command(t, "apt-config", "dump")
	var acquire strings.Builder
	for line := range strings.Lines(settings) {
		if strings.HasPrefix(line, "Acquire::") {
			acquire.WriteString(line)
		}
	}
	writeFile(t, filepath.Join(dir, "etc/apt/apt.conf.d/90machine"), acquire.String())
	resolv, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "etc/resolv.conf"), string(resolv))
	// A mount namespace of its own, so that no mount is left below a folder that
	// is removed some day.
	command(t, "unshare", "--mount", "/bin/sh", "-ec", `
		cd "$0"
		for name in proc sys dev; do mount --rbind "/$name" "$name"; done
		chroot . apt-get install -y -qq --no-install-recommends `+thenPackages+`
		# One initramfs is enough.
		chmod -x etc/kernel/postinst.d/dracut
		chroot . apt-get install -y -qq --no-install-recommends `+kernelPackage+`
		chroot . dracut `+initramfs+` --force /boot/initramfs.img "$(ls lib/modules)"
	`, dir)
}

// kernelOf is the release of the one kernel in a tree.
func kernelOf(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "usr/lib/modules/*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%d kernels in %s: %v", len(found), dir, err)
	}
	return filepath.Base(found[0])
}

// writeFile writes a file with the folders that it needs.
func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
