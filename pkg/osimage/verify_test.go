package osimage

import (
	"context"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	imgspecv1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/signing"
)

// Both kinds of signatures, for the list or for the image, good and bad.
func TestVerifySignature(t *testing.T) {
	t.Parallel()
	keys := newKeyring()
	kinds := map[string]struct {
		want string
		sign func(s *signed, other bool, digest, identity string)
	}{
		"simple": {wantPGP, func(s *signed, other bool, digest, identity string) {
			k := keys.pgp
			if other {
				k = keys.otherPGP
			}
			s.lookaside(digest, 1, must(k.Sign(digest, identity)))
		}},
		"sigstore": {wantSigstore, func(s *signed, other bool, digest, identity string) {
			k := keys.key
			if other {
				k = keys.otherKey
			}
			s.attach(digest, must(k.Sign(digest, identity)))
		}},
	}
	const verified, invalid = verdict.SignatureVerified, verdict.SignatureInvalid
	tests := []struct {
		name string
		list bool // the target is the list
		sign func(s *signed, sign func(s *signed, other bool, digest, identity string))
		want verdict.SignatureRequirement
		text string
	}{
		{"image", false, func(s *signed, sign func(*signed, bool, string, string)) {
			sign(s, false, s.amd64.digest, s.identity())
		}, verified, "signature of the manifest sha256:"},
		{"list", true, func(s *signed, sign func(*signed, bool, string, string)) {
			sign(s, false, s.list.digest, s.identity())
		}, verified, "signature of the manifest list sha256:"},
		{"image of the list", true, func(s *signed, sign func(*signed, bool, string, string)) {
			sign(s, false, s.amd64.digest, s.identity())
		}, verified, "for amd64 is accepted"},
		{"list badly, image well", true, func(s *signed, sign func(*signed, bool, string, string)) {
			sign(s, true, s.list.digest, s.identity())
			sign(s, false, s.amd64.digest, s.identity())
		}, verified, "for amd64 is accepted"},
		{"image for another architecture", true, func(s *signed, sign func(*signed, bool, string, string)) {
			sign(s, false, s.arm64.digest, s.identity())
		}, invalid, "no signature exists"},
		{"list only, image wanted", false, func(s *signed, sign func(*signed, bool, string, string)) {
			sign(s, false, s.list.digest, s.identity())
		}, invalid, "no signature exists"},
		{"none", false, func(s *signed, _ func(*signed, bool, string, string)) { s.attachments() }, invalid, "no signature exists"},
		{"none of a list", true, func(s *signed, _ func(*signed, bool, string, string)) { s.attachments() }, invalid, "no signature exists"},
		{"other key", false, func(s *signed, sign func(*signed, bool, string, string)) {
			sign(s, true, s.amd64.digest, s.identity())
		}, invalid, ""},
		{"other repository", false, func(s *signed, sign func(*signed, bool, string, string)) {
			sign(s, false, s.amd64.digest, s.r.Host+"/other:4.20")
		}, invalid, "identity"},
		{"other registry", false, func(s *signed, sign func(*signed, bool, string, string)) {
			sign(s, false, s.amd64.digest, "quay.io/os:4.20")
		}, invalid, "identity"},
	}
	for kind, k := range kinds {
		for _, tt := range tests {
			t.Run(kind+"/"+tt.name, func(t *testing.T) {
				s := newSigned(t, keys)
				s.policy(k.want)
				tt.sign(s, k.sign)
				digest := s.amd64.digest
				if tt.list {
					digest = s.list.digest
				}
				img := s.image(digest)
				got, err := img.VerifySignature(t.Context())
				if err != nil || got.Requirement != tt.want || got.Scope != "default" || !strings.Contains(got.Detail, tt.text) || !strings.Contains(got.Detail, policyPath) {
					t.Fatalf("got %+v, %v; want %s with %q", got, err, tt.want, tt.text)
				}
				if strings.Contains(got.Detail, img.cfg.dir) {
					t.Errorf("the detail names a private copy: %s", got.Detail)
				}
				sent := img.Transfer().Requests
				if again, err := img.VerifySignature(t.Context()); err != nil || again != got || img.Transfer().Requests != sent {
					t.Errorf("asked again: %+v, %v, %d requests", again, err, img.Transfer().Requests-sent)
				}
				t.Logf("%d requests, %d bytes, registry says %d", sent, img.Transfer().Bytes, s.r.Bytes())
			})
		}
	}
}

// A signature that lies with another manifest than it was made for.
func TestSignatureOfAnotherImage(t *testing.T) {
	keys := newKeyring()
	s := newSigned(t, keys)
	s.policy(wantPGP)
	s.lookaside(s.amd64.digest, 1, must(keys.pgp.Sign(s.arm64.digest, s.identity())))
	s.attach(s.arm64.digest, must(keys.key.Sign(s.amd64.digest, s.identity())))
	got, err := s.image(s.amd64.digest).VerifySignature(t.Context())
	if err != nil || got.Requirement != verdict.SignatureInvalid || !strings.Contains(got.Detail, "does not match") {
		t.Errorf("simple: got %+v, %v", got, err)
	}
	s.policy(wantSigstore)
	got, err = s.image(s.arm64.digest).VerifySignature(t.Context())
	if err != nil || got.Requirement != verdict.SignatureInvalid || !strings.Contains(got.Detail, "does not match") {
		t.Errorf("sigstore: got %+v, %v", got, err)
	}
}

// Where the policy needs no signature, nothing is asked, not even of a registry
// that is down.
func TestVerifyWithoutRequest(t *testing.T) {
	keys := newKeyring()
	for policy, want := range map[string]verdict.SignatureRequirement{
		`{"type":"insecureAcceptAnything"}`: verdict.SignatureNone,
		`{"type":"reject"}`:                 verdict.SignatureReject,
		wantPGP + `,{"type":"reject"}`:      verdict.SignatureReject,
	} {
		s := newSigned(t, keys)
		s.policy(policy)
		s.attachments()
		img := s.image(s.list.digest)
		got, err := img.VerifySignature(t.Context())
		if err != nil || got.Requirement != want {
			t.Errorf("%s: got %+v, %v; want %s", policy, got, err, want)
		}
		if img.Transfer() != (Transfer{}) || len(s.r.Requests()) != 0 {
			t.Errorf("%s: %+v, %v", policy, img.Transfer(), s.r.Requests())
		}
	}
}

// Each requirement of a scope must be met, by a signature of its own if need be.
func TestSeveralRequirements(t *testing.T) {
	keys := newKeyring()
	s := newSigned(t, keys)
	s.policy(wantPGP, wantSigstore, `{"type":"insecureAcceptAnything"}`)
	s.lookaside(s.amd64.digest, 1, must(keys.otherPGP.Sign(s.amd64.digest, s.identity())))
	s.lookaside(s.amd64.digest, 2, must(keys.pgp.Sign(s.amd64.digest, s.identity())))
	s.attachments()
	if got, err := s.image(s.amd64.digest).VerifySignature(t.Context()); err != nil || got.Requirement != verdict.SignatureInvalid {
		t.Errorf("one of two: got %+v, %v", got, err)
	}
	s.attach(s.amd64.digest, must(keys.otherKey.Sign(s.amd64.digest, s.identity())), must(keys.key.Sign(s.amd64.digest, s.identity())))
	if got, err := s.image(s.amd64.digest).VerifySignature(t.Context()); err != nil || got.Requirement != verdict.SignatureVerified {
		t.Errorf("both: got %+v, %v", got, err)
	}
}

// A registry or lookaside that cannot be asked for the signature says nothing
// about it.
func TestSignatureUnreachable(t *testing.T) {
	keys := newKeyring()
	attached := regexp.MustCompile(`\.sig$`)
	payload := regexp.MustCompile(`/blobs/`)
	tests := []struct {
		name  string
		fault func(r *registry.Registry) registry.Fault
		want  Code // none: invalid
	}{
		{"dropped", func(*registry.Registry) registry.Fault { return registry.Fault{Path: attached, Do: registry.Drop} }, RegistryUnreachable},
		{"unavailable", func(*registry.Registry) registry.Fault {
			return registry.Fault{Path: attached, Do: registry.Status(503, nil)}
		}, RegistryServerError},
		{"throttled", func(*registry.Registry) registry.Fault {
			return registry.Fault{Path: attached, Do: registry.Status(429, map[string]string{"Retry-After": "60"})}
		}, RegistryThrottled},
		{"unauthorized", func(*registry.Registry) registry.Fault {
			return registry.Fault{Path: attached, Do: registry.Status(401, map[string]string{"WWW-Authenticate": `Basic realm="x"`})}
		}, RegistryUnauthorized},
		{"forbidden", func(*registry.Registry) registry.Fault {
			return registry.Fault{Path: attached, Do: registry.Status(403, nil)}
		}, RegistryUnauthorized},
		{"hangs", func(r *registry.Registry) registry.Fault { return registry.Fault{Path: attached, Do: r.Hang} }, Timeout},
		{"half a manifest", func(*registry.Registry) registry.Fault {
			return registry.Fault{Path: attached, Do: registry.Truncate(40)}
		}, RegistryUnreachable},
		{"wrong manifest", func(*registry.Registry) registry.Fault {
			return registry.Fault{Path: attached, Do: registry.Answer([]byte("<html>log in</html>"))}
		}, SignatureMalformed},
		{"endless manifest", func(*registry.Registry) registry.Fault {
			return registry.Fault{Path: attached, Do: registry.Endless(64 << 20)}
		}, SignatureMalformed},
		{"endless error", func(*registry.Registry) registry.Fault {
			return registry.Fault{Path: attached, Do: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				w.WriteHeader(500)
				registry.Endless(1<<30)(w, r, next)
			}}
		}, RegistryServerError},
		{"dropped payload", func(*registry.Registry) registry.Fault { return registry.Fault{Path: payload, Do: registry.Drop} }, RegistryUnreachable},
		{"no payload", func(*registry.Registry) registry.Fault {
			return registry.Fault{Path: payload, Do: registry.Status(404, nil)}
		}, ImageNotFound},
		{"half a payload", func(*registry.Registry) registry.Fault {
			return registry.Fault{Path: payload, Do: registry.Truncate(40)}
		}, RegistryUnreachable},
		{"wrong payload", func(*registry.Registry) registry.Fault {
			return registry.Fault{Path: payload, Do: registry.Answer([]byte("{}"))}
		}, DigestMismatch},
		{"endless payload", func(*registry.Registry) registry.Fault {
			return registry.Fault{Path: payload, Do: registry.Endless(64 << 20)}
		}, SignatureMalformed},
		{"absent", func(*registry.Registry) registry.Fault {
			return registry.Fault{Path: attached, Do: registry.Status(404, nil)}
		}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSigned(t, keys)
			s.policy(wantSigstore)
			s.attach(s.amd64.digest, must(keys.key.Sign(s.amd64.digest, s.identity())))
			fault := tt.fault(s.r)
			s.r.AddFault(&fault)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			got, err := s.image(s.amd64.digest).VerifySignature(ctx)
			switch {
			case tt.want == "":
				if err != nil || got.Requirement != verdict.SignatureInvalid {
					t.Errorf("got %+v, %v", got, err)
				}
			case CodeOf(err) != tt.want || got != (verdict.SignaturePolicy{}):
				t.Errorf("got %+v, %q: %v; want %s", got, CodeOf(err), err, tt.want)
			}
		})
	}
}

// An attached manifest may be of another type, and name layers without end.
func TestAttachmentMalformed(t *testing.T) {
	t.Parallel()
	keys := newKeyring()
	small := []byte("x")
	layer := func(n int) map[string]any {
		return map[string]any{"mediaType": signing.MediaType, "digest": "sha256:" + sum(small), "size": n}
	}
	var many []any
	for range maxSignatures + 1 {
		many = append(many, layer(1))
	}
	manifests := map[string]struct {
		mediaType string
		layers    []any
		want      Code
	}{
		"list":      {imgspecv1.MediaTypeImageIndex, nil, SignatureMalformed},
		"too many":  {imgspecv1.MediaTypeImageManifest, many, SignatureMalformed},
		"no digest": {imgspecv1.MediaTypeImageManifest, []any{map[string]any{"mediaType": signing.MediaType, "digest": "sha256:", "size": 1}}, SignatureMalformed},
	}
	for name, m := range manifests {
		t.Run(name, func(t *testing.T) {
			s := newSigned(t, keys)
			s.policy(wantSigstore)
			s.attach(s.amd64.digest, signing.Attachment{Payload: small, Annotations: map[string]string{}})
			b := mustJSON(t, map[string]any{"schemaVersion": 2, "mediaType": m.mediaType, "layers": m.layers,
				"config": map[string]any{"mediaType": imgspecv1.MediaTypeImageConfig, "digest": "sha256:" + sum([]byte("{}")), "size": 2}})
			s.r.AddFault(&registry.Fault{Path: regexp.MustCompile(`\.sig$`), Do: func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
				w.Header().Set("Content-Type", m.mediaType)
				_, _ = w.Write(b)
			}})
			got, err := s.image(s.amd64.digest).VerifySignature(t.Context())
			if CodeOf(err) != m.want {
				t.Errorf("got %+v, %q: %v", got, CodeOf(err), err)
			}
		})
	}
}

// What is verified costs a few requests and little more than the manifest.
func TestSignatureCost(t *testing.T) {
	keys := newKeyring()
	tests := []struct {
		name     string
		put      func(s *signed) string
		requests int
	}{
		// A ping and the manifest come first.
		{"folder", func(s *signed) string {
			s.policy(wantPGP)
			s.lookaside(s.amd64.digest, 1, must(keys.pgp.Sign(s.amd64.digest, s.identity())))
			return s.amd64.digest
		}, 2},
		{"attached", func(s *signed) string {
			s.policy(wantSigstore)
			s.attach(s.amd64.digest, must(keys.key.Sign(s.amd64.digest, s.identity())))
			return s.amd64.digest
		}, 4},
		{"attached to the list", func(s *signed) string {
			s.policy(wantSigstore)
			s.attach(s.list.digest, must(keys.key.Sign(s.list.digest, s.identity())))
			return s.list.digest
		}, 4},
		{"attached to the image of a list", func(s *signed) string {
			s.policy(wantSigstore)
			s.attach(s.amd64.digest, must(keys.key.Sign(s.amd64.digest, s.identity())))
			return s.list.digest
		}, 6},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSigned(t, keys)
			img := s.image(tt.put(s))
			got, err := img.VerifySignature(t.Context())
			if err != nil || got.Requirement != verdict.SignatureVerified {
				t.Fatalf("got %+v, %v", got, err)
			}
			if n := img.Transfer().Requests; n != tt.requests || n != len(s.r.Requests()) {
				t.Errorf("%d requests, want %d: %+v", n, tt.requests, s.r.Requests())
			}
			if s.r.Bytes() > 8<<10 {
				t.Errorf("%d bytes", s.r.Bytes())
			}
			t.Logf("%d requests, %d bytes in bodies", img.Transfer().Requests, s.r.Bytes())
		})
	}
}

// An image in a folder has no signatures but those beside it.
func TestVerifyLocal(t *testing.T) {
	b := native(t, commitBytes(7)).build(t)
	dir := writeRoot(t, map[string]string{"manifest.json": string(b.manifest), "version": "Directory Transport Version: 1.1\n"})
	keys := newKeyring()
	c := loadConfig(t, map[string]string{policyPath: `{"default":[` + wantPGP + `]}`, pgpPath: string(must(keys.pgp.ArmoredPublic()))}, ConfigOptions{})
	got, err := openImage(t, "dir:"+filepath.Clean(dir), c).VerifySignature(t.Context())
	if err != nil || got.Requirement != verdict.SignatureInvalid {
		t.Errorf("got %+v, %v", got, err)
	}
}
