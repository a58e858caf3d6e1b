package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/sysroot"
)

// planted is in every place of a host and a registry where a secret could be.
const planted = "h0rse-battery"

func plantSecrets(t *testing.T, n *node, host string) {
	t.Helper()
	auth := base64.StdEncoding.EncodeToString([]byte("user:" + planted))
	for name, content := range map[string]string{
		"var/lib/kubelet/config.json": `{"auths":{"` + host + `":{"auth":"` + auth + `"},"other.example.com":{"auth":"` + auth + `","identitytoken":"` + planted + `"}}}`,
		"etc/ostree/auth.json":        `{"auths":{"` + host + `/os":{"auth":"` + auth + `"}}}`,
		"etc/mco/proxy.env":           "HTTP_PROXY=http://user:" + planted + "@127.0.0.1:1\nHTTPS_PROXY=http://user:" + planted + "@127.0.0.1:1\nNO_PROXY=127.0.0.1\n",
		"etc/os-release":              "ID=rhcos\nHOME_URL=\"https://user:" + planted + "@example.com/\"\n",
	} {
		if err := n.WriteFile(name, content); err != nil {
			t.Fatal(err)
		}
	}
}

// plantIgnition puts a file into the MachineConfig's Ignition.
func plantIgnition(t *testing.T, n *node) {
	t.Helper()
	name := n.Path(sysroot.MachineConfigPath)
	text := string(must[[]byte](t)(os.ReadFile(name)))
	with := strings.Replace(text, `"config": {`, `"config": {"storage": {"files": [{"path": "/etc/pull-secret", "contents": {"source": "data:,`+planted+`"}}]},
		"passwd": {"users": [{"name": "core", "passwordHash": "`+planted+`"}]},`, 1)
	if with == text {
		t.Fatal("no config in " + text)
	}
	if err := os.WriteFile(name, []byte(with), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCaptureReplaysWithoutSecrets(t *testing.T) {
	l := newLab(t)
	labelled := must[*nativeimage.Image](t)(l.native.Edit(func(c *nativeimage.Config) {
		c.Labels["io.example.password"] = planted
		c.Labels["org.opencontainers.image.source"] = "https://user:" + planted + "@example.com/"
	}))
	mangled := must[*nativeimage.Image](t)(l.native.Edit(func(c *nativeimage.Config) {
		c.Labels["ostree.commit"] = "https://user:" + planted + "@example.com/?token=" + planted
	}))
	secretKargs := []string{"coreos.inst.token=" + planted, "ignition.config.url=https://user:" + planted + "@example.com/c?sig=" + planted, `rd.luks.passphrase="` + planted + ` x"`}
	header := map[string]string{"WWW-Authenticate": `Basic realm="` + planted + `"`, "Location": "https://user:" + planted + "@example.com/?sig=" + planted, "Retry-After": "0"}
	fault := func(status int) *registry.Fault {
		return &registry.Fault{Path: regexp.MustCompile("/manifests/"), Do: registry.Status(status, header)}
	}
	tests := []struct {
		name   string
		image  *nativeimage.Image
		kargs  []string // wanted; the host has secretKargs
		fault  *registry.Fault
		edit   func(*node)
		reason string
	}{
		{"skip with secret arguments on both sides", labelled, secretKargs, nil, nil, "proven"},
		{"another secret wanted", labelled, []string{"coreos.inst.token=" + planted + "-2"}, nil, nil, "kernel-arguments-differs"},
		{"Ignition content", labelled, nil, nil, func(n *node) { plantIgnition(t, n) }, "machineconfig-differs"},
		{"a label that is no checksum", mangled, nil, nil, nil, "os-content-unknown"},
		{"refused", labelled, nil, fault(401), nil, "architecture-unknown"},
		{"server error", labelled, nil, fault(500), nil, "architecture-unknown"},
		{"redirected with a signature", labelled, nil, fault(307), nil, "architecture-unknown"},
		{"malformed auth", labelled, nil, nil, func(n *node) {
			for _, name := range []string{"etc/ostree/auth.json", "var/lib/kubelet/config.json"} {
				if err := n.WriteFile(name, `{"auths":{"`+l.reg.Host+`":{"auth":"`+planted+`"}}}`); err != nil {
					t.Fatal(err)
				}
			}
		}, "architecture-unknown"},
		{"malformed proxy", labelled, nil, nil, func(n *node) {
			if err := n.WriteFile("etc/mco/proxy.env", "HTTPS_PROXY=http://user:"+planted+"@[::1\n"); err != nil {
				t.Fatal(err)
			}
		}, "architecture-unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := l.push(t, "os/secrets", tt.image)
			n := l.bootNode(t, nodeOptions{commit: l.base, kargs: secretKargs, mc: sysroot.MachineConfig{OSImageURL: url, KernelArguments: tt.kargs}})
			plantSecrets(t, n, l.reg.Host)
			if tt.edit != nil {
				tt.edit(n)
			}
			l.reg.ClearFaults()
			if tt.fault != nil {
				l.reg.AddFault(tt.fault)
			}
			var archive bytes.Buffer
			opts := daemon.Options{Root: n.Dir, Timeout: 10 * time.Second}
			res, err := daemon.Collect(context.Background(), opts, "test", &archive)
			if err != nil {
				t.Fatal(err)
			}
			if string(res.Verdict.Reason) != tt.reason {
				t.Errorf("reason %s, want %s\n%s", res.Verdict.Reason, tt.reason, checksText(res.Verdict))
			}
			for name, content := range unpack(t, archive.Bytes()) {
				if strings.Contains(content, planted) || strings.Contains(content, base64.StdEncoding.EncodeToString([]byte("user:"+planted))) {
					t.Errorf("a secret is in %s:\n%s", name, content)
				}
			}
			file := filepath.Join(t.TempDir(), "capture.tar.gz")
			if err := os.WriteFile(file, archive.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			l.reg.ResetRequests()
			again, err := daemon.Replay(file)
			if err != nil {
				t.Fatal(err)
			}
			want, got := must[[]byte](t)(json.Marshal(res.Verdict)), must[[]byte](t)(json.Marshal(again))
			if !bytes.Equal(want, got) {
				t.Errorf("replayed %s\nwant     %s", got, want)
			}
			if bytes.Contains(want, []byte(planted)) {
				t.Errorf("a secret is in the verdict: %s", want)
			}
			if served := l.reg.Requests(); len(served) > 0 {
				t.Errorf("the replay asked the registry: %v", served)
			}
		})
	}
}

func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	r := tar.NewReader(must[*gzip.Reader](t)(gzip.NewReader(bytes.NewReader(archive))))
	out := map[string]string{}
	for {
		h, err := r.Next()
		if err == io.EOF { //nolint:errorlint // the end itself
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(must[[]byte](t)(io.ReadAll(r)))
	}
}
