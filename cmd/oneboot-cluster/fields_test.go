package main

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/oneboot/oneboot/pkg/api/v1alpha1"
	"github.com/oneboot/oneboot/test/fields"
)

// Every field of the custom resources is in their page.
func TestDocumentedFields(t *testing.T) {
	shared := map[reflect.Type]string{reflect.TypeFor[metav1.Condition](): fields.Elsewhere, reflect.TypeFor[metav1.ObjectMeta](): fields.Elsewhere, reflect.TypeFor[metav1.TypeMeta](): fields.Elsewhere}
	for _, tt := range []struct {
		section  string
		document reflect.Type
	}{
		{"Fields of an OSImage", reflect.TypeFor[v1alpha1.OSImage]()},
		{"Fields of a FirstbootForecast", reflect.TypeFor[v1alpha1.FirstbootForecast]()},
	} {
		t.Run(tt.section, func(t *testing.T) {
			fields.Check(t, "../../docs/forecasts.md", tt.section, "", tt.document, shared)
		})
	}
}
