package osimage

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// Layers after ostree.final-diffid are counted only where there is no doubt.
func TestDerivedLayers(t *testing.T) {
	d := func(s string) verdict.Digest { return verdict.Digest("sha256:" + sum([]byte(s))) }
	ds := func(names ...string) (l []verdict.Digest) {
		for _, n := range names {
			l = append(l, d(n))
		}
		return l
	}
	tests := []struct {
		name    string
		diffIDs []verdict.Digest
		layers  []verdict.Digest // those of the diff ids where nil
		label   string
		want    int // -1 is unknown
	}{
		{"not derived", ds("a", "b", "c"), nil, string(d("c")), 0},
		{"one layer", ds("a"), nil, string(d("a")), 0},
		{"derived", ds("a", "b", "c", "d"), nil, string(d("b")), 2},
		{"squashed", ds("x"), nil, string(d("b")), -1},
		{"machine-os-content", ds("a", "b"), nil, "", 0},
		{"machine-os-content, more layers", ds("a", "b"), ds("1", "2", "3"), "", -1},
		{"label is a version", ds("a"), nil, "4.16", -1},
		{"label in capitals", ds("a"), nil, "SHA256:" + sum([]byte("a")), -1},
		{"final layer twice", ds("a", "b", "b"), nil, string(d("b")), -1},
		{"final layer's blob twice", ds("a", "b", "c"), ds("1", "2", "2"), string(d("b")), -1},
		{"another layer twice", ds("a", "a", "b"), nil, string(d("b")), 0},
		{"more layers", ds("a", "b"), ds("1", "2", "3"), string(d("b")), -1},
		{"fewer layers", ds("a", "b"), ds("1"), string(d("b")), -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := format.ImageConfig{Architecture: "amd64", DiffIDs: tt.diffIDs, Labels: map[string]string{}}
			if tt.label != "" {
				c.Labels[LabelFinalDiffID] = tt.label
			}
			layers := tt.layers
			if layers == nil {
				layers = tt.diffIDs
			}
			var m Manifest
			for _, l := range layers {
				m.Layers = append(m.Layers, verdict.Layer{Digest: l})
			}
			var id verdict.Identity
			configFacts(&id, c, nil, verdict.Known(m))
			n, ok := id.DerivedLayers.Get()
			if !ok {
				n = -1
			}
			if n != tt.want || !id.DerivedLayers.Gathered() {
				t.Errorf("got %d (%s), want %d", n, id.DerivedLayers.Why(), tt.want)
			}
			if final, ok := id.FinalDiffID.Get(); ok && string(final) != tt.label {
				t.Errorf("final diff id %q, label %q", final, tt.label)
			}
		})
	}
}

// What an image says of itself is its identity.
func TestIdentity(t *testing.T) {
	b := spec{how: gz, tars: [][]byte{makeTar(t), makeTar(t, file("a", nil))}, arch: "s390x", labels: map[string]string{
		"org.opencontainers.image.version": "418.1", "version": "8.9", LabelKernel: "5.14.0-427.el9.s390x",
	}}.build(t)
	m, err := parseManifest(rawManifest{bytes: b.manifest, mediaType: b.mediaType, digest: verdict.Digest(b.digest)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseConfig(b.config)
	if err != nil {
		t.Fatal(err)
	}
	var id verdict.Identity
	configFacts(&id, c, nil, verdict.Known(m))
	arch, _ := id.Architecture.Get()
	final, _ := id.FinalDiffID.Get()
	diffIDs, _ := id.DiffIDs.Get()
	got := []any{arch, string(final), id.Version, id.KernelRelease, len(diffIDs)}
	if diff := cmp.Diff(got, []any{"s390x", "", "418.1", "5.14.0-427.el9.s390x", 2}); diff != "" {
		t.Errorf("got-, want+:\n%s", diff)
	}
	delete(c.Labels, "org.opencontainers.image.version")
	c.Labels[LabelKernel] = "true"
	id = verdict.Identity{}
	configFacts(&id, c, nil, verdict.Known(m))
	if id.Version != "8.9" || id.KernelRelease != "" {
		t.Errorf("got version %q, kernel %q", id.Version, id.KernelRelease)
	}
}

func TestConfigRefused(t *testing.T) {
	diff := `"architecture":"arm64","rootfs":{"diff_ids":["sha256:` + sum(nil) + `"]}`
	tests := []struct {
		name, config string
		ok           bool
	}{
		{"least", `{` + diff + `}`, true},
		{"empty", ``, false},
		{"page", `<html>`, false},
		{"no diff ids", `{"architecture":"arm64","rootfs":{}}`, false},
		{"no architecture", `{"rootfs":{"diff_ids":["sha256:` + sum(nil) + `"]}}`, false},
		{"a key in another case", `{"Architecture":"amd64",` + diff + `}`, false},
		{"null", `null`, false},
		{"diff id of another kind", `{"architecture":"arm64","rootfs":{"diff_ids":["sha512:` + sum(nil) + sum(nil) + `"]}}`, false},
		{"labels of numbers", `{"config":{"Labels":{"a":1}},` + diff + `}`, false},
		{"another system", `{"os":"windows",` + diff + `}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := parseConfig([]byte(tt.config)); (err == nil) != tt.ok {
				t.Errorf("got %v, want ok %v", err, tt.ok)
			}
		})
	}
}
