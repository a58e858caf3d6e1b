package fleet

import (
	"cmp"
	"encoding/json"
	"maps"
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

	streams []*bootimage.Stream
	// images are the versions of cloud images by their names.
	images map[string]string
	// elsewhere are the targets of clusters whose objects are not here.
	elsewhere map[string]*forecast.Target
	pools     map[string]string // pool to rendered MachineConfig
	configs   map[string]map[string]any
	// poolStreams are the pools' OS image streams.
	poolStreams map[string]string
	layered     map[string]bool
	// osImages are those of AgentServiceConfigs by OpenShift's minor version.
	osImages []osImage
	releases map[string]string // ClusterImageSet to release image
	release  string            // of ClusterVersion
}

// A Table says what is in disk images: by their own names (an AMI, an address) and
// by version, with or without "/ARCHITECTURE".
type Table map[string]forecast.Content

type osImage struct{ openShift, version, url, arch string }

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

// index reads the objects that others refer to.
func (f *Fleet) index() {
	f.pools, f.configs, f.layered, f.releases = map[string]string{}, map[string]map[string]any{}, map[string]bool{}, map[string]string{}
	f.poolStreams = map[string]string{}
	f.images, f.elsewhere, f.streams, f.osImages = map[string]string{}, map[string]*forecast.Target{}, nil, nil
	for _, d := range f.documents {
		name := text(d.body, "metadata", "name")
		switch text(d.body, "kind") {
		case "MachineConfigPool":
			f.poolStreams[name] = cmp.Or(text(d.body, "spec", "osImageStream", "name"), text(d.body, "status", "osImageStream", "name"))
			f.pools[name] = cmp.Or(text(d.body, "spec", "configuration", "name"), text(d.body, "status", "configuration", "name"))
		case "MachineConfig":
			f.configs[name] = d.body
		case "MachineOSConfig":
			f.layered[text(d.body, "spec", "machineConfigPool", "name")] = true
		case "ConfigMap":
			f.configMap(d)
		case "AgentServiceConfig":
			list, _ := at(d.body, "spec", "osImages").([]any)
			for _, i := range list {
				f.osImages = append(f.osImages, osImage{text(i, "openshiftVersion"), text(i, "version"), text(i, "url"), goArch(text(i, "cpuArchitecture"))})
			}
		case "ClusterImageSet":
			f.releases[name] = text(d.body, "spec", "releaseImage")
		case "ClusterVersion":
			f.release = cmp.Or(text(d.body, "status", "desired", "version"), text(d.body, "spec", "desiredUpdate", "version"))
		}
	}
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
	f.streams = append(f.streams, src.Streams...)
	for _, s := range src.Streams {
		for _, o := range s.Offers() {
			for _, image := range o.Images {
				f.images[image.Image], f.images[path.Base(image.Image)] = o.Version, o.Version
			}
		}
	}
}

// targets are what the pools want.
func (f *Fleet) targets() map[string]*forecast.Target {
	all := maps.Clone(f.elsewhere)
	for pool, name := range f.pools {
		mc, ok := f.configs[name]
		if !ok {
			continue
		}
		t := &forecast.Target{
			Pool: pool, OSImage: text(mc, "spec", "osImageURL"), ExtensionsImage: text(mc, "spec", "baseOSExtensionsContainerImage"),
			Release:         cmp.Or(text(mc, "metadata", "annotations", "machineconfiguration.openshift.io/release-image-version"), f.release),
			KernelArguments: texts(mc, "spec", "kernelArguments"), Extensions: texts(mc, "spec", "extensions"),
			KernelType: text(mc, "spec", "kernelType"), FIPS: yes(mc, "spec", "fips"), Layered: f.layered[pool], Stream: f.poolStreams[pool],
		}
		if t.OSImage != "" {
			all[pool] = t
		}
	}
	return all
}

// known fills in the version and the content of a disk image, by its name, then by
// its version.
func (f *Fleet) known(b forecast.Bootimage) forecast.Bootimage {
	if b.Version == "" {
		b.Version = f.versionOf(b)
	}
	for _, key := range []string{b.ID, b.Version + "/" + b.Architecture, b.Version} {
		if c, ok := f.Bootimages[key]; ok && key != "" && !strings.HasPrefix(key, "/") {
			b.Facts = &c
			break
		}
	}
	return b
}

// versionOf finds a disk image in the streams that were read: an AMI, an image's
// name, the address of a file.
func (f *Fleet) versionOf(b forecast.Bootimage) string {
	if b.ID == "" {
		return ""
	}
	return cmp.Or(f.images[b.ID], f.images[path.Base(b.ID)], versionIn(b.ID))
}

// versionIn is the version in a file's name, such as
// rhcos-9.6.20251212-1-live-iso.x86_64.iso; empty where there is none.
func versionIn(address string) string {
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
