package ostree_test

import (
	"encoding/hex"
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

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/ostree"
	"github.com/oneboot/oneboot/pkg/ostree/ostreetest"
)

// Set in a child process that is the first one of its process namespace.
const (
	envDeployment = "ONEBOOT_TEST_DEPLOYMENT"
	envPhysical   = "ONEBOOT_TEST_PHYSICAL"
	envCmdline    = "ONEBOOT_TEST_CMDLINE"
	envBooted     = "ONEBOOT_TEST_BOOTED"
)

func TestMain(m *testing.M) {
	if os.Getenv(envDeployment) != "" {
		if err := liveChild(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A liveAnswer is what the child prints.
type liveAnswer struct {
	Live         bool
	Name         string
	SoftRebooted string
	Confirmed    bool
	Divergences  []string
	Error        string
}

// liveChild makes the deployment its own root, as ostree-prepare-root does
// without composefs, and finds out what is booted.
func liveChild() error {
	state, err := hex.DecodeString(os.Getenv(envBooted))
	if err != nil {
		return err
	}
	root, physical := os.Getenv(envDeployment), os.Getenv(envPhysical)
	if err := errors.Join(
		unix.Mount(physical, filepath.Join(root, "sysroot"), "", unix.MS_BIND, ""),
		unix.Mount(filepath.Join(physical, "boot"), filepath.Join(root, "boot"), "", unix.MS_BIND, ""),
		unix.Mount("tmpfs", filepath.Join(root, "run"), "tmpfs", 0, ""),
		unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""),
		unix.Chroot(root), unix.Chdir("/"),
		os.WriteFile("/run/ostree-booted", state, 0o644),
	); err != nil {
		return err
	}
	host, err := hostfs.Open("/")
	if err != nil {
		return err
	}
	defer host.Close()
	a := liveAnswer{Live: host.Live()}
	sys, err := ostree.OpenSysroot(host)
	if err != nil {
		return err
	}
	b, err := sys.Booted(os.Getenv(envCmdline))
	if err != nil {
		a.Error = err.Error()
	} else {
		a.Name, a.SoftRebooted, a.Confirmed = b.Name(), b.SoftRebooted, b.Confirmed
		d, ok := sys.Facts(b).Booted.Deployment.Get()
		if !ok {
			return errors.New(sys.Facts(b).Booted.Deployment.Why())
		}
		for _, v := range d.Divergences {
			a.Divergences = append(a.Divergences, string(v.Kind))
		}
	}
	return json.NewEncoder(os.Stdout).Encode(a)
}

// live asks a child whose root is the given folder.
func (s *system) live(root, cmdline, booted string) liveAnswer {
	s.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envDeployment+"="+root, envPhysical+"="+s.dir, envCmdline+"="+cmdline, envBooted+"="+hex.EncodeToString([]byte(booted)))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		s.t.Fatalf("%v: %s", err, exit.Stderr)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	var a liveAnswer
	if err := json.Unmarshal(out, &a); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	return a
}

// On a live root the running root itself is looked at.
func TestLiveRoot(t *testing.T) {
	s := newSystem(t)
	s.deployTest()
	stale := s.options()
	tree := newTree(t)
	write(t, filepath.Join(tree, "usr/lib/modules", kernel, "vmlinuz"), "another kernel")
	s.commit(tree, testRef)
	s.deploy(testRef, "--os="+stateroot)
	list, err := s.open().Deployments()
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	folder := func(d *ostree.Deployment) string { return filepath.Join(s.dir, strings.TrimPrefix(d.Dir, "/")) }
	newer, older := list[0], list[1]
	copied := t.TempDir()
	for _, d := range []string{"sysroot", "boot", "run", "proc"} {
		mkdir(t, filepath.Join(copied, d))
	}
	symlink(t, "sysroot/ostree", filepath.Join(copied, "ostree"))
	var st unix.Stat_t
	if err := unix.Stat(folder(newer), &st); err != nil {
		t.Fatal(err)
	}
	backing := func(ino uint64) string {
		return string(ostreetest.EncodeDict([]ostreetest.Entry{{Key: "composefs", Value: true}, {Key: "backing-root-device-inode", Value: [2]uint64{uint64(st.Dev), ino}}})) //nolint:unconvert // Dev is 32 bits wide on some platforms
	}
	tests := []struct {
		name, root, cmdline, booted string
		want                        liveAnswer
	}{
		{"the default", folder(newer), newer.Entry.Options, "", liveAnswer{Name: newer.Name(), Confirmed: true}},
		{"the older one", folder(older), older.Entry.Options, "", liveAnswer{Name: older.Name(), Confirmed: true, Divergences: []string{"not-default"}}},
		{"after a soft reboot", folder(newer), older.Entry.Options, "",
			liveAnswer{Name: newer.Name(), Confirmed: true, SoftRebooted: older.Name(), Divergences: []string{"soft-rebooted"}}},
		{"stale link", folder(older), stale, "",
			liveAnswer{Name: older.Name(), Confirmed: true, SoftRebooted: older.BootCsum, Divergences: []string{"not-default", "soft-rebooted"}}},
		{"stale link of another kernel", folder(newer), stale, "",
			liveAnswer{Name: newer.Name(), Confirmed: true, SoftRebooted: older.BootCsum, Divergences: []string{"soft-rebooted"}}},
		{"another root", copied, newer.Entry.Options, "", liveAnswer{Error: "none of the deployments"}},
		{"composefs", copied, newer.Entry.Options, backing(st.Ino), liveAnswer{Name: newer.Name(), Confirmed: true}},
		{"composefs of nothing known", copied, newer.Entry.Options, backing(st.Ino + 1_000_000), liveAnswer{Error: "none of the deployments"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := s.live(tt.root, tt.cmdline, tt.booted)
			if !got.Live {
				t.Error("the child's root is not live")
			}
			if tt.want.Error != "" {
				if !strings.Contains(got.Error, tt.want.Error) {
					t.Errorf("got %+v, want an error with %q", got, tt.want.Error)
				}
				return
			}
			if got.Error != "" || got.Name != tt.want.Name || got.Confirmed != tt.want.Confirmed ||
				!strings.Contains(got.SoftRebooted, tt.want.SoftRebooted) || (got.SoftRebooted == "") != (tt.want.SoftRebooted == "") ||
				strings.Join(got.Divergences, " ") != strings.Join(tt.want.Divergences, " ") {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
