package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/machineconfig"
	"github.com/oneboot/oneboot/pkg/ostree"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// Host paths of this room; those of the MCO are in pkg/machineconfig.
const (
	cmdlinePath       = "/proc/cmdline"
	kernelReleasePath = "/proc/sys/kernel/osrelease"
	fipsPath          = "/proc/sys/crypto/fips_enabled"
	bootIDPath        = "/proc/sys/kernel/random/boot_id"
)

// maxSmallFile bounds the host's small files: a kernel command line, a tuning
// file, a NetworkManager profile.
const maxSmallFile = 64 << 10

// gatherHost reads everything that the host tells, which costs next to
// nothing: the sysroot first, then what only a running host has, then the
// second source.
func (r *run) gatherHost(ctx context.Context) {
	if r.stranger {
		r.booted = strangeHost(NoSysroot)
	} else {
		r.gatherRoot()
	}
	r.gatherStatus(ctx)
}

func (r *run) gatherRoot() {
	r.booted = unknownHost("the sysroot could not be read")
	if err := r.gatherSysroot(); err != nil {
		code := codeSysroot
		if errors.Is(err, ostree.ErrNotOSTree) {
			code, err = codeNoHost, noHost(r.opts.Root)
			r.noHost = err
		}
		r.booted = unknownHost(err.Error())
		r.fail(code, "", err)
	}
	r.booted.LegacyKernelArguments = legacyKernelArguments(r.root, r.etc)
	if !r.opts.Unbooted {
		readHostFacts(r.root, &r.booted)
	}
}

func (r *run) gatherSysroot() error {
	sysroot, err := ostree.OpenSysroot(r.root)
	if err != nil {
		return err
	}
	booted, err := r.findDeployment(sysroot)
	if err != nil {
		return err
	}
	if r.opts.Unbooted {
		r.etc = booted.Dir
	}
	r.sysroot, r.deployment = sysroot, booted
	facts := sysroot.Facts(booted)
	r.booted = facts.Booted
	for _, err := range facts.Unreadable {
		r.fail(codeSysroot, "", err)
	}
	if arch, ok := r.booted.Architecture.Get(); ok && r.root.Live() && arch != runtime.GOARCH {
		r.booted.Architecture = verdict.Unknown[string](fmt.Sprintf("the deployment is for %s, but this host runs %s programs", arch, runtime.GOARCH))
	}
	return nil
}

// findDeployment is the booted deployment, or on an unbooted disk the one that
// boots next.
func (r *run) findDeployment(sysroot *ostree.Sysroot) (*ostree.Booted, error) {
	if r.opts.Unbooted {
		d, err := sysroot.Default()
		if err != nil {
			return nil, err
		}
		return &ostree.Booted{Deployment: d}, nil
	}
	cmdline, err := r.root.ReadFile(cmdlinePath, maxSmallFile)
	if err != nil {
		return nil, fmt.Errorf("finding booted deployment: %w", err)
	}
	return sysroot.Booted(string(cmdline))
}

// unknownHost has every fact of the sysroot unknown for the same reason.
func unknownHost(why string) verdict.Booted {
	return verdict.Booted{
		Architecture:      verdict.Unknown[string](why),
		Deployment:        verdict.Unknown[verdict.Deployment](why),
		DeploymentKernels: verdict.Unknown[[]string](why),
		BootEntryOptions:  verdict.Unknown[string](why),
		NodePayload:       verdict.Unknown[verdict.NodePayload](why),
		OriginReference:   verdict.Unknown[string](why),
	}
}

// readHostFacts fills in what only a running host can tell.
func readHostFacts(root *hostfs.Root, b *verdict.Booted) {
	b.CommandLine = textFact(root, cmdlinePath)
	b.RunningKernel = textFact(root, kernelReleasePath)
	b.FIPS = fipsFact(root)
	b.ForceFile = existsFact(root, machineconfig.ForceFilePath)
	b.NetworkState = networkStateFact(root)
	b.Machine = machineFacts(root)
}

// textFact is a file's text without the newline at its end.
func textFact(root *hostfs.Root, path string) verdict.Fact[string] {
	raw, err := root.ReadFile(path, maxSmallFile)
	if err != nil {
		return verdict.Unknown[string](reading(err))
	}
	return verdict.Known(strings.TrimRight(string(raw), "\n"))
}

// reading says what could not be read, and why.
func reading(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return "reading " + pe.Path + ": " + pe.Err.Error()
	}
	return "reading " + err.Error()
}

func existsFact(root *hostfs.Root, path string) verdict.Fact[bool] {
	found, err := root.Exists(path)
	if err != nil {
		return verdict.Unknown[bool]("looking for " + err.Error())
	}
	return verdict.Known(found)
}

// fipsFact reads the kernel's FIPS switch. A kernel built without FIPS has no
// such file and is not in FIPS mode; a root without /proc/sys is not that.
func fipsFact(root *hostfs.Root) verdict.Fact[bool] {
	raw, err := root.ReadFile(fipsPath, maxSmallFile)
	if errors.Is(err, fs.ErrNotExist) {
		if ok, err := root.Exists("/proc/sys/kernel"); ok && err == nil {
			return verdict.Known(false)
		}
	}
	if err != nil {
		return verdict.Unknown[bool](reading(err))
	}
	switch s := strings.TrimSpace(string(raw)); s {
	case "0":
		return verdict.Known(false)
	case "1":
		return verdict.Known(true)
	default:
		return verdict.Unknown[bool](fmt.Sprintf("reading %s: %.20q is neither 0 nor 1", fipsPath, s))
	}
}

// legacyKernelArguments are the lines of the tuning file that the MCD acts on
// (parseTuningFile in pkg/daemon/kernelargs.go); blank lines and comments
// mean nothing to it.
func legacyKernelArguments(root *hostfs.Root, prefix string) verdict.Fact[[]string] {
	raw, err := root.ReadFile(prefix+machineconfig.KernelArgsPath, maxSmallFile)
	if errors.Is(err, fs.ErrNotExist) {
		return verdict.Known([]string(nil))
	}
	if err != nil {
		return verdict.Unknown[[]string](reading(err))
	}
	var lines []string
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return verdict.Known(lines)
}
