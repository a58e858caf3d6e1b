package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/ostree"
	"github.com/oneboot/oneboot/pkg/verdict"
)

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
