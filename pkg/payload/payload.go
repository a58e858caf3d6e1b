// Package payload says what the images of one release say together: what can be
// layered on the OS image, by the names of extensions, and whether the
// driver-toolkit is of its kernel.
package payload

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/machineconfig"
	"github.com/oneboot/oneboot/pkg/osimage"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// ToolkitComponent is the driver-toolkit's name in a release image.
const ToolkitComponent = "driver-toolkit"

// ExtensionsComponents are the names that the extensions images have in a release
// image, in the order of [osimage.OSComponents].
func ExtensionsComponents() []string {
	var all []string
	for _, name := range osimage.OSComponents() {
		all = append(all, ExtensionsComponent(name))
	}
	return all
}

// ExtensionsComponent is the name of the extensions image beside that of the OS image.
func ExtensionsComponent(osComponent string) string { return osComponent + "-extensions" }

// Extensions are what an image offers, by the names of extensions.
type Extensions struct {
	// Image is where they were read; empty where nowhere.
	Image string `json:"image,omitempty"`
	// Shipped are the known extensions whose packages are on offer, with them;
	// null where that is not known.
	Shipped map[string][]verdict.Package `json:"shipped"`
	// Missing are the known extensions that are not shipped; null where that is
	// not known.
	Missing []string `json:"missing"`
	// Packages are all packages on offer; null where they were not read.
	Packages []verdict.Package `json:"packages"`
	Unknown  string            `json:"unknown,omitempty"`
}

// ExtensionsOf sorts what an image offers by the names of extensions; its Offer must
// not be nil.
func ExtensionsOf(i *osimage.Inspection) Extensions {
	o := i.Offer
	v := Extensions{Image: i.Image, Packages: o.Packages, Unknown: o.Unknown}
	if o.Packages == nil && o.Names == nil {
		return v
	}
	v.Shipped, v.Missing = map[string][]verdict.Package{}, []string{}
	for _, name := range machineconfig.Extensions() {
		packages, ok := shipped(name, o)
		if ok {
			v.Shipped[name] = packages
		} else {
			v.Missing = append(v.Missing, name)
		}
	}
	for _, name := range o.Names {
		if _, ok := v.Shipped[name]; !ok {
			v.Shipped[name] = []verdict.Package{}
			v.Missing = slices.DeleteFunc(v.Missing, func(m string) bool { return m == name })
		}
	}
	return v
}

// shipped are the packages of an extension, if all of one of its sets are on offer.
func shipped(name string, o *osimage.Offer) ([]verdict.Package, bool) {
	sets, _ := machineconfig.PackageSets(name)
	for _, set := range sets {
		var found []verdict.Package
		for _, want := range set.Packages {
			i := slices.IndexFunc(o.Packages, func(p verdict.Package) bool { return p.Name == want })
			if i < 0 {
				break
			}
			found = append(found, o.Packages[i])
		}
		if len(found) == len(set.Packages) {
			return found, true
		}
	}
	return nil, false
}

// A DriverToolkit is that of a release beside its OS image.
type DriverToolkit struct {
	Image string `json:"image"`
	// Kernel is the release of the kernel that its headers are of.
	Kernel string `json:"kernel,omitempty"`
	// SameKernel is same, differs or unknown, beside the OS image's.
	SameKernel verdict.Outcome `json:"sameKernel"`
	Unknown    string          `json:"unknown,omitempty"`
}

const labelToolkitKernel = "kernel-version"

// ToolkitKernel is the kernel that a driver-toolkit is of, by the label of its build.
func ToolkitKernel(ctx context.Context, img *osimage.Image) (string, error) {
	c, err := img.Config(ctx)
	if err != nil {
		return "", err
	}
	kernel := c.Labels[labelToolkitKernel]
	if kernel == "" {
		return "", errors.New("it has no label " + labelToolkitKernel)
	}
	return kernel, nil
}

// CompareToolkit puts the driver-toolkit's kernel, or why it is not known, beside
// the OS image's, which is empty where it is not known.
func CompareToolkit(image, kernel string, err error, osKernel string) *DriverToolkit {
	v := &DriverToolkit{Image: image, Kernel: kernel, SameKernel: verdict.OutcomeUnknown}
	switch {
	case err != nil:
		v.Unknown = err.Error()
	case osKernel == "":
		v.Unknown = "the OS image's kernel is not known"
	case sameKernel(osKernel, kernel):
		v.SameKernel = verdict.OutcomeSame
	default:
		v.SameKernel = verdict.OutcomeDiffers
	}
	return v
}

// sameKernel compares the forms of a release: with an epoch or an architecture, or
// without.
func sameKernel(a, b string) bool {
	strip := func(s string) string {
		s = s[strings.IndexByte(s, ':')+1:]
		for _, arch := range []string{".x86_64", ".aarch64", ".ppc64le", ".s390x"} {
			s = strings.TrimSuffix(s, arch)
		}
		return s
	}
	return a != "" && strip(a) == strip(b)
}
