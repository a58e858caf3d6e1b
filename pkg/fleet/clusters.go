package fleet

import (
	"bytes"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/oneboot/oneboot/pkg/forecast"
)

// A cluster is one that an installer makes and whose own objects are elsewhere.
type cluster struct {
	// images are the release images that its objects name: one, or they disagree.
	images []string
	// mainframe says that one of its nodes is of s390x.
	mainframe bool
	// refs are the ConfigMaps with manifests that it gets besides the release's, by
	// namespace and name; unread are those in other places.
	refs, unread []string
}

// indexCluster reads an object that says what a cluster is made of.
func (f *Fleet) indexCluster(d document) {
	namespace := text(d.body, "metadata", "namespace")
	switch text(d.body, "kind") {
	case "AgentClusterInstall":
		refs := append(names(d.body, "spec", "manifestsConfigMapRefs"), text(d.body, "spec", "manifestsConfigMapRef", "name"))
		name, own := text(d.body, "spec", "clusterDeploymentRef", "name"), text(d.body, "metadata", "name")
		for _, name := range slices.Compact([]string{name, own}) {
			f.cluster(name).add(f.releases[text(d.body, "spec", "imageSetRef", "name")], namespace, refs)
		}
	case "ClusterInstance":
		c := f.cluster(text(d.body, "spec", "clusterName"))
		c.nodes(d.body, "spec", "nodes")
		c.add(f.releases[text(d.body, "spec", "clusterImageSetNameRef")], namespace, names(d.body, "spec", "extraManifestsRefs"))
	case "SiteConfig":
		list, _ := at(d.body, "spec", "clusters").([]any)
		for _, one := range list {
			set := text(one, "clusterImageSetNameRef")
			if set == "" {
				set = text(d.body, "spec", "clusterImageSetNameRef")
			}
			c := f.cluster(text(one, "clusterName"))
			c.nodes(one, "nodes")
			c.add(f.releases[set], namespace, nil)
			folders := append(texts(one, "extraManifests", "searchPaths"), text(one, "extraManifestPath"))
			for _, folder := range folders {
				if folder != "" {
					c.unread = append(c.unread, "the folder "+strconv.Quote(folder))
				}
			}
		}
	}
}

// nodes looks at a list of nodes, which may be of other architectures than the cluster.
func (c *cluster) nodes(body any, path ...string) {
	list, _ := at(body, path...).([]any)
	for _, n := range list {
		c.mainframe = c.mainframe || goArch(text(n, "cpuArchitecture")) == "s390x"
	}
}

// annotationEnvironment of an AgentServiceConfig names a ConfigMap with environment
// variables of assisted-service, and keySkip is the one that turns off that the node
// image is written (docs/operator.md and internal/feature/flags.go there).
const (
	annotationEnvironment = "unsupported.agent-install.openshift.io/assisted-service-configmap"
	keySkip               = "ENABLE_SKIP_MCO_REBOOT"
)

// installer reads how assisted-service is set up: whether it writes the node image,
// and what of that was not read.
func (f *Fleet) installer() (writes bool, unread []string) {
	writes = true
	for _, name := range f.environments {
		d, ok := f.configMaps[name]
		if !ok {
			unread = append(unread, "ConfigMap "+name+" of an AgentServiceConfig")
			continue
		}
		switch v := at(d.body, "data", keySkip).(type) {
		case nil:
		case string:
			on, err := strconv.ParseBool(v)
			writes = writes && on && err == nil
		default:
			writes = false
		}
	}
	return writes, unread
}

// names are the names in a list of references.
func names(body any, path ...string) []string {
	list, _ := at(body, path...).([]any)
	var all []string
	for _, ref := range list {
		all = append(all, text(ref, "name"))
	}
	return all
}

func (f *Fleet) cluster(name string) *cluster {
	c := f.clusters[name]
	if c == nil {
		c = &cluster{}
		f.clusters[name] = c
	}
	return c
}

func (c *cluster) add(image, namespace string, refs []string) {
	if image != "" && !slices.Contains(c.images, image) {
		c.images = append(c.images, image)
	}
	for _, name := range refs {
		if name != "" {
			c.refs = append(c.refs, path.Join(namespace, name))
		}
	}
}

// image is the release image of a cluster; empty where it is not known, or not known
// which.
func (c *cluster) image() string {
	if len(c.images) != 1 {
		return ""
	}
	return c.images[0]
}

// target makes the target of a cluster whose own objects are elsewhere, with what
// its manifests want.
func (f *Fleet) target(pool, release string, c *cluster) {
	if _, ok := f.elsewhere[pool]; ok {
		return
	}
	_, unread := f.installer()
	t := &forecast.Target{Pool: pool, Release: release, Unread: append(unread, c.unread...)}
	for _, ref := range c.refs {
		d, ok := f.configMaps[ref]
		if !ok {
			t.Unread = append(t.Unread, "ConfigMap "+ref)
			continue
		}
		data, _ := at(d.body, "data").(map[string]any)
		for key, v := range data {
			manifest, ok := v.(string)
			if !ok || readManifests(t, manifest) != nil {
				t.Unread = append(t.Unread, key+" of ConfigMap "+ref)
			}
		}
		if at(d.body, "binaryData") != nil {
			t.Unread = append(t.Unread, "binaryData of ConfigMap "+ref)
		}
	}
	slices.Sort(t.Unread)
	slices.Sort(t.Extensions)
	f.elsewhere[pool] = t
}

var errNoKind = errors.New("an object without a kind, or a List")

// readManifests adds what the MachineConfigs and PerformanceProfiles of a file want.
// Their image is not looked at: an installer writes the one that results.
func readManifests(t *forecast.Target, manifests string) error {
	for _, b := range splitDocuments([]byte(manifests)) {
		if len(bytes.TrimSpace(b)) == 0 {
			continue
		}
		body, err := decodeYAML(b)
		if err != nil {
			return err
		}
		switch kind := text(body, "kind"); {
		case kind == "MachineConfig":
			var w forecast.Target
			if err := wants(&w, body); err != nil {
				return err
			}
			t.Extensions = append(t.Extensions, w.Extensions...)
			t.KernelArguments = append(t.KernelArguments, w.KernelArguments...)
			t.FIPS = t.FIPS || w.FIPS
			if w.KernelType != "" && w.KernelType != "default" {
				t.KernelType = w.KernelType
			}
		case kind == "PerformanceProfile":
			if yes(body, "spec", "realTimeKernel", "enabled") {
				t.KernelType = "realtime"
			}
			if size := text(body, "spec", "kernelPageSize"); size == "64k" {
				t.KernelType = "64k-pages"
			}
		case body != nil && (kind == "" || strings.HasSuffix(kind, "List")):
			return errNoKind
		}
	}
	return nil
}
