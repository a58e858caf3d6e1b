// Package units runs oneboot's units under a real systemd, beside stand-ins for
// the machine-config-operator's.
package units

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const unitName = "oneboot-firstboot.service"

// A machine is a root that a systemd of its own boots: the host's /usr, the
// units that the test puts into /etc/systemd/system and nothing else.
type machine struct {
	t *testing.T
	// root is a folder with the mount points, and side the start of the paths
	// of what is put there: side.usr is laid over /usr, side.run is copied to
	// /run.
	root, side string
	// cmdline is what systemd takes for the kernel's command line.
	cmdline string
}

// newMachine has the stand-ins in testdata and the given unit, all enabled as
// their [Install] sections say, and is on its first boot.
func newMachine(t *testing.T, unit string) *machine {
	t.Helper()
	dir := t.TempDir()
	return newMachineAt(t, filepath.Join(dir, "root"), filepath.Join(dir, "side"), unit)
}

func newMachineAt(t *testing.T, root, side, unit string) *machine {
	t.Helper()
	m := &machine{t: t, root: root, side: side, cmdline: "root=UUID=6f0e rw"}
	for _, d := range []string{"usr", "proc", "sys", "dev", "run", "tmp", "var/lib", "etc/systemd/system"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{side + ".usr", side + ".run"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+name, filepath.Join(root, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../run", filepath.Join(root, "var/run")); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	m.write("etc/machine-id", strings.Repeat("1b", 16)+"\n")
	m.write("etc/passwd", "root:x:0:0:root:/:/bin/sh\n")
	m.write("etc/group", "root:x:0:\n")
	m.write("etc/os-release", "ID=test\n")
	m.write("etc/systemd/journald.conf", "[Journal]\nStorage=none\nReadKMsg=no\nAudit=no\n")
	m.program("did", `read -r up rest </proc/uptime; echo "$1 $up" >>/etc/report/log`)
	m.program("report", `cd /etc/report
systemctl show `+unitName+` >state
systemctl --failed --plain --no-legend >failed
cp /proc/self/mounts mounts
test ! -x /usr/bin/oncall || oncall
systemctl --force exit 0`)
	m.file(side+".run/ostree-booted", "", 0o644)
	m.write("etc/ignition-machine-config-encapsulated.json", "{}\n")
	for _, pattern := range []string{"testdata/base/*", "testdata/mco/*"} {
		m.install(pattern)
	}
	m.write("etc/systemd/system/"+unitName, unit)
	m.enable()
	return m
}

func (m *machine) install(pattern string) {
	m.t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		m.t.Fatalf("%s: %d files: %v", pattern, len(files), err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			m.t.Fatal(err)
		}
		m.write("etc/systemd/system/"+filepath.Base(f), string(text))
	}
}

// enable makes the links that [Install] sections ask for.
func (m *machine) enable() {
	m.t.Helper()
	dir := filepath.Join(m.root, "etc/systemd/system")
	units, err := filepath.Glob(dir + "/*.*")
	if err != nil {
		m.t.Fatal(err)
	}
	for _, path := range units {
		text, err := os.ReadFile(path)
		if errors.Is(err, unix.EISDIR) {
			continue
		}
		if err != nil {
			m.t.Fatal(err)
		}
		name := filepath.Base(path)
		for line := range strings.Lines(string(text)) {
			for key, suffix := range map[string]string{"WantedBy=": ".wants", "RequiredBy=": ".requires"} {
				if by, ok := strings.CutPrefix(strings.TrimSpace(line), key); ok {
					if err := os.MkdirAll(dir+"/"+by+suffix, 0o755); err != nil {
						m.t.Fatal(err)
					}
					if err := os.Symlink("../"+name, dir+"/"+by+suffix+"/"+name); err != nil && !errors.Is(err, fs.ErrExist) {
						m.t.Fatal(err)
					}
				}
			}
		}
	}
}

func (m *machine) write(name, text string) { m.file(filepath.Join(m.root, name), text, 0o644) }

func (m *machine) file(path, text string, mode fs.FileMode) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		m.t.Fatal(err)
	}
}

// program puts a shell script into the machine's /usr/bin.
func (m *machine) program(name, script string) {
	m.file(m.side+".usr/bin/"+name, "#!/bin/sh\n"+script+"\n", 0o755)
}

// dropIn changes oneboot's unit on this machine.
func (m *machine) dropIn(text string) {
	m.write("etc/systemd/system/"+unitName+".d/50-test.conf", text)
}

// A boot is what became of one.
type boot struct {
	// order lists the stand-ins that ran, in their order; at is when, in
	// seconds since the host came up.
	order []string
	at    map[string]float64
	// state holds the properties of oneboot's unit, failed the failed units,
	// console what a person at the machine's console sees.
	state   map[string]string
	failed  string
	console string
}

// boot runs the machine until all its units have run or have not.
func (m *machine) boot() boot {
	m.t.Helper()
	if err := os.RemoveAll(filepath.Join(m.root, "etc/report")); err != nil {
		m.t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(m.root, "etc/report"), 0o755); err != nil {
		m.t.Fatal(err)
	}
	pty := newTerminal(m.t)
	cgroup := fmt.Sprintf("oneboot-test-%d-%s", os.Getpid(), filepath.Base(pty.name))
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc",
		"sh", "testdata/machine.sh", m.root, m.side, cgroup, m.cmdline)
	cmd.Env = append(os.Environ(), "CONSOLE="+pty.name)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	late := !timer.Stop()
	removeCgroup(cgroup)
	console := pty.close()
	if err != nil || late {
		m.t.Fatalf("the machine did not come up (%v, late %v): %s\n%s", err, late, out.String(), console)
	}
	return m.report(console)
}

func (m *machine) report(console string) boot {
	m.t.Helper()
	b := boot{at: map[string]float64{}, state: map[string]string{}, console: console}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(m.root, "etc/report", name))
		if err != nil {
			m.t.Fatalf("%v\n%s", err, console)
		}
		return string(text)
	}
	for line := range strings.Lines(read("log")) {
		name, at, _ := strings.Cut(strings.TrimSpace(line), " ")
		seconds, err := strconv.ParseFloat(at, 64)
		if err != nil {
			m.t.Fatal(err)
		}
		b.order = append(b.order, name)
		b.at[name] = seconds
	}
	for line := range strings.Lines(read("state")) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		b.state[key] = value
	}
	b.failed = read("failed")
	return b
}

// removeCgroup removes what a machine left of its control groups, where the
// host has the hierarchy mounted; it is empty.
func removeCgroup(name string) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			dir := filepath.Join(f[1], name)
			// The last of its processes may still be on their way out.
			for range 40 {
				if _, err := os.Stat(dir); err != nil {
					return
				}
				_ = exec.Command("find", dir, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run()
				time.Sleep(50 * time.Millisecond)
			}
			return
		}
	}
}

// A terminal is what systemd takes for a console.
type terminal struct {
	name   string
	master *os.File
	mu     sync.Mutex
	seen   bytes.Buffer
	done   chan struct{}
	slave  *os.File
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	p := &terminal{name: "/dev/pts/" + strconv.Itoa(n), master: master, done: make(chan struct{})}
	// Held open: the master reads an error while nobody has the other end.
	if p.slave, err = os.OpenFile(p.name, os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			p.mu.Lock()
			p.seen.Write(b[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return p
}

// close returns all that was shown.
func (p *terminal) close() string {
	p.slave.Close()
	select {
	case <-p.done:
	case <-time.After(2 * time.Second):
	}
	p.master.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.ReplaceAll(p.seen.String(), "\r\n", "\n")
}

func (m *machine) remove(path string) {
	m.t.Helper()
	if err := os.Remove(path); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(path string) string {
	m.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(text)
}
