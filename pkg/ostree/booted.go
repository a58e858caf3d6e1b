package ostree

import (
	"errors"
	"fmt"
	"strings"

	"github.com/oneboot/oneboot/pkg/ostree/format"
)

// A Booted is the deployment that the system runs.
type Booted struct {
	*Deployment
	// SoftRebooted is empty where the running root is the deployment that the
	// kernel command line leads to; else it says what is known of that one.
	SoftRebooted string
	// Confirmed says that the running root was compared by device and inode,
	// rather than the kernel command line believed.
	Confirmed bool
}

// Booted returns the deployment that the system runs, given the kernel command
// line. The root must be that of a system booted through ostree, with its
// /run. Where the root is the running host's, the command line alone is not
// believed: it is stale after a soft reboot, and its link may have been made
// anew since.
func (s *Sysroot) Booted(cmdline string) (*Booted, error) {
	state, err := s.runDict(runBooted)
	if err != nil {
		return nil, fmt.Errorf("finding booted deployment: %w", err)
	}
	if state == nil {
		return nil, fmt.Errorf("finding booted deployment: no %s: the system was not booted through ostree, or its /run is not to be seen here", runBooted)
	}
	link, err := commandLineLink(cmdline)
	if err != nil {
		return nil, fmt.Errorf("finding booted deployment: %w", err)
	}
	list, err := s.Deployments()
	if err != nil {
		return nil, fmt.Errorf("finding booted deployment: %w", err)
	}
	d, linkErr := s.follow(link)
	if linkErr == nil {
		d = withEntry(d, list)
		list = append(list, d)
	}
	if staged, err := s.Staged(); err == nil && staged != nil {
		// A soft reboot may lead into a staged deployment.
		list = append(list, staged)
	}
	running, live, err := s.runningRoot(state)
	if err != nil {
		return nil, fmt.Errorf("finding booted deployment: %w", err)
	}
	b, err := confirm(d, link, list, running, live)
	if err != nil {
		if linkErr != nil {
			err = fmt.Errorf("%w; kernel command line: %w", err, linkErr)
		}
		return nil, fmt.Errorf("finding booted deployment: %w", err)
	}
	return b, nil
}

// commandLineLink finds ostree= as ostree-prepare-root does.
func commandLineLink(cmdline string) (format.BootLink, error) {
	for _, arg := range strings.Fields(cmdline) {
		if strings.HasPrefix(arg, "androidboot.") {
			return format.BootLink{}, fmt.Errorf("kernel command line has %s: Android boot is not supported", arg)
		}
	}
	arg, ok := ostreeArgument(cmdline)
	if !ok {
		return format.BootLink{}, errors.New("kernel command line has no ostree= argument")
	}
	l, err := format.ParseBootLink(arg)
	if err != nil {
		return format.BootLink{}, fmt.Errorf("kernel command line: %w", err)
	}
	return l, nil
}

// withEntry returns the listed deployment that d is, with its boot entry, or d
// itself. The boot checksum stays that of the link.
func withEntry(d *Deployment, list []*Deployment) *Deployment {
	for _, o := range list {
		if o.same(d) {
			return o
		}
	}
	return d
}

type deviceInode struct{ dev, ino uint64 }

// runningRoot returns device and inode of the folder that backs the running
// root: as recorded at boot, else those of "/" itself, which a container that
// has the host's root mounted somewhere sees too.
func (s *Sysroot) runningRoot(state *format.Dict) (at deviceInode, live bool, err error) {
	live = s.root.Live()
	pair, ok, err := state.Uint64Pair(backingKey)
	if err != nil {
		return at, live, fmt.Errorf("reading %s: %w", runBooted, err)
	}
	if ok {
		return deviceInode{pair[0], pair[1]}, live, nil
	}
	dev, ino, err := s.root.DeviceInode("/")
	if err != nil {
		return at, live, err
	}
	return deviceInode{dev, ino}, live, nil
}

// confirm compares the deployment of the command line (nil where its link
// leads nowhere) with the running root. On a root that is not live the device
// numbers may be those of another system, so there they only count where they
// match.
func confirm(d *Deployment, link format.BootLink, list []*Deployment, running deviceInode, live bool) (*Booted, error) {
	at := func(o *Deployment) bool { return o.dev == running.dev && o.ino == running.ino }
	if d != nil && at(d) {
		return &Booted{Deployment: d, Confirmed: true}, nil
	}
	for _, o := range list {
		if !at(o) {
			continue
		}
		b := &Booted{Deployment: o, Confirmed: true}
		if d != nil {
			b.SoftRebooted = "the kernel command line names " + d.Name()
		} else {
			// The boot entries were written anew since the kernel started.
			// Deployments between which a soft reboot leads have the same boot
			// checksum, so that does not tell which one it was.
			b.SoftRebooted = "what the kernel booted is not known: " + link.Path() + " is gone"
		}
		return b, nil
	}
	if live {
		return nil, errors.New("the running root is none of the deployments, by device and inode")
	}
	if d == nil {
		return nil, errors.New("no deployment")
	}
	return &Booted{Deployment: d}, nil
}
