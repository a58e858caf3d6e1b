package daemon

import (
	"fmt"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/disk"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// The checks of a disk, in the order in which they decide.
const (
	DiskCheckTable       verdict.CheckName = "partition-table"
	DiskCheckFilesystems verdict.CheckName = "file-systems"
	DiskCheckJournal     verdict.CheckName = "journal"
	DiskCheckFirstboot   verdict.CheckName = "firstboot-argument"
	DiskCheckStamp       verdict.CheckName = "ignition-stamp"
	DiskCheckPlatform    verdict.CheckName = "platform"
	DiskCheckRoot        verdict.CheckName = "root-argument"
	DiskCheckStateroot   verdict.CheckName = "stateroot"
	DiskCheckFIPS        verdict.CheckName = "fips-argument"
	DiskCheckPool        verdict.CheckName = "pool"
	DiskCheckVerdict     verdict.CheckName = "verdict"
	DiskCheckMCD         verdict.CheckName = "machine-config-daemon"
	DiskCheckSum         verdict.CheckName = "checksum-file"
)

// conclude makes the checks and applies the law: same needs every check to say
// so; those left out by design count neither way.
func (d *diskRun) conclude() {
	d.report.Disk.Partitions = d.layout.views()
	if d.layout.table != nil {
		d.report.Disk.SectorSize, d.report.Disk.Bytes = d.layout.table.SectorSize, d.layout.size
	}
	for _, c := range []struct {
		name  verdict.CheckName
		check verdict.Check
	}{
		{DiskCheckTable, d.checkTable()},
		{DiskCheckFilesystems, d.checkFilesystems()},
		{DiskCheckJournal, d.layout.journal},
		{DiskCheckFirstboot, d.root.checkFirstboot()},
		{DiskCheckStamp, d.root.checkStamp()},
		{DiskCheckPlatform, d.root.checkPlatform(d.opts.Platform)},
		{DiskCheckRoot, d.checkRootArguments()},
		{DiskCheckStateroot, d.root.checkStateroot(d.opts.Stateroot)},
		{DiskCheckFIPS, d.root.checkFIPS()},
		{DiskCheckPool, d.checkPool()},
		{DiskCheckVerdict, d.checkVerdict()},
		{DiskCheckMCD, d.checkMCD()},
		{DiskCheckSum, d.sum},
	} {
		c.check.Name = c.name
		d.report.Checks = append(d.report.Checks, c.check)
	}
	d.report.Outcome, d.report.Reason = verdict.OutcomeSame, verdict.ReasonProven
	for _, outcome := range []verdict.Outcome{verdict.OutcomeDiffers, verdict.OutcomeUnknown} {
		i := slices.IndexFunc(d.report.Checks, func(c verdict.Check) bool { return c.Outcome == outcome })
		if i < 0 {
			continue
		}
		c := d.report.Checks[i]
		d.report.Outcome, d.report.Reason = outcome, verdict.Reason(string(c.Name)+"-"+outcome.String())
		if c.Name == DiskCheckVerdict && d.report.Verdict != nil {
			d.report.Reason = d.report.Verdict.Reason
		}
		break
	}
	d.addWarnings()
}

func (d *diskRun) addWarnings() {
	if d.layout.table != nil && d.layout.table.Spare > 0 && d.report.Disk.Form == string(disk.FormRaw) {
		d.warn("%d bytes follow the disk's last sector: the image was grown", d.layout.table.Spare)
	}
	if d.layout.table != nil && d.layout.table.SectorSize == 4096 {
		d.warn("the disk has sectors of 4096 bytes: it can be written to such disks alone")
	}
	if baked, _ := d.root.baked.Get(); baked {
		d.warn("%s is on the disk: each node made from it runs that Ignition config, and everybody who has the image can read it", bakedConfig)
	}
	if d.root.deployments > 1 {
		d.warn("%d deployments are on the disk: those that do not boot take room alone", d.root.deployments)
	}
}

func (d *diskRun) checkTable() verdict.Check {
	err := d.layout.err
	switch {
	case err == nil:
		return verdict.Check{Outcome: verdict.OutcomeSame, Booted: fmt.Sprintf("GPT, %d partitions, sectors of %d bytes", len(d.layout.list), d.layout.table.SectorSize)}
	case isDamaged(err):
		return verdict.Check{Outcome: verdict.OutcomeDiffers, Detail: err.Error()}
	}
	return verdict.Check{Detail: err.Error()}
}

// checkFilesystems looks for what the first boot finds by label.
func (d *diskRun) checkFilesystems() verdict.Check {
	if d.layout.err != nil {
		return verdict.Check{Detail: d.layout.err.Error()}
	}
	wanted := map[string][]string{labelBoot: {disk.TypeExt4}, labelRoot: {disk.TypeXFS, disk.TypeExt4, disk.TypeBtrfs}}
	// The others boot without an EFI system partition.
	if d.root.arch == "amd64" || d.root.arch == "arm64" {
		wanted[labelEFI] = []string{disk.TypeVFAT}
	}
	var found, wrong, unread []string
	for _, fs := range d.layout.list {
		if fs.err != nil {
			unread = append(unread, fmt.Sprintf("partition %d: %v", fs.Number, fs.err))
		}
	}
	for _, label := range []string{labelBoot, labelRoot, labelEFI} {
		types := wanted[label]
		if types == nil {
			continue
		}
		fs, err := d.layout.labelled(label)
		switch {
		case err != nil:
			wrong = append(wrong, err.Error())
		case !slices.Contains(types, fs.Type):
			wrong = append(wrong, fmt.Sprintf("%s is %s, not %s", label, orUnknown(fs.Type), strings.Join(types, " or ")))
		default:
			found = append(found, label+" "+fs.Type)
		}
	}
	switch {
	case len(unread) > 0:
		return verdict.Check{Detail: strings.Join(unread, "; ")}
	case len(wrong) > 0:
		return verdict.Check{Outcome: verdict.OutcomeDiffers, Detail: strings.Join(wrong, "; ")}
	}
	return verdict.Check{Outcome: verdict.OutcomeSame, Booted: strings.Join(found, ", ")}
}

func orUnknown(s string) string {
	if s == "" {
		return "of an unknown type"
	}
	return s
}

func journalCheck(stale []string) verdict.Check {
	if len(stale) == 0 {
		return verdict.Check{Outcome: verdict.OutcomeSame, Booted: "empty"}
	}
	return verdict.Check{Detail: fmt.Sprintf("the file system %s was not unmounted: the node will see what its journal holds, which is not read: mount and unmount it once", strings.Join(stale, " and "))}
}

// checkPool: what a pool wants beside the image is known by its MachineConfig
// alone, and which image the pool wants too.
func (d *diskRun) checkPool() verdict.Check {
	if d.opts.MachineConfigFile == "" {
		return verdict.Check{Detail: "what the pool wants beside the image (kernel arguments, extensions, kernel type, FIPS) is not known: name its rendered MachineConfig with --machineconfig"}
	}
	have, err := poolImage(d.opts.MachineConfigFile)
	if err != nil {
		return verdict.Check{Detail: err.Error()}
	}
	image := strings.TrimPrefix(d.opts.Image, "docker://")
	if image != "" && have != image {
		return verdict.Check{Outcome: verdict.OutcomeDiffers, Booted: image, Target: have, Detail: fmt.Sprintf("the MachineConfig's osImageURL is %s, not --image %s", have, image)}
	}
	return verdict.Check{Outcome: verdict.OutcomeSame, Booted: have}
}

func (d *diskRun) checkVerdict() verdict.Check {
	v := d.report.Verdict
	switch {
	case v == nil:
		return verdict.Check{Detail: d.root.why()}
	case v.Action == verdict.Skip:
		return verdict.Check{Outcome: verdict.OutcomeSame, Booted: string(v.Proof)}
	}
	c := verdict.Check{Detail: "oneboot analyze --unbooted: " + string(v.Reason)}
	if v.Conclusive {
		c.Outcome = verdict.OutcomeDiffers
	}
	return c
}

// bootedOnly are the codes of mco that every disk which is not running has: /run
// is empty on a first boot, and FIPS mode is a check of its own here.
func bootedOnly() []string { return []string{"force-file-unknown", "fips-unknown"} }

// checkMCD is what the unmodified machine-config-daemon does by itself.
func (d *diskRun) checkMCD() verdict.Check {
	v := d.report.Verdict
	if v == nil {
		return verdict.Check{Detail: d.root.why()}
	}
	var known, unknown []string
	for _, r := range v.MCO.Why {
		switch {
		case slices.Contains(bootedOnly(), r.Code):
		case strings.HasSuffix(r.Code, "-unknown"):
			unknown = append(unknown, r.Code)
		default:
			known = append(known, r.Code)
		}
	}
	if len(known)+len(unknown) == 0 {
		return verdict.Check{Outcome: verdict.OutcomeSame, Booted: "skips the reboot by itself"}
	}
	if len(known) > 0 {
		return verdict.Check{Outcome: verdict.OutcomeDiffers, Detail: "it reboots by itself: " + strings.Join(append(known, unknown...), ", ")}
	}
	return verdict.Check{Detail: "whether it reboots by itself is not known: " + strings.Join(unknown, ", ")}
}
