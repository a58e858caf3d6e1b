package ostree

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// architecture reads the host's architecture, in Go's naming, from the ELF
// header of one of the deployment's own programs.
func (s *Sysroot) architecture(d *Deployment) (string, error) {
	var why []string
	for _, name := range []string{"usr/bin/kubelet", "usr/lib/systemd/systemd", "usr/bin/bash"} {
		arch, err := s.elfArchitecture(path.Join(d.Dir, name))
		if err == nil {
			return arch, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			why = append(why, err.Error())
		}
	}
	if len(why) == 0 {
		return "", fmt.Errorf("reading architecture: %s has neither kubelet nor systemd nor bash", d.Dir)
	}
	return "", errors.New(strings.Join(why, "; "))
}

func (s *Sysroot) elfArchitecture(name string) (string, error) {
	f, err := s.root.OpenFile(name)
	if err != nil {
		return "", fmt.Errorf("reading architecture: %w", err)
	}
	defer f.Close()
	var head [20]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return "", fmt.Errorf("reading architecture: %s is not an ELF file", name)
	}
	arch, err := elfMachine(head)
	if err != nil {
		return "", fmt.Errorf("reading architecture: %s: %w", name, err)
	}
	return arch, nil
}

// elfMachine decodes class, byte order and e_machine of an ELF header (ELF
// generic ABI, figure 1-4).
func elfMachine(head [20]byte) (string, error) {
	if string(head[:4]) != "\x7fELF" {
		return "", errors.New("not an ELF file")
	}
	const class64, little, big = 2, 1, 2
	order := binary.ByteOrder(binary.LittleEndian)
	if head[5] == big {
		order = binary.BigEndian
	} else if head[5] != little {
		return "", errors.New("ELF file of unknown byte order")
	}
	type machine struct {
		class, data byte
		machine     uint16
	}
	switch m := (machine{head[4], head[5], order.Uint16(head[18:])}); m {
	case machine{class64, little, 62}:
		return "amd64", nil
	case machine{class64, little, 183}:
		return "arm64", nil
	case machine{class64, little, 21}:
		return "ppc64le", nil
	case machine{class64, big, 22}:
		return "s390x", nil
	case machine{class64, little, 243}:
		return "riscv64", nil
	default:
		return "", fmt.Errorf("ELF machine %d is not known", m.machine)
	}
}
