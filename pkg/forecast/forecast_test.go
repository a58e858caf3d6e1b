package forecast

import (
	"testing"

	"pgregory.net/rapid"
)

const digest = "sha256:aaaa"

func target(edit func(*Target)) *Target {
	t := &Target{Pool: "worker", OSImage: "quay.io/os@" + digest, Release: "4.16.3", Version: "416.94.202410160352-0"}
	if edit != nil {
		edit(t)
	}
	return t
}

func source(version string, facts *Content) Source {
	return Source{Kind: "MachineSet", Name: "a", Pool: "worker", Flow: FlowBootimage, Bootimage: Bootimage{ID: "ami-1", Version: version, Facts: facts}}
}

func TestOf(t *testing.T) {
	const v416, v413, v49 = "416.94.202410160352-0", "413.92.202307260246-0", "49.84.202109102026-0"
	image := func(edit func(*Image)) func(*Target) {
		return func(t *Target) {
			t.Image = &Image{Content: Content{Commit: "c1", ManifestDigest: digest, ConfigDigest: "cd", Kernel: "k1"}, Bytes: 1000, DerivedBytes: 200, DerivedLayers: 2}
			if edit != nil {
				edit(t.Image)
			}
		}
	}
	of419 := func(more func(*Target)) func(*Target) {
		return func(t *Target) {
			t.Release, t.Version = "4.19.3", "9.6.20251212-1"
			if more != nil {
				more(t)
			}
		}
	}
	node := Source{Kind: "InfraEnv", Pool: "worker", Flow: FlowNodeImage}
	tests := []struct {
		name   string
		source Source
		target *Target
		want   Outcome
		reason Reason
		sure   Confidence
		bytes  int64 // -1 for not known
	}{
		{"no target", source(v416, nil), nil, Unknown, ReasonNoTarget, NotKnown, -1},
		{"nothing known of the disk", source("", nil), target(nil), Unknown, ReasonNoBootimage, NotKnown, -1},
		{"a flow that is not known", Source{Flow: FlowUnknown, Bootimage: Bootimage{Version: v416}}, target(nil), Unknown, ReasonNoBootimage, NotKnown, -1},
		{"the manifest's digest", source(v416, &Content{ManifestDigest: digest}), target(nil), Skip, ReasonSameContent, Exact, 0},
		{"the config's digest", source(v416, &Content{ConfigDigest: "cd"}), target(image(nil)), Skip, ReasonSameContent, Exact, 0},
		{"the commit", source(v416, &Content{Commit: "c1"}), target(image(nil)), Skip, ReasonSameContent, Exact, 0},
		{"the commit, layers on the target", source(v416, &Content{Commit: "c1"}), target(image(func(i *Image) { i.Derived = true })), PivotLayers, ReasonSameBase, Exact, 200},
		{"the commit, layers on the disk", source(v416, &Content{Commit: "c1", Derived: true}), target(image(nil)), PivotFull, ReasonOtherContent, Exact, 1000},
		{"another commit", source(v416, &Content{Commit: "c2"}), target(image(nil)), PivotFull, ReasonOtherContent, Exact, 1000},
		{"a commit, and no image to compare with", source(v416, &Content{Commit: "c1"}), target(nil), Unknown, ReasonSameVersion, NotKnown, -1},
		{"the same version", source(v416, nil), target(nil), Unknown, ReasonSameVersion, NotKnown, -1},
		{"another version", source(v413, nil), target(nil), PivotFull, ReasonOtherVersion, Inferred, -1},
		{"no version of the target", source(v416, nil), target(func(t *Target) { t.Version = "" }), Unknown, ReasonOtherVersion, NotKnown, -1},
		{"4.19, the same version", source("9.6.20251212-1", nil), target(of419(nil)), PivotLayers, ReasonSameBase, Inferred, -1},
		{"4.19, another version", source("9.6.20250101-0", nil), target(of419(image(nil))), PivotFull, ReasonNoPayload, Inferred, 1000},
		{"another major", source("9.6.20250101-0", nil), target(of419(func(t *Target) { t.Version = "10.2.20260101-0" })), PivotCrossMajor, ReasonOtherMajor, Inferred, -1},
		{"another major, by the image", source("9.6.20250101-0", nil), target(of419(image(func(i *Image) { i.RHEL = "10.2" }))), PivotCrossMajor, ReasonOtherMajor, Inferred, 1000},
		{"of 4.9", source(v49, nil), target(nil), Impossible, ReasonBelowFloor, Inferred, -1},
		{"of 4.12", source("412.86.202301311551-0", nil), target(nil), DoubleReboot, ReasonOldRPMOSTree, Inferred, -1},
		{"of 4.12, for 4.12", source("412.86.202301311551-0", nil), target(func(t *Target) { t.Release, t.Version = "4.12.9", "412.86.202302091419-0" }), PivotFull, ReasonOtherVersion, Inferred, -1},
		{"a manifest list and an old skopeo", source("9.6.20250101-0", nil), target(func(t *Target) {
			image(func(i *Image) { i.List = true })(t)
			t.Release, t.Version = "4.22.1", "9.8.20260101-0"
		}), DoubleReboot, ReasonOldSkopeo, Inferred, 1000},
		{"the node image", node, target(of419(nil)), Skip, ReasonNodeImage, Inferred, 0},
		{"the node image and extensions", node, target(of419(func(t *Target) { t.Extensions = []string{"usbguard"} })), PivotLayers, ReasonExtensions, Inferred, -1},
		{"the node image and realtime", node, target(of419(func(t *Target) { t.KernelType = "realtime" })), PivotLayers, ReasonKernelType, Inferred, -1},
		{"the node image and arguments", node, target(of419(func(t *Target) { t.KernelArguments = []string{"a"} })), Skip, ReasonNodeImage, Inferred, 0},
		{"the node image in a layered pool", node, target(of419(func(t *Target) { t.Layered = true })), PivotLayers, ReasonLayeredPool, Inferred, -1},
		{"the content, and arguments", source(v416, &Content{ManifestDigest: digest}), target(func(t *Target) { t.KernelArguments = []string{"a"} }), PivotLayers, ReasonKernelArguments, Exact, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := Of(tt.source, tt.target)
			if f.Outcome != tt.want || f.Reason != tt.reason || f.Confidence != tt.sure {
				t.Errorf("got %s, %s, %s; want %s, %s, %s", f.Outcome, f.Reason, f.Confidence, tt.want, tt.reason, tt.sure)
			}
			bytes := int64(-1)
			if f.Bytes != nil {
				bytes = *f.Bytes
			}
			if bytes != tt.bytes {
				t.Errorf("%d bytes; want %d", bytes, tt.bytes)
			}
			if f.Why == "" || (f.Change == "") != (f.Outcome == Skip) {
				t.Errorf("why %q, change %q", f.Why, f.Change)
			}
		})
	}
}

// No version string makes a skip: without content, only the flow that writes the
// node image does.
func TestNeverByVersion(t *testing.T) {
	versions := rapid.SampledFrom([]string{"", "416.94.202410160352-0", "9.6.20251212-1", "10.2.20260101-0", "49.84.202109102026-0", "x", "9.6"})
	releases := rapid.SampledFrom([]string{"", "4.12.1", "4.16.3", "4.19.0", "4.22.1", "5.0.0", "x"})
	rapid.Check(t, func(t *rapid.T) {
		s := Source{Flow: rapid.SampledFrom([]Flow{FlowBootimage, FlowCustomImage, FlowUnknown}).Draw(t, "flow"),
			Bootimage: Bootimage{ID: "x", Version: versions.Draw(t, "have")}}
		tg := &Target{OSImage: "q/os@" + digest, Version: versions.Draw(t, "want"), Release: releases.Draw(t, "release")}
		if rapid.Bool().Draw(t, "asked") {
			tg.Image = &Image{Content: Content{ManifestDigest: digest, ConfigDigest: "c", Commit: "d", Derived: rapid.Bool().Draw(t, "derived")}, List: rapid.Bool().Draw(t, "list")}
		}
		if rapid.Bool().Draw(t, "facts") {
			// Content that has nothing in common with the target's.
			s.Bootimage.Facts = &Content{ManifestDigest: "sha256:b", Commit: rapid.SampledFrom([]string{"", "e"}).Draw(t, "commit")}
		}
		if f := Of(s, tg); f.Outcome == Skip {
			t.Fatalf("%+v for %+v, %+v", f, s, tg)
		}
	})
}
