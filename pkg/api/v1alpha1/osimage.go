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

// OSImageList is a list of them.
//
// +kubebuilder:object:root=true
type OSImageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []OSImage `json:"items"`
}
