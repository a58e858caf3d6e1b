package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/test/sysroot"
)

// A liveAct is an act on a live root, whose /sysroot is mounted read-only as on
// a node.
type liveAct struct {
	// Mode is that of oneboot firstboot.
	Mode string
	// Powerless: the program may not mount.
	Powerless bool
	// Revert: then the act is undone.
	Revert bool
}

// runAct is the first process of a live root. It writes to its standard output
// what the programs said, a line each, and fails where the mounts are not as
// before.
func (b liveBoot) runAct() error {
	// As systemd leaves them: what is mounted in one namespace shows in those
	// made from it.
	if err := unix.Mount("", "/sysroot", "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing /sysroot: %w", err)
	}
	if err := unix.Mount("", "/sysroot", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID, ""); err != nil {
		return fmt.Errorf("making /sysroot read-only: %w", err)
	}
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	args := [][]string{{"firstboot", "--mode", b.Act.Mode, "-o", "json"}}
	if b.Act.Revert {
		args = append(args, []string{"revert"})
	}
	for _, a := range args {
		if err := b.runProgram(a); err != nil {
			return err
		}
		after, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			return err
		}
		if !bytes.Equal(before, after) {
			return fmt.Errorf("mounts before:\n%s\nafter %v:\n%s", before, a, after)
		}
	}
	if f, err := os.Create("/sysroot/probe"); !errors.Is(err, unix.EROFS) {
		f.Close()
		return fmt.Errorf("/sysroot can be written to: %w", err)
	}
	return nil
}

func (b liveBoot) runProgram(args []string) error {
	cmd := exec.Command(filepath.Join("/sysroot", b.Program), args...)
	if b.Container {
		const root = "/run/container"
		if err := containerRoot(root, filepath.Join("/sysroot", b.Program)); err != nil {
			return err
		}
		cmd = exec.Command("/oneboot", append(args, "--root", "/rootfs")...)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		defer unix.Unmount(root+"/rootfs", unix.MNT_DETACH)
		defer unix.Unmount(root+"/proc", unix.MNT_DETACH)
	}
	cmd.Env = []string{"HOME=/var"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if b.Act.Powerless {
		// What exec gives root is bounded by this.
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0); err != nil {
			return err
		}
	}
	return cmd.Run()
}

// containerRoot makes the root of a container that has the host's at /rootfs.
func containerRoot(root, program string) error {
	for _, d := range []string{"rootfs", "proc", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	raw, err := os.ReadFile(program)
	if err == nil {
		err = os.WriteFile(root+"/oneboot", raw, 0o755)
	}
	if err != nil {
		return err
	}
	return errors.Join(
		unix.Mount("/", root+"/rootfs", "", unix.MS_BIND|unix.MS_REC, ""),
		unix.Mount("proc", root+"/proc", "proc", 0, ""),
	)
}

// On a live root the act writes to the read-only /sysroot in a mount namespace of
// its own, and nobody else sees that. Where it may not, nothing changes.
func TestLiveAct(t *testing.T) {
	l := newLab(t)
	tests := []struct {
		name  string
		act   liveAct
		edit  func(*liveBoot)
		state record.ActState
		code  string
	}{
		{"assert", liveAct{Mode: "assert"}, nil, record.ActDone, ""},
		{"complete", liveAct{Mode: "complete"}, nil, record.ActDone, ""},
		{"assert and revert", liveAct{Mode: "assert", Revert: true}, nil, record.ActUndone, ""},
		{"in a container", liveAct{Mode: "complete"}, func(b *liveBoot) { b.Container = true }, record.ActDone, ""},
		{"an image of the deployment", liveAct{Mode: "assert"}, func(b *liveBoot) {
			b.Image, b.Booted = true, backing(t, b.Deployment, 0)
		}, record.ActDone, ""},
		// What the act may write to there is ostree's own, whatever a link leads to.
		{"a link to /sysroot", liveAct{Mode: "complete"}, func(b *liveBoot) {
			if err := errors.Join(os.MkdirAll(filepath.Join(b.Physical, "repos"), 0o755),
				os.WriteFile(filepath.Join(b.Physical, "repos/a.repo"), []byte("enabled=1\n"), 0o644),
				os.Symlink("/sysroot/repos", filepath.Join(b.Deployment, "etc/yum.repos.d"))); err != nil {
				t.Fatal(err)
			}
		}, record.ActFailed, "act-read-only"},
		{"not allowed to mount", liveAct{Mode: "assert", Powerless: true}, nil, record.ActFailed, "act-read-only"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// Some wait for the machine's clock.
			t.Parallel()
			disk := newLiveDisk(t, l)
			dep := disk.deploy(nodeOptions{image: l.native}, "")
			before := must[[]byte](t)(os.ReadFile(dep.OriginFile()))
			b := disk.boot(dep, disk.options(dep))
			b.Act = &tt.act
			if tt.edit != nil {
				tt.edit(&b)
			}
			b.start(t)
			rec := must[*record.Record](t)(record.Parse(must[[]byte](t)(os.ReadFile(filepath.Join(b.Var, "lib/oneboot/firstboot.json")))))
			if rec.Act.State != tt.state || tt.code != "" && (len(rec.Verdict.Errors) != 1 || rec.Verdict.Errors[0].Code != tt.code) {
				t.Errorf("act %+v, errors %v; want %s, %s", rec.Act, rec.Verdict.Errors, tt.state, tt.code)
			}
			want := string(before)
			if tt.state == record.ActDone {
				want = sysroot.ContainerOrigin("ostree-unverified-registry:" + disk.url)
			}
			if got := string(must[[]byte](t)(os.ReadFile(dep.OriginFile()))); got != want {
				t.Errorf("origin %q, want %q", got, want)
			}
			_, err := os.Lstat(filepath.Join(dep.Dir, sysroot.MachineConfigPath))
			if over := err != nil; over != (tt.act.Mode == "complete" && tt.state == record.ActDone) {
				t.Errorf("the encapsulated MachineConfig: %v", err)
			}
		})
	}
}

// start boots and returns what the first process wrote.
func (b liveBoot) start(t *testing.T) string {
	t.Helper()
	bin := must[[]byte](t)(os.ReadFile(must[string](t)(program())))
	b.Program = "oneboot"
	// No process that another test starts meanwhile may inherit the open file: a
	// program that is open for writing cannot be run.
	syscall.ForkLock.RLock()
	err := os.WriteFile(filepath.Join(b.Physical, b.Program), bin, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), liveVariable+"="+string(must[[]byte](t)(json.Marshal(b))))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		Unshareflags: syscall.CLONE_NEWNS,
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s%s", err, strings.TrimSpace(stderr.String()), stdout.String())
	}
	return stdout.String()
}
