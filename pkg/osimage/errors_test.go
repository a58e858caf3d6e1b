package osimage

import "testing"

// A message is the same on every run, and tells no secrets.
func TestRedact(t *testing.T) {
	tests := []struct{ name, message, want string }{
		{"credentials", `Get "https://user:secret@proxy:3128/": refused`, `Get "https://proxy:3128/": refused`},
		{"query", `Get "https://cdn.example/blob?Signature=abc": EOF`, `Get "https://cdn.example/blob?...": EOF`},
		{"peer", "dial tcp 192.0.2.7:443: connect: connection refused", "dial tcp: connect: connection refused"},
		{"peer, IPv6", "dial tcp6 [2001:db8::1]:443: i/o timeout", "dial tcp6: i/o timeout"},
		{"own port", "read tcp 10.0.0.5:39844->192.0.2.7:443: connection reset by peer", "read tcp: connection reset by peer"},
		{"name server", "dial tcp: lookup quay.io on 192.0.2.53:53: no such host", "dial tcp: lookup quay.io: no such host"},
		{"clock", "not yet valid: current time 1970-01-01T00:00:07Z is before 2024-01-01T00:00:00Z", "not yet valid: the current time is before 2024-01-01T00:00:00Z"},
		{"image", "127.0.0.1:5000/os@sha256:00: not found", "127.0.0.1:5000/os@sha256:00: not found"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := redact(tt.message); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// What to do about a certificate names the registry that sent it.
func TestTrustHint(t *testing.T) {
	const get = `pinging container registry: Get "https://mirror.example.com:5000/v2/": tls: failed to verify certificate: x509: `
	tests := []struct{ name, message, want string }{
		{"unknown authority", get + "certificate signed by unknown authority", "; the certificate of mirror.example.com:5000 is not trusted: put its CA into /etc/containers/certs.d/mirror.example.com:5000/ or the node's CA bundle"},
		{"from our own check", `Get "https://quay.io/v2/": x509: certificate signed by unknown authority`, "; the certificate of quay.io is not trusted: put its CA into /etc/containers/certs.d/quay.io/ or the node's CA bundle"},
		{"clock", get + "certificate has expired or is not yet valid: current time 1970-01-01T00:00:07Z is before 2024-01-01T00:00:00Z", "; the certificate of mirror.example.com:5000 is not valid at this time: is the node's clock right?"},
		{"another name", get + "certificate is valid for other.example.com, not mirror.example.com", "; the certificate of mirror.example.com:5000 is not trusted"},
		{"the client's", `Get "https://quay.io/v2/": remote error: tls: certificate required`, ""},
		{"none", "connection refused", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := trustHint(tt.message, containersCertsD); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
