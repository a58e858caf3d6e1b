package bootimage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/stream-metadata-go/arch"
)

// A Platform says which part of a stream belongs to a platform of OpenShift, as
// openshift/installer chooses it (pkg/asset/rhcos/image.go).
type Platform struct {
	// Name is OpenShift's name.
	Name string
	// Aliases are other names that are in use for it.
	Aliases []string
	// Artifact is the key below `artifacts` in a stream: files to download.
	Artifact string
	// Cloud is the key below `images` in a stream of what the cloud already
	// has; "azure" means `rhel-coreos-extensions`. Empty where there is none.
	Cloud string
	// Note is what a person should know who chooses it; may be empty.
	Note string
}

const (
	noteMetal     = "installers since OpenShift 4.10 take the image from the release itself (machine-os-images); iso, pxe and raw are for installations by hand"
	noteOther     = "OpenShift has no image for it: metal is for real machines; on a cloud or hypervisor choose its own platform"
	noteOpenStack = "it boots the image of OpenStack"
)

// Platforms returns all platforms, sorted by name.
func Platforms() []Platform {
	return []Platform{
		{Name: "aliyun", Aliases: []string{"alibabacloud"}, Artifact: "aliyun", Cloud: "aliyun"},
		{Name: "aws", Artifact: "aws", Cloud: "aws"},
		{Name: "azure", Artifact: "azure", Cloud: "azure"},
		{Name: "azurestack", Aliases: []string{"azurestackcloud", "azurestackhub"}, Artifact: "azurestack"},
		{Name: "baremetal", Aliases: []string{"metal", "agent"}, Artifact: "metal", Note: noteMetal},
		{Name: "external", Artifact: "metal", Note: noteOther},
		{Name: "gcp", Artifact: "gcp", Cloud: "gcp"},
		{Name: "ibmcloud", Artifact: "ibmcloud", Cloud: "ibmcloud"},
		{Name: "kubevirt", Artifact: "kubevirt", Cloud: "kubevirt"},
		{Name: "libvirt", Aliases: []string{"qemu", "kvm"}, Artifact: "qemu"},
		{Name: "none", Artifact: "metal", Note: noteOther},
		{Name: "nutanix", Artifact: "nutanix"},
		{Name: "openstack", Artifact: "openstack"},
		{Name: "ovirt", Aliases: []string{"rhv", "rhev"}, Artifact: "openstack", Note: noteOpenStack},
		{Name: "powervc", Artifact: "openstack", Note: noteOpenStack},
		{Name: "powervs", Artifact: "powervs", Cloud: "powervs"},
		{Name: "vsphere", Aliases: []string{"vmware"}, Artifact: "vmware"},
	}
}

// PlatformOf finds a platform by OpenShift's name, in any letter case, by an
// alias, or by the name that it has in a stream. A name that is none of these
// is taken for one in a stream: streams grow.
func PlatformOf(name string) Platform {
	name = strings.ToLower(name)
	for _, p := range Platforms() {
		if p.Name == name || slices.Contains(p.Aliases, name) {
			return p
		}
	}
	return Platform{Name: name, Artifact: name, Cloud: name}
}

// Architecture returns the name that an architecture has in a stream, which is
// RPM's (x86_64, aarch64), for that or Go's (amd64, arm64).
func Architecture(name string) string { return arch.RpmArch(strings.ToLower(name)) }

// GoArchitecture returns Go's name of an architecture, which container images
// have, for that or RPM's.
func GoArchitecture(name string) string { return arch.GoArch(strings.ToLower(name)) }

// lacking words an error about a name that is not there.
func lacking(what, name string, there []string) error {
	list := "none at all"
	if len(there) > 0 {
		list = strings.Join(there, ", ")
	}
	return fmt.Errorf("there is no %s %.80q here: there is %s", what, name, list)
}
