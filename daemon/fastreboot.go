package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"
	"time"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// FastRebootKexec is the one way that there is.
const FastRebootKexec = "kexec"

// All that arming writes is below /run, and goes with the boot.
const (
	runDir       = "/run/oneboot"
	armedPath    = runDir + "/fast-reboot.json"
	loadedPath   = runDir + "/kexec.json"
	programPath  = runDir + "/oneboot"
	kernelPath   = runDir + "/linux"
	initrdPath   = runDir + "/initrd"
	loadUnit     = "oneboot-kexec-load.service"
	loadUnitPath = "/run/systemd/system/" + loadUnit
	rebootDropIn = "/run/systemd/system/systemd-reboot.service.d/50-oneboot.conf"

	// stagedPath and finalizeFailed are libostree's (ostree-sysroot-deploy.c):
	// the first is there until a staged deployment is finalized, the second where
	// that failed.
	stagedPath      = "/run/ostree/staged-deployment"
	finalizeFailed  = "/boot/ostree/finalize-failure.stamp"
	kexecLoadedPath = "/sys/kernel/kexec_loaded"

	systemctlPath = "/usr/bin/systemctl"
	// systemctlTime bounds a call: systemd reads all units anew in a second or two.
	systemctlTime = 45 * time.Second
	// maxKernel and maxInitrd bound what is copied to memory, in bytes.
	maxKernel = 256 << 20
	maxInitrd = 2 << 30
)

// armed is what the load goes by.
type armed struct {
	BootID string `json:"bootID"`
	// OSImageURL is what the next deployment's origin must name, Booted the
	// deployment that runs.
	OSImageURL string `json:"osImageURL"`
	Booted     string `json:"booted"`
}

// loaded is the stamp that the reboot goes by: this very load has succeeded.
type loaded struct {
	BootID      string `json:"bootID"`
	Deployment  string `json:"deployment"`
	CommandLine string `json:"commandLine"`
}

// errNotArmed is for steps without the one before.
var errNotArmed = errors.New("nothing is armed in this boot")

// loadUnitText stops after ostree has finalized the staged deployment, for it is
// ordered before that unit, and before /boot is unmounted.
func loadUnitText(program string) string {
	return `# Written by oneboot for this boot alone: docs/fast-reboot.md
[Unit]
Description=Load the kernel of the next deployment, for a reboot without the firmware
DefaultDependencies=no
RequiresMountsFor=/boot /sysroot /var
After=local-fs.target
Before=ostree-finalize-staged.service basic.target final.target
Conflicts=final.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/true
ExecStop=-` + program + ` fast-reboot load
TimeoutStopSec=90
StandardOutput=journal+console
StandardError=journal+console
SyslogIdentifier=oneboot
`
}

// rebootText has the reboot go on as always whatever the program does.
func rebootText(program string) string {
	return `# Written by oneboot for this boot alone: docs/fast-reboot.md
[Unit]
FailureAction=reboot-force
[Service]
Type=oneshot
ExecStart=-` + program + ` fast-reboot kexec
TimeoutStartSec=60
StandardOutput=kmsg+console
StandardError=kmsg+console
`
}

// ArmFastReboot makes the next reboot of this boot leave out the firmware, if that
// boots what the machine-config-daemon has deployed until then. It goes by the record
// of this boot, and is an error where that refuses it.
func ArmFastReboot(ctx context.Context) error {
	root, err := liveRoot()
	if err != nil {
		return err
	}
	defer root.Close()
	raw, err := root.ReadFile(record.Path, record.MaxSize)
	if err != nil {
		return fmt.Errorf("reading record: %w", err)
	}
	r, err := record.Parse(raw)
	if err != nil {
		return err
	}
	v := r.Verdict
	switch {
	case r.FastReboot != FastRebootKexec:
		return nil
	case r.BootID == "" || r.BootID != bootID("/"):
		return errors.New("the record is another boot's")
	case v.Action != verdict.Proceed || v.FastReboot.State != verdict.FastRebootPossible:
		return errors.New("refused, as the record says")
	case joined(root) != "":
		return errors.New(joined(root))
	}
	_, err = onOwnThread(func() (struct{}, error) { return struct{}{}, arm(ctx, root, r) })
	return err
}

func arm(ctx context.Context, root *hostfs.Root, r *record.Record) error {
	w, err := openWriter("/")
	if err != nil {
		return err
	}
	defer w.close()
	program, err := w.reachableProgram()
	if err != nil {
		return err
	}
	a, err := json.Marshal(armed{r.BootID, r.Verdict.Target.OSImageURL, string(r.Verdict.Booted.Checksum)})
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{loadUnitPath, []byte(loadUnitText(program))}, {rebootDropIn, []byte(rebootText(program))}, {armedPath, a}} {
		if err := w.writeRun(f.name, f.data, 0o644); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"daemon-reload"}, {"start", loadUnit}} {
		if err := systemctl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// reachableProgram is this program where it can be run at the end of a shutdown, when
// /usr and /run are there alone.
func (w *hostWriter) reachableProgram() (string, error) {
	own, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	if own == programPath || strings.HasPrefix(own, "/usr/") && !strings.HasPrefix(own, "/usr/local/") {
		return own, nil
	}
	return programPath, w.copyProgram()
}

// InstallFastReboot puts this program where a host can run it at the end of a shutdown,
// for units that have it in a container alone. The root is the host's.
func InstallFastReboot(dir string) error {
	_, err := onOwnThread(func() (struct{}, error) {
		w, err := openWriter(dir)
		if err != nil {
			return struct{}{}, err
		}
		defer w.close()
		return struct{}{}, w.copyProgram()
	})
	return err
}

func (w *hostWriter) copyProgram() error {
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("copying this program: %w", err)
	}
	if err := w.writeRun(programPath, b, 0o755); err != nil {
		return err
	}
	return w.labelProgram()
}

// likeProgram has the SELinux label of a program of the host. What is written to /run
// gets one of data, which a policy may not let systemd run.
const likeProgram, selinuxLabel = "/usr/bin/true", "security.selinux"

// labelProgram does nothing on a host without SELinux.
func (w *hostWriter) labelProgram() error {
	dir, base, err := w.folder(likeProgram)
	if err != nil {
		return err
	}
	defer dir.Close()
	like, _, err := openRegular(dir, base)
	if err != nil {
		return fileError(likeProgram, err)
	}
	defer like.Close()
	attributes, err := readXAttrs(like)
	label, ok := attributes[selinuxLabel]
	if err != nil || !ok {
		return err
	}
	if dir, base, err = w.folder(programPath); err != nil {
		return err
	}
	defer dir.Close()
	f, _, err := openRegular(dir, base)
	if err != nil {
		return fileError(programPath, err)
	}
	defer f.Close()
	if err := unix.Fsetxattr(int(f.Fd()), selinuxLabel, label, 0); err != nil {
		return fmt.Errorf("labelling %w", fileError(programPath, err))
	}
	return nil
}

// writeRun writes a file below /run, with the folders that it needs.
func (w *hostWriter) writeRun(name string, data []byte, mode uint32) error {
	dir, err := pathrs.MkdirAllHandle(w.root, path.Dir(name), 0o755)
	if err != nil {
		return fmt.Errorf("writing %w", fileError(path.Dir(name), err))
	}
	dir.Close()
	return w.writeOwn(name, data, mode)
}

func systemctl(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, systemctlTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, systemctlPath, args...)
	cmd.Env = []string{"LC_ALL=C", "PATH=/usr/sbin:/usr/bin"}
	cmd.WaitDelay = statusGrace
	text := capped{limit: maxStderr, full: func() {}}
	cmd.Stderr = &text
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running systemctl %s: %w: %s", strings.Join(args, " "), err, oneLine(text.kept))
	}
	return nil
}

// liveRoot is the running system: nothing else can be rebooted.
func liveRoot() (*hostfs.Root, error) {
	root, err := hostfs.Open("/")
	if err != nil {
		return nil, err
	}
	if !root.Live() {
		root.Close()
		return nil, errors.New("this is not the root of the running system, but a container's")
	}
	return root, nil
}
