package bootimage_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/bootimage"
)

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func only(t testing.TB, name string) *bootimage.Stream {
	t.Helper()
	src, err := bootimage.Parse(read(t, name))
	if err != nil {
		t.Fatal(err)
	}
	s, err := src.Only()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParse(t *testing.T) {
	tests := []struct {
		file    string
		release string
		streams []string
	}{
		{"rhcos.json", "", []string{"rhcos-4.21"}},
		{"scos.json", "", []string{"c10s"}},
		{"fcos.json", "", []string{"stable"}},
		{"configmap.yaml", "4.22.3", []string{"rhel-10", "rhel-9"}},
		{"configmap.json", "4.22.3", []string{"rhel-10", "rhel-9"}},
		{"configmap-4.14.yaml", "4.14.8", []string{"rhcos-4.21"}},
		{"configmap-okd.yaml", "4.21.0-okd-scos.1", []string{""}},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			src, err := bootimage.Parse(read(t, tt.file))
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, s := range src.Streams {
				names = append(names, s.Name)
				if got, err := src.Stream(s.Name); err != nil || got != s {
					t.Errorf("got %v, %v for %q", got, err, s.Name)
				}
			}
			if diff := cmp.Diff(tt.streams, names); diff != "" || src.Release != tt.release {
				t.Errorf("release %q, streams (-want +got):\n%s", src.Release, diff)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40)
	tests := []struct {
		name, text, want string
	}{
		{"empty", "  \n", "it is empty"},
		{"cut off", `{"stream":"x","architectures":{"x86_64":`, "cut off"},
		{"other JSON", `{"items":[]}`, "not a stream document"},
		{"other kind", `{"kind":"Secret","data":{"stream":"x"}}`, `its kind is "Secret"`},
		{"a list of the cluster's", "kind: List\nitems: []\n", `its kind is "List"`},
		{"other ConfigMap", "kind: ConfigMap\nmetadata: {name: images}\ndata: {a: b}\n", "neither data.stream nor data.streams"},
		{"no architectures", `{"stream":"x","architectures":{}}`, "no architectures"},
		{"a name with an escape", `{"stream":"x","architectures":{"x86_64":{"artifacts":{"a\u001b[2J":{}}}}}`, "is no name"},
		{"twice", `{"stream":"x","architectures":{"x86_64":{}},"Stream":"y"}`, `"stream" is twice`},
		{"behind it", `{"stream":"x","architectures":{"x86_64":{}}} {}`, "something follows"},
		{"deep", deep, "nested deeper"},
		{"wrong type", `{"stream":1,"architectures":{"x86_64":{}}}`, "cannot unmarshal"},
		{"stream is no JSON", "kind: ConfigMap\ndata: {stream: hello}\n", "data.stream: parsing stream: it is not a JSON object"},
		{"no streams", "kind: ConfigMap\ndata: {streams: '{}'}\n", "data.streams: it has 0 streams"},
		{"bad one of streams", `{"kind":"ConfigMap","data":{"streams":"{\"rhel-9\":{}}"}}`, `data.streams: "rhel-9": parsing stream`},
		{"alias", "kind: ConfigMap\nmetadata: &a {name: x}\ndata: *a\n", "alias"},
		{"two documents", "kind: ConfigMap\ndata: {stream: a}\n---\nkind: ConfigMap\n", "more than one YAML document"},
		{"a page", "<html><body>404</body></html>", "parsing"},
		{"too large", strings.Repeat(" ", bootimage.MaxDocument+1), "more than"},
		{"not UTF-8", "{\"stream\":\"\xff\"}", "not UTF-8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := bootimage.Parse([]byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// A stream that is not there is never replaced by another one.
func TestChooseStream(t *testing.T) {
	src, err := bootimage.Parse(read(t, "configmap.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := src.Stream("rhel-8"); err == nil || !strings.Contains(err.Error(), "rhel-10, rhel-9") {
		t.Errorf("got %v", err)
	}
	if _, err := src.Only(); err == nil || !strings.Contains(err.Error(), "rhel-10, rhel-9") {
		t.Errorf("got %v", err)
	}
	okd, err := bootimage.Parse(read(t, "configmap-okd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if s, err := okd.Only(); err != nil || s.Metadata.Stream != "c10s" {
		t.Errorf("got %v, %v", s, err)
	}
	if _, err := okd.Stream("rhel-9"); err == nil || !strings.Contains(err.Error(), `there is ""`) {
		t.Errorf("got %v", err)
	}
}

func TestSelect(t *testing.T) {
	tests := []struct {
		file string
		q    bootimage.Query
		// want is architecture platform format version: role=name...
		want string
	}{
		{"rhcos.json", bootimage.Query{Architecture: "amd64", Platform: "baremetal", Format: "iso"}, "x86_64 metal iso 9.8.20260428-0: disk=rhcos-9.8.20260428-0-live-iso.x86_64.iso"},
		{"rhcos.json", bootimage.Query{Architecture: "arm64", Platform: "none", Format: "raw"}, "aarch64 metal raw.gz 9.8.20260428-0: disk=rhcos-9.8.20260428-0-metal.aarch64.raw.gz"},
		{"rhcos.json", bootimage.Query{Architecture: "x86_64", Platform: "metal", Format: "4k.raw"}, "x86_64 metal 4k.raw.gz 9.8.20260428-0: disk=rhcos-9.8.20260428-0-metal4k.x86_64.raw.gz"},
		{"rhcos.json", bootimage.Query{Architecture: "x86_64", Platform: "metal", Format: "pxe"}, "x86_64 metal pxe 9.8.20260428-0: kernel=rhcos-9.8.20260428-0-live-kernel.x86_64 initramfs=rhcos-9.8.20260428-0-live-initramfs.x86_64.img rootfs=rhcos-9.8.20260428-0-live-rootfs.x86_64.img"},
		{"rhcos.json", bootimage.Query{Architecture: "x86_64", Platform: "RHEV"}, "x86_64 openstack qcow2.gz 9.8.20260428-0: disk=rhcos-9.8.20260428-0-openstack.x86_64.qcow2.gz"},
		{"rhcos.json", bootimage.Query{Architecture: "x86_64", Platform: "vsphere"}, "x86_64 vmware ova 9.8.20260428-0: disk=rhcos-9.8.20260428-0-vmware.x86_64.ova"},
		{"rhcos.json", bootimage.Query{Architecture: "s390x", Platform: "qemu-secex", Format: "qcow2"}, "s390x qemu-secex qcow2.gz 9.8.20260428-0: disk=rhcos-9.8.20260428-0-qemu-secex.s390x.qcow2.gz"},
		{"rhcos.json", bootimage.Query{Architecture: "x86_64", Platform: "gcp", Format: "tar.gz"}, "x86_64 gcp tar.gz 9.8.20260428-0: disk=rhcos-9.8.20260428-0-gcp.x86_64.tar.gz"},
		{"fcos.json", bootimage.Query{Platform: "baremetal", Format: "raw"}, "x86_64 metal raw.xz 33.20201201.3.0: disk=fedora-coreos-33.20201201.3.0-metal.x86_64.raw.xz"},
		{"scos.json", bootimage.Query{Architecture: "aarch64", Platform: "external"}, "aarch64 metal raw.gz 10.0.20250628-0: disk=scos-10.0.20250628-0-metal.aarch64.raw.gz"},
		{"rhcos.json", bootimage.Query{Platform: "aws"}, "there are several architectures, choose one: aarch64, ppc64le, s390x, x86_64"},
		{"rhcos.json", bootimage.Query{Architecture: "riscv64", Platform: "aws"}, "there is no architecture \"riscv64\" here: there is aarch64, ppc64le, s390x, x86_64"},
		{"rhcos.json", bootimage.Query{Architecture: "ppc64le", Platform: "aws"}, "ppc64le: there is no platform \"aws\" here: there is powervs"},
		{"rhcos.json", bootimage.Query{Architecture: "arm64", Platform: "metal"}, "aarch64 metal: there are several formats, choose one: iso, raw.gz"},
		{"rhcos.json", bootimage.Query{Architecture: "arm64", Platform: "metal", Format: "qcow2"}, "aarch64 metal: there is no format \"qcow2\" here: there is iso, raw.gz"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.file, tt.q), func(t *testing.T) {
			set, err := only(t, tt.file).Select(tt.q)
			got := fmt.Sprintf("%s %s %s %s:", set.Architecture, set.Platform, set.Format, set.Version)
			for _, p := range set.Parts {
				got += " " + p.Role + "=" + p.Name
			}
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What is chosen can be fetched, written below its name and verified.
func TestSelectRefuses(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	file := func(location, sums string) string {
		l, err := json.Marshal(location)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"location":%s,%s}`, l, sums)
	}
	good := `"sha256":"` + sum + `"`
	tests := []struct{ format, want string }{
		{`"iso":{"disk":` + file("ftp://example.com/a.iso", good) + `}`, "not an http address"},
		{`"iso":{"disk":` + file("a.iso", good) + `}`, "not an http address"},
		{`"iso":{"disk":` + file("https://u:secret@example.com/a.iso", good) + `}`, "holds credentials"},
		{`"iso":{"disk":` + file("https://example.com/", good) + `}`, "names no file"},
		{`"iso":{"disk":` + file("https://example.com/a/%2e%2e", good) + `}`, "names no file"},
		{`"iso":{"disk":` + file("https://example.com/.bashrc", good) + `}`, "names no file"},
		{`"iso":{"disk":` + file("https://example.com/a%5cb", good) + `}`, "names no file"},
		{`"iso":{"disk":` + file("https://example.com/a%1b%5b2J", good) + `}`, "names no file"},
		{`"iso":{"disk":` + file("https://example.com/a.iso\x7f", good) + `}`, "not an address"},
		{`"iso":{"disk":` + file("https://example.com/a.iso", `"sha256":""`) + `}`, "sha256: its 0 characters"},
		{`"iso":{"disk":` + file("https://example.com/a.iso", `"sha256":"`+strings.ToUpper(sum)+`"`) + `}`, "sha256: its 64 characters"},
		{`"iso":{"disk":` + file("https://example.com/a.iso", good+`,"uncompressed-sha256":"x"`) + `}`, "uncompressed-sha256: its 1 characters"},
		{`"iso":{}`, "it has no file"},
		{`"iso":{"kernel":` + file("https://example.com/k", good) + `}`, "needs a kernel and an initramfs"},
		{`"iso":{"kernel":` + file("https://example.com/k", good) + `,"initramfs":` + file("https://example.com/b/k", good) + `}`, "is called k too"},
	}
	for _, tt := range tests {
		t.Run(tt.format, func(t *testing.T) {
			s, err := bootimage.ParseStream([]byte(`{"stream":"x","architectures":{"x86_64":{"artifacts":{"metal":{"release":"1","formats":{` + tt.format + `}}}}}}`))
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Select(bootimage.Query{Platform: "metal", Format: "iso"})
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"rhcos.json", "scos.json", "fcos.json", "configmap.yaml", "configmap.json", "configmap-okd.yaml"} {
		f.Add(read(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		src, err := bootimage.Parse(b)
		if err != nil {
			return
		}
		for _, s := range src.Streams {
			for arch, a := range s.Metadata.Architectures {
				for platform, p := range a.Artifacts {
					for format := range p.Formats {
						set, err := s.Select(bootimage.Query{Architecture: arch, Platform: platform, Format: format})
						if err == nil && (len(set.Parts) == 0 || len(set.Parts[0].SHA256) != 64 || strings.Contains(set.Parts[0].Name, "/")) {
							t.Errorf("chosen: %+v", set)
						}
					}
				}
			}
		}
	})
}
