package units

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func shippedUnit(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../daemon/units/" + unitName)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const kubelet = "kubelet"

// before fails where the stand-ins did not run in the order given.
func (b boot) before(t *testing.T, names ...string) {
	t.Helper()
	last := -1
	for _, n := range names {
		i := slices.Index(b.order, n)
		if i < 0 {
			t.Errorf("%s did not run; these did: %v\n%s", n, b.order, b.console)
			return
		}
		if i < last {
			t.Errorf("%s ran too early: %v", n, b.order)
		}
		last = i
	}
}

func (b boot) ran(name string) bool { return slices.Contains(b.order, name) }

// A first boot: after the network, before the machine-config-daemon.
func TestOrder(t *testing.T) {
	m := newMachine(t, shippedUnit(t))
	m.program("oneboot", `did oneboot; echo "PROCEED: $*"; echo "a warning" >&2`)
	b := m.boot()
	b.before(t, "NetworkManager-wait-online", "oneboot", "machine-config-daemon-pull",
		"machine-config-daemon-firstboot", "nodeip-configuration", "ovs-configuration", "crio", kubelet)
	b.before(t, "crio-wipe", "oneboot", "kubelet-auto-node-size", kubelet)
	if got := b.state["ActiveState"] + " " + b.state["Result"]; got != "active success" {
		t.Errorf("got %s", got)
	}
	if b.failed != "" {
		t.Errorf("failed units: %s", b.failed)
	}
	if !strings.Contains(b.console, "oneboot[") || !strings.Contains(b.console, "PROCEED: firstboot --mode assert") || !strings.Contains(b.console, "a warning") {
		t.Errorf("on the console: %s", b.console)
	}
	if strings.Contains(b.console, "ordering cycle") {
		t.Errorf("on the console: %s", b.console)
	}
}

// What makes a unit that runs, in place of the shipped one, the same test for
// both forms: the image's stand-in podman runs what the other form runs itself.
func forms(t *testing.T) map[string]func(*testing.T, string) *machine {
	t.Helper()
	return map[string]func(*testing.T, string) *machine{
		"binary": func(t *testing.T, program string) *machine {
			m := newMachine(t, shippedUnit(t))
			if program != "" {
				m.program("oneboot", program)
			}
			return m
		},
		"podman": func(t *testing.T, program string) *machine {
			m := newMachine(t, podmanUnit(t))
			m.write("etc/oneboot/firstboot.env", "ONEBOOT_IMAGE="+testImage+"\nONEBOOT_MODE=assert\n")
			if program != "" {
				m.program("podman", `case "$1" in
image) exit 1 ;;
pull) echo "$*" >>/etc/report/pulls; exit 0 ;;
rm) exit 0 ;;
esac
`+program)
			}
			return m
		},
	}
}

// Whatever the program does, the node comes up as without it.
func TestNoHarm(t *testing.T) {
	tests := []struct {
		name, program string
		// result is what systemd says of the unit; slow is how many seconds
		// it may take, beyond what the machine takes anyway.
		result string
		slow   float64
	}{
		{"exit status 1", `did oneboot; exit 1`, "success", 0},
		{"usage", `did oneboot; exit 2`, "success", 0},
		{"crash", `did oneboot; kill -SEGV $$`, "success", 0},
		{"not there", ``, "success", 0},
		{"hangs", `did oneboot; exec sleep 60`, "timeout", 2},
		{"hangs and hears no signal", `did oneboot; trap "" TERM; sleep 60; sleep 60`, "timeout", 2 + 1},
		{"leaves a child", `did oneboot; sleep 60 & exit 0`, "success", 0},
	}
	for form, make := range forms(t) {
		for _, tt := range tests {
			t.Run(form+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				m := make(t, tt.program)
				m.dropIn("[Service]\nTimeoutStartSec=2\nTimeoutStopSec=1\n")
				b := m.boot()
				b.before(t, "NetworkManager-wait-online", "machine-config-daemon-pull", "machine-config-daemon-firstboot", kubelet)
				if tt.program != "" && !b.ran("oneboot") {
					t.Errorf("oneboot did not run\n%s", b.console)
				}
				if got := b.state["Result"]; got != tt.result {
					t.Errorf("got result %q, want %q\n%s", got, tt.result, b.console)
				}
				if took, most := b.at[kubelet]-b.at["NetworkManager-wait-online"], tt.slow+4; took > most {
					t.Errorf("the kubelet came after %.1f s, want %.1f at most\n%s", took, most, b.console)
				}
				if b.failed != "" && tt.result == "success" {
					t.Errorf("failed units: %s", b.failed)
				}
			})
		}
	}
}

// Where it has no business it does not run, and the node comes up.
func TestConditions(t *testing.T) {
	tests := []struct {
		name   string
		change func(*machine)
	}{
		{"turned off on the kernel command line", func(m *machine) { m.cmdline += " oneboot=off" }},
		{"turned off by a file", func(m *machine) { m.write("etc/oneboot/off", "") }},
		{"no ostree system", func(m *machine) { m.remove(m.side + ".run/ostree-booted") }},
		{"live system", func(m *machine) { m.file(m.side+".run/ostree-live", "", 0o644) }},
		{"second boot", func(m *machine) { m.remove(m.root + "/etc/ignition-machine-config-encapsulated.json") }},
	}
	for form, make := range forms(t) {
		for _, tt := range tests {
			t.Run(form+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				m := make(t, `did oneboot`)
				tt.change(m)
				b := m.boot()
				b.before(t, "NetworkManager-wait-online", kubelet)
				if b.ran("oneboot") || b.state["ConditionResult"] != "no" {
					t.Errorf("ran %v, condition %q", b.ran("oneboot"), b.state["ConditionResult"])
				}
				if b.failed != "" {
					t.Errorf("failed units: %s", b.failed)
				}
			})
		}
		// Another argument is none of its own.
		t.Run(form+"/another argument", func(t *testing.T) {
			m := make(t, `did oneboot`)
			m.cmdline += " oneboot=on noneboot=off"
			if b := m.boot(); !b.ran("oneboot") {
				t.Errorf("did not run\n%s", b.console)
			}
		})
	}
}

// Once it has completed the first boot, the machine-config-daemon's units find
// nothing to do in this very boot.
func TestCompleted(t *testing.T) {
	for form, make := range forms(t) {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			b := make(t, `did oneboot
mv /etc/ignition-machine-config-encapsulated.json /etc/ignition-machine-config-encapsulated.json.bak`).boot()
			b.before(t, "oneboot", kubelet)
			if b.ran("machine-config-daemon-pull") || b.ran("machine-config-daemon-firstboot") {
				t.Errorf("ran: %v", b.order)
			}
		})
	}
}

// The mode and the proxy come from files that may be missing, and bad ones do
// no harm.
func TestEnvironment(t *testing.T) {
	const say = `did oneboot; while test $# -gt 0; do test "$1" != --mode || last=$2; shift; done; echo "mode $last by ${HTTPS_PROXY-none}"`
	for form, make := range forms(t) {
		for _, tt := range []struct{ name, env, proxy, want string }{
			{"the default", "", "", "mode assert by none"},
			{"complete", "ONEBOOT_MODE=complete\n", "HTTPS_PROXY=http://u:p%40ss@proxy:3128\n", "mode complete by http://u:p%40ss@proxy:3128"},
			{"empty", "ONEBOOT_MODE=\n", "", "by none"},
			{"garbage", "\x00\xff not an assignment\nONEBOOT_MODE=$(reboot)\n", "}{", "by none"},
		} {
			t.Run(form+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				m := make(t, say)
				if tt.env != "" {
					m.write("etc/oneboot/firstboot.env", "ONEBOOT_IMAGE="+testImage+"\n"+tt.env)
				}
				if tt.proxy != "" {
					m.write("etc/mco/proxy.env", tt.proxy)
				}
				b := m.boot()
				b.before(t, "machine-config-daemon-pull", kubelet)
				if !strings.Contains(b.console, tt.want) {
					t.Errorf("want %q on the console:\n%s", tt.want, b.console)
				}
			})
		}
	}
}

// The unit of the image pulls it with the kubelet's credentials and runs it on
// the host's root.
func TestPodman(t *testing.T) {
	m := forms(t)["podman"](t, `did oneboot; echo "podman $*"`)
	m.file(filepath.Join(m.root, "etc/machine-config-daemon/generate_podman_policy_args.sh"),
		"#!/bin/sh\necho --signature-policy /etc/machine-config-daemon/policy-for-old-podman.json >/tmp/podman_policy_args\n", 0o755)
	b := m.boot()
	pulls, err := os.ReadFile(filepath.Join(m.root, "etc/report/pulls"))
	if err != nil {
		t.Fatalf("%v\n%s", err, b.console)
	}
	want := "pull --quiet --signature-policy /etc/machine-config-daemon/policy-for-old-podman.json --authfile=/var/lib/kubelet/config.json " + testImage + "\n"
	if string(pulls) != want {
		t.Errorf("got %s, want %s", pulls, want)
	}
	for _, want := range []string{" --volume=/:/rootfs ", " --pid=host ", " --privileged ", testImage + " firstboot --root /rootfs --mode assert"} {
		if !strings.Contains(b.console, want) {
			t.Errorf("no %q: %s", want, b.console)
		}
	}
}

// A fast reboot is armed where it is asked for, by a program that the host has, and not
// where the program says no.
func TestFastReboot(t *testing.T) {
	const say = `case "$*" in
*"fast-reboot install --root /rootfs"*)
	mkdir -p /run/oneboot
	printf '#!/bin/sh\necho "host: $*"\n' >/run/oneboot/oneboot
	chmod +x /run/oneboot/oneboot
	exit ;;
*"fast-reboot arm") echo "host: fast-reboot arm"; exit ;;
esac
did oneboot; echo "decides: $*"`
	for form, make := range forms(t) {
		for _, tt := range []struct {
			env   string
			armed bool
		}{{"ONEBOOT_FAST_REBOOT=kexec\n", true}, {"", form == "binary"}} {
			t.Run(form+"/"+tt.env, func(t *testing.T) {
				t.Parallel()
				m := make(t, say)
				m.write("etc/oneboot/firstboot.env", "ONEBOOT_IMAGE="+testImage+"\n"+tt.env)
				b := m.boot()
				b.before(t, "oneboot", "machine-config-daemon-pull", kubelet)
				want := "--fast-reboot off"
				if tt.env != "" {
					want = "--fast-reboot kexec"
				}
				if !strings.Contains(b.console, want) {
					t.Errorf("want %q on the console:\n%s", want, b.console)
				}
				// The binary is asked always, and goes by the record.
				if got := strings.Contains(b.console, "host: fast-reboot arm"); got != tt.armed {
					t.Errorf("armed is %v, want %v:\n%s", got, tt.armed, b.console)
				}
			})
		}
	}
}
