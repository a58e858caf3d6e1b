//go:build mcd

package mcdlab

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/oneboot/oneboot/test/sysroot"
)

// standIns are the programs that the daemon calls, by name. They run in the
// chroot of a node.
func standIns() map[string]func([]string) error {
	all := map[string]func([]string) error{"rpm-ostree": rpmOSTree, "ostree": ostreeTool}
	// It only has to find that they succeed.
	for _, name := range []string{"chcon", "logger", "nice", "podman", "setenforce", "skopeo", "systemctl", "systemd-run"} {
		all[name] = func(args []string) error { return noteCall(name, args) }
	}
	return all
}

func noteCall(name string, args []string) error {
	if name == "logger" {
		// What the journal gets is printed too.
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	}
	f, err := os.OpenFile(callsFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, name, strings.Join(args, " "))
	return err
}

// ostreeTool becomes the ostree tool, by the loader beside it.
func ostreeTool(args []string) error {
	dir := filepath.Join(toolsDir, libraryDir)
	loaders, err := filepath.Glob(dir + "/ld-linux*")
	if err != nil || len(loaders) != 1 {
		return fmt.Errorf("finding the loader: %v, %w", loaders, err)
	}
	argv := append([]string{loaders[0], "--library-path", dir, dir + "/ostree"}, args...)
	return syscall.Exec(loaders[0], argv, os.Environ())
}

// rpmOSTree answers and acts on the node's own sysroot.
func rpmOSTree(args []string) error {
	if err := noteCall("rpm-ostree", args); err != nil {
		return err
	}
	s := &sysroot.Sysroot{Dir: "/sysroot"}
	switch strings.Join(args, " ") {
	case "--version":
		return printVersion()
	case "status --json":
		booted, err := bootedDeployment(s)
		if err != nil {
			return err
		}
		origin, err := os.ReadFile(booted.OriginFile())
		if err != nil {
			return err
		}
		text, err := booted.Status(func(d map[string]any) { d["requested-packages"] = requested(string(origin)) })
		fmt.Print(text)
		return err
	case "kargs":
		_, options, err := next(s)
		fmt.Println(options)
		return err
	}
	switch args[0] {
	case "kargs":
		return changeArguments(s, args[1:])
	case "rebase":
		return rebase(s, args[len(args)-1])
	}
	// cleanup, update --install and override: that they were called is all
	// that a test wants to know.
	return nil
}

// bootedDeployment is the one that the node runs. The real program finds it by
// the running root's inode; the link on the kernel command line is gone once
// another deployment has been made.
func bootedDeployment(s *sysroot.Sysroot) (sysroot.Deployment, error) {
	name, err := os.ReadFile(bootedFile)
	if err != nil {
		return sysroot.Deployment{}, err
	}
	all, err := s.Deployments()
	if err != nil {
		return sysroot.Deployment{}, err
	}
	i := slices.IndexFunc(all, func(d sysroot.Deployment) bool { return filepath.Base(d.Dir) == string(name) })
	if i < 0 {
		return sysroot.Deployment{}, fmt.Errorf("finding the booted deployment %s", name)
	}
	return all[i], nil
}

// requestedKey is where an origin has the packages that are to be layered.
const requestedKey = "requested="

func requested(origin string) []string {
	list := []string{}
	for line := range strings.Lines(origin) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), requestedKey); ok {
			list = slices.DeleteFunc(strings.Split(value, ";"), func(s string) bool { return s == "" })
		}
	}
	return list
}

// next is the deployment that boots next, with the options of its entry.
func next(s *sysroot.Sysroot) (sysroot.Deployment, string, error) {
	all, err := s.Deployments()
	if err != nil {
		return sysroot.Deployment{}, "", err
	}
	var (
		best    sysroot.Deployment
		options string
		highest = -1
	)
	for _, d := range all {
		_, entry, err := d.BootEntry()
		if err != nil {
			return sysroot.Deployment{}, "", err
		}
		version, err := strconv.Atoi(entry["version"])
		if err != nil {
			return sysroot.Deployment{}, "", err
		}
		if version > highest {
			best, options, highest = d, entry["options"], version
		}
	}
	return best, options, nil
}

// printVersion prints the version of the running system. Deployments of
// containers came in 2022.13.
func printVersion() error {
	text, err := os.ReadFile("/" + versionFile)
	if err != nil {
		return err
	}
	var year, number int
	if _, err := fmt.Sscanf(string(text), "%d.%d", &year, &number); err != nil {
		return err
	}
	fmt.Printf("rpm-ostree:\n Version: '%s'\n Features:\n  - rust\n  - compose\n", text)
	if year > 2022 || year == 2022 && number >= 13 {
		fmt.Print("  - container\n")
	}
	return nil
}

// deployNext makes what boots next.
func deployNext(s *sysroot.Sysroot, commit, origin, options string) error {
	var kargs []string
	for word := range strings.FieldsSeq(options) {
		if !strings.HasPrefix(word, "ostree=") {
			kargs = append(kargs, word)
		}
	}
	_, err := s.Deploy(commit, sysroot.DeployOptions{KernelArguments: kargs, Origin: origin})
	return err
}

// changeArguments deploys what boots next once more, with other arguments.
func changeArguments(s *sysroot.Sysroot, changes []string) error {
	d, options, err := next(s)
	if err != nil {
		return err
	}
	origin, err := os.ReadFile(d.OriginFile())
	if err != nil {
		return err
	}
	words := strings.Fields(options)
	for _, c := range changes {
		action, word, _ := strings.Cut(c, "=")
		switch action {
		case "--append":
			words = append(words, word)
		case "--delete", "--delete-if-present":
			if i := slices.Index(words, word); i >= 0 {
				words = slices.Delete(words, i, i+1)
			}
		default:
			return fmt.Errorf("no stand-in for rpm-ostree kargs %s", c)
		}
	}
	return deployNext(s, d.Checksum, string(origin), strings.Join(words, " "))
}

// rebase deploys the image of a reference. The pull has been done before: the
// repository has the commit by the reference's name.
func rebase(s *sysroot.Sysroot, reference string) error {
	_, options, err := next(s)
	if err != nil {
		return err
	}
	commit, err := sysroot.Ostree("rev-parse", "--repo="+s.Repo(), pulledRef(reference))
	if err != nil {
		return err
	}
	return deployNext(s, commit, sysroot.ContainerOrigin(reference), options)
}
