//go:build mcd

package mcdlab

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/sysroot"
)

// unitRuns reports whether the conditions of machine-config-daemon-pull.service
// and machine-config-daemon-firstboot.service hold
// (templates/common/_base/units of the machine-config-operator).
func (n *node) unitRuns() bool {
	return n.exists(sysroot.BootedPath) && n.exists(encapsulatedPath)
}

// diskImage is a node that has booted a disk image of the very release: nothing
// but the origin's name for it differs.
func diskImage(o nodeOptions) nodeOptions {
	o.container, o.origin = true, bootimageOrigin
	return o
}

func eachDaemon(t *testing.T, test func(*testing.T, *lab, daemonBuild)) {
	l := newLab(t)
	for _, d := range daemons() {
		t.Run(d.release, func(t *testing.T) {
			t.Parallel()
			test(t, l, d)
		})
	}
}

// TestWithoutOneboot: the daemon pivots a node to the OS that it runs.
func TestWithoutOneboot(t *testing.T) {
	eachDaemon(t, func(t *testing.T, l *lab, d daemonBuild) {
		n := l.bootNode(t, d, diskImage(nodeOptions{}))
		r := n.mcd(t)
		if r.outcome != rebooted || !strings.Contains(r.diff(), "osUpdate:true") ||
			!r.called("rpm-ostree rebase --experimental ostree-unverified-registry:"+n.url) {
			t.Errorf("the daemon %s\n%s", r.outcome, r.output)
		}
		if !n.exists(encapsulatedPath + ".bak") {
			t.Error("the encapsulated file has not been put aside")
		}
		if got := n.nextOrigin(t); !strings.Contains(got, n.url) {
			t.Errorf("the next boot has the origin %s", got)
		}
	})
}

// nextOrigin is the origin's text of the deployment that boots next.
func (n *node) nextOrigin(t *testing.T) string {
	t.Helper()
	d, _, err := next(n.Sysroot)
	if err != nil {
		t.Fatal(err)
	}
	return string(must[[]byte](t)(os.ReadFile(d.OriginFile())))
}

// TestAssert: the daemon finds no difference and skips by its own code.
func TestAssert(t *testing.T) {
	eachDaemon(t, func(t *testing.T, l *lab, d daemonBuild) {
		for _, o := range []nodeOptions{diskImage(nodeOptions{}), {}} {
			n := l.bootNode(t, d, o)
			if act := n.firstboot(t, "assert"); act.State != record.ActDone || !n.unitRuns() {
				t.Errorf("act %+v, unit runs: %v", act, n.unitRuns())
			}
			r := n.mcd(t)
			if r.outcome != skipped || r.diff() != "" {
				t.Errorf("the daemon %s\n%s", r.outcome, r.output)
			}
			asked := []string{"rpm-ostree --version", "rpm-ostree status --json", "rpm-ostree kargs", "systemctl daemon-reload"}
			for _, c := range r.calls {
				if !slices.Contains(asked, c) {
					t.Errorf("it called %s", c)
				}
			}
			if n.unitRuns() || n.exists(encapsulatedPath+".bak") {
				t.Error("the daemon did not end the first boot as it does where it skips")
			}
			if all := must[[]sysroot.Deployment](t)(n.Sysroot.Deployments()); len(all) != 1 {
				t.Errorf("%d deployments", len(all))
			}
		}
	})
}

// TestComplete: the daemon's units do not run, and its work is done.
func TestComplete(t *testing.T) {
	eachDaemon(t, func(t *testing.T, l *lab, d daemonBuild) {
		n := l.bootNode(t, d, diskImage(nodeOptions{}))
		file := n.read(encapsulatedPath)
		if act := n.firstboot(t, "complete"); act.State != record.ActDone || act.Mode != "complete" {
			t.Errorf("act %+v", act)
		}
		if n.unitRuns() {
			t.Error("the daemon's units would run")
		}
		if diff := cmp.Diff(file, n.read(encapsulatedPath+".bak")); diff != "" {
			t.Errorf("the file put aside (-want +got):\n%s", diff)
		}
		// What the daemon leaves where it has updated a twin of the node.
		twin := l.bootNode(t, d, diskImage(nodeOptions{}))
		twin.mcd(t)
		for _, name := range []string{kubeconfigPath, encapsulatedPath + ".bak"} {
			want, got := must[os.FileInfo](t)(os.Stat(twin.Path(name))), must[os.FileInfo](t)(os.Stat(n.Path(name)))
			if got.Mode() != want.Mode() || n.read(name) != twin.read(name) {
				t.Errorf("%s: got %s %q, want %s %q", name, got.Mode(), n.read(name), want.Mode(), twin.read(name))
			}
		}
	})
}

// TestAuto: where the daemon cannot see that the arguments are there, the first
// boot is completed; where it can, it keeps the last word.
func TestAuto(t *testing.T) {
	eachDaemon(t, func(t *testing.T, l *lab, d daemonBuild) {
		for _, tt := range []struct {
			have, want []string
			mode       map[string]string
		}{
			{[]string{"nosmt"}, []string{"nosmt"}, map[string]string{"4.14.0": "complete", "4.20.0": "assert"}},
			{[]string{"a=1", "b=2"}, []string{"a=1 b=2"}, map[string]string{"4.14.0": "complete", "4.20.0": "complete"}},
			{nil, nil, map[string]string{"4.14.0": "assert", "4.20.0": "assert"}},
		} {
			n := l.bootNode(t, d, diskImage(nodeOptions{kargs: tt.have, mc: sysroot.MachineConfig{KernelArguments: tt.want}}))
			act := n.firstboot(t, "auto")
			if act.State != record.ActDone || act.Mode != tt.mode[d.release] {
				t.Errorf("%v: act %+v, want %s", tt.want, act, tt.mode[d.release])
			}
			if n.unitRuns() != (act.Mode == "assert") {
				t.Errorf("%v: %s, and the daemon's units would run: %v", tt.want, act.Mode, n.unitRuns())
			}
			if n.unitRuns() {
				if r := n.mcd(t); r.outcome != skipped {
					t.Errorf("%v: the daemon %s\n%s", tt.want, r.outcome, r.output)
				}
			}
		}
	})
}

// TestToApply: what is to be applied is applied as without oneboot.
func TestToApply(t *testing.T) {
	eachDaemon(t, func(t *testing.T, l *lab, d daemonBuild) {
		for _, tt := range []struct {
			mc   sysroot.MachineConfig
			call string
		}{
			{sysroot.MachineConfig{KernelArguments: []string{"nosmt"}}, "rpm-ostree kargs "},
			{sysroot.MachineConfig{Extensions: []string{"usbguard"}}, "rpm-ostree update --install usbguard"},
			{sysroot.MachineConfig{KernelType: "realtime"}, "rpm-ostree override remove kernel"},
		} {
			for _, mode := range []string{"assert", "complete", "auto"} {
				n := l.bootNode(t, d, diskImage(nodeOptions{mc: tt.mc}))
				if act := n.firstboot(t, mode); act.State != record.ActNone {
					t.Errorf("%s: act %+v", mode, act)
				}
				r := n.mcd(t)
				if r.outcome != rebooted || !r.called(tt.call) || !r.called("rpm-ostree rebase") {
					t.Errorf("%s: the daemon %s\n%s", mode, r.outcome, r.output)
				}
			}
		}
	})
}

// TestSatisfiedExtension: the daemon takes no host to have extensions and
// reboots one that has them. Asserted, it leaves the OS alone and reboots all
// the same; completed, it does not run.
func TestSatisfiedExtension(t *testing.T) {
	eachDaemon(t, func(t *testing.T, l *lab, d daemonBuild) {
		o := diskImage(nodeOptions{layered: true, mc: sysroot.MachineConfig{Extensions: []string{usbguard.Name}}})
		for _, tt := range []struct {
			mode          string
			runs, rebases bool
		}{
			{"report", true, true},
			{"assert", true, false},
			{"complete", false, false},
			{"auto", false, false},
		} {
			n := l.bootNode(t, d, o)
			act := n.firstboot(t, tt.mode)
			if n.unitRuns() != tt.runs {
				t.Fatalf("%s: the daemon's units would run: %v, act %+v", tt.mode, n.unitRuns(), act)
			}
			if !tt.runs {
				continue
			}
			if r := n.mcd(t); r.outcome != rebooted || r.called("rpm-ostree rebase") != tt.rebases {
				t.Errorf("%s: the daemon %s\n%s", tt.mode, r.outcome, r.output)
			}
		}
	})
}

// TestRevert: an act that is undone leaves the daemon what it was.
func TestRevert(t *testing.T) {
	eachDaemon(t, func(t *testing.T, l *lab, d daemonBuild) {
		for _, mode := range []string{"assert", "complete"} {
			n := l.bootNode(t, d, diskImage(nodeOptions{}))
			origin, file := n.origin(t), n.read(encapsulatedPath)
			if act := n.firstboot(t, mode); act.State != record.ActDone {
				t.Errorf("%s: act %+v", mode, act)
			}
			n.run(t, "revert")
			if n.origin(t) != origin || n.read(encapsulatedPath) != file {
				t.Errorf("%s: revert left the origin\n%s", mode, n.origin(t))
			}
			if r := n.mcd(t); r.outcome != rebooted || !r.called("rpm-ostree rebase") {
				t.Errorf("%s: the daemon %s\n%s", mode, r.outcome, r.output)
			}
		}
	})
}

// TestLaterDeployments: after an act the node is rebased to the same image, and
// gets other kernel arguments, as rpm-ostree does both. The deployments that
// this makes name the image, and a daemon finds nothing to do on them.
func TestLaterDeployments(t *testing.T) {
	eachDaemon(t, func(t *testing.T, l *lab, d daemonBuild) {
		for _, o := range []nodeOptions{diskImage(nodeOptions{}), {}} {
			n := l.bootNode(t, d, o)
			n.firstboot(t, "assert")
			n.mcd(t)
			reference := "ostree-unverified-registry:" + n.url
			for name, change := range map[string]func() error{
				"rebase":    func() error { return rebase(n.Sysroot, reference) },
				"arguments": func() error { return changeArguments(n.Sysroot, []string{"--append=nosmt"}) },
			} {
				if err := change(); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				later, _, err := next(n.Sysroot)
				if err != nil {
					t.Fatal(err)
				}
				n.deployment = later
				n.boot(t, later, o)
				if v := n.analyze(t); v.Action != verdict.Skip || !v.MCO.WouldSkip {
					t.Errorf("%s: reason %s, the daemon would skip: %v (%v)", name, v.Reason, v.MCO.WouldSkip, codes(v.MCO))
				}
				if r := n.mcd(t); r.outcome != skipped {
					t.Errorf("%s: the daemon %s\n%s", name, r.outcome, r.output)
				}
			}
			must[string](t)(sysroot.Ostree("fsck", "--repo="+n.Sysroot.Repo()))
			must[string](t)(sysroot.Ostree("admin", "cleanup", "--sysroot="+n.Sysroot.Dir))
		}
	})
}
