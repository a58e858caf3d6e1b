// Package v1alpha1 has the custom resources of oneboot's controller: what OS images
// have, and what the next new nodes will do.
//
// +kubebuilder:object:generate=true
// +groupName=oneboot.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of all kinds here.
var GroupVersion = schema.GroupVersion{Group: "oneboot.dev", Version: "v1alpha1"}

// AddToScheme adds the kinds to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &OSImage{}, &OSImageList{}, &FirstbootForecast{}, &FirstbootForecastList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
