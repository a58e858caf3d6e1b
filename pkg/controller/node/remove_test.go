package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/oneboot/oneboot/pkg/metrics"
	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// An installation anew under an old name: what the Node said before is gone.
func TestReportRemoves(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Annotations: map[string]string{
		annotationAction: "skip", annotationProof: "manifest-digest", annotationBoot: "earlier", "example.com/a": "b"}}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(n).Build()
	r := &Reconciler{Client: c, Name: "n"}
	h := host{record: skip(func(r *record.Record) {
		r.Verdict = verdict.Verdict{Action: verdict.Proceed, Reason: "os-image-differs"}
		r.Act = nil
	})}
	meta := &metav1.PartialObjectMetadata{ObjectMeta: n.ObjectMeta}
	if err := r.report(t.Context(), h, meta, metrics.PivotDone); err != nil {
		t.Fatal(err)
	}
	var got corev1.Node
	if err := c.Get(t.Context(), client.ObjectKey{Name: "n"}, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{annotationAction: "proceed", annotationReason: "os-image-differs", annotationMode: "auto", annotationPivot: "done",
		annotationBoot: "first", "example.com/a": "b"}
	if d := cmp.Diff(want, got.Annotations); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
