package e2e

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/signing"
	"github.com/oneboot/oneboot/test/sysroot"
)

// A required signature is fetched and verified although the content is proven
// with no request at all.
func TestSignaturePolicy(t *testing.T) {
	l := newLab(t)
	key := must[*signing.Key](t)(signing.NewKey())
	stranger := must[*signing.Key](t)(signing.NewKey())
	pgp := must[*signing.PGPKey](t)(signing.NewPGPKey(time.Now().Add(-time.Hour), 0))
	arch := l.native.Config.Architecture
	list := must[*nativeimage.List](t)(nativeimage.NewList(nativeimage.OCI,
		nativeimage.Instance{Image: l.native, Platform: nativeimage.Platform{Architecture: arch, OS: "linux"}}))

	accept := `[{"type":"insecureAcceptAnything"}]`
	sigstore := `[{"type":"sigstoreSigned","keyPath":"/etc/pki/os.pub","signedIdentity":{"type":"matchRepository"}}]`
	simple := `[{"type":"signedBy","keyType":"GPGKeys","keyPath":"/etc/pki/os.gpg","signedIdentity":{"type":"matchRepository"}}]`
	policy := func(fallback, host, repository string) string {
		return `{"default":` + fallback + `,"transports":{"docker":{"` + l.reg.Host + `":` + host + `,"` + l.reg.Host + `/elsewhere":` + accept + `,"` + l.reg.Host + `/REPOSITORY":` + repository + `}}}`
	}
	signature := &registry.Fault{Path: regexp.MustCompile(`\.sig$`), Do: registry.Drop}
	tests := []struct {
		name   string
		policy string
		// sign signs with the key, if there is one.
		key    *signing.Key
		list   bool // the list is wanted
		top    bool // and signed itself
		pgp    bool
		fault  *registry.Fault
		reason verdict.Reason // empty for a skip
		code   string
	}{
		{name: "anything goes", policy: policy(`[{"type":"reject"}]`, accept, accept)},
		{name: "rejected", policy: policy(accept, accept, `[{"type":"reject"}]`), reason: "signature-policy-differs"},
		{name: "rejected by default", policy: `{"default":[{"type":"reject"}]}`, reason: "signature-policy-differs"},
		{name: "signed", policy: policy(accept, accept, sigstore), key: key},
		{name: "signed, the list wanted, the image signed", policy: policy(accept, accept, sigstore), key: key, list: true},
		{name: "signed, the list wanted and signed", policy: policy(accept, accept, sigstore), key: key, list: true, top: true},
		{name: "a scope further out asks", policy: strings.Replace(policy(accept, sigstore, accept), `,"`+l.reg.Host+`/REPOSITORY":`+accept, "", 1), key: key},
		{name: "a scope further in does not", policy: policy(accept, sigstore, accept)},
		{name: "by a stranger", policy: policy(accept, accept, sigstore), key: stranger, reason: "signature-policy-differs"},
		{name: "not signed", policy: policy(accept, accept, sigstore), reason: "signature-policy-differs"},
		{name: "simple signing in a lookaside", policy: policy(accept, accept, simple), pgp: true},
		{name: "simple signing, nothing there", policy: policy(accept, accept, simple), reason: "signature-policy-differs"},
		{name: "signature out of reach", policy: policy(accept, accept, sigstore), key: key, fault: signature, reason: "signature-policy-unknown", code: "registry-unreachable"},
		{name: "a policy that does not parse", policy: `{"default":[{"type":"accept"}]}`, reason: "signature-policy-unknown", code: "policy-invalid"},
		{name: "a key that is not there", policy: policy(accept, accept, strings.Replace(sigstore, "os.pub", "none.pub", 1)), key: key, reason: "signature-policy-unknown", code: "policy-invalid"},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			repository := "os/signed" + string(rune('a'+i))
			url := l.push(t, repository, l.native)
			digest := l.native.Digest
			if tt.list {
				listDigest := must[string](t)(l.reg.PushList(repository, list))
				url = l.reg.Reference(repository, listDigest)
				if tt.top {
					digest = listDigest
				}
			}
			if tt.key != nil {
				att := must[signing.Attachment](t)(tt.key.Sign(digest, l.reg.Host+"/"+repository+":4.20"))
				if err := l.reg.Attach(repository, digest, att); err != nil {
					t.Fatal(err)
				}
			}
			n := l.bootNode(t, nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: url}})
			files := map[string]string{
				sysroot.PolicyPath:                    strings.ReplaceAll(tt.policy, "REPOSITORY", repository),
				"etc/containers/registries.d/os.yaml": "docker:\n  " + l.reg.Host + ":\n    use-sigstore-attachments: true\n    lookaside: file:///var/lib/signatures\n",
				"etc/pki/os.pub":                      string(must[[]byte](t)(key.PublicPEM())), "etc/pki/os.gpg": string(must[[]byte](t)(pgp.Public())),
			}
			if tt.pgp {
				files["var/lib/signatures/"+signing.LookasideFile(repository, digest, 1)] =
					string(must[[]byte](t)(pgp.Sign(digest, l.reg.Host+"/"+repository+":4.20")))
			}
			for name, content := range files {
				if err := n.WriteFile(name, content); err != nil {
					t.Fatal(err)
				}
			}
			if tt.fault != nil {
				l.reg.AddFault(tt.fault)
				defer l.reg.ClearFaults()
			}
			l.reg.ResetRequests()
			res := n.analyze(t)
			want := proceed(tt.reason, -1)
			if tt.reason == "" {
				want = skip(verdict.ProofManifestDigest, -1)
			}
			l.expect(t, res, want)
			if errs := res.Verdict.Errors; tt.code != "" && (len(errs) != 1 || errs[0].Code != tt.code) {
				t.Errorf("errors %+v, want one with the code %s", errs, tt.code)
			}
			t.Logf("%d requests, %d bytes, %.1f ms", res.Transfer.Requests, res.Transfer.Bytes, res.Seconds*1000)
		})
	}
}
