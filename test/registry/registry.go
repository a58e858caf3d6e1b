// Package registry runs a real registry (github.com/distribution/distribution)
// in the process of a test, the demo or a benchmark: on a free port of the
// loopback interface, with a log of every request and with faults on demand.
//
// Pushing goes to the registry itself and shows neither in the log nor meets a
// fault or a password.
package registry

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem" // the storage driver
	"github.com/sirupsen/logrus"
)

// Options says what the registry asks of its clients. The zero value serves
// plain HTTP to anyone.
type Options struct {
	// TLS serves HTTPS with a certificate of a new authority; see
	// [Registry.CA].
	TLS bool
	// ClientCA, with TLS, asks for a client's certificate by this authority,
	// in PEM form; see [NewClientCertificate].
	ClientCA []byte
	// Username and Password, where set, are asked for: by the registry itself
	// (basic authentication) or, with Token, by its token server, which gives
	// tokens for one repository. IdentityToken is what that server takes in a
	// password's place; without a Username it serves anyone.
	Username, Password string
	Token              bool
	IdentityToken      string
	// Address is the address to listen on, without a port: 127.0.0.1 where
	// empty.
	Address string
	// Dir holds the registry's files; a temporary folder, removed by Close,
	// where empty.
	Dir string
}

// A Registry is a running registry.
type Registry struct {
	// Host is its address with the port, as it stands in a pull spec.
	Host string
	// CA is the certificate of the authority in PEM form; nil without TLS.
	CA []byte

	opts    Options
	app     *handlers.App
	server  *http.Server
	dir     string
	closing chan struct{}
	served  sync.WaitGroup

	mu        sync.Mutex
	answering int // requests that have not ended
	requests  []Request
	faults    []*Fault
	tokens    map[string]string
}

// A Request is a request that the registry has answered, or dropped.
type Request struct {
	Method string
	Path   string
	// Range is the request's header.
	Range  string
	Status int
	// Bytes is the size of the body that was handed to the connection. A
	// client that hangs up early has received no more than that.
	Bytes int64
	// Faulty says that a fault answered.
	Faulty bool
}

// Start starts a registry. It turns off the log of the library, which is the
// standard logger of logrus.
func Start(opts Options) (*Registry, error) {
	logrus.SetOutput(io.Discard)
	r := &Registry{opts: opts, dir: opts.Dir, closing: make(chan struct{})}
	if r.dir == "" {
		dir, err := os.MkdirTemp("", "registry-")
		if err != nil {
			return nil, err
		}
		r.dir = dir
	}
	r.app = handlers.NewApp(context.Background(), appConfig(r.dir))
	if opts.Address == "" {
		opts.Address = "127.0.0.1"
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(opts.Address, "0"))
	if err != nil {
		return nil, fmt.Errorf("starting the registry: %w", err)
	}
	r.Host = listener.Addr().String()
	listener = smallBuffers{listener}
	if opts.TLS {
		config, ca, err := newCertificate(opts.ClientCA)
		if err != nil {
			return nil, errors.Join(err, listener.Close())
		}
		r.CA = ca
		listener = tls.NewListener(listener, config)
	}
	r.server = &http.Server{Handler: http.HandlerFunc(r.serve), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	r.served.Go(func() {
		// It always ends with an error: that of the closed listener.
		_ = r.server.Serve(listener)
	})
	return r, nil
}

func appConfig(dir string) *configuration.Configuration {
	config := &configuration.Configuration{
		Storage: configuration.Storage{
			"filesystem":  configuration.Parameters{"rootdirectory": dir},
			"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
		},
	}
	config.HTTP.Secret = "a test's registry has no secret"
	config.Log.AccessLog.Disabled = true
	// A list may name instances that are not there, as after a mirror run
	// that copied one architecture.
	config.Validation.Manifests.Indexes.Platforms = "none"
	return config
}

// smallBuffers keeps little of an answer in flight, so that the log counts
// about as many bytes as the client has read.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		// Only a hint, so an error means nothing.
		_ = tcp.SetWriteBuffer(32 << 10)
	}
	return conn, nil
}

// Close stops the registry, drops all connections and ends hanging requests.
func (r *Registry) Close() error {
	close(r.closing)
	err := r.server.Close()
	r.served.Wait()
	err = errors.Join(err, r.app.Shutdown())
	if r.opts.Dir == "" {
		err = errors.Join(err, os.RemoveAll(r.dir))
	}
	return err
}

// Reference is a pull spec on this registry: Reference("os", digest) or
// Reference("os", tag).
func (r *Registry) Reference(repository, digestOrTag string) string {
	sep := ":"
	if len(digestOrTag) > 7 && digestOrTag[:7] == "sha256:" {
		sep = "@"
	}
	return r.Host + "/" + repository + sep + digestOrTag
}

// Requests returns the log: all requests that have ended, in the order of
// their beginnings' answers. A client that hangs up early is gone before its
// request ends here, so it waits a little for those that are being answered.
func (r *Registry) Requests() []Request {
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(time.Millisecond) {
		r.mu.Lock()
		if r.answering == 0 || time.Now().After(deadline) {
			defer r.mu.Unlock()
			return append([]Request(nil), r.requests...)
		}
		r.mu.Unlock()
	}
}

// Bytes is the number of body bytes of all requests in the log.
func (r *Registry) Bytes() int64 {
	var n int64
	for _, q := range r.Requests() {
		n += q.Bytes
	}
	return n
}

// ResetRequests empties the log.
func (r *Registry) ResetRequests() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = nil
}

// serve answers a client and writes the log.
func (r *Registry) serve(w http.ResponseWriter, req *http.Request) {
	counted := &countingWriter{ResponseWriter: w}
	fault := r.faultFor(req)
	r.mu.Lock()
	r.answering++
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.answering--
		r.requests = append(r.requests, Request{
			Method: req.Method, Path: req.URL.Path, Range: req.Header.Get("Range"),
			Status: counted.status, Bytes: counted.bytes, Faulty: fault != nil,
		})
	}()
	if fault != nil {
		fault.Do(counted, req, http.HandlerFunc(r.authenticated))
		return
	}
	r.authenticated(counted, req)
}

// authenticated answers once the password is right.
func (r *Registry) authenticated(w http.ResponseWriter, req *http.Request) {
	switch {
	case r.opts.Token && req.URL.Path == tokenPath:
		r.giveToken(w, req)
		return
	case r.opts.Token && !r.allows(req):
		r.challenge(w, req)
		return
	case !r.opts.Token && !r.knows(req):
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		writeError(w, http.StatusUnauthorized, "UNAUTHORIZED")
		return
	}
	// The library need not see what it would not understand.
	req.Header.Del("Authorization")
	r.app.ServeHTTP(w, req)
}

// knows reports whether the request has the password, if one is asked for.
func (r *Registry) knows(req *http.Request) bool {
	if r.opts.Username == "" {
		return true
	}
	user, password, _ := req.BasicAuth()
	return subtle.ConstantTimeCompare([]byte(user+":"+password), []byte(r.opts.Username+":"+r.opts.Password)) == 1
}

// writeError writes an error as registries do.
func writeError(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"errors":[{"code":%q,"message":"made by a test"}]}`+"\n", code)
}

// A countingWriter remembers what was answered.
type countingWriter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *countingWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *countingWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
