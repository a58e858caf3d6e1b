package osimage

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/test/registry"
)

// A registry's certificate is checked against the CAs below the root, and
// those alone.
func TestTLS(t *testing.T) {
	r := startRegistry(t, registry.Options{TLS: true})
	ref, _ := pullSpec(t, r)
	other := string(startRegistry(t, registry.Options{TLS: true}).CA)
	block, _ := pem.Decode(r.CA)
	ca := string(r.CA)
	tests := []struct {
		name  string
		files map[string]string
		want  Code
	}{
		{"no CA", nil, RegistryUntrusted},
		{"system bundle", map[string]string{"/etc/pki/tls/certs/ca-bundle.crt": other + ca}, ""},
		{"Debian's bundle", map[string]string{"/etc/ssl/certs/ca-certificates.crt": ca}, ""},
		{"extracted bundle", map[string]string{"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem": ca}, ""},
		{"other CA", map[string]string{"/etc/pki/tls/certs/ca-bundle.crt": other}, RegistryUntrusted},
		{"added anchor", map[string]string{"/etc/pki/tls/certs/ca-bundle.crt": other, anchorsD + "/added.crt": ca}, ""},
		{"added anchor, DER", map[string]string{anchorsD + "/added.der": string(block.Bytes), anchorsD + "/README": "text"}, ""},
		{"certs.d", map[string]string{containersCertsD + "/" + r.Host + "/ca.crt": ca}, ""},
		{"docker's certs.d", map[string]string{dockerCertsD + "/" + r.Host + "/ca.crt": ca}, ""},
		{"docker's certs.d is hidden", map[string]string{dockerCertsD + "/" + r.Host + "/ca.crt": ca, containersCertsD + "/" + r.Host + "/ca.crt": other}, RegistryUntrusted},
		{"certs.d of another registry", map[string]string{containersCertsD + "/quay.io/ca.crt": ca}, RegistryUntrusted},
		{"insecure", map[string]string{registriesConf: insecure(r)}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := loadConfig(t, tt.files, ConfigOptions{})
			img := openImage(t, ref, c)
			err := ask(t.Context(), img)
			if CodeOf(err) != tt.want || tt.want == "" && err != nil {
				t.Errorf("got %q: %v; want %q", CodeOf(err), err, tt.want)
			}
			if n := img.Transfer().Requests; tt.want == "" && n != 4 {
				t.Errorf("got %d requests, want 4", n)
			}
		})
	}
}

// Where the source is out of reach, as in a disconnected network, the mirror's
// certificate is what to mend.
func TestUntrustedMirror(t *testing.T) {
	r := startRegistry(t, registry.Options{TLS: true})
	ref, _ := pullSpec(t, r)
	conf := fmt.Sprintf("[[registry]]\nlocation = \"localhost:1\"\n[[registry.mirror]]\nlocation = %q\n", r.Host)
	c := loadConfig(t, map[string]string{registriesConf: conf}, ConfigOptions{})
	err := ask(t.Context(), openImage(t, strings.Replace(ref, r.Host, "localhost:1", 1), c))
	if CodeOf(err) != RegistryUntrusted || !strings.Contains(err.Error(), containersCertsD+"/"+r.Host+"/") {
		t.Errorf("got %q: %v", CodeOf(err), err)
	}
}

// A client's private key is kept in memory, where the library finds it.
func TestClientKey(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	r := startRegistry(t, registry.Options{})
	ref, _ := pullSpec(t, r)
	dir := containersCertsD + "/" + r.Host
	c := configFor(t, r, map[string]string{
		dir + "/client.key":  string(keyPEM),
		dir + "/client.cert": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})),
	})
	if err := ask(t.Context(), openImage(t, ref, c)); err != nil {
		t.Error(err)
	}
	noSecrets(t, c.dir, "PRIVATE KEY")
	if got, err := os.ReadFile(filepath.Join(c.staged(dir), "client.key")); err != nil || !bytes.Equal(got, keyPEM) {
		t.Errorf("the key does not read as written: %v", err)
	}
}

// The proxy is that of the host's proxy.env, else of the environment.
func TestProxy(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"} {
		t.Setenv(name, "")
	}
	t.Setenv("HTTPS_PROXY", "http://environment:3128")
	t.Setenv("NO_PROXY", "none.test")
	tests := []struct{ name, file, url, want string }{
		{"environment", "", "https://quay.io/v2/", "http://environment:3128"},
		{"file", "HTTPS_PROXY=http://file:3128\n", "https://quay.io/v2/", "http://file:3128"},
		{"file without scheme", "HTTPS_PROXY=file:3128\n", "https://quay.io/v2/", "http://file:3128"},
		{"file switches off", "HTTPS_PROXY=\n", "https://quay.io/v2/", ""},
		{"exception", "NO_PROXY=.cluster.local,quay.io\n", "https://quay.io/v2/", ""},
		{"exception of the environment", "", "https://none.test/v2/", ""},
		{"other scheme", "HTTP_PROXY='http://user:p@plain:3128'\n", "http://quay.io/v2/", "http://user:p@plain:3128"},
		{"this machine", "", "https://127.0.0.1:5000/v2/", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := loadConfig(t, map[string]string{proxyEnvPath: tt.file}, ConfigOptions{})
			u, err := url.Parse(tt.url)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.systemContext("amd64").DockerProxy(u)
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			if got != nil {
				text = got.String()
			}
			if text != tt.want {
				t.Errorf("got %q, want %q", text, tt.want)
			}
		})
	}
}

// The syntax is systemd's.
func TestEnvironmentFile(t *testing.T) {
	tests := []struct {
		name, content string
		want          map[string]string
	}{
		{"empty", "", map[string]string{}},
		{"plain", "A=1\nB=2", map[string]string{"A": "1", "B": "2"}},
		{"comments", "# A=1\n; B=2\n  # C=3\nD=4 # not one\n", map[string]string{"D": "4 # not one"}},
		{"space", "  A =  1 2  \nB=\t\n", map[string]string{"A": "1 2", "B": ""}},
		{"double quotes", `A="1 \"2\" \$x \n"` + "\n", map[string]string{"A": `1 "2" $x \n`}},
		{"single quotes", `A='1 "2" \n'` + "\n", map[string]string{"A": `1 "2" \n`}},
		{"quotes joined", `A="1"'2'` + "\n", map[string]string{"A": "12"}},
		{"quotes over lines", "A='1\n2'\nB=3\n", map[string]string{"A": "1\n2", "B": "3"}},
		{"continued", "A=1\\\n2\nB=3\n", map[string]string{"A": "12", "B": "3"}},
		{"escape", `A=1\ 2\\` + "\n", map[string]string{"A": `1 2\`}},
		{"quote inside", `A=it's` + "\n", map[string]string{"A": "it's"}},
		{"lines without =", "junk\nA=1\nmore junk\n", map[string]string{"A": "1"}},
		{"no name", "=1\nA=2\n", map[string]string{"A": "2"}},
		{"last one counts", "A=1\nA=2\n", map[string]string{"A": "2"}},
		{"carriage return", "A=1\r\nB=2\r\n", map[string]string{"A": "1", "B": "2"}},
		{"escaped comment", "# x\\\nA=1\n", map[string]string{"A": "1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseEnvironmentFile([]byte(tt.content))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("got-, want+:\n%s", diff)
			}
		})
	}
	for _, bad := range []string{"A=\x00", "\xff=1", fmt.Sprintf("%1001s", "") + string(bytes.Repeat([]byte("\n"), maxProxyLines+1))} {
		if got, err := parseEnvironmentFile([]byte(bad)); err == nil {
			t.Errorf("%.20q: got %v", bad, got)
		}
	}
}
