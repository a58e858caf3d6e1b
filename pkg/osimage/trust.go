package osimage

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"sync"
)

// pingPath is what the library asks a registry for first.
const pingPath = "/v2/"

// A hostTrust narrows a connection's trust to the system's CAs and those of
// the registry that it is for. The library adds the CAs of each place that it
// tries to the same pool, so that a mirror's would count for the next mirror
// and the source too, which they do not where the host's own tools pull.
type hostTrust struct {
	proxy  func(*url.URL) (*url.URL, error)
	system *x509.CertPool
	// registries are the pools of those with a folder in certs.d.
	registries map[string]*x509.CertPool

	mu sync.Mutex
	// current is the registry that the library asks. It tries one after the
	// other, and begins each with a ping; what that one sends it to, a token
	// server or a store of blobs, is trusted as the registry is.
	current string
}

// proxyFor answers which proxy serves a URL, before each request.
func (h *hostTrust) proxyFor(u *url.URL) (*url.URL, error) {
	if u.Path == pingPath {
		h.mu.Lock()
		h.current = u.Host
		h.mu.Unlock()
	}
	return h.proxy(u)
}

// verify checks a connection that has been verified against the library's pool.
func (h *hostTrust) verify(cs tls.ConnectionState) error {
	if len(cs.VerifiedChains) == 0 {
		return nil // insecure = true
	}
	h.mu.Lock()
	pool, ok := h.registries[h.current]
	h.mu.Unlock()
	if !ok {
		pool = h.system
	}
	opts := x509.VerifyOptions{Roots: pool, Intermediates: x509.NewCertPool()}
	for _, cert := range cs.PeerCertificates[1:] {
		opts.Intermediates.AddCert(cert)
	}
	_, err := cs.PeerCertificates[0].Verify(opts)
	return err
}
