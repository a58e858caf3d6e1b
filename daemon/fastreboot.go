package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/ostree"
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

// LoadFastReboot runs at shutdown, after ostree has finalized what was staged: it
// loads the kernel of the default boot entry, if that is the deployment that was
// expected, and leaves the stamp. Any doubt is an error, and the reboot a normal one.
func LoadFastReboot() error {
	root, err := liveRoot()
	if err != nil {
		return err
	}
	defer root.Close()
	a := armed{}
	if err := readJSON(root, armedPath, &a); err != nil {
		return err
	}
	if a.BootID == "" || a.BootID != bootID("/") {
		return errNotArmed
	}
	d, err := expected(root, a)
	if err != nil {
		return err
	}
	if err := noKernelLoaded(root); err != nil {
		return err
	}
	s := loaded{a.BootID, d.Name(), verdict.KexecCommandLine(d.Entry.Options, d.Entry.Linux)}
	for _, f := range []struct {
		from, to string
		most     int64
	}{{d.Entry.Linux, kernelPath, maxKernel}, {d.Entry.Initrds[0], initrdPath, maxInitrd}} {
		// The entry's paths are those of the file system /boot, or of the root's where
		// the two are one.
		if err := copyBoot(root, f.from, f.to, f.most); err != nil {
			return err
		}
	}
	if err := kexecLoad(s.CommandLine); err != nil {
		return err
	}
	// A trial: from here on no kernel is loaded unless by somebody else.
	if err := unix.KexecFileLoad(-1, -1, "", unix.KEXEC_FILE_UNLOAD); err != nil {
		return fmt.Errorf("unloading the kernel: %w", err)
	}
	stamp, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = onOwnThread(func() (struct{}, error) {
		w, err := openWriter("/")
		if err != nil {
			return struct{}{}, err
		}
		defer w.close()
		return struct{}{}, w.writeRun(loadedPath, stamp, 0o600)
	})
	return err
}

// expected is the deployment that boots next, if it is a new one of the wanted image
// and nothing speaks against it.
func expected(root *hostfs.Root, a armed) (*ostree.Deployment, error) {
	for _, f := range []struct{ name, means string }{
		{stagedPath, "the staged deployment was not finalized"},
		{finalizeFailed, "finalizing failed"},
		{kubeletCertPath, "the node has joined"},
	} {
		found, err := root.Exists(f.name)
		if err != nil {
			return nil, fmt.Errorf("looking for %w", err)
		}
		if found {
			return nil, fmt.Errorf("%s: %s is there", f.means, f.name)
		}
	}
	s, err := ostree.OpenSysroot(root)
	if err != nil {
		return nil, err
	}
	d, err := s.Default()
	if err != nil {
		return nil, err
	}
	cmdline, err := root.ReadFile(cmdlinePath, maxSmallFile)
	if err != nil {
		return nil, err
	}
	booted, err := s.Booted(string(cmdline))
	if err != nil {
		return nil, err
	}
	facts := s.Facts(&ostree.Booted{Deployment: d})
	origin, _ := facts.Booted.OriginReference.Get()
	switch {
	case d.Name() == booted.Name() || d.Staged:
		return nil, errors.New("no new deployment boots next")
	case string(booted.Checksum) != a.Booted:
		return nil, errors.New("another deployment runs than when this was armed")
	case a.OSImageURL == "" || origin != a.OSImageURL:
		return nil, fmt.Errorf("deployment %s is of %q, not of the wanted image", d.Name(), origin)
	case d.Entry == nil || len(d.Entry.Initrds) != 1 || d.Entry.Linux == "":
		return nil, fmt.Errorf("the boot entry of deployment %s has not one kernel and one initial ramdisk", d.Name())
	case verdict.BootVariable(d.Entry.Options) != "":
		return nil, fmt.Errorf("the boot entry of deployment %s has the variable %s", d.Name(), verdict.BootVariable(d.Entry.Options))
	}
	return d, nil
}

func noKernelLoaded(root *hostfs.Root) error {
	raw, err := root.ReadFile(kexecLoadedPath, maxSmallFile)
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(raw)) != "0" {
		return errors.New("somebody else has loaded a kernel")
	}
	return nil
}

// copyBoot copies a file of a boot entry into memory: when the reboot needs it, /boot
// is no longer mounted.
func copyBoot(root *hostfs.Root, from, to string, most int64) error {
	f, err := root.OpenFile("/boot" + strings.TrimPrefix(path.Clean("/"+from), "/boot"))
	if err != nil {
		return err
	}
	defer f.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(f, most+1))
	if err == nil && n > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	return nil
}

// kexecLoad hands the copies to the kernel, which checks their signature where it is
// locked down (kexec_file_load(2)).
func kexecLoad(commandLine string) error {
	kernel, err := os.Open(kernelPath)
	if err != nil {
		return err
	}
	defer kernel.Close()
	initrd, err := os.Open(initrdPath)
	if err != nil {
		return err
	}
	defer initrd.Close()
	if err := unix.KexecFileLoad(int(kernel.Fd()), int(initrd.Fd()), commandLine, 0); err != nil {
		return fmt.Errorf("loading the kernel: %w", err)
	}
	return nil
}

// Kexec runs at the very end of a shutdown that reboots. It returns only where the
// reboot is to be a normal one, and says why.
func Kexec() error {
	root, err := liveRoot()
	if err != nil {
		return err
	}
	defer root.Close()
	s := loaded{}
	if err := readJSON(root, loadedPath, &s); err != nil {
		return err
	}
	if s.BootID == "" || s.BootID != bootID("/") || s.CommandLine == "" {
		return errors.New("the stamp is another boot's")
	}
	// Whose kernel is loaded cannot be asked, and this program has left none.
	if err := noKernelLoaded(root); err != nil {
		return err
	}
	if err := kexecLoad(s.CommandLine); err != nil {
		return err
	}
	err = syscall.Exec(systemctlPath, []string{filepath.Base(systemctlPath), "--force", "kexec"}, []string{"LC_ALL=C", "PATH=/usr/sbin:/usr/bin"})
	return fmt.Errorf("running systemctl: %w", err)
}

func readJSON(root *hostfs.Root, name string, to any) error {
	raw, err := root.ReadFile(name, maxSmallFile)
	if errors.Is(err, fs.ErrNotExist) {
		return errNotArmed
	}
	if err == nil {
		err = json.Unmarshal(raw, to)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	return nil
}
