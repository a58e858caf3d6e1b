package osimage

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/registry"
)

func somePackages() []nativeimage.RPM {
	return []nativeimage.RPM{
		{Name: "usbguard", Version: "1.0.0", Release: "15.el9", Arch: "x86_64"},
		{Name: "libqb", Version: "2.0.8", Release: "1.el9", Arch: "x86_64"},
		{Name: "protobuf", Version: "3.14.0", Release: "13.el9_0.1", Arch: "x86_64"},
		{Name: "kernel-rt-core", Version: "5.14.0", Release: "427.13.1.el9_4", Arch: "x86_64", Filler: 100_000},
		{Name: "NetworkManager-libreswan", Epoch: 1, Version: "1.2.14", Release: "1.el9.3", Arch: "x86_64"},
		{Name: "qemu-kvm-common", Epoch: 17, Version: "8.2.0", Release: "11.el9_4.1", Arch: "x86_64"},
		{Name: "crun-wasm", Version: "1.14.3~rc1^git2", Release: "1.rhaos4.16.el9", Arch: "noarch"},
	}
}

func wanted(rpms ...nativeimage.RPM) []verdict.Package {
	list := []verdict.Package{}
	for _, p := range rpms {
		list = append(list, verdict.Package{Name: p.Name, EVRA: p.EVRA()})
	}
	slices.SortFunc(list, func(a, b verdict.Package) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.EVRA, b.EVRA))
	})
	return slices.Compact(list)
}

// pushImage stores an image and opens it as a host would.
func pushImage(t testing.TB, m *nativeimage.Image) (*Image, *registry.Registry) {
	t.Helper()
	r := startRegistry(t, registry.Options{})
	digest, err := r.Push("extensions", m)
	if err != nil {
		t.Fatal(err)
	}
	img, err := Open(r.Reference("extensions", digest), configFor(t, r, nil), m.Config.Architecture)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { img.Close() })
	return img, r
}

func TestExtensionsImage(t *testing.T) {
	t.Parallel()
	packages := somePackages()
	twice := append(slices.Clone(packages), nativeimage.RPM{Name: "usbguard", Version: "1.0.0", Release: "16.el9", Arch: "x86_64"},
		nativeimage.RPM{Name: "protobuf", Version: "3.14.0", Release: "13.el9_0.1", Arch: "i686"})
	tests := []struct {
		name     string
		opts     nativeimage.ExtensionsOptions
		requests int // ping, manifest, config, layers
	}{
		{"the list in the last layer", nativeimage.ExtensionsOptions{Packages: packages}, 4},
		{"uncompressed", nativeimage.ExtensionsOptions{Packages: packages, Compression: nativeimage.Uncompressed}, 4},
		{"zstd", nativeimage.ExtensionsOptions{Packages: packages, Compression: nativeimage.Zstd}, 4},
		{"Docker's format", nativeimage.ExtensionsOptions{Packages: packages, Format: nativeimage.DockerV2S2}, 4},
		{"no list", nativeimage.ExtensionsOptions{Packages: packages, WithoutList: true}, 4},
		{"no list, Docker's format", nativeimage.ExtensionsOptions{Packages: packages, WithoutList: true, Format: nativeimage.DockerV2S2}, 4},
		{"no list, zstd layers", nativeimage.ExtensionsOptions{Packages: packages, WithoutList: true, Compression: nativeimage.Zstd}, 4},
		{"no list, primary with zstd", nativeimage.ExtensionsOptions{Packages: packages, WithoutList: true, Primary: nativeimage.Zstd}, 4},
		{"no list, primary uncompressed", nativeimage.ExtensionsOptions{Packages: packages, WithoutList: true, Primary: nativeimage.Uncompressed}, 4},
		{"several versions", nativeimage.ExtensionsOptions{Packages: twice, WithoutList: true}, 4},
		{"none", nativeimage.ExtensionsOptions{}, 4},
		{"none, no list", nativeimage.ExtensionsOptions{WithoutList: true}, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := nativeimage.BuildExtensions(t.TempDir(), tt.opts)
			if err != nil {
				t.Fatal(err)
			}
			img, _ := pushImage(t, m)
			got, err := img.Extensions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(wanted(tt.opts.Packages...), got); diff != "" {
				t.Error(diff)
			}
			if n := img.Transfer().Requests; n != tt.requests {
				t.Errorf("%d requests, want %d", n, tt.requests)
			}
			if _, err := img.Extensions(t.Context()); err != nil || img.Transfer().Requests != tt.requests {
				t.Errorf("asked again: %v, %d requests", err, img.Transfer().Requests)
			}
		})
	}
}

// The layers of a native OS image are not read in vain.
func TestExtensionsOfNativeImage(t *testing.T) {
	r := startRegistry(t, registry.Options{})
	img := openImage(t, push(t, r, native(t, commitBytes(7)).build(t)), configFor(t, r, nil))
	if got, err := img.Extensions(t.Context()); CodeOf(err) != NoExtensions || img.Transfer().Requests != 3 {
		t.Errorf("%v, %v, %d requests", got, err, img.Transfer().Requests)
	}
}

// A name at two versions makes a list with a key twice.
func TestExtensionsListWithTwoVersions(t *testing.T) {
	m, err := nativeimage.BuildExtensions(t.TempDir(), nativeimage.ExtensionsOptions{Packages: []nativeimage.RPM{
		{Name: "a", Version: "1", Release: "1", Arch: "x86_64"}, {Name: "a", Version: "2", Release: "1", Arch: "x86_64"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	img, _ := pushImage(t, m)
	got, err := img.Extensions(t.Context())
	if CodeOf(err) != LayerInvalid || !strings.Contains(err.Error(), `extensions.json: "a" is there twice`) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestLegacyExtensions(t *testing.T) {
	t.Parallel()
	packages := somePackages()
	sets := map[string][]nativeimage.RPM{
		"usbguard":  packages[:1],
		"kernel-rt": packages[3:4],
		"":          {packages[1], packages[2], packages[4], packages[5], packages[6]},
	}
	layouts := []struct {
		name   string
		layout nativeimage.LegacyLayout
		format nativeimage.Format // by which the layer is no other
	}{
		{"flat", nativeimage.FlatExtensions, nativeimage.OCI},
		{"folders", nativeimage.FolderExtensions, nativeimage.DockerV2S2},
		{"okd", nativeimage.OKDExtensions, nativeimage.OCI},
		{"folders without repodata", nativeimage.BareExtensions, nativeimage.DockerV2S2},
	}
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "extensions")
			if err := nativeimage.WriteLegacyExtensions(dir, l.layout, sets); err != nil {
				t.Fatal(err)
			}
			img := legacyImage(t, nativeimage.LegacyOptions{Format: l.format, Extensions: dir})
			got, err := img.Extensions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(wanted(packages...), got); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("kernel at the root", func(t *testing.T) {
		dir := t.TempDir()
		if err := nativeimage.BuildRPMs(dir, packages[3]); err != nil {
			t.Fatal(err)
		}
		name := packages[3].FileName()
		img := legacyImage(t, nativeimage.LegacyOptions{Directories: map[string]string{name: filepath.Join(dir, name)}})
		got, err := img.Extensions(t.Context())
		if diff := gocmp.Diff(wanted(packages[3]), got); diff != "" || err != nil {
			t.Error(err, diff)
		}
	})
	t.Run("none", func(t *testing.T) {
		img := legacyImage(t, nativeimage.LegacyOptions{PackageList: "kernel-5\n"})
		if got, err := img.Extensions(t.Context()); CodeOf(err) != NoExtensions {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func legacyImage(t testing.TB, opts nativeimage.LegacyOptions) *Image {
	t.Helper()
	m, err := nativeimage.BuildLegacy(t.TempDir(), "", nil, opts)
	if err != nil {
		t.Fatal(err)
	}
	img, _ := pushImage(t, m)
	return img
}

// The reader of RPM headers agrees with rpm itself.
func TestReadRPM(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := nativeimage.BuildRPMs(dir, somePackages()...); err != nil {
		t.Fatal(err)
	}
	for _, p := range somePackages() {
		name := filepath.Join(dir, p.FileName())
		out, err := exec.Command("rpm", "-qp", "--qf", "%{name} %|epoch?{%{epoch}:}:{}|%{version}-%{release}.%{arch}", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readRPM(f)
		f.Close()
		if err != nil || got.Name+" "+got.EVRA != string(out) {
			t.Errorf("%+v, %v; rpm says %s", got, err, out)
		}
	}
}

// No answer comes from bytes that are not those of the digests.
func TestExtensionsFaults(t *testing.T) {
	t.Parallel()
	m, err := nativeimage.BuildExtensions(t.TempDir(), nativeimage.ExtensionsOptions{Packages: somePackages(), Compression: nativeimage.Uncompressed})
	if err != nil {
		t.Fatal(err)
	}
	last := m.Layers[len(m.Layers)-1]
	path := regexp.MustCompile("/blobs/" + last.Digest)
	blob, err := last.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer blob.Close()
	truth, err := io.ReadAll(blob)
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.ReplaceAll(truth, []byte("1.0.0-15"), []byte("1.0.0-16"))
	tests := []struct {
		name string
		do   func(r *registry.Registry) *registry.Fault
		want Code
	}{
		{"another layer", func(*registry.Registry) *registry.Fault { return &registry.Fault{Do: registry.Answer(other)} }, DigestMismatch},
		{"endless", func(*registry.Registry) *registry.Fault { return &registry.Fault{Do: registry.Endless(1 << 30)} }, LayerInvalid},
		{"half", func(*registry.Registry) *registry.Fault {
			return &registry.Fault{Do: registry.Answer(other[:len(other)/2])}
		}, LayerTruncated},
		{"refused", func(*registry.Registry) *registry.Fault { return &registry.Fault{Do: registry.Status(401, nil)} }, RegistryUnauthorized},
		{"unwell", func(*registry.Registry) *registry.Fault { return &registry.Fault{Do: registry.Status(500, nil)} }, RegistryServerError},
		{"not found", func(*registry.Registry) *registry.Fault { return &registry.Fault{Do: registry.Status(404, nil)} }, ImageNotFound},
		{"hangs", func(r *registry.Registry) *registry.Fault { return &registry.Fault{Do: r.Hang} }, Timeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			img, r := pushImage(t, m)
			fault := tt.do(r)
			fault.Path = path
			r.AddFault(fault)
			limit := 10 * time.Second
			if tt.want == Timeout {
				limit = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if got, err := img.Extensions(ctx); CodeOf(err) != tt.want || got != nil {
				t.Errorf("%v, %v: %v, want %v", got, err, CodeOf(err), tt.want)
			}
		})
	}
}
