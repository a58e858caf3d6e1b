//go:build mcd

package mcdlab

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/sysroot"
)

// An answer is what a daemon does on a node, and the codes of the reasons that
// oneboot gives for it.
type answer struct {
	outcome outcome
	why     []string
}

var skips = answer{outcome: skipped}

func reboots(why ...string) answer { return answer{rebooted, why} }
func refuses(why ...string) answer { return answer{refused, why} }

// A scenario is a node, and what the daemons of 4.14 and 4.20 do on it.
type scenario struct {
	name        string
	node        nodeOptions
	old, recent answer
}

func (s scenario) answer(d daemonBuild) answer {
	if d.release == "4.14.0" {
		return s.old
	}
	return s.recent
}

const (
	registryOrigin = "container-image-reference=ostree-unverified-registry:%\n"
	pivotOrigin    = "custom-url=pivot://%\ncustom-description=Managed by machine-config-operator\n"
	otherImage     = "quay.io/openshift/os@sha256:1111111111111111111111111111111111111111111111111111111111111111"
)

func scenarios() []scenario {
	return slices.Concat(originScenarios(), argumentScenarios(), configScenarios(), hostScenarios())
}

// named is a node whose origin names the wanted image, which it runs.
func named(o nodeOptions) nodeOptions {
	o.container, o.origin = true, registryOrigin
	return o
}

// originScenarios differ in what the origin names.
func originScenarios() []scenario {
	container := func(reference string) nodeOptions {
		return nodeOptions{container: true, origin: "container-image-reference=" + reference + "\n"}
	}
	differs, spelling := reboots("os-image-url"), reboots("os-image-url-spelling")
	return []scenario{
		{name: "the reference is the wanted one", node: named(nodeOptions{}), old: skips, recent: skips},
		{name: "the reference of another image", node: container("ostree-unverified-registry:" + otherImage), old: differs, recent: differs},
		{name: "a disk image's own reference", node: nodeOptions{container: true, origin: bootimageOrigin}, old: differs, recent: differs},
		{name: "a disk image's own reference, another OS", node: nodeOptions{container: true, older: true, origin: bootimageOrigin}, old: differs, recent: differs},
		{name: "the wanted reference on another OS", node: nodeOptions{container: true, older: true, origin: registryOrigin}, old: skips, recent: skips},
		{name: "spelled ostree-unverified-image:docker", node: container("ostree-unverified-image:docker://%"), old: spelling, recent: skips},
		{name: "a signed reference", node: container("ostree-image-signed:docker://%"), old: spelling, recent: skips},
		{name: "a reference with a remote", node: container("ostree-remote-registry:rhcos:%"), old: spelling, recent: skips},
		{name: "a plain commit", node: nodeOptions{}, old: differs, recent: differs},
		{name: "a plain commit, pivoted to the wanted image", node: nodeOptions{origin: pivotOrigin}, old: skips, recent: skips},
		{name: "a plain commit, pivoted to another image", node: nodeOptions{origin: strings.ReplaceAll(pivotOrigin, "%", otherImage)}, old: differs, recent: differs},
		{name: "a plain commit with an origin of another kind", node: nodeOptions{origin: "custom-url=https://%\ncustom-description=x\n"}, old: differs, recent: differs},
		{name: "both kinds of origin", node: nodeOptions{container: true, origin: bootimageOrigin + pivotOrigin}, old: differs, recent: differs},
		{name: "tag wanted and in the origin", node: named(nodeOptions{tag: true}), old: skips, recent: skips},
		{name: "tag wanted, digest in the origin", node: nodeOptions{container: true, tag: true,
			origin: "container-image-reference=ostree-unverified-registry:" + otherImage + "\n"}, old: differs, recent: differs},
	}
}

// argumentScenarios differ in kernel arguments, which the daemon of 4.14 takes
// no host to have.
func argumentScenarios() []scenario {
	wants := func(have []string, want ...string) nodeOptions {
		return named(nodeOptions{kargs: have, mc: sysroot.MachineConfig{KernelArguments: want}})
	}
	notRead, differs := reboots("kernel-arguments-not-read"), reboots("kernel-arguments")
	return []scenario{
		{name: "argument wanted and absent", node: wants(nil, "nosmt"), old: notRead, recent: differs},
		{name: "argument wanted and present", node: wants([]string{"nosmt"}, "nosmt"), old: notRead, recent: skips},
		{name: "two in order, others between", node: wants([]string{"a=1", "x", "b=2"}, "a=1", "b=2"), old: notRead, recent: skips},
		{name: "two in another order", node: wants([]string{"a=1", "b=2"}, "b=2", "a=1"), old: notRead, recent: differs},
		{name: "two in one entry", node: wants([]string{"a=1", "b=2"}, "a=1 b=2"), old: notRead, recent: differs},
		{name: "one of two absent", node: wants([]string{"a=1"}, "a=1", "b=2"), old: notRead, recent: differs},
		{name: "wanted twice, present once", node: wants([]string{"a=1"}, "a=1", "a=1"), old: notRead, recent: differs},
		{name: "more arguments than wanted", node: wants([]string{"a=1"}), old: skips, recent: skips},
		{name: "argument present on a disk image", node: nodeOptions{container: true, origin: bootimageOrigin, kargs: []string{"nosmt"},
			mc: sysroot.MachineConfig{KernelArguments: []string{"nosmt"}}},
			old: reboots("os-image-url", "kernel-arguments-not-read"), recent: reboots("os-image-url")},
	}
}

// configScenarios differ in what else a MachineConfig asks for.
func configScenarios() []scenario {
	wants := func(mc sysroot.MachineConfig) nodeOptions { return named(nodeOptions{mc: mc}) }
	layered := map[string]string{"machineconfiguration.openshift.io/ocl-osimageurl": otherImage}
	return []scenario{
		{name: "extension wanted", node: wants(sysroot.MachineConfig{Extensions: []string{"usbguard"}}),
			old: reboots("extensions"), recent: reboots("extensions")},
		{name: "realtime kernel wanted", node: wants(sysroot.MachineConfig{KernelType: "realtime"}),
			old: reboots("kernel-type"), recent: reboots("kernel-type")},
		// Unknown to the older one. The other only accepts it on aarch64.
		{name: "64k-pages kernel wanted", node: wants(sysroot.MachineConfig{KernelType: "64k-pages"}), old: skips, recent: refuses("kernel-type")},
		{name: "FIPS on, not wanted", node: named(nodeOptions{fips: true}), old: skips, recent: refuses("fips")},
		{name: "FIPS on and wanted", node: named(nodeOptions{fips: true, mc: sysroot.MachineConfig{FIPS: true}}),
			old: reboots("fips-not-read"), recent: skips},
		{name: "FIPS wanted and off", node: wants(sysroot.MachineConfig{FIPS: true}), old: refuses("fips"), recent: refuses("fips")},
		{name: "a file in the MachineConfig", node: named(nodeOptions{
			foreign: `"storage": {"files": [{"path": "/etc/foreign", "mode": 420, "contents": {"source": "data:,x"}}]}`}),
			old: reboots("ignition-content"), recent: reboots("ignition-content")},
		{name: "marked for layering", node: wants(sysroot.MachineConfig{Annotations: layered}), old: skips, recent: reboots("on-cluster-layering")},
	}
}

// hostScenarios differ in the state of the host.
func hostScenarios() []scenario {
	file := func(name, text string) nodeOptions { return named(nodeOptions{files: map[string]string{name: text}}) }
	return []scenario{
		{name: "force file", node: file(forcePath, ""), old: reboots("force-file"), recent: reboots("force-file")},
		{name: "legacy tuning file", node: file("etc/pivot/kernel-args", "ADD nosmt\n"), old: skips, recent: skips},
		{name: "an rpm-ostree that deploys no containers", node: nodeOptions{origin: pivotOrigin, rpmOSTree: "2021.14"},
			old: reboots("rpm-ostree-gate"), recent: reboots("rpm-ostree-gate")},
		{name: "the first rpm-ostree that always does", node: nodeOptions{origin: pivotOrigin, rpmOSTree: "2022.13"}, old: skips, recent: skips},
	}
}

// codes are those of the reasons that hold for the daemon.
func codes(m verdict.MCO) []string {
	var list []string
	for _, w := range m.Why {
		list = append(list, w.Code)
	}
	return list
}

// expectPrediction holds a prediction against what the daemon did.
func expectPrediction(t *testing.T, v verdict.Verdict, r run) {
	t.Helper()
	if v.MCO.WouldSkip != (r.outcome == skipped) {
		t.Errorf("wouldSkip %v (%v), and it %s\n%s", v.MCO.WouldSkip, codes(v.MCO), r.outcome, r.output)
	}
}

// TestScenarios: each daemon does what oneboot predicts of it. On a twin of the
// node that oneboot has asserted, the same; and where nothing may be asserted
// the daemon goes on as it would without oneboot.
func TestScenarios(t *testing.T) {
	l := newLab(t)
	for _, d := range daemons() {
		for _, tt := range scenarios() {
			t.Run(d.release+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				want := tt.answer(d)
				n := l.bootNode(t, d, tt.node)
				v := n.analyze(t)
				r := n.mcd(t)
				expectPrediction(t, v, r)
				if r.outcome != want.outcome {
					t.Errorf("the daemon %s, want %s\n%s", r.outcome, want.outcome, r.output)
				}
				if v.MCO.Release != d.release || !slices.Equal(codes(v.MCO), want.why) {
					t.Errorf("predicted for %q: %v, want %v", v.MCO.Release, codes(v.MCO), want.why)
				}
				twin := l.bootNode(t, d, tt.node)
				origin := twin.origin(t)
				act := twin.firstboot(t, "assert")
				after := twin.analyze(t)
				again := twin.mcd(t)
				expectPrediction(t, after, again)
				if v.Action == verdict.Skip {
					expectAsserted(t, twin, v, again)
					return
				}
				if twin.origin(t) != origin || act.State != "none" {
					t.Errorf("act %+v upon a verdict to proceed (%s)", act, v.Reason)
				}
				if again.outcome != r.outcome || !cmp.Equal(r.calls, again.calls) {
					t.Errorf("the daemon went on in another way: %s and not %s (-without +with oneboot):\n%s",
						again.outcome, r.outcome, cmp.Diff(r.calls, again.calls))
				}
			})
		}
	}
}

// expectAsserted: on a node that runs the wanted OS the daemon changes no OS
// once the origin says so, and skips unless it has reasons beyond the origin.
func expectAsserted(t *testing.T, n *node, v verdict.Verdict, r run) {
	t.Helper()
	if r.called("rpm-ostree rebase") {
		t.Errorf("it rebased to the OS that it runs\n%s", r.output)
	}
	beyond := slices.ContainsFunc(codes(v.MCO), func(c string) bool { return !strings.HasPrefix(c, "os-image-url") })
	if skips := r.outcome == skipped; skips == beyond {
		t.Errorf("the daemon %s, and its reasons were %v\n%s", r.outcome, codes(v.MCO), r.output)
	}
	if origin := n.origin(t); !strings.Contains(origin, n.url) {
		t.Errorf("the origin does not name %s:\n%s", n.url, origin)
	}
}

// TestPredictionWithoutRelease: where the release is not known a prediction to
// skip has to hold for every daemon.
func TestPredictionWithoutRelease(t *testing.T) {
	l := newLab(t)
	for _, tt := range scenarios() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.node.noRelease = true
			want := tt.old.outcome == skipped && tt.recent.outcome == skipped
			v := l.bootNode(t, daemons()[0], tt.node).analyze(t)
			if v.MCO.WouldSkip && !want {
				t.Errorf("predicted to skip; the daemon of 4.14 %s, that of 4.20 %s", tt.old.outcome, tt.recent.outcome)
			}
			if tt.name == scenarios()[0].name && !v.MCO.WouldSkip {
				t.Errorf("not predicted to skip: %v", codes(v.MCO))
			}
		})
	}
}
