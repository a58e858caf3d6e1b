package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// A FirstbootForecast is what the next node of one source of new nodes will do on its
// first boot. The controller makes one for each source.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=fbf
// +kubebuilder:printcolumn:name=Source,type=string,JSONPath=`.spec.source.kind`
// +kubebuilder:printcolumn:name=Name,type=string,JSONPath=`.spec.source.name`
// +kubebuilder:printcolumn:name=Pool,type=string,JSONPath=`.status.pool`
// +kubebuilder:printcolumn:name=Outcome,type=string,JSONPath=`.status.outcome`
// +kubebuilder:printcolumn:name=True,type=integer,JSONPath=`.status.cameTrue`
// +kubebuilder:printcolumn:name=Otherwise,type=integer,JSONPath=`.status.cameOtherwise`
// +kubebuilder:printcolumn:name=Confidence,type=string,JSONPath=`.status.confidence`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.reason`,priority=1
type FirstbootForecast struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   FirstbootForecastSpec   `json:"spec"`
	Status FirstbootForecastStatus `json:"status,omitempty"`
}

// FirstbootForecastSpec names the source.
type FirstbootForecastSpec struct {
	Source SourceReference `json:"source"`
}

// A SourceReference is an object from which new nodes come.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a forecast is of one source"
type SourceReference struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ConditionWillSkip is True where the next node will boot once, False where it will
// not, and Unknown. Its reason is the forecast's.
const ConditionWillSkip = "WillSkip"

// FirstbootForecastStatus is the forecast; its words are those of docs/plan.md.
type FirstbootForecastStatus struct {
	Pool       string `json:"pool,omitempty"`
	OSImage    string `json:"osImage,omitempty"`
	Outcome    string `json:"outcome,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Confidence string `json:"confidence,omitempty"`
	// Message says why, Change the one change that would make it skip.
	Message string `json:"message,omitempty"`
	Change  string `json:"change,omitempty"`
	// Bytes are what it will pull; absent where that is not known.
	Bytes *int64 `json:"bytes,omitempty"`
	// Observed are the pool's nodes, by what became of their first pivots.
	Observed Observed `json:"observed,omitempty"`
	// OutcomeSince is when the outcome became what it is.
	OutcomeSince *metav1.Time `json:"outcomeSince,omitempty"`
	// CameTrue and CameOtherwise count this source's nodes that were made since then
	// and whose first pivots went as forecast, or otherwise. A node is the source's by
	// its Machine, or where the pool has no other source.
	CameTrue      int32 `json:"cameTrue,omitempty"`
	CameOtherwise int32 `json:"cameOtherwise,omitempty"`
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Observed counts nodes by the annotation oneboot.dev/pivot.
type Observed struct {
	Skipped int32 `json:"skipped,omitempty"`
	Done    int32 `json:"done,omitempty"`
	Unknown int32 `json:"unknown,omitempty"`
}

// FirstbootForecastList is a list of them.
//
// +kubebuilder:object:root=true
type FirstbootForecastList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FirstbootForecast `json:"items"`
}
