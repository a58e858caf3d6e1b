// Package diskimage makes raw disk images for tests: a GUID partition table,
// partitions and labels as CoreOS builds have them, and a physical root on them.
// It runs the machine's own tools, as root, in a private mount namespace.
package diskimage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// The UUIDs that CoreOS builds give their file systems.
const (
	BootUUID = "96d15588-3596-4b3c-adca-a2ff7279ea63"
	RootUUID = "910678ff-f77e-4a7d-8d53-86f2ac47a823"
)

// The places of the partitions that [Edit] mounts, in bytes.
const (
	bootStart = 8 << 20
	bootSize  = 32 << 20
	rootStart = 40 << 20
	// The least that mkfs.xfs takes.
	rootSize = 320 << 20
)

// A Options says what differs from a build of CoreOS; the zero value is one with
// an ext4 root.
type Options struct {
	// RootType is ext4 where empty, or xfs.
	RootType string
	// SectorSize is 512 where 0.
	SectorSize int
	// BootLabel, RootLabel and EFILabel replace the labels of the file systems.
	BootLabel, RootLabel, EFILabel string
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		s     *string
		value string
	}{{&o.RootType, "ext4"}, {&o.BootLabel, "boot"}, {&o.RootLabel, "root"}, {&o.EFILabel, "EFI-SYSTEM"}} {
		if *d.s == "" {
			*d.s = d.value
		}
	}
	if o.SectorSize == 0 {
		o.SectorSize = 512
	}
	return o
}

// Make makes the image file name from the physical root at root, whose folder
// boot goes onto the boot file system.
func Make(name, root string, o Options) error {
	o = o.withDefaults()
	mkroot := "mkfs.ext4 -q -F -U " + RootUUID + " -L \"$ROOTLABEL\" \"$PART\""
	if o.RootType == "xfs" {
		mkroot = "mkfs.xfs -q -m uuid=" + RootUUID + " -L \"$ROOTLABEL\" \"$PART\""
	}
	script := `
truncate -s $((ROOTSTART + ROOTSIZE + (1 << 20))) "$IMG"
DISK=$(losetup --find --show --sector-size $SECTOR "$IMG")
trap 'losetup -d "$DISK"' EXIT
mib() { echo $(($1 * (1 << 20) / SECTOR)); }
sgdisk -a $(mib 1) -n 1:$(mib 1):$(($(mib 2) - 1)) -t 1:ef02 -c 1:BIOS-BOOT -n 2:$(mib 2):$(($(mib 8) - 1)) -t 2:ef00 -c 2:EFI-SYSTEM \
  -n 3:$(mib 8):$(($(mib 40) - 1)) -c 3:boot -n 4:$(mib 40):$(($(mib 40) + $(mib 1) * (ROOTSIZE >> 20) - 1)) -c 4:root \
  -U 00000000-0000-4000-A000-000000000001 "$DISK" >/dev/null
losetup -d "$DISK"
trap - EXIT
part() { # SIZE OFFSET COMMAND: a file system made in a file, then put into the image
  PART=$WORK/part; rm -f "$PART"; truncate -s $1 "$PART"; eval "$3"
  dd if="$PART" of="$IMG" bs=1M seek=$(($2 >> 20)) conv=sparse,notrunc status=none; rm "$PART"
}
part $((6 << 20)) $((2 << 20)) 'mkfs.vfat -n "$EFILABEL" "$PART" >/dev/null'
part $BOOTSIZE $BOOTSTART 'mkfs.ext4 -q -F -U ` + BootUUID + ` -L "$BOOTLABEL" -d "$SRC/boot" "$PART"'
part $ROOTSIZE $ROOTSTART 'MKROOT; mount -o loop "$PART" "$WORK/root"; cp -a "$SRC/." "$WORK/root"; rm -rf "$WORK/root/boot"/*; umount "$WORK/root"'
`
	script = strings.ReplaceAll(script, "MKROOT", mkroot)
	work, err := os.MkdirTemp(filepath.Dir(name), ".work-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.Mkdir(filepath.Join(work, "root"), 0o755); err != nil {
		return err
	}
	return run(script, "IMG="+name, "SRC="+root, "WORK="+work, "SECTOR="+strconv.Itoa(o.SectorSize),
		"BOOTLABEL="+o.BootLabel, "ROOTLABEL="+o.RootLabel, "EFILABEL="+o.EFILabel)
}

// Copy copies an image; what is empty in it stays so.
func Copy(name, from string) error {
	return run(`cp --sparse=always --reflink=auto "$FROM" "$IMG"`, "IMG="+name, "FROM="+from)
}

// Edit runs a shell script in the physical root of an image, with the boot file
// system at boot. What else it needs is in the environment: IMG is the image.
func Edit(name, script string) error {
	work, err := os.MkdirTemp(filepath.Dir(name), ".edit-")
	if err != nil {
		return err
	}
	defer os.Remove(work)
	return run(`
mount -o loop,offset=$ROOTSTART,sizelimit=$ROOTSIZE "$IMG" "$WORK"
mount -o loop,offset=$BOOTSTART,sizelimit=$BOOTSIZE "$IMG" "$WORK/boot"
cd "$WORK"
`+script+`
cd /
umount -R "$WORK"
`, "IMG="+name, "WORK="+work)
}

// Run runs a shell script in a mount namespace of its own and returns what it
// prints.
func Run(script string, env ...string) (string, error) {
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "bash", "-euo", "pipefail", "-c", script)
	cmd.Env = append(os.Environ(), append(env,
		fmt.Sprintf("BOOTSTART=%d", bootStart), fmt.Sprintf("BOOTSIZE=%d", bootSize),
		fmt.Sprintf("ROOTSTART=%d", rootStart), fmt.Sprintf("ROOTSIZE=%d", rootSize),
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin:"+os.Getenv("PATH"))...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("running a script on a disk image: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

func run(script string, env ...string) error {
	_, err := Run(script, env...)
	return err
}
