//go:build boots

package boots

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/sysroot"
)

// A run is what one test measured, for the table at the end.
type run struct {
	name    string
	boots   int
	seconds float64
}

// TestBoots runs the journeys that are compared one after the other: each has
// the machine for itself, and the table compares like with like. Of the others
// two run at a time.
func TestBoots(t *testing.T) {
	needTools(t)
	m := newMaster(t, bookworm)
	play := func(t *testing.T, f func(t *testing.T, l *lab) journey) journey {
		j := f(t, &lab{t, m})
		for i, b := range j.boots {
			t.Logf("boot %d:\n%s", i+1, b.said())
		}
		t.Logf("%d boots, %.0f s to the kubelet", len(j.boots), j.seconds)
		return j
	}
	t.Run("compared", func(t *testing.T) {
		var runs []run
		for _, c := range []struct {
			name string
			f    func(t *testing.T, l *lab) journey
		}{
			{"another target", otherTarget},
			{"without oneboot", withoutOneboot},
			{"same target", sameTarget},
			{"same target mode complete", completeMode},
			{"same target asked of a registry", askedRegistry},
		} {
			t.Run(c.name, func(t *testing.T) {
				j := play(t, c.f)
				runs = append(runs, run{c.name, len(j.boots), j.seconds})
			})
		}
		t.Log(table(runs))
	})
	t.Run("others", func(t *testing.T) {
		beside := func(name string, f func(t *testing.T, l *lab) journey) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				play(t, f)
			})
		}
		beside("hanging oneboot", hanging)
		beside("switched off", switchedOff)
		for _, c := range cuts {
			beside("power cut "+c.name, func(t *testing.T, l *lab) journey { return cutOff(t, l, c) })
		}
	})
}

// table shows the runs, each against that without oneboot.
func table(runs []run) string {
	var base float64
	for _, r := range runs {
		if r.name == "without oneboot" {
			base = r.seconds
		}
	}
	var b strings.Builder
	b.WriteString("time to the kubelet\n")
	for _, r := range runs {
		fmt.Fprintf(&b, "%-40s %d boots %6.1f s", r.name, r.boots, r.seconds)
		if base > 0 {
			fmt.Fprintf(&b, "  %.2f of the time without oneboot", r.seconds/base)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// A lab makes the nodes of one test.
type lab struct {
	t *testing.T
	m master
}

// The files of a node that a machine-config-server has served.
const (
	encapsulated = "/etc/ignition-machine-config-encapsulated.json"
	kubeconfig   = "/etc/kubernetes/kubeconfig"
	annotations  = "/etc/machine-config-daemon/node-annotations.json"
)

// node is a new node that is to become the image. Files are added to its /etc;
// where oneboot is to run, enableOneboot is among them.
func (l *lab) node(image osImage, files ...etcFile) *node {
	l.t.Helper()
	return l.nodeOn(l.m.Container, image, files...)
}

// nodeOn is node on another disk.
func (l *lab) nodeOn(d disk, image osImage, files ...etcFile) *node {
	l.t.Helper()
	n := newNode(l.t, d)
	mc := sysroot.MachineConfig{
		OSImageURL:  image.reference(),
		Annotations: map[string]string{"machineconfiguration.openshift.io/release-image-version": "4.14.0"},
	}
	text, err := mc.JSON()
	if err != nil {
		l.t.Fatal(err)
	}
	files = append(files,
		etcFile{name: encapsulated, content: text},
		etcFile{name: kubeconfig, content: "apiVersion: v1\nkind: Config\n"},
		etcFile{name: annotations, content: `{"machineconfiguration.openshift.io/currentConfig":"rendered-worker-0"}` + "\n"},
	)
	for _, f := range files {
		if f.link != "" {
			n.link(d.deployment()+f.name, f.link)
			continue
		}
		n.write(d.deployment()+f.name, []byte(f.content), 0o644)
	}
	return n
}

// An etcFile is a file or a symbolic link that Ignition would have made.
type etcFile struct{ name, content, link string }

// enableOneboot is what systemctl enable makes of the shipped unit.
var enableOneboot = etcFile{
	name: "/etc/systemd/system/firstboot-osupdate.target.wants/" + onebootUnit,
	link: "/" + unitsDir + "/" + onebootUnit,
}

// dropIn changes the shipped unit.
func dropIn(text string) etcFile {
	return etcFile{name: "/etc/systemd/system/" + onebootUnit + ".d/test.conf", content: text}
}

// record reads oneboot's record from the disk of a node that is off.
func (l *lab) record(n *node) *record.Record {
	l.t.Helper()
	text, ok := n.read("/ostree/deploy/" + sysroot.Stateroot + "/var" + strings.TrimPrefix(record.Path, "/var"))
	if !ok {
		return nil
	}
	r, err := record.Parse([]byte(text))
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// joined checks how a node came to its kubelet.
func (l *lab) joined(j journey, boots int, deployment, release, origin string) {
	l.t.Helper()
	if len(j.boots) != boots || j.kubelet.Boots != boots {
		l.t.Errorf("%d boots, the node counted %d; want %d", len(j.boots), j.kubelet.Boots, boots)
	}
	if j.kubelet.Deployment != deployment || j.kubelet.Release != release {
		l.t.Errorf("the kubelet runs on %s (%s); want %s (%s)", j.kubelet.Deployment, j.kubelet.Release, deployment, release)
	}
	if !strings.Contains(j.kubelet.Origin, origin+"\n") {
		l.t.Errorf("the origin is\n%s\nwant\n%s", j.kubelet.Origin, origin)
	}
	if l.t.Failed() {
		l.t.Logf("the end of the last console:\n%s", j.boots[len(j.boots)-1].console(100))
	}
}

// containerOrigin is the line of an origin file that names the image.
func containerOrigin(image osImage) string {
	return "container-image-reference=ostree-unverified-registry:" + image.reference()
}

// pivoted checks that the node pivoted to the content that it had.
func (l *lab) pivoted(j journey) {
	l.t.Helper()
	l.joined(j, 2, l.m.Booted.Merge+".1", bootedRelease, containerOrigin(l.m.Booted))
}

// skipped checks that the node went on with what it booted.
func (l *lab) skipped(j journey, boots int) {
	l.t.Helper()
	l.joined(j, boots, l.m.Booted.Merge+".0", bootedRelease, containerOrigin(l.m.Booted))
}

func otherTarget(t *testing.T, l *lab) journey {
	n := l.node(l.m.Other, enableOneboot, etcFile{name: "/etc/oneboot/firstboot.env", content: "ONEBOOT_FAST_REBOOT=kexec\n"})
	j := n.join(nil)
	l.joined(j, 2, l.m.Other.Merge+".0", otherRelease, containerOrigin(l.m.Other))
	if r := l.record(n); r == nil || r.Verdict.Action != verdict.Proceed {
		t.Errorf("the record is %s; want proceed", show(r))
	} else if f := r.Verdict.FastReboot; f.State != verdict.FastRebootRefused || !slices.ContainsFunc(f.Why, func(w verdict.FastRebootReason) bool { return w.Code == verdict.FastRebootVirtual }) {
		t.Errorf("in a virtual machine the fast reboot is %s", show(f))
	}
	return j
}

func withoutOneboot(t *testing.T, l *lab) journey {
	j := l.node(l.m.Booted).join(nil)
	l.pivoted(j)
	return j
}

func sameTarget(t *testing.T, l *lab) journey {
	n := l.node(l.m.Booted, enableOneboot)
	j := n.join(nil)
	l.skipped(j, 1)
	l.decided(n)
	return j
}

// decided checks the record of a skip that needed no registry.
func (l *lab) decided(n *node) {
	l.t.Helper()
	r := l.record(n)
	if r == nil || r.Verdict.Action != verdict.Skip || r.Verdict.Proof != verdict.ProofManifestDigest || r.Registry.Requests != 0 {
		l.t.Errorf("the record is %s; want a skip proven by the manifest's digest without a request", show(r))
	}
	l.acted(r)
}

// acted checks that the act was done, and logs what the run cost.
func (l *lab) acted(r *record.Record) {
	l.t.Helper()
	if r == nil {
		return
	}
	if r.Act == nil || r.Act.State != record.ActDone {
		l.t.Errorf("the act is %s; want it done", show(r.Act))
	}
	l.t.Logf("oneboot took %.1f s, %d requests and %d bytes", r.Seconds, r.Registry.Requests, r.Registry.Bytes)
}

// askedRegistry boots a node whose disk tells nothing of an image: the target's
// commit is asked of a registry on the host, over the machine's network.
func askedRegistry(t *testing.T, l *lab) journey {
	reg, err := registry.Start(registry.Options{Dir: l.m.Registry})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reg.Close() })
	_, port, err := net.SplitHostPort(reg.Host)
	if err != nil {
		t.Fatal(err)
	}
	image := l.m.Booted
	// Where QEMU has the host's loopback interface.
	host := net.JoinHostPort("10.0.2.2", port)
	image.Name = host + "/openshift/os"
	n := l.nodeOn(l.m.Plain, image, enableOneboot, etcFile{name: "/etc/containers/registries.conf",
		content: fmt.Sprintf("unqualified-search-registries = []\n[[registry]]\nlocation = %q\ninsecure = true\n", host)})
	n.network = true
	j := n.join(nil)
	l.joined(j, 1, l.m.Plain.Commit+".0", bootedRelease, "custom-url=pivot://"+image.reference())
	r := l.record(n)
	if r == nil || r.Verdict.Action != verdict.Skip || r.Verdict.Proof != verdict.ProofOSTreeCommit || r.Registry.Requests == 0 {
		t.Errorf("the record is %s; want a skip proven by the commit that the registry's image holds", show(r))
	}
	l.acted(r)
	return j
}

func completeMode(t *testing.T, l *lab) journey {
	n := l.node(l.m.Booted, enableOneboot, etcFile{name: "/etc/oneboot/firstboot.env", content: "ONEBOOT_MODE=complete\n"})
	j := n.join(nil)
	l.skipped(j, 1)
	l.decided(n)
	return j
}

func switchedOff(t *testing.T, l *lab) journey {
	n := l.node(l.m.Booted, enableOneboot)
	n.arguments = "oneboot=off"
	j := n.join(nil)
	l.pivoted(j)
	if r := l.record(n); r != nil {
		t.Errorf("oneboot ran: %s", show(r))
	}
	return j
}

// hanging runs a program that neither answers nor ends when it is asked to, in
// place of oneboot.
func hanging(t *testing.T, l *lab) journey {
	const said = "oneboot hangs now"
	n := l.node(l.m.Booted, enableOneboot, dropIn(`[Service]
ExecStart=
ExecStart=-/bin/sh -c 'trap "" TERM; echo `+said+`; while :; do sleep 1000; done'
`))
	n.longer = longestWait
	j := n.join(nil)
	l.pivoted(j)
	var began, over time.Time
	for _, line := range j.boots[0].lines {
		switch {
		case strings.Contains(line.text, said):
			began = line.at
		case over.IsZero() && strings.Contains(line.text, "machine-config-daemon["):
			over = line.at
		}
	}
	if wait := over.Sub(began); wait < longestWait-15*time.Second || wait > longestWait+30*time.Second {
		t.Errorf("the machine-config-daemon spoke %s after the hanging oneboot; want %s, and the time that it takes to start", wait, longestWait)
	} else {
		t.Logf("the machine-config-daemon spoke %s after the hanging oneboot", wait)
	}
	return j
}

// longestWait is what the shipped unit allows: TimeoutStartSec and twice
// TimeoutStopSec.
const longestWait = 130 * time.Second

// A cut is a moment at which the power goes off in the first boot.
type cut struct {
	name string
	mode string
	// file is renamed to its name for the count-th time before that.
	file  string
	count int
	// settled says that the rename is on the disk by then. Else the folder may
	// not be synced yet, and the next boot may find either name.
	settled bool
	// then is what oneboot says in the next boot; it says nothing at all where
	// empty. Only of a settled cut can be told.
	then string
}

var cuts = []cut{
	{name: "before the first change", mode: "assert", file: `"act.json")`, count: 1, settled: true, then: "cut off was undone"},
	{name: "at the last change", mode: "assert", file: `.0.origin")`, count: 1},
	{name: "before the record", mode: "assert", file: `"act.json")`, count: 2},
	{name: "at the commit point", mode: "complete", file: `encapsulated.json.bak",`, count: 1},
	{name: "after the commit point", mode: "complete", file: `encapsulated.json.bak",`, count: 1, settled: true},
}

// The traced oneboot waits so long before each rename, of which a settled cut
// lets the greater part go by.
const renameDelay, settling = 4 * time.Second, 2500 * time.Millisecond

// cutOff cuts the power in the middle of the act: oneboot is traced, and waits
// before each rename.
func cutOff(t *testing.T, l *lab, c cut) journey {
	n := l.node(l.m.Booted, enableOneboot, dropIn(fmt.Sprintf(`[Service]
ExecStart=
ExecStart=-/bin/sh -c 'if test $(wc -l < /var/lib/boots/ids) = 1; then \
  exec strace -f -qq --seccomp-bpf -e signal=none -e trace=renameat,renameat2 -e inject=renameat,renameat2:delay_enter=%ds oneboot firstboot --mode %s; \
  else exec oneboot firstboot --mode %s; fi'
SystemCallFilter=
`, int(renameDelay.Seconds()), c.mode, c.mode)))
	seen := 0
	j := n.join(func(line string) bool {
		if strings.Contains(line, "renameat") && strings.Contains(line, c.file) {
			seen++
		}
		if seen == c.count && c.settled {
			time.Sleep(settling)
		}
		return seen == c.count
	})
	l.skipped(j, 2)
	if !j.boots[0].killed {
		t.Error("the power was not cut")
	}
	said := j.boots[len(j.boots)-1].said()
	switch {
	case c.settled && c.then == "":
		// The machine-config-daemon was not to run either.
		for _, who := range []string{"oneboot[", "machine-config-daemon["} {
			if strings.Contains(said, who) {
				t.Errorf("%s spoke after the first boot was over:\n%s", who, said)
			}
		}
		return j
	case !strings.Contains(said, c.then):
		t.Errorf("oneboot did not say %q in the next boot:\n%s", c.then, said)
	}
	if c.mode == "assert" {
		l.decided(n)
	}
	return j
}

func show(v any) string {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(b)
}
