package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/diskimage"
)

func mustRun(t *testing.T, script string, env ...string) string {
	t.Helper()
	return must[string](t)(diskimage.Run(script, env...))
}

func wantError(t *testing.T, r *daemon.DiskReport, code daemon.DiskCode) {
	t.Helper()
	if len(r.Errors) != 1 || r.Errors[0].Code != string(code) {
		t.Errorf("got errors %+v, want %s", r.Errors, code)
	}
}

// What is wrong with the disk itself.
func TestDiskDamaged(t *testing.T) {
	noTraces(t)
	d := newDiskLab(t)
	tests := []struct {
		name   string
		script string
		reason verdict.Reason
		code   daemon.DiskCode
	}{
		{"cut short", `truncate -s 200M "$IMG"`, "partition-table-differs", daemon.DiskTable},
		{"cut by a sector", `truncate -s -512 "$IMG"`, "partition-table-differs", daemon.DiskTable},
		{"no table", `dd if=/dev/zero of="$IMG" bs=1M count=1 conv=notrunc status=none`, "partition-table-unknown", daemon.DiskTable},
		{"empty", `truncate -s 0 "$IMG"`, "partition-table-unknown", daemon.DiskTable},
		{"garbage in the table", `printf x | dd of="$IMG" bs=1 seek=1100 conv=notrunc status=none`, "partition-table-differs", daemon.DiskTable},
		{"root label", `tune2fs -L other "$IMG?offset=$ROOTSTART"`, "file-systems-differs", ""},
		{"boot twice", `tune2fs -L boot "$IMG?offset=$ROOTSTART"`, "file-systems-differs", ""},
		{"EFI label", `printf 'OTHER      ' | dd of="$IMG" bs=1 seek=$(((2 << 20) + 43)) conv=notrunc status=none`, "file-systems-differs", ""},
		{"no EFI system partition", `sgdisk -d 2 "$IMG"`, "file-systems-differs", ""},
		{"garbage in the root", `dd if=/dev/urandom of="$IMG" bs=1M seek=$(((ROOTSTART >> 20) + 1)) count=40 conv=notrunc status=none;
			dd if=/dev/urandom of="$IMG" bs=4k seek=$((ROOTSTART / 4096 + 1)) count=200 conv=notrunc status=none`, "journal-unknown", daemon.DiskNotMounted},
		{"two superblocks", `printf XFSB | dd of="$IMG" bs=1 seek=$ROOTSTART conv=notrunc status=none`, "file-systems-unknown", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			image := d.copyOf(t, "ext4")
			mustRun(t, tt.script, "IMG="+image)
			r := d.check(t, image)
			outcome := verdict.OutcomeDiffers
			if strings.HasSuffix(string(tt.reason), "-unknown") {
				outcome = verdict.OutcomeUnknown
			}
			wantOutcome(t, r, outcome, tt.reason)
			if tt.code != "" {
				wantError(t, r, tt.code)
			}
		})
	}
}

// A disk that was copied while it was mounted: what its journal holds is not
// read, so nothing is known.
func TestDiskJournal(t *testing.T) {
	noTraces(t)
	d := newDiskLab(t)
	for kind := range d.raw {
		t.Run(kind, func(t *testing.T) {
			image, dir := d.copyOf(t, kind), t.TempDir()
			mustRun(t, `
mount -o loop,offset=$ROOTSTART,sizelimit=$ROOTSIZE "$IMG" "$DIR"
touch "$DIR/changed"; sync
cp --sparse=always "$IMG" "$IMG.live"
umount "$DIR"
mv "$IMG.live" "$IMG"`, "IMG="+image, "DIR="+dir)
			wantOutcome(t, d.check(t, image), verdict.OutcomeUnknown, "journal-unknown")
		})
	}
}

func TestDiskSectors(t *testing.T) {
	noTraces(t)
	d := newDiskLab(t)
	image := filepath.Join(t.TempDir(), "disk.raw")
	if err := diskimage.Make(image, d.physicalRoot(t, diskOptions{}), diskimage.Options{RootType: "xfs", SectorSize: 4096}); err != nil {
		t.Fatal(err)
	}
	r := d.check(t, image)
	wantOutcome(t, r, verdict.OutcomeSame, verdict.ReasonProven)
	if r.Disk.SectorSize != 4096 {
		t.Errorf("got sectors of %d bytes", r.Disk.SectorSize)
	}
}

// The disk grows as docs/disk.md says, and stays what it is. Without the size of
// the partition the file system would grow over its end.
func TestDiskGrown(t *testing.T) {
	noTraces(t)
	d := newDiskLab(t)
	image, dir := d.copyOf(t, "xfs"), t.TempDir()
	mustRun(t, `
truncate -s +100M "$IMG"
sgdisk -e -d 4 -n 4:0:0 -c 4:root "$IMG" >/dev/null`, "IMG="+image)
	size := d.check(t, image, func(o *daemon.DiskOptions) { o.NoMount = true }).Disk.Partitions[3].Bytes
	if size < 419<<20 {
		t.Errorf("the root has %d bytes", size)
	}
	mustRun(t, `
mount -o loop,nouuid,offset=$ROOTSTART,sizelimit=$NEWSIZE "$IMG" "$DIR"
xfs_growfs "$DIR" >/dev/null
umount "$DIR"`, "IMG="+image, "DIR="+dir, fmt.Sprintf("NEWSIZE=%d", size))
	wantOutcome(t, d.check(t, image), verdict.OutcomeSame, verdict.ReasonProven)
}

func TestDiskStateroot(t *testing.T) {
	noTraces(t)
	d := newDiskLab(t)
	image := filepath.Join(t.TempDir(), "disk.raw")
	if err := diskimage.Make(image, d.physicalRoot(t, diskOptions{stateroot: "default"}), diskimage.Options{}); err != nil {
		t.Fatal(err)
	}
	r := d.check(t, image)
	wantOutcome(t, r, verdict.OutcomeUnknown, "stateroot-unknown")
	if !strings.Contains(strings.Join(r.Warnings, "\n"), "2 deployments") {
		t.Errorf("got warnings %q", r.Warnings)
	}
	wantOutcome(t, d.check(t, image, func(o *daemon.DiskOptions) { o.Stateroot = "default" }), verdict.OutcomeSame, verdict.ReasonProven)
}

func TestDiskChecksum(t *testing.T) {
	noTraces(t)
	d := newDiskLab(t)
	image := d.copyOf(t, "ext4")
	content, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256(content)
	sum := hex.EncodeToString(hash[:])
	other := strings.Repeat("5", 64)
	for text, want := range map[string]verdict.Reason{
		sum + "  disk.raw\n":                verdict.ReasonProven,
		sum + "\n":                          verdict.ReasonProven,
		strings.ToUpper(sum) + " *disk.raw": verdict.ReasonProven,
		other + "  other.raw\n" + sum + "  ./dir/disk.raw\n": verdict.ReasonProven,
		other + "  disk.raw\n":                               "checksum-file-differs",
		other + "  other.raw\n":                              "checksum-file-unknown",
		sum + "  disk.raw\n" + other + "  disk.raw\n":        "checksum-file-unknown",
		"":                        "checksum-file-unknown",
		"<html>404</html>\n":      "checksum-file-unknown",
		sum[:63] + "  disk.raw\n": "checksum-file-unknown",
	} {
		if err := os.WriteFile(image+".sha256", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if r := d.check(t, image, func(o *daemon.DiskOptions) { o.WriteSHA256 = true }); r.Reason != want {
			t.Errorf("%q: got %s, want %s", text, r.Reason, want)
		}
		// What is there is never replaced.
		if b, err := os.ReadFile(image + ".sha256"); err != nil || string(b) != text {
			t.Errorf("%q became %q, %v", text, b, err)
		}
	}
	if err := os.Remove(image + ".sha256"); err != nil {
		t.Fatal(err)
	}
	// Of a disk that is not as wanted none is written.
	bad := d.check(t, image, func(o *daemon.DiskOptions) { o.WriteSHA256, o.Platform = true, "qemu" })
	if _, err := os.Stat(image + ".sha256"); err == nil || bad.Disk.SHA256 != "" || len(bad.Warnings) != 1 {
		t.Errorf("written for a disk that differs: %v, warnings %q", err, bad.Warnings)
	}
	r := d.check(t, image, func(o *daemon.DiskOptions) { o.WriteSHA256 = true })
	wantOutcome(t, r, verdict.OutcomeSame, verdict.ReasonProven)
	cmd := exec.Command("sha256sum", "--check", "--strict", "disk.raw.sha256")
	cmd.Dir = filepath.Dir(image)
	if out, err := cmd.CombinedOutput(); err != nil || r.Disk.SHA256 != sum {
		t.Errorf("%v: %s; got %s, want %s", err, out, r.Disk.SHA256, sum)
	}
}

// What is no raw disk gets the command that makes it one.
func TestDiskForms(t *testing.T) {
	noTraces(t)
	d := newDiskLab(t)
	image := filepath.Join(t.TempDir(), "it's a disk.raw")
	if err := diskimage.Copy(image, d.raw["ext4"]); err != nil {
		t.Fatal(err)
	}
	mustRun(t, `gzip -1 "$IMG"`, "IMG="+image)
	r := d.check(t, image+".gz")
	wantOutcome(t, r, verdict.OutcomeUnknown, "partition-table-unknown")
	wantError(t, r, daemon.DiskNotRaw)
	if len(r.Commands) != 1 {
		t.Fatalf("got commands %q", r.Commands)
	}
	mustRun(t, r.Commands[0])
	wantOutcome(t, d.check(t, image), verdict.OutcomeSame, verdict.ReasonProven)
}

// The commands that are offered where nothing is mounted lead to the answer.
func TestDiskCommands(t *testing.T) {
	noTraces(t)
	d := newDiskLab(t)
	program := filepath.Join(t.TempDir(), "oneboot")
	build := exec.Command("go", "build", "-tags", "containers_image_openpgp exclude_graphdriver_btrfs", "-o", program, "../../cmd/oneboot")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Setenv("PATH", os.Getenv("PATH")+":"+filepath.Dir(program))
	for kind := range d.raw {
		r := d.check(t, d.raw[kind], func(o *daemon.DiskOptions) { o.NoMount = true })
		wantOutcome(t, r, verdict.OutcomeUnknown, "journal-unknown")
		wantError(t, r, daemon.DiskNotMounted)
		if r.Verdict != nil || len(r.Commands) != 4 {
			t.Fatalf("got verdict %+v, commands %q", r.Verdict, r.Commands)
		}
		script := strings.Join(r.Commands, "\n")
		out := mustRun(t, script)
		if !strings.HasPrefix(out, "ONCE: a node made from mnt boots once\n") {
			t.Errorf("%s\nprinted:\n%s", script, out)
		}
	}
	// Without the right to mount: the same commands, and why.
	cmd := exec.Command("setpriv", "--inh-caps=-all", "--bounding-set=-all", program, "disk", "check", d.raw["xfs"], "--machineconfig", d.mc, "--exit-code")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 11 || !strings.Contains(string(out), "only root may") || !strings.Contains(string(out), "mount -o ro,nouuid,loop,offset=") {
		t.Errorf("%v: %s", err, out)
	}
}

// A block device is checked as its image is.
func TestDiskDevice(t *testing.T) {
	d := newDiskLab(t)
	device := strings.TrimSpace(mustRun(t, `losetup --find --show --read-only "$IMG"`, "IMG="+d.raw["xfs"]))
	r := d.check(t, device)
	mustRun(t, `losetup -d "$DEVICE"`, "DEVICE="+device)
	wantOutcome(t, r, verdict.OutcomeSame, verdict.ReasonProven)
	if r.Disk.Bytes == 0 || r.Disk.SectorSize != 512 {
		t.Errorf("got %+v", r.Disk)
	}
}

func TestDiskOpening(t *testing.T) {
	d := newDiskLab(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	mustRun(t, `mkfifo "$PIPE"`, "PIPE="+pipe)
	for path, says := range map[string]string{
		"/nonexistent/disk.raw": "opening disk /nonexistent/disk.raw: no such file or directory",
		pipe:                    "neither an image file",
		"/dev/null":             "neither an image file",
	} {
		_, err := daemon.CheckDisk(context.Background(), daemon.DiskOptions{Path: path, MachineConfigFile: d.mc})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", path, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := daemon.CheckDisk(ctx, daemon.DiskOptions{Path: d.raw["ext4"], MachineConfigFile: d.mc}); err == nil {
		t.Error("a run that was cancelled gave an answer")
	}
}
