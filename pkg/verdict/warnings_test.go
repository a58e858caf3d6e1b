package verdict

import (
	"strings"
	"testing"
)

func TestForecastWarnings(t *testing.T) {
	zstd, gzip := Layer{Digest: "sha256:1", Zstd: true}, Layer{Digest: "sha256:2"}
	packages := func(evra ...string) Fact[[]Package] {
		var list []Package
		for _, e := range evra {
			list = append(list, Package{Name: "rpm-ostree", EVRA: e})
		}
		return Known(list)
	}
	tests := []struct {
		name     string
		packages Fact[[]Package]
		layers   Fact[[]Layer]
		blobs    map[Digest]bool
		want     string // part of the one warning; empty where there is none
	}{
		{"no manifest read", packages("2024.3-1.el9.x86_64"), Fact[[]Layer]{}, nil, ""},
		{"gzip alone", packages("2024.3-1.el9.x86_64"), Known([]Layer{gzip}), nil, ""},
		{"zstd, old", packages("2024.5-1.el9.x86_64"), Known([]Layer{zstd, gzip}), nil, "this host has 2024.5-1.el9.x86_64"},
		{"zstd, new enough", packages("2024.6-1.el9.x86_64"), Known([]Layer{zstd, gzip}), nil, ""},
		{"zstd, next year", packages("2025.1-1.el9.x86_64"), Known([]Layer{zstd}), nil, ""},
		{"zstd, an odd version", packages("2024.3.12.gabc-1.fc40.x86_64"), Known([]Layer{zstd}), nil, "2024.3.12"},
		{"zstd, two versions", packages("2024.6-1.el9.x86_64", "2024.7-1.el9.x86_64"), Known([]Layer{zstd}), nil, "2024.6-1.el9.x86_64 2024.7"},
		{"zstd, no rpm-ostree", packages(), Known([]Layer{zstd}), nil, "not installed"},
		{"zstd, unknown packages", Fact[[]Package]{}, Known([]Layer{zstd}), nil, "not known"},
		{"zstd, the host has the layer", packages("2024.3-1.el9.x86_64"), Known([]Layer{zstd, gzip}), map[Digest]bool{zstd.Digest: true}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := forecastWarnings(Booted{Packages: tt.packages, Blobs: tt.blobs}, Target{ManifestLayers: tt.layers})
			if tt.want == "" && len(got) != 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
