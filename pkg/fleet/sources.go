package fleet

import (
	"cmp"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/oneboot/oneboot/pkg/forecast"
)

// source is an object from which new nodes come; ok is false for any other.
func (f *Fleet) source(d document) (forecast.Source, bool) {
	switch text(d.body, "kind") {
	case "MachineSet":
		s := f.machines(at(d.body, "spec", "template"))
		s.Bootimage.Architecture = cmp.Or(s.Bootimage.Architecture, machinesArch(d.body))
		return s, true
	case "ControlPlaneMachineSet":
		s := f.machines(at(d.body, "spec", "template", "machines_v1beta1_machine_openshift_io"))
		s.Pool = cmp.Or(s.Pool, "master")
		return s, true
	case "BareMetalHost":
		return f.bareMetalHost(d.body)
	case "InfraEnv":
		return f.infraEnv(d.body), true
	case "ClusterInstance":
		return f.assisted(text(d.body, "spec", "clusterName"), goArch(text(d.body, "spec", "cpuArchitecture"))), true
	case "SiteConfig":
		return f.siteConfig(d.body), true
	case "NodePool":
		return f.nodePool(d.body), true
	}
	return forecast.Source{}, false
}

// machines reads the template of a machine set of OpenShift's machine API.
func (f *Fleet) machines(template any) forecast.Source {
	value := at(template, "spec", "providerSpec", "value")
	s := forecast.Source{Flow: forecast.FlowBootimage, Platform: strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(text(value, "kind"), "ProviderSpec"), "MachineProviderConfig"))}
	secret := cmp.Or(text(value, "userDataSecret", "name"), text(value, "userData", "name"))
	s.Pool = poolOf(secret)
	if s.Pool == "" {
		s.Pool = text(template, "metadata", "labels", "machine.openshift.io/cluster-api-machine-role")
	}
	s.Bootimage.Architecture = goArch(text(value, "architecture"))
	switch kind := text(value, "kind"); kind {
	case "AWSMachineProviderConfig":
		s.Platform, s.Bootimage.ID = "aws", text(value, "ami", "id")
	case "GCPMachineProviderSpec":
		s.Platform = "gcp"
		disks, _ := at(value, "disks").([]any)
		for _, disk := range disks {
			if yes(disk, "boot") {
				s.Bootimage.ID = text(disk, "image")
			}
		}
	case "AzureMachineProviderSpec":
		s.Platform = "azure"
		s.Bootimage.ID = cmp.Or(text(value, "image", "resourceID"), strings.Trim(strings.Join([]string{text(value, "image", "publisher"),
			text(value, "image", "offer"), text(value, "image", "sku"), text(value, "image", "version")}, ":"), ":"))
	case "VSphereMachineProviderSpec":
		s.Platform, s.Bootimage.ID = "vsphere", text(value, "template")
	case "NutanixMachineProviderConfig":
		s.Platform, s.Bootimage.ID = "nutanix", cmp.Or(text(value, "image", "name"), text(value, "image", "uuid"))
	case "OpenstackProviderSpec":
		s.Platform, s.Bootimage.ID = "openstack", text(value, "image")
	case "BareMetalMachineProviderSpec":
		f.metal(&s, text(value, "customDeploy", "method"), text(value, "image", "url"))
	default:
		s.Flow = forecast.FlowUnknown
		s.Notes = append(s.Notes, "the machines' kind "+strconv.Quote(kind)+" is not known")
	}
	return s
}

// capacityLabels is on MachineSets, by their platform's controller: labels of the nodes
// to come (pkg/util in the machine-api providers).
const capacityLabels = "capacity.cluster-autoscaler.kubernetes.io/labels"

// machinesArch is the architecture of a machine set's nodes where its template does not
// say: by the autoscaler's labels, and on vSphere and Nutanix the only one that
// OpenShift has there.
func machinesArch(body any) string {
	labels, _ := at(body, "metadata", "annotations").(map[string]any)
	list, _ := labels[capacityLabels].(string)
	for _, l := range strings.Split(list, ",") {
		if arch, ok := strings.CutPrefix(strings.TrimSpace(l), "kubernetes.io/arch="); ok {
			return goArch(arch)
		}
	}
	switch text(body, "spec", "template", "spec", "providerSpec", "value", "kind") {
	case "VSphereMachineProviderSpec", "NutanixMachineProviderConfig":
		return "amd64"
	}
	return ""
}

// poolOf is the pool that the secret with a machine's user data is of.
func poolOf(secret string) string {
	pool, _, _ := strings.Cut(strings.TrimSuffix(secret, "-managed"), "-user-data")
	return pool
}

// metal is a host that metal3 writes: install_coreos writes the ISO's image, or the
// one at an address; without it a disk image is copied.
func (f *Fleet) metal(s *forecast.Source, method, address string) {
	s.Platform, s.Bootimage.ID = "baremetal", address
	switch {
	case address != "":
		s.Flow = forecast.FlowCustomImage
	case method == "install_coreos" || method == "":
		s.Flow = forecast.FlowBootimage
		for _, o := range f.metalImages {
			if s.Bootimage.Architecture == "" || goArch(o.Architecture) == s.Bootimage.Architecture {
				s.Bootimage.Version, s.Bootimage.ID = o.Version, "the release's machine-os-images"
			}
		}
	default:
		s.Flow = forecast.FlowUnknown
		s.Notes = append(s.Notes, "customDeploy.method "+method+" is not known")
	}
}

// labelInfraEnv is on hosts that an InfraEnv's image boots.
const labelInfraEnv = "infraenvs.agent-install.openshift.io"

func (f *Fleet) bareMetalHost(body any) (forecast.Source, bool) {
	s := forecast.Source{Pool: cmp.Or(poolOf(text(body, "spec", "userData", "name")), "worker"), Bootimage: forecast.Bootimage{Architecture: goArch(text(body, "spec", "architecture"))}}
	labels, _ := at(body, "metadata", "labels").(map[string]any)
	_, ofInfraEnv := labels[labelInfraEnv]
	method, address := text(body, "spec", "customDeploy", "method"), text(body, "spec", "image", "url")
	switch {
	case ofInfraEnv, method == "start_assisted_install":
		return s, false // its InfraEnv stands for it
	case text(body, "spec", "consumerRef", "name") != "", text(body, "status", "provisioning", "state") == "provisioned":
		return s, false // its MachineSet does, or it is a node already
	case method == "" && address == "":
		return s, false // nothing is to be written to it
	}
	f.metal(&s, method, address)
	return s, true
}

func (f *Fleet) infraEnv(body any) forecast.Source {
	cluster := text(body, "spec", "clusterRef", "name")
	s := f.assisted(cluster, goArch(text(body, "spec", "cpuArchitecture")))
	if v := text(body, "spec", "osImageVersion"); v != "" {
		f.osImage(&s, v)
	}
	return s
}

func (f *Fleet) siteConfig(body any) forecast.Source {
	clusters, _ := at(body, "spec", "clusters").([]any)
	if len(clusters) != 1 {
		s := forecast.Source{Flow: forecast.FlowUnknown}
		s.Notes = append(s.Notes, "it is of "+strconv.Itoa(len(clusters))+" clusters, where one is expected")
		return s
	}
	return f.assisted(text(clusters[0], "clusterName"), goArch(text(clusters[0], "cpuArchitecture")))
}

// assisted is a cluster that the assisted installer makes, and its nodes of later.
// From 4.15 on it writes the node image, but on s390x (skipMcoReboot in
// internal/host/hostcommands/install_cmd.go of assisted-service).
func (f *Fleet) assisted(name, arch string) forecast.Source {
	s := forecast.Source{Platform: "assisted", Flow: forecast.FlowUnknown, Bootimage: forecast.Bootimage{Architecture: arch}}
	// A worker of the cluster whose objects these are, unless it names another.
	release := f.release
	s.Pool = "worker"
	if name != "" {
		c := f.cluster(name)
		s.Pool, release = "cluster "+name, releaseOf(c.image())
		if len(c.images) > 1 {
			s.Notes = append(s.Notes, "its objects name several releases: "+strings.Join(c.images, ", "))
		}
	}
	if name != "" && f.cluster(name).mainframe {
		arch = "s390x"
	}
	writes, _ := f.installer()
	minor, known := minorOf(release)
	switch {
	case !known:
		s.Notes = append(s.Notes, "the cluster's release is not known: the installer writes the node image from 4.15 on")
		return s
	case arch != "s390x" && writes && atLeast(minor, 15):
		s.Flow = forecast.FlowNodeImage
		s.Notes = append(s.Notes, "not where the disk is multipath or LVM")
	default:
		s.Flow = forecast.FlowBootimage
		f.osImage(&s, "4."+strconv.Itoa(minor.minor))
	}
	if name != "" {
		f.target(s.Pool, release, f.cluster(name))
	}
	return s
}

// osImage sets the live ISO of an AgentServiceConfig.
func (f *Fleet) osImage(s *forecast.Source, openShift string) {
	for _, o := range f.osImages[openShift] {
		if s.Bootimage.Architecture == "" || o.arch == s.Bootimage.Architecture || o.arch == "" {
			s.Bootimage.ID, s.Bootimage.Version = o.url, cmp.Or(o.version, versionIn(o.url))
			return
		}
	}
	s.Notes = append(s.Notes, "no AgentServiceConfig has an osImage for "+openShift)
}

func (f *Fleet) nodePool(body any) forecast.Source {
	s := forecast.Source{Pool: "NodePool " + path.Join(text(body, "metadata", "namespace"), text(body, "metadata", "name")), Platform: strings.ToLower(text(body, "spec", "platform", "type")),
		Flow: forecast.FlowBootimage, Bootimage: forecast.Bootimage{Architecture: goArch(text(body, "spec", "arch"))}}
	release := releaseOf(text(body, "spec", "release", "image"))
	minor, known := minorOf(release)
	var c cluster
	namespace := text(body, "metadata", "namespace")
	c.add("", namespace, append(names(body, "spec", "config"), names(body, "spec", "tuningConfig")...))
	f.target(s.Pool, release, &c)
	writes, _ := f.installer()
	switch {
	case s.Platform == "agent" && known && writes && atLeast(minor, 15) && s.Bootimage.Architecture != "s390x":
		s.Flow = forecast.FlowNodeImage
	case s.Platform == "agent":
		s.Flow = forecast.FlowUnknown
	default:
		s.Bootimage.ID = cmp.Or(text(body, "spec", "platform", "aws", "ami"), text(body, "spec", "platform", "openstack", "imageName"))
	}
	return s
}

type minorVersion struct{ major, minor int }

func atLeast(v minorVersion, minor int) bool { return v.major > 4 || v.major == 4 && v.minor >= minor }

var releaseTag = regexp.MustCompile(`[:@]([0-9]+\.[0-9]+\.[0-9]+[-.0-9a-z]*?)(?:-(?:x86_64|aarch64|ppc64le|s390x|multi))?$`)

// releaseOf is the release in a release image's tag; empty where it has none.
func releaseOf(image string) string {
	m := releaseTag.FindStringSubmatch(image)
	if m == nil {
		return ""
	}
	return m[1]
}

func minorOf(release string) (minorVersion, bool) {
	parts := strings.SplitN(release, ".", 3)
	if len(parts) < 2 {
		return minorVersion{}, false
	}
	major, err := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return minorVersion{major, minor}, err == nil && err2 == nil
}

var osVersion = regexp.MustCompile(`^[0-9]{1,3}\.[0-9]{1,3}\.(?:[0-9]{8}|[0-9]{12})-[0-9]+$`)

func isVersion(s string) bool { return osVersion.MatchString(s) }
