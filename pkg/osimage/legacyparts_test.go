package osimage

import (
	"context"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/registry"
)

// A failure in the middle of a large layer costs a request and no byte twice,
// and a registry without ranges sends the layer once more at most.
func TestLegacyParts(t *testing.T) {
	t.Parallel()
	commit := commitBytes(7)
	tarball := makeTar(t, file("extensions/a.rpm", noise(9<<20)), legacyEntry(commit), file("extensions/b.rpm", noise(2<<20)))
	blob := compress(t, gz, tarball)
	all := int64(len(blob)) + 4096 // and manifest and config
	dropOnce := func(path *regexp.Regexp) *registry.Fault {
		return &registry.Fault{Path: path, Skip: 1, Times: 1, Do: registry.Truncate(400_000)}
	}
	noRanges := func(path *regexp.Regexp) *registry.Fault { return &registry.Fault{Path: path, Do: ignoreRange} }
	tests := []struct {
		name     string
		label    bool
		fault    func(layer *regexp.Regexp) *registry.Fault
		requests int
		bytes    int64
	}{
		{"label", true, nil, 3 + 6, all},
		{"label, a part is cut", true, dropOnce, 3 + 7, all}, // and goes on where it was cut
		{"label, no ranges", true, noRanges, 3 + 3, all + firstPart},
		{"no label", false, nil, 3 + 2, all},
		{"no label, a part is cut", false, dropOnce, 3 + 3, all},
		{"no label, no ranges", false, noRanges, 3 + 3, all + largeLayerPart},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := startRegistry(t, registry.Options{})
			s := spec{how: gz, tars: [][]byte{tarball}, blobs: [][]byte{blob}}
			source := verdict.CommitFromLayer
			if tt.label {
				s.labels, source = legacyLabel(commit), verdict.CommitFromLegacyRepo
			}
			b := s.build(t)
			ref := push(t, r, b)
			if tt.fault != nil {
				r.AddFault(tt.fault(regexp.MustCompile(sum(b.blobs[0]))))
			}
			c := loadConfig(t, map[string]string{registriesConf: insecure(r), policyPath: acceptAnything}, ConfigOptions{Retry: true})
			img := openImage(t, ref, c)
			got, err := img.InnerCommit(t.Context(), "")
			if err != nil || got != wantCommit(commit, source) {
				t.Fatalf("got %v, %v", got, err)
			}
			if cost := img.Transfer(); cost.Requests != tt.requests || cost.Bytes > tt.bytes {
				t.Errorf("got %+v; want %d requests and at most %d bytes", cost, tt.requests, tt.bytes)
			}
		})
	}
	t.Run("hangs", func(t *testing.T) {
		r := startRegistry(t, registry.Options{})
		b := spec{how: gz, tars: [][]byte{tarball}, blobs: [][]byte{blob}}.build(t)
		ref := push(t, r, b)
		r.AddFault(&registry.Fault{Path: regexp.MustCompile(sum(b.blobs[0])), Skip: 1, Do: func(_ http.ResponseWriter, req *http.Request, _ http.Handler) { <-req.Context().Done() }})
		img := openImage(t, ref, configFor(t, r, nil))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := img.InnerCommit(ctx, ""); CodeOf(err) != Timeout || time.Since(start) > 10*time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}
