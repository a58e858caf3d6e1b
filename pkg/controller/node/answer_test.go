package node

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/oneboot/oneboot/pkg/metrics"
	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
)

const (
	wanted  = "quay.io/os@sha256:aa"
	another = "quay.io/os@sha256:bb"
)

var decided = time.Date(2026, 12, 1, 3, 0, 0, 500, time.UTC)

// skip is a record of a skip that was acted upon, changed by edits.
func skip(edits ...func(*record.Record)) *record.Record {
	r := &record.Record{
		Version: "v0", Mode: "auto", BootID: "first", Time: decided,
		Verdict: verdict.Verdict{Action: verdict.Skip, Conclusive: true, Reason: verdict.ReasonProven, Proof: verdict.ProofManifestDigest,
			Booted: verdict.View{Checksum: "c0"}, Target: verdict.View{OSImageURL: wanted}},
		Act: &record.Act{State: record.ActDone, Mode: "assert"},
	}
	for _, e := range edits {
		e(r)
	}
	return r
}

func TestPivot(t *testing.T) {
	after := func(d time.Duration) metav1.Time { return metav1.NewTime(decided.Add(d).Truncate(time.Second)) }
	tests := []struct {
		name        string
		host        host
		created     metav1.Time
		annotations map[string]string
		want        metrics.PivotState
	}{
		{"joined in the boot of the decision", host{record: skip(), bootID: "first", bootTime: decided.Add(-time.Minute)}, after(30 * time.Second), nil, metrics.PivotSkipped},
		{"in the second of the decision", host{record: skip(), bootID: "first"}, after(0), nil, metrics.PivotSkipped},
		{"joined in a later boot", host{record: skip(), bootID: "second", bootTime: decided.Add(5 * time.Minute)}, after(7 * time.Minute), nil, metrics.PivotDone},
		{"a Node made anew long after", host{record: skip(), bootID: "fifth", bootTime: decided.Add(30 * 24 * time.Hour)}, after(31 * 24 * time.Hour), nil, metrics.PivotUnknown},
		{"booted again since, nothing was seen", host{record: skip(), bootID: "second", bootTime: decided.Add(time.Hour)}, after(30 * time.Second), nil, metrics.PivotUnknown},
		{"booted again since, it was seen", host{record: skip(), bootID: "second", bootTime: decided.Add(time.Hour)}, after(30 * time.Second),
			map[string]string{annotationBoot: "first", annotationPivot: "skipped"}, metrics.PivotSkipped},
		{"what was seen is of another decision", host{record: skip(), bootID: "second", bootTime: decided.Add(time.Hour)}, after(30 * time.Second),
			map[string]string{annotationBoot: "earlier", annotationPivot: "skipped"}, metrics.PivotUnknown},
		{"what was seen is no word", host{record: skip(), bootID: "second", bootTime: decided.Add(time.Hour)}, after(30 * time.Second),
			map[string]string{annotationBoot: "first", annotationPivot: "yes"}, metrics.PivotUnknown},
		{"decided by hand after the join", host{record: skip(), bootID: "first", bootTime: decided.Add(-time.Hour)}, after(-30 * time.Minute), nil, metrics.PivotUnknown},
		{"no boot id in the record", host{record: skip(func(r *record.Record) { r.BootID = "" }), bootID: ""}, after(time.Minute), nil, metrics.PivotUnknown},
		{"no boot id on the host", host{record: skip(), bootTime: decided.Add(5 * time.Minute)}, after(7 * time.Minute), nil, metrics.PivotUnknown},
		{"no boot time", host{record: skip(), bootID: "second"}, after(7 * time.Minute), nil, metrics.PivotUnknown},
		{"no record", host{bootID: "first"}, after(time.Minute), nil, metrics.PivotUnknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: tt.created, Annotations: tt.annotations}}
			if got := pivotOf(tt.host, n); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestHolds(t *testing.T) {
	tests := []struct {
		name    string
		host    host
		osImage string
		want    metrics.HoldState
	}{
		{"as it was proven", host{record: skip(), booted: "c0"}, wanted, metrics.HoldYes},
		{"an extension was layered on it", host{record: skip(), booted: "c1", base: "c0"}, wanted, metrics.HoldYes},
		{"another image is wanted and the OS is the same", host{record: skip(), booted: "c0"}, another, metrics.HoldNo},
		{"likewise below an extension", host{record: skip(), booted: "c1", base: "c0"}, another, metrics.HoldNo},
		{"the same image by another name", host{record: skip(), booted: "c0"}, "mirror.example.com/os@sha256:aa", metrics.HoldYes},
		{"another OS by another name of the image", host{record: skip(), booted: "c1", origin: another}, "mirror.example.com/os@sha256:aa", metrics.HoldNo},
		{"pulled anew by another name", host{record: skip(), booted: "c1", origin: "ostree-unverified-registry:mirror.example.com/os@sha256:aa"}, "mirror.example.com/os@sha256:aa", metrics.HoldSuperseded},
		{"the same tag without a digest", host{record: skip(func(r *record.Record) { r.Verdict.Target.OSImageURL = "quay.io/os:1" }), booted: "c0"}, "quay.io/os:2", metrics.HoldNo},
		{"updated since", host{record: skip(), booted: "c1", origin: another}, another, metrics.HoldSuperseded},
		{"pulled anew", host{record: skip(), booted: "c1", origin: "ostree-unverified-registry:" + wanted}, wanted, metrics.HoldSuperseded},
		{"another OS under the same name", host{record: skip(), booted: "c1", origin: another}, wanted, metrics.HoldNo},
		{"another image whose name ends alike", host{record: skip(), booted: "c1", origin: "ostree-unverified-registry:evil.example.com/" + wanted}, wanted, metrics.HoldNo},
		{"pulled anew, by a pull spec with a transport", host{record: skip(), booted: "c1", origin: "ostree-unverified-image:docker://" + wanted}, wanted, metrics.HoldSuperseded},
		{"what is wanted is not known", host{record: skip(), booted: "c0"}, "", metrics.HoldUnknown},
		{"what runs is not known", host{record: skip()}, wanted, metrics.HoldUnknown},
		{"no record", host{booted: "c0"}, wanted, metrics.HoldNone},
		{"to proceed", host{record: skip(func(r *record.Record) { r.Verdict.Action = verdict.Proceed }), booted: "c0"}, wanted, metrics.HoldNone},
		{"only reported", host{record: skip(func(r *record.Record) { r.Act = &record.Act{State: record.ActNone} }), booted: "c0"}, wanted, metrics.HoldNone},
		{"a record from before there were acts", host{record: skip(func(r *record.Record) { r.Act = nil }), booted: "c0"}, wanted, metrics.HoldNone},
		{"undone", host{record: skip(func(r *record.Record) { r.Act.State = record.ActUndone }), booted: "c0"}, wanted, metrics.HoldNone},
		{"no proof is named", host{record: skip(func(r *record.Record) { r.Verdict.Proof = "" }), booted: "c0"}, wanted, metrics.HoldNo},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := holds(tt.host, tt.osImage); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestPool(t *testing.T) {
	tests := []struct {
		name                string
		annotations, labels map[string]string
		want                string
	}{
		{"rendered", map[string]string{mcoCurrentConfig: "rendered-worker-0123456789abcdef0123456789abcdef"}, nil, "worker"},
		{"a custom pool", map[string]string{mcoCurrentConfig: "rendered-edge-site-0123456789abcdef0123456789abcdef"}, map[string]string{rolePrefix + "worker": ""}, "edge-site"},
		{"HyperShift", nil, map[string]string{hyperShiftPool: "np-1", rolePrefix + "worker": ""}, "np-1"},
		{"plain Kubernetes", nil, map[string]string{rolePrefix + "worker": "", rolePrefix + "infra": ""}, "infra"},
		{"none", map[string]string{mcoCurrentConfig: "rendered-"}, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: tt.annotations, Labels: tt.labels}}
			if got := pool(n); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// What a damaged record says does not go on the Node.
func TestAnnotations(t *testing.T) {
	h := host{record: skip(func(r *record.Record) { r.Verdict.Reason = "a\nb" })}
	want := map[string]string{
		annotationAction: "skip", annotationProof: "manifest-digest", annotationMode: "assert", annotationDeployment: "c0",
		annotationTarget: "sha256:aa", annotationPivot: "unknown", annotationBoot: "first",
	}
	if d := cmp.Diff(want, annotations(h, metrics.PivotUnknown)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// Nor does it go into an Event.
func TestWords(t *testing.T) {
	for _, reason := range []verdict.Reason{"a\nb", verdict.Reason(strings.Repeat("x", 5000)), ""} {
		h := host{record: skip(func(r *record.Record) { r.Verdict.Action, r.Verdict.Reason = verdict.Proceed, reason })}
		if _, message := words(h, metrics.PivotDone); len(message) > 200 || strings.ContainsFunc(message, notPrintable) {
			t.Errorf("%q", message)
		}
	}
}

// What an earlier record has left, whoever wrote it, does not stay beside a later one.
func TestStale(t *testing.T) {
	n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		annotationAction: "skip", annotationProof: "manifest-digest", annotationBoot: "earlier", "oneboot.dev/own": "x", "example.com/a": "b"}}}
	h := host{record: skip(func(r *record.Record) { r.Verdict.Action, r.Verdict.Proof = verdict.Proceed, "" })}
	if d := cmp.Diff([]string{annotationProof}, stale(n, annotations(h, metrics.PivotUnknown))); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestJoinSeconds(t *testing.T) {
	for _, tt := range []struct {
		after time.Duration
		want  float64
	}{{42 * time.Second, 42}, {-time.Second, -1}, {25 * time.Hour, -1}} {
		n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(decided.Add(tt.after))}}
		if got := joinSeconds(host{record: skip()}, n); got != tt.want {
			t.Errorf("%s after the decision: got %g, want %g", tt.after, got, tt.want)
		}
	}
}
