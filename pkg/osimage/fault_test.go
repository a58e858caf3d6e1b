package osimage

import (
	"context"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/registry"
)

// ask gathers everything and returns the first error.
func ask(ctx context.Context, img *Image) error {
	_, err := img.InnerCommit(ctx, "")
	return err
}

// flood answers with a status and a document of 1 GiB.
func flood(status int) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.WriteHeader(status)
		b := make([]byte, 64<<10)
		for range 1 << 14 {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	}
}

// Each way in which a registry fails has its code, within the caller's time.
func TestFaults(t *testing.T) {
	manifests, blobs, ping := regexp.MustCompile("/manifests/"), regexp.MustCompile("/blobs/"), regexp.MustCompile("^/v2/$")
	b := native(t, commitBytes(7)).build(t)
	layer, config := regexp.MustCompile(sum(b.blobs[0])), regexp.MustCompile(sum(b.config))
	other := native(t, commitBytes(9)).build(t)
	hang := func(_ http.ResponseWriter, req *http.Request, _ http.Handler) { <-req.Context().Done() }
	tests := []struct {
		name  string
		fault registry.Fault
		want  Code
	}{
		{"ping hangs", registry.Fault{Path: ping, Do: hang}, Timeout},
		{"manifest hangs", registry.Fault{Path: manifests, Do: hang}, Timeout},
		{"layer hangs", registry.Fault{Path: layer, Do: hang}, Timeout},
		{"401", registry.Fault{Path: manifests, Do: registry.Status(401, nil)}, RegistryUnauthorized},
		{"403", registry.Fault{Path: manifests, Do: registry.Status(403, nil)}, RegistryUnauthorized},
		{"404", registry.Fault{Path: manifests, Do: registry.Status(404, nil)}, ImageNotFound},
		{"404 for the layer", registry.Fault{Path: layer, Do: registry.Status(404, nil)}, ImageNotFound},
		{"404 without a document", registry.Fault{Path: manifests, Do: func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(404) }}, ImageNotFound},
		{"429", registry.Fault{Path: manifests, Do: registry.Status(429, nil)}, RegistryThrottled},
		{"429 for the ping", registry.Fault{Path: ping, Do: registry.Status(429, nil)}, RegistryThrottled},
		{"429 for the layer", registry.Fault{Path: layer, Do: registry.Status(429, map[string]string{"Retry-After": "3600"})}, RegistryThrottled},
		{"500", registry.Fault{Path: manifests, Do: registry.Status(500, nil)}, RegistryServerError},
		{"500 for the config", registry.Fault{Path: config, Do: registry.Status(500, nil)}, RegistryServerError},
		{"400 for a range", registry.Fault{Path: layer, Do: registry.Status(400, nil)}, RegistryServerError},
		{"dropped", registry.Fault{Path: ping, Do: registry.Drop}, RegistryUnreachable},
		{"manifest dropped", registry.Fault{Path: manifests, Do: registry.Drop}, RegistryUnreachable},
		{"half a manifest", registry.Fault{Path: manifests, Do: registry.Truncate(100)}, RegistryUnreachable},
		{"half a config", registry.Fault{Path: config, Do: registry.Truncate(100)}, RegistryUnreachable},
		{"half a layer", registry.Fault{Path: layer, Do: registry.Truncate(100)}, LayerTruncated},
		{"other manifest", registry.Fault{Path: manifests, Do: registry.Answer(other.manifest)}, DigestMismatch},
		{"other config", registry.Fault{Path: config, Do: registry.Answer(other.config)}, DigestMismatch},
		{"config is a page", registry.Fault{Path: config, Do: registry.Answer([]byte("<html>"))}, DigestMismatch},
		{"other layer", registry.Fault{Path: layer, Do: registry.Answer(other.blobs[0])}, CommitLabelMismatch},
		{"1 GiB of manifest", registry.Fault{Path: manifests, Do: registry.Endless(1 << 30)}, ManifestInvalid},
		{"1 GiB of config", registry.Fault{Path: config, Do: registry.Endless(1 << 30)}, ManifestInvalid},
		{"1 GiB of layer", registry.Fault{Path: layer, Do: registry.Endless(1 << 30)}, LayerTruncated},
		{"1 GiB of error", registry.Fault{Path: manifests, Do: flood(404)}, RegistryServerError},
		{"1 GiB of error for the ping", registry.Fault{Path: ping, Do: flood(403)}, RegistryServerError},
		{"1 GiB of error for the layer", registry.Fault{Path: layer, Do: flood(404)}, RegistryServerError},
		{"all blobs are gone", registry.Fault{Path: blobs, Do: registry.Status(404, nil)}, ImageNotFound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := startRegistry(t, registry.Options{})
			img := openImage(t, push(t, r, b), configFor(t, r, nil))
			r.AddFault(&tt.fault)
			limit := 10 * time.Second
			if tt.want == Timeout || tt.want == RegistryThrottled {
				limit = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			err := ask(ctx, img)
			if CodeOf(err) != tt.want {
				t.Errorf("got %q: %v; want %q", CodeOf(err), err, tt.want)
			}
			if d := time.Since(start); d > 15*time.Second {
				t.Errorf("took %v", d)
			}
			runtime.ReadMemStats(&after)
			// The sum of all allocations: a slice that grows to n bytes leaves
			// some 4n behind. What is in use at a time is far less.
			if n := after.TotalAlloc - before.TotalAlloc; n > 160<<20 {
				t.Errorf("allocated %d MiB", n>>20)
			}
			if id := img.Identity(); id.InnerCommit.IsKnown() {
				t.Errorf("the commit is known: %v", id.InnerCommit)
			}
			asked := img.Transfer().Requests
			if again := ask(t.Context(), img); again == nil || img.Transfer().Requests != asked {
				t.Errorf("asked once more: %v", again)
			}
		})
	}
}

// A failure is one of the facts behind it, too.
func TestFactsAfterFault(t *testing.T) {
	r := startRegistry(t, registry.Options{})
	b := native(t, commitBytes(7)).build(t)
	img := openImage(t, push(t, r, b), configFor(t, r, nil))
	r.AddFault(&registry.Fault{Path: regexp.MustCompile(sum(b.config)), Do: registry.Status(500, nil)})
	if id := img.Identity(); id.ManifestDigest.Gathered() || id.Layers.Gathered() || id.DiffIDs.Gathered() || img.ManifestLayers().Gathered() {
		t.Errorf("facts before anything was asked: %+v", id)
	}
	if _, err := img.Config(t.Context()); err == nil {
		t.Fatal("no error")
	}
	id := img.Identity()
	if d, ok := id.ManifestDigest.Get(); !ok || string(d) != b.digest {
		t.Errorf("manifest digest: %v %v", d, ok)
	}
	if !id.ConfigDigest.IsKnown() || !id.Layers.IsKnown() || !img.ManifestLayers().IsKnown() {
		t.Errorf("manifest's facts: %+v", id)
	}
	for name, f := range map[string]verdict.Fact[string]{"architecture": id.Architecture} {
		if f.IsKnown() || !strings.Contains(f.Why(), "500") {
			t.Errorf("%s: %v, %q", name, f.IsKnown(), f.Why())
		}
	}
	if id.DiffIDs.IsKnown() || id.FinalDiffID.IsKnown() || id.DerivedLayers.IsKnown() || id.InnerCommit.Gathered() {
		t.Errorf("facts of the config: %+v", id)
	}
}

// Nobody listens.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := l.Addr().String()
	l.Close()
	img := openImage(t, host+"/os@sha256:"+sum(nil), loadConfig(t, nil, ConfigOptions{}))
	if _, err := img.Instance(t.Context()); CodeOf(err) != RegistryUnreachable {
		t.Errorf("got %q: %v", CodeOf(err), err)
	}
	if got := img.Transfer(); got != (Transfer{}) {
		t.Errorf("got %+v", got)
	}
}

// Where asked for, passing failures are tried again; others, and the rest of
// the deadline, are not.
func TestRetry(t *testing.T) {
	b := native(t, commitBytes(7)).build(t)
	tests := []struct {
		name     string
		fault    registry.Fault
		retry    bool
		time     time.Duration
		want     Code
		requests int
	}{
		{"once unwell", registry.Fault{Path: regexp.MustCompile("/manifests/"), Times: 2, Do: registry.Status(503, nil)}, true, 20 * time.Second, "", 8},
		{"layer once cut", registry.Fault{Path: regexp.MustCompile(sum(b.blobs[0])), Times: 1, Do: registry.Truncate(100)}, true, 20 * time.Second, "", 5},
		{"not asked to", registry.Fault{Path: regexp.MustCompile("/manifests/"), Times: 1, Do: registry.Status(503, nil)}, false, 20 * time.Second, RegistryServerError, 2},
		{"no passing failure", registry.Fault{Path: regexp.MustCompile("/manifests/"), Times: 1, Do: registry.Status(404, nil)}, true, 20 * time.Second, ImageNotFound, 2},
		{"deadline near", registry.Fault{Path: regexp.MustCompile("/manifests/"), Do: registry.Status(503, nil)}, true, retryReserve + 2*time.Second, RegistryServerError, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := startRegistry(t, registry.Options{})
			ref := push(t, r, b)
			c := loadConfig(t, map[string]string{registriesConf: insecure(r)}, ConfigOptions{Retry: tt.retry})
			r.AddFault(&tt.fault)
			img := openImage(t, ref, c)
			ctx, cancel := context.WithTimeout(t.Context(), tt.time)
			defer cancel()
			err := ask(ctx, img)
			if CodeOf(err) != tt.want || tt.want == "" && err != nil {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if ctx.Err() != nil {
				t.Error("nothing is left of the deadline")
			}
			if got := img.Transfer().Requests; tt.requests != 0 && got != tt.requests {
				t.Errorf("got %d requests, want %d", got, tt.requests)
			}
		})
	}
}
