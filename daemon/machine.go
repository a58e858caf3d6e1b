package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// Where the kernel says what the machine is (Documentation/ABI/testing/sysfs-* of
// Linux).
const (
	cpuinfoPath       = "/proc/cpuinfo"
	hypervisorPath    = "/sys/hypervisor/type"
	dmiVendorPath     = "/sys/class/dmi/id/sys_vendor"
	dmiProductPath    = "/sys/class/dmi/id/product_name"
	kexecDisabledPath = "/proc/sys/kernel/kexec_load_disabled"
	lockdownPath      = "/sys/kernel/security/lockdown"
	// maxCPUInfo bounds /proc/cpuinfo, in bytes: some kilobytes for each processor.
	maxCPUInfo = 16 << 20
)

// systemdDirs are where distributions have systemd's own library, whose name has the
// version (libsystemd-shared-252.so, libsystemd-shared-257.9-1.fc42.so).
func systemdDirs() []string {
	return []string{"/usr/lib/systemd", "/usr/lib64/systemd", "/usr/lib/x86_64-linux-gnu/systemd"}
}

// maxSystemdDir bounds such a folder, in entries.
const maxSystemdDir = 4096

// The administrator's lists of hardware, one VENDOR/PRODUCT on a line.
const (
	deniedPath  = "/etc/oneboot/fast-reboot.deny"
	allowedPath = "/etc/oneboot/fast-reboot.allow"
)

// machineFacts reads what only the fast reboot depends on.
func machineFacts(root *hostfs.Root) verdict.Machine {
	m := verdict.Machine{
		Vendor: textFact(root, dmiVendorPath), Product: textFact(root, dmiProductPath),
		Denied: hardwareList(root, deniedPath), Allowed: hardwareList(root, allowedPath),
	}
	m.Virtualization, m.Confidential = virtualization(root)
	m.Lockdown, m.Systemd = lockdown(root), systemdVersion(root)
	raw, err := root.ReadFile(kexecDisabledPath, maxSmallFile)
	switch text := strings.TrimSpace(string(raw)); {
	case errors.Is(err, fs.ErrNotExist):
		// A kernel without kexec, or no kernel at all: no in either case.
		m.KexecDisabled = verdict.Known(true)
	case err != nil:
		m.KexecDisabled = verdict.Unknown[bool](reading(err))
	default:
		m.KexecDisabled = verdict.Known(text != "0")
	}
	return m
}

// virtualization goes by the processor's bit for hypervisors, which every one sets, and
// by Xen's folder.
func virtualization(root *hostfs.Root) (virtual verdict.Fact[string], confidential verdict.Fact[bool]) {
	raw, err := root.ReadFile(cpuinfoPath, maxCPUInfo)
	if err != nil {
		return verdict.Unknown[string](reading(err)), verdict.Unknown[bool](reading(err))
	}
	var flags []string
	for line := range strings.Lines(string(raw)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "flags" {
			flags = strings.Fields(value)
			break
		}
	}
	if flags == nil {
		why := "reading " + cpuinfoPath + ": it has no flags"
		return verdict.Unknown[string](why), verdict.Unknown[bool](why)
	}
	confidential = verdict.Known(slices.Contains(flags, "tdx_guest"))
	for _, name := range []string{"/dev/sev-guest", "/dev/tdx_guest"} {
		if found, err := root.Exists(name); err != nil {
			confidential = verdict.Unknown[bool]("looking for " + err.Error())
		} else if found {
			confidential = verdict.Known(true)
		}
	}
	if text, err := root.ReadFile(hypervisorPath, maxSmallFile); err == nil {
		return verdict.Known(strings.TrimSpace(string(text))), confidential
	} else if !errors.Is(err, fs.ErrNotExist) {
		return verdict.Unknown[string](reading(err)), confidential
	}
	if slices.Contains(flags, "hypervisor") {
		return verdict.Known("the processor is a hypervisor's"), confidential
	}
	return verdict.Known(""), confidential
}

// lockdown reads "[none] integrity confidentiality".
func lockdown(root *hostfs.Root) verdict.Fact[string] {
	raw, err := root.ReadFile(lockdownPath, maxSmallFile)
	if err != nil {
		return verdict.Unknown[string](reading(err))
	}
	_, rest, _ := strings.Cut(string(raw), "[")
	level, _, ok := strings.Cut(rest, "]")
	if !ok || level == "" {
		return verdict.Unknown[string](fmt.Sprintf("reading %s: %.60q names no level", lockdownPath, raw))
	}
	return verdict.Known(level)
}

// systemdVersion goes by the one library that there is.
func systemdVersion(root *hostfs.Root) verdict.Fact[int] {
	const before, after = "libsystemd-shared-", ".so"
	var found []int
	for _, dir := range systemdDirs() {
		entries, err := root.ReadDir(dir, maxSystemdDir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return verdict.Unknown[int](reading(err))
		}
		for _, e := range entries {
			name, ok := strings.CutPrefix(e.Name(), before)
			if !ok || !strings.HasSuffix(name, after) {
				continue
			}
			major := name[:len(name)-len(strings.TrimLeft(name, "0123456789"))]
			n, err := strconv.Atoi(major)
			if err != nil {
				return verdict.Unknown[int](fmt.Sprintf("%s/%s: its name has no version of systemd", dir, e.Name()))
			}
			found = append(found, n)
		}
	}
	if len(found) != 1 {
		return verdict.Unknown[int](fmt.Sprintf("systemd's version: %d files %s*%s in %s", len(found), before, after, strings.Join(systemdDirs(), ", ")))
	}
	return verdict.Known(found[0])
}

// hardwareList reads one of the administrator's lists; nil where there is none.
func hardwareList(root *hostfs.Root, name string) verdict.Fact[[]string] {
	raw, err := root.ReadFile(name, maxSmallFile)
	if errors.Is(err, fs.ErrNotExist) {
		return verdict.Known([]string(nil))
	}
	if err != nil {
		return verdict.Unknown[[]string](reading(err))
	}
	lines := []string{}
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if _, err := path.Match(line, ""); err != nil {
			return verdict.Unknown[[]string](fmt.Sprintf("reading %s: %.60q is no pattern", name, line))
		}
		lines = append(lines, line)
	}
	return verdict.Known(lines)
}
