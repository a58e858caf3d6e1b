package osimage

import (
	"strings"

	"github.com/oneboot/oneboot/pkg/ostree/format"
)

// nameFacts set the names and versions of the OS.
func (i *Inspection) nameFacts(c format.ImageConfig) {
	version := c.Version()
	if v, ok := machineOS(c.Labels[labelVersions]); ok && version == "" {
		version = v
	}
	i.Facts[FactOSVersion] = labelled(version, "none of the labels org.opencontainers.image.version, version and "+labelVersions)
	name := c.Labels[labelOSName]
	if v, ok := machineOS(c.Labels[labelDisplayNames]); ok {
		name = v
	}
	i.Facts[FactOSName] = labelled(name, "neither of the labels "+labelDisplayNames+" and "+labelOSName)
	i.Facts[FactRHELVersion] = i.rhelVersion()
}

func labelled(value, places string) Fact {
	if value == "" {
		return Fact{Unknown: "the image has " + places}
	}
	return Fact{Value: value, Source: SourceLabel}
}

// machineOS is the value of machine-os in a list such as "machine-os=A,b=C".
func machineOS(list string) (string, bool) {
	for entry := range strings.SplitSeq(list, ",") {
		if v, ok := strings.CutPrefix(strings.TrimSpace(entry), "machine-os="); ok && v != "" {
			return v, true
		}
	}
	return "", false
}

// rhelVersion is the version of the release package. Without a list it is what the
// kernel's release says: .el9_6 is of RHEL 9.6.
func (i *Inspection) rhelVersion() Fact {
	for _, p := range i.Packages {
		switch p.Name {
		case "redhat-release", "centos-stream-release", "fedora-release-common":
			version, _, _ := strings.Cut(p.EVRA[strings.IndexByte(p.EVRA, ':')+1:], "-")
			return Fact{Value: version, Source: i.PackagesSource}
		}
	}
	kernel := i.Facts[FactKernel]
	if _, dist, ok := strings.Cut(kernel.Value, ".el"); ok {
		dist, _, _ = strings.Cut(dist, ".")
		if major, minor, ok := strings.Cut(dist, "_"); ok && digits(major) && digits(minor) {
			return Fact{Value: major + "." + minor, Source: SourcePackages}
		}
	}
	if i.Packages != nil {
		return Fact{Unknown: "none of the packages redhat-release, centos-stream-release and fedora-release-common is installed"}
	}
	return Fact{Unknown: i.PackagesUnknown}
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
