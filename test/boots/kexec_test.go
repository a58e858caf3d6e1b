//go:build boots

package boots

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/sysroot"
)

// A fast is a node that is to leave out the firmware, and what comes in its way.
type fast struct {
	name string
	// files are added.
	files []etcFile
	// starts are how often the firmware starts, boots how often a kernel does.
	starts, boots int
	// later says that the node reboots once more, after its kubelet ran.
	later bool
	// off says that the machine is switched off where it was to reboot.
	off bool
	// stays says that the deployment stays what it was: nothing was finalized.
	stays bool
	// said is what oneboot says on the way.
	said string
}

// after adds a step after the fast reboot was armed.
func after(step string) etcFile {
	return dropIn("[Service]\nExecStartPost=+" + step + "\n")
}

// newerDaemon is what the machine-config-daemon asks of its reboot since 4.16; the one
// in these tests is older.
var newerDaemon = etcFile{name: "/etc/systemd/system/" + rebootUnit + ".d/newer.conf",
	content: "[Unit]\nRequires=ostree-finalize-staged.service\nAfter=ostree-finalize-staged.service\n"}

const rebootUnit = "machine-config-daemon-reboot.service"

// otherLoader loads another kernel when it is stopped, after oneboot's own unit.
const otherLoader = `[Unit]
DefaultDependencies=no
After=local-fs.target
Before=oneboot-kexec-load.service final.target
Conflicts=final.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/true
ExecStop=/usr/libexec/boots/load-other
`

var fasts = []fast{
	// The reboot of an update, later, is a normal one.
	{name: "good and a reboot later", files: []etcFile{newerDaemon, {name: "/etc/boots-reboot-once", content: "once\n"}}, later: true, starts: 2, boots: 3},
	{name: "the load fails", files: []etcFile{after("/bin/sh -c 'echo 1 >/proc/sys/kernel/kexec_load_disabled'")}, starts: 2, boots: 2, said: "loading the kernel: "},
	{name: "another unit has loaded another kernel", files: []etcFile{newerDaemon, after("/usr/libexec/boots/load-other")}, starts: 2, boots: 2, said: "somebody else has loaded a kernel"},
	{name: "another unit loads another kernel afterwards", files: []etcFile{{name: "/etc/systemd/system/other-loader.service", content: otherLoader},
		after("/usr/bin/systemctl start other-loader.service")}, starts: 2, boots: 2, said: "somebody else has loaded a kernel"},
	{name: "the stamp is stale", files: []etcFile{newerDaemon, {name: "/etc/boots-stale.json", content: `{"bootID":"another","commandLine":"x"}`},
		after("/bin/sh -c 'cp /etc/boots-stale.json /run/oneboot/kexec.json; rm /run/oneboot/fast-reboot.json'")}, starts: 2, boots: 2, said: "the stamp is another boot's"},
	{name: "switched off instead", files: []etcFile{{name: "/etc/systemd/system/" + rebootUnit + ".d/test.conf", content: "[Service]\nExecStart=\nExecStart=/usr/bin/systemctl poweroff\n"}},
		off: true, starts: 2, boots: 2},
	{name: "nothing was finalized", files: []etcFile{{name: "/etc/systemd/system/ostree-finalize-staged.service.d/test.conf", content: "[Service]\nExecStop=\nExecStop=/bin/false\n"}}, starts: 2, boots: 2, stays: true, said: "was not finalized"},
}

// newArgument is what the new deployment's boot entry has more than the booted one's.
const newArgument = "boots.new=1"

// TestKexec counts the starts of the firmware: QEMU ends where the machine resets, and
// does not where a kernel starts another one.
func TestKexec(t *testing.T) {
	needTools(t)
	kexec(t, newMaster(t, bookworm), fasts)
	kexec(t, newMaster(t, trixie), fasts[:1])
}

// TestKexecLater has the other cases on the later systemd too; make test-kexec-later
// runs it alone, for it takes long.
func TestKexecLater(t *testing.T) {
	needTools(t)
	kexec(t, newMaster(t, trixie), fasts[1:])
}

func kexec(t *testing.T, m master, cases []fast) {
	for _, f := range cases {
		t.Run(m.Release+" "+f.name, func(t *testing.T) {
			t.Parallel()
			l := &lab{t, m}
			n := l.fastNode(f.files...)
			// What comes before the journey that ends with a kubelet and a shutdown.
			var first []boot
			if f.later || f.off {
				first = []boot{n.boot(nil)}
				l.first(n, first[0], f)
			}
			j := n.join(nil)
			j.boots = append(first, j.boots...)
			l.arrived(n, j, f)
		})
	}
}

// first checks a start that does not end with the kubelet's shutdown.
func (l *lab) first(n *node, b boot, f fast) {
	l.t.Helper()
	switch k := b.kubelet; {
	case f.off && (!b.off || k != nil):
		l.t.Fatalf("the machine was to turn itself off; its console:\n%s", b.console(80))
	case f.later && (b.off || k == nil || k.Boots != 2 || k.Deployment != l.m.Other.Merge+".0"):
		l.t.Fatalf("the kubelet is %+v; want the one of the second boot of the new deployment, in the first start; the console:\n%s", k, b.console(120))
	case f.later:
		e := n.bootEntry()
		if want := verdict.KexecCommandLine(e.options, e.linux); k.Arguments != want || !strings.Contains(want, newArgument) {
			l.t.Errorf("got the arguments\n%s\nwant\n%s", k.Arguments, want)
		}
		l.t.Logf("from the reboot to the next kernel's first unit, by kexec: %s", b.gap())
	}
}

// fastNode is a node that is to become another image, which a registry tells the
// version of, and may leave out the firmware although it is a virtual machine.
func (l *lab) fastNode(files ...etcFile) *node {
	l.t.Helper()
	reg, err := registry.Start(registry.Options{Dir: l.m.Registry})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { reg.Close() })
	_, port, err := net.SplitHostPort(reg.Host)
	if err != nil {
		l.t.Fatal(err)
	}
	n := l.node(l.m.Other, append([]etcFile{enableOneboot, {name: "/etc/boots-argument", content: newArgument + "\n"},
		{name: "/etc/oneboot/firstboot.env", content: "ONEBOOT_FAST_REBOOT=kexec\n"},
		{name: "/etc/oneboot/fast-reboot.allow", content: verdict.VirtualAllowed + "\n"},
		{name: "/etc/containers/registries.conf", content: fmt.Sprintf("unqualified-search-registries = []\n[[registry]]\nprefix = \"registry.invalid\"\nlocation = %q\ninsecure = true\n",
			net.JoinHostPort("10.0.2.2", port))},
	}, files...)...)
	n.network = true
	return n
}

// arrived checks where the node came to, and by how many starts.
func (l *lab) arrived(n *node, j journey, f fast) {
	l.t.Helper()
	want, release := l.m.Other.Merge+".0", otherRelease
	if f.stays {
		want, release = l.m.Booted.Merge+".0", bootedRelease
	}
	if len(j.boots) != f.starts || j.kubelet.Boots != f.boots || j.kubelet.Deployment != want || j.kubelet.Release != release {
		l.t.Errorf("%d starts of the firmware, %d boots, %s (%s); want %d, %d, %s (%s)", len(j.boots), j.kubelet.Boots, j.kubelet.Deployment, j.kubelet.Release, f.starts, f.boots, want, release)
	}
	if got, want := j.kubelet.Arguments, n.bootEntry().options; got != strings.TrimSpace(want) || strings.Contains(got, newArgument) == f.stays {
		l.t.Errorf("got the arguments\n%s\nwant\n%s", got, want)
	}
	ids, ok := n.read("/ostree/deploy/" + sysroot.Stateroot + "/var/lib/boots/ids")
	seen := map[string]bool{}
	for _, id := range strings.Fields(ids) {
		seen[id] = true
	}
	if !ok || len(seen) != f.boots {
		l.t.Errorf("%d different boot ids, want %d", len(seen), f.boots)
	}
	if r := l.record(n); r == nil || r.FastReboot != "kexec" || r.Verdict.FastReboot.State != verdict.FastRebootPossible {
		l.t.Errorf("the record is %s; want the fast reboot possible", show(r))
	}
	all := ""
	for _, b := range j.boots {
		all += b.console(len(b.lines))
	}
	if !strings.Contains(all, f.said) {
		l.t.Errorf("nobody said %q", f.said)
	}
	if len(j.boots) == 2 && !f.later && !f.off {
		l.t.Logf("from the reboot to the next kernel's first unit, by a reset: %s", resetGap(j.boots[0], j.boots[1]))
	}
	for i, b := range j.boots {
		l.t.Logf("start %d:\n%s", i+1, b.said())
	}
	if l.t.Failed() {
		l.t.Logf("the consoles:\n%s", all)
	}
}

// gap is the time from the daemon's reboot to the next boot's own mark.
func (b *boot) gap() string {
	var asked line
	for _, l := range b.lines {
		switch {
		case strings.Contains(l.text, "initiating reboot"):
			asked = l
		case asked.text != "" && strings.Contains(l.text, "BOOTS-BOOT "):
			return l.at.Sub(asked.at).String()
		}
	}
	return "not seen"
}

// resetGap is the same where the machine was reset in between. QEMU's own end and
// start do not count.
func resetGap(first, second boot) string {
	for _, l := range first.lines {
		if !strings.Contains(l.text, "initiating reboot") {
			continue
		}
		for _, m := range second.lines {
			if strings.Contains(m.text, "BOOTS-BOOT ") {
				return (first.lines[len(first.lines)-1].at.Sub(l.at) + m.at.Sub(second.start)).String()
			}
		}
	}
	return "not seen"
}
