package osimage

import (
	"strings"
	"testing"

	"github.com/oneboot/oneboot/pkg/verdict"
)

func TestSignaturePolicy(t *testing.T) {
	const ref = "quay.io/openshift/os@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	const accept, reject = `[{"type":"insecureAcceptAnything"}]`, `[{"type":"reject"}]`
	const signed = `[{"type":"signedBy","keyType":"GPGKeys","keyPath":"/etc/pki/key"}]`
	const sigstore = `[{"type":"sigstoreSigned","keyPath":"/etc/pki/key.pub"}]`
	keys := newKeyring()
	pgp, pub := string(must(keys.pgp.Public())), string(must(keys.key.PublicPEM()))
	docker := func(scopes string) string {
		return `{"default":` + reject + `,"transports":{"docker":{` + scopes + `}}}`
	}
	tests := []struct {
		name, ref, policy string
		want              verdict.SignatureRequirement
		scope             string
	}{
		{"anything", ref, `{"default":` + accept + `}`, verdict.SignatureNone, "default"},
		{"nothing", ref, `{"default":` + reject + `}`, verdict.SignatureReject, "default"},
		{"signed", ref, `{"default":` + signed + `}`, verdict.SignatureRequired, "default"},
		{"sigstore", ref, docker(`"quay.io/openshift":` + sigstore), verdict.SignatureRequired, "docker:quay.io/openshift"},
		{"transport's default", ref, docker(`"":` + accept), verdict.SignatureNone, "docker"},
		{"registry", ref, docker(`"quay.io":` + accept), verdict.SignatureNone, "docker:quay.io"},
		{"wildcard", ref, docker(`"*.io":` + accept), verdict.SignatureNone, "docker:*.io"},
		{"narrow before wide", ref, docker(`"quay.io":` + accept + `,"quay.io/openshift":` + signed), verdict.SignatureRequired, "docker:quay.io/openshift"},
		{"repository", ref, docker(`"quay.io/openshift/os":` + accept + `,"quay.io/openshift":` + signed), verdict.SignatureNone, "docker:quay.io/openshift/os"},
		{"image", ref, docker(`"` + ref + `":` + accept + `,"quay.io/openshift/os":` + signed), verdict.SignatureNone, "docker:" + ref},
		{"not by part of a name", ref, docker(`"quay.io/open":` + accept), verdict.SignatureReject, "default"},
		{"other transport's scope", ref, `{"default":` + accept + `,"transports":{"docker-daemon":{"":` + reject + `}}}`, verdict.SignatureNone, "default"},
		{"both", ref, `{"default":[{"type":"insecureAcceptAnything"},{"type":"reject"}]}`, verdict.SignatureReject, "default"},
		{"anything and signed", ref, `{"default":[{"type":"insecureAcceptAnything"},` + signed[1:] + `}`, verdict.SignatureRequired, "default"},
		{"signed and nothing", ref, `{"default":[{"type":"reject"},` + signed[1:] + `}`, verdict.SignatureReject, "default"},
		{"archive", "oci-archive:/os.ociarchive", `{"default":` + reject + `,"transports":{"oci-archive":{"":` + accept + `}}}`, verdict.SignatureNone, "oci-archive"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := loadConfig(t, map[string]string{policyPath: tt.policy, "/etc/pki/key": pgp, "/etc/pki/key.pub": pub}, ConfigOptions{})
			got, err := c.SignaturePolicy(tt.ref)
			if err != nil || got.Requirement != tt.want || got.Scope != tt.scope || !strings.Contains(got.Detail, policyPath) {
				t.Errorf("got %+v, %v; want %s by %q", got, err, tt.want, tt.scope)
			}
		})
	}
	invalid := map[string]map[string]string{
		"missing": nil, "empty": {policyPath: ""}, "cut": {policyPath: `{"default":` + "\n"}, "no default": {policyPath: `{}`},
		"empty list": {policyPath: `{"default":[]}`}, "unknown type": {policyPath: `{"default":[{"type":"future"}]}`},
		"unknown field": {policyPath: `{"default":` + accept + `,"x":1}`}, "duplicate": {policyPath: `{"default":` + accept + `,"default":` + reject + `}`},
	}
	for name, files := range invalid {
		t.Run(name, func(t *testing.T) {
			got, err := loadConfig(t, files, ConfigOptions{}).SignaturePolicy(ref)
			if CodeOf(err) != PolicyInvalid || !strings.Contains(err.Error(), policyPath) || got != (verdict.SignaturePolicy{}) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	if _, err := loadConfig(t, nil, ConfigOptions{}).SignaturePolicy("os:latest"); CodeOf(err) != ReferenceInvalid {
		t.Errorf("short name: got %v", err)
	}
}
