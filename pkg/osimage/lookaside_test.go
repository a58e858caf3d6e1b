package osimage

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/signing"
)

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
