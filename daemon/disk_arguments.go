package daemon

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/disk"
	"github.com/oneboot/oneboot/pkg/machineconfig"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// firstbootArgument is the GRUB variable in the boot entry that makes the first
// boot run Ignition.
const firstbootArgument = "$ignition_firstboot"

// UUIDs of the file systems of a CoreOS build. The first boot gives file systems
// that have them new ones (ignition-ostree-firstboot-uuid of
// fedora-coreos-config): ext4 for boot, xfs for root.
const (
	placeholderBoot = "96d15588-3596-4b3c-adca-a2ff7279ea63"
	placeholderRoot = "910678ff-f77e-4a7d-8d53-86f2ac47a823"
)

func isDamaged(err error) bool { return errors.Is(err, disk.ErrDamaged) }

// why says why nothing is known of the root.
func (f rootFacts) why() string {
	if f.err != nil {
		return f.err.Error()
	}
	return f.noEntry
}

// arguments are those of the default boot entry; not ok where there is none.
func (f rootFacts) arguments() ([]verdict.KernelArgument, bool) {
	if f.err != nil || f.noEntry != "" {
		return nil, false
	}
	return verdict.ParseKernelArguments(f.options), true
}

// lastValue is the value that dracut and systemd take of a repeated argument.
func lastValue(args []verdict.KernelArgument, key string) (value string, times int) {
	for _, a := range args {
		if a.Key == key {
			value = a.Value
			times++
		}
	}
	return value, times
}

func (f rootFacts) checkFirstboot() verdict.Check {
	if _, ok := f.arguments(); !ok {
		return verdict.Check{Detail: f.why()}
	}
	var others []string
	found := false
	for _, word := range verdict.SplitKernelArguments(f.options) {
		switch {
		case word == firstbootArgument:
			found = true
		case strings.Contains(word, "$"):
			others = append(others, word)
		}
	}
	switch {
	case !found && slices.Contains(strings.Fields(f.options), "ignition.firstboot"):
		return verdict.Check{Outcome: verdict.OutcomeDiffers, Booted: "ignition.firstboot", Target: firstbootArgument,
			Detail: "ignition.firstboot is in the boot entry itself: Ignition would run on every boot, not only the first"}
	case !found:
		return verdict.Check{Outcome: verdict.OutcomeDiffers, Target: firstbootArgument,
			Detail: "the boot entry has no " + firstbootArgument + ": Ignition would never run"}
	case len(others) > 0:
		return verdict.Check{Detail: "what GRUB makes of " + strings.Join(others, " ") + " in the boot entry is not known"}
	}
	return verdict.Check{Outcome: verdict.OutcomeSame, Booted: firstbootArgument}
}

func (f rootFacts) checkStamp() verdict.Check {
	// Without an entry it may be that nothing is mounted at boot.
	if f.err != nil || f.noEntry != "" {
		return verdict.Check{Detail: f.why()}
	}
	stamp, ok1 := f.stamp.Get()
	booted, ok2 := f.booted.Get()
	switch {
	case !ok1:
		return verdict.Check{Detail: f.stamp.Why()}
	case !ok2:
		return verdict.Check{Detail: f.booted.Why()}
	case booted:
		return verdict.Check{Outcome: verdict.OutcomeDiffers, Detail: "the disk has booted before: " + rootUUIDStamp + " is there, and a first boot stops at that"}
	case !stamp:
		return verdict.Check{Outcome: verdict.OutcomeDiffers, Detail: ignitionStamp + " is missing: Ignition would never run"}
	}
	return verdict.Check{Outcome: verdict.OutcomeSame, Booted: ignitionStamp}
}

func (f rootFacts) checkPlatform(want string) verdict.Check {
	args, ok := f.arguments()
	if !ok {
		return verdict.Check{Detail: f.why()}
	}
	c := verdict.Check{Target: want}
	var times int
	c.Booted, times = lastValue(args, "ignition.platform.id")
	switch {
	case times == 0:
		c.Outcome, c.Detail = verdict.OutcomeDiffers, "the boot entry has no ignition.platform.id: Ignition would fail"
	case times > 1:
		c.Detail = "the boot entry has more than one ignition.platform.id"
	case c.Booted != want:
		c.Outcome, c.Detail = verdict.OutcomeDiffers, fmt.Sprintf("ignition.platform.id is %s, not %s: Ignition would look for its config elsewhere", c.Booted, want)
	default:
		c.Outcome = verdict.OutcomeSame
	}
	return c
}

// checkRootArguments: root= and boot= must still lead to the file systems once
// the first boot has given them new UUIDs. Without them the first boot adds its
// own.
func (d *diskRun) checkRootArguments() verdict.Check {
	args, ok := d.root.arguments()
	if !ok {
		return verdict.Check{Detail: d.root.why()}
	}
	out := verdict.Check{Outcome: verdict.OutcomeSame}
	var shown []string
	for _, a := range []struct{ key, placeholder, kind string }{{labelRoot, placeholderRoot, disk.TypeXFS}, {labelBoot, placeholderBoot, disk.TypeExt4}} {
		value, times := lastValue(args, a.key)
		if times == 0 {
			continue
		}
		shown = append(shown, a.key+"="+value)
		c := d.layout.checkDevice(a.key, value, a.placeholder, a.kind)
		if c.Outcome == verdict.OutcomeDiffers || c.Outcome == verdict.OutcomeUnknown && out.Outcome != verdict.OutcomeDiffers {
			out.Outcome, out.Detail = c.Outcome, c.Detail
		}
	}
	if out.Booted = strings.Join(shown, " "); out.Booted == "" {
		out.Booted = "none: the first boot adds them"
	}
	return out
}

func (l layout) checkDevice(key, value, placeholder, kind string) verdict.Check {
	tag, name, _ := strings.Cut(value, "=")
	if by, ok := strings.CutPrefix(value, "/dev/disk/by-"); ok {
		tag, name = path.Split(by)
		tag = strings.ToUpper(strings.TrimSuffix(tag, "/"))
	}
	argument := key + "=" + value
	switch tag {
	case "LABEL":
		if name == key {
			return verdict.Check{Outcome: verdict.OutcomeSame}
		}
		return verdict.Check{Outcome: verdict.OutcomeDiffers, Detail: fmt.Sprintf("%s is not the label %s of the file system", argument, key)}
	case "UUID":
		return l.checkUUID(key, strings.ToLower(name), placeholder, kind)
	case "PARTUUID", "PARTLABEL":
		if l.err != nil {
			return verdict.Check{Detail: argument + ": " + l.err.Error()}
		}
		fs, err := l.labelled(key)
		if err == nil && (tag == "PARTUUID" && strings.EqualFold(fs.GUID, name) || tag == "PARTLABEL" && fs.Name == name) {
			return verdict.Check{Outcome: verdict.OutcomeSame}
		}
		return verdict.Check{Outcome: verdict.OutcomeDiffers, Detail: fmt.Sprintf("%s is not the partition of the file system %s", argument, key)}
	}
	return verdict.Check{Detail: fmt.Sprintf("what %s is on another machine is not known: leave it out, and the first boot adds its own", argument)}
}

// checkUUID: the first boot replaces the placeholder on a file system of the
// kind that builds have, and no other UUID.
func (l layout) checkUUID(key, uuid, placeholder, kind string) verdict.Check {
	fs, err := l.labelled(key)
	if uuid == placeholder && (l.err != nil || err != nil || fs.Type == kind) {
		return verdict.Check{Outcome: verdict.OutcomeDiffers,
			Detail: fmt.Sprintf("%s=UUID=%s is what the first boot replaces by a new UUID: leave it out, and the first boot adds its own", key, uuid)}
	}
	if l.err != nil {
		return verdict.Check{Detail: fmt.Sprintf("%s=UUID=%s: %v", key, uuid, l.err)}
	}
	if err != nil || fs.UUID != uuid {
		return verdict.Check{Outcome: verdict.OutcomeDiffers, Detail: fmt.Sprintf("%s=UUID=%s is not the file system %s", key, uuid, key)}
	}
	return verdict.Check{Outcome: verdict.OutcomeSame}
}

// knownStateroots are those of CoreOS builds and of assisted-installer.
func knownStateroots() []string { return []string{"rhcos", "scos", "fedora-coreos", "install"} }

func (f rootFacts) checkStateroot(want string) verdict.Check {
	if f.err != nil || f.stateroot == "" {
		return verdict.Check{Detail: f.why()}
	}
	c := verdict.Check{Booted: f.stateroot, Target: want}
	exists, ok := f.stateVar.Get()
	switch {
	case want != "" && f.stateroot != want:
		c.Outcome, c.Detail = verdict.OutcomeDiffers, fmt.Sprintf("the stateroot is %s, not %s", f.stateroot, want)
	case !ok:
		c.Detail = f.stateVar.Why()
	case !exists:
		c.Outcome, c.Detail = verdict.OutcomeDiffers, fmt.Sprintf("the stateroot %s has no folder var: the first boot would stop", f.stateroot)
	case want == "" && !slices.Contains(knownStateroots(), f.stateroot):
		c.Detail = fmt.Sprintf("no CoreOS build has the stateroot %s: if it is meant, say --stateroot %s", f.stateroot, f.stateroot)
	default:
		c.Outcome = verdict.OutcomeSame
	}
	return c
}

// checkFIPS: where the MachineConfig wants FIPS mode and the boot entry does not
// have it, the initramfs turns it on and reboots (rhcos-fips.sh of openshift/os).
func (f rootFacts) checkFIPS() verdict.Check {
	args, ok := f.arguments()
	if !ok {
		return verdict.Check{Detail: f.why()}
	}
	want, ok := f.fips.Get()
	if !ok {
		return verdict.Check{Detail: f.fips.Why()}
	}
	value, _ := lastValue(args, "fips")
	c := verdict.Check{Outcome: verdict.OutcomeSame, Booted: fmt.Sprint(value == "1"), Target: fmt.Sprint(want)}
	switch {
	case want && value != "1":
		c.Outcome, c.Detail = verdict.OutcomeDiffers, "the MachineConfig wants FIPS mode and the boot entry has no fips=1: the first boot sets it and reboots, before Ignition"
	case !want && value == "1":
		c.Outcome, c.Detail = verdict.OutcomeDiffers, "the boot entry has fips=1 and the MachineConfig does not want FIPS mode"
	}
	return c
}

// poolImage reads the osImageURL of a MachineConfig in a file of the caller.
func poolImage(name string) (string, error) {
	raw, err := readCallerFile(name, maxMachineConfig)
	if err != nil {
		return "", fmt.Errorf("reading MachineConfig %s: %w", name, bare(err))
	}
	mc, err := machineconfig.ParseManifest(raw)
	if err != nil {
		return "", fmt.Errorf("reading MachineConfig %s: %w", name, err)
	}
	return mc.OSImageURL, nil
}
