package verdict

import (
	"fmt"
	"slices"
	"strings"
)

// An MCO predicts what the unmodified machine-config-daemon does next, by its
// own rules: strings, not content.
type MCO struct {
	// WouldSkip is true only if it skips the reboot by itself.
	WouldSkip bool `json:"wouldSkip"`
	// Why lists what keeps it from skipping, or could; empty if nothing.
	Why []MCOReason `json:"why"`
}

// An MCOReason is one cause for the machine-config-daemon to reboot.
type MCOReason struct {
	// Code is stable.
	Code string `json:"code"`
	// Detail is for a person.
	Detail string `json:"detail"`
	// Versions says for which OpenShift releases it holds.
	Versions string `json:"versions"`
}

// predictMCO follows RunFirstbootCompleteMachineconfig and
// newMachineConfigDiff of the machine-config-operator (pkg/daemon/daemon.go,
// pkg/daemon/update.go), as far as the host's own files tell.
func predictMCO(b Booted, t Target) MCO {
	m := MCO{Why: []MCOReason{}}
	add := func(code, versions, detail string) {
		m.Why = append(m.Why, MCOReason{Code: code, Detail: detail, Versions: versions})
	}
	mc, ok := t.MachineConfig.Get()
	if !ok {
		add("machineconfig-unknown", "all", t.MachineConfig.Why())
		return m
	}
	if origin, ok := b.OriginReference.Get(); !ok {
		add("os-image-url-unknown", "all", "the origin of the booted deployment: "+b.OriginReference.Why())
	} else if origin != mc.OSImageURL {
		add("os-image-url", "all", fmt.Sprintf("it compares strings: the origin names %q, osImageURL is %q", origin, mc.OSImageURL))
	}
	if forced, ok := b.ForceFile.Get(); !ok {
		add("force-file-unknown", "all", b.ForceFile.Why())
	} else if forced {
		add("force-file", "all", "/run/machine-config-daemon-force exists")
	}
	predictKernelArguments(b, mc, add)
	if fips, ok := b.FIPS.Get(); !ok {
		add("fips-unknown", "4.15+", b.FIPS.Why())
	} else if fips != mc.FIPS {
		add("fips", "all", "it refuses to change FIPS mode and tries again each minute")
	} else if fips {
		add("fips-not-read", "before 4.15", "it compares with FIPS off whatever the host runs")
	}
	if mc.KernelType != "default" {
		add("kernel-type", "all", "it takes the booted kernel type to be the default one: any other reboots")
	}
	if len(mc.Extensions) > 0 {
		add("extensions", "all", "it takes the booted OS to have no extensions: any wanted one reboots")
	}
	if len(mc.Foreign) > 0 {
		add("ignition-content", "all", "the MachineConfig brings "+strings.Join(mc.Foreign, ", "))
	}
	if mc.LayeredImage != "" {
		add("on-cluster-layering", "4.18+", "the annotation ocl-osimageurl makes it update whatever the image")
	} else if len(mc.LayeringMarks) > 0 {
		add("on-cluster-layering", "4.18+", strings.Join(mc.LayeringMarks, ", "))
	}
	predictSkopeoGate(b, t, mc, add)
	m.WouldSkip = !slices.ContainsFunc(m.Why, func(r MCOReason) bool { return r.Versions != "before 4.15" })
	return m
}

// predictKernelArguments follows setRunningKargs: of the boot entry's
// arguments it keeps those that equal a whole wanted entry, in the boot
// entry's order, and compares the two lists.
func predictKernelArguments(b Booted, mc MachineConfig, add func(code, versions, detail string)) {
	if len(mc.KernelArguments) == 0 {
		return
	}
	add("kernel-arguments-not-read", "before 4.15", "it compares with no kernel arguments whatever the host runs")
	line, ok := b.BootEntryOptions.Get()
	if !ok {
		add("kernel-arguments-unknown", "4.15+", "boot entry: "+b.BootEntryOptions.Why())
		return
	}
	var running []string
	for _, w := range SplitKernelArguments(line) {
		if slices.Contains(mc.KernelArguments, w) {
			running = append(running, w)
		}
	}
	if !slices.Equal(running, mc.KernelArguments) {
		add("kernel-arguments", "4.15+", fmt.Sprintf("it compares whole entries in order: the boot entry gives %q, the MachineConfig %q", showLines(running), showLines(mc.KernelArguments)))
	}
}

// predictSkopeoGate follows skopeoSupportsMultiArchSigstore: before it compares
// anything, the MCD of 4.22 and later pivots in place where the image is a
// manifest list and the host's skopeo is older than 1.22.2. An image that is
// known to be no list passes.
func predictSkopeoGate(b Booted, t Target, mc MachineConfig, add func(code, versions, detail string)) {
	if booted, ok := b.Identity.ManifestDigest.Get(); ok && booted == mc.Digest && mc.Digest != "" {
		return
	}
	if target, ok := t.Identity.ManifestDigest.Get(); ok && target == mc.Digest && mc.Digest != "" {
		return
	}
	add("skopeo-gate-unknown", "4.22+", "if the image is a manifest list and the host's skopeo older than 1.22.2, it pivots before it compares")
}
