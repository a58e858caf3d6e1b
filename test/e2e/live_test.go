package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/ostree/ostreetest"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/sysroot"
)

// liveVariable holds a [liveBoot] in the process that becomes the first one of
// a live root.
const liveVariable = "ONEBOOT_TEST_LIVE"

// A liveBoot says what a root looks like that a kernel has booted into. It is
// made in namespaces of its own: mounts, processes, network.
type liveBoot struct {
	// Program is the program to run, below the physical root.
	Program string
	// Physical is the disk, Deployment the folder that becomes the root.
	Physical, Deployment, Var string
	// CommandLine and Kernel are what the kernel says.
	CommandLine, Kernel string
	// Booted is /run/ostree-booted.
	Booted []byte
	// Image: the root is a file system made from the deployment, as with
	// composefs, not its folder.
	Image bool
	// Container: the program runs in one, with the host's root at /rootfs.
	Container bool
	// Act: the program acts; see [liveBoot.runAct].
	Act *liveAct
}

// liveMain is the first process of the live root. It mounts what the initrd
// would have, and becomes the program.
func liveMain(spec string) error {
	var b liveBoot
	if err := json.Unmarshal([]byte(spec), &b); err != nil {
		return err
	}
	root := b.Deployment
	var err error
	// Nothing of this reaches the machine's own mounts.
	if err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if b.Image {
		root = filepath.Join(b.Physical, "image")
		if err := mountImage(b.Deployment, root); err != nil {
			return err
		}
	}
	in := func(name string) string { return filepath.Join(root, name) }
	for _, m := range []struct {
		from, to, kind string
		flags          uintptr
	}{
		{b.Physical, "sysroot", "", unix.MS_BIND},
		{filepath.Join(b.Physical, "boot"), "boot", "", unix.MS_BIND},
		{b.Var, "var", "", unix.MS_BIND},
		{"tmpfs", "run", "tmpfs", 0},
		{"tmpfs", "tmp", "tmpfs", 0},
		{"tmpfs", "sys", "tmpfs", 0},
		{"proc", "proc", "proc", 0},
	} {
		if err := unix.Mount(m.from, in(m.to), m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.to, err)
		}
	}
	if err := b.kernelFiles(in); err != nil {
		return err
	}
	if err := os.WriteFile(in("run/ostree-booted"), b.Booted, 0o644); err != nil {
		return err
	}
	if err := errors.Join(unix.Chroot(root), unix.Chdir("/")); err != nil {
		return err
	}
	if b.Act != nil {
		return b.runAct()
	}
	if b.Container {
		return b.runContainer()
	}
	args := []string{"oneboot", "analyze", "-o", "json", "--offline"}
	return syscall.Exec(filepath.Join("/sysroot", b.Program), args, []string{"HOME=/var"})
}

// kernelFiles has the kernel say what the test wants.
func (b liveBoot) kernelFiles(in func(string) string) error {
	for name, text := range map[string]string{
		sysroot.CommandLinePath: b.CommandLine + "\n", sysroot.OSReleasePath: b.Kernel + "\n", sysroot.FIPSPath: "0\n",
	} {
		file := in("tmp/" + filepath.Base(name))
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
		err := unix.Mount(file, in(name), "", unix.MS_BIND, "")
		if errors.Is(err, unix.ENOENT) && name == sysroot.FIPSPath {
			continue // a kernel without FIPS mode is not in it
		}
		if err != nil {
			return fmt.Errorf("mounting %s: %w", name, err)
		}
	}
	return nil
}

// mountImage makes a root of another file system with the deployment's folders.
func mountImage(deployment, root string) error {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, d := range []string{"usr", "etc", "sysroot", "boot", "var", "run", "tmp", "sys", "proc"} {
		if err := os.Mkdir(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	for _, d := range []string{"usr", "etc"} {
		if err := unix.Mount(filepath.Join(deployment, d), filepath.Join(root, d), "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return os.Symlink("sysroot/ostree", filepath.Join(root, "ostree"))
}

// runContainer runs the program in another root, in the same process
// namespace, as a privileged pod with hostPID does.
func (b liveBoot) runContainer() error {
	const root = "/run/container"
	if err := containerRoot(root, filepath.Join("/sysroot", b.Program)); err != nil {
		return err
	}
	cmd := exec.Command("/oneboot", "analyze", "-o", "json", "--offline", "--root", "/rootfs")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// analyze boots and runs the program.
func (b liveBoot) analyze(t *testing.T) verdict.Verdict {
	t.Helper()
	stdout := b.start(t)
	var v verdict.Verdict
	if err := json.Unmarshal([]byte(stdout), &v); err != nil {
		t.Fatalf("reading verdict: %v\n%s", err, stdout)
	}
	return v
}

// A liveDisk is a disk with deployments, each fit to be booted into.
type liveDisk struct {
	*sysroot.Sysroot
	t *testing.T
	l *lab
	// url is what every deployment's MachineConfig wants: the base image.
	url string
}

func newLiveDisk(t *testing.T, l *lab) *liveDisk {
	t.Helper()
	s := must[*sysroot.Sysroot](t)(sysroot.New(filepath.Join(sysroot.TempDir(t), "disk")))
	return &liveDisk{Sysroot: s, t: t, l: l, url: l.reg.Reference("os/base", l.native.Digest)}
}

// deploy deploys and writes the host's files into the deployment's /etc.
func (d *liveDisk) deploy(o nodeOptions, stateroot string) sysroot.Deployment {
	d.t.Helper()
	var dep sysroot.Deployment
	if stateroot == "" {
		dep = d.l.deploy(d.t, d.Sysroot, o)
	} else {
		merge := must[string](d.t)(sysroot.Ostree("rev-parse", "--repo="+d.Repo(), o.commit))
		dep = must[sysroot.Deployment](d.t)(d.Deploy(merge, sysroot.DeployOptions{Stateroot: stateroot,
			KernelArguments: []string{"root=UUID=6f0e", "rw", "$ignition_firstboot"},
			Origin:          sysroot.ContainerOrigin("ostree-image-signed:oci-archive:/rhcos.ociarchive")}))
	}
	for name, text := range map[string]string{
		sysroot.MachineConfigPath: must[string](d.t)(sysroot.MachineConfig{OSImageURL: d.url}.JSON()),
		sysroot.PolicyPath:        `{"default":[{"type":"insecureAcceptAnything"}]}`,
	} {
		file := filepath.Join(dep.Dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			d.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			d.t.Fatal(err)
		}
	}
	return dep
}

// options are those of the deployment's boot entry now.
func (d *liveDisk) options(dep sysroot.Deployment) string {
	d.t.Helper()
	_, fields, err := dep.BootEntry()
	if err != nil {
		d.t.Fatal(err)
	}
	return fields["options"]
}

// boot is what the system looks like that has booted the deployment with a
// command line.
func (d *liveDisk) boot(dep sysroot.Deployment, cmdline string) liveBoot {
	return liveBoot{Physical: d.Dir, Deployment: dep.Dir, Var: filepath.Join(d.Dir, "ostree/deploy", dep.Stateroot, "var"),
		CommandLine: cmdline, Kernel: sysroot.DefaultKernel}
}

// backing is /run/ostree-booted of a root that is an image.
func backing(t *testing.T, dir string, change uint64) []byte {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	return ostreetest.EncodeDict([]ostreetest.Entry{
		{Key: "composefs", Value: true},
		{Key: "backing-root-device-inode", Value: [2]uint64{uint64(st.Dev), st.Ino + change}}, //nolint:unconvert // Dev is 32 bits wide on some platforms
	})
}

// A liveAnswer is what a live root is expected to say.
type liveAnswer struct {
	reason verdict.Reason
	// checksum is the deployment that is found to run; none where empty.
	checksum string
	// detail is in the words of the check that decided.
	detail string
}

func (want liveAnswer) check(t *testing.T, v verdict.Verdict) {
	t.Helper()
	if v.Reason != want.reason || string(v.Booted.Checksum) != want.checksum || (v.Action == verdict.Skip) != (want.reason == verdict.ReasonProven) {
		t.Errorf("got %s, %s on %q; want %s on %q\n%s", actionText(v.Action), v.Reason, v.Booted.Checksum, want.reason, want.checksum, checksText(v))
	}
	for _, c := range v.Checks {
		if strings.HasPrefix(string(v.Reason), string(c.Name)+"-") && !strings.Contains(c.Detail, want.detail) {
			t.Errorf("%s: got %q, want %q in it", c.Name, c.Detail, want.detail)
		}
	}
}

// The running system's own root: found by its device and inode, whatever the
// kernel command line says.
func TestLiveRoot(t *testing.T) {
	l := newLab(t)
	first := newLiveDisk(t, l)
	only := first.deploy(nodeOptions{image: l.native}, "")
	if !strings.Contains(first.options(only), "ostree=/ostree/boot.1/") {
		t.Fatalf("the first boot version is not 1: %s", first.options(only))
	}

	second := newLiveDisk(t, l)
	older := second.deploy(nodeOptions{commit: l.other}, "")
	gone := second.options(older)
	newer := second.deploy(nodeOptions{image: l.native}, "")
	if !strings.Contains(second.options(newer), "ostree=/ostree/boot.0/") {
		t.Fatalf("the second boot version is not 0: %s", second.options(newer))
	}

	tests := []struct {
		name string
		boot liveBoot
		edit func(*liveBoot)
		want liveAnswer
	}{
		{"boot.1", first.boot(only, first.options(only)), nil, liveAnswer{reason: verdict.ReasonProven, checksum: only.Checksum}},
		{"boot.0", second.boot(newer, second.options(newer)), nil, liveAnswer{reason: verdict.ReasonProven, checksum: newer.Checksum}},
		{"in a container", second.boot(newer, second.options(newer)), func(b *liveBoot) { b.Container = true },
			liveAnswer{reason: verdict.ReasonProven, checksum: newer.Checksum}},
		{"the older one", second.boot(older, second.options(older)), nil,
			liveAnswer{"deployment-differs", older.Checksum, "not-default (rhcos " + newer.Checksum}},
		{"soft reboot from the older one", second.boot(newer, second.options(older)), nil,
			liveAnswer{"deployment-differs", newer.Checksum, "soft-rebooted (the kernel command line names rhcos " + older.Checksum}},
		{"soft reboot, the link of the command line is gone", second.boot(newer, gone), nil,
			liveAnswer{"deployment-differs", newer.Checksum, "soft-rebooted (what the kernel booted is not known: /ostree/boot.1/rhcos/"}},
		{"soft reboot seen from a container", second.boot(newer, second.options(older)), func(b *liveBoot) { b.Container = true },
			liveAnswer{"deployment-differs", newer.Checksum, "soft-rebooted (the kernel command line names rhcos " + older.Checksum}},
		{"an image of the deployment", second.boot(newer, second.options(newer)), func(b *liveBoot) {
			b.Image, b.Booted = true, backing(t, newer.Dir, 0)
		}, liveAnswer{reason: verdict.ReasonProven, checksum: newer.Checksum}},
		{"an image in a container", second.boot(newer, second.options(newer)), func(b *liveBoot) {
			b.Image, b.Container, b.Booted = true, true, backing(t, newer.Dir, 0)
		}, liveAnswer{reason: verdict.ReasonProven, checksum: newer.Checksum}},
		{"an image after a soft reboot", second.boot(newer, second.options(older)), func(b *liveBoot) {
			b.Image, b.Booted = true, backing(t, newer.Dir, 0)
		}, liveAnswer{"deployment-differs", newer.Checksum, "soft-rebooted (the kernel command line names rhcos " + older.Checksum}},
		{"an image of another deployment than it seems", second.boot(newer, second.options(newer)), func(b *liveBoot) {
			b.Image, b.Booted = true, backing(t, older.Dir, 0)
		}, liveAnswer{"deployment-differs", older.Checksum, "soft-rebooted (the kernel command line names rhcos " + newer.Checksum}},
		{"an image of nothing known", second.boot(newer, second.options(newer)), func(b *liveBoot) {
			b.Image, b.Booted = true, backing(t, newer.Dir, 1<<40)
		}, liveAnswer{"architecture-unknown", "", "the running root is none of the deployments"}},
		{"an image that is not said to be one", second.boot(newer, second.options(newer)), func(b *liveBoot) { b.Image = true },
			liveAnswer{"architecture-unknown", "", "the running root is none of the deployments"}},
		{"garbage in /run/ostree-booted", second.boot(newer, second.options(newer)), func(b *liveBoot) {
			b.Booted = []byte("backing-root-device-inode")
		}, liveAnswer{"architecture-unknown", "", "/run/ostree-booted"}},
		{"a command line without ostree=", second.boot(newer, "root=UUID=6f0e rw"), nil,
			liveAnswer{"architecture-unknown", "", "no ostree= argument"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.edit != nil {
				tt.edit(&tt.boot)
			}
			tt.want.check(t, tt.boot.analyze(t))
		})
	}
}

// Stateroots with the same kernel: the boot checksums are equal, the folders
// are not.
func TestLiveStateroots(t *testing.T) {
	l := newLab(t)
	d := newLiveDisk(t, l)
	if err := d.AddStateroot("spare"); err != nil {
		t.Fatal(err)
	}
	here := d.deploy(nodeOptions{image: l.native}, "")
	spare := d.deploy(nodeOptions{commit: here.Checksum}, "spare")
	again := d.deploy(nodeOptions{commit: here.Checksum}, sysroot.Stateroot)
	tests := []struct {
		name string
		run  sysroot.Deployment
		kern sysroot.Deployment
		want liveAnswer
	}{
		{"the default", again, again, liveAnswer{reason: verdict.ReasonProven, checksum: here.Checksum}},
		{"the same commit, an earlier deployment", here, here, liveAnswer{"deployment-differs", here.Checksum,
			fmt.Sprintf("not-default (rhcos %s.%d boots next)", again.Checksum, again.Serial)}},
		{"the same commit in another stateroot", spare, spare, liveAnswer{"deployment-differs", here.Checksum, "not-default (rhcos "}},
		{"soft reboot into another stateroot", spare, again, liveAnswer{"deployment-differs", here.Checksum,
			fmt.Sprintf("soft-rebooted (the kernel command line names rhcos %s.%d)", again.Checksum, again.Serial)}},
		{"soft reboot out of another stateroot", again, spare, liveAnswer{"deployment-differs", here.Checksum,
			fmt.Sprintf("soft-rebooted (the kernel command line names spare %s.%d)", spare.Checksum, spare.Serial)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := d.boot(tt.run, d.options(tt.kern)).analyze(t)
			tt.want.check(t, v)
			for _, c := range v.Checks {
				if want := fmt.Sprintf("%s %s.%d", tt.run.Stateroot, tt.run.Checksum, tt.run.Serial); c.Name == verdict.CheckDeployment && c.Booted != want {
					t.Errorf("got deployment %s, want %s", c.Booted, want)
				}
			}
		})
	}
}
