package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// What each form of a node is made to say, by what proves it. After the act the
// analysis is the same skip again.
func TestActs(t *testing.T) {
	l := newLab(t)
	base, rebuilt := l.push(t, "act/base", l.native), l.push(t, "act/rebuilt", l.rebuiltImage)
	container := func(ref string) string { return sysroot.ContainerOrigin("ostree-unverified-registry:" + ref) }
	custom := func(ref string) string {
		return "custom-url=pivot://" + ref + "\ncustom-description=Managed by oneboot\n"
	}
	offers := l.extensionsImage(t, nativeimage.ExtensionsOptions{Packages: rpms(usbguard, protobuf)})
	extended := func(ref string) sysroot.MachineConfig {
		return sysroot.MachineConfig{OSImageURL: ref, Extensions: []string{"usbguard"}, ExtensionsImage: offers, Annotations: ofRelease("4.16.3")}
	}
	const requested = "[packages]\nrequested=usbguard;\n"
	tests := []struct {
		name string
		node nodeOptions
		mode daemon.Mode
		// acted is what was done; state and why where nothing was.
		acted  daemon.Mode
		state  record.ActState
		why    string
		proof  verdict.Proof
		origin string // where it changes
		skips  bool   // the daemon, after an assert
	}{
		{"container, by digest", nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: base, Annotations: ofRelease("4.16.3")}},
			daemon.ModeAuto, daemon.ModeAssert, record.ActDone, "", verdict.ProofManifestDigest, container(base), true},
		{"container, named already", nodeOptions{image: l.native, origin: container(base), mc: sysroot.MachineConfig{OSImageURL: base, Annotations: ofRelease("4.16.3")}},
			daemon.ModeAuto, daemon.ModeAssert, record.ActDone, "everything is so already", verdict.ProofManifestDigest, "", true},
		{"plain commit", nodeOptions{commit: l.base, mc: sysroot.MachineConfig{OSImageURL: base, Annotations: ofRelease("4.16.3")}},
			daemon.ModeAuto, daemon.ModeAssert, record.ActDone, "", verdict.ProofOSTreeCommit, "[origin]\nrefspec=" + l.base + "\n" + custom(base), true},
		{"plain commit, rebuilt later", nodeOptions{commit: l.rebuilt, mc: sysroot.MachineConfig{OSImageURL: base, Annotations: ofRelease("4.16.3")}},
			daemon.ModeAssert, daemon.ModeAssert, record.ActDone, "", verdict.ProofContentChecksum, "[origin]\nrefspec=" + l.rebuilt + "\n" + custom(base), true},
		{"container, of an earlier build", nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: rebuilt, Annotations: ofRelease("4.16.3")}},
			daemon.ModeAssert, daemon.ModeAssert, record.ActDone, "", verdict.ProofContentChecksum, container(rebuilt), true},
		{"container, of a later build", nodeOptions{image: l.rebuiltImage, mc: sysroot.MachineConfig{OSImageURL: base, Annotations: ofRelease("4.16.3")}},
			daemon.ModeComplete, daemon.ModeComplete, record.ActNone, "the booted commit is newer than the target's", verdict.ProofContentChecksum, "", false},
		{"arguments in another order", nodeOptions{image: l.native, kargs: []string{"b=1", "a=1"},
			mc: sysroot.MachineConfig{OSImageURL: base, KernelArguments: []string{"a=1", "b=1"}, Annotations: ofRelease("4.16.3")}},
			daemon.ModeAuto, daemon.ModeComplete, record.ActDone, "", verdict.ProofManifestDigest, container(base), false},
		{"the same, asserted", nodeOptions{image: l.native, kargs: []string{"b=1", "a=1"},
			mc: sysroot.MachineConfig{OSImageURL: base, KernelArguments: []string{"a=1", "b=1"}, Annotations: ofRelease("4.16.3")}},
			daemon.ModeAssert, daemon.ModeAssert, record.ActDone, "", verdict.ProofManifestDigest, container(base), false},
		{"a release that is not known", nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: base}},
			daemon.ModeAuto, daemon.ModeComplete, record.ActDone, "", verdict.ProofManifestDigest, container(base), false},
		{"on-cluster layering", nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: base, Annotations: map[string]string{
			"machineconfiguration.openshift.io/release-image-version": "4.22.0", "machineconfiguration.openshift.io/ocl-osimageurl": base}}},
			daemon.ModeAuto, "", record.ActNone, "marked for on-cluster layering", verdict.ProofManifestDigest, "", false},
		{"an extension on a plain commit", nodeOptions{commit: l.base, layer: layered(), mc: extended(base)},
			daemon.ModeAuto, daemon.ModeComplete, record.ActDone, "", verdict.ProofOSTreeCommit, "[origin]\nbaserefspec=" + l.base + "\n" + custom(base) + requested, false},
		{"an extension on a container", nodeOptions{image: l.native, layer: layered(), origin: containerOrigin, mc: extended(base)},
			daemon.ModeAuto, daemon.ModeComplete, record.ActDone, "", verdict.ProofManifestDigest, container(base) + requested, false},
		{"an extension on a later build", nodeOptions{image: l.rebuiltImage, layer: layered(), origin: containerOrigin, mc: extended(base)},
			daemon.ModeAuto, daemon.ModeComplete, record.ActNone, "the booted commit is newer than the target's", verdict.ProofContentChecksum, "", false},
		{"an extension on an earlier build", nodeOptions{image: l.native, layer: layered(), origin: containerOrigin, mc: extended(rebuilt)},
			daemon.ModeAssert, daemon.ModeAssert, record.ActDone, "", verdict.ProofContentChecksum, container(rebuilt) + requested, false},
		{"a signed reference, 4.16", nodeOptions{image: l.native, origin: sysroot.ContainerOrigin("ostree-image-signed:docker://" + base),
			mc: sysroot.MachineConfig{OSImageURL: base, Annotations: ofRelease("4.16.3")}},
			daemon.ModeAssert, daemon.ModeAssert, record.ActDone, "everything is so already", verdict.ProofManifestDigest, "", true},
		{"a signed reference, 4.14", nodeOptions{image: l.native, origin: sysroot.ContainerOrigin("ostree-image-signed:docker://" + base),
			mc: sysroot.MachineConfig{OSImageURL: base, Annotations: ofRelease("4.14.9")}},
			daemon.ModeAssert, daemon.ModeAssert, record.ActDone, "", verdict.ProofManifestDigest, container(base), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := l.bootNode(t, tt.node)
			before := string(must[[]byte](t)(os.ReadFile(n.deployment.OriginFile())))
			res := n.firstboot(t, tt.mode)
			if res.Verdict.Action != verdict.Skip || res.Verdict.Proof != tt.proof {
				t.Fatalf("%s, proof %s\n%s", actionText(res.Verdict.Action), res.Verdict.Proof, checksText(res.Verdict))
			}
			if res.Act.State != tt.state || res.Act.Mode != string(tt.acted) || !strings.Contains(res.Act.Reason, tt.why) {
				t.Errorf("act %+v, want %s, %s, %q", res.Act, tt.acted, tt.state, tt.why)
			}
			if skips := res.Act.MCO != nil && res.Act.MCO.WouldSkip; skips != tt.skips {
				t.Errorf("prediction after the act: %+v", res.Act.MCO)
			}
			want := before
			if tt.origin != "" {
				want = tt.origin
			}
			if got := string(must[[]byte](t)(os.ReadFile(n.deployment.OriginFile()))); got != want {
				t.Errorf("origin %q, want %q", got, want)
			}
			rec := must[*record.Record](t)(record.Parse(must[[]byte](t)(os.ReadFile(n.Path(record.Path)))))
			if !rec.Proves(tt.node.mc.OSImageURL, verdict.Checksum(n.deployment.Checksum)) {
				t.Error("the record proves nothing")
			}
			if tt.state == record.ActDone && tt.acted == daemon.ModeAssert {
				again := n.analyze(t)
				if again.Verdict.Action != verdict.Skip || again.Verdict.Proof != tt.proof || tt.skips && !again.Verdict.MCO.WouldSkip {
					t.Errorf("after the act: %s, %+v\n%s", actionText(again.Verdict.Action), again.Verdict.MCO, checksText(again.Verdict))
				}
			}
			must[daemon.Reverted](t)(daemon.Revert(n.Dir, false))
			if got := string(must[[]byte](t)(os.ReadFile(n.deployment.OriginFile()))); got != before {
				t.Errorf("reverted: origin %q, want %q", got, before)
			}
		})
	}
}

// firstboot runs as the unit does.
func (n *node) firstboot(t testing.TB, mode daemon.Mode) *daemon.FirstbootResult {
	t.Helper()
	res, err := daemon.Firstboot(context.Background(), daemon.Options{Root: n.Dir, Timeout: 20 * time.Second}, mode, "test")
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// ostree itself goes on with the origin that an act has written, and a pivot to the
// same image later, which writes the same reference into a new deployment,
// finds all as it left it.
func TestPivotAfterAssert(t *testing.T) {
	l := newLab(t)
	base := l.push(t, "act/base", l.native)
	n := l.bootNode(t, nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: base, Annotations: ofRelease("4.16.3")}})
	n.firstboot(t, daemon.ModeAssert)
	out := must[string](t)(sysroot.Ostree("admin", "status", "--sysroot="+n.Sysroot.Dir))
	if !strings.Contains(out, n.deployment.Checksum) {
		t.Errorf("ostree says: %s", out)
	}
	text := string(must[[]byte](t)(os.ReadFile(n.deployment.OriginFile())))
	merge := must[string](t)(nativeimage.Import(n.Sysroot.Repo(), l.native, nativeimage.ImportOptions{}))
	d := must[sysroot.Deployment](t)(n.Sysroot.Deploy(merge, sysroot.DeployOptions{
		KernelArguments: []string{"root=UUID=6f0e", "rw"}, Origin: text}))
	if filepath.Base(d.Dir) == filepath.Base(n.deployment.Dir) {
		t.Fatal("no other deployment")
	}
	mc := sysroot.MachineConfig{OSImageURL: base, Annotations: ofRelease("4.16.3")}
	if err := n.Boot(d, sysroot.BootOptions{MachineConfig: &mc, InsecureRegistries: []string{l.reg.Host}}); err != nil {
		t.Fatal(err)
	}
	res := n.firstboot(t, daemon.ModeAssert)
	if res.Act.State != record.ActDone || len(res.Act.Changed) > 0 || !res.Verdict.MCO.WouldSkip {
		t.Errorf("act %+v, %+v", res.Act, res.Verdict.MCO)
	}
}
