package fleet

import (
	"cmp"
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
		return f.assisted(text(d.body, "spec", "clusterName"), f.releases[text(d.body, "spec", "clusterImageSetNameRef")], goArch(text(d.body, "spec", "cpuArchitecture"))), true
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
	s.Pool, _, _ = strings.Cut(strings.TrimSuffix(secret, "-managed"), "-user-data")
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

// metal is a host that metal3 writes: install_coreos writes the ISO's image, or the
// one at an address; without it a disk image is copied.
func (f *Fleet) metal(s *forecast.Source, method, address string) {
	s.Platform, s.Bootimage.ID = "baremetal", address
	switch {
	case address != "":
		s.Flow = forecast.FlowCustomImage
	case method == "install_coreos" || method == "":
		// The machine-os-images of the release, which are those of RHEL 9 wherever
		// there are such (cluster-baremetal-operator sets no COREOS_VERSION).
		s.Flow = forecast.FlowBootimage
		for _, st := range f.streams {
			if st.Name != "rhel-9" && len(f.streams) > 1 {
				continue
			}
			for _, o := range st.Offers() {
				if o.Platform == "metal" && (s.Bootimage.Architecture == "" || goArch(o.Architecture) == s.Bootimage.Architecture) {
					s.Bootimage.Version, s.Bootimage.ID = o.Version, "the release's machine-os-images"
				}
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
	s := forecast.Source{Pool: "worker", Bootimage: forecast.Bootimage{Architecture: goArch(text(body, "spec", "architecture"))}}
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
	image := ""
	for _, d := range f.documents {
		switch kind := text(d.body, "kind"); {
		case kind == "AgentClusterInstall" && (text(d.body, "spec", "clusterDeploymentRef", "name") == cluster || text(d.body, "metadata", "name") == cluster) && cluster != "":
			image = f.releases[text(d.body, "spec", "imageSetRef", "name")]
		case kind == "ClusterInstance" && text(d.body, "spec", "clusterName") == cluster && cluster != "" && image == "":
			image = f.releases[text(d.body, "spec", "clusterImageSetNameRef")]
		}
	}
	s := f.assisted(cluster, image, goArch(text(body, "spec", "cpuArchitecture")))
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
	set := cmp.Or(text(clusters[0], "clusterImageSetNameRef"), text(body, "spec", "clusterImageSetNameRef"))
	return f.assisted(text(clusters[0], "clusterName"), f.releases[set], goArch(text(clusters[0], "cpuArchitecture")))
}

// assisted is a cluster that the assisted installer makes, and its nodes of later.
// From 4.15 on it writes the node image, but on s390x (skipMcoReboot in
// internal/host/hostcommands/install_cmd.go of assisted-service).
func (f *Fleet) assisted(cluster, releaseImage, arch string) forecast.Source {
	s := forecast.Source{Platform: "assisted", Flow: forecast.FlowUnknown, Bootimage: forecast.Bootimage{Architecture: arch}}
	release := releaseOf(releaseImage)
	if cluster != "" {
		s.Pool = "cluster " + cluster
	} else {
		// A worker of the cluster whose objects these are.
		s.Pool, release = "worker", cmp.Or(release, f.release)
	}
	minor, known := minorOf(release)
	switch {
	case !known:
		s.Notes = append(s.Notes, "the cluster's release is not known: the installer writes the node image from 4.15 on")
		return s
	case arch != "s390x" && atLeast(minor, 15):
		s.Flow = forecast.FlowNodeImage
		s.Notes = append(s.Notes, "not where the disk is multipath or LVM")
	default:
		s.Flow = forecast.FlowBootimage
		f.osImage(&s, "4."+strconv.Itoa(minor.minor))
	}
	if cluster != "" {
		f.clusters(s.Pool, release)
	}
	return s
}

// osImage sets the live ISO of an AgentServiceConfig.
func (f *Fleet) osImage(s *forecast.Source, openShift string) {
	for _, o := range f.osImages {
		if o.openShift == openShift && (s.Bootimage.Architecture == "" || o.arch == s.Bootimage.Architecture || o.arch == "") {
			s.Bootimage.ID, s.Bootimage.Version = o.url, cmp.Or(o.version, versionIn(o.url))
			return
		}
	}
	s.Notes = append(s.Notes, "no AgentServiceConfig has an osImage for "+openShift)
}

// clusters makes a target of a cluster whose own objects are elsewhere.
func (f *Fleet) clusters(pool, release string) {
	f.elsewhere[pool] = &forecast.Target{Pool: pool, Release: release}
}

func (f *Fleet) nodePool(body any) forecast.Source {
	s := forecast.Source{Pool: "NodePool " + text(body, "metadata", "name"), Platform: strings.ToLower(text(body, "spec", "platform", "type")),
		Flow: forecast.FlowBootimage, Bootimage: forecast.Bootimage{Architecture: goArch(text(body, "spec", "arch"))}}
	release := releaseOf(text(body, "spec", "release", "image"))
	f.clusters(s.Pool, release)
	minor, known := minorOf(release)
	switch {
	case s.Platform == "agent" && known && atLeast(minor, 15):
		s.Flow = forecast.FlowNodeImage
	case s.Platform == "agent":
		s.Flow = forecast.FlowUnknown
	default:
		s.Bootimage.ID = cmp.Or(text(body, "spec", "platform", "aws", "ami"), text(body, "spec", "platform", "openstack", "imageName"))
	}
	if list, _ := at(body, "spec", "config").([]any); len(list) > 0 {
		s.Notes = append(s.Notes, "its "+strconv.Itoa(len(list))+" config objects were not read: extensions or a kernel type in them cost a reboot")
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
