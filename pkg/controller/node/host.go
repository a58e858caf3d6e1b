package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/machineconfig"
	"github.com/oneboot/oneboot/pkg/metrics"
	"github.com/oneboot/oneboot/pkg/ostree"
	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
)

const (
	bootIDPath  = "/proc/sys/kernel/random/boot_id"
	statPath    = "/proc/stat"
	cmdlinePath = "/proc/cmdline"
	// maxProc bounds a file of /proc, in bytes; /proc/stat has a line of some
	// kilobytes on hosts with many interrupts.
	maxProc = 1 << 20
	// maxCurrentConfig bounds a rendered MachineConfig, in bytes: etcd keeps
	// none that is larger than 1.5 MiB, and JSON escapes may double it.
	maxCurrentConfig = 8 << 20
)

// A host is what the node's own files say at one moment. What could not be read
// is empty, and why says so.
type host struct {
	state  metrics.RecordState
	record *record.Record
	// bootID and bootTime are of the running kernel; the zero time is not known.
	bootID   string
	bootTime time.Time
	// booted is the deployed commit that runs, base the one beneath packages that
	// rpm-ostree layered; origin is what its origin names.
	booted, base verdict.Checksum
	origin       string
	// configName and osImage are the name of the MachineConfig that the
	// machine-config-daemon last finished, and the image that it wants; empty
	// where the node has no such file.
	configName, osImage string
	// why lists what could not be read.
	why []error
}

// readHost reads the host below dir. It never fails as a whole.
func readHost(dir string) host {
	h := host{state: metrics.RecordUnreadable}
	root, err := hostfs.Open(dir)
	if err != nil {
		h.why = append(h.why, fmt.Errorf("opening the host's root: %w", err))
		return h
	}
	defer root.Close()
	for _, read := range []func(*hostfs.Root) error{h.readRecord, h.readBoot, h.readDeployment, h.readConfig} {
		if err := read(root); err != nil {
			h.why = append(h.why, err)
		}
	}
	return h
}

func (h *host) readRecord(root *hostfs.Root) error {
	raw, err := root.ReadFile(record.Path, record.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		h.state = metrics.RecordNone
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading record: %w", err)
	}
	h.record, err = record.Parse(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", record.Path, err)
	}
	h.state = metrics.RecordRead
	return nil
}

func (h *host) readBoot(root *hostfs.Root) error {
	id, err := root.ReadFile(bootIDPath, maxProc)
	if err != nil {
		return fmt.Errorf("reading the boot id: %w", err)
	}
	h.bootID = strings.TrimSpace(string(id))
	stat, err := root.ReadFile(statPath, maxProc)
	if err != nil {
		return fmt.Errorf("reading the boot time: %w", err)
	}
	h.bootTime, err = bootTime(stat)
	return err
}

// bootTime is the line btime of /proc/stat (proc_stat(5)): the boot in seconds
// since the epoch, by the clock as it goes now.
func bootTime(stat []byte) (time.Time, error) {
	for line := range strings.Lines(string(stat)) {
		if s, ok := strings.CutPrefix(line, "btime "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
			if err != nil || n <= 0 {
				break
			}
			return time.Unix(n, 0), nil
		}
	}
	return time.Time{}, fmt.Errorf("reading the boot time: %s has no line btime with a time", statPath)
}

func (h *host) readDeployment(root *hostfs.Root) error {
	cmdline, err := root.ReadFile(cmdlinePath, maxProc)
	if err != nil {
		return fmt.Errorf("reading the booted deployment: %w", err)
	}
	s, err := ostree.OpenSysroot(root)
	if errors.Is(err, ostree.ErrNotOSTree) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the booted deployment: %w", err)
	}
	b, err := s.Booted(string(cmdline))
	if err != nil {
		return fmt.Errorf("reading the booted deployment: %w", err)
	}
	h.booted = b.Checksum
	facts := s.Facts(b)
	if d, ok := facts.Booted.Deployment.Get(); ok {
		h.base = d.Base.Checksum
	}
	h.origin, _ = facts.Booted.OriginReference.Get()
	return nil
}

// readConfig reads what the machine-config-daemon keeps of the MachineConfig
// that it last finished, and of the layered image that takes the place of that
// one's (onDiskConfig in pkg/daemon/daemon.go of the machine-config-operator).
func (h *host) readConfig(root *hostfs.Root) error {
	raw, err := root.ReadFile(machineconfig.CurrentConfigPath, maxCurrentConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the current MachineConfig: %w", err)
	}
	var mc struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec struct {
			OSImageURL string `json:"osImageURL"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &mc); err != nil {
		return fmt.Errorf("%s: %w", machineconfig.CurrentConfigPath, err)
	}
	h.configName, h.osImage = mc.Metadata.Name, mc.Spec.OSImageURL
	image, err := root.ReadFile(machineconfig.CurrentImagePath, maxProc)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		h.osImage = ""
		return fmt.Errorf("reading the current image: %w", err)
	case len(bytes.TrimSpace(image)) > 0:
		h.osImage = string(bytes.TrimSpace(image))
	}
	return nil
}
