package bootimage

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"time"
)

// NewClient returns a client that asks through the proxies that the environment
// names (HTTPS_PROXY, HTTP_PROXY, NO_PROXY) and trusts the system's CAs, those in
// SSL_CERT_FILE in their place, and besides them those in pems. It follows up to
// ten redirections, never from https to http.
func NewClient(pems []byte) (*http.Client, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the system's CAs: %w", err)
	}
	if len(pems) > 0 && !pool.AppendCertsFromPEM(pems) {
		return nil, errors.New("the CA file holds no certificate in PEM form")
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSClientConfig:       &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:   15 * time.Second,
			ResponseHeaderTimeout: 60 * time.Second,
			IdleConnTimeout:       30 * time.Second,
			ForceAttemptHTTP2:     true,
			// What is counted and hashed is what was sent.
			DisableCompression:     true,
			MaxResponseHeaderBytes: 1 << 20,
		},
		CheckRedirect: func(next *http.Request, before []*http.Request) error {
			switch {
			case len(before) >= 10:
				return errors.New("more than ten redirections")
			case before[len(before)-1].URL.Scheme == "https" && next.URL.Scheme != "https":
				return errors.New("redirected from https to " + next.URL.Scheme)
			}
			return nil
		},
	}, nil
}

// Fetch reads a stream or ConfigMap from an https address: what is read from it
// is trusted with nothing else to check it by.
func Fetch(ctx context.Context, client *http.Client, address string) (*Source, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("reading boot images: the address must begin with https://HOST")
	}
	shown := u.Host + u.Path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("reading %s: the address cannot be used", shown)
	}
	req.Header.Set("Accept", "application/json, application/yaml, */*;q=0.5")
	req.Header.Set("User-Agent", "oneboot")
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", shown, withoutAddress(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading %s: the server answers %s", shown, resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, MaxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", shown, err)
	}
	src, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown, err)
	}
	return src, nil
}

// A shownError is an error in other words.
type shownError struct {
	text string
	err  error
}

func (e *shownError) Error() string { return e.text }
func (e *shownError) Unwrap() error { return e.err }

// addressSecrets are the user and the query of an address in a text.
var addressSecrets = regexp.MustCompile(`(://)[^/@\s"]*@|\?[^\s"]+`)

// withoutAddress is a client's error without the address that it asked, which may hold
// credentials; of others in it, where a server has sent it to, host and path are left.
func withoutAddress(err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	return &shownError{addressSecrets.ReplaceAllString(err.Error(), "$1"), err}
}
