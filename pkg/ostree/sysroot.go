package ostree

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// Transient state, from libostree's ostree-sysroot-private.h and otcore.h.
const (
	runBooted         = "/run/ostree-booted"
	runNextrootBooted = "/run/ostree/nextroot-booted"
	runNextroot       = "/run/nextroot"
	runStaged         = "/run/ostree/staged-deployment"
	runState          = "/run/ostree/deployment-state"

	backingKey = "backing-root-device-inode"

	maxRunFile = 1 << 20
)

// ErrNotOSTree is wrapped by errors about a root that has no ostree sysroot.
var ErrNotOSTree = errors.New("not an ostree system: neither /ostree/repo nor /sysroot/ostree/repo is there")

var errNotRegular = hostfs.ErrNotRegular

// A Sysroot is an ostree system: the root of a booted one, or the physical
// root of a disk.
type Sysroot struct {
	root *hostfs.Root
	// dir is the folder ostree, bootDir the folder boot, both below the root.
	dir, bootDir string
	repo         *Repo
}

// A Deployment is an ostree deployment.
type Deployment struct {
	Stateroot string
	Checksum  verdict.Checksum
	Serial    int
	// BootCsum names kernel and initramfs.
	BootCsum string
	// Index numbers the deployments with the same BootCsum; -1 for a staged
	// one.
	Index int
	// Dir is the deployment's folder, a path below the root.
	Dir string
	// Entry is the boot loader entry, nil for a staged deployment and for one
	// that has none any more.
	Entry *BootEntry
	// Staged says that the deployment becomes the default at shutdown.
	Staged bool

	dev, ino uint64
}

// Name is the deployment's name as `ostree admin status` prints it.
func (d *Deployment) Name() string {
	return fmt.Sprintf("%s %s.%d", d.Stateroot, d.Checksum, d.Serial)
}

func (d *Deployment) same(o *Deployment) bool {
	return d.Stateroot == o.Stateroot && d.Checksum == o.Checksum && d.Serial == o.Serial
}

// OpenSysroot finds the ostree folder and the boot folder below the root. On a
// booted root /ostree is a link to sysroot/ostree; on the physical root of a
// disk it is the folder itself. An error wraps [ErrNotOSTree] where there is
// none.
func OpenSysroot(root *hostfs.Root) (*Sysroot, error) {
	s := &Sysroot{root: root}
	for _, dir := range []string{"/ostree", "/sysroot/ostree"} {
		ok, err := root.Exists(path.Join(dir, "repo"))
		if err != nil {
			return nil, fmt.Errorf("opening sysroot: %w", err)
		}
		if ok {
			s.dir = dir
			break
		}
	}
	if s.dir == "" {
		return nil, fmt.Errorf("opening sysroot: %w", ErrNotOSTree)
	}
	if err := s.checkOnlyOne(); err != nil {
		return nil, fmt.Errorf("opening sysroot: %w", err)
	}
	s.bootDir = "/boot"
	for _, dir := range []string{"/boot", "/sysroot/boot"} {
		_, err := root.Readlink(path.Join(dir, "loader"))
		if err == nil {
			s.bootDir = dir
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("opening sysroot: looking for boot entries: %w", err)
		}
	}
	repo, err := OpenRepo(root, path.Join(s.dir, "repo"))
	if err != nil {
		return nil, fmt.Errorf("opening sysroot: %w", err)
	}
	s.repo = repo
	return s, nil
}

// checkOnlyOne refuses a root that has two different ostree folders.
func (s *Sysroot) checkOnlyOne() error {
	if s.dir != "/ostree" {
		return nil
	}
	ok, err := s.root.Exists("/sysroot/ostree/repo")
	if err != nil || !ok {
		return err
	}
	dev, ino, err := s.root.DeviceInode("/ostree/repo")
	if err != nil {
		return err
	}
	dev2, ino2, err := s.root.DeviceInode("/sysroot/ostree/repo")
	if err != nil {
		return err
	}
	if dev != dev2 || ino != ino2 {
		return errors.New("/ostree/repo and /sysroot/ostree/repo are two repositories")
	}
	return nil
}

// Repo returns the system's repository.
func (s *Sysroot) Repo() *Repo { return s.repo }

// Deployments returns the deployments that have a boot entry, in libostree's
// order: the default first. A staged deployment is not among them; see
// [Sysroot.Staged].
func (s *Sysroot) Deployments() ([]*Deployment, error) {
	entries, err := s.readBootEntries()
	if err != nil {
		return nil, fmt.Errorf("listing deployments: %w", err)
	}
	var list []*Deployment
	for i := range entries {
		l, err := entries[i].link()
		if err != nil {
			return nil, fmt.Errorf("listing deployments: %w", err)
		}
		d, err := s.follow(l)
		if err != nil {
			return nil, fmt.Errorf("listing deployments: boot entry %s: %w", entries[i].File, err)
		}
		d.Entry = &entries[i]
		list = append(list, d)
	}
	return list, nil
}

// follow finds the deployment behind a boot link.
func (s *Sysroot) follow(l format.BootLink) (*Deployment, error) {
	// l.Path is /ostree/...; the folder may be elsewhere below the root.
	link := path.Join(path.Dir(s.dir), l.Path())
	target, err := s.root.Readlink(link)
	if err != nil {
		return nil, fmt.Errorf("following boot link: %w", err)
	}
	c, serial, err := format.ParseDeploymentName(path.Base(target))
	if err != nil {
		return nil, fmt.Errorf("following boot link %s: %w", link, err)
	}
	d, err := s.newDeployment(l.Stateroot, c, serial)
	if err != nil {
		return nil, fmt.Errorf("following boot link %s: %w", link, err)
	}
	dev, ino, err := s.root.DeviceInode(link)
	if err != nil {
		return nil, fmt.Errorf("following boot link: %w", err)
	}
	if dev != d.dev || ino != d.ino {
		return nil, fmt.Errorf("following boot link %s: it leads to %s, not to %s", link, target, d.Dir)
	}
	d.BootCsum, d.Index = l.BootCsum, l.Index
	return d, nil
}

func (s *Sysroot) newDeployment(stateroot string, c verdict.Checksum, serial int) (*Deployment, error) {
	d := &Deployment{Stateroot: stateroot, Checksum: c, Serial: serial, Index: -1}
	d.Dir = path.Join(s.dir, "deploy", stateroot, "deploy", fmt.Sprintf("%s.%d", c, serial))
	fi, err := s.root.Stat(d.Dir)
	if err != nil {
		return nil, fmt.Errorf("reading deployment: %w", err)
	}
	if !fi.IsDir() {
		return nil, fmt.Errorf("reading deployment: %s is not a folder", d.Dir)
	}
	if d.dev, d.ino, err = s.root.DeviceInode(d.Dir); err != nil {
		return nil, fmt.Errorf("reading deployment: %w", err)
	}
	return d, nil
}

// Default returns the deployment that boots next unless one is staged.
func (s *Sysroot) Default() (*Deployment, error) {
	list, err := s.Deployments()
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("listing deployments: no boot entry in %s/loader/entries", s.bootDir)
	}
	return list[0], nil
}

// Staged returns the deployment that becomes the default at shutdown, nil
// where there is none.
func (s *Sysroot) Staged() (*Deployment, error) {
	run, err := s.runDict(runStaged)
	if err != nil || run == nil {
		return nil, err
	}
	target, ok, err := run.Dict("target")
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", runStaged, err)
	}
	if !ok {
		return nil, fmt.Errorf("reading %s: no key target", runStaged)
	}
	var text [3]string
	for i, key := range []string{"name", "osname", "bootcsum"} {
		if text[i], ok, err = target.String(key); err != nil {
			return nil, fmt.Errorf("reading %s: target: %w", runStaged, err)
		}
		if !ok {
			return nil, fmt.Errorf("reading %s: target has no key %s", runStaged, key)
		}
	}
	c, serial, err := format.ParseDeploymentName(text[0])
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", runStaged, err)
	}
	if !refName(text[1]) {
		return nil, fmt.Errorf("reading %s: osname %q is not a name", runStaged, text[1])
	}
	d, err := s.newDeployment(text[1], c, serial)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", runStaged, err)
	}
	d.BootCsum, d.Staged = text[2], true
	return d, nil
}

// runDict reads a file of type a{sv} below /run; nil where there is none.
func (s *Sysroot) runDict(name string) (*format.Dict, error) {
	b, err := s.root.ReadFile(name, maxRunFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading transient state: %w", err)
	}
	d, err := format.ParseDict(b)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return d, nil
}

// Origin reads a deployment's origin file. An error wraps [fs.ErrNotExist]
// where it has none.
func (s *Sysroot) Origin(d *Deployment) (*format.Origin, error) {
	name := d.Dir + ".origin"
	b, err := s.root.ReadFile(name, format.MaxKeyFileSize)
	if err != nil {
		return nil, fmt.Errorf("reading origin: %w", err)
	}
	o, err := format.ParseOrigin(b)
	if err != nil {
		return nil, fmt.Errorf("reading origin %s: %w", name, err)
	}
	return o, nil
}
