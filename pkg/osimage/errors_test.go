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
