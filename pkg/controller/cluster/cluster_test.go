package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/oneboot/oneboot/pkg/api/v1alpha1"
	"github.com/oneboot/oneboot/pkg/fleet"
	"github.com/oneboot/oneboot/pkg/forecast"
	"github.com/oneboot/oneboot/pkg/osimage"
)

func objects(t *testing.T, texts ...string) []unstructured.Unstructured {
	t.Helper()
	var all []unstructured.Unstructured
	for _, text := range texts {
		u := unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		all = append(all, u)
	}
	return all
}

func TestMirrors(t *testing.T) {
	set := func(name, mirrors string) string {
		return "kind: ImageDigestMirrorSet\nmetadata: {name: " + name + "}\nspec: {imageDigestMirrors: [" + mirrors + "]}\n"
	}
	tests := []struct {
		name string
		sets []string
		want []osimage.Mirror
	}{
		{"none", nil, nil},
		{"one", []string{set("a", "{source: quay.io/x, mirrors: [m/x, n/x]}")}, []osimage.Mirror{{Source: "quay.io/x", Mirrors: []string{"m/x", "n/x"}}}},
		{"of two sets, by their names", []string{set("b", "{source: quay.io/x, mirrors: [m/x, l/x]}"), set("a", "{source: quay.io/x, mirrors: [n/x, m/x]}")},
			[]osimage.Mirror{{Source: "quay.io/x", Mirrors: []string{"n/x", "m/x", "l/x"}}}},
		{"never the source", []string{set("a", "{source: q/x, mirrors: [m/x], mirrorSourcePolicy: NeverContactSource}"), set("b", "{source: q/x, mirrors: [n/x], mirrorSourcePolicy: AllowContactingSource}")},
			[]osimage.Mirror{{Source: "q/x", Mirrors: []string{"m/x", "n/x"}, Only: true}}},
		{"the older kind", []string{"kind: ImageContentSourcePolicy\nmetadata: {name: a}\nspec: {repositoryDigestMirrors: [{source: q/x, mirrors: [m/x]}]}\n"},
			[]osimage.Mirror{{Source: "q/x", Mirrors: []string{"m/x"}}}},
		{"without a source, and of other shapes", []string{set("a", "{mirrors: [m/x]}, 5, {source: 7}"), "kind: ImageDigestMirrorSet\nmetadata: {name: b}\nspec: 5\n"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, mirrors(objects(t, tt.sets...))); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// nodeOf is a Node whose annotations are under oneboot.dev/ where they have no prefix.
func nodeOf(created time.Time, annotations ...string) metav1.PartialObjectMetadata {
	n := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created),
		Labels: map[string]string{"kubernetes.io/arch": "amd64"}, Annotations: map[string]string{"machineconfiguration.openshift.io/currentConfig": "rendered-worker-1"}}}
	for _, a := range annotations {
		key, value, _ := strings.Cut(a, "=")
		if !strings.Contains(key, "/") {
			key = "oneboot.dev/" + key
		}
		n.Annotations[key] = value
	}
	return n
}

func TestLearned(t *testing.T) {
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	booted := func(version, commit, layers string) metav1.PartialObjectMetadata {
		return nodeOf(time.Time{}, "booted-version="+version, "booted-commit="+commit, "booted-layers="+layers)
	}
	tests := []struct {
		name  string
		nodes []metav1.PartialObjectMetadata
		want  fleet.Table
	}{
		{"two that agree", []metav1.PartialObjectMetadata{booted("1", a, "0"), booted("1", a, "0")}, fleet.Table{"1/amd64": {Commit: a}}},
		{"two that do not", []metav1.PartialObjectMetadata{booted("1", a, "0"), booted("1", b, "0"), booted("1", a, "0"), booted("2", b, "0")}, fleet.Table{"2/amd64": {Commit: b}}},
		{"layers upon the commit", []metav1.PartialObjectMetadata{booted("1", a, "3")}, fleet.Table{}},
		{"layers that are not known", []metav1.PartialObjectMetadata{nodeOf(time.Time{}, "booted-version=1", "booted-commit="+a)}, fleet.Table{}},
		{"no commit, no version", []metav1.PartialObjectMetadata{booted("1", "", "0"), booted("", a, "0"), booted("1", "xyz", "0")}, fleet.Table{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, learned(tt.nodes)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestHistory(t *testing.T) {
	since := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	after, before := since.Add(time.Hour), since.Add(-time.Hour)
	set := func(name string) forecast.Source {
		return forecast.Source{Kind: "MachineSet", Namespace: "ns", Name: name, Pool: "worker"}
	}
	tests := []struct {
		name            string
		sources         []forecast.Source
		outcome         forecast.Outcome
		nodes           []metav1.PartialObjectMetadata
		true, otherwise int32
	}{
		{"by the machine", []forecast.Source{set("w"), set("w-b")}, forecast.Skip, []metav1.PartialObjectMetadata{
			nodeOf(after, "pivot=skipped", "machine.openshift.io/machine=ns/w-x1"), nodeOf(after, "pivot=done", "machine.openshift.io/machine=ns/w-x2"),
			nodeOf(after, "pivot=skipped", "machine.openshift.io/machine=ns/w-b-x3"), nodeOf(after, "pivot=skipped", "machine.openshift.io/machine=other/w-x4")}, 1, 1},
		{"the pool's only source", []forecast.Source{set("w")}, forecast.PivotFull, []metav1.PartialObjectMetadata{nodeOf(after, "pivot=done"), nodeOf(after, "pivot=skipped")}, 1, 1},
		{"one of two sources", []forecast.Source{set("w"), set("v")}, forecast.PivotFull, []metav1.PartialObjectMetadata{nodeOf(after, "pivot=done")}, 0, 0},
		{"made before", []forecast.Source{set("w")}, forecast.Skip, []metav1.PartialObjectMetadata{nodeOf(before, "pivot=skipped"), nodeOf(since, "pivot=skipped")}, 0, 0},
		{"nobody knows", []forecast.Source{set("w")}, forecast.Skip, []metav1.PartialObjectMetadata{nodeOf(after, "pivot=unknown"), nodeOf(after), nodeOf(after, "pivot=yes")}, 0, 0},
		{"nothing was promised", []forecast.Source{set("w")}, forecast.Unknown, []metav1.PartialObjectMetadata{nodeOf(after, "pivot=done")}, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := history(tt.nodes, tt.sources)
			cameTrue, otherwise := j.since(forecast.Forecast{Source: tt.sources[0], Outcome: tt.outcome}, since)
			if cameTrue != tt.true || otherwise != tt.otherwise {
				t.Errorf("%d as forecast and %d otherwise, want %d and %d", cameTrue, otherwise, tt.true, tt.otherwise)
			}
		})
	}
	all := history([]metav1.PartialObjectMetadata{nodeOf(after, "pivot=done"), nodeOf(after, "pivot=skipped"), nodeOf(after, "pivot=unknown")}, nil)
	if diff := cmp.Diff(map[string]v1alpha1.Observed{"worker": {Skipped: 1, Done: 1, Unknown: 1}}, all.observed); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestWants(t *testing.T) {
	all := wants{}
	const os = "q/os@sha256:aa"
	all.add(image{os: os}, "pool b")
	all.add(image{os: "mirror/os@sha256:aa", extensions: "q/e@sha256:ee", release: "q/r@sha256:rr"}, "update 1")
	all.add(image{os: os, toolkit: "q/t@sha256:tt"}, "")
	all.add(image{os: "q/os:tag"}, "pool c")
	want := wants{"sha256:aa": {image: image{os: "mirror/os@sha256:aa", extensions: "q/e@sha256:ee", toolkit: "q/t@sha256:tt"}, users: []string{"pool b", "update 1"}, releases: []string{"q/r@sha256:rr"}}}
	if diff := cmp.Diff(want, all, cmp.AllowUnexported(*all["sha256:aa"], image{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
