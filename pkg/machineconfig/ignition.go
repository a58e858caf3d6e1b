package machineconfig

import (
	"fmt"
)

// maxForeign is how many entries of one Ignition section are named.
const maxForeign = 8

// foreignIgnition names everything in spec.config beyond the empty Ignition
// config that an encapsulated MachineConfig has. The empty one is only
// ignition.version, whatever the specification: as structs marshal, 2.x and 3.x
// spell it with different empty sections (systemd, storage, networkd), so what
// counts is whether any leaf has a value, known section or not.
func foreignIgnition(config *fields) ([]string, error) {
	ignition := config.object("ignition")
	ignition.text("version")
	if config.err != nil {
		return nil, config.err
	}
	if ignition.err != nil {
		return nil, ignition.err
	}
	var w foreignWalk
	for i, key := range config.n.keys {
		if key != "ignition" {
			w.walk(join("", key), &config.n.items[i])
			continue
		}
		for j, k := range ignition.n.keys {
			if k != "version" {
				w.walk(join("ignition", k), &ignition.n.items[j])
			}
		}
	}
	return w.found, nil
}

type foreignWalk struct{ found []string }

func (w *foreignWalk) walk(path string, n *node) {
	switch {
	case n.empty():
	case n.kind == object:
		for i, key := range n.keys {
			w.walk(join(path, key), &n.items[i])
		}
	case n.kind == list:
		w.list(path, n)
	default:
		// The value itself may be a secret (a password hash, file contents).
		w.found = append(w.found, path)
	}
}

func (w *foreignWalk) list(path string, n *node) {
	for i := range n.items {
		if i == maxForeign {
			w.found = append(w.found, fmt.Sprintf("%s: and %d more", path, len(n.items)-i))
			return
		}
		if name := entryName(&n.items[i]); name != "" {
			w.found = append(w.found, path+": "+shown(name))
		} else {
			w.found = append(w.found, index(path, i))
		}
	}
}

// entryName is what an entry of an Ignition list is called: files, directories
// and links have a path, units, users, groups, raid and luks a name, disks and
// filesystems a device.
func entryName(n *node) string {
	if n.kind != object {
		return ""
	}
	for _, key := range [...]string{"path", "name", "device"} {
		if i, ok := n.members[key]; ok && n.items[i].kind == text && n.items[i].text != "" {
			return n.items[i].text
		}
	}
	return ""
}
