package format

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/verdict"
)

func storedDigest(c string) verdict.Digest {
	return verdict.Digest("sha256:" + strings.Repeat(c, 64))
}

func TestParseStoredManifest(t *testing.T) {
	got, err := ParseStoredManifest([]byte(`{"config":{"digest":"` + storedDigest("c") + `"},"layers":[{"digest":"` + storedDigest("1") + `"},{"digest":"` + storedDigest("2") + `"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := StoredManifest{Config: storedDigest("c"), Layers: []verdict.Digest{storedDigest("1"), storedDigest("2")}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
	for _, bad := range []string{
		"", "null", "[]", "{}", `{"config":{"digest":"x"},"layers":[{"digest":"` + string(storedDigest("1")) + `"}]}`,
		`{"config":{"digest":"` + string(storedDigest("c")) + `"},"layers":[{"digest":"sha512:0"}]}`,
		`{"layers":[` + strings.Repeat("{},", maxStoredLayers) + `{}]}`, strings.Repeat(" ", maxStoredJSON+1),
	} {
		if got, err := ParseStoredManifest([]byte(bad)); err == nil {
			t.Errorf("no error for %.80q: %+v", bad, got)
		}
	}
}

func TestImageConfig(t *testing.T) {
	diffIDs := `"rootfs":{"diff_ids":["` + string(storedDigest("1")) + `","` + string(storedDigest("2")) + `","` + string(storedDigest("2")) + `"]}`
	tests := []struct {
		name, labels string
		layers       int
		final        verdict.Digest
		derived      int // -1 for unknown
	}{
		{"none", `{}`, 3, "", -1},
		{"first", `{"ostree.final-diffid":"` + string(storedDigest("1")) + `"}`, 3, storedDigest("1"), 2},
		{"twice there", `{"ostree.final-diffid":"` + string(storedDigest("2")) + `"}`, 3, storedDigest("2"), -1},
		{"not there", `{"ostree.final-diffid":"` + string(storedDigest("3")) + `"}`, 3, storedDigest("3"), -1},
		{"other number of layers", `{"ostree.final-diffid":"` + string(storedDigest("1")) + `"}`, 2, storedDigest("1"), -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := ParseImageConfig([]byte(`{"architecture":"arm64","config":{"Labels":` + tt.labels + `},` + diffIDs + `}`))
			if err != nil {
				t.Fatal(err)
			}
			if final, ok := c.FinalDiffID().Get(); !ok || final != tt.final {
				t.Errorf("FinalDiffID = %q, %t", final, ok)
			}
			derived, ok := c.DerivedLayers(tt.layers).Get()
			if ok != (tt.derived >= 0) || ok && derived != tt.derived {
				t.Errorf("DerivedLayers = %d, %t, want %d", derived, ok, tt.derived)
			}
		})
	}
	for _, bad := range []string{"", "null", "{}", `{"architecture":"amd64"}`, "{" + diffIDs + "}", `{"architecture":"a","rootfs":{"diff_ids":["x"]}}`, `{"architecture":1}`} {
		if got, err := ParseImageConfig([]byte(bad)); err == nil {
			t.Errorf("no error for %q: %+v", bad, got)
		}
	}
}

func FuzzParseStoredImage(f *testing.F) {
	f.Add([]byte(`{"architecture":"amd64","config":{"digest":"` + string(storedDigest("c")) + `","Labels":{"ostree.final-diffid":"x"}},"layers":[{"digest":"` + string(storedDigest("1")) + `"}],"rootfs":{"diff_ids":["` + string(storedDigest("1")) + `"]}}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseStoredManifest(b)
		if err == nil && (m.Config == "" || len(m.Layers) == 0) {
			t.Errorf("manifest = %+v", m)
		}
		c, err := ParseImageConfig(b)
		if err == nil && (c.Architecture == "" || len(c.DiffIDs) == 0) {
			t.Errorf("config = %+v", c)
		}
		if n, ok := c.DerivedLayers(len(c.DiffIDs)).Get(); ok && (n < 0 || n >= len(c.DiffIDs)) {
			t.Errorf("%d derived layers", n)
		}
	})
}
