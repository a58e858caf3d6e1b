package bootimage_test

import (
	"fmt"
	"os"

	"github.com/oneboot/oneboot/pkg/bootimage"
)

// An installer for oVirt boots the image of OpenStack.
func ExamplePlatformOf() {
	for _, name := range []string{"rhev", "vSphere", "baremetal", "none"} {
		p := bootimage.PlatformOf(name)
		fmt.Printf("%s: OpenShift's %s, %s in a stream\n", name, p.Name, p.Artifact)
	}
	// Output:
	// rhev: OpenShift's ovirt, openstack in a stream
	// vSphere: OpenShift's vsphere, vmware in a stream
	// baremetal: OpenShift's baremetal, metal in a stream
	// none: OpenShift's none, metal in a stream
}

func ExampleArchitecture() {
	fmt.Println(bootimage.Architecture("amd64"), bootimage.Architecture("aarch64"), bootimage.GoArchitecture("x86_64"))
	// Output: x86_64 aarch64 amd64
}

// The parts of a network boot come as one set.
func ExampleStream_Select() {
	b, err := os.ReadFile("testdata/rhcos.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := bootimage.ParseStream(b)
	if err != nil {
		fmt.Println(err)
		return
	}
	set, err := s.Select(bootimage.Query{Architecture: "amd64", Platform: "baremetal", Format: "pxe"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range set.Parts {
		fmt.Println(p.Role, p.Name)
	}
	// Output:
	// kernel rhcos-9.8.20260428-0-live-kernel.x86_64
	// initramfs rhcos-9.8.20260428-0-live-initramfs.x86_64.img
	// rootfs rhcos-9.8.20260428-0-live-rootfs.x86_64.img
}
