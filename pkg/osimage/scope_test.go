package osimage

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/signing"
)

// onlyReference is an image that nothing but its name is known of.
type onlyReference struct{ ref types.ImageReference }

func (o onlyReference) Reference() types.ImageReference { return o.ref }

func (onlyReference) Manifest(context.Context) ([]byte, string, error) {
	return nil, "", errors.New("no manifest")
}

func (onlyReference) Signatures(context.Context) ([][]byte, error) {
	return nil, errors.New("no signatures")
}

// The scope that is shown is the one that the library goes by: with each scope
// alone rejecting, then alone accepting, and in the company of others.
func TestScopesAsTheLibrary(t *testing.T) {
	const digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	refs := []string{"quay.io/openshift/os" + digest, "quay.io/openshift/os:4.20", "quay.io/os" + digest, "a.b.example.com:5000/x/y" + digest,
		"b.example.com/x" + digest, "example.com/x" + digest, "docker.io/library/os" + digest, "localhost/os:a"}
	scopes := []string{"", "quay.io", "quay.io/openshift", "quay.io/openshift/os", "quay.io/openshift/os:4.20", "quay.io/openshift/os:latest",
		"quay.io/openshift/os" + digest, "quay.io/open", "*.io", "*.quay.io", "example.com", "*.example.com", "*.b.example.com", "*.com",
		"a.b.example.com:5000", "a.b.example.com:5000/x", "a.b.example.com", "b.example.com", "docker.io", "docker.io/library", "localhost"}
	const accept, reject = `[{"type":"insecureAcceptAnything"}]`, `[{"type":"reject"}]`
	policies := []string{`{"default":` + reject + `}`, `{"default":` + accept + `,"transports":{"oci":{"":` + reject + `}}}`}
	for i, scope := range scopes {
		other := scopes[(i+5)%len(scopes)]
		policies = append(policies,
			fmt.Sprintf(`{"default":%s,"transports":{"docker":{%q:%s}}}`, accept, scope, reject),
			fmt.Sprintf(`{"default":%s,"transports":{"docker":{%q:%s}}}`, reject, scope, accept),
			fmt.Sprintf(`{"default":%s,"transports":{"docker":{%q:%s,%q:%s}}}`, reject, scope, accept, other, reject),
		)
	}
	applied := map[string]bool{}
	for _, policy := range policies {
		c := loadConfig(t, map[string]string{policyPath: policy}, ConfigOptions{})
		pc, err := signature.NewPolicyContext(must(signature.NewPolicyFromBytes([]byte(policy))))
		if err != nil {
			t.Fatal(err)
		}
		for _, ref := range refs {
			allowed, _ := pc.IsRunningImageAllowed(t.Context(), onlyReference{must(parseReference(ref))})
			got, err := c.SignaturePolicy(ref)
			if err != nil || (got.Requirement == verdict.SignatureNone) != allowed || (got.Requirement == verdict.SignatureReject) == allowed {
				t.Errorf("%s with %s: got %+v, %v; the library says %v", ref, policy, got, err, allowed)
			}
			applied[got.Scope] = true
		}
	}
	if len(applied) < 12 {
		t.Errorf("only these scopes applied: %v", applied)
	}
}

// Whose name a signature must bear, held against the manual
// containers-policy.json(5).
func TestSignedIdentity(t *testing.T) {
	keys := newKeyring()
	s := newSigned(t, keys)
	host, digest := s.r.Host, s.amd64.digest
	identity := func(kind string, fields ...string) string {
		return `{"type":"` + kind + `"` + strings.Join(append([]string{""}, fields...), ",") + `}`
	}
	pinned := "@" + digest
	tests := []struct {
		identity string
		signedAs string
		want     bool
	}{
		{"", host + "/os:4.20", true},
		{"", host + "/os" + pinned, true},
		{"", host + "/os", false},
		{"", host + "/other:4.20", false},
		{identity("matchRepoDigestOrExact"), host + "/os:anything", true},
		{identity("matchExact"), host + "/os" + pinned, true},
		{identity("matchExact"), host + "/os:4.20", false},
		{identity("matchRepository"), host + "/os:4.20", true},
		{identity("matchRepository"), host + "/os", true},
		{identity("matchRepository"), host + "/os/x", false},
		{identity("exactReference", `"dockerReference":"quay.io/release/os:4.20"`), "quay.io/release/os:4.20", true},
		{identity("exactReference", `"dockerReference":"quay.io/release/os:4.20"`), "quay.io/release/os:4.19", false},
		{identity("exactRepository", `"dockerRepository":"quay.io/release/os"`), "quay.io/release/os:4.19", true},
		{identity("exactRepository", `"dockerRepository":"quay.io/release/os"`), host + "/os:4.19", false},
		{identity("remapIdentity", `"prefix":"`+host+`"`, `"signedPrefix":"quay.io/release"`), "quay.io/release/os:4.20", true},
		{identity("remapIdentity", `"prefix":"`+host+`/os"`, `"signedPrefix":"quay.io/release/node"`), "quay.io/release/node:4.20", true},
		{identity("remapIdentity", `"prefix":"`+host+`"`, `"signedPrefix":"quay.io/release"`), host + "/os:4.20", false},
		{identity("remapIdentity", `"prefix":"quay.io"`, `"signedPrefix":"quay.io/release"`), host + "/os:4.20", true},
	}
	for _, tt := range tests {
		name := strings.NewReplacer(host, "HOST", digest, "DIGEST").Replace(tt.identity + " " + tt.signedAs)
		t.Run(name, func(t *testing.T) {
			s.t = t
			field := ""
			if tt.identity != "" {
				field = `,"signedIdentity":` + tt.identity
			}
			s.lookaside(digest, 1, must(keys.pgp.Sign(digest, tt.signedAs)))
			s.attach(digest, must(keys.key.Sign(digest, tt.signedAs)))
			for _, req := range []string{wantPGP, wantSigstore} {
				s.policy(strings.TrimSuffix(req, "}") + field + "}")
				got, err := s.image(digest).VerifySignature(t.Context())
				if err != nil || (got.Requirement == verdict.SignatureVerified) != tt.want || (got.Requirement == verdict.SignatureInvalid) == tt.want {
					t.Errorf("got %+v, %v; want verified %v", got, err, tt.want)
				}
			}
		})
	}
}

// Copies of keys are all that a policy names once it was read.
func FuzzPolicyKeys(f *testing.F) {
	pub := must(must(signing.NewKey()).PublicPEM())
	for _, s := range []string{acceptAnything, `{"default":[` + wantPGP + `]}`, `{"default":[` + wantSigstore + `],"transports":{"docker":{"quay.io":[` + wantSigstore + `]}}}`,
		`{"default":[{"type":"sigstoreSigned","keyPaths":["/a","b"],"rekorPublicKeyPaths":["/a"]}]}`,
		`{"default":[{"type":"sigstoreSigned","pki":{"caRootsPath":"/a","subjectEmail":"x"}}],"transports":{"":{"":[{"type":"reject"}]}}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		k := keyCopier{
			nowhere: "/copies/nowhere",
			read:    func(string) ([]byte, error) { return pub, nil },
			write:   func(name string, _ []byte) (string, error) { return "/copies" + name, nil },
		}
		policy, wrong, err := k.copyKeys(b)
		if _, strict := signature.NewPolicyFromBytes(b); (strict == nil) != (err == nil) {
			t.Fatalf("got %v, the library says %v", err, strict)
		}
		if err != nil {
			return
		}
		scopes := map[string]signature.PolicyRequirements{"default": policy.Default}
		for transport, byName := range policy.Transports {
			for name, reqs := range byName {
				scopes[scopeName(transport, name)] = reqs
			}
		}
		for scope, reqs := range scopes {
			for _, r := range reqs {
				text := string(mustJSON(t, r))
				for rest := text; wrong[scope] == nil; {
					_, after, ok := strings.Cut(rest, `Path":"`)
					if !ok {
						break
					}
					if !strings.HasPrefix(after, "/copies/") && !strings.Contains(text, `"keyType":"X509`) && !strings.Contains(text, `"keyType":"signedBy`) {
						t.Errorf("%q: %s", scope, text)
					}
					rest = after
				}
			}
		}
	})
}

// Folders of signatures are private ones once registries.d was read.
func FuzzSignatureStores(f *testing.F) {
	for _, s := range []string{"", "default-docker:\n  lookaside: file:///srv\n", "docker:\n  quay.io:\n    sigstore: FILE:/../x\n    use-sigstore-attachments: true\n", "docker: &a\n  x: {lookaside: 'file://h/%2e%2e/a'}\n"} {
		f.Add([]byte(s))
	}
	c := &Config{dir: "/copies"}
	f.Fuzz(func(t *testing.T, b []byte) {
		stores, err := c.redirect(b)
		if err != nil {
			return
		}
		all := []signatureStore{}
		if stores.Default != nil {
			all = append(all, *stores.Default)
		}
		for _, s := range stores.Docker {
			all = append(all, s)
		}
		for _, s := range all {
			if strings.HasPrefix(strings.ToLower(s.Lookaside), "file:") && !strings.HasPrefix(s.Lookaside, "file:///copies/lookaside") {
				if _, err := url.Parse(s.Lookaside); err == nil {
					t.Errorf("%q", s.Lookaside)
				}
			}
		}
	})
}

// What passes holds no more text than is allowed, as the library reads it.
func FuzzSignedMessage(f *testing.F) {
	key := must(signing.NewPGPKey(time.Now().Add(-time.Hour*48), 0))
	message := must(key.Sign("sha256:"+sum(nil), "quay.io/os:1"))
	f.Add(message)
	f.Add(must(signing.Compress(message)))
	f.Add(must(signing.Compress(must(signing.Compress(message)))))
	f.Add(must(signing.Compress(must(key.SignText(make([]byte, maxSignedText))))))
	mech, _, err := signature.NewEphemeralGPGSigningMechanism(must(key.Public()))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if checkMessage(b) != nil {
			return
		}
		text, _, err := mech.UntrustedSignatureContents(b)
		if err == nil && len(text) > maxSignedText+len(b) {
			t.Errorf("%d bytes of %d", len(text), len(b))
		}
	})
}
