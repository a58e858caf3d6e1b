// Package sysroot makes real ostree sysroots for tests, the demo and
// benchmarks: by the ostree command line tool, without booting anything. It
// must run as root.
//
// A [Sysroot] is a physical root, as on a disk that never booted. A [Root] is
// what the running system sees at /, with the physical root at /sysroot.
//
// It is the side that oneboot is measured against, so it imports none of
// oneboot's own readers.
package sysroot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Stateroot is the stateroot that every [Sysroot] has from the start, by the
// name that RHCOS gives it.
const Stateroot = "rhcos"

// A Sysroot is a physical root with ostree/repo, ostree/deploy and boot.
type Sysroot struct {
	// Dir is the physical root.
	Dir string
}

// New makes an empty sysroot in dir, with a repository of mode bare, the
// settings that RHCOS has and the stateroot [Stateroot].
func New(dir string) (*Sysroot, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	s := &Sysroot{Dir: dir}
	steps := [][]string{
		{"admin", "init-fs", "--modern", dir},
		{"config", "--repo=" + s.Repo(), "set", "sysroot.bootloader", "none"},
		{"config", "--repo=" + s.Repo(), "set", "sysroot.readonly", "true"},
		// A test's files need not survive a power cut.
		{"config", "--repo=" + s.Repo(), "set", "core.fsync", "false"},
	}
	for _, args := range steps {
		if _, err := Ostree(args...); err != nil {
			return nil, err
		}
	}
	return s, s.AddStateroot(Stateroot)
}

// TempDir is t.TempDir for a folder that will hold sysroots: it can be removed
// when the test ends.
func TempDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	// Runs before the removal that t.TempDir has registered.
	t.Cleanup(func() {
		if err := Unlock(dir); err != nil {
			t.Errorf("unlocking deployments: %v", err)
		}
	})
	return dir
}

// Repo is the path of the system repository.
func (s *Sysroot) Repo() string { return filepath.Join(s.Dir, "ostree/repo") }

// AddStateroot makes another stateroot.
func (s *Sysroot) AddStateroot(name string) error {
	_, err := Ostree("admin", "os-init", "--sysroot="+s.Dir, name)
	return err
}

// A DeployOptions says how to deploy.
type DeployOptions struct {
	// Stateroot is [Stateroot] where empty.
	Stateroot string
	// KernelArguments are all arguments of the boot entry but ostree=, in
	// order.
	KernelArguments []string
	// NotAsDefault adds the deployment behind the others.
	NotAsDefault bool
	// Origin is the text of the origin file; where empty it is what ostree
	// writes: refspec= and the revision.
	Origin string
}

// ContainerOrigin is the text of the origin file of a deployment that was made
// from a container image: reference is an ostree image reference such as
// "ostree-unverified-registry:quay.io/os@sha256:...".
func ContainerOrigin(reference string) string {
	return "[origin]\ncontainer-image-reference=" + reference + "\n"
}

// A Deployment is a deployment of a [Sysroot].
type Deployment struct {
	Stateroot string
	Checksum  string
	Serial    int
	// Dir is the deployment's root folder.
	Dir string

	sysroot *Sysroot
}

// Deploy deploys a revision; earlier deployments are kept.
func (s *Sysroot) Deploy(rev string, opts DeployOptions) (Deployment, error) {
	if opts.Stateroot == "" {
		opts.Stateroot = Stateroot
	}
	before, err := s.Deployments()
	if err != nil {
		return Deployment{}, err
	}
	args := []string{"admin", "deploy", "--sysroot=" + s.Dir, "--os=" + opts.Stateroot, "--retain", "--no-prune", "--karg-none"}
	for _, k := range opts.KernelArguments {
		args = append(args, "--karg-append="+k)
	}
	if opts.NotAsDefault {
		args = append(args, "--not-as-default")
	}
	if _, err := Ostree(append(args, rev)...); err != nil {
		return Deployment{}, err
	}
	after, err := s.Deployments()
	if err != nil {
		return Deployment{}, err
	}
	for _, d := range after {
		if slices.Contains(before, d) {
			continue
		}
		if opts.Origin == "" {
			return d, nil
		}
		return d, d.SetOrigin(opts.Origin)
	}
	return Deployment{}, fmt.Errorf("deploying %s: no new deployment in %s", rev, s.Dir)
}

// Deployments lists the deployments of all stateroots, in no special order.
func (s *Sysroot) Deployments() ([]Deployment, error) {
	dirs, err := filepath.Glob(filepath.Join(s.Dir, "ostree/deploy/*/deploy/*.*"))
	if err != nil {
		return nil, err
	}
	var all []Deployment
	for _, dir := range dirs {
		// Beside the folders lie their origin files, and what a program that
		// replaces one leaves when it is cut off.
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			continue
		}
		checksum, number, _ := strings.Cut(filepath.Base(dir), ".")
		serial, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("reading the serial of deployment %s: %w", filepath.Base(dir), err)
		}
		all = append(all, Deployment{
			Stateroot: filepath.Base(filepath.Dir(filepath.Dir(dir))),
			Checksum:  checksum, Serial: serial, Dir: dir, sysroot: s,
		})
	}
	return all, nil
}

// Undeploy removes a deployment and its boot entry.
func (s *Sysroot) Undeploy(d Deployment) error {
	out, err := Ostree("admin", "status", "--sysroot="+s.Dir)
	if err != nil {
		return err
	}
	want := fmt.Sprintf("%s %s.%d", d.Stateroot, d.Checksum, d.Serial)
	index := 0
	for line := range strings.Lines(out) {
		if strings.Contains(line, want) {
			_, err := Ostree("admin", "undeploy", "--sysroot="+s.Dir, strconv.Itoa(index))
			return err
		}
		if deploymentLine.MatchString(line) {
			index++
		}
	}
	return fmt.Errorf("undeploying %s: not in the status", want)
}

var deploymentLine = regexp.MustCompile(`^[* ] \S+ [0-9a-f]{64}\.[0-9]+`)

// OriginFile is the path of the deployment's origin file.
func (d Deployment) OriginFile() string { return d.Dir + ".origin" }

// SetOrigin replaces the text of the origin file.
func (d Deployment) SetOrigin(text string) error {
	return os.WriteFile(d.OriginFile(), []byte(text), 0o644)
}

// BootEntry returns the path of the deployment's boot loader entry and the
// fields in it. The path changes with every deployment.
func (d Deployment) BootEntry() (path string, fields map[string]string, err error) {
	entries, err := filepath.Glob(filepath.Join(d.sysroot.Dir, "boot/loader/entries/*.conf"))
	if err != nil {
		return "", nil, err
	}
	for _, path := range entries {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", nil, err
		}
		fields := map[string]string{}
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			fields[key] = value
		}
		booted, err := d.sysroot.bootTarget(fields["options"])
		if err != nil {
			return "", nil, fmt.Errorf("reading boot entry %s: %w", filepath.Base(path), err)
		}
		if booted == d.Dir {
			return path, fields, nil
		}
	}
	return "", nil, fmt.Errorf("finding the boot entry of %s: %w", filepath.Base(d.Dir), fs.ErrNotExist)
}

// bootTarget follows the ostree= argument to the deployment's folder.
func (s *Sysroot) bootTarget(options string) (string, error) {
	for arg := range strings.FieldsSeq(options) {
		if link, ok := strings.CutPrefix(arg, "ostree="); ok {
			target, err := filepath.EvalSymlinks(filepath.Join(s.Dir, link))
			if err != nil {
				return "", err
			}
			root, err := filepath.EvalSymlinks(s.Dir)
			if err != nil {
				return "", err
			}
			rel, err := filepath.Rel(root, target)
			return filepath.Join(s.Dir, rel), err
		}
	}
	return "", errors.New("no ostree= among the options")
}

// scratch makes a folder on the repository's file system; the caller removes it.
func (s *Sysroot) scratch(prefix string) (string, error) {
	return os.MkdirTemp(filepath.Join(s.Repo(), "tmp"), prefix)
}
