package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/disk"
	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// DiskOptions say which disk to check, and against what.
type DiskOptions struct {
	// Path is a raw disk image, a block device, or the folder where the root
	// file system of one is mounted, its boot file system at boot below it.
	Path string
	// Image is the OS image; the MachineConfig's osImageURL where empty.
	Image string
	// MachineConfigFile is the rendered MachineConfig of the nodes' pool.
	MachineConfigFile string
	// AuthFile, Timeout, Offline and Full are those of [Options]. The timeout
	// does not count the reading of the image file itself.
	AuthFile string
	Timeout  time.Duration
	Offline  bool
	Full     bool
	// Platform is what ignition.platform.id has to be.
	Platform string
	// Stateroot is the deployment's; where empty, one of those that CoreOS
	// builds have.
	Stateroot string
	// NoMount reads the partition table and the superblocks alone.
	NoMount bool
	// WriteSHA256 writes Path.sha256 where the disk is as wanted and there is
	// no such file.
	WriteSHA256 bool
}

// A DiskReport says whether a node made from a disk boots once.
type DiskReport struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Outcome is same where every check says so: the node boots once.
	Outcome verdict.Outcome `json:"outcome"`
	// Reason is [verdict.ReasonProven], or the first check that differs, else
	// the first that is unknown; of the check "verdict" it is the verdict's.
	Reason verdict.Reason  `json:"reason"`
	Disk   DiskView        `json:"disk"`
	Checks []verdict.Check `json:"checks"`
	// Verdict is that of analyze --unbooted on the same root; nil where no
	// root could be read.
	Verdict *verdict.Verdict `json:"verdict"`
	// Commands, run as root in this order, let the check be made where it
	// could not be.
	Commands []string        `json:"commands"`
	Warnings []string        `json:"warnings"`
	Errors   []verdict.Error `json:"errors"`
}

// DiskReportKind is the kind of a [DiskReport].
const DiskReportKind = "DiskCheck"

// A DiskView is what was read of the disk itself.
type DiskView struct {
	// Form is "raw" for a disk, "mounted" for a folder, else what the file is.
	Form string `json:"form"`
	// Bytes and SectorSize are 0 where they are not known.
	Bytes      int64 `json:"bytes,omitempty"`
	SectorSize int   `json:"sectorSize,omitempty"`
	// SHA256 of the whole file in hexadecimal; empty where it was not read.
	SHA256     string              `json:"sha256,omitempty"`
	Partitions []DiskPartitionView `json:"partitions"`
}

// A DiskPartitionView is a partition and the file system on it.
type DiskPartitionView struct {
	Number int    `json:"number"`
	Name   string `json:"name,omitempty"`
	Bytes  int64  `json:"bytes"`
	// Filesystem, Label and UUID are the file system's; empty where it is none
	// that is known.
	Filesystem string `json:"filesystem,omitempty"`
	Label      string `json:"label,omitempty"`
	UUID       string `json:"uuid,omitempty"`
}

// A DiskCode is the stable code of an error in a [DiskReport].
type DiskCode string

// The codes beside those of the verdict.
const (
	// DiskNotRaw: the file is compressed or of another format.
	DiskNotRaw DiskCode = "disk-not-raw"
	// DiskUnreadable: reading the image, or a file on it, failed.
	DiskUnreadable DiskCode = "disk-unreadable"
	// DiskTable: there is no GUID partition table, or none that is whole.
	DiskTable DiskCode = "partition-table-invalid"
	// DiskNotMounted: the file systems could not be mounted, or were not to be.
	DiskNotMounted DiskCode = "disk-not-mounted"
	// DiskChecksum: the file with the checksum cannot be read or written.
	DiskChecksum DiskCode = "checksum-file-invalid"
)

// A diskRun is one check of a disk: what is known so far.
type diskRun struct {
	opts   DiskOptions
	layout layout
	root   rootFacts
	sum    verdict.Check
	report DiskReport
}

// CheckDisk checks a disk and changes nothing but what WriteSHA256 asks for.
// What is wrong with the disk is in the report; the error is for a path that
// cannot be opened, and for the end of the context.
func CheckDisk(ctx context.Context, opts DiskOptions) (*DiskReport, error) {
	d := &diskRun{opts: opts, report: DiskReport{
		APIVersion: verdict.APIVersion, Kind: DiskReportKind,
		Disk:   DiskView{Partitions: []DiskPartitionView{}},
		Checks: []verdict.Check{}, Commands: []string{}, Warnings: []string{}, Errors: []verdict.Error{},
	}}
	d.sum = verdict.Check{Outcome: verdict.OutcomeSkipped, Detail: "no image file to compare with one"}
	f, err := os.OpenFile(opts.Path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening disk %s: %w", opts.Path, bare(err))
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("opening disk %s: %w", opts.Path, bare(err))
	}
	switch mode := fi.Mode(); {
	case mode.IsDir():
		d.checkFolder(ctx)
	case mode.IsRegular(), mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0:
		if err := d.checkImage(ctx, f); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("%s is neither an image file, a block device nor a folder", opts.Path)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("checking disk %s: %w", opts.Path, err)
	}
	d.conclude()
	if opts.WriteSHA256 && !fi.IsDir() {
		if err := d.writeSum(ctx, f); err != nil {
			return nil, err
		}
	}
	return &d.report, nil
}

func (d *diskRun) fail(code DiskCode, err error) {
	d.report.Errors = append(d.report.Errors, verdict.Error{Code: string(code), Message: err.Error(), Source: d.opts.Path})
}

func (d *diskRun) warn(format string, args ...any) {
	d.report.Warnings = append(d.report.Warnings, fmt.Sprintf(format, args...))
}

// checkFolder checks a root that the caller has mounted. What the partitions
// are is told by the device that is mounted, where there is one.
func (d *diskRun) checkFolder(ctx context.Context) {
	d.report.Disk.Form = "mounted"
	d.layout = mountedLayout(d.opts.Path)
	d.layout.journal = verdict.Check{Outcome: verdict.OutcomeSkipped, Detail: "the caller has mounted it"}
	d.readRoot(ctx, d.opts.Path)
}

// checkImage checks an image file or a block device.
func (d *diskRun) checkImage(ctx context.Context, f *os.File) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("reading the size of %s: %w", d.opts.Path, bare(err))
	}
	form, err := disk.ReadForm(f)
	if err != nil {
		return fmt.Errorf("reading %s: %w", d.opts.Path, err)
	}
	d.report.Disk.Form, d.report.Disk.Bytes = string(form), size
	if form != disk.FormRaw {
		err := d.notRaw(form)
		d.layout, d.root = unknownLayout(err), rootFacts{err: err}
		return nil
	}
	if err := d.compareSum(ctx, f); err != nil {
		return err
	}
	d.layout = readLayout(f, size)
	if err := d.layout.err; err != nil {
		code := DiskUnreadable
		if errors.Is(err, disk.ErrNoTable) || errors.Is(err, disk.ErrDamaged) {
			code = DiskTable
		}
		d.fail(code, err)
	}
	d.mountAndRead(ctx, f)
	return nil
}

// notRaw says how to make a raw image of a file that is none.
func (d *diskRun) notRaw(form disk.Form) error {
	command := ""
	switch path := shellWord(d.opts.Path); form {
	case disk.FormGzip:
		command = "gzip -dk " + path
	case disk.FormXZ:
		command = "xz -dk " + path
	case disk.FormZstd:
		command = "zstd -dk " + path
	case disk.FormBzip2:
		command = "bzip2 -dk " + path
	case disk.FormQCOW2, disk.FormVMDK, disk.FormVHDX:
		command = fmt.Sprintf("qemu-img convert -O raw %s %s", path, shellWord(strings.TrimSuffix(d.opts.Path, filepath.Ext(d.opts.Path))+".raw"))
	}
	err := fmt.Errorf("the file is %s, not a raw disk: make it one and check that", form)
	if command == "" {
		err = fmt.Errorf("the file is %s, not a raw disk: check the raw disk image that nodes are written from", form)
	} else {
		d.report.Commands = append(d.report.Commands, command)
	}
	d.fail(DiskNotRaw, err)
	return err
}

// shellWord makes one word of a path for a shell.
func shellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@%,=") == "" && s[0] != '-' {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// mountAndRead mounts the disk's root and reads it; else it says how to.
func (d *diskRun) mountAndRead(ctx context.Context, f *os.File) {
	root, boot, err := d.layout.find()
	if err != nil {
		d.root.err = err
		d.layout.journal = verdict.Check{Detail: err.Error()}
		return
	}
	if d.opts.NoMount {
		err = errors.New("not mounted: --no-mount")
	} else {
		var stale []string
		stale, err = withMounted(f, root, boot, func(dir string) { d.readRoot(ctx, dir) })
		d.layout.journal = journalCheck(stale)
	}
	if err == nil {
		return
	}
	d.fail(DiskNotMounted, err)
	d.root = rootFacts{err: err}
	d.layout.journal = verdict.Check{Detail: err.Error()}
	d.report.Commands = append(d.report.Commands, d.mountCommands(root, boot)...)
}

// mountCommands are what makes the disk a folder that can be checked. A file
// system with a journal to be replayed is refused by the kernel then.
func (d *diskRun) mountCommands(root, boot filesystem) []string {
	args := ""
	if d.opts.Image != "" {
		args += " --image " + shellWord(d.opts.Image)
	}
	if d.opts.MachineConfigFile != "" {
		args += " --machineconfig " + shellWord(d.opts.MachineConfigFile)
	}
	return []string{d.mountCommand(root, "/mnt"), d.mountCommand(boot, "/mnt/boot"), "oneboot disk check /mnt" + args, "umount -R /mnt"}
}

func (d *diskRun) mountCommand(fs filesystem, dir string) string {
	options := append([]string{"ro"}, mountOptions(fs.Type)...)
	source := d.opts.Path
	if isFile(d.opts.Path) {
		options = append(options, "loop", fmt.Sprintf("offset=%d", fs.Start), fmt.Sprintf("sizelimit=%d", fs.Size))
	} else {
		// /dev/sda4, /dev/nvme0n1p4.
		if last := source[len(source)-1]; last >= '0' && last <= '9' {
			source += "p"
		}
		source += fmt.Sprint(fs.Number)
	}
	return fmt.Sprintf("mount -o %s %s %s", strings.Join(options, ","), shellWord(source), dir)
}

// isFile reports whether a path is a regular file.
func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// readRoot analyzes the mounted root and reads what the first boot depends on.
func (d *diskRun) readRoot(ctx context.Context, dir string) {
	res, err := Analyze(ctx, Options{
		Root: dir, Unbooted: true, Target: d.opts.Image, MachineConfigFile: d.opts.MachineConfigFile,
		AuthFile: d.opts.AuthFile, Timeout: d.opts.Timeout, Offline: d.opts.Offline, Full: d.opts.Full,
	})
	if err != nil {
		d.root = rootFacts{err: err}
		d.fail(DiskUnreadable, err)
		return
	}
	if dir != d.opts.Path {
		nameRoot(&res.Verdict, dir, "the root file system of "+d.opts.Path)
	}
	d.report.Verdict = &res.Verdict
	root, err := hostfs.Open(dir)
	if err != nil {
		d.root = rootFacts{err: err}
		d.fail(DiskUnreadable, err)
		return
	}
	defer root.Close()
	d.root = readRootFacts(root, res)
}

// nameRoot has the messages of a verdict name the disk, not the folder where it
// was mounted for a while.
func nameRoot(v *verdict.Verdict, dir, name string) {
	for i := range v.Errors {
		v.Errors[i].Message = strings.ReplaceAll(v.Errors[i].Message, dir, name)
	}
	for i := range v.Checks {
		v.Checks[i].Detail = strings.ReplaceAll(v.Checks[i].Detail, dir, name)
	}
	for i := range v.MCO.Why {
		v.MCO.Why[i].Detail = strings.ReplaceAll(v.MCO.Why[i].Detail, dir, name)
	}
}
