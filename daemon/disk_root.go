package daemon

import (
	"path"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// The files on the boot file system that decide about the first boot.
const (
	// ignitionStamp makes GRUB set $ignition_firstboot
	// (40_coreos-ignition.cfg of fedora-coreos-config).
	ignitionStamp = "/boot/ignition.firstboot"
	// rootUUIDStamp is written by the first boot, which fails where it is there
	// already (rdcore bind-boot of coreos-installer).
	rootUUIDStamp = "/boot/.root_uuid"
	// bakedConfig is the Ignition config that coreos-installer install writes.
	bakedConfig = "/boot/ignition/config.ign"
)

// rootFacts are what the first boot finds on a mounted root.
type rootFacts struct {
	// err says why nothing is known.
	err error
	// noEntry says why there is no default boot entry; options are its kernel
	// command line.
	noEntry string
	options string
	// stateroot is empty where there is no deployment; stateVar says whether
	// its folder var is there.
	stateroot string
	stateVar  verdict.Fact[bool]
	arch      string

	stamp, booted, baked verdict.Fact[bool]
	deployments          int
	fips                 verdict.Fact[bool]
}

func readRootFacts(root *hostfs.Root, res *Result) rootFacts {
	f := rootFacts{
		stamp: existsFact(root, ignitionStamp), booted: existsFact(root, rootUUIDStamp), baked: existsFact(root, bakedConfig),
		noEntry: "no deployment that would boot was found",
		fips:    verdict.Unknown[bool]("the MachineConfig is not known"),
	}
	f.arch, _ = res.Booted.Architecture.Get()
	if mc, ok := res.Target.MachineConfig.Get(); ok {
		f.fips = verdict.Known(mc.FIPS)
	}
	d := res.deployment
	if d == nil {
		return f
	}
	f.stateroot = d.Stateroot
	f.stateVar = existsFact(root, path.Join(d.Dir, "../../var"))
	f.deployments = countDeployments(root, path.Join(d.Dir, "../../.."))
	if d.Entry != nil {
		f.noEntry, f.options = "", d.Entry.Options
	}
	return f
}

// maxStateroots bounds the folders looked into for the count.
const maxStateroots = 64

// countDeployments counts those of all stateroots, as far as they can be read.
func countDeployments(root *hostfs.Root, dir string) int {
	n := 0
	stateroots, err := root.ReadDir(dir, maxStateroots)
	if err != nil {
		return 0
	}
	for _, s := range stateroots {
		list, err := root.ReadDir(path.Join(dir, s.Name(), "deploy"), maxStateroots)
		if err != nil {
			continue
		}
		for _, e := range list {
			if e.IsDir() {
				n++
			}
		}
	}
	return n
}
