package verdict

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Machine is what a fast reboot depends on beside the OS.
type Machine struct {
	// Virtualization names what the host runs in; known and empty on bare metal.
	Virtualization Fact[string] `json:"virtualization"`
	// Confidential says that the host is a confidential guest.
	Confidential Fact[bool] `json:"confidential"`
	// KexecDisabled is kernel.kexec_load_disabled; true too for a kernel without
	// kexec.
	KexecDisabled Fact[bool] `json:"kexecDisabled"`
	// Lockdown is "none", "integrity" or "confidentiality": a kernel that is locked
	// down starts only one whose signature it knows.
	Lockdown Fact[string] `json:"lockdown"`
	// Systemd is the version of the systemd that reboots.
	Systemd Fact[int] `json:"systemd"`
	// Vendor and Product are those of the DMI.
	Vendor  Fact[string] `json:"vendor"`
	Product Fact[string] `json:"product"`
	// Denied and Allowed are the administrator's lists; known and nil where there is
	// no such list.
	Denied  Fact[[]string] `json:"denied"`
	Allowed Fact[[]string] `json:"allowed"`
}

// VirtualAllowed in the list of allowed hardware is for tests: it allows virtual
// machines.
const VirtualAllowed = "virtual-machines"

// A FastReboot says whether the reboot that the machine-config-daemon will ask for
// could leave out the firmware. It decides nothing: without the administrator's wish
// nothing is done upon it.
type FastReboot struct {
	// State is "possible" or "refused".
	State string `json:"state"`
	// Why has what refuses it; empty exactly where it is possible.
	Why []FastRebootReason `json:"why"`
	// SoftReboot is "candidate" where kernel and arguments stay the same, so that
	// only userspace would have to start again; "no" or "unknown". It is never done.
	SoftReboot string `json:"softReboot"`
}

// The states of a fast reboot.
const (
	FastRebootPossible = "possible"
	FastRebootRefused  = "refused"
)

// A FastRebootReason is why it is refused: a stable code, and a detail for a person.
type FastRebootReason struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// The codes.
const (
	FastRebootNoReboot       = "no-reboot"            // the answer is skip
	FastRebootVirtual        = "virtual-machine"      // there is next to no firmware to leave out
	FastRebootConfidential   = "confidential-guest"   // what was measured would no longer be what runs
	FastRebootArchitecture   = "architecture"         // not amd64
	FastRebootFIPS           = "fips"                 // dracut's FIPS check wants what GRUB hands over
	FastRebootKernelType     = "kernel-type"          // another kernel than the default one
	FastRebootRHELMajor      = "rhel-major"           // another major version of RHEL
	FastRebootKexecDisabled  = "kexec-disabled"       // kernel.kexec_load_disabled
	FastRebootLockdown       = "lockdown"             // the kernel may not know the signature of the wanted one
	FastRebootSystemd        = "systemd"              // older than what this was tried with
	FastRebootDenied         = "hardware-denied"      // the deny list
	FastRebootNotAllowed     = "hardware-not-allowed" // there is an allow list, and it has no such hardware
	FastRebootBootEntry      = "boot-entry-variable"  // a $variable of the boot loader
	FastRebootUnknownSuffix  = "-unknown"             // any of these: what would tell is not known
	fastRebootIgnitionOption = "$ignition_firstboot"  // empty from the second boot on
)

// oldestSystemd is the first one that the fast reboot was tried with: RHEL 9's.
const oldestSystemd = 252

// FastRebootCodes are all codes.
func FastRebootCodes() []string {
	all := []string{FastRebootNoReboot}
	for _, c := range []string{FastRebootVirtual, FastRebootConfidential, FastRebootArchitecture, FastRebootFIPS, FastRebootKernelType, FastRebootRHELMajor, FastRebootKexecDisabled, FastRebootLockdown, FastRebootSystemd, FastRebootDenied, FastRebootBootEntry} {
		all = append(all, c, c+FastRebootUnknownSuffix)
	}
	return append(all, FastRebootNotAllowed)
}

// predictFastReboot follows what is known to go wrong: unknown refuses.
func predictFastReboot(b Booted, t Target, a Action) FastReboot {
	f := FastReboot{State: FastRebootRefused, Why: []FastRebootReason{}, SoftReboot: softReboot(b, t)}
	refuse := func(code, detail string) { f.Why = append(f.Why, FastRebootReason{code, detail}) }
	unknown := func(code, why string) { refuse(code+FastRebootUnknownSuffix, why) }
	if a == Skip {
		refuse(FastRebootNoReboot, "the booted OS is the wanted one")
	}
	allowed, allowedOK := b.Machine.Allowed.Get()
	virtual := slices.Contains(allowed, VirtualAllowed)
	if v, ok := b.Machine.Virtualization.Get(); !ok {
		unknown(FastRebootVirtual, b.Machine.Virtualization.Why())
	} else if v != "" && !virtual {
		refuse(FastRebootVirtual, v)
	}
	isTrue(b.Machine.Confidential, FastRebootConfidential, "the memory is encrypted, and the boot is attested", refuse)
	isTrue(b.Machine.KexecDisabled, FastRebootKexecDisabled, "kernel.kexec_load_disabled is 1, or the kernel has no kexec", refuse)
	if l, ok := b.Machine.Lockdown.Get(); !ok {
		unknown(FastRebootLockdown, b.Machine.Lockdown.Why())
	} else if kernel, _ := b.RunningKernel.Get(); l != lockdownNone && (kernel == "" || kernel != t.Identity.KernelRelease) {
		refuse(FastRebootLockdown, l+": whether the signature of another kernel than "+strconv.Quote(kernel)+" is good is not known")
	}
	if s, ok := b.Machine.Systemd.Get(); !ok {
		unknown(FastRebootSystemd, b.Machine.Systemd.Why())
	} else if s < oldestSystemd {
		refuse(FastRebootSystemd, strconv.Itoa(s)+" is older than "+strconv.Itoa(oldestSystemd))
	}
	if arch, ok := b.Architecture.Get(); !ok {
		unknown(FastRebootArchitecture, b.Architecture.Why())
	} else if arch != "amd64" {
		refuse(FastRebootArchitecture, arch)
	}
	isTrue(b.FIPS, FastRebootFIPS, "the running kernel is in FIPS mode", refuse)
	if mc, ok := t.MachineConfig.Get(); !ok {
		unknown(FastRebootKernelType, t.MachineConfig.Why())
	} else {
		if mc.FIPS && !slices.ContainsFunc(f.Why, func(r FastRebootReason) bool { return r.Code == FastRebootFIPS }) {
			refuse(FastRebootFIPS, "the MachineConfig wants FIPS mode")
		}
		if mc.KernelType != "" && mc.KernelType != "default" {
			refuse(FastRebootKernelType, mc.KernelType)
		}
	}
	have, want := RHELMajor(b.Identity.Version), RHELMajor(t.Identity.Version)
	switch {
	case have == 0 || want == 0:
		unknown(FastRebootRHELMajor, "booted version "+strconv.Quote(b.Identity.Version)+", wanted version "+strconv.Quote(t.Identity.Version))
	case have != want:
		refuse(FastRebootRHELMajor, strconv.Itoa(have)+" is booted and "+strconv.Itoa(want)+" is wanted")
	}
	refuseHardware(b.Machine, virtual, allowed, allowedOK, refuse)
	if options, ok := b.BootEntryOptions.Get(); !ok {
		unknown(FastRebootBootEntry, b.BootEntryOptions.Why())
	} else if v := BootVariable(options); v != "" {
		refuse(FastRebootBootEntry, v)
	}
	if len(f.Why) == 0 {
		f.State = FastRebootPossible
	}
	return f
}

// lockdownNone is what the kernel says where it is not locked down.
const lockdownNone = "none"

// fastRebootNeeds are what a fast reboot waits for that is wanted: the version and the
// kernel of the target, where nothing else refuses it. A node whose kernel arguments
// differ has asked nobody for them.
func fastRebootNeeds(t Target, f FastReboot) []Need {
	for _, w := range f.Why {
		if w.Code != FastRebootRHELMajor+FastRebootUnknownSuffix && w.Code != FastRebootLockdown {
			return nil
		}
	}
	if len(f.Why) == 0 {
		return nil
	}
	return imageNeeds(t)
}

func isTrue(fact Fact[bool], code, detail string, refuse func(code, detail string)) {
	if v, ok := fact.Get(); !ok {
		refuse(code+FastRebootUnknownSuffix, fact.Why())
	} else if v {
		refuse(code, detail)
	}
}

// refuseHardware goes by the administrator's lists of "VENDOR/PRODUCT", where * and ?
// stand for any letters.
func refuseHardware(m Machine, virtual bool, allowed []string, allowedOK bool, refuse func(code, detail string)) {
	denied, ok := m.Denied.Get()
	if !ok || !allowedOK {
		refuse(FastRebootDenied+FastRebootUnknownSuffix, strings.TrimSpace(m.Denied.Why()+" "+m.Allowed.Why()))
		return
	}
	if denied == nil && (allowed == nil || virtual) {
		return
	}
	vendor, vendorOK := m.Vendor.Get()
	product, productOK := m.Product.Get()
	if !vendorOK || !productOK {
		refuse(FastRebootDenied+FastRebootUnknownSuffix, "what the hardware is called is not known: "+strings.TrimSpace(m.Vendor.Why()+" "+m.Product.Why()))
		return
	}
	name := vendor + "/" + product
	matches := func(pattern string) bool { return hardwareMatches(pattern, vendor, product) }
	switch {
	case slices.ContainsFunc(denied, matches):
		refuse(FastRebootDenied, name)
	case allowed != nil && !virtual && !slices.ContainsFunc(allowed, matches):
		refuse(FastRebootNotAllowed, name)
	}
}

// hardwareMatches: a pattern that is none matches everything where it denies, so it is
// refused when the list is read.
func hardwareMatches(pattern, vendor, product string) bool {
	v, p, both := strings.Cut(pattern, "/")
	ok, err := path.Match(strings.ToLower(v), strings.ToLower(strings.ReplaceAll(vendor, "/", " ")))
	if err != nil || !ok || !both {
		return err == nil && ok && !both
	}
	ok, err = path.Match(strings.ToLower(p), strings.ToLower(strings.ReplaceAll(product, "/", " ")))
	return err == nil && ok
}

// BootVariable is the first variable of the boot loader in the options of a boot entry
// that is not Ignition's, which is empty from the second boot on; empty where there is
// none.
func BootVariable(options string) string {
	for _, o := range strings.Fields(options) {
		if strings.Contains(o, "$") && o != fastRebootIgnitionOption {
			return o
		}
	}
	return ""
}

// KexecCommandLine is the kernel command line of a boot entry as GRUB would make it
// on any boot but the first: without the variable, with BOOT_IMAGE.
func KexecCommandLine(options, linux string) string {
	all := []string{"BOOT_IMAGE=" + linux}
	for _, o := range strings.Fields(options) {
		if o != fastRebootIgnitionOption {
			all = append(all, o)
		}
	}
	return strings.Join(all, " ")
}

// RHELMajor is the major version of RHEL in a version of RHCOS or SCOS: 9 of
// 9.6.20250101-0 and of 416.94.202410160352-0; 0 where it tells none.
func RHELMajor(version string) int {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 3 {
		return 0
	}
	head, err := strconv.Atoi(parts[0])
	second, err2 := strconv.Atoi(parts[1])
	switch {
	case err != nil || err2 != nil:
		return 0
	case head >= 8 && head <= 19:
		return head
	case head >= 40 && head < 1000 && second >= 80 && second < 200 && len(parts[0]) < 4:
		// OpenShift's version, and RHEL's in two digits.
		return second / 10
	}
	return 0
}

// softReboot reports whether kernel and arguments stay the same.
func softReboot(b Booted, t Target) string {
	kernel, ok := b.RunningKernel.Get()
	if !ok || t.Identity.KernelRelease == "" {
		return "unknown"
	}
	if kernel != t.Identity.KernelRelease {
		return "no"
	}
	f := check(CheckKernelArguments, b, t, Policy{})
	switch f.Outcome {
	case OutcomeSame:
		return "candidate"
	case OutcomeDiffers:
		return "no"
	}
	return "unknown"
}
