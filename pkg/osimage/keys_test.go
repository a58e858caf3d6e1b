package osimage

import (
	"encoding/base64"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/signing"
)

// Keys are files of the host, or stand in the policy; certificates and Rekor
// too.
func TestKeys(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
