package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

func start(t *testing.T, opts Options) *Registry {
	t.Helper()
	r, err := Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return r
}

func newImages(t *testing.T) (oci, docker *nativeimage.Image) {
	t.Helper()
	s, err := sysroot.New(filepath.Join(sysroot.TempDir(t), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.CommitTree(sysroot.Tree{FillerBytes: 5 << 20}, sysroot.CommitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	oci, err = nativeimage.Build(dir, s.Repo(), c, nativeimage.Options{Compression: nativeimage.Zstd})
	if err != nil {
		t.Fatal(err)
	}
	docker, err = nativeimage.Build(dir, s.Repo(), c, nativeimage.Options{Format: nativeimage.DockerV2S2, Architecture: "s390x"})
	if err != nil {
		t.Fatal(err)
	}
	return oci, docker
}

func push(t *testing.T, r *Registry, m *nativeimage.Image, tags ...string) string {
	t.Helper()
	digest, err := r.Push("os/node", m, tags...)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func skopeo(t *testing.T, args ...string) []byte {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.Command("skopeo", append([]string{"--insecure-policy"}, args...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("skopeo %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return out
}

// get reads one path of the registry to the end, or for a second.
func get(r *Registry, client *http.Client, path string) (status, size int, err error) {
	scheme := "http"
	if r.CA != nil {
		scheme = "https"
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+r.Host+path, nil)
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("Accept", "application/vnd.oci.image.manifest.v1+json")
	answer, err := client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, len(body), errors.Join(err, answer.Body.Close())
}

func TestSkopeoReadsTheImages(t *testing.T) {
	r := start(t, Options{})
	oci, docker := newImages(t)
	list, err := nativeimage.NewList(nativeimage.OCI, nativeimage.Instance{Image: oci}, nativeimage.Instance{Image: docker})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.PushList("os/node", list, "list"); err != nil {
		t.Fatal(err)
	}
	legacy, err := nativeimage.BuildLegacy(t.TempDir(), oci.Repo, []string{oci.Commit}, nativeimage.LegacyOptions{Label: oci.Commit})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, reference string
		digest, commit  string
		args            []string
	}{
		{"oci", push(t, r, oci), oci.Digest, "ostree.commit", nil},
		{"v2s2", push(t, r, docker, "docker"), docker.Digest, "ostree.commit", []string{"--override-arch=s390x"}},
		{"tag", "docker", docker.Digest, "ostree.commit", []string{"--override-arch=s390x"}},
		{"list", "list", list.Digest, "ostree.commit", []string{"--override-arch=s390x"}},
		{"legacy", push(t, r, legacy), legacy.Digest, "com.coreos.ostree-commit", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reference := "docker://" + r.Reference("os/node", tt.reference)
			var got struct {
				Digest string
				Labels map[string]string
			}
			out := skopeo(t, append(tt.args, "inspect", "--no-tags", "--tls-verify=false", reference)...)
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatal(err)
			}
			if got.Digest != tt.digest || got.Labels[tt.commit] != oci.Commit {
				t.Errorf("got %+v, want digest %s and commit %s", got, tt.digest, oci.Commit)
			}
			// A copy reads every layer and holds it against its digest and
			// its diff id.
			skopeo(t, append(tt.args, "copy", "-q", "--src-tls-verify=false", "--dest-decompress", reference, "dir:"+t.TempDir())...)
		})
	}
}

func TestRequestLog(t *testing.T) {
	r := start(t, Options{})
	oci, _ := newImages(t)
	digest := push(t, r, oci)
	if got := r.Requests(); len(got) != 0 {
		t.Errorf("pushing left %d requests in the log", len(got))
	}
	layer := "/v2/os/node/blobs/" + oci.Layers[0].Digest
	req, err := http.NewRequest(http.MethodGet, "http://"+r.Host+layer, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Range", "bytes=0-99")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if _, _, err := get(r, http.DefaultClient, "/v2/os/node/manifests/"+digest); err != nil {
		t.Fatal(err)
	}
	want := []Request{
		{Method: "GET", Path: layer, Range: "bytes=0-99", Status: http.StatusPartialContent, Bytes: 100},
		{Method: "GET", Path: "/v2/os/node/manifests/" + digest, Status: http.StatusOK, Bytes: int64(len(oci.ManifestBytes))},
	}
	if diff := cmp.Diff(want, r.Requests()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if got, want := r.Bytes(), want[0].Bytes+want[1].Bytes; got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	r.ResetRequests()
	if got := r.Requests(); len(got) != 0 {
		t.Errorf("%d requests after a reset", len(got))
	}
}

func TestTLSAndPassword(t *testing.T) {
	r := start(t, Options{TLS: true, Username: "core", Password: "secret"})
	oci, _ := newImages(t)
	digest := push(t, r, oci)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(r.CA) {
		t.Fatal("no certificate in the PEM text")
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	if status, _, err := get(r, client, "/v2/"); status != http.StatusUnauthorized {
		t.Errorf("without a password: status %d, %v", status, err)
	}
	certs := t.TempDir()
	if err := os.WriteFile(filepath.Join(certs, "ca.crt"), r.CA, 0o644); err != nil {
		t.Fatal(err)
	}
	skopeo(t, "inspect", "--no-tags", "--cert-dir="+certs, "--creds=core:secret", "docker://"+r.Reference("os/node", digest))
}

func TestFaults(t *testing.T) {
	r := start(t, Options{})
	oci, _ := newImages(t)
	path := "/v2/os/node/manifests/" + push(t, r, oci)
	size := len(oci.ManifestBytes)
	tests := []struct {
		name   string
		fault  Fault
		status int
		size   int
		fails  bool
	}{
		{"drop", Fault{Do: Drop}, 0, 0, true},
		{"hang", Fault{Do: r.Hang}, 0, 0, true},
		{"delay", Fault{Do: r.Delay(10 * time.Millisecond)}, 200, size, false},
		{"status", Fault{Do: Status(429, map[string]string{"Retry-After": "1"})}, 429, 67, false},
		{"wrong bytes", Fault{Do: Answer([]byte("wrong"))}, 200, 5, false},
		{"half a body", Fault{Do: Truncate(int64(size / 2))}, 200, size / 2, true},
		{"endless", Fault{Do: Endless(3 << 20)}, 200, 3 << 20, false},
		{"skipped", Fault{Do: Drop, Skip: 1}, 200, size, false},
		{"other path", Fault{Do: Drop, Path: regexp.MustCompile("/blobs/")}, 200, size, false},
		{"other method", Fault{Do: Drop, Method: http.MethodPut}, 200, size, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r.ClearFaults()
			r.AddFault(&tt.fault)
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			status, n, err := get(r, client, path)
			if status != tt.status || n != tt.size || (err != nil) != tt.fails {
				t.Errorf("got status %d, %d bytes, %v; want %d, %d", status, n, err, tt.status, tt.size)
			}
		})
	}
	t.Run("once", func(t *testing.T) {
		r.ClearFaults()
		r.AddFault(&Fault{Do: Status(500, nil), Times: 1})
		for _, want := range []int{500, 200} {
			if got, _, err := get(r, http.DefaultClient, path); got != want {
				t.Errorf("status %d, want %d (%v)", got, want, err)
			}
		}
	})
}
