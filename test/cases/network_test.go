package cases

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oneboot/oneboot/test/registry"
)

// A network is everything that a node can reach: an HTTP proxy that answers
// itself for all hosts, with a certificate for each, and a real registry
// behind it. So the names in reported files stay as they are, and nothing
// outside this process is ever asked.
type network struct {
	registry  *registry.Registry
	backend   http.Handler
	proxy     *http.Server
	proxyHost string
	authority *authority
	hosts     *http.Server
	incoming  chan net.Conn

	mu       sync.Mutex
	sites    map[string]*site
	contacts []string
	user     string // that the proxy asks for
	closing  chan struct{}
}

// A site is what answers in one repository or at one host.
type site struct {
	siteSpec
	documents map[string]string // by digest
	body      string
}

func newNetwork(dir string) (*network, error) {
	n := &network{incoming: make(chan net.Conn), closing: make(chan struct{}), sites: map[string]*site{}}
	var err error
	if n.registry, err = registry.Start(registry.Options{Dir: dir}); err != nil {
		return nil, err
	}
	if n.authority, err = newAuthority(); err != nil {
		return nil, err
	}
	n.backend = httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: n.registry.Host})
	n.hosts = &http.Server{Handler: http.HandlerFunc(n.serve), ReadHeaderTimeout: time.Minute}
	go n.hosts.Serve(tls.NewListener(&connListener{n}, n.authority.config())) //nolint:errcheck // ends with close
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n.proxyHost = listener.Addr().String()
	n.proxy = &http.Server{Handler: http.HandlerFunc(n.connect), ReadHeaderTimeout: time.Minute}
	go n.proxy.Serve(listener) //nolint:errcheck // ends with close
	return n, nil
}

func (n *network) close() {
	close(n.closing)
	_ = n.proxy.Close()
	_ = n.hosts.Close()
	_ = n.registry.Close()
}

// connListener hands the tunnels of the proxy to the hosts' server.
type connListener struct{ n *network }

func (l *connListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.n.incoming:
		return c, nil
	case <-l.n.closing:
		return nil, net.ErrClosed
	}
}
func (l *connListener) Close() error   { return nil }
func (l *connListener) Addr() net.Addr { return &net.TCPAddr{} }

// A tunnel is a connection that may have been read from already.
type tunnel struct {
	net.Conn
	r *bufio.Reader
}

func (t tunnel) Read(p []byte) (int, error) { return t.r.Read(p) }

// connect opens a tunnel to a host that the case knows. To all others there is
// no way, as there is none out of a disconnected cluster.
func (n *network) connect(w http.ResponseWriter, req *http.Request) {
	host := strings.TrimSuffix(req.Host, ":443")
	n.contact(host)
	site, ok := n.find(host, "")
	switch {
	case !n.admits(req):
		w.Header().Set("Proxy-Authenticate", `Basic realm="proxy"`)
		http.Error(w, "who are you", http.StatusProxyAuthRequired)
		return
	case req.Method != http.MethodConnect || !ok && !n.known(host):
		http.Error(w, "no route to host", http.StatusBadGateway)
		return
	case ok && site.Hangs:
		select {
		case <-req.Context().Done():
		case <-n.closing:
		}
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if _, err := conn.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); err != nil {
		conn.Close()
		return
	}
	select {
	case n.incoming <- tunnel{conn, buffered.Reader}:
	case <-n.closing:
		conn.Close()
	}
}

// admits checks the proxy's own password.
func (n *network) admits(req *http.Request) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(n.user))
	return n.user == "" || req.Header.Get("Proxy-Authorization") == want
}

func (n *network) contact(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if k := len(n.contacts); k == 0 || n.contacts[k-1] != host {
		n.contacts = append(n.contacts, host)
	}
}

// known reports whether some repository of the host answers.
func (n *network) known(host string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key := range n.sites {
		if strings.HasPrefix(key, host+"/") {
			return true
		}
	}
	return false
}

// find is the most special site for a host and a repository.
func (n *network) find(host, repository string) (*site, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := strings.TrimSuffix(host+"/"+repository, "/")
	for {
		if s, ok := n.sites[name]; ok {
			return s, true
		}
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return nil, false
		}
		name = name[:i]
	}
}

// serve answers as the host of the request.
func (n *network) serve(w http.ResponseWriter, req *http.Request) {
	host := strings.TrimSuffix(req.Host, ":443")
	path := strings.TrimPrefix(req.URL.Path, "/v2/")
	repository, reference := splitPath(path)
	s, ok := n.find(host, repository)
	if path == "" && (!ok || s.User == "" && s.Status < http.StatusInternalServerError) {
		// The API's version; a host with several repositories may ask for a
		// password in some of them only.
		if user := n.challenge(host); user && req.Header.Get("Authorization") == "" {
			refuse(w, http.StatusUnauthorized, "UNAUTHORIZED")
			return
		}
		w.WriteHeader(http.StatusOK)
		return
	}
	switch {
	case !ok:
		refuse(w, http.StatusNotFound, "NAME_UNKNOWN")
	case s.User != "" && !authorized(req, s.User):
		refuse(w, http.StatusUnauthorized, "UNAUTHORIZED")
	case s.Status != 0 && s.body != "":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(s.Status)
		fmt.Fprint(w, s.body)
	case s.Status != 0:
		refuse(w, s.Status, errorCodes[s.Status])
	case path == "":
		w.WriteHeader(http.StatusOK)
	case s.documents[reference] != "":
		answerDocument(w, s.documents[reference])
	default:
		req.URL.Path = "/v2/" + storePath(host) + "/" + path
		n.backend.ServeHTTP(w, req)
	}
}

// challenge reports whether any repository of the host asks for a password.
func (n *network) challenge(host string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, s := range n.sites {
		if s.User != "" && (key == host || strings.HasPrefix(key, host+"/")) {
			return true
		}
	}
	return false
}

// splitPath takes the repository and the reference out of a path.
func splitPath(path string) (repository, reference string) {
	for _, kind := range []string{"/manifests/", "/blobs/"} {
		if i := strings.LastIndex(path, kind); i >= 0 {
			return path[:i], path[i+len(kind):]
		}
	}
	return path, ""
}

// errorCodes are those of the distribution specification.
var errorCodes = map[int]string{
	http.StatusUnauthorized: "UNAUTHORIZED", http.StatusForbidden: "DENIED",
	http.StatusNotFound: "MANIFEST_UNKNOWN", http.StatusTooManyRequests: "TOOMANYREQUESTS",
}

func authorized(req *http.Request, user string) bool {
	name, password, ok := req.BasicAuth()
	return ok && name+":"+password == user
}

func refuse(w http.ResponseWriter, status int, code string) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"errors":[{"code":%q,"message":"%s"}]}`, code, strings.ToLower(code))
}

func answerDocument(w http.ResponseWriter, doc string) {
	var head struct {
		MediaType string `json:"mediaType"`
	}
	_ = json.Unmarshal([]byte(doc), &head) //nolint:errcheck // a broken document is served too
	w.Header().Set("Content-Type", head.MediaType)
	w.Header().Set("Docker-Content-Digest", digestOf(doc))
	fmt.Fprint(w, doc)
}

// storePath is a host's part of the one registry behind all hosts.
func storePath(host string) string {
	return strings.ToLower(strings.NewReplacer(":", "-", ".", "-").Replace(host))
}

// set makes the network of a run.
func (n *network) set(w *world, specs map[string]siteSpec, user string) error {
	sites := map[string]*site{}
	for key, spec := range specs {
		s := &site{siteSpec: spec, documents: map[string]string{}}
		if spec.Body != "" {
			s.body = w.text(spec.Body)
		}
		for _, name := range spec.Documents {
			text := w.text(name)
			s.documents[digestOf(text)] = text
		}
		host, repository, _ := strings.Cut(key, "/")
		for _, name := range spec.Images {
			if _, err := n.registry.Push(storePath(host)+"/"+repository, w.image(name)); err != nil {
				return err
			}
		}
		for tag, name := range spec.Tags {
			if _, err := n.registry.Push(storePath(host)+"/"+repository, w.image(name), tag); err != nil {
				return err
			}
		}
		sites[key] = s
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sites, n.contacts, n.user = sites, nil, user
	return nil
}

// asked are the hosts that were contacted.
func (n *network) asked() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.contacts)
}

// An authority signs a certificate for every host.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  string
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return &authority{key: key, cert: cert, pem: string(text)}, err
}

func (a *authority) config() *tls.Config {
	return &tls.Config{
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			template := &x509.Certificate{
				SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: hello.ServerName},
				NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
				DNSNames: []string{hello.ServerName}, KeyUsage: x509.KeyUsageDigitalSignature,
				ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			}
			der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &a.key.PublicKey, a.key)
			return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}, err
		},
	}
}
