package verdict_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// metal is a host of bare metal that is to become another version of the same RHEL.
func metal() (verdict.Booted, verdict.Target) {
	b := verdict.Booted{
		Architecture: verdict.Known("amd64"), FIPS: verdict.Known(false), BootEntryOptions: verdict.Known("root=UUID=1 rw $ignition_firstboot"),
		RunningKernel: verdict.Known("5.14.0-1.x86_64"),
		Machine: verdict.Machine{Virtualization: verdict.Known(""), Confidential: verdict.Known(false), KexecDisabled: verdict.Known(false),
			Lockdown: verdict.Known("none"), Systemd: verdict.Known(252),
			Vendor: verdict.Known("Dell Inc."), Product: verdict.Known("PowerEdge R640"), Denied: verdict.Known([]string(nil)), Allowed: verdict.Known([]string(nil))},
	}
	b.Identity.Version = "9.6.20250101-0"
	t := verdict.Target{MachineConfig: verdict.Known(verdict.MachineConfig{})}
	t.Identity.Version = "9.6.20250301-0"
	return b, t
}

func TestFastReboot(t *testing.T) {
	list := func(lines ...string) verdict.Fact[[]string] { return verdict.Known(lines) }
	tests := []struct {
		name string
		edit func(*verdict.Booted, *verdict.Target)
		want []string
	}{
		{"bare metal", func(*verdict.Booted, *verdict.Target) {}, nil},
		{"a virtual machine", func(b *verdict.Booted, _ *verdict.Target) { b.Machine.Virtualization = verdict.Known("kvm") }, []string{"virtual-machine"}},
		{"a virtual machine that is allowed", func(b *verdict.Booted, _ *verdict.Target) {
			b.Machine.Virtualization, b.Machine.Allowed = verdict.Known("kvm"), list(verdict.VirtualAllowed)
		}, nil},
		{"a confidential guest that is allowed", func(b *verdict.Booted, _ *verdict.Target) {
			b.Machine.Virtualization, b.Machine.Confidential, b.Machine.Allowed = verdict.Known("kvm"), verdict.Known(true), list(verdict.VirtualAllowed)
		}, []string{"confidential-guest"}},
		{"arm64", func(b *verdict.Booted, _ *verdict.Target) { b.Architecture = verdict.Known("arm64") }, []string{"architecture"}},
		{"FIPS", func(b *verdict.Booted, _ *verdict.Target) { b.FIPS = verdict.Known(true) }, []string{"fips"}},
		{"FIPS wanted", func(_ *verdict.Booted, t *verdict.Target) {
			t.MachineConfig = verdict.Known(verdict.MachineConfig{FIPS: true})
		}, []string{"fips"}},
		{"realtime wanted", func(_ *verdict.Booted, t *verdict.Target) {
			t.MachineConfig = verdict.Known(verdict.MachineConfig{KernelType: "realtime"})
		}, []string{"kernel-type"}},
		{"RHEL 10 wanted", func(_ *verdict.Booted, t *verdict.Target) { t.Identity.Version = "10.2.20250301-0" }, []string{"rhel-major"}},
		{"the version of the days before 4.19", func(b *verdict.Booted, _ *verdict.Target) { b.Identity.Version = "416.94.202410160352-0" }, nil},
		{"no version", func(_ *verdict.Booted, t *verdict.Target) { t.Identity.Version = "" }, []string{"rhel-major-unknown"}},
		{"kexec switched off", func(b *verdict.Booted, _ *verdict.Target) { b.Machine.KexecDisabled = verdict.Known(true) }, []string{"kexec-disabled"}},
		{"locked down", func(b *verdict.Booted, t *verdict.Target) {
			b.Machine.Lockdown, t.Identity.KernelRelease = verdict.Known("integrity"), "5.14.0-2.x86_64"
		}, []string{"lockdown"}},
		{"locked down, and nothing is known of the kernel", func(b *verdict.Booted, _ *verdict.Target) {
			b.Machine.Lockdown = verdict.Known("confidentiality")
		}, []string{"lockdown"}},
		{"locked down, and the kernel stays", func(b *verdict.Booted, t *verdict.Target) {
			b.Machine.Lockdown, t.Identity.KernelRelease = verdict.Known("integrity"), "5.14.0-1.x86_64"
		}, nil},
		{"systemd of RHEL 8", func(b *verdict.Booted, _ *verdict.Target) { b.Machine.Systemd = verdict.Known(239) }, []string{"systemd"}},
		{"systemd of RHEL 10", func(b *verdict.Booted, _ *verdict.Target) { b.Machine.Systemd = verdict.Known(257) }, nil},
		{"denied by the vendor", func(b *verdict.Booted, _ *verdict.Target) { b.Machine.Denied = list("dell*") }, []string{"hardware-denied"}},
		{"denied by the product", func(b *verdict.Booted, _ *verdict.Target) { b.Machine.Denied = list("Dell Inc./PowerEdge R6?0") }, []string{"hardware-denied"}},
		{"another one denied", func(b *verdict.Booted, _ *verdict.Target) { b.Machine.Denied = list("Dell Inc./PowerEdge R740") }, nil},
		{"allowed", func(b *verdict.Booted, _ *verdict.Target) { b.Machine.Allowed = list("HPE/*", "Dell Inc./*") }, nil},
		{"not allowed", func(b *verdict.Booted, _ *verdict.Target) { b.Machine.Allowed = list("HPE/*") }, []string{"hardware-not-allowed"}},
		{"an empty list allows nothing", func(b *verdict.Booted, _ *verdict.Target) { b.Machine.Allowed = verdict.Known([]string{}) }, []string{"hardware-not-allowed"}},
		{"a list and no name", func(b *verdict.Booted, _ *verdict.Target) {
			b.Machine.Denied, b.Machine.Product = list("HPE/*"), verdict.Unknown[string]("no file")
		}, []string{"hardware-denied-unknown"}},
		{"a list that cannot be read", func(b *verdict.Booted, _ *verdict.Target) { b.Machine.Allowed = verdict.Unknown[[]string]("no") }, []string{"hardware-denied-unknown"}},
		{"a variable of the boot loader", func(b *verdict.Booted, _ *verdict.Target) {
			b.BootEntryOptions = verdict.Known("root=$root rw")
		}, []string{"boot-entry-variable"}},
		{"nothing is known", func(b *verdict.Booted, t *verdict.Target) { *b, *t = verdict.Booted{}, verdict.Target{} },
			[]string{"virtual-machine-unknown", "confidential-guest-unknown", "kexec-disabled-unknown", "lockdown-unknown", "systemd-unknown", "architecture-unknown", "fips-unknown", "kernel-type-unknown", "rhel-major-unknown", "hardware-denied-unknown", "boot-entry-variable-unknown"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, target := metal()
			tt.edit(&b, &target)
			v := verdict.Decide(b, target, verdict.Policy{})
			var got []string
			for _, w := range v.FastReboot.Why {
				got = append(got, w.Code)
				if !slices.Contains(verdict.FastRebootCodes(), w.Code) {
					t.Errorf("%s is not among the codes", w.Code)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if possible := v.FastReboot.State == verdict.FastRebootPossible; possible != (tt.want == nil) {
				t.Errorf("the state is %s", v.FastReboot.State)
			}
			if v.Action != verdict.Proceed {
				t.Errorf("it says %s", v.Action)
			}
		})
	}
}

// What the target is, is asked for where a fast reboot is wanted and nothing refuses it
// that is known already.
func TestFastRebootNeeds(t *testing.T) {
	image := []verdict.Need{verdict.NeedInstance, verdict.NeedManifest, verdict.NeedConfig}
	for _, tt := range []struct {
		name   string
		policy verdict.Policy
		edit   func(*verdict.Booted, *verdict.Target)
		want   []verdict.Need
	}{
		{"not wanted", verdict.Policy{}, func(*verdict.Booted, *verdict.Target) {}, nil},
		{"wanted", verdict.Policy{FastReboot: true}, func(*verdict.Booted, *verdict.Target) {}, image},
		{"locked down", verdict.Policy{FastReboot: true}, func(b *verdict.Booted, _ *verdict.Target) { b.Machine.Lockdown = verdict.Known("integrity") }, image},
		{"refused anyway", verdict.Policy{FastReboot: true}, func(b *verdict.Booted, _ *verdict.Target) { b.Machine.Virtualization = verdict.Known("kvm") }, nil},
		{"possible", verdict.Policy{FastReboot: true}, func(_ *verdict.Booted, t *verdict.Target) { t.Identity.Version = "9.6.20250301-0" }, nil},
		{"no MachineConfig", verdict.Policy{FastReboot: true}, func(_ *verdict.Booted, t *verdict.Target) {
			t.MachineConfig = verdict.Unknown[verdict.MachineConfig]("none")
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, target := metal()
			// As on nearly every first boot, an argument differs: no skip is possible.
			b.CommandLine, b.Packages = b.BootEntryOptions, verdict.Known([]verdict.Package{})
			target.MachineConfig = verdict.Known(verdict.MachineConfig{KernelArguments: []string{"psi=0"}})
			target.Identity.Version = ""
			tt.edit(&b, &target)
			if diff := cmp.Diff(tt.want, verdict.Decide(b, target, tt.policy).Needs, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestRHELMajor(t *testing.T) {
	for version, want := range map[string]int{"9.6.20250101-0": 9, "10.2.20250101-0": 10, "416.94.202410160352-0": 9, "49.84.202109102026-0": 8, "8.10.1-0": 8,
		"41.20241122.3.0": 0, "": 0, "9": 0, "9.6": 0, "x.y.z": 0, "-9.6.1": 0, "416.9.1": 0, "2024.94.1": 0} {
		if got := verdict.RHELMajor(version); got != want {
			t.Errorf("%q: %d, want %d", version, got, want)
		}
	}
}

func TestKexecCommandLine(t *testing.T) {
	const options = `root=UUID=1 rw $ignition_firstboot cgroup_no_v1="all" ostree=/ostree/boot.1/rhcos/abc/0`
	want := `BOOT_IMAGE=/boot/ostree/rhcos-abc/vmlinuz root=UUID=1 rw cgroup_no_v1="all" ostree=/ostree/boot.1/rhcos/abc/0`
	if got := verdict.KexecCommandLine(options, "/boot/ostree/rhcos-abc/vmlinuz"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for options, want := range map[string]string{options: "", "a $b": "$b", "a=${b}": "a=${b}", "$ignition_firstboot_x": "$ignition_firstboot_x"} {
		if got := verdict.BootVariable(options); got != want {
			t.Errorf("%s: %q, want %q", options, got, want)
		}
	}
}

func TestSoftReboot(t *testing.T) {
	for _, tt := range []struct {
		kernel, options, want string
		wanted                []string
	}{
		{"5.14.0-1.x86_64", "root=UUID=1 rw", "candidate", nil},
		{"5.14.0-2.x86_64", "root=UUID=1 rw", "no", nil},
		{"", "root=UUID=1 rw", "unknown", nil},
		{"5.14.0-1.x86_64", "root=UUID=1 rw", "no", []string{"psi=0"}},
	} {
		b, target := metal()
		b.BootEntryOptions, b.CommandLine = verdict.Known(tt.options), verdict.Known(tt.options)
		target.Identity.KernelRelease = tt.kernel
		target.MachineConfig = verdict.Known(verdict.MachineConfig{KernelArguments: tt.wanted})
		if got := verdict.Decide(b, target, verdict.Policy{}).FastReboot.SoftReboot; got != tt.want {
			t.Errorf("kernel %q, arguments %v: %s, want %s", tt.kernel, tt.wanted, got, tt.want)
		}
	}
}
