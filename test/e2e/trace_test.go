package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// decoyHome is a home with everything that a registry client might look for
// there, none of it to be read.
func decoyHome(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	for _, name := range []string{".docker/config.json", ".config/containers/policy.json", ".config/containers/registries.conf",
		".config/containers/auth.json", "run/containers/auth.json", ".config/containers/registries.d/a.yaml",
		".config/containers/certs.d/registry.invalid/ca.crt", ".local/share/containers/cache/x", ".dockercfg"} {
		if err := os.MkdirAll(filepath.Join(home, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, name), []byte("not to be read"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

// An access is one system call that names a file.
type access struct {
	line string
	// call and dir are the call and the folder that it starts from.
	call, dir string
	// name is the argument, result what a descriptor that it returned leads to.
	name, result string
	// contained: the kernel follows no link out of dir, or none at all.
	contained bool
	failed    bool
}

// runTraced runs the program below strace.
func (c *container) runTraced(t *testing.T) (verdict.Verdict, []access) {
	t.Helper()
	bin := must[string](t)(program())
	dir := must[string](t)(os.MkdirTemp(t.TempDir(), "trace-"))
	defer os.RemoveAll(dir)
	cmd := exec.Command("strace", "-ff", "-y", "-s", "4096", "-e", "trace=%file", "-o", filepath.Join(dir, "t"),
		bin, "analyze", "-o", "json", "--timeout", "20s", "--root", c.Dir)
	cmd.Dir = c.home
	cmd.Env = []string{"HOME=" + c.home, "XDG_RUNTIME_DIR=" + c.home + "/run", "XDG_CONFIG_HOME=" + c.home + "/.config",
		"DOCKER_CONFIG=" + c.home + "/.docker", "PATH=/nowhere"}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && stdout.Len() == 0 && !strings.Contains(stderr.String(), "/proc/cmdline is not there") {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var v verdict.Verdict
	if stdout.Len() > 0 {
		if err := json.Unmarshal(stdout.Bytes(), &v); err != nil {
			t.Fatalf("reading verdict: %v\n%s", err, stdout.String())
		}
	}
	var all []access
	files := must[[]string](t)(filepath.Glob(filepath.Join(dir, "t.*")))
	for _, f := range files {
		for line := range strings.Lines(string(must[[]byte](t)(os.ReadFile(f)))) {
			if a, ok := parseAccess(strings.TrimSuffix(line, "\n")); ok {
				all = append(all, a)
			}
		}
	}
	if len(all) < 10 {
		t.Fatalf("the trace has %d calls", len(all))
	}
	return v, all
}

var (
	traceCall   = regexp.MustCompile(`^(\w+)\((?:(?:AT_FDCWD|-?[0-9]+)(?:<([^>]*)>)?, )?"([^"]*)"(.*)$`)
	traceResult = regexp.MustCompile(`\) += (-?[0-9]+)(?:<(.*)>)?`)
)

// parseAccess reads one line of strace -y.
func parseAccess(line string) (access, bool) {
	m := traceCall.FindStringSubmatch(line)
	if m == nil {
		return access{}, false
	}
	a := access{line: line, call: m[1], dir: m[2], name: m[3]}
	a.contained = strings.HasPrefix(a.call, "readlink") || strings.HasPrefix(a.call, "l") || strings.Contains(m[4], "RESOLVE_IN_ROOT") ||
		strings.Contains(m[4], "RESOLVE_BENEATH") || strings.Contains(m[4], "NOFOLLOW") || a.name == "" || strings.Contains(m[4], "RESOLVE_NO_SYMLINKS")
	if r := traceResult.FindStringSubmatch(line); r != nil {
		a.failed = strings.HasPrefix(r[1], "-")
		a.result = strings.TrimSuffix(r[2], " (deleted)")
	}
	return a, true
}

// checkTrace holds that a run looked at nothing outside the root.
func (c *container) checkTrace(t *testing.T, what string, trace []access) {
	t.Helper()
	for _, a := range trace {
		if why := c.escape(a); why != "" {
			t.Errorf("%s: %s: %s", what, why, a.line)
		}
	}
}

// escape says how a call leaves the root; empty where it does not.
func (c *container) escape(a access) string {
	full := a.name
	inRoot := strings.Contains(a.line, "RESOLVE_IN_ROOT")
	if !path.IsAbs(full) || inRoot {
		full = path.Join(a.dir, a.name)
	}
	own := func(name string) bool { return ownFile(name) || name == c.home }
	switch {
	case below(a.result, c.outside), below(full, c.outside), below(a.dir, c.outside):
		return "it looks outside the root"
	case below(full, c.home) && full != c.home:
		return "it looks at the caller's home"
	case below(a.dir, c.Dir) && !a.contained:
		return "links might lead it out of the root"
	case below(full, c.Dir) && !below(a.dir, c.Dir) && full != c.Dir:
		return "it does not start from the root"
	case !below(full, c.Dir) && !own(full), a.result != "" && !below(a.result, c.Dir) && !own(a.result):
		return "it looks at a file of this system"
	}
	return ""
}

func below(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

// detachedProc is a path in a /proc that is mounted nowhere: strace shows such
// descriptors as paths from its own root.
var detachedProc = regexp.MustCompile(`^/(?:(?:[0-9]+|thread-self|self)(?:/.*)?|uptime)?$`)

// ownFile names what a process may look at on the system that it runs on: the
// Go runtime's files, its own descriptors, the process that is the host's
// first, its private copies, and what a resolver needs.
func ownFile(name string) bool {
	if detachedProc.MatchString(name) || name == os.TempDir() || name == "/dev/shm" {
		return true
	}
	for _, p := range []string{"/proc/", "/sys/kernel/mm/", "/sys/fs/cgroup/", "/etc/localtime", "/usr/share/zoneinfo/", "/dev/null",
		os.TempDir() + "/oneboot-", "/dev/shm/oneboot-", "/memfd:", "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// The kernel's own resolution must be at hand: without it, contained reads are
// made of many steps that this test does not follow.
func TestOpenat2(t *testing.T) {
	fd, err := unix.Openat2(unix.AT_FDCWD, ".", &unix.OpenHow{Flags: unix.O_PATH, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
}
