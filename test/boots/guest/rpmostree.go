package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// imageRepo is in the place of the registry that a rebase pulls from: a
// repository that holds what ostree-ext would have made of the images there.
const imageRepo = "/var/lib/boots/images"

const version = `rpm-ostree:
 Version: '2024.3'
 Git: 0
 Features:
  - rust
  - compose
  - container
  - fedora-integration
`

// rpmOSTree answers as rpm-ostree does to what the machine-config-daemon asks at
// the first boot, from the real deployments.
func rpmOSTree(args []string) error {
	switch command := strings.Join(args, " "); {
	case command == "--version":
		fmt.Print(version)
		return nil
	case command == "status --json":
		booted, err := bootedDeployment()
		if err != nil {
			return err
		}
		text, err := booted.Status(nil)
		if err != nil {
			return err
		}
		fmt.Print(text)
		return nil
	case command == "status":
		return ostree("admin", "status")
	case command == "kargs":
		cmdline, err := os.ReadFile("/proc/cmdline")
		if err != nil {
			return err
		}
		fmt.Print(string(cmdline))
		return nil
	case command == "cleanup -p":
		return ostree("admin", "cleanup")
	case strings.HasPrefix(command, "rebase "):
		return rebase(args[len(args)-1])
	}
	return fmt.Errorf("%q is nothing that this stand-in does", args)
}

// addedArgument is what the new deployment has more than the booted one, as if the
// MachineConfig had asked for it.
const addedArgument = "/etc/boots-argument"

// rebase pulls the image that an ostree image reference names and stages a
// deployment of it, which the shutdown makes the default one.
func rebase(reference string) error {
	image, ok := strings.CutPrefix(reference, "ostree-unverified-registry:")
	if !ok {
		return fmt.Errorf("%s: no registry to pull from", reference)
	}
	ref := nativeimage.ImageRefPrefix + nativeimage.EscapeRef("docker://"+image)
	commit, err := sysroot.Ostree("rev-parse", "--repo="+imageRepo, ref)
	if err != nil {
		return err
	}
	origin, err := os.CreateTemp("/run", "origin-")
	if err != nil {
		return err
	}
	defer os.Remove(origin.Name())
	if _, err := origin.WriteString(sysroot.ContainerOrigin(reference)); err != nil {
		return err
	}
	if err := origin.Close(); err != nil {
		return err
	}
	if err := pull(ref); err != nil {
		return err
	}
	args := []string{"admin", "deploy", "--stage", "--os=" + sysroot.Stateroot, "--origin-file=" + origin.Name()}
	if argument, err := os.ReadFile(addedArgument); err == nil {
		args = append(args, "--karg-append="+strings.TrimSpace(string(argument)))
	}
	return ostree(append(args, commit)...)
}

// pull writes to the system's repository, which is read-only: rpm-ostreed too
// has a mount namespace of its own.
func pull(ref string) error {
	const script = `mount -o remount,rw /sysroot && exec ostree pull-local --repo=/sysroot/ostree/repo "$0" "$1"`
	cmd := exec.Command("unshare", "--mount", "/bin/sh", "-c", script, imageRepo, ref)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("pulling %s: %w", ref, err)
	}
	return nil
}

// ostree runs the tool on the booted system with this process's output.
func ostree(args ...string) error {
	cmd := exec.Command("ostree", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running ostree %s: %w", args[0], err)
	}
	return nil
}
