package fleet

import (
	"cmp"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/bootimage"
	"github.com/oneboot/oneboot/pkg/forecast"
)

// A Fleet is the objects that were read. The zero Fleet is empty.
type Fleet struct {
	documents []document
	problems  []Problem
	passed    int
	// Bootimages are the contents of disk images by version and architecture ("" for
	// any), and by their own names.
	Bootimages Table

	// images are cloud images by their names.
	images map[string]cloudImage
	// elsewhere are the targets of clusters whose objects are not here.
	elsewhere map[string]*forecast.Target
	pools     map[string]document
	configs   map[string]document
	layered   map[string]bool
	// twofold are pools, MachineConfigs and image sets that stand there twice and
	// differ, by kind and name; severalClusters says that the objects are of more
	// than one cluster.
	twofold         map[string]bool
	severalClusters bool
	// osImages are those of AgentServiceConfigs by OpenShift's minor version.
	osImages map[string][]osImage
	releases map[string]string // ClusterImageSet to release image
	release  string            // of ClusterVersion
	// clusters are those that an installer makes, by name.
	clusters map[string]*cluster
	// environments are the ConfigMaps that set up assisted-service.
	environments []string
	// configMaps are all, by namespace and name.
	configMaps map[string]document
	// metal are the disk images of bare metal in the release's machine-os-images.
	metalImages []bootimage.Offer
}

// A cloudImage is one of a stream.
type cloudImage struct{ version, arch string }

// A Table says what is in disk images: by their own names (an AMI, an address) and
// by version, with or without "/ARCHITECTURE".
type Table map[string]forecast.Content

type osImage struct{ version, url, arch string }

// matters reports whether a kind says something of new nodes.
func matters(kind string) bool {
	_, found := slices.BinarySearch(Kinds(), kind)
	return found
}

// Kinds are the kinds that matter.
func Kinds() []string {
	return []string{"AgentClusterInstall", "AgentServiceConfig", "BareMetalHost", "ClusterImageSet", "ClusterInstance", "ClusterVersion", "ConfigMap",
		"ControlPlaneMachineSet", "InfraEnv", "MachineConfig", "MachineConfigPool", "MachineOSConfig", "MachineSet", "NodePool", "SiteConfig"}
}

// Problems are what could not be read.
func (f *Fleet) Problems() []Problem { return f.problems }

// Passed is how many objects do not matter.
func (f *Fleet) Passed() int { return f.passed }

// Sources are the sources of new nodes, sorted, with the targets of their pools by
// name.
func (f *Fleet) Sources() ([]forecast.Source, map[string]*forecast.Target) {
	f.index()
	var all []forecast.Source
	for _, d := range f.documents {
		s, ok := f.source(d)
		if !ok {
			continue
		}
		s.Kind, s.Namespace, s.Name, s.File = text(d.body, "kind"), text(d.body, "metadata", "namespace"), text(d.body, "metadata", "name"), d.file
		s.Bootimage = f.known(s.Bootimage)
		all = append(all, s)
	}
	slices.SortStableFunc(all, func(a, b forecast.Source) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all, f.targets()
}

func (f *Fleet) configMap(d document) {
	if text(d.body, "metadata", "name") != bootimage.ConfigMapName {
		return
	}
	if text(d.body, "data", "stream") == "" && text(d.body, "data", "streams") == "" {
		return
	}
	b, err := json.Marshal(d.body)
	if err != nil {
		f.problem(d.file, d.line, err)
		return
	}
	src, err := bootimage.Parse(b)
	if err != nil {
		f.problem(d.file, d.line, err)
		return
	}
	for _, s := range src.Streams {
		for _, o := range s.Offers() {
			for _, image := range o.Images {
				f.images[image.Image] = cloudImage{o.Version, goArch(o.Architecture)}
			}
			// Those of RHEL 9 wherever there are such: cluster-baremetal-operator sets
			// no COREOS_VERSION.
			if o.Platform == "metal" && (s.Name == "rhel-9" || len(src.Streams) == 1) {
				f.metalImages = append(f.metalImages, o)
			}
		}
	}
}

// known fills in the version and the content of a disk image, by its name, then by
// its version. A version that only a name tells of says nothing of the content.
func (f *Fleet) known(b forecast.Bootimage) forecast.Bootimage {
	if b.Version == "" {
		i := f.images[b.ID]
		b.Version, b.Architecture = i.version, cmp.Or(b.Architecture, i.arch)
	}
	keys := []string{b.ID, b.Version + "/" + b.Architecture, b.Version}
	if b.Version == "" {
		b.Version = cmp.Or(f.images[path.Base(b.ID)].version, versionIn(b.ID))
		keys = keys[:1]
	}
	for _, key := range keys {
		if c, ok := f.Bootimages[key]; ok && key != "" && !strings.HasPrefix(key, "/") {
			b.Facts = &c
			break
		}
	}
	return b
}

// versionIn is the version in a file's name, such as
// rhcos-9.6.20251212-1-live-iso.x86_64.iso; empty where there is none.
func versionIn(address string) string {
	if address == "" {
		return ""
	}
	name := path.Base(address)
	for _, part := range strings.FieldsFunc(address, func(r rune) bool { return r == '/' || r == '?' }) {
		if isVersion(part) {
			return part
		}
	}
	fields := strings.Split(name, "-")
	for i := 0; i+1 < len(fields); i++ {
		number, _, _ := strings.Cut(fields[i+1], ".")
		if v := fields[i] + "-" + number; isVersion(v) {
			return v
		}
	}
	return ""
}

func goArch(name string) string {
	if name == "" {
		return ""
	}
	return bootimage.GoArchitecture(name)
}
