package bootimage

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// streamOf is a stream of which every file is the server's.
func streamOf(s *server, version string) string {
	artifact := func(name string) string {
		return fmt.Sprintf(`{"location":"%s/%s/%s","sha256":%q,"signature":""}`, s.URL, version, name, sum(s.file))
	}
	arch := func(a string) string {
		return fmt.Sprintf(`{"artifacts":{"metal":{"release":%q,"formats":{"iso":{"disk":%s},"pxe":{"kernel":%s,"initramfs":%s,"rootfs":%s}}},
			"vmware":{"release":%q,"formats":{"ova":{"disk":%s}}}},"images":{"aws":{"regions":{"eu-west-1":{"release":%q,"image":"ami-1"}}}},"more":{"kept":true}}`,
			version, artifact("live-"+a+".iso"), artifact("kernel-"+a), artifact("initramfs-"+a), artifact("rootfs-"+a), version, artifact("x-"+a+".ova"), version)
	}
	return fmt.Sprintf(`{"stream":"x","metadata":{"last-modified":"2026-01-01T00:00:00Z"},"architectures":{"x86_64":%s,"aarch64":%s}}`, arch("x86_64"), arch("aarch64"))
}

func TestMirror(t *testing.T) {
	s := newServer(t, content(10_000))
	cm, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]string{"name": ConfigMapName}, "data": map[string]string{
		"releaseVersion": "5.0.1", "stream": streamOf(s, "9.8.1"), "streams": fmt.Sprintf(`{"rhel-9":%s,"rhel-10":%s}`, streamOf(s, "9.8.1"), streamOf(s, "10.2.1")),
	}})
	if err != nil {
		t.Fatal(err)
	}
	src, err := Parse(cm)
	if err != nil {
		t.Fatal(err)
	}
	d := newDownloader(t)
	m := &Mirror{Downloader: d, To: d.Dir, BaseURL: "https://mirror.example.com/rhcos/"}
	queries := []Query{{Platform: "metal", Architecture: "amd64", Format: "iso"}, {Platform: "baremetal", Architecture: "x86_64", Format: "pxe"}}
	got, err := m.Run(t.Context(), src, src.Streams, queries)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Files) != 8 {
		t.Errorf("%d files; want an ISO and three parts of each of two streams", len(got.Files))
	}
	for _, f := range got.Files {
		if b, err := os.ReadFile(f.Path); err != nil || sum(b) != sum(s.file) {
			t.Errorf("%s: %v", f.Path, err)
		}
	}
	text, err := os.ReadFile(got.ConfigMap)
	if err != nil {
		t.Fatal(err)
	}
	mirrored, err := Parse(text)
	if err != nil || mirrored.Release != "5.0.1" || len(mirrored.Streams) != 2 {
		t.Fatalf("%v\n%s", err, text)
	}
	ten, err := mirrored.Stream("rhel-10")
	if err != nil {
		t.Fatal(err)
	}
	set, err := ten.Select(queries[1])
	if err != nil {
		t.Fatal(err)
	}
	const base = "https://mirror.example.com/rhcos/rhel-10/10.2.1/x86_64/"
	if set.Parts[0].Location != base+"kernel-x86_64" {
		t.Errorf("the kernel is at %s", set.Parts[0].Location)
	}
	// What was not asked for stays as it was, unknown fields too.
	if other, err := ten.Select(Query{Platform: "vmware", Architecture: "aarch64"}); err != nil || !strings.HasPrefix(other.Parts[0].Location, s.URL) {
		t.Errorf("%+v, %v", other, err)
	}
	var raw struct {
		Architectures map[string]struct {
			More   struct{ Kept bool }
			Images json.RawMessage
		}
	}
	if err := json.Unmarshal(ten.Raw, &raw); err != nil || !raw.Architectures["x86_64"].More.Kept || len(raw.Architectures["x86_64"].Images) == 0 {
		t.Errorf("%v: %s", err, ten.Raw)
	}
	const want = `osImages:
    - openshiftVersion: "5.0"
      cpuArchitecture: x86_64
      url: https://mirror.example.com/rhcos/rhel-10/10.2.1/x86_64/live-x86_64.iso
      version: 10.2.1
    - openshiftVersion: "5.0"
      cpuArchitecture: x86_64
      url: https://mirror.example.com/rhcos/rhel-9/9.8.1/x86_64/live-x86_64.iso
      version: 9.8.1
`
	text, err = os.ReadFile(got.OSImages)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, string(text)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	// Again: nothing is asked for, and one file that was damaged is.
	if err := os.WriteFile(got.Files[0].Path, []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	asked := len(s.asked)
	again, err := m.Run(t.Context(), src, src.Streams, queries)
	if err != nil || len(s.asked) != asked+1 || again.Files[0].Fetched != 10_000 {
		t.Errorf("%d requests, %v", len(s.asked)-asked, err)
	}
	left, err := filepath.Glob(filepath.Join(d.Dir, ".*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestMirrorErrors(t *testing.T) {
	s := newServer(t, content(10))
	src, err := Parse([]byte(streamOf(s, "9.6")))
	if err != nil {
		t.Fatal(err)
	}
	d := newDownloader(t)
	for _, tt := range []struct {
		base, version string
		query         Query
		want          string
	}{
		{"ftp://x", "4.19", Query{Platform: "metal", Architecture: "x86_64", Format: "iso"}, "http(s)://HOST/PATH"},
		{"https://u:p@x", "4.19", Query{Platform: "metal", Architecture: "x86_64", Format: "iso"}, "without credentials"},
		{"https://x", "", Query{Platform: "metal", Architecture: "x86_64", Format: "iso"}, "--openshift-version"},
		{"https://x", "4.19", Query{Platform: "metal", Architecture: "riscv", Format: "iso"}, "riscv"},
		{"https://x", "4.19", Query{Platform: "metal", Architecture: "x86_64"}, "several formats"},
	} {
		m := &Mirror{Downloader: d, To: d.Dir, BaseURL: tt.base, OpenShiftVersion: tt.version}
		if _, err := m.Run(t.Context(), src, src.Streams, []Query{tt.query}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %q", tt, err, tt.want)
		}
	}
}
