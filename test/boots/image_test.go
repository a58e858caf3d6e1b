//go:build boots

package boots

import (
	"encoding/json"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/sysroot"
)

// recipe changes when what follows makes another disk of the same tree.
const recipe = "5"

// kernelArguments are those of the boot entry.
var kernelArguments = []string{
	"root=LABEL=root", "rw", "console=ttyS0", "net.ifnames=0", "mitigations=off",
	// What costs an emulated processor time and no test looks at.
	"quiet", "systemd.show_status=error", "systemd.setenv=SYSTEMD_COLORS=0", "audit=0", "apparmor=0", "selinux=0", "nokaslr",
	"modprobe.blacklist=kvm,kvm_amd,kvm_intel,powernow_k8,acpi_cpufreq",
}

// onebootUnit is the unit as it is shipped; daemonFile is what make test-mcd
// builds.
const (
	onebootUnit = "oneboot-firstboot.service"
	daemonFile  = "../../bin/machine-config-daemon"
)

// standIns are what the guest program is called, and where.
var standIns = []string{
	"usr/bin/rpm-ostree", "usr/bin/kubelet", "usr/bin/crio", "usr/libexec/boots/chronyd", "usr/libexec/boots/boot-mark", "usr/libexec/boots/load-other",
}

const osRelease = `NAME="Red Hat Enterprise Linux CoreOS"
ID="rhel"
ID_LIKE="fedora"
VERSION="9.6.20250101-0"
VERSION_ID="9.6"
VARIANT="CoreOS"
VARIANT_ID=coreos
PLATFORM_ID="platform:el9"
PRETTY_NAME="A Debian tree that boots as a node's"
OSTREE_VERSION="9.6.20250101-0"
`

// An osImage is an OS image and what a host has after it was pulled.
type osImage struct {
	// Name is the image's in a registry, without the digest.
	Name string
	// Digest is that of the manifest.
	Digest string
	// Commit is the one inside, Merge the one that is made of the image and
	// deployed.
	Commit, Merge string
}

// reference is what osImageURL says.
func (o osImage) reference() string { return o.Name + "@" + o.Digest }

// A disk is one that tests copy: its booted deployment is of the commit.
type disk struct{ File, Commit string }

// deployment is the folder of the booted deployment.
func (d disk) deployment() string {
	return "/ostree/deploy/" + sysroot.Stateroot + "/deploy/" + d.Commit + ".0"
}

// A master is what all tests share.
type master struct {
	// Release is Debian's.
	Release string
	// Container is deployed from the image Booted, under an origin that names no
	// registry, as on a disk image. Plain is deployed from the commit inside.
	Container, Plain disk
	// Booted and Other are the two images that a rebase in the guest can pull.
	Booted, Other osImage
	// Registry holds the files of a registry that has both.
	Registry string
}

// repository is the images' name in a registry that nobody asks.
const repository = "registry.invalid/openshift/os"

// Releases in usr/lib/boots-release: what tells the two trees apart.
const (
	bootedRelease = "the disk image's"
	otherRelease  = "another"
)

// newMaster makes the master disk of a Debian release, or finds the one of an earlier
// run.
func newMaster(t *testing.T, codename string) master {
	t.Helper()
	tree := debianTree(t, codename)
	added := addedFiles(t)
	parts := []string{treeRecipe, codename, recipe, strings.Join(kernelArguments, " ")}
	for _, name := range slices.Sorted(maps.Keys(added)) {
		parts = append(parts, name, string(added[name]))
	}
	dir := filepath.Join(cacheDir(t), "disk-"+codename+"-"+key(parts...))
	var m master
	if text, err := os.ReadFile(filepath.Join(dir, "master.json")); err == nil && json.Unmarshal(text, &m) == nil {
		m.Release = codename
		return m
	}
	removeDisks(t, codename)
	m = makeMaster(t, dir, tree, added)
	m.Release = codename
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "master.json"), string(text))
	return m
}

// removeDisks makes room: the disks of other versions of this test.
func removeDisks(t *testing.T, codename string) {
	t.Helper()
	old, err := filepath.Glob(filepath.Join(cacheDir(t), "disk-"+codename+"-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range old {
		if err := sysroot.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
}

func makeMaster(t *testing.T, dir, tree string, added map[string][]byte) master {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(dir, "work")
	// Removed whatever happens, also the immutable deployment.
	defer func() {
		if err := sysroot.Remove(work); err != nil {
			t.Error(err)
		}
	}()
	root := filepath.Join(work, "root")
	shapeTree(t, tree, root, added)
	s, err := sysroot.New(filepath.Join(work, "sysroot"))
	if err != nil {
		t.Fatal(err)
	}
	m := master{Registry: filepath.Join(dir, "registry")}
	images := filepath.Join(s.Dir, "ostree/deploy", sysroot.Stateroot, "var/lib/boots/images")
	if err := os.MkdirAll(filepath.Dir(images), 0o755); err != nil {
		t.Fatal(err)
	}
	ostree(t, "init", "--repo="+images, "--mode=bare")
	m.Booted = importImage(t, work, s, images, root, bootedRelease, m.Registry, true)
	m.Other = importImage(t, work, s, images, root, otherRelease, m.Registry, false)
	ostree(t, "prune", "--repo="+s.Repo(), "--refs-only")
	// The disks are to hold what a power cut leaves; only their making need not.
	m.Container = makeDisk(t, s, filepath.Join(dir, "container.img"), m.Booted.Merge,
		sysroot.ContainerOrigin("ostree-image-signed:oci-archive:/rhcos-9.6.20250101-0-ostree.x86_64.ociarchive"))
	m.Plain = makeDisk(t, s, filepath.Join(dir, "plain.img"), m.Booted.Commit, "")
	return m
}

// makeDisk deploys a commit and writes a disk with that deployment alone.
func makeDisk(t *testing.T, s *sysroot.Sysroot, file, commit, origin string) disk {
	t.Helper()
	d, err := s.Deploy(commit, sysroot.DeployOptions{KernelArguments: kernelArguments, Origin: origin})
	if err != nil {
		t.Fatal(err)
	}
	ostree(t, "config", "--repo="+s.Repo(), "set", "core.fsync", "true")
	command(t, "mkfs.ext4", "-q", "-L", "root", "-d", s.Dir, file, strconv.Itoa(2<<20)) // in KiB
	ostree(t, "config", "--repo="+s.Repo(), "set", "core.fsync", "false")
	if err := s.Undeploy(d); err != nil {
		t.Fatal(err)
	}
	return disk{file, commit}
}

func ostree(t *testing.T, args ...string) {
	t.Helper()
	if _, err := sysroot.Ostree(args...); err != nil {
		t.Fatal(err)
	}
}

// importImage commits the tree, makes an image of the commit and leaves in both
// the system's repository, if it is to be deployed there, and the images' what a pull
// of it leaves. It is pushed to a registry's files.
func importImage(t *testing.T, work string, s *sysroot.Sysroot, images, root, release, files string, deployed bool) osImage {
	t.Helper()
	writeFile(t, filepath.Join(root, "usr/lib/boots-release"), release+"\n")
	commit, err := s.Commit(root, sysroot.CommitOptions{Version: "9.6.20250101-0", Kernel: kernelOf(t, root)})
	if err != nil {
		t.Fatal(err)
	}
	m, err := nativeimage.Build(work, s.Repo(), commit, nativeimage.Options{Compression: nativeimage.Uncompressed, Chunks: -1})
	if err != nil {
		t.Fatal(err)
	}
	o := osImage{Name: repository, Digest: m.Digest, Commit: commit}
	// The system's own repository has only what is deployed.
	repos := []string{images}
	push(t, files, m)
	if deployed {
		repos = append(repos, s.Repo())
	}
	for _, repo := range repos {
		merge, err := nativeimage.Import(repo, m, nativeimage.ImportOptions{PullSpec: o.reference()})
		if err != nil {
			t.Fatal(err)
		}
		if o.Merge != "" && o.Merge != merge {
			t.Fatalf("two pulls of one image made the commits %s and %s", o.Merge, merge)
		}
		o.Merge = merge
	}
	return o
}

// push leaves the image in a registry's files.
func push(t *testing.T, files string, m *nativeimage.Image) {
	t.Helper()
	r, err := registry.Start(registry.Options{Dir: files})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Push("openshift/os", m); err != nil {
		t.Fatal(err)
	}
}

// unitsDir is where units that come with the OS are.
const unitsDir = "usr/lib/systemd/system"

// addedFiles are the files of the tree that are not Debian's: programs in usr,
// which are executable, units and settings.
func addedFiles(t *testing.T) map[string][]byte {
	t.Helper()
	added := map[string][]byte{
		"usr/lib/os-release":             []byte(osRelease),
		"etc/machine-id":                 []byte(strings.Repeat("0b007", 6) + "12\n"),
		"etc/hostname":                   []byte("node\n"),
		"etc/containers/policy.json":     []byte(`{"default":[{"type":"insecureAcceptAnything"}]}` + "\n"),
		"etc/containers/registries.conf": []byte("unqualified-search-registries = []\n"),
	}
	guest := goBuild(t, "./guest")
	for _, name := range standIns {
		added[name] = guest
	}
	added["usr/bin/oneboot"] = goBuild(t, "../../cmd/oneboot")
	for name, file := range map[string]string{
		"usr/bin/machine-config-daemon": daemonFile,
		unitsDir + "/" + onebootUnit:    "../../daemon/units/" + onebootUnit,
	} {
		added[name] = readFile(t, file)
	}
	units, err := filepath.Glob("testdata/units/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range units {
		added[unitsDir+"/"+filepath.Base(u)] = readFile(t, u)
	}
	return added
}

func goBuild(t *testing.T, pkg string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	command(t, "go", "build", "-trimpath", "-tags", "containers_image_openpgp,exclude_graphdriver_btrfs", "-ldflags", "-s -w", "-o", file, pkg)
	return readFile(t, file)
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// shapeTree copies the Debian tree and makes of it what ostree deploys.
func shapeTree(t *testing.T, tree, root string, added map[string][]byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
		t.Fatal(err)
	}
	command(t, "cp", "-a", tree, root)
	enable := []string{root, "systemctl", "enable"}
	for name, content := range added {
		writeFile(t, filepath.Join(root, name), string(content))
		switch path.Dir(name) {
		case "usr/bin", "usr/libexec/boots":
			if err := os.Chmod(filepath.Join(root, name), 0o755); err != nil {
				t.Fatal(err)
			}
		case unitsDir:
			// Which nodes have oneboot is for each test to say.
			if unit := path.Base(name); unit != onebootUnit {
				enable = append(enable, unit)
			}
		}
	}
	command(t, "chroot", enable...)
	// A console that only the tests write to, and nothing that costs time.
	command(t, "chroot", root, "systemctl", "mask", "serial-getty@ttyS0.service", "getty@tty1.service", "apt-daily.timer",
		"apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer", "systemd-timesyncd.service",
		"systemd-firstboot.service", "e2scrub_reap.service", "systemd-logind.service", "systemd-update-utmp.service",
		"systemd-update-utmp-runlevel.service")
	addPackages(t, root)
	kernel := filepath.Join(root, "usr/lib/modules", kernelOf(t, root))
	move(t, filepath.Join(root, "boot/initramfs.img"), filepath.Join(kernel, "initramfs.img"))
	move(t, filepath.Join(root, "boot/vmlinuz-"+filepath.Base(kernel)), filepath.Join(kernel, "vmlinuz"))
	move(t, filepath.Join(root, "etc"), filepath.Join(root, "usr/etc"))
	for _, name := range []string{"boot", "var", "proc", "sys", "dev", "run", "tmp", "home", "root", "opt", "srv", "mnt", "media",
		"initrd.img", "initrd.img.old", "vmlinuz", "vmlinuz.old", "usr/local", "usr/share/doc", "usr/share/man", "usr/share/locale", "usr/lib/apt"} {
		remove(t, filepath.Join(root, name))
	}
	for _, name := range []string{"boot", "var", "proc", "sys", "dev", "run", "tmp", "sysroot"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"ostree": "sysroot/ostree", "home": "var/home", "root": "var/roothome", "opt": "var/opt", "srv": "var/srv",
		"mnt": "var/mnt", "media": "run/media", "usr/local": "../var/usrlocal",
	} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// addPackages gives the tree the rpm database of a node: the program tells from
// it what the node's rpm-ostree and skopeo can do.
func addPackages(t *testing.T, root string) {
	t.Helper()
	other := filepath.Join(t.TempDir(), "tree")
	if err := (sysroot.Tree{Packages: sysroot.Packages(0, kernelOf(t, root))}).Write(other); err != nil {
		t.Fatal(err)
	}
	command(t, "cp", "-a", filepath.Join(other, "usr/share/rpm"), filepath.Join(root, "usr/share/rpm"))
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// remove removes a part of a tree. Nothing is mounted in it: the tree is a copy.
func remove(t *testing.T, name string) {
	t.Helper()
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
}
