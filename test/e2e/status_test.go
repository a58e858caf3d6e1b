package e2e

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/sysroot"
)

// withStatus saves what rpm-ostree says of the node.
func (n *node) withStatus(t *testing.T, change func(map[string]any)) func(*daemon.Options) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "status.json")
	if err := os.WriteFile(file, []byte(must[string](t)(n.deployment.Status(change))), 0o644); err != nil {
		t.Fatal(err)
	}
	return func(o *daemon.Options) { o.StatusFile = file }
}

func detailOf(v verdict.Verdict, name verdict.CheckName) verdict.Check {
	for _, c := range v.Checks {
		if c.Name == name {
			return c
		}
	}
	return verdict.Check{}
}

// The sysroot and a saved status of the same host.
func TestSavedStatusBesideASysroot(t *testing.T) {
	l := newLab(t)
	url := l.push(t, "os/base", l.native)
	wanted := sysroot.MachineConfig{OSImageURL: url}
	container := l.bootNode(t, nodeOptions{image: l.native, mc: wanted})
	plain := l.bootNode(t, nodeOptions{commit: l.base, mc: wanted})
	other := strings.Repeat("9", 64)
	set := func(key string, value any) func(map[string]any) {
		return func(s map[string]any) { s[key] = value }
	}
	tests := []struct {
		name   string
		n      *node
		change func(map[string]any)
		want   string // in the words of the deployment check; a skip where empty
	}{
		{"a container", container, nil, ""},
		{"a plain commit", plain, nil, ""},
		{"digests not shown", container, func(s map[string]any) {
			delete(s, "container-image-reference-digest")
			s["base-commit-meta"] = map[string]any{"ostree.manifest-digest": l.native.Digest}
		}, ""},
		{"another deployment", plain, func(s map[string]any) { s["checksum"] = other; delete(s, "id") }, "checksum: the sysroot says " + l.base},
		{"another serial", plain, func(s map[string]any) { s["serial"] = 4; delete(s, "id") }, "serial: the sysroot says 0, rpm-ostree 4"},
		{"another stateroot", plain, func(s map[string]any) { s["osname"] = "scos"; delete(s, "id") }, "stateroot: the sysroot says rhcos, rpm-ostree scos"},
		{"another kind", plain, set("base-checksum", other), "kind: the sysroot says commit, rpm-ostree layered"},
		{"another manifest", container, func(s map[string]any) {
			delete(s, "container-image-reference-digest")
			s["base-commit-meta"].(map[string]string)["ostree.manifest-digest"] = "sha256:" + other
		}, "manifest digest: the sysroot says " + l.native.Digest + ", rpm-ostree sha256:" + other},
		{"another reference", container, set("container-image-reference", "ostree-unverified-registry:quay.io/x:y"), "origin reference: the sysroot says /rhcos.ociarchive, rpm-ostree quay.io/x:y"},
		{"a package requested", container, set("requested-packages", []string{"usbguard"}), "requested packages: the sysroot says nothing, rpm-ostree usbguard"},
		{"unlocked", container, set("unlocked", "development"), `unlocked: the sysroot says nothing, rpm-ostree "development"`},
		{"staged", container, set("staged", true), "staged: the sysroot says nothing, rpm-ostree "},
		{"an initramfs", container, set("regenerate-initramfs", true), "initramfs-regenerated: the sysroot says nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l.reg.ResetRequests()
			res := tt.n.analyze(t, tt.n.withStatus(t, tt.change))
			want := proceed("deployment-differs", 0)
			if tt.want == "" {
				want = skip("", -1)
			}
			l.expect(t, res, want)
			if d := detailOf(res.Verdict, verdict.CheckDeployment).Detail; !strings.Contains(d, tt.want) || tt.want != "" && !strings.Contains(d, "sources-disagree") {
				t.Errorf("got %q, want %q", d, tt.want)
			}
			if !res.Verdict.Hypothetical || len(res.Verdict.Errors) > 0 {
				t.Errorf("hypothetical %t, errors %+v", res.Verdict.Hypothetical, res.Verdict.Errors)
			}
		})
	}
}

// A client-layered commit as rpm-ostree makes it, and as it says it did.
func TestSavedStatusOfALayeredSystem(t *testing.T) {
	l := newLab(t)
	root := must[*sysroot.Root](t)(sysroot.NewRoot(filepath.Join(sysroot.TempDir(t), "root")))
	must[string](t)(sysroot.Ostree("pull-local", "--repo="+root.Sysroot.Repo(), "--disable-fsync", l.build.Repo(), l.base))
	base := sysroot.Packages(500, sysroot.DefaultKernel)
	removed := base[0].Name
	layered := must[string](t)(root.Sysroot.CommitLayer(sysroot.ClientLayer{
		Base: l.base, BasePackages: base, Requested: []string{"usbguard"}, Removed: []string{removed},
		Added: []sysroot.Package{{Name: "usbguard", Version: "1", Release: "1", Arch: "x86_64"}},
	}))
	d := must[sysroot.Deployment](t)(root.Sysroot.Deploy(layered, sysroot.DeployOptions{
		KernelArguments: []string{"root=UUID=6f0e", "rw", "$ignition_firstboot"},
		Origin:          "[origin]\nbaserefspec=" + l.base + "\n[packages]\nrequested=usbguard;\n[overrides]\nremove=" + removed + ";\n",
	}))
	mc := sysroot.MachineConfig{OSImageURL: l.reg.Reference("os/base", l.native.Digest)}
	if err := root.Boot(d, sysroot.BootOptions{MachineConfig: &mc}); err != nil {
		t.Fatal(err)
	}
	n := &node{Root: root, deployment: d}
	said := func(s map[string]any) {
		s["base-checksum"], s["packages"], s["requested-packages"] = l.base, []string{"usbguard"}, []string{"usbguard"}
		s["requested-base-removals"] = []string{removed}
		s["base-removals"] = []any{[]any{removed + "-1-1.x86_64", removed, 0, "1", "1", "x86_64"}}
	}
	offline := func(o *daemon.Options) { o.Offline = true }
	alone := n.analyze(t, offline)
	both := n.analyze(t, offline, n.withStatus(t, said))
	for i, c := range alone.Verdict.Checks {
		if both.Verdict.Checks[i] != c {
			t.Errorf("alone %+v, with the status %+v", c, both.Verdict.Checks[i])
		}
	}
	if c := detailOf(alone.Verdict, verdict.CheckDeployment); c.Outcome != verdict.OutcomeDiffers {
		t.Errorf("a layered system on which nothing is wanted: %+v", c)
	}
	for field, change := range map[string]func(map[string]any){
		"base checksum":      func(s map[string]any) { s["base-checksum"] = layered },
		"layered packages":   func(s map[string]any) { s["packages"] = []string{"usbguard", "vim"} },
		"removed packages":   func(s map[string]any) { s["base-removals"] = []any{} },
		"requested removals": func(s map[string]any) { s["requested-base-removals"] = []string{} },
	} {
		v := n.analyze(t, offline, n.withStatus(t, func(s map[string]any) { said(s); change(s) })).Verdict
		if d := detailOf(v, verdict.CheckDeployment).Detail; !strings.Contains(d, "sources-disagree ("+field+": ") {
			t.Errorf("%s: got %q", field, d)
		}
	}
}

// baseArch is this machine's architecture in RPM's naming.
func baseArch() string {
	switch runtime.GOARCH {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return runtime.GOARCH
}

// A status from a machine whose sysroot is not there.
func TestSavedStatusAlone(t *testing.T) {
	l := newLab(t)
	url := l.push(t, "os/base", l.native)
	otherURL := l.push(t, "os/other", l.otherImage)
	tests := []struct {
		name    string
		options nodeOptions
		content verdict.Outcome
		proof   verdict.Proof
	}{
		{"the wanted image", nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: url}}, verdict.OutcomeSame, verdict.ProofManifestDigest},
		{"the wanted commit", nodeOptions{commit: l.base, mc: sysroot.MachineConfig{OSImageURL: url}}, verdict.OutcomeSame, verdict.ProofOSTreeCommit},
		// Without roots two commits may still hold the same.
		{"another commit", nodeOptions{commit: l.base, mc: sysroot.MachineConfig{OSImageURL: otherURL}}, verdict.OutcomeUnknown, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := l.bootNode(t, tt.options)
			status := n.withStatus(t, func(s map[string]any) {
				s["base-commit-meta"].(map[string]string)["coreos-assembler.basearch"] = baseArch()
			})
			desk := filepath.Join(t.TempDir(), "desk")
			for _, name := range []string{sysroot.PolicyPath, sysroot.RegistriesPath, sysroot.MachineConfigPath} {
				b := must[[]byte](t)(os.ReadFile(n.Path(name)))
				if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(desk, name)), 0o755), os.WriteFile(filepath.Join(desk, name), b, 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			l.reg.ResetRequests()
			res := n.analyze(t, status, func(o *daemon.Options) { o.Root = desk })
			reason := verdict.Reason("deployment-unknown")
			if tt.content != verdict.OutcomeSame {
				reason = "os-content-unknown"
			}
			l.expect(t, res, proceed(reason, -1))
			if c := detailOf(res.Verdict, verdict.CheckOSContent); c.Outcome != tt.content || res.Verdict.Proof != tt.proof {
				t.Errorf("content is %s by %q: %s", c.Outcome, res.Verdict.Proof, c.Detail)
			}
			for _, name := range []verdict.CheckName{verdict.CheckDeployment, verdict.CheckRunningKernel, verdict.CheckLegacyKernelArguments,
				verdict.CheckFIPS, verdict.CheckForceFile, verdict.CheckNodePayload, verdict.CheckNetworkState} {
				if c := detailOf(res.Verdict, name); c.Outcome != verdict.OutcomeUnknown || !strings.Contains(c.Detail, "it may be another machine") {
					t.Errorf("%s is %s: %s", name, c.Outcome, c.Detail)
				}
			}
			if !res.Verdict.Hypothetical || res.Verdict.Conclusive || string(res.Verdict.Booted.Checksum) != n.deployment.Checksum {
				t.Errorf("hypothetical %t, conclusive %t, checksum %s", res.Verdict.Hypothetical, res.Verdict.Conclusive, res.Verdict.Booted.Checksum)
			}
		})
	}
}

// On the running host rpm-ostree is asked, for what the sysroot left open only.
func TestLiveStatus(t *testing.T) {
	l := newLab(t)
	fake := filepath.Join(t.TempDir(), "rpm-ostree")
	build := exec.Command("go", "build", "-o", fake, "./testdata/rpm-ostree")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const reference, broken = "ostree-unverified-registry:quay.io/x:y", "[origin]\ncontainer-image-reference=no transport\n"
	said := func(s map[string]any) { s["container-image-reference"] = reference }
	tests := []struct {
		name   string
		origin string // nothing is open where empty
		status func(map[string]any)
		edit   func(*liveBoot)
		called bool
		want   liveAnswer
		errors string // their codes
	}{
		{"nothing is open", "", said, nil, false, liveAnswer{reason: verdict.ReasonProven}, ""},
		{"an origin, both agree else", broken, said, nil, true, liveAnswer{reason: verdict.ReasonProven}, "sysroot-unreadable"},
		{"in a container", broken, said, func(b *liveBoot) { b.Container = true }, false, liveAnswer{reason: verdict.ReasonProven}, "sysroot-unreadable"},
		{"an origin, they disagree", broken, func(s map[string]any) { said(s); s["live-replaced"] = strings.Repeat("9", 64) }, nil, true,
			liveAnswer{reason: "deployment-differs", detail: "sources-disagree (live-applied: the sysroot says nothing"}, "sysroot-unreadable"},
		{"no origin", "\n[", said, nil, true, liveAnswer{reason: "deployment-unknown", detail: "the sysroot's own: "}, "sysroot-unreadable"},
		{"no origin, and unlocked", "\n[", func(s map[string]any) { said(s); s["unlocked"] = "hotfix" }, nil, true,
			liveAnswer{reason: "deployment-differs", detail: "unlocked (hotfix)"}, "sysroot-unreadable"},
		{"no answer", "\n[", nil, nil, true, liveAnswer{reason: "deployment-unknown", detail: ".origin"}, "sysroot-unreadable rpm-ostree-failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			disk := newLiveDisk(t, l)
			d := disk.deploy(nodeOptions{image: l.native}, "")
			boot := disk.boot(d, disk.options(d))
			state := filepath.Join(boot.Var, "rpm-ostree")
			program := must[[]byte](t)(os.ReadFile(fake))
			if err := errors.Join(os.Mkdir(state, 0o755), os.WriteFile(filepath.Join(d.Dir, "usr/bin/rpm-ostree"), program, 0o755)); err != nil {
				t.Fatal(err)
			}
			if tt.status != nil {
				text := must[string](t)(d.Status(tt.status))
				if err := os.WriteFile(filepath.Join(state, "status.json"), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if tt.origin != "" {
				if err := d.SetOrigin(tt.origin); err != nil {
					t.Fatal(err)
				}
			}
			if tt.edit != nil {
				tt.edit(&boot)
			}
			v := boot.analyze(t)
			if tt.want.checksum = d.Checksum; tt.want.reason == "deployment-unknown" && tt.status == nil {
				tt.want.checksum = ""
			}
			tt.want.check(t, v)
			args, err := os.ReadFile(filepath.Join(state, "called"))
			if tt.called != (err == nil) || err != nil && !errors.Is(err, fs.ErrNotExist) || tt.called && string(args) != "status --json" {
				t.Errorf("called with %q, %v; want it called: %t", args, err, tt.called)
			}
			var codes []string
			for _, e := range v.Errors {
				codes = append(codes, e.Code)
			}
			if got := strings.Join(codes, " "); got != tt.errors || v.Hypothetical {
				t.Errorf("errors %+v, hypothetical %t", v.Errors, v.Hypothetical)
			}
		})
	}
}
