//go:build mcd

package mcdlab

import (
	"slices"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/sysroot"
)

// A scenario is a node, and what the daemon does on it.
type scenario struct {
	name string
	node nodeOptions
	want outcome
	// why are the codes of the reasons that oneboot gives for it.
	why []string
}

const (
	registryOrigin = "container-image-reference=ostree-unverified-registry:%\n"
	pivotOrigin    = "custom-url=pivot://%\ncustom-description=Managed by machine-config-operator\n"
	otherImage     = "quay.io/openshift/os@sha256:1111111111111111111111111111111111111111111111111111111111111111"
)

func scenarios() []scenario {
	wants := func(kargs ...string) sysroot.MachineConfig { return sysroot.MachineConfig{KernelArguments: kargs} }
	annotated := func(key string) sysroot.MachineConfig {
		return sysroot.MachineConfig{Annotations: map[string]string{"machineconfiguration.openshift.io/" + key: otherImage}}
	}
	differs := []string{"os-image-url", "os-image-url-spelling"}
	same := func(o nodeOptions) nodeOptions {
		o.container, o.origin = true, registryOrigin
		return o
	}
	return []scenario{
		// What the origin names.
		{"the reference is the wanted one", same(nodeOptions{}), skipped, nil},
		{"the reference of another image", nodeOptions{container: true, origin: "container-image-reference=ostree-unverified-registry:" + otherImage + "\n"},
			rebooted, differs[:1]},
		{"a disk image's own reference", nodeOptions{container: true, origin: bootimageOrigin}, rebooted, differs[:1]},
		{"a disk image's own reference, another OS", nodeOptions{container: true, older: true, origin: bootimageOrigin}, rebooted, differs[:1]},
		{"the wanted reference on another OS", nodeOptions{container: true, older: true, origin: registryOrigin}, skipped, nil},
		{"the same image spelled ostree-unverified-image:docker", nodeOptions{container: true, origin: "container-image-reference=ostree-unverified-image:docker://%\n"},
			rebooted, differs[1:]},
		{"a signed reference", nodeOptions{container: true, origin: "container-image-reference=ostree-image-signed:docker://%\n"}, rebooted, differs[1:]},
		{"a reference with a remote", nodeOptions{container: true, origin: "container-image-reference=ostree-remote-registry:rhcos:%\n"}, rebooted, differs[1:]},
		{"a plain commit", nodeOptions{}, rebooted, differs[:1]},
		{"a plain commit, pivoted to the wanted image", nodeOptions{origin: pivotOrigin}, skipped, nil},
		{"a plain commit, pivoted to another image", nodeOptions{origin: strings.ReplaceAll(pivotOrigin, "%", otherImage)}, rebooted, differs[:1]},
		{"a plain commit with an origin of another kind", nodeOptions{origin: "custom-url=https://%\ncustom-description=x\n"}, rebooted, differs[:1]},
		{"both kinds of origin", nodeOptions{container: true, origin: bootimageOrigin + pivotOrigin}, rebooted, differs[:1]},
		{"tag wanted and in the origin", same(nodeOptions{tag: true}), skipped, nil},
		{"tag wanted, digest in the origin", nodeOptions{container: true, tag: true, origin: "container-image-reference=ostree-unverified-registry:" + otherImage + "\n"},
			rebooted, differs[:1]},

		// Kernel arguments: this daemon takes the host to have none.
		{"argument wanted and absent", same(nodeOptions{mc: wants("nosmt")}), rebooted, []string{"kernel-arguments-not-read"}},
		{"argument wanted and present", same(nodeOptions{kargs: []string{"nosmt"}, mc: wants("nosmt")}), rebooted, []string{"kernel-arguments-not-read"}},
		{"two in another order", same(nodeOptions{kargs: []string{"a=1", "b=2"}, mc: wants("b=2", "a=1")}), rebooted, []string{"kernel-arguments-not-read"}},
		{"two in one entry", same(nodeOptions{kargs: []string{"a=1", "b=2"}, mc: wants("a=1 b=2")}), rebooted, []string{"kernel-arguments-not-read"}},
		{"more arguments than wanted", same(nodeOptions{kargs: []string{"a=1"}}), skipped, nil},

		// What else a MachineConfig asks for.
		{"extension wanted", same(nodeOptions{mc: sysroot.MachineConfig{Extensions: []string{"usbguard"}}}), rebooted, []string{"extensions"}},
		{"realtime kernel wanted", same(nodeOptions{mc: sysroot.MachineConfig{KernelType: "realtime"}}), rebooted, []string{"kernel-type"}},
		{"64k-pages kernel wanted: unknown to this daemon", same(nodeOptions{mc: sysroot.MachineConfig{KernelType: "64k-pages"}}), skipped, nil},
		{"FIPS on, not wanted", same(nodeOptions{fips: true}), skipped, nil},
		{"FIPS on and wanted", same(nodeOptions{fips: true, mc: sysroot.MachineConfig{FIPS: true}}), rebooted, []string{"fips-not-read"}},
		{"FIPS wanted and off", same(nodeOptions{mc: sysroot.MachineConfig{FIPS: true}}), refused, []string{"fips"}},
		{"a file in the MachineConfig", same(nodeOptions{
			foreign: `"storage": {"files": [{"path": "/etc/foreign", "mode": 420, "contents": {"source": "data:,x"}}]}`}), rebooted, []string{"ignition-content"}},
		{"marked for layering", same(nodeOptions{mc: annotated("ocl-osimageurl")}), skipped, nil},

		// The state of the host.
		{"force file", same(nodeOptions{files: map[string]string{forcePath: ""}}), rebooted, []string{"force-file"}},
		{"legacy tuning file", same(nodeOptions{files: map[string]string{"etc/pivot/kernel-args": "ADD nosmt\n"}}), skipped, nil},
		{"an rpm-ostree that deploys no containers", nodeOptions{origin: pivotOrigin, rpmOSTree: "2021.14"}, rebooted, []string{"rpm-ostree-gate"}},
		{"the first rpm-ostree that always does", nodeOptions{origin: pivotOrigin, rpmOSTree: "2022.13"}, skipped, nil},
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

// TestPrediction holds what oneboot predicts against what the daemon does.
func TestPrediction(t *testing.T) {
	l := newLab(t)
	for _, tt := range scenarios() {
		t.Run(tt.name, func(t *testing.T) {
			n := l.bootNode(t, tt.node)
			v := n.analyze(t)
			r := n.mcd(t)
			if r.outcome != tt.want {
				t.Errorf("the daemon %s, want %s\n%s", r.outcome, tt.want, r.output)
			}
			if v.MCO.WouldSkip != (r.outcome == skipped) {
				t.Errorf("wouldSkip %v (%v), and it %s\n%s", v.MCO.WouldSkip, codes(v.MCO), r.outcome, r.output)
			}
			if v.MCO.Release != daemonRelease || !slices.Equal(codes(v.MCO), tt.why) {
				t.Errorf("predicted for %q: %v, want %v", v.MCO.Release, codes(v.MCO), tt.why)
			}
		})
	}
}

// TestPredictionWithoutRelease: where the release is not known a prediction
// has to hold for every one.
func TestPredictionWithoutRelease(t *testing.T) {
	l := newLab(t)
	predicted := 0
	for _, tt := range scenarios() {
		t.Run(tt.name, func(t *testing.T) {
			tt.node.release = "-"
			n := l.bootNode(t, tt.node)
			v := n.analyze(t)
			if !v.MCO.WouldSkip {
				return
			}
			predicted++
			if r := n.mcd(t); r.outcome != skipped {
				t.Errorf("predicted to skip, and it %s\n%s", r.outcome, r.output)
			}
		})
	}
	if predicted == 0 {
		t.Error("no scenario was predicted to skip: nothing was tested")
	}
}
