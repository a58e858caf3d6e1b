package hostconfig

import (
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/test/registry"
)

// TestCertificates: which authorities are trusted, and with which certificate
// a registry is asked.
func TestCertificates(t *testing.T) {
	l := newLab(t)
	r := l.start(t, registry.Options{TLS: true}, "os")
	ca, other := string(r.CA), string(l.start(t, registry.Options{TLS: true}).CA)
	block, _ := pem.Decode(r.CA)
	const (
		bundle    = "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
		anchors   = "etc/pki/ca-trust/source/anchors/"
		untrusted = "certificate signed by unknown authority"
	)
	wrongCA := fails("registry-untrusted", untrusted, "/etc/containers/certs.d/")
	cert, key, err := registry.NewClientCertificate()
	if err != nil {
		t.Fatal(err)
	}
	otherCert, otherKey, err := registry.NewClientCertificate()
	if err != nil {
		t.Fatal(err)
	}
	mutual := l.start(t, registry.Options{TLS: true, ClientCA: cert}, "os")
	client := func(fs files) files {
		out := files{certsDir + "{host}/ca.crt": string(mutual.CA)}
		for name, text := range fs {
			out[certsDir+"{host}/"+name] = text
		}
		return out
	}
	tests := []struct {
		name   string
		r      *registry.Registry
		files  files
		want   want
		unlike string
	}{
		{"no CA", r, nil, wrongCA, ""},
		{"the extracted bundle", r, files{bundle: other + ca}, skip(), ""},
		{"Fedora's and RHEL's bundle", r, files{"etc/pki/tls/certs/ca-bundle.crt": other + ca}, skip(), ""},
		{"Debian's bundle", r, files{"etc/ssl/certs/ca-certificates.crt": ca}, skip(), ""},
		{"the first bundle alone", r, files{"etc/ssl/certs/ca-certificates.crt": other, bundle: ca}, wrongCA, ""},
		{"beside the bundle", r, files{"etc/pki/tls/certs/ca-bundle.crt": other, "etc/pki/tls/certs/own.pem": ca}, skip(), ""},
		{"named as a bundle", r, files{"etc/pki/tls/certs/ca-bundle.crt": other, "etc/pki/tls/certs/ca-own.crt": ca}, skip(), ""},
		{"in the other folder", r, files{bundle: other, "etc/ssl/certs/own.crt": ca}, skip(), ""},
		{"wrong CA in the bundle", r, files{"etc/pki/tls/certs/ca-bundle.crt": other}, wrongCA, ""},
		{"the operator's anchor, not yet in the bundle", r, files{"etc/pki/tls/certs/ca-bundle.crt": other, anchors + "openshift-config-user-ca-bundle.crt": "# a comment\n" + other + ca}, skip(), "update-ca-trust has not run"},
		{"an anchor in DER", r, files{anchors + "own.der": string(block.Bytes), anchors + "README": "not a certificate"}, skip(), "update-ca-trust has not run"},
		{"certs.d", r, files{certsDir + "{host}/ca.crt": ca}, skip(), ""},
		{"any name in certs.d", r, files{certsDir + "{host}/internal.crt": other + ca}, skip(), ""},
		{"not another ending", r, files{certsDir + "{host}/ca.pem": ca}, wrongCA, ""},
		{"a wrong one in certs.d", r, files{certsDir + "{host}/ca.crt": other}, wrongCA, ""},
		{"no certificate in certs.d", r, files{certsDir + "{host}/ca.crt": "not one"}, wrongCA, ""},
		{"beside the system's", r, files{certsDir + "{host}/ca.crt": other, "etc/pki/tls/certs/ca-bundle.crt": ca}, skip(), ""},
		{"docker's", r, files{dockerCerts + "{host}/ca.crt": ca}, skip(), ""},
		{"docker's is hidden", r, files{dockerCerts + "{host}/ca.crt": ca, certsDir + "{host}/ca.crt": other}, wrongCA, ""},
		{"docker's is hidden by an empty folder", r, files{dockerCerts + "{host}/ca.crt": ca, certsDir + "{host}/x/y": ""}, wrongCA, ""},
		{"without the port", r, files{certsDir + "127.0.0.1/ca.crt": ca}, wrongCA, ""},
		{"another registry's", r, files{certsDir + "quay.io/ca.crt": ca}, wrongCA, ""},
		{"bundle without certificates", r, files{bundle: "nothing"}, fails("certs-invalid", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "no certificate"), ""},
		{"folder in its place", r, files{certsDir + "{host}/ca.crt/x": ca}, fails("certs-invalid", "/etc/containers/certs.d/{host}/ca.crt", "not a regular file"), ""},
		{"client's certificate", mutual, client(files{"client.cert": string(cert), "client.key": string(key)}), skip(), ""},
		{"any name", mutual, client(files{"node.cert": string(cert), "node.key": string(key)}), skip(), ""},
		{"none", mutual, client(nil), fails("registry-unreachable", "certificate"), ""},
		{"another client's", mutual, client(files{"client.cert": string(otherCert), "client.key": string(otherKey)}), fails("registry-unreachable", "certificate"), ""},
		{"no key", mutual, client(files{"client.cert": string(cert)}), fails("certs-invalid", "client.key"), ""},
		{"key of another name", mutual, client(files{"client.cert": string(cert), "other.key": string(key)}), fails("certs-invalid", "client.key"), ""},
		{"no certificate", mutual, client(files{"client.key": string(key)}), fails("certs-invalid", "client.cert"), ""},
		{"key of another client", mutual, client(files{"client.cert": string(cert), "client.key": string(otherKey)}), fails("certs-invalid", "private key does not match"), ""},
		{"malformed key", mutual, client(files{"client.cert": string(cert), "client.key": secret}), fails("certs-invalid", "PEM"), ""},
		{"insecure leaves it out", mutual, files{certsDir + "{host}/client.cert": string(cert), certsDir + "{host}/client.key": string(key),
			confFile: "[[registry]]\nlocation = \"{host}\"\ninsecure = true\n"}, skip(), ""},
		{"docker's client certificate", mutual, files{dockerCerts + "{host}/client.cert": string(cert), dockerCerts + "{host}/client.key": string(key), dockerCerts + "{host}/ca.crt": string(mutual.CA)}, skip(), ""},
		{"broken, of another registry", r, files{certsDir + "{host}/ca.crt": ca, certsDir + "quay.io/client.cert": "x"}, skip(), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fs := files{}
			fill := strings.NewReplacer("{host}", tt.r.Host)
			for name, text := range tt.files {
				fs[fill.Replace(name)] = fill.Replace(text)
			}
			for i := range tt.want.texts {
				tt.want.texts[i] = fill.Replace(tt.want.texts[i])
			}
			url := tt.r.Reference("os", l.image.Digest)
			l.host(t, url, fs)
			tt.want.check(t, l.analyze(t))
			if err := l.skopeo(t, url); ((err != nil) == tt.want.failed) == (tt.unlike != "") {
				t.Errorf("skopeo: %v", err)
			}
		})
	}
}

// TestMirrorsCertificates: each of two mirrors is known by its own authority.
func TestMirrorsCertificates(t *testing.T) {
	l := newLab(t)
	first, second := l.start(t, registry.Options{TLS: true}), l.start(t, registry.Options{TLS: true}, "os")
	conf := fmt.Sprintf("[[registry]]\nlocation = \"release.test/os\"\nblocked = true\n[[registry.mirror]]\nlocation = \"%s/os\"\n[[registry.mirror]]\nlocation = \"%s/os\"\n", first.Host, second.Host)
	url := "release.test/os@" + l.image.Digest
	for name, tt := range map[string]struct {
		files files
		want  want
	}{
		"both":                        {files{certsDir + first.Host + "/ca.crt": string(first.CA), dockerCerts + second.Host + "/ca.crt": string(second.CA)}, skip()},
		"the second":                  {files{certsDir + second.Host + "/ca.crt": string(second.CA)}, skip()},
		"the first":                   {files{certsDir + first.Host + "/ca.crt": string(first.CA)}, fails("registry-blocked", second.Host, "unknown authority")},
		"the first with a broken key": {files{certsDir + first.Host + "/x.key": "x", certsDir + second.Host + "/ca.crt": string(second.CA)}, skip()},
		"the second's at the first":   {files{certsDir + first.Host + "/ca.crt": string(second.CA)}, fails("registry-blocked", first.Host, "unknown authority")},
	} {
		t.Run(name, func(t *testing.T) {
			tt.files[confFile] = conf
			l.host(t, url, tt.files)
			tt.want.check(t, l.analyze(t))
			if err := l.skopeo(t, url); (err != nil) != tt.want.failed {
				t.Errorf("skopeo: %v", err)
			}
		})
	}
}
