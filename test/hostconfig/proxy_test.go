package hostconfig

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/test/registry"
)

// A proxy is an HTTP proxy that alone knows where names lead.
type proxy struct {
	*httptest.Server
	names map[string]string // "registry.test:443" to an address
	// login, "user:password", is asked for where not empty.
	login string

	mu    sync.Mutex
	asked []string // "CONNECT registry.test:443"
}

func startProxy(t *testing.T, address, login string, names map[string]string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{names: names, login: login}
	p.Server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}}
	p.Start()
	t.Cleanup(p.Close)
	return p
}

// requests are those since the last call.
func (p *proxy) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = nil
	return asked
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, req.Method+" "+req.Host)
	p.mu.Unlock()
	if p.login != "" && req.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte(p.login)) {
		w.Header().Set("Proxy-Authenticate", `Basic realm="proxy"`)
		http.Error(w, "who are you?", http.StatusProxyAuthRequired)
		return
	}
	address, ok := p.names[req.Host]
	if !ok {
		address = req.Host
	}
	if req.Method != http.MethodConnect {
		(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Host = address }}).ServeHTTP(w, req)
		return
	}
	out, err := net.Dial("tcp", address)
	if err != nil {
		http.Error(w, "no such registry", http.StatusBadGateway)
		return
	}
	defer out.Close()
	in, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer in.Close()
	fmt.Fprint(in, "HTTP/1.1 200 Connection established\r\n\r\n")
	// Either side may end it; the errors are those of closed connections.
	go func() {
		_, _ = io.Copy(out, buffered)
		_ = out.Close()
	}()
	_, _ = io.Copy(in, out)
}

// TestProxy: registry.test is known to the proxy alone. 0.0.0.0 leads to this
// machine, with a proxy or without, and is no loopback address, which a proxy
// would never be asked for.
func TestProxy(t *testing.T) {
	l := newLab(t)
	r := l.start(t, registry.Options{TLS: true}, "ocp/os")
	plain := l.start(t, registry.Options{}, "ocp/os")
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		t.Fatal(err)
	}
	anywhere := "0.0.0.0:" + port
	names := map[string]string{"registry.test:443": r.Host, "plain.test": plain.Host}
	open := startProxy(t, "127.0.0.1:0", "", names)
	strict := startProxy(t, "127.0.0.1:0", "us@er:"+secret+"/%", names)
	six := startProxy(t, "[::1]:0", "", names)
	down := "http://" + downAddress(t)
	login := func(p *proxy, userinfo string) string {
		return "http://" + userinfo + "@" + p.Listener.Addr().String()
	}
	at := func(repository string) string { return repository + "@" + l.image.Digest }
	https := at("registry.test/ocp/os")
	tests := []struct {
		name, env, url string
		process        map[string]string // this process's environment
		proxy          *proxy            // which is asked
		want           want
	}{
		{"none", "", at(anywhere + "/ocp/os"), nil, nil, skip()},
		{"for HTTPS", "HTTPS_PROXY=" + open.URL + "\n", https, nil, open, skip()},
		{"as the operator writes it", "# Proxy environment variables will be populated in this file. Properly\n# url encoded passwords with special characters will use '%<HEX><HEX>'.\nHTTP_PROXY=" + down + "\nHTTPS_PROXY=" + open.URL + "\nNO_PROXY=.cluster.local,.svc,10.0.0.0/16,localhost\n", https, nil, open, skip()},
		{"without a scheme", "HTTPS_PROXY=" + open.Listener.Addr().String() + "\n", https, nil, open, skip()},
		{"quoted", "HTTPS_PROXY=\"" + open.URL + "\"\n", https, nil, open, skip()},
		{"in small letters", "https_proxy=" + open.URL + "\n", https, nil, open, skip()},
		{"capitals first", "https_proxy=" + down + "\nHTTPS_PROXY=" + open.URL + "\n", https, nil, open, skip()},
		{"IPv6", "HTTPS_PROXY=" + six.URL + "\n", https, nil, six, skip()},
		{"for HTTP", "HTTP_PROXY=" + open.URL + "\nHTTPS_PROXY=" + open.URL + "\n", at("plain.test/ocp/os"), nil, open, skip()},
		{"user and password", "HTTPS_PROXY=" + login(strict, "us%40er:"+secret+"%2F%25") + "\n", https, nil, strict, skip()},
		{"wrong password", "HTTPS_PROXY=" + login(strict, "us%40er:"+secret) + "\n", https, nil, strict, fails("registry-unreachable", "Proxy Authentication Required")},
		{"no password", "HTTPS_PROXY=" + strict.URL + "\n", https, nil, strict, fails("registry-unreachable", "Proxy Authentication Required")},
		{"down", "HTTPS_PROXY=" + strings.Replace(down, "//", "//puller:"+secret+"@", 1) + "\n", https, nil, nil, fails("registry-unreachable", "proxyconnect", "refused")},
		{"knows no such registry", "HTTPS_PROXY=" + open.URL + "\n", at("127.0.0.2.test/ocp/os"), nil, open, fails("registry-unreachable", "Bad Gateway")},
		{"address", "HTTPS_PROXY=" + open.URL + "\n", at(anywhere + "/ocp/os"), nil, open, skip()},
		{"but not for the address", "HTTPS_PROXY=" + open.URL + "\nNO_PROXY=10.0.0.0/8,0.0.0.0\n", at(anywhere + "/ocp/os"), nil, nil, skip()},
		{"but not for the address and port", "HTTPS_PROXY=" + open.URL + "\nNO_PROXY=" + anywhere + "\n", at(anywhere + "/ocp/os"), nil, nil, skip()},
		{"but for another port", "HTTPS_PROXY=" + open.URL + "\nNO_PROXY=0.0.0.0:1\n", at(anywhere + "/ocp/os"), nil, open, skip()},
		{"but not for the network", "HTTPS_PROXY=" + open.URL + "\nNO_PROXY=0.0.0.0/8\n", at(anywhere + "/ocp/os"), nil, nil, skip()},
		{"but for another network", "HTTPS_PROXY=" + open.URL + "\nNO_PROXY=10.0.0.0/8\n", at(anywhere + "/ocp/os"), nil, open, skip()},
		{"but for no host", "HTTPS_PROXY=" + open.URL + "\nNO_PROXY=*\n", at(anywhere + "/ocp/os"), nil, nil, skip()},
		{"but not for the domain", "HTTPS_PROXY=" + open.URL + "\nNO_PROXY=.test\n", https, nil, nil, fails("")},
		{"but not for the name", "HTTPS_PROXY=" + open.URL + "\nno_proxy=quay.io, registry.test\n", https, nil, nil, fails("")},
		{"but for another domain", "HTTPS_PROXY=" + open.URL + "\nNO_PROXY=.registry.test,y.test\n", https, nil, open, skip()},
		{"malformed", "HTTPS_PROXY=http://puller:" + secret + "@proxy:port\n", https, nil, nil, fails("proxy-invalid", "/etc/mco/proxy.env", "HTTPS_PROXY")},
		{"password that is not encoded", "HTTPS_PROXY=http://puller:" + secret + "/%@proxy:3128\n", https, nil, nil, fails("proxy-invalid", "/etc/mco/proxy.env", "HTTPS_PROXY")},
		{"of an unknown kind", "HTTP_PROXY=ftp://" + secret + "@proxy:21\n", https, nil, nil, fails("proxy-invalid", "HTTP_PROXY")},
		{"not a text", "HTTPS_PROXY=\xff" + secret + "\n", https, nil, nil, fails("proxy-invalid", "/etc/mco/proxy.env", "not a text file")},
		{"of the process", "", https, map[string]string{"HTTPS_PROXY": open.URL}, open, skip()},
		{"the file stands before the process", "HTTPS_PROXY=" + open.URL + "\n", https, map[string]string{"HTTPS_PROXY": down}, open, skip()},
		{"the file switches off", "HTTPS_PROXY=\n", at(anywhere + "/ocp/os"), map[string]string{"HTTPS_PROXY": down}, nil, skip()},
		{"both are merged", "HTTPS_PROXY=" + open.URL + "\n", at(anywhere + "/ocp/os"), map[string]string{"NO_PROXY": "0.0.0.0"}, nil, skip()},
		{"the process's is malformed", "", https, map[string]string{"HTTPS_PROXY": "://" + secret}, nil, fails("proxy-invalid", "environment", "HTTPS_PROXY")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for k, v := range tt.process {
				t.Setenv(k, v)
			}
			l.host(t, tt.url, files{
				proxyFile: tt.env, "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem": string(r.CA),
				confFile: "[[registry]]\nlocation = \"plain.test\"\ninsecure = true\n",
			})
			limit := 20 * time.Second
			if tt.want.failed && tt.want.code == "" {
				limit = 2 * time.Second // a name server may not answer
			}
			tt.want.check(t, l.analyze(t, func(o *daemon.Options) { o.Timeout = limit }))
			for _, p := range []*proxy{open, strict, six} {
				if asked := p.requests(); (len(asked) > 0) != (p == tt.proxy) {
					t.Errorf("proxy %s was asked %v", p.URL, asked)
				}
			}
		})
	}
}
