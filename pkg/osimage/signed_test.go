package osimage

import (
	"strings"
	"testing"
	"time"

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
