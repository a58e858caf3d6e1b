package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

func TestKernelArguments(t *testing.T) {
	l := newLab(t)
	url := l.push(t, "os/base", l.native)
	tests := []struct {
		name   string
		kargs  []string
		extra  []string // in /proc/cmdline only
		wanted []string
		want   answer
	}{
		{"missing", nil, nil, []string{"nosmt"}, proceed("kernel-arguments-differs", 0)},
		{"present", []string{"nosmt"}, nil, []string{"nosmt"}, skip(verdict.ProofOSTreeCommit, fourRequests)},
		{"positional, in another order", []string{"console=ttyS0", "console=tty0"}, nil,
			[]string{"console=tty0", "console=ttyS0"}, proceed("kernel-arguments-differs", 0)},
		{"only in /proc/cmdline", nil, []string{"nosmt"}, []string{"nosmt"}, proceed("kernel-arguments-differs", 0)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := l.bootNode(t, nodeOptions{commit: l.base, kargs: tt.kargs,
				mc:   sysroot.MachineConfig{OSImageURL: url, KernelArguments: tt.wanted},
				boot: sysroot.BootOptions{CommandLine: tt.extra}})
			l.reg.ResetRequests()
			l.expect(t, n.analyze(t), tt.want)
		})
	}
}

// hostChanges are what keeps a node from skipping though its OS is the wanted
// one. The node runs the very image, so that nothing else asks a registry.
func TestHostStateProceeds(t *testing.T) {
	l := newLab(t)
	url := l.reg.Reference("os/base", l.native.Digest)
	write := func(name, content string) func(*testing.T, *node) {
		return func(t *testing.T, n *node) {
			if err := n.WriteFile(name, content); err != nil {
				t.Fatal(err)
			}
		}
	}
	link := func(name string) func(*testing.T, *node) {
		return func(t *testing.T, n *node) {
			write(name, "")(t, n)
			if err := os.RemoveAll(n.Path(name)); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("/no/such/thing", n.Path(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	runState := func(flag string) func(*testing.T, *node) {
		return func(t *testing.T, n *node) {
			write("run/ostree/deployment-state/"+filepath.Base(n.deployment.Dir)+"/"+flag, "")(t, n)
		}
	}
	origin := func(more string) func(*testing.T, *node) {
		return func(t *testing.T, n *node) {
			if err := n.deployment.SetOrigin("[origin]\ncontainer-image-reference=ostree-unverified-registry:" + url + "\n" + more); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []struct {
		name string
		edit func(*testing.T, *node)
		want verdict.Reason
	}{
		{"nothing", func(*testing.T, *node) {}, verdict.ReasonProven},
		{"origin of the image itself", origin(""), verdict.ReasonProven},
		{"pinned in the origin", origin("[libostree-transient]\npinned=true\n"), verdict.ReasonProven},
		{"FIPS on", write(sysroot.FIPSPath, "1\n"), "fips-differs"},
		{"FIPS unreadable", write(sysroot.FIPSPath, "maybe\n"), "fips-unknown"},
		{"foreign running kernel", write(sysroot.OSReleasePath, "6.6.0-kexeced.x86_64\n"), "running-kernel-differs"},
		{"staged deployment of unknown form", write(sysroot.StagedPath, "garbage"), "deployment-differs"},
		{"unlocked for development", runState("unlocked-development"), "deployment-differs"},
		{"unlocked transiently", runState("unlocked-transient"), "deployment-differs"},
		{"unlocked as a hotfix", origin("unlocked=hotfix\n"), "deployment-differs"},
		{"live-applied", runState("rpmostree-is-live.stamp"), "deployment-differs"},
		{"package requested", origin("[packages]\nrequested=vim;\n"), "extensions-differs"},
		{"override", origin("[overrides]\nremove=bash;\n"), "deployment-differs"},
		{"initramfs regenerated", origin("[rpmostree]\nregenerate-initramfs=true\n"), "deployment-differs"},
		{"initramfs files", origin("[rpmostree]\ninitramfs-etc=/etc/x;\n"), "deployment-differs"},
		{"two identities in the origin", origin("refspec=fedora:fedora/x86_64/coreos/stable\n"), "deployment-differs"},
		{"dangling link for the force file", link("run/machine-config-daemon-force"), "force-file-unknown"},
		{"dangling link for the tuning file", link("etc/pivot/kernel-args"), "legacy-kernel-arguments-unknown"},
		{"dangling link for FIPS", link(sysroot.FIPSPath), "fips-unknown"},
		{"dangling link for a folder of state", link("run/ostree"), "deployment-unknown"},
		{"dangling link for the opt-in of the network's cleaning", link("var/lib/mco/nm-clean-initrd-state"), "network-state-unknown"},
		{"forced", write("run/machine-config-daemon-force", ""), "force-file-differs"},
		{"legacy tuning file", write("etc/pivot/kernel-args", "ADD nosmt\n"), "legacy-kernel-arguments-differs"},
		{"soft reboot", write("run/ostree/nextroot-booted", "garbage"), "deployment-differs"},
		{"commit marked partial", func(t *testing.T, n *node) {
			write("sysroot/ostree/repo/state/"+n.deployment.Checksum+".commitpartial", "")(t, n)
		}, "deployment-differs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := l.bootNode(t, nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: url}})
			tt.edit(t, n)
			l.reg.ResetRequests()
			res := n.analyze(t)
			want := proceed(tt.want, 0)
			if tt.want == verdict.ReasonProven {
				want = skip(verdict.ProofManifestDigest, 0)
			}
			l.expect(t, res, want)
		})
	}
}

func TestFIPSWanted(t *testing.T) {
	l := newLab(t)
	url := l.reg.Reference("os/base", l.native.Digest)
	for name, tt := range map[string]struct {
		booted, wanted bool
		want           answer
	}{
		"on, wanted":     {true, true, skip(verdict.ProofManifestDigest, 0)},
		"on, not wanted": {true, false, proceed("fips-differs", 0)},
		"off, wanted":    {false, true, proceed("fips-differs", 0)},
	} {
		t.Run(name, func(t *testing.T) {
			n := l.bootNode(t, nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: url, FIPS: tt.wanted},
				boot: sysroot.BootOptions{FIPS: tt.booted}})
			l.reg.ResetRequests()
			l.expect(t, n.analyze(t), tt.want)
		})
	}
}

// A second deployment that boots next, and a real staged one.
func TestOtherDeployments(t *testing.T) {
	l := newLab(t)
	url := l.reg.Reference("os/base", l.native.Digest)
	t.Run("another boots next", func(t *testing.T) {
		n := l.bootNode(t, nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: url}})
		// Twice, so that the boot link of the command line is there again;
		// a tree with another kernel, so that it leads to the same deployment.
		commit := must[string](t)(l.build.CommitTree(sysroot.Tree{Kernels: []string{"6.1.0-1.el9.x86_64"}}, sysroot.CommitOptions{}))
		l.deploy(t, n.Sysroot, nodeOptions{commit: commit})
		l.deploy(t, n.Sysroot, nodeOptions{commit: commit})
		l.reg.ResetRequests()
		l.expect(t, n.analyze(t), proceed("deployment-differs", 0))
	})
	t.Run("an older one beside it", func(t *testing.T) {
		n := l.bootNode(t, nodeOptions{commit: l.other, mc: sysroot.MachineConfig{OSImageURL: url}})
		d := l.deploy(t, n.Sysroot, nodeOptions{image: l.native})
		if err := n.Boot(d, sysroot.BootOptions{MachineConfig: &sysroot.MachineConfig{OSImageURL: url}}); err != nil {
			t.Fatal(err)
		}
		l.reg.ResetRequests()
		l.expect(t, n.analyze(t), skip(verdict.ProofManifestDigest, 0))
	})
}

// The kubelet must be in the deployment's own tree; that the live /usr shows
// one (a sysext, an overlay) is not enough.
func TestKubeletOnlyInLiveUsr(t *testing.T) {
	l := newLab(t)
	commit := must[string](t)(l.build.CommitTree(sysroot.Tree{Without: []string{"usr/bin/kubelet"}}, sysroot.CommitOptions{}))
	image := must[*nativeimage.Image](t)(l.image(commit, nativeimage.Options{}))
	n := l.bootNode(t, nodeOptions{image: image, mc: sysroot.MachineConfig{OSImageURL: l.reg.Reference("os/thin", image.Digest)}})
	if err := n.WriteFile("usr/bin/kubelet", "a live one"); err != nil {
		t.Fatal(err)
	}
	l.reg.ResetRequests()
	l.expect(t, n.analyze(t), proceed("node-payload-differs", 0))
}

func TestInitrdNetworkState(t *testing.T) {
	l := newLab(t)
	url := l.reg.Reference("os/base", l.native.Digest)
	const generated = "[connection]\nid=Wired Connection\nuuid=11111111-1111-1111-1111-111111111111\ntype=ethernet\n\n[user]\norg.freedesktop.NetworkManager.origin=nm-initrd-generator\n"
	full := map[string]string{
		"var/lib/mco/nm-clean-initrd-state":                          "",
		"run/NetworkManager/devices/2":                               "[device]\nmanaged=true\nconnection-uuid=11111111-1111-1111-1111-111111111111\n",
		"run/NetworkManager/system-connections/default.nmconnection": generated,
		"etc/NetworkManager/system-connections/enp1s0.nmconnection":  "[connection]\nid=enp1s0\nuuid=22222222-2222-2222-2222-222222222222\ninterface-name=enp1s0\n",
		"sys/class/net/enp1s0/ifindex":                               "2\n",
		"sys/class/net/bonding_masters":                              "\n",
	}
	tests := []struct {
		name   string
		change map[string]string // replaces files; "-" removes one
		want   answer
	}{
		{"still in use", nil, proceed("network-state-differs", 0)},
		{"the service has not opted in", map[string]string{"var/lib/mco/nm-clean-initrd-state": "-"}, skip(verdict.ProofManifestDigest, 0)},
		{"the configured profile is active", map[string]string{"run/NetworkManager/devices/2": "[device]\nconnection-uuid=22222222-2222-2222-2222-222222222222\n"}, skip(verdict.ProofManifestDigest, 0)},
		{"nothing configured for the device", map[string]string{"sys/class/net/enp1s0/ifindex": "3\n"}, skip(verdict.ProofManifestDigest, 0)},
		{"profile does not autoconnect", map[string]string{"etc/NetworkManager/system-connections/enp1s0.nmconnection": "[connection]\ninterface-name=enp1s0\nautoconnect=false\n"}, skip(verdict.ProofManifestDigest, 0)},
		{"device state unreadable", map[string]string{"run/NetworkManager/devices/2": "no keyfile"}, proceed("network-state-unknown", 0)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := l.bootNode(t, nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: url}})
			for name, content := range full {
				if c, ok := tt.change[name]; ok {
					content = c
				}
				if content == "-" {
					continue
				}
				if err := n.WriteFile(name, content); err != nil {
					t.Fatal(err)
				}
			}
			l.reg.ResetRequests()
			l.expect(t, n.analyze(t), tt.want)
		})
	}
}

// A disk that never booted: the answer is hypothetical both ways.
func TestUnbooted(t *testing.T) {
	l := newLab(t)
	for name, tt := range map[string]struct {
		image *nativeimage.Image
		want  answer
	}{
		"the right content": {l.native, skip(verdict.ProofOSTreeCommit, fourRequests)},
		"another content":   {l.otherImage, proceed("os-content-differs", fourRequests)},
	} {
		t.Run(name, func(t *testing.T) {
			url := l.push(t, "os/disk", tt.image)
			s := must[*sysroot.Sysroot](t)(sysroot.New(filepath.Join(sysroot.TempDir(t), "disk")))
			d := l.deploy(t, s, nodeOptions{commit: l.base})
			for file, content := range map[string]string{
				"etc/containers/policy.json":     `{"default":[{"type":"insecureAcceptAnything"}]}`,
				"etc/containers/registries.conf": "[[registry]]\nlocation = \"" + l.reg.Host + "\"\ninsecure = true\n",
			} {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(d.Dir, file)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(d.Dir, file), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			l.reg.ResetRequests()
			n := &node{Root: &sysroot.Root{Dir: s.Dir, Sysroot: s}, deployment: d}
			res := n.analyze(t, func(o *daemon.Options) { o.Unbooted, o.Target = true, url })
			l.expect(t, res, tt.want)
			if !res.Verdict.Hypothetical {
				t.Error("not hypothetical")
			}
		})
	}
}

// Where a fast reboot is asked for, the registry is too: the arguments differ on nearly
// every first boot, and the target's version would stay unknown.
func TestFastRebootVersion(t *testing.T) {
	l := newLab(t)
	url := l.push(t, "os/other", l.otherImage)
	n := l.bootNode(t, nodeOptions{commit: l.base, mc: sysroot.MachineConfig{OSImageURL: url, KernelArguments: []string{"psi=0"}}})
	for name, text := range map[string]string{
		"proc/cpuinfo": "flags : fpu\n", "proc/sys/kernel/kexec_load_disabled": "0\n", "sys/kernel/security/lockdown": "[none] integrity\n",
		"usr/lib/systemd/libsystemd-shared-252.so": "",
	} {
		if err := n.WriteFile(name, text); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name, ask string
		want      answer
		state     string
	}{
		{"off", "", proceed("kernel-arguments-differs", 0), verdict.FastRebootRefused},
		{"kexec", daemon.FastRebootKexec, proceed("kernel-arguments-differs", fourRequests), verdict.FastRebootPossible},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l.reg.ResetRequests()
			res := n.analyze(t, func(o *daemon.Options) { o.FastReboot = tt.ask })
			l.expect(t, res, tt.want)
			if f := res.Verdict.FastReboot; f.State != tt.state {
				t.Errorf("got %+v, want %s", f, tt.state)
			}
		})
	}
}
