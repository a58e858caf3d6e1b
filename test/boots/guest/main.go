// Command guest stands in for the programs that the booted Debian system of the
// tests lacks: called as rpm-ostree, kubelet, crio or chronyd it does what the
// tests need of them, called as boot-mark it counts the boots.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/test/sysroot"
)

func main() {
	if err := run(filepath.Base(os.Args[0]), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, filepath.Base(os.Args[0])+": "+err.Error())
		os.Exit(1)
	}
}

func run(name string, args []string) error {
	// The machine-config-daemon starts rpm-ostree without a PATH.
	if err := os.Setenv("PATH", "/usr/sbin:/usr/bin"); err != nil {
		return err
	}
	switch name {
	case "rpm-ostree":
		return rpmOSTree(args)
	case "kubelet":
		return kubelet()
	case "crio":
		return nil
	case "chronyd":
		return chronyd()
	case "boot-mark":
		return bootMark()
	case "load-other":
		return loadOther()
	}
	return errors.New("nothing by this name stands in")
}

// A mark is one line on the console, after its name.
type mark struct {
	BootID string `json:"bootID"`
	// Boots counts the boots of this disk that came so far.
	Boots int `json:"boots"`
	// Uptime is in seconds.
	Uptime float64 `json:"uptime"`
	// Deployment is "<checksum>.<serial>" of the booted one.
	Deployment string `json:"deployment"`
	// Release is what the deployment's own tree says it is.
	Release string `json:"release"`
	// Origin is the text of its origin file.
	Origin string `json:"origin"`
	// Arguments are the kernel's.
	Arguments string `json:"arguments"`
}

const bootsFile = "/var/lib/boots/ids"

// bootMark adds this boot to those that the disk has seen.
func bootMark() error {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(bootsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(id); err != nil {
		return err
	}
	// The power may be cut at any time after this.
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return say("BOOT")
}

// rebootUnit is what the machine-config-daemon reboots by, and does not wait
// for.
const rebootUnit = "/run/systemd/transient/machine-config-daemon-reboot.service"

// kubelet tells that it was started, and turns the machine off. Where the
// machine-config-daemon has ordered a reboot, a kubelet may be started for the
// moment until the shutdown stops it: that one only waits for it.
func kubelet() error {
	_, err := os.Stat(rebootUnit)
	// It ends with 1 where the system is not "running".
	state, _ := exec.Command("systemctl", "is-system-running").Output()
	if err == nil || strings.TrimSpace(string(state)) == "stopping" {
		if err := say("STOPPING"); err != nil {
			return err
		}
		time.Sleep(time.Hour)
	}
	if err := say("KUBELET"); err != nil {
		return err
	}
	time.Sleep(3 * time.Second)
	end := "poweroff"
	if os.Remove(rebootOnce) == nil {
		end = "reboot"
	}
	return exec.Command("systemctl", end).Run()
}

// rebootOnce has the kubelet reboot the node, as an update would some day.
const rebootOnce = "/etc/boots-reboot-once"

// loadOther loads a kernel for kexec that is not oneboot's: the running one, which
// would boot what has just been booted.
func loadOther() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	dir := "/usr/lib/modules/" + unix.ByteSliceToString(u.Release[:])
	kernel, err := os.Open(dir + "/vmlinuz")
	if err != nil {
		return err
	}
	initrd, err := os.Open(dir + "/initramfs.img")
	if err != nil {
		return err
	}
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	return unix.KexecFileLoad(int(kernel.Fd()), int(initrd.Fd()), strings.TrimSpace(string(cmdline)), 0)
}

// say writes a mark to the console.
func say(what string) error {
	m, err := newMark()
	if err != nil {
		return err
	}
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	console, err := os.OpenFile("/dev/console", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(console, "\nBOOTS-%s %s\n", what, b)
	return errors.Join(err, console.Close())
}

func newMark() (mark, error) {
	ids, err := os.ReadFile(bootsFile)
	if err != nil {
		return mark{}, err
	}
	all := strings.Fields(string(ids))
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return mark{}, err
	}
	up, _, _ := strings.Cut(string(uptime), " ")
	seconds, err := strconv.ParseFloat(up, 64)
	if err != nil {
		return mark{}, err
	}
	d, err := bootedDeployment()
	if err != nil {
		return mark{}, err
	}
	origin, err := os.ReadFile(d.OriginFile())
	if err != nil {
		return mark{}, err
	}
	arguments, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return mark{}, err
	}
	release, err := os.ReadFile("/usr/lib/boots-release")
	return mark{
		BootID: all[len(all)-1], Boots: len(all), Uptime: seconds, Deployment: filepath.Base(d.Dir),
		Release: strings.TrimSpace(string(release)), Origin: string(origin), Arguments: strings.TrimSpace(string(arguments)),
	}, err
}

// bootedDeployment follows the ostree argument of the kernel command line.
func bootedDeployment() (sysroot.Deployment, error) {
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return sysroot.Deployment{}, err
	}
	for arg := range strings.FieldsSeq(string(cmdline)) {
		link, ok := strings.CutPrefix(arg, "ostree=")
		if !ok {
			continue
		}
		dir, err := filepath.EvalSymlinks("/sysroot" + link)
		if err != nil {
			return sysroot.Deployment{}, err
		}
		all, err := system().Deployments()
		if err != nil {
			return sysroot.Deployment{}, err
		}
		for _, d := range all {
			if d.Dir == dir {
				return d, nil
			}
		}
	}
	return sysroot.Deployment{}, errors.New("no deployment is booted")
}

func system() *sysroot.Sysroot { return &sysroot.Sysroot{Dir: "/sysroot"} }

// chronyd says that the clock is set, as the real one does some seconds after
// its start: the machine's clock is QEMU's, which is the host's.
func chronyd() error {
	time.Sleep(2 * time.Second)
	_, err := unix.Adjtimex(&unix.Timex{Modes: unix.ADJ_STATUS | unix.ADJ_MAXERROR | unix.ADJ_ESTERROR})
	return err
}
