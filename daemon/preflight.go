package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/ostree"
)

// noHost says that a root has no sysroot.
func noHost(root string) error {
	return fmt.Errorf("this is no CoreOS host: no ostree repository below %s", root)
}

// CheckHost returns an error where there is no ostree host below the root, on
// which nothing has any business to be written.
func (o Options) CheckHost() error {
	root, err := hostfs.Open(o.Root)
	if err != nil {
		return err
	}
	defer root.Close()
	if _, err := ostree.OpenSysroot(root); errors.Is(err, ostree.ErrNotOSTree) {
		return noHost(o.Root)
	}
	return nil
}

// CheckFiles returns an error where a file that an option names cannot be read,
// most often a name mistyped. What is in it is another matter, and the
// verdict's.
func (o Options) CheckFiles() error {
	for _, f := range []struct{ flag, name string }{
		{"--machineconfig", o.MachineConfigFile}, {"--status-json", o.StatusFile}, {"--authfile", o.AuthFile},
	} {
		if f.name == "" || f.name == stdinName && f.flag == "--status-json" {
			continue
		}
		fi, err := os.Stat(f.name)
		if err == nil && fi.IsDir() {
			err = unix.EISDIR
		}
		if err == nil {
			// Not opened: it may be a pipe, which can be read but once.
			err = unix.Access(f.name, unix.R_OK)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", f.flag, f.name, bare(err))
		}
	}
	if local := localTarget(o.Target); local != "" {
		if _, err := os.Stat(local); err != nil {
			return fmt.Errorf("--target %s: %w", o.Target, bare(err))
		}
	}
	return nil
}

// localTarget is the folder or file of a target that lies on this machine, or
// empty where it does not.
func localTarget(target string) string {
	transport, rest, _ := strings.Cut(target, ":")
	switch transport {
	case "dir":
		return rest
	case "oci", "oci-archive":
		// A tag may follow.
		name, _, _ := strings.Cut(rest, ":")
		return name
	}
	return ""
}

// bare is an error without the path that its caller names anyway.
func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
