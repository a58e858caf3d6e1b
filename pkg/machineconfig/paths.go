package machineconfig

// Paths that the machine-config-operator writes or reads on a node. The
// comment names the upstream constant and its file; the values are the same in
// every release from 4.12 on where the constant exists.
const (
	// EncapsulatedPath is MachineConfigEncapsulatedPath
	// (pkg/daemon/constants/constants.go): the MachineConfig of the first boot.
	EncapsulatedPath = "/etc/ignition-machine-config-encapsulated.json"
	// EncapsulatedBakPath is MachineConfigEncapsulatedBakPath
	// (pkg/daemon/constants/constants.go): where the daemon's update path
	// leaves the file once it is done.
	EncapsulatedBakPath = "/etc/ignition-machine-config-encapsulated.json.bak"
	// NodeAnnotationsPath is InitialNodeAnnotationsFilePath
	// (pkg/daemon/constants/constants.go). Its existence alone tells the
	// daemon that it is bootstrapping.
	NodeAnnotationsPath = "/etc/machine-config-daemon/node-annotations.json"
	// NodeAnnotationsBakPath is InitialNodeAnnotationsBakPath
	// (pkg/daemon/constants/constants.go); "annotation" has no s upstream.
	NodeAnnotationsBakPath = "/etc/machine-config-daemon/node-annotation.json.bak"
	// ForceFilePath is MachineConfigDaemonForceFile
	// (pkg/daemon/constants/constants.go).
	ForceFilePath = "/run/machine-config-daemon-force"
	// CurrentConfigPath is currentConfigPath (pkg/daemon/daemon.go).
	CurrentConfigPath = "/etc/machine-config-daemon/currentconfig"
	// CurrentImagePath is currentImagePath (pkg/daemon/daemon.go), 4.14 and later.
	CurrentImagePath = "/etc/machine-config-daemon/currentimage"
	// KernelArgsPath is KernelTuningFile (pkg/daemon/kernelargs.go).
	KernelArgsPath = "/etc/pivot/kernel-args"
	// ContentPath is machineConfigContentPath (pkg/server/server.go): the
	// rendered MachineConfig with its Ignition, for debugging.
	ContentPath = "/etc/mcs-machine-config-content.json"
	// BootstrapKubeconfigPath is defaultMachineKubeConfPath
	// (pkg/server/server.go): served with mode 0644, made 0600 by the
	// daemon's update path.
	BootstrapKubeconfigPath = "/etc/kubernetes/kubeconfig"
	// RegistryAuthPath is KubeletAuthFile (pkg/daemon/constants/constants.go).
	RegistryAuthPath = "/var/lib/kubelet/config.json"
	// PolicyPath is ContainerRegistryPolicyPath
	// (pkg/daemon/constants/constants.go).
	PolicyPath = "/etc/containers/policy.json"
	// RegistriesPath is ContainerRegistryConfPath
	// (pkg/daemon/constants/constants.go).
	RegistriesPath = "/etc/containers/registries.conf"
	// SigstoreRegistriesDir is SigstoreRegistriesConfigDir
	// (pkg/daemon/constants/constants.go).
	SigstoreRegistriesDir = "/etc/containers/registries.d"
	// ProxyEnvPath is the environment file of the firstboot units
	// (templates/common/_base/units); upstream has no constant for it.
	ProxyEnvPath = "/etc/mco/proxy.env"
)

// Annotations of on-cluster layering on a MachineConfig.
const (
	// originalOSImageURLAnnotation is originalOSImageURLAnnoKey
	// (pkg/daemon/ocl.go): the osImageURL that a layered image has replaced.
	originalOSImageURLAnnotation = "machineconfiguration.openshift.io/original-osimageurl"
	// layeredOSImageURLAnnotation is oclOSImageURLAnnoKey (pkg/daemon/ocl.go).
	layeredOSImageURLAnnotation = "machineconfiguration.openshift.io/ocl-osimageurl"
	// preBuiltImageAnnotation is PreBuiltImageAnnotationKey
	// (pkg/controller/build/constants/constants.go): an image built before the
	// cluster was; the server makes it the node's currentImage.
	preBuiltImageAnnotation = "machineconfiguration.openshift.io/pre-built-image"
	// releaseImageVersionAnnotation is ReleaseImageVersionAnnotationKey
	// (pkg/controller/common/constants.go): on every rendered MachineConfig,
	// empty on those that the bootstrap host renders.
	releaseImageVersionAnnotation = "machineconfiguration.openshift.io/release-image-version"
)
