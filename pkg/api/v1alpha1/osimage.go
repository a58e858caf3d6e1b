package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// An OSImage is what an OS image has, read once from its registry: for whoever must
// know a kernel before an update and has no pull secret. The controller makes one for
// each image that a pool, an image stream or an available update names.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=osimg
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name=RHEL,type=string,JSONPath=`.status.rhelVersion`
// +kubebuilder:printcolumn:name=Kernel,type=string,JSONPath=`.status.kernel`
// +kubebuilder:printcolumn:name=Glibc,type=string,JSONPath=`.status.glibc`,priority=1
// +kubebuilder:printcolumn:name=Read,type=string,JSONPath=`.status.conditions[?(@.type=="Read")].status`
// +kubebuilder:printcolumn:name=Used-By,type=string,JSONPath=`.status.usedBy`
type OSImage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   OSImageSpec   `json:"spec"`
	Status OSImageStatus `json:"status,omitempty"`
}

// OSImageSpec names the image.
type OSImageSpec struct {
	// Image is the pull spec, pinned by digest.
	//
	// +kubebuilder:validation:Pattern=`^[^@\s]+@sha256:[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an OSImage is of one image"
	Image string `json:"image"`
}

// ConditionRead says whether the image was read. Its reason is a code of
// docs/verdict.md, or Read.
const ConditionRead = "Read"

// OSImageStatus is what the image has. A value that is empty is not known; facts says
// why.
type OSImageStatus struct {
	// Digest is that of the manifest for the architecture.
	Digest       string `json:"digest,omitempty"`
	Architecture string `json:"architecture,omitempty"`
	Version      string `json:"version,omitempty"`
	RHELVersion  string `json:"rhelVersion,omitempty"`
	Kernel       string `json:"kernel,omitempty"`
	Glibc        string `json:"glibc,omitempty"`
	// InnerCommit is the encapsulated ostree commit, ConfigDigest the image's ID.
	InnerCommit  string `json:"innerCommit,omitempty"`
	ConfigDigest string `json:"configDigest,omitempty"`
	// List says that the pull spec names a manifest list.
	List bool `json:"list,omitempty"`
	// Layers, Bytes, DerivedLayers and DerivedBytes are what it is made of, and what
	// of that follows the commit.
	Layers        int32 `json:"layers,omitempty"`
	Bytes         int64 `json:"bytes,omitempty"`
	DerivedLayers int32 `json:"derivedLayers,omitempty"`
	DerivedBytes  int64 `json:"derivedBytes,omitempty"`
	// Facts are all facts by name, with where each was read or why it is not known.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Facts []Fact `json:"facts,omitempty"`
	// Extensions are what can be layered on it, DriverToolkit the one of its release;
	// absent while no object names their images.
	Extensions    *Extensions    `json:"extensions,omitempty"`
	DriverToolkit *DriverToolkit `json:"driverToolkit,omitempty"`
	// Releases are the release images that name it, as far as they were read.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Releases []string `json:"releases,omitempty"`
	// UsedBy names what wants the image, such as "pool worker"; sorted, separated by
	// commas.
	UsedBy string `json:"usedBy,omitempty"`
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// A Fact is one of the facts of `oneboot inspect`.
type Fact struct {
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name"`
	// +kubebuilder:validation:MaxLength=512
	Value string `json:"value,omitempty"`
	// Source is where it was read: see docs/inspect.md.
	Source string `json:"source,omitempty"`
	// Absent says that the image is known not to have it.
	Absent bool `json:"absent,omitempty"`
	// +kubebuilder:validation:MaxLength=2048
	Unknown string `json:"unknown,omitempty"`
}

// Extensions are what an OS image's extensions image has, or the OS image itself.
type Extensions struct {
	// Image is where they are.
	Image string `json:"image"`
	// Read says that its registry has answered.
	Read bool `json:"read,omitempty"`
	// Shipped are the known extensions that are on offer, Missing those that are not.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Shipped []Extension `json:"shipped,omitempty"`
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Missing []string `json:"missing,omitempty"`
	// Unknown says why they, or their packages, are not known.
	//
	// +kubebuilder:validation:MaxLength=2048
	Unknown string `json:"unknown,omitempty"`
}

// An Extension is one that is on offer.
type Extension struct {
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name"`
	// Packages are NAME-VERSION-RELEASE.ARCHITECTURE; absent where they are not known.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Packages []string `json:"packages,omitempty"`
}

// A DriverToolkit is the image that drivers for a release are built in.
type DriverToolkit struct {
	Image string `json:"image"`
	// Read says that its registry has answered.
	Read bool `json:"read,omitempty"`
	// Kernel is the release of the kernel that its headers are of.
	Kernel string `json:"kernel,omitempty"`
	// SameKernel says whether that is the OS image's.
	//
	// +kubebuilder:validation:Enum=same;differs;unknown
	SameKernel string `json:"sameKernel,omitempty"`
	// +kubebuilder:validation:MaxLength=2048
	Unknown string `json:"unknown,omitempty"`
}

// OSImageList is a list of them.
//
// +kubebuilder:object:root=true
type OSImageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []OSImage `json:"items"`
}
