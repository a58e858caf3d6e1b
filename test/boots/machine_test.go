//go:build boots

package boots

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is the most that a boot may take, oneboot's own waits aside. On an
// idle machine it takes a minute.
const bootTime = 8 * time.Minute

// A node is a disk and the machine that it is in.
type node struct {
	t    *testing.T
	disk string
	// arguments are added to the boot entry's by the boot loader.
	arguments string
	// network gives the machine QEMU's user network: the host's loopback is
	// at 10.0.2.2.
	network bool
	// longer is added to bootTime.
	longer time.Duration
}

// A line is one line of the console.
type line struct {
	text string
	at   time.Time
}

// A mark is what the guest's stand-ins say on the console.
type mark struct {
	BootID     string  `json:"bootID"`
	Boots      int     `json:"boots"`
	Uptime     float64 `json:"uptime"`
	Deployment string  `json:"deployment"`
	Release    string  `json:"release"`
	Origin     string  `json:"origin"`
	Arguments  string  `json:"arguments"`
	at         time.Time
}

// A boot is one start of the machine.
type boot struct {
	start time.Time
	lines []line
	// kubelet is nil where it was not started.
	kubelet *mark
	// off says that the machine turned itself off, killed that the power was
	// cut; else it rebooted.
	off, killed bool
	// processor is the time that the emulator computed.
	processor time.Duration
}

// A bootEntry is what the boot loader reads from the disk.
type bootEntry struct {
	version                int
	linux, initrd, options string
}

// newNode copies a disk.
func newNode(t *testing.T, d disk) *node {
	t.Helper()
	n := &node{t: t, disk: filepath.Join(t.TempDir(), "disk.img")}
	command(t, "cp", "--sparse=always", d.File, n.disk)
	return n
}

// debugfs runs one command on the disk, while no machine does.
func (n *node) debugfs(write bool, request string) string {
	n.t.Helper()
	args := []string{"-R", request, n.disk}
	if write {
		args = append([]string{"-w"}, args...)
	}
	out, err := exec.Command("debugfs", args...).Output()
	if err != nil {
		n.t.Fatalf("running debugfs %s: %v", request, err)
	}
	return string(out)
}

// replay brings a disk whose power was cut to the state that the kernel finds when
// it mounts it: debugfs reads what is in place, and not what is in the journal only.
func (n *node) replay() {
	n.t.Helper()
	out, err := exec.Command("e2fsck", "-y", "-E", "journal_only", n.disk).CombinedOutput()
	var exit *exec.ExitError
	// 1 says that something was done.
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() > 1) {
		n.t.Fatalf("replaying the journal: %v: %s", err, out)
	}
}

// write puts a file on the disk, with the folders that it needs. Its owner is
// root.
func (n *node) write(name string, content []byte, mode os.FileMode) {
	n.t.Helper()
	source := filepath.Join(n.t.TempDir(), "file")
	if err := os.WriteFile(source, content, mode); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Chmod(source, mode); err != nil {
		n.t.Fatal(err)
	}
	n.makeDirs(path.Dir(name))
	n.debugfs(true, "rm "+name)
	n.debugfs(true, "write "+source+" "+name)
	if got, ok := n.read(name); !ok || got != string(content) {
		n.t.Fatalf("writing %s on the disk: %d bytes are there, not %d", name, len(got), len(content))
	}
}

func (n *node) makeDirs(dir string) {
	n.t.Helper()
	at := ""
	for _, part := range strings.Split(strings.Trim(dir, "/"), "/") {
		at += "/" + part
		if !strings.Contains(n.debugfs(false, "stat "+at), "Type:") {
			n.debugfs(true, "mkdir "+at)
		}
	}
}

// link makes a symbolic link on the disk.
func (n *node) link(name, target string) {
	n.t.Helper()
	n.makeDirs(path.Dir(name))
	n.debugfs(true, "symlink "+name+" "+target)
}

// read reads a file of the disk.
func (n *node) read(name string) (string, bool) {
	n.t.Helper()
	target := filepath.Join(n.t.TempDir(), "file")
	n.debugfs(false, "dump "+name+" "+target)
	text, err := os.ReadFile(target)
	return string(text), err == nil
}

var listed = regexp.MustCompile(`(?m)/([^/\n]+\.conf)/`)

// bootEntry is the entry that a boot loader would start: that with the highest
// version.
func (n *node) bootEntry() bootEntry {
	n.t.Helper()
	const dir = "/boot/loader/entries"
	var all []bootEntry
	for _, m := range listed.FindAllStringSubmatch(n.debugfs(false, "ls -p "+dir), -1) {
		text, _ := n.read(dir + "/" + m[1])
		var e bootEntry
		for l := range strings.Lines(text) {
			switch k, v, _ := strings.Cut(strings.TrimSpace(l), " "); k {
			case "version":
				e.version, _ = strconv.Atoi(v) // none is as low as can be
			case "linux":
				e.linux = v
			case "initrd":
				e.initrd = v
			case "options":
				e.options = v
			}
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		n.t.Fatalf("the disk has no boot entry; debugfs says:\n%s", n.debugfs(false, "ls -l "+dir))
	}
	return slices.MaxFunc(all, func(a, b bootEntry) int { return cmp.Compare(a.version, b.version) })
}

// boot starts the machine and waits until it stops, or cuts its power when cut
// says so of a line on the console.
func (n *node) boot(cut func(string) bool) boot {
	n.t.Helper()
	entry := n.bootEntry()
	dir := n.t.TempDir()
	for name, file := range map[string]string{"linux": entry.linux, "initrd": entry.initrd} {
		content, ok := n.read("/boot" + strings.TrimPrefix(file, "/boot"))
		if !ok {
			n.t.Fatalf("the disk has no %s", file)
		}
		writeFile(n.t, filepath.Join(dir, name), content)
	}
	nic := "none"
	if n.network {
		nic = "user,model=virtio-net-pci"
	}
	cmd := exec.Command("nice", "qemu-system-x86_64", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max", "-smp", "2", "-m", "1536",
		"-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot", "-nic", nic,
		"-drive", "file="+n.disk+",format=raw,if=virtio",
		"-kernel", filepath.Join(dir, "linux"), "-initrd", filepath.Join(dir, "initrd"),
		"-append", strings.TrimSpace(entry.options+" "+n.arguments))
	// It ends with the test, however that ends.
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	console, err := cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	b := boot{start: time.Now()}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	late := time.AfterFunc(bootTime+n.longer, func() { _ = cmd.Process.Kill() })
	b.follow(n.t, console, func(text string) bool {
		if cut == nil || !cut(text) {
			return false
		}
		_ = cmd.Process.Kill()
		return true
	})
	err = cmd.Wait()
	b.processor = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if b.killed {
		n.replay()
	}
	n.t.Logf("a boot of %.0f s, %.0f s of processor time", time.Since(b.start).Seconds(), b.processor.Seconds())
	if !late.Stop() {
		n.t.Fatalf("the machine did not stop in time; its console:\n%s", b.console(60))
	}
	if err != nil && !b.killed {
		n.t.Fatalf("running QEMU: %v: %s\n%s", err, said.String(), b.console(60))
	}
	return b
}

// follow reads the console until it closes.
func (b *boot) follow(t *testing.T, console io.Reader, cut func(string) bool) {
	t.Helper()
	r := bufio.NewReader(console)
	for {
		text, err := r.ReadString('\n')
		l := line{strings.TrimRight(text, "\r\n"), time.Now()}
		b.lines = append(b.lines, l)
		if _, said, ok := strings.Cut(l.text, "BOOTS-KUBELET "); ok {
			m := &mark{at: l.at}
			if err := json.Unmarshal([]byte(said), m); err != nil {
				t.Errorf("reading the kubelet's mark %q: %v", said, err)
			}
			b.kubelet = m
		}
		b.off = b.off || strings.Contains(l.text, "reboot: Power down")
		if !b.killed && cut(l.text) {
			b.killed = true
		}
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			t.Errorf("reading the console: %v", err)
			return
		}
	}
}

// console is the end of what the console showed, with seconds since the start.
func (b *boot) console(lines int) string {
	var text strings.Builder
	for _, l := range b.lines[max(0, len(b.lines)-lines):] {
		text.WriteString(strconv.FormatFloat(l.at.Sub(b.start).Seconds(), 'f', 1, 64) + " " + l.text + "\n")
	}
	return text.String()
}

// said are the lines of the console that have to do with the first boot.
func (b *boot) said() string {
	var some boot
	some.start = b.start
	for _, l := range b.lines {
		for _, who := range []string{"BOOTS-", "oneboot", "machine-config-daemon", "rpm-ostree"} {
			if strings.Contains(l.text, who) && !strings.Contains(l.text, "Command line:") {
				some.lines = append(some.lines, l)
				break
			}
		}
	}
	return some.console(len(some.lines))
}

// A journey is how a node came to its kubelet.
type journey struct {
	boots   []boot
	kubelet mark
	// seconds is the time from the first start to the kubelet's.
	seconds float64
}

// most is how many boots a node may take: more is a loop.
const most = 4

// join boots the node, again when it reboots, until its kubelet runs. Cut may
// cut the power in the first boot.
func (n *node) join(cut func(string) bool) journey {
	n.t.Helper()
	var j journey
	for range most {
		b := n.boot(cut)
		cut = nil
		j.boots = append(j.boots, b)
		switch {
		case b.off && b.kubelet != nil:
			j.kubelet = *b.kubelet
			j.seconds = b.kubelet.at.Sub(j.boots[0].start).Seconds()
			return j
		case b.off:
			n.t.Fatalf("boot %d ended without a kubelet; its console:\n%s", len(j.boots), b.console(80))
		case b.kubelet != nil && !b.killed:
			n.t.Errorf("the kubelet ran in boot %d, which was to end with a reboot", len(j.boots))
		}
	}
	n.t.Fatalf("no kubelet after %d boots; the last console:\n%s", most, j.boots[most-1].console(80))
	return j
}
