package osimage

import (
	"fmt"
	"strings"
	"testing"

	imgspecv1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/manifest"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/registry"
)

type listEntry struct {
	image       built
	platform    *imgspecv1.Platform
	annotations map[string]string
}

func makeList(t testing.TB, docker bool, entries ...listEntry) built {
	t.Helper()
	mediaType := imgspecv1.MediaTypeImageIndex
	if docker {
		mediaType = manifest.DockerV2ListMediaType
	}
	var manifests []map[string]any
	for _, e := range entries {
		m := map[string]any{"mediaType": e.image.mediaType, "digest": e.image.digest, "size": len(e.image.manifest)}
		if e.platform != nil {
			m["platform"] = e.platform
		}
		if e.annotations != nil {
			m["annotations"] = e.annotations
		}
		manifests = append(manifests, m)
	}
	b := mustJSON(t, map[string]any{"schemaVersion": 2, "mediaType": mediaType, "manifests": manifests})
	return built{manifest: b, mediaType: mediaType, digest: "sha256:" + sum(b)}
}

func platform(os, arch, variant string) *imgspecv1.Platform {
	return &imgspecv1.Platform{OS: os, Architecture: arch, Variant: variant}
}

// The instance is the one that the host's tools would choose; what is no image
// for the architecture never is.
func TestInstance(t *testing.T) {
	r := startRegistry(t, registry.Options{})
	c := configFor(t, r, nil)
	images := map[string]built{}
	for i, name := range []string{"a", "b", "c"} {
		images[name] = native(t, commitBytes(byte(i))).build(t)
		push(t, r, images[name])
	}
	a, b := images["a"], images["b"]
	attestation := map[string]string{"vnd.docker.reference.type": "attestation-manifest"}
	tests := []struct {
		name    string
		docker  bool
		arch    string
		entries []listEntry
		want    string // an image's name
	}{
		{"one of two", false, "amd64", []listEntry{{a, platform("linux", "arm64", ""), nil}, {b, platform("linux", "amd64", ""), nil}}, "b"},
		{"one of two, Docker", true, "s390x", []listEntry{{a, platform("linux", "s390x", ""), nil}, {b, platform("linux", "amd64", ""), nil}}, "a"},
		{"other architecture alone", false, "amd64", []listEntry{{a, platform("linux", "arm64", ""), nil}}, ""},
		{"other system", false, "amd64", []listEntry{{a, platform("windows", "amd64", ""), nil}}, ""},
		{"two for it", false, "amd64", []listEntry{{b, platform("linux", "amd64", ""), nil}, {a, platform("linux", "amd64", ""), nil}}, ""},
		{"variant of a newer CPU alone", false, "amd64", []listEntry{{a, platform("linux", "amd64", "v3"), nil}}, ""},
		{"plain before variant", false, "amd64", []listEntry{{a, platform("linux", "amd64", "v3"), nil}, {b, platform("linux", "amd64", ""), nil}}, "b"},
		{"arm64 v8", false, "arm64", []listEntry{{a, platform("linux", "arm64", "v8"), nil}}, "a"},
		{"arm64 v8 and plain", false, "arm64", []listEntry{{b, platform("linux", "arm64", ""), nil}, {a, platform("linux", "arm64", "v8"), nil}}, ""},
		{"arm64 v9 alone", false, "arm64", []listEntry{{a, platform("linux", "arm64", "v9"), nil}}, ""},
		{"attestation with the platform of an image", false, "amd64", []listEntry{{a, platform("linux", "amd64", ""), attestation}, {b, platform("linux", "amd64", ""), nil}}, ""},
		{"attestation alone", false, "amd64", []listEntry{{a, platform("unknown", "unknown", ""), attestation}}, ""},
		{"unknown platform", false, "amd64", []listEntry{{a, platform("unknown", "unknown", ""), nil}}, ""},
		{"no platform", false, "amd64", []listEntry{{a, nil, nil}}, "a"},
		{"platform before none", false, "amd64", []listEntry{{a, nil, nil}, {b, platform("linux", "amd64", ""), nil}}, "b"},
		{"list in a list", false, "amd64", []listEntry{{makeList(t, false, listEntry{a, nil, nil}), platform("linux", "amd64", ""), nil}}, ""},
		{"zstd twin", false, "amd64", []listEntry{{a, platform("linux", "amd64", ""), nil}, {b, platform("linux", "amd64", ""), map[string]string{"io.github.containers.compression.zstd": "true"}}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			list := makeList(t, tt.docker, tt.entries...)
			push(t, r, list)
			img, err := Open(r.Reference("os", list.digest), c, tt.arch)
			if err != nil {
				t.Fatal(err)
			}
			defer img.Close()
			got, err := img.Instance(t.Context())
			if tt.want == "" {
				if CodeOf(err) != NoInstance {
					t.Errorf("got %s, %v; want none", got, err)
				}
				if id := img.Identity(); id.ManifestDigest.IsKnown() || !id.ManifestDigest.Gathered() {
					t.Errorf("fact: %+v", id.ManifestDigest)
				}
				return
			}
			want := verdict.Digest(images[tt.want].digest)
			if err != nil || got != want {
				t.Fatalf("got %s, %v; want %s", got, err, want)
			}
			if n := img.Transfer().Requests; n != 2 {
				t.Errorf("choosing took %d requests, want 2", n)
			}
			m, err := img.Manifest(t.Context())
			if err != nil || m.Digest != want {
				t.Errorf("manifest: got %s, %v; want %s", m.Digest, err, want)
			}
			if d, ok := img.Identity().ManifestDigest.Get(); !ok || d != want {
				t.Errorf("fact: got %s, %v", d, ok)
			}
		})
	}
}

// Manifests that are none of an OS image are refused.
func TestManifestRefused(t *testing.T) {
	good := native(t, commitBytes(7)).build(t)
	edit := func(old, with string) string {
		s := strings.Replace(string(good.manifest), old, with, 1)
		if s == string(good.manifest) {
			t.Fatalf("%q is not there", old)
		}
		return s
	}
	tests := []struct{ name, manifest, served, text string }{
		{"empty", ``, "", "neither"},
		{"page", `<html>`, "text/html", "neither"},
		{"null", `null`, "", "neither"},
		{"schema 1", `{"schemaVersion":1,"name":"os","tag":"1","fsLayers":[]}`, "", "schema 1"},
		{"image served as a list", string(good.manifest), imgspecv1.MediaTypeImageIndex, "served as"},
		{"digest of another kind", edit("sha256:"+sum(good.config), "sha512:"+sum(good.config)), "", "SHA-256"},
		{"digest climbs", edit("sha256:"+sum(good.blobs[0]), "../../etc/passwd"), "", "digest"},
		{"no layers", `{"schemaVersion":2,"mediaType":"` + imgspecv1.MediaTypeImageManifest + `","config":{"mediaType":"` + imgspecv1.MediaTypeImageConfig + `","digest":"sha256:` + sum(good.config) + `","size":2},"layers":[]}`, "", "0 layers"},
		{"negative size", edit(fmt.Sprintf(`"size":%d`, len(good.blobs[0])), `"size":-5`), "", "size"},
		{"artifact", edit(imgspecv1.MediaTypeImageConfig, "application/vnd.example"), "", "not a container image"},
		{"both image and list", edit(`"layers":`, `"manifests":[],"layers":`), "", ""},
		{"too many layers", edit(`"layers":[`, `"layers":[`+strings.Repeat(`{"mediaType":"`+imgspecv1.MediaTypeImageLayerGzip+`","digest":"sha256:`+sum(good.config)+`","size":2},`, maxLayers)), "", "layers"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			mediaType, err := mediaTypeOf([]byte(tt.manifest), tt.served)
			if err == nil {
				_, err = parseManifest(rawManifest{bytes: []byte(tt.manifest), mediaType: mediaType})
			}
			if err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want %q", err, tt.text)
			}
		})
	}
	if _, err := parseManifest(rawManifest{bytes: good.manifest, mediaType: good.mediaType}); err != nil {
		t.Error(err)
	}
}

// A tag is read too; what it names is said by the digest of its bytes.
func TestTag(t *testing.T) {
	r := startRegistry(t, registry.Options{})
	b := native(t, commitBytes(7)).build(t)
	push(t, r, b)
	if err := r.PutManifest("os", "latest", b.mediaType, b.manifest); err != nil {
		t.Fatal(err)
	}
	c := configFor(t, r, nil)
	for _, ref := range []string{r.Host + "/os", "docker://" + r.Host + "/os:latest"} {
		if got, err := openImage(t, ref, c).Instance(t.Context()); err != nil || string(got) != b.digest {
			t.Errorf("%s: got %s, %v", ref, got, err)
		}
	}
}

func TestReference(t *testing.T) {
	pin := "@sha256:" + sum(nil)
	tests := []struct {
		name, ref, pinned string
		ok                bool
	}{
		{"by digest", "quay.io/os" + pin, pin[1:], true},
		{"with transport", "docker://quay.io/a/os" + pin, pin[1:], true},
		{"port", "registry:5000/os" + pin, pin[1:], true},
		{"localhost", "localhost/os" + pin, pin[1:], true},
		{"tag", "quay.io/os:4.16", "", true},
		{"archive", "oci-archive:/var/os.ociarchive", "", true},
		{"layout", "oci:/var/os:4.16", "", true},
		{"folder", "dir:/var/os", "", true},
		{"empty", "", "", false},
		{"dummy", "://dummy", "", false},
		{"transport alone", "docker://", "", false},
		{"short name", "os" + pin, "", false},
		{"short name with a folder", "library/os:4.16", "", false},
		{"short name with transport", "docker://library/os:4.16", "", false},
		{"tag and digest", "quay.io/os:4.16" + pin, "", false},
		{"sha512", "quay.io/os@sha512:" + sum(nil) + sum(nil), "", false},
		{"unknown digest", "quay.io/os@@unknown-digest@@", "", false},
		{"capitals", "quay.io/OS" + pin, "", false},
		{"other transport", "containers-storage://quay.io/os", "", false},
		{"space", "quay.io/os 4.16", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ref, err := parseReference(tt.ref)
			var pinned verdict.Digest
			if err == nil {
				pinned, err = pinnedDigest(ref)
			}
			if (err == nil) != tt.ok || string(pinned) != tt.pinned {
				t.Errorf("got %q, %v; want %q, ok %v", pinned, err, tt.pinned, tt.ok)
			}
		})
	}
}
