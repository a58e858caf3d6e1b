//go:build mcd

package mcdlab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// enterVariable holds the node's root in the process that becomes the daemon,
// toolsVariable the folder with the programs, daemonVariable the daemon's name.
const (
	enterVariable  = "ONEBOOT_TEST_ROOT"
	toolsVariable  = "ONEBOOT_TEST_TOOLS"
	daemonVariable = "ONEBOOT_TEST_DAEMON"
)

// The places in a node that a test adds.
const (
	toolsDir   = "/run/tools"
	callsFile  = "/run/tools.calls"
	bootedFile = "/run/tools.booted"
	processDir = "/run/tools.proc"
	libraryDir = "lib"
)

// enter becomes the daemon in a chroot of the node. It runs in a mount
// namespace of its own.
func enter(root string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	for _, m := range []struct {
		from, to, kind string
		flags          uintptr
	}{
		{os.Getenv(toolsVariable), toolsDir, "", unix.MS_BIND},
		{"/dev", "/dev", "", unix.MS_BIND | unix.MS_REC},
		{"proc", processDir, "proc", 0},
	} {
		target := filepath.Join(root, m.to)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.from, target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.to, err)
		}
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "tmp"), 0o1777), unix.Chroot(root), unix.Chdir("/")); err != nil {
		return err
	}
	// The node's /proc says what its kernel would; a process only finds itself.
	if err := os.Symlink(processDir+"/self", "/proc/self"); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	program := filepath.Join(toolsDir, os.Getenv(daemonVariable))
	return syscall.Exec(program, []string{program, "firstboot-complete-machineconfig", "--root-mount", "/"},
		[]string{"PATH=" + toolsDir, "HOME=/var/roothome"})
}

// An outcome is what the daemon did.
type outcome int

const (
	// skipped: it removed the encapsulated file, called no reboot and ended.
	skipped outcome = iota + 1
	// rebooted: it changed the OS and had the node rebooted.
	rebooted
	// refused: it gave up and tries again each minute.
	refused
)

func (o outcome) String() string {
	return []string{"nothing known", "skipped", "rebooted", "refused"}[o]
}

// A run is one run of the daemon on a node.
type run struct {
	outcome outcome
	// output is what it printed.
	output string
	// calls are the programs that it called, with their arguments; random names
	// in them are masked.
	calls []string
}

// called reports whether a program was called whose words start so.
func (r run) called(words string) bool {
	return slices.ContainsFunc(r.calls, func(c string) bool { return strings.HasPrefix(c, words) })
}

// diff is the daemon's own account of what it is about to change.
func (r run) diff() string {
	_, line, ok := strings.Cut(r.output, "Starting update from ")
	if !ok {
		return ""
	}
	line, _, _ = strings.Cut(line, "\n")
	return line
}

// A console collects what a process prints, while it runs.
type console struct {
	sync.Mutex
	bytes.Buffer
}

func (c *console) Write(p []byte) (int, error) {
	c.Lock()
	defer c.Unlock()
	return c.Buffer.Write(p)
}

func (c *console) text() string {
	c.Lock()
	defer c.Unlock()
	return c.Buffer.String()
}

// mcd runs the machine-config-daemon as its firstboot unit does.
func (n *node) mcd(t testing.TB) run {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{enterVariable + "=" + n.Dir, toolsVariable + "=" + n.lab.tools, daemonVariable + "=" + n.daemon.name}
	// The end of its first process ends everything that it started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	if !n.daemon.asks {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET
	}
	var out console
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := os.RemoveAll(n.Path(callsFile)); err != nil {
		t.Fatal(err)
	}
	n.write(t, bootedFile, filepath.Base(n.deployment.Dir))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	const wait = 2 * time.Minute
	deadline := time.After(wait)
	for ended := false; !ended; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("the daemon ended with %v\n%s", err, out.text())
			}
			ended = true
		case <-deadline:
			_ = cmd.Process.Kill()
			<-done
			t.Fatalf("the daemon did not come to an end in %s\n%s", wait, out.text())
		case <-time.After(20 * time.Millisecond):
			// After either it waits, for a minute or for its own end.
			if strings.Contains(out.text(), "Sleeping 1 minute") || strings.Contains(n.read(callsFile), rebootCall) {
				ended = n.end(cmd.Process, done)
			}
		}
	}
	calls := randomName.ReplaceAllString(strings.TrimSuffix(n.read(callsFile), "\n"), "$1-*")
	r := run{output: out.text(), calls: strings.Split(calls, "\n")}
	r.outcome = n.outcome(r)
	if r.outcome == 0 {
		t.Fatalf("the daemon neither skipped nor rebooted nor refused\n%s", r.output)
	}
	return r
}

// randomName is a name that the daemon makes anew in every run.
var randomName = regexp.MustCompile(`(ostree-container-pivot|os-extensions-content)-[0-9a-f-]+`)

// end gives the daemon time to end by itself before it is killed.
func (n *node) end(p *os.Process, done <-chan error) bool {
	select {
	case <-done:
	case <-time.After(time.Second):
		_ = p.Kill()
		<-done
	}
	return true
}

// rebootCall is how the daemon has the node rebooted (rebootCommand,
// pkg/daemon/daemon.go).
const rebootCall = "systemd-run --unit machine-config-daemon-reboot"

func (n *node) outcome(r run) outcome {
	file := n.exists(encapsulatedPath)
	switch {
	case r.called(rebootCall):
		return rebooted
	case strings.Contains(r.output, "Sleeping 1 minute for retry") && file:
		return refused
	case r.diff() == "" && !file && !n.exists(encapsulatedPath+".bak"):
		return skipped
	}
	return 0
}
