package osimage

import (
	"context"
	"encoding/base64"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	imgspecv1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/signing"
)

// must is for what a test needs and that is not what it tests.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// keyring are the keys of one test.
type keyring struct {
	pgp, otherPGP *signing.PGPKey
	key, otherKey *signing.Key
}

func newKeyring() keyring {
	when := time.Now().Add(-48 * time.Hour)
	return keyring{
		pgp: must(signing.NewPGPKey(when, 0)), otherPGP: must(signing.NewPGPKey(when, 0)),
		key: must(signing.NewKey()), otherKey: must(signing.NewKey()),
	}
}

const (
	pgpPath      = "/etc/pki/rpm-gpg/KEY"
	sigstorePath = "/etc/pki/sigstore/key.pub"
)

// A signed is a list with an image for amd64 and one for arm64 in a registry,
// and a host that wants them signed.
type signed struct {
	t     testing.TB
	r     *registry.Registry
	keys  keyring
	files map[string]string

	amd64, arm64, list built
}

func newSigned(t testing.TB, keys keyring) *signed {
	t.Helper()
	s := &signed{t: t, r: startRegistry(t, registry.Options{}), keys: keys}
	s.files = map[string]string{
		registriesConf: insecure(s.r),
		pgpPath:        string(must(keys.pgp.ArmoredPublic())),
		sigstorePath:   string(must(keys.key.PublicPEM())),
	}
	s.amd64 = native(t, commitBytes(7)).build(t)
	arm := native(t, commitBytes(8))
	arm.arch = "arm64"
	s.arm64 = arm.build(t)
	s.list = makeList(t, false, listEntry{s.amd64, platform("linux", "amd64", ""), nil}, listEntry{s.arm64, platform("linux", "arm64", ""), nil})
	for _, b := range []built{s.amd64, s.arm64, s.list} {
		push(t, s.r, b)
	}
	return s
}

// identity is the name that images are signed with.
func (s *signed) identity() string { return s.r.Host + "/os:4.20" }

// policy asks for requirements of every image.
func (s *signed) policy(reqs ...string) {
	s.files[policyPath] = `{"default":[` + strings.Join(reqs, ",") + `]}`
}

const (
	wantPGP      = `{"type":"signedBy","keyType":"GPGKeys","keyPath":"` + pgpPath + `"}`
	wantSigstore = `{"type":"sigstoreSigned","keyPath":"` + sigstorePath + `"}`
)

// attachments has the library look for signatures in the registry.
func (s *signed) attachments() {
	s.files[registriesD+"/default.yaml"] = "default-docker:\n  use-sigstore-attachments: true\n"
}

// lookaside puts a signature into the default folder of the host.
func (s *signed) lookaside(digest string, n int, b []byte) {
	s.files[defaultLookaside+"/"+signing.LookasideFile("os", digest, n)] = string(b)
}

func (s *signed) attach(digest string, signatures ...signing.Attachment) {
	s.t.Helper()
	s.attachments()
	if err := s.r.Attach("os", digest, signatures...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *signed) image(digest string) *Image {
	s.t.Helper()
	return openImage(s.t, s.r.Reference("os", digest), loadConfig(s.t, s.files, ConfigOptions{}))
}

// Both kinds of signatures, for the list or for the image, good and bad.
func TestVerifySignature(t *testing.T) {
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

// A lookaside is a web server, or a folder of the host that registries.d names.
func TestLookasides(t *testing.T) {
	keys := newKeyring()
	sign := func(s *signed) []byte { return must(keys.pgp.Sign(s.amd64.digest, s.identity())) }
	file := func(s *signed) string { return signing.LookasideFile("os", s.amd64.digest, 1) }
	tests := []struct {
		name string
		conf string // HOST is the registry, WEB the server
		put  func(s *signed, web map[string][]byte)
		want verdict.SignatureRequirement
		code Code
	}{
		{"web", "docker:\n  HOST:\n    lookaside: WEB/sigs\n", func(s *signed, web map[string][]byte) { web["/sigs/"+file(s)] = sign(s) }, verdict.SignatureVerified, ""},
		{"older name", "docker:\n  HOST/os:\n    sigstore: WEB\n    sigstore-staging: file:///etc\n", func(s *signed, web map[string][]byte) { web["/"+file(s)] = sign(s) }, verdict.SignatureVerified, ""},
		{"for all", "default-docker:\n  lookaside: WEB\n  lookaside-staging: file:///etc\n", func(s *signed, web map[string][]byte) { web["/"+file(s)] = sign(s) }, verdict.SignatureVerified, ""},
		{"folder", "docker:\n  HOST:\n    lookaside: file:///srv/../srv/sigs/\n", func(s *signed, _ map[string][]byte) { s.files["/srv/sigs/"+file(s)] = string(sign(s)) }, verdict.SignatureVerified, ""},
		{"folder for all", "default-docker:\n  sigstore: file:///srv\n", func(s *signed, _ map[string][]byte) { s.files["/srv/"+file(s)] = string(sign(s)) }, verdict.SignatureVerified, ""},
		{"narrow before wide", "docker:\n  HOST:\n    lookaside: file:///wide\n  HOST/os:\n    lookaside: file:///narrow\n", func(s *signed, _ map[string][]byte) {
			s.files["/wide/"+file(s)] = string(sign(s))
		}, verdict.SignatureInvalid, ""},
		{"not in the default folder then", "docker:\n  HOST:\n    lookaside: WEB\n", func(s *signed, _ map[string][]byte) { s.lookaside(s.amd64.digest, 1, sign(s)) }, verdict.SignatureInvalid, ""},
		{"default folder", "", func(s *signed, _ map[string][]byte) { s.lookaside(s.amd64.digest, 1, sign(s)) }, verdict.SignatureVerified, ""},
		{"compressed", "", func(s *signed, _ map[string][]byte) { s.lookaside(s.amd64.digest, 1, must(signing.Compress(sign(s)))) }, verdict.SignatureVerified, ""},
		{"second", "", func(s *signed, _ map[string][]byte) {
			s.lookaside(s.amd64.digest, 1, must(keys.otherPGP.Sign(s.amd64.digest, s.identity())))
			s.lookaside(s.amd64.digest, 2, sign(s))
		}, verdict.SignatureVerified, ""},
		{"behind a gap", "", func(s *signed, _ map[string][]byte) { s.lookaside(s.amd64.digest, 2, sign(s)) }, verdict.SignatureInvalid, ""},
		{"none signed", "", func(s *signed, _ map[string][]byte) {
			s.lookaside(s.amd64.digest, 1, []byte("\x90 no message"))
		}, verdict.SignatureInvalid, ""},
		{"malformed", "", func(s *signed, _ map[string][]byte) { s.lookaside(s.amd64.digest, 1, []byte("<html>")) }, "", SignatureMalformed},
		{"empty", "", func(s *signed, _ map[string][]byte) { s.lookaside(s.amd64.digest, 1, nil) }, "", SignatureMalformed},
		{"malformed on the web", "default-docker:\n  lookaside: WEB\n", func(s *signed, web map[string][]byte) { web["/"+file(s)] = []byte("<html>") }, "", SignatureMalformed},
		{"large", "", func(s *signed, _ map[string][]byte) {
			s.lookaside(s.amd64.digest, 1, make([]byte, maxSignatureBytes+1))
		}, "", SignatureMalformed},
		{"large on the web", "default-docker:\n  lookaside: WEB\n", func(s *signed, web map[string][]byte) {
			web["/"+file(s)] = make([]byte, maxSignatureBytes+1)
		}, "", SignatureMalformed},
		{"large together", "default-docker:\n  lookaside: WEB\n", func(s *signed, web map[string][]byte) {
			for i := range 3 {
				web["/"+signing.LookasideFile("os", s.amd64.digest, i+1)] = append([]byte{0x90}, make([]byte, maxSignatureBytes/2)...)
			}
		}, "", SignatureMalformed},
		{"too many", "", func(s *signed, _ map[string][]byte) {
			for i := range maxSignatures {
				s.lookaside(s.amd64.digest, i+1, sign(s))
			}
		}, "", SignatureMalformed},
		{"expands", "", func(s *signed, _ map[string][]byte) {
			s.lookaside(s.amd64.digest, 1, must(signing.Compress(must(keys.pgp.SignText(make([]byte, 64<<20))))))
		}, "", SignatureMalformed},
		{"compressed twice", "", func(s *signed, _ map[string][]byte) {
			s.lookaside(s.amd64.digest, 1, must(signing.Compress(must(signing.Compress(sign(s))))))
		}, "", SignatureMalformed},
		{"forbidden on the web", "default-docker:\n  lookaside: WEB/403\n", func(*signed, map[string][]byte) {}, "", RegistryUnauthorized},
		{"broken web", "default-docker:\n  lookaside: WEB/500\n", func(*signed, map[string][]byte) {}, "", RegistryServerError},
		{"no web", "default-docker:\n  lookaside: http://127.0.0.1:1\n", func(*signed, map[string][]byte) {}, "", RegistryUnreachable},
		{"other scheme", "default-docker:\n  lookaside: ftp://127.0.0.1\n", func(*signed, map[string][]byte) {}, "", RegistriesConfInvalid},
		{"no address", "default-docker:\n  lookaside: /srv/sigs\n", func(*signed, map[string][]byte) {}, "", RegistriesConfInvalid},
		{"bad address", "default-docker:\n  lookaside: \"http://[\"\n", func(*signed, map[string][]byte) {}, "", RegistriesConfInvalid},
		{"not text", "default-docker:\n  lookaside-staging: [1]\n", func(*signed, map[string][]byte) {}, "", RegistriesConfInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSigned(t, keys)
			s.policy(wantPGP)
			files := map[string][]byte{}
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch b, ok := files[r.URL.Path]; {
				case ok:
					_, _ = w.Write(b)
				case strings.HasPrefix(r.URL.Path, "/403"):
					w.WriteHeader(403)
				case strings.HasPrefix(r.URL.Path, "/500"):
					w.WriteHeader(500)
				default:
					w.WriteHeader(404)
				}
			}))
			defer web.Close()
			if tt.conf != "" {
				s.files[registriesD+"/a.yaml"] = strings.NewReplacer("HOST", s.r.Host, "WEB", web.URL).Replace(tt.conf)
			}
			tt.put(s, files)
			img := s.image(s.amd64.digest)
			got, err := img.VerifySignature(t.Context())
			if CodeOf(err) != tt.code || err != nil && tt.code == "" || got.Requirement != tt.want {
				t.Errorf("got %+v, %q: %v; want %s %s", got, CodeOf(err), err, tt.want, tt.code)
			}
			if err != nil && strings.Contains(err.Error(), img.cfg.dir) {
				t.Errorf("the message names a private copy: %v", err)
			}
		})
	}
}

// A server that closes each connection cannot send without end either.
func TestSignatureFlood(t *testing.T) {
	keys := newKeyring()
	s := newSigned(t, keys)
	s.policy(wantPGP)
	var sent atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		b := append([]byte{0x90}, make([]byte, maxSignatureBytes-1)...)
		for len(b) > 0 {
			n, err := w.Write(b[:64<<10])
			if sent.Add(int64(n)); err != nil {
				return
			}
			b = b[64<<10:]
		}
	}))
	defer web.Close()
	s.files[registriesD+"/a.yaml"] = "default-docker:\n  lookaside: " + web.URL + "\n"
	got, err := s.image(s.amd64.digest).VerifySignature(t.Context())
	if CodeOf(err) != RegistryServerError {
		t.Errorf("got %+v, %q: %v", got, CodeOf(err), err)
	}
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d bytes of %d were sent", n, maxSignatures*maxSignatureBytes)
	}
}

// The signature is looked for where the mirror is, and made for the image as
// the host asks for it.
func TestSignatureOfMirror(t *testing.T) {
	keys := newKeyring()
	const source = "quay.io/openshift/os"
	for _, kind := range []string{"attached", "folder"} {
		for _, identity := range []string{source + ":4.20", "mirror"} {
			t.Run(kind+" "+identity, func(t *testing.T) {
				s := newSigned(t, keys)
				s.files[registriesConf] = "[[registry]]\nlocation = \"" + source + "\"\nblocked = true\n[[registry.mirror]]\nlocation = \"" + s.r.Host + "/os\"\ninsecure = true\n"
				name := identity
				if identity == "mirror" {
					name = s.identity()
				}
				if kind == "attached" {
					s.policy(wantSigstore)
					s.attach(s.amd64.digest, must(keys.key.Sign(s.amd64.digest, name)))
				} else {
					s.policy(wantPGP)
					s.lookaside(s.amd64.digest, 1, must(keys.pgp.Sign(s.amd64.digest, name)))
				}
				want := verdict.SignatureVerified
				if identity == "mirror" {
					want = verdict.SignatureInvalid
				}
				img := openImage(t, source+"@"+s.amd64.digest, loadConfig(t, s.files, ConfigOptions{}))
				if got, err := img.VerifySignature(t.Context()); err != nil || got.Requirement != want {
					t.Errorf("got %+v, %v; want %s", got, err, want)
				}
			})
		}
	}
}

// Keys are files of the host, or stand in the policy; certificates and Rekor
// too.
func TestKeys(t *testing.T) {
	keys := newKeyring()
	authority, rekor := must(signing.NewAuthority()), must(signing.NewKey())
	data := func(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
	both := string(must(keys.otherPGP.ArmoredPublic())) + "\na comment\n" + string(must(keys.pgp.ArmoredPublic()))
	files := map[string]string{
		"/usr/other": string(must(keys.otherPGP.Public())), "/var/lib/both": both, "/etc/other.pub": string(must(keys.otherKey.PublicPEM())),
		"/etc/ca.pem": string(authority.PEM()), "/etc/rekor.pub": string(must(rekor.PublicPEM())), "/etc/garbage": "-----BEGIN nothing",
		"/etc/empty": "", "/etc/private": strings.Replace(both, "PUBLIC", "PRIVATE", 2),
	}
	pgp := func(fields string) string { return `{"type":"signedBy","keyType":"GPGKeys",` + fields + `}` }
	sigstore := func(fields string) string { return `{"type":"sigstoreSigned",` + fields + `}` }
	const mail, issuer = "release@example.com", "https://oidc.example.com"
	fulcio := func(mail string) string {
		return sigstore(`"fulcio":{"caPath":"/etc/ca.pem","oidcIssuer":"` + issuer + `","subjectEmail":"` + mail + `"},"rekorPublicKeyPath":"/etc/rekor.pub"`)
	}
	ok, invalid, bad := verdict.SignatureVerified, verdict.SignatureInvalid, verdict.SignatureRequirement("")
	tests := []struct {
		name, req string
		want      verdict.SignatureRequirement // empty: the policy is invalid
		text      string
	}{
		{"file", pgp(`"keyPath":"` + pgpPath + `"`), ok, ""},
		{"second file", pgp(`"keyPaths":["/usr/other","` + pgpPath + `"]`), ok, ""},
		{"second in a file", pgp(`"keyPath":"/var/lib/both"`), ok, ""},
		{"others only", pgp(`"keyPaths":["/usr/other"]`), invalid, ""},
		{"in the policy", pgp(`"keyData":"` + data(must(keys.pgp.Public())) + `"`), ok, ""},
		{"second in the policy", pgp(`"keyData":"` + data([]byte(both)) + `"`), ok, ""},
		{"missing", pgp(`"keyPath":"/etc/missing"`), bad, "/etc/missing"},
		{"one missing", pgp(`"keyPaths":["` + pgpPath + `","/etc/missing"]`), bad, "/etc/missing"},
		{"garbage", pgp(`"keyPath":"/etc/garbage"`), bad, "/etc/garbage"},
		{"empty", pgp(`"keyPath":"/etc/empty"`), bad, "/etc/empty"},
		{"private", pgp(`"keyPath":"/etc/private"`), bad, "/etc/private"},
		{"relative", pgp(`"keyPath":"etc/pki"`), bad, "absolute"},
		{"folder", pgp(`"keyPath":"/etc/pki"`), bad, "/etc/pki"},
		{"garbage in the policy", pgp(`"keyData":"aGVsbG8="`), bad, "keyData"},
		{"other kind of key", `{"type":"signedBy","keyType":"X509Certificates","keyPath":"/etc/missing"}`, invalid, "keyType"},
		{"base layer", `{"type":"signedBaseLayer","baseLayerIdentity":{"type":"matchRepository"}}`, invalid, "not implemented"},

		{"sigstore file", sigstore(`"keyPath":"` + sigstorePath + `"`), ok, ""},
		{"sigstore second file", sigstore(`"keyPaths":["/etc/other.pub","` + sigstorePath + `"]`), ok, ""},
		{"sigstore other file", sigstore(`"keyPaths":["/etc/other.pub"]`), invalid, ""},
		{"sigstore in the policy", sigstore(`"keyData":"` + data(must(keys.key.PublicPEM())) + `"`), ok, ""},
		{"sigstore second in the policy", sigstore(`"keyDatas":["` + data(must(keys.otherKey.PublicPEM())) + `","` + data(must(keys.key.PublicPEM())) + `"]`), ok, ""},
		{"sigstore missing", sigstore(`"keyPath":"/etc/missing"`), bad, "/etc/missing"},
		{"sigstore garbage", sigstore(`"keyPath":"` + pgpPath + `"`), bad, pgpPath},
		{"sigstore garbage in the policy", sigstore(`"keyDatas":["aGVsbG8="]`), bad, "keyData"},
		{"with Rekor", sigstore(`"keyPath":"` + sigstorePath + `","rekorPublicKeyPath":"/etc/rekor.pub"`), ok, ""},
		{"with Rekors", sigstore(`"keyPath":"` + sigstorePath + `","rekorPublicKeyPaths":["/etc/other.pub","/etc/rekor.pub"]`), ok, ""},
		{"with other Rekor", sigstore(`"keyPath":"` + sigstorePath + `","rekorPublicKeyPath":"/etc/other.pub"`), invalid, "Rekor"},
		{"without Rekor's key", sigstore(`"keyPath":"` + sigstorePath + `","rekorPublicKeyPath":"/etc/missing"`), bad, "/etc/missing"},
		{"Fulcio", fulcio(mail), ok, ""},
		{"Fulcio, other mail", fulcio("other@example.com"), invalid, "other@example.com"},
		{"Fulcio, no certificate", sigstore(`"fulcio":{"caPath":"/etc/other.pub","oidcIssuer":"x","subjectEmail":"x"},"rekorPublicKeyPath":"/etc/rekor.pub"`), bad, "/etc/other.pub"},
		{"PKI", sigstore(`"pki":{"caRootsPath":"/etc/ca.pem","subjectEmail":"` + mail + `"}`), ok, ""},
		{"PKI in the policy", sigstore(`"pki":{"caRootsData":"` + data(authority.PEM()) + `","caIntermediatesPath":"/etc/ca.pem","subjectEmail":"` + mail + `"}`), ok, ""},
		{"PKI, other mail", sigstore(`"pki":{"caRootsPath":"/etc/ca.pem","subjectEmail":"x"}`), invalid, ""},
		{"PKI, missing", sigstore(`"pki":{"caRootsPath":"/etc/ca.pem","caIntermediatesPath":"/etc/missing","subjectEmail":"x"}`), bad, "/etc/missing"},
	}
	s := newSigned(t, keys)
	maps.Copy(s.files, files)
	s.lookaside(s.amd64.digest, 1, must(keys.pgp.Sign(s.amd64.digest, s.identity())))
	att := must(keys.key.Sign(s.amd64.digest, s.identity()))
	withCertificate := must(authority.Certify(att, keys.key, mail, issuer))
	s.attach(s.amd64.digest, must(rekor.Log(att, must(keys.key.PublicPEM()))), must(rekor.Log(withCertificate, nil)))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.t = t
			const scope = "docker:127.0.0.1"
			s.files[policyPath] = `{"default":[{"type":"reject"}],"transports":{"docker":{"` + s.r.Host + `":[` + tt.req + `]}}}`
			img := s.image(s.amd64.digest)
			got, err := img.VerifySignature(t.Context())
			if tt.want != bad {
				if err != nil || got.Requirement != tt.want || !strings.Contains(got.Detail, tt.text) {
					t.Fatalf("got %+v, %v; want %s with %q", got, err, tt.want, tt.text)
				}
				return
			}
			if CodeOf(err) != PolicyInvalid || !strings.Contains(err.Error(), tt.text) || !strings.Contains(err.Error(), scope) || !strings.HasPrefix(err.Error(), policyPath) {
				t.Fatalf("got %+v, %q: %v", got, CodeOf(err), err)
			}
			if img.Transfer().Requests != 0 || strings.Contains(err.Error(), img.cfg.dir) {
				t.Errorf("%d requests; %v", img.Transfer().Requests, err)
			}
			if _, again := img.cfg.SignaturePolicy(s.r.Reference("os", s.amd64.digest)); CodeOf(again) != PolicyInvalid {
				t.Errorf("SignaturePolicy says %v", again)
			}
			// Other scopes are none the worse.
			if other, err := img.cfg.SignaturePolicy("quay.io/os:latest"); err != nil || other.Requirement != verdict.SignatureReject {
				t.Errorf("another scope: %+v, %v", other, err)
			}
		})
	}
}

// A key counts while it is valid now, and a signature made by it then.
func TestExpiredKeys(t *testing.T) {
	day := 24 * time.Hour
	for name, tt := range map[string]struct {
		age, lifetime time.Duration
		want          verdict.SignatureRequirement
	}{
		"valid":         {10 * day, 20 * day, verdict.SignatureVerified},
		"expired since": {10 * day, 5 * day, verdict.SignatureInvalid},
		"of the future": {-10 * day, 20 * day, verdict.SignatureInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			keys := newKeyring()
			keys.pgp = must(signing.NewPGPKey(time.Now().Add(-tt.age), tt.lifetime))
			s := newSigned(t, keys)
			s.policy(wantPGP)
			s.lookaside(s.amd64.digest, 1, must(keys.pgp.Sign(s.amd64.digest, s.identity())))
			got, err := s.image(s.amd64.digest).VerifySignature(t.Context())
			if err != nil || got.Requirement != tt.want {
				t.Errorf("got %+v, %v; want %s", got, err, tt.want)
			}
			t.Log(got.Detail)
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
