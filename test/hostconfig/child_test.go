package hostconfig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/sysroot"
)

// childVariable holds a [child] in a process that this test starts as another
// user or in another root.
const childVariable = "ONEBOOT_TEST_HOSTCONFIG"

// A child is what such a process is to do.
type child struct {
	// Root is the host's root.
	Root string
	// User, where not 0, is whom the process is to be.
	User int
	// Live: boot into the deployment, the folder that becomes the root.
	Live        bool
	Physical    string
	CommandLine string
	Kernel      string
	RunFiles    files
	Skopeo      []string
	Timeout     time.Duration
}

func childMain(spec string) error {
	var c child
	if err := json.Unmarshal([]byte(spec), &c); err != nil {
		return err
	}
	switch {
	case c.Skopeo != nil:
		return c.runSkopeo()
	case c.Live:
		if err := c.boot(); err != nil {
			return err
		}
		c.Root = "/"
	case c.User != 0:
		if err := errors.Join(unix.Setgroups(nil), syscall.Setresgid(c.User, c.User, c.User), syscall.Setresuid(c.User, c.User, c.User)); err != nil {
			return fmt.Errorf("dropping privileges: %w", err)
		}
	}
	res, err := daemon.Analyze(context.Background(), daemon.Options{Root: c.Root, Timeout: c.Timeout})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(res.Verdict)
}

// runSkopeo becomes skopeo on a machine whose /etc is the host's.
func (c child) runSkopeo() error {
	program, err := exec.LookPath("skopeo")
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount(filepath.Join(c.Root, "etc"), "/etc", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting /etc: %w", err)
	}
	return syscall.Exec(program, append([]string{"skopeo"}, c.Skopeo...), os.Environ())
}

// boot makes the deployment the root, as the initrd would.
func (c child) boot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	in := func(name string) string { return filepath.Join(c.Root, name) }
	for _, m := range []struct {
		from, to, kind string
		flags          uintptr
	}{
		{c.Physical, "sysroot", "", unix.MS_BIND},
		{filepath.Join(c.Physical, "boot"), "boot", "", unix.MS_BIND},
		{filepath.Join(c.Physical, "ostree/deploy", sysroot.Stateroot, "var"), "var", "", unix.MS_BIND},
		{"tmpfs", "run", "tmpfs", 0},
		{"tmpfs", "tmp", "tmpfs", 0},
		{"tmpfs", "sys", "tmpfs", 0},
		{"proc", "proc", "proc", 0},
	} {
		if err := unix.Mount(m.from, in(m.to), m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.to, err)
		}
	}
	for name, text := range map[string]string{sysroot.CommandLinePath: c.CommandLine, sysroot.OSReleasePath: c.Kernel + "\n", sysroot.FIPSPath: "0\n"} {
		file := in("tmp/" + filepath.Base(name))
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
		err := unix.Mount(file, in(name), "", unix.MS_BIND, "")
		if err != nil && (name != sysroot.FIPSPath || !errors.Is(err, unix.ENOENT)) {
			return fmt.Errorf("mounting %s: %w", name, err)
		}
	}
	for name, text := range c.RunFiles {
		if err := os.MkdirAll(filepath.Dir(in(name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(in(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(unix.Chroot(c.Root), unix.Chdir("/"))
}

// run starts the process and returns what it says.
func (c child) run(env ...string) (stdout []byte, err error) {
	if c.Timeout == 0 {
		c.Timeout = 20 * time.Second
	}
	spec, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(append(os.Environ(), childVariable+"="+string(spec)), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if c.Live {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	}
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return out.Bytes(), nil
}

// verdict runs the analysis in the process.
func (c child) verdict(t *testing.T) verdict.Verdict {
	t.Helper()
	out, err := c.run()
	if err != nil {
		t.Fatal(err)
	}
	var v verdict.Verdict
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatalf("reading verdict: %v: %s", err, out)
	}
	return v
}

// skopeo asks skopeo for the image on a machine with the host's /etc: whether
// the host's own tools get it.
func (l *lab) skopeo(t testing.TB, reference string, args ...string) error {
	t.Helper()
	args = append([]string{"--command-timeout=20s", "inspect", "--raw", "--no-tags"}, args...)
	_, err := child{Root: l.root.Dir, Skopeo: append(args, "docker://"+reference)}.run("HOME=/nonexistent", "XDG_RUNTIME_DIR=/", "SSL_CERT_FILE=", "SSL_CERT_DIR=")
	return err
}
