package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// The machine-config-operator's NetworkManager-clean-initrd-state.service
// (templates/common/_base/files/NetworkManager-clean-initrd-state.yaml) runs on
// every boot but the first, where the opt-in file exists. It takes a device
// away from a default profile that nm-initrd-generator made if the
// administrator has configured a profile for just that device.
const (
	nmOptInPath    = "/var/lib/mco/nm-clean-initrd-state"
	nmDevicesDir   = "/run/NetworkManager/devices"
	nmGeneratedDir = "/run/NetworkManager/system-connections"
	nmEtcDir       = "/etc/NetworkManager/system-connections"
	netClassDir    = "/sys/class/net"

	maxNetworkFiles = 4096
)

// networkStateFact says whether that service would take a device away.
// Anything that cannot be read is unknown: the network may be another one
// after the next boot.
func networkStateFact(root *hostfs.Root) verdict.Fact[verdict.NetworkState] {
	left, err := initrdLeftover(root)
	if err != nil {
		return verdict.Unknown[verdict.NetworkState]("reading network state: " + err.Error())
	}
	return verdict.Known(verdict.NetworkState{Leftover: left})
}

func initrdLeftover(root *hostfs.Root) (string, error) {
	for _, p := range []string{nmOptInPath, nmDevicesDir, nmGeneratedDir, nmEtcDir} {
		if ok, err := root.Exists(p); err != nil || !ok {
			return "", err
		}
	}
	generated, err := readProfiles(root, nmGeneratedDir)
	if err != nil {
		return "", err
	}
	configured, err := readProfiles(root, nmEtcDir)
	if err != nil {
		return "", err
	}
	devices, err := root.ReadDir(nmDevicesDir, maxNetworkFiles)
	if err != nil {
		return "", err
	}
	for _, d := range devices {
		file := path.Join(nmDevicesDir, d.Name())
		kf, err := readKeyFile(root, file)
		if err != nil {
			return "", err
		}
		uuid, _ := kf.Raw("device", "connection-uuid")
		if uuid == "" || !madeInInitrd(generated, uuid) {
			continue
		}
		name, err := interfaceName(root, d.Name())
		if err != nil {
			return "", err
		}
		for _, c := range configured {
			if c.iface == name && name != "" && c.autoconnect != "false" {
				return fmt.Sprintf("%s runs on the initrd's profile %s, %s is configured for it", name, uuid, c.file), nil
			}
		}
	}
	return "", nil
}

// A profile is what matters of a NetworkManager keyfile.
type profile struct {
	file, uuid, iface, autoconnect, origin string
}

// madeInInitrd: a default profile, for no device in particular, by
// nm-initrd-generator or by an unknown writer (the origin is recorded since
// NetworkManager 1.32.4).
func madeInInitrd(generated []profile, uuid string) bool {
	for _, p := range generated {
		if p.uuid == uuid && p.iface == "" && (p.origin == "" || p.origin == "nm-initrd-generator") {
			return true
		}
	}
	return false
}

func readProfiles(root *hostfs.Root, dir string) ([]profile, error) {
	entries, err := root.ReadDir(dir, maxNetworkFiles)
	if err != nil {
		return nil, err
	}
	var out []profile
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		file := path.Join(dir, e.Name())
		kf, err := readKeyFile(root, file)
		if err != nil {
			return nil, err
		}
		p := profile{file: file}
		p.uuid, _ = kf.Raw("connection", "uuid")
		p.iface, _ = kf.Raw("connection", "interface-name")
		p.autoconnect, _ = kf.Raw("connection", "autoconnect")
		p.origin, _ = kf.Raw("user", "org.freedesktop.NetworkManager.origin")
		out = append(out, p)
	}
	return out, nil
}

func readKeyFile(root *hostfs.Root, file string) (*format.KeyFile, error) {
	raw, err := root.ReadFile(file, maxSmallFile)
	if err != nil {
		return nil, err
	}
	kf, err := format.ParseKeyFile(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return kf, nil
}

// interfaceName finds the interface with this index; empty where it is gone.
func interfaceName(root *hostfs.Root, index string) (string, error) {
	ifs, err := root.ReadDir(netClassDir, maxNetworkFiles)
	if err != nil {
		return "", err
	}
	for _, i := range ifs {
		if i.Type().IsRegular() {
			continue // bonding_masters
		}
		raw, err := root.ReadFile(path.Join(netClassDir, i.Name(), "ifindex"), maxSmallFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone meanwhile
		}
		if err != nil {
			return "", err
		}
		if strings.TrimSpace(string(raw)) == index {
			return i.Name(), nil
		}
	}
	return "", nil
}
