package rpmostree

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// cmpFact compares facts by value, or by the reason that there is none.
func cmpFact[T any]() cmp.Option {
	return cmp.Transformer("fact", func(f verdict.Fact[T]) any {
		if v, ok := f.Get(); ok {
			return v
		}
		return "unknown: " + f.Why()
	})
}

func diffBooted(want, got verdict.Booted) string {
	return cmp.Diff(want, got,
		cmpFact[string](), cmpFact[verdict.Digest](), cmpFact[[]verdict.Digest](), cmpFact[int](), cmpFact[verdict.InnerCommit](),
		cmpFact[verdict.Deployment](), cmpFact[[]string](), cmpFact[bool](), cmpFact[verdict.NodePayload](), cmpFact[verdict.NetworkState](), cmpFact[[]verdict.Package]())
}

func imageIdentity() verdict.Identity {
	return verdict.Identity{
		Architecture:   verdict.Known("amd64"),
		Version:        "418.94.202410211616-0",
		ManifestDigest: verdict.Known(digest("d")),
		ConfigDigest:   verdict.Known(digest("c")),
		DiffIDs:        verdict.Known([]verdict.Digest{digest("4"), digest("5"), digest("6")}),
		Layers:         verdict.Known(3),
		FinalDiffID:    verdict.Known(digest("5")),
		DerivedLayers:  verdict.Known(1),
		InnerCommit:    verdict.Known(verdict.InnerCommit{Checksum: sum("e"), Source: verdict.CommitFromLabel}),
		KernelRelease:  "5.14.0-427.el9.x86_64",
	}
}

func TestFactsOfFiles(t *testing.T) {
	const image = "quay.io/openshift-release-dev/ocp-v4.0-art-dev@sha256:dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd"
	container := verdict.Booted{
		Architecture: verdict.Known("amd64"),
		Identity:     imageIdentity(),
		Deployment: verdict.Known(verdict.Deployment{
			Checksum: sum("a"), Stateroot: "rhcos", Kind: verdict.ContainerImage, Timestamp: 1729527641, Unseen: unseen,
		}),
		OriginReference: verdict.Known(image),
	}
	plain := verdict.UnknownIdentity("the deployment was not made from a container image")
	plain.Version, plain.KernelRelease, plain.DerivedLayers = "47.0", "4.18.0-240.el8.x86_64", verdict.Known(0)
	plain.InnerCommit = verdict.Known(verdict.InnerCommit{Checksum: sum("f"), Source: verdict.CommitFromDeployment, Timestamp: 1729527641})
	tests := []struct {
		file string
		want verdict.Booted
	}{
		{"container.json", container},
		{"container-objects.json", container},
		{"pivot.json", verdict.Booted{
			Architecture: verdict.Unknown[string]("base-commit-meta names no architecture that is known"),
			Identity:     plain,
			Deployment: verdict.Known(verdict.Deployment{
				Checksum: sum("f"), Serial: 1, Stateroot: "rhcos", Kind: verdict.PlainCommit, Timestamp: 1729527641, Unseen: unseen,
				Divergences: []verdict.Divergence{{Kind: verdict.NotDefault, Detail: "rhcos-" + string(sum("b")) + ".0 boots next"}},
			}),
			OriginReference: verdict.Known("quay.io/example/os@" + string(digest("8"))),
		}},
		{"layered.json", verdict.Booted{
			Architecture: verdict.Known("amd64"),
			Identity:     imageIdentity(),
			Deployment: verdict.Known(verdict.Deployment{
				Checksum: sum("9"), Stateroot: "rhcos", Kind: verdict.ClientLayered, Timestamp: 1729527641, Unseen: unseen,
				Divergences: []verdict.Divergence{
					{Kind: verdict.Staged, Detail: "rhcos-" + string(sum("b")) + ".0"},
					{Kind: verdict.Staged, Detail: "rpm-ostree was at work on a transaction"},
					{Kind: verdict.Unlocked, Detail: "transient"},
					{Kind: verdict.LiveApplied, Detail: "live-replaced: " + string(sum("7"))},
					{Kind: verdict.LiveApplied, Detail: "live-inprogress: " + string(sum("8"))},
					{Kind: verdict.PackageOverride, Detail: "requested-base-remote-replacements: repo=x"},
					{Kind: verdict.PackageOverride, Detail: "base-local-replacements: new-1-1.x86_64"},
					{Kind: verdict.PackageOverride, Detail: "base-remote-replacements: repo=x"},
					{Kind: verdict.InitramfsRegenerated, Detail: "regenerate-initramfs"},
					{Kind: verdict.InitramfsRegenerated, Detail: "initramfs-args: --force"},
					{Kind: verdict.InitramfsRegenerated, Detail: "initramfs-etc: /etc/crypttab"},
					{Kind: verdict.LocalAssembly, Detail: "cliwrap"},
					{Kind: verdict.LocalAssembly, Detail: "modules: foo:1"},
				},
				RequestedPackages: []string{"kernel-rt-core", "usbguard", "zsh-5.8-9.el9.x86_64"},
				RequestedRemovals: []string{"kernel", "kernel-core"},
				LayeredPackages:   []string{"kernel-rt-core", "usbguard"},
				RemovedPackages:   []string{"kernel-core"},
				Base:              verdict.Base{Checksum: sum("a"), Kind: verdict.ContainerImage},
			}),
			OriginReference: verdict.Known(image),
		}},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			if diff := diffBooted(tt.want, load(t, tt.file).Facts()); diff != "" {
				t.Errorf("facts (-want +got):\n%s", diff)
			}
		})
	}
}

// facts parses a status of one deployment.
func facts(t *testing.T, change map[string]any) verdict.Booted {
	t.Helper()
	s, err := Parse([]byte(status(t, change)))
	if err != nil {
		t.Fatal(err)
	}
	return s.Facts()
}

func TestOriginReference(t *testing.T) {
	type m = map[string]any
	const pivot = "pivot://quay.io/a/b:c"
	tests := []struct {
		name   string
		change m
		want   string
		why    string // where it is unknown
	}{
		{"refspec", nil, "", ""},
		{"pivot", m{"custom-origin": []string{pivot, ""}}, "quay.io/a/b:c", ""},
		{"custom-origin for show", m{"custom-origin": []string{"quay.io/a/b:c", "mine"}}, "", ""},
		{"container wins", m{"origin": nil, "custom-origin": []string{pivot, ""}, "container-image-reference": "ostree-image-signed:docker://quay.io/x/y:z"}, "quay.io/x/y:z", ""},
		{"archive", m{"origin": nil, "container-image-reference": "ostree-image-signed:oci-archive:/rhcos.ociarchive"}, "/rhcos.ociarchive", ""},
		{"malformed", m{"origin": nil, "container-image-reference": "quay.io/x/y:z"}, "", "container-image-reference: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fact := facts(t, tt.change).OriginReference
			got, ok := fact.Get()
			if got != tt.want || ok != (tt.why == "") || !strings.HasPrefix(fact.Why(), tt.why) {
				t.Errorf("OriginReference = %q, %t, %q", got, ok, fact.Why())
			}
		})
	}
}

func TestIdentityOfDoubtfulImages(t *testing.T) {
	type m = map[string]any
	image := m{"origin": nil, "container-image-reference": "ostree-unverified-registry:quay.io/x/y:z"}
	with := func(change m) m {
		out := m{}
		for k, v := range image {
			out[k] = v
		}
		for k, v := range change {
			out[k] = v
		}
		return out
	}
	alone := with(m{"base-commit-meta": nil})
	meta := func(change m) m { return with(m{"base-commit-meta": change}) }
	const stored = `{"config":{"digest":"sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"},"layers":[{"digest":"sha256:1111111111111111111111111111111111111111111111111111111111111111"}]}`
	tests := []struct {
		name   string
		change m
		check  func(verdict.Identity) string // the reason of the fact that is of interest
		want   string
	}{
		{"reference alone", alone, func(i verdict.Identity) string { return i.ManifestDigest.Why() }, "container-image-reference-digest and ostree.manifest-digest are missing"},
		{"reference alone is no plain commit", alone, func(i verdict.Identity) string { return i.InnerCommit.Why() }, "base-commit-meta has no ostree.container.image-config"},
		{"metadata of no image", image, func(i verdict.Identity) string { return i.ManifestDigest.Why() }, "the deployment was not made from a container image"},
		{"two digests", with(m{"container-image-reference-digest": digest("1"), "base-commit-meta": m{"ostree.manifest-digest": digest("2")}}),
			func(i verdict.Identity) string { return i.ManifestDigest.Why() }, "container-image-reference-digest is " + string(digest("1")) + ", but ostree.manifest-digest is " + string(digest("2"))},
		{"stored digest alone", meta(m{"ostree.manifest-digest": digest("2")}), func(i verdict.Identity) string { return i.ManifestDigest.Why() }, ""},
		{"no manifest", meta(m{"ostree.manifest-digest": digest("2")}), func(i verdict.Identity) string { return i.ConfigDigest.Why() }, "base-commit-meta has no ostree.manifest"},
		{"broken manifest", meta(m{"ostree.manifest": "{"}), func(i verdict.Identity) string { return i.ConfigDigest.Why() }, "base-commit-meta: ostree.manifest: "},
		{"manifest encoded thrice", meta(m{"ostree.manifest": `"{}"`}), func(i verdict.Identity) string { return i.ConfigDigest.Why() }, "base-commit-meta: ostree.manifest: "},
		{"manifest without layers", meta(m{"ostree.manifest": `{"config":{"digest":"` + digest("c") + `"}}`}), func(i verdict.Identity) string { return i.Layers.Why() }, "base-commit-meta: ostree.manifest: "},
		{"broken config", meta(m{"ostree.container.image-config": "x"}), func(i verdict.Identity) string { return i.DiffIDs.Why() }, "base-commit-meta: ostree.container.image-config: "},
		{"config without diff ids", meta(m{"ostree.container.image-config": m{"architecture": "amd64"}}), func(i verdict.Identity) string { return i.DerivedLayers.Why() }, "base-commit-meta: ostree.container.image-config: "},
		{"config without manifest", meta(m{"ostree.container.image-config": m{"architecture": "amd64", "rootfs": m{"diff_ids": []verdict.Digest{digest("1")}}}}),
			func(i verdict.Identity) string { return i.DerivedLayers.Why() }, "the number of layers is not known: base-commit-meta has no ostree.manifest"},
		{"no label", meta(m{"ostree.manifest": stored, "ostree.container.image-config": m{"architecture": "amd64", "rootfs": m{"diff_ids": []verdict.Digest{digest("1")}}}}),
			func(i verdict.Identity) string { return i.DerivedLayers.Why() }, "the image has no label ostree.final-diffid"},
		{"malformed label", meta(m{"ostree.manifest": stored, "ostree.container.image-config": m{"architecture": "amd64", "config": m{"Labels": m{"ostree.final-diffid": "x"}}, "rootfs": m{"diff_ids": []verdict.Digest{digest("1")}}}}),
			func(i verdict.Identity) string { return i.FinalDiffID.Why() }, "label ostree.final-diffid: "},
		{"layers and diff ids differ", meta(m{"ostree.manifest": stored, "ostree.container.image-config": m{"architecture": "amd64", "config": m{"Labels": m{"ostree.final-diffid": digest("1")}}, "rootfs": m{"diff_ids": []verdict.Digest{digest("1"), digest("2")}}}}),
			func(i verdict.Identity) string { return i.DerivedLayers.Why() }, "the image has 1 layers and 2 diff ids"},
		{"label names no layer", meta(m{"ostree.manifest": stored, "ostree.container.image-config": m{"architecture": "amd64", "config": m{"Labels": m{"ostree.final-diffid": digest("2")}}, "rootfs": m{"diff_ids": []verdict.Digest{digest("1")}}}}),
			func(i verdict.Identity) string { return i.DerivedLayers.Why() }, "label ostree.final-diffid names 0 of the image's layers, want 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.check(facts(t, tt.change).Identity)
			if !strings.HasPrefix(got, tt.want) || (tt.want == "") != (got == "") {
				t.Errorf("reason = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDeploymentNeverLooksWholeFromAStatus(t *testing.T) {
	type m = map[string]any
	d, ok := facts(t, nil).Deployment.Get()
	if !ok || d.Unseen != unseen || len(d.Divergences) != 0 {
		t.Errorf("deployment = %+v, %t", d, ok)
	}
	d, _ = facts(t, m{"staged": nil, "unlocked": nil, "origin": nil}).Deployment.Get()
	if want := unseen + "; this one lacks staged, unlocked, origin"; d.Unseen != want {
		t.Errorf("Unseen = %q, want %q", d.Unseen, want)
	}
	d, _ = facts(t, m{"origin": ""}).Deployment.Get()
	if d.Unseen != unseen || len(d.Divergences) != 0 {
		t.Errorf("with an empty origin: %+v", d)
	}
	d, _ = facts(t, m{"container-image-reference": "ostree-unverified-registry:quay.io/x/y:z"}).Deployment.Get()
	if len(d.Divergences) != 1 || d.Divergences[0].Kind != verdict.OriginConflict {
		t.Errorf("with two identities: %+v", d.Divergences)
	}
	b := facts(t, m{"packages": []string{"zsh"}})
	if d, _ = b.Deployment.Get(); d.Kind != verdict.ClientLayered || b.Identity.InnerCommit.IsKnown() {
		t.Errorf("layered without base-checksum: %+v, %+v", d, b.Identity.InnerCommit)
	}
	b = facts(t, m{"base-checksum": sum("c")})
	if d, _ = b.Deployment.Get(); d.Base != (verdict.Base{Checksum: sum("c"), Kind: verdict.PlainCommit}) {
		t.Errorf("base = %+v", d.Base)
	}
	inner, _ := b.Identity.InnerCommit.Get()
	if want := (verdict.InnerCommit{Checksum: sum("c"), Source: verdict.CommitFromParent}); inner != want {
		t.Errorf("inner commit = %+v, want %+v", inner, want)
	}
}

// A status alone must never be enough for a skip, whatever it says.
func TestStatusAloneIsNoSkip(t *testing.T) {
	for _, file := range []string{"container.json", "container-objects.json", "pivot.json", "layered.json"} {
		b := load(t, file).Facts()
		v := verdict.Decide(b, verdict.Target{
			MachineConfig: verdict.Known(verdict.MachineConfig{
				OSImageURL: "quay.io/x/y@" + string(digest("d")), Digest: digest("d"), KernelType: "default",
			}),
		}, verdict.Policy{})
		if v.Action != verdict.Proceed {
			t.Errorf("%s: %+v", file, v)
		}
	}
}

func TestLayeringOfAStatus(t *testing.T) {
	type m = map[string]any
	tests := []struct {
		name   string
		change m
		want   verdict.Deployment
	}{
		{"nothing", nil, verdict.Deployment{Kind: verdict.PlainCommit}},
		{"null is nothing", m{"packages": json.RawMessage("null"), "base-removals": json.RawMessage("null")}, verdict.Deployment{Kind: verdict.PlainCommit}},
		{"requested but inactive", m{"requested-packages": []string{"b", "a"}, "requested-base-removals": []string{"z", "k"}},
			verdict.Deployment{Kind: verdict.PlainCommit, RequestedPackages: []string{"a", "b"}, RequestedRemovals: []string{"k", "z"}}},
		{"one in two lists", m{"requested-packages": []string{"a"}, "requested-local-packages": []string{"a", "b-1-1.noarch"}, "requested-local-fileoverride-packages": []string{"c-1-1.noarch"}},
			verdict.Deployment{Kind: verdict.PlainCommit, RequestedPackages: []string{"a", "b-1-1.noarch", "c-1-1.noarch"}}},
		{"layered on a commit", m{"packages": []string{"b", "a"}, "base-checksum": sum("c")},
			verdict.Deployment{Kind: verdict.ClientLayered, LayeredPackages: []string{"a", "b"}, Base: verdict.Base{Checksum: sum("c"), Kind: verdict.PlainCommit}}},
		{"layered on an image", m{"packages": []string{"a"}, "base-checksum": sum("c"), "base-commit-meta": m{"ostree.manifest-digest": digest("1")}},
			verdict.Deployment{Kind: verdict.ClientLayered, LayeredPackages: []string{"a"}, Base: verdict.Base{Checksum: sum("c"), Kind: verdict.ContainerImage}}},
		{"removed", m{"base-checksum": sum("c"), "base-removals": []any{[]any{"vi-2:1-1.x86_64", "vi", 2, "1", "1", "x86_64"}, []any{"ed-1-1.x86_64", "ed", 0, "1", "1", "x86_64"}}},
			verdict.Deployment{Kind: verdict.ClientLayered, RemovedPackages: []string{"ed", "vi"}, Base: verdict.Base{Checksum: sum("c"), Kind: verdict.PlainCommit}}},
		{"removed without a base", m{"base-removals": []any{[]any{"ed-1-1.x86_64", "ed"}}},
			verdict.Deployment{Kind: verdict.ClientLayered, RemovedPackages: []string{"ed"}, Base: verdict.Base{Kind: verdict.PlainCommit}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := facts(t, tt.change).Deployment.Get()
			tt.want.Checksum, tt.want.Stateroot, tt.want.Unseen = sum("a"), "rhcos", got.Unseen
			if diff := cmp.Diff(tt.want, got); diff != "" || !strings.HasPrefix(got.Unseen, unseen) {
				t.Errorf("deployment (-want +got):\n%s", diff)
			}
		})
	}
}

func TestArchitecture(t *testing.T) {
	for name, want := range map[string]string{"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x", "riscv64": "", "": "", "amd64": ""} {
		meta := map[string]any{"base-commit-meta": map[string]any{"coreos-assembler.basearch": name}}
		if got, ok := facts(t, meta).Architecture.Get(); got != want || ok != (want != "") {
			t.Errorf("%q: got %q, %t", name, got, ok)
		}
	}
	// An image says for itself what it is for.
	meta := map[string]any{"base-commit-meta": map[string]any{"coreos-assembler.basearch": "x86_64", "ostree.manifest-digest": digest("1")}}
	if got, ok := facts(t, meta).Architecture.Get(); ok {
		t.Errorf("an image without a config: got %q", got)
	}
}

// The booted deployment is found by its flag, wherever it stands.
func TestOrderOfDeployments(t *testing.T) {
	entry := func(change map[string]any) string {
		s := status(t, change)
		return s[len(`{"deployments":[`) : len(s)-2]
	}
	booted := entry(map[string]any{"serial": 1})
	staged := entry(map[string]any{"booted": false, "staged": true, "checksum": sum("b")})
	other := entry(map[string]any{"booted": false, "checksum": sum("c")})
	kinds := func(d verdict.Deployment) string {
		var out []string
		for _, v := range d.Divergences {
			out = append(out, string(v.Kind))
		}
		return strings.Join(out, " ")
	}
	tests := []struct {
		name string
		list []string
		want string
	}{
		{"alone", []string{booted}, ""},
		{"default", []string{booted, other}, ""},
		{"rolled back", []string{other, booted}, "not-default"},
		{"last of three", []string{staged, other, booted}, "staged not-default"},
		{"staged", []string{staged, booted, other}, "staged"},
		{"staged behind", []string{booted, other, staged}, "staged"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Parse([]byte(`{"deployments":[` + strings.Join(tt.list, ",") + `]}`))
			if err != nil {
				t.Fatal(err)
			}
			d, _ := s.Facts().Deployment.Get()
			if d.Checksum != sum("a") || d.Serial != 1 || kinds(d) != tt.want {
				t.Errorf("got %s.%d, %q; want %q", d.Checksum, d.Serial, kinds(d), tt.want)
			}
		})
	}
}
