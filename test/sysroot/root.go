package sysroot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The paths of the host files that [Root.Boot] writes, below the root.
const (
	MachineConfigPath = "etc/ignition-machine-config-encapsulated.json"
	PolicyPath        = "etc/containers/policy.json"
	RegistriesPath    = "etc/containers/registries.conf"
	CommandLinePath   = "proc/cmdline"
	OSReleasePath     = "proc/sys/kernel/osrelease"
	FIPSPath          = "proc/sys/crypto/fips_enabled"
	BootedPath        = "run/ostree-booted"
	StagedPath        = "run/ostree/staged-deployment"
)

// A Root is a booted root as the running system sees it: its own folders are
// those of the booted deployment, and the physical root is at sysroot.
type Root struct {
	// Dir is what the running system has at /.
	Dir string
	// Sysroot is the physical root in Dir/sysroot.
	Sysroot *Sysroot
}

// NewRoot makes a root in dir with an empty sysroot. Commit and deploy to its
// Sysroot, then call [Root.Boot].
func NewRoot(dir string) (*Root, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	s, err := New(filepath.Join(dir, "sysroot"))
	if err != nil {
		return nil, err
	}
	r := &Root{Dir: dir, Sysroot: s}
	for name, target := range map[string]string{"ostree": "sysroot/ostree", "boot": "sysroot/boot"} {
		if err := os.Symlink(target, r.Path(name)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Path is a path below the root on the test's own file system.
func (r *Root) Path(name string) string { return filepath.Join(r.Dir, name) }

// WriteFile writes a file below the root, with the folders that it needs.
func (r *Root) WriteFile(name, content string) error {
	if err := os.MkdirAll(filepath.Dir(r.Path(name)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(r.Path(name), []byte(content), 0o644)
}

// A BootOptions says what the running system looks like.
type BootOptions struct {
	// MachineConfig is the encapsulated MachineConfig; no file where nil.
	MachineConfig *MachineConfig
	// Kernel is the running kernel's release; where empty it is the one of
	// the deployment's kernel image.
	Kernel string
	// CommandLine holds arguments that are in /proc/cmdline but not in the
	// boot entry.
	CommandLine []string
	// FIPS is what the running kernel says.
	FIPS bool
	// InsecureRegistries are registries ("127.0.0.1:5000") that
	// registries.conf allows to be read without TLS.
	InsecureRegistries []string
}

// Boot writes what the running system shows once the deployment has booted:
// the deployment's own files (but no filler), /proc, /run and the host's /etc.
// It may be called again, also for another deployment.
func (r *Root) Boot(d Deployment, opts BootOptions) error {
	for _, name := range []string{"usr", "etc", "proc", "run", "var"} {
		if err := os.RemoveAll(r.Path(name)); err != nil {
			return err
		}
	}
	if err := r.showDeployment(d); err != nil {
		return fmt.Errorf("showing the deployment's files: %w", err)
	}
	if err := r.writeKernelFiles(d, opts); err != nil {
		return err
	}
	if err := r.WriteFile(BootedPath, ""); err != nil {
		return err
	}
	if err := r.WriteFile(PolicyPath, `{"default":[{"type":"insecureAcceptAnything"}]}`+"\n"); err != nil {
		return err
	}
	if err := r.WriteFile(RegistriesPath, registriesConf(opts.InsecureRegistries)); err != nil {
		return err
	}
	if opts.MachineConfig == nil {
		return nil
	}
	text, err := opts.MachineConfig.JSON()
	if err != nil {
		return err
	}
	return r.WriteFile(MachineConfigPath, text)
}

func registriesConf(insecure []string) string {
	text := "unqualified-search-registries = []\nshort-name-mode = \"enforcing\"\n"
	for _, host := range insecure {
		text += fmt.Sprintf("\n[[registry]]\nlocation = %q\ninsecure = true\n", host)
	}
	return text
}

// writeKernelFiles writes what the running kernel says in /proc.
func (r *Root) writeKernelFiles(d Deployment, opts BootOptions) error {
	_, entry, err := d.BootEntry()
	if err != nil {
		return err
	}
	kernel := opts.Kernel
	if kernel == "" {
		if kernel, err = d.Kernel(); err != nil {
			return err
		}
	}
	words := append([]string{"BOOT_IMAGE=(hd0,gpt3)" + entry["linux"], entry["options"]}, opts.CommandLine...)
	fips := "0\n"
	if opts.FIPS {
		fips = "1\n"
	}
	for name, text := range map[string]string{
		CommandLinePath: strings.Join(words, " ") + "\n",
		OSReleasePath:   kernel + "\n",
		FIPSPath:        fips,
	} {
		if err := r.WriteFile(name, text); err != nil {
			return err
		}
	}
	return nil
}

// Kernel is the release of the kernel that the deployment boots.
func (d Deployment) Kernel() (string, error) {
	images, err := filepath.Glob(filepath.Join(d.Dir, "usr/lib/modules/*/vmlinuz"))
	if err != nil {
		return "", err
	}
	if len(images) != 1 {
		return "", fmt.Errorf("finding the kernel of %s: %d kernel images", filepath.Base(d.Dir), len(images))
	}
	return filepath.Base(filepath.Dir(images[0])), nil
}

// showDeployment copies the deployment's files to the root, so that a test can
// change what only the running system sees, and links /var to the stateroot's.
func (r *Root) showDeployment(d Deployment) error {
	for _, name := range []string{"usr", "etc"} {
		if err := copyTree(d.Dir, r.Dir, name); err != nil {
			return err
		}
	}
	for _, name := range []string{"bin", "lib", "home", "root"} {
		target, err := os.Readlink(filepath.Join(d.Dir, name))
		if err != nil {
			continue // not every tree has it
		}
		if err := os.Symlink(target, r.Path(name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return os.Symlink("sysroot/ostree/deploy/"+d.Stateroot+"/var", r.Path("var"))
}

func copyTree(from, to, name string) error {
	return filepath.WalkDir(filepath.Join(from, name), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case rel == FillerDir:
			return fs.SkipDir
		case e.IsDir():
			return os.MkdirAll(target, 0o755)
		case e.Type() == fs.ModeSymlink:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, info.Mode().Perm())
	})
}

// SetBootOptions replaces the options of the deployment's boot entry, all but
// ostree=, which stays.
func (d Deployment) SetBootOptions(arguments ...string) error {
	path, fields, err := d.BootEntry()
	if err != nil {
		return err
	}
	for arg := range strings.FieldsSeq(fields["options"]) {
		if strings.HasPrefix(arg, "ostree=") {
			arguments = append(slices.Clone(arguments), arg)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	changed := strings.Replace(string(text), "options "+fields["options"], "options "+strings.Join(arguments, " "), 1)
	return os.WriteFile(path, []byte(changed), 0o644)
}
