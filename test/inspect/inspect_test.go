package inspect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// installed are the packages of the tests' OS.
func installed() []sysroot.Package {
	more := []sysroot.Package{
		{Name: "glibc", Epoch: "0", Version: "2.34", Release: "100.el9_4.4", Arch: "x86_64"},
		{Name: "systemd", Epoch: "0", Version: "252", Release: "32.el9_4.7", Arch: "x86_64"},
		{Name: "ostree", Epoch: "0", Version: "2024.5", Release: "2.el9_4", Arch: "x86_64"},
		{Name: "redhat-release", Epoch: "0", Version: "9.4", Release: "0.5.el9", Arch: "x86_64"},
		{Name: "dbus", Epoch: "1", Version: "1.12.20", Release: "8.el9", Arch: "x86_64"},
	}
	return append(sysroot.Packages(300, sysroot.DefaultKernel), more...)
}

// facts are the facts and the packages whose versions they are.
var facts = map[string]string{
	"kernel": "kernel-core", "glibc": "glibc", "systemd": "systemd", "cri-o": "cri-o", "kubelet": "openshift-kubelet",
	"ostree": "ostree", "rpm-ostree": "rpm-ostree",
}

// asRPM checks the packages and facts beside what rpm says.
func (d document) asRPM(t *testing.T, packages []sysroot.Package, source string) {
	t.Helper()
	want := rpm(t, packages)
	got := map[string]string{}
	for _, p := range d.OS.Packages {
		got[p.Name] = p.EVRA
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packages (-rpm +inspect)\n%s", diff)
	}
	for name, p := range facts {
		if f := d.OS.Facts[name]; f.Value != want[p] || f.Source != source {
			t.Errorf("%s is %+v; want %s from %s", name, f, want[p], source)
		}
	}
	if f := d.OS.Facts["rhel-version"]; f.Value != "9.4" {
		t.Errorf("rhel-version is %+v", f)
	}
	if f := d.OS.Facts["kernel-rt"]; !f.Absent {
		t.Errorf("kernel-rt is %+v; want it absent", f)
	}
}

// database are files of an image that has the rpm database.
func database(t testing.TB, name string, packages []sysroot.Package) map[string]sysroot.File {
	t.Helper()
	db, err := sysroot.RPMDatabase(packages)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]sysroot.File{name: {Content: db}}
}

// metadata is the layer that node images have on top.
func metadata(t testing.TB, packages []sysroot.Package) nativeimage.DerivedLayer {
	t.Helper()
	var list [][]string
	for _, p := range packages {
		list = append(list, []string{p.Name, p.Epoch, p.Version, p.Release, p.Arch})
	}
	b, err := json.Marshal(map[string]any{"rpmdb.pkglist": list})
	if err != nil {
		t.Fatal(err)
	}
	return nativeimage.DerivedLayer{Files: map[string]sysroot.File{"usr/share/openshift/base/meta.json": {Content: string(b)}}}
}

var metalayer = map[string]string{"io.openshift.metalayer": "true", "ostree.linux": "true"}

func TestSources(t *testing.T) {
	l := newLab(t)
	base := installed()
	listed := l.image(t, sysroot.Tree{FillerBytes: 4 << 20}, sysroot.CommitOptions{Packages: base}, nativeimage.Options{})
	unlisted := l.image(t, sysroot.Tree{FillerBytes: 4 << 20, Packages: base}, sysroot.CommitOptions{}, nativeimage.Options{})
	zstd := l.image(t, sysroot.Tree{FillerBytes: 4 << 20}, sysroot.CommitOptions{Packages: base}, nativeimage.Options{Compression: nativeimage.Zstd})
	newer := slices.Clone(base)
	for i := range newer {
		if strings.HasPrefix(newer[i].Name, "kernel") {
			newer[i].Release = "999.1.1.el9_4"
		}
	}
	node := derive(t, listed, metalayer, nativeimage.DerivedLayer{Files: map[string]sysroot.File{"usr/bin/kubelet": {Content: "another"}}}, metadata(t, newer))
	upon := derive(t, node, nil, nativeimage.DerivedLayer{Files: map[string]sysroot.File{"etc/motd": {Content: "mine"}}})
	mixed := metadata(t, newer)
	mixed.Files["usr/bin/tool"] = sysroot.File{Content: "x"}
	tests := []struct {
		name   string
		image  *nativeimage.Image
		args   []string
		want   []sysroot.Package
		source string
		// unknown is a part of the reason where nothing is to be known.
		unknown string
	}{
		{name: "the commit's list", image: listed, want: base, source: "commit"},
		{name: "the commit's list, zstd", image: zstd, want: base, source: "commit"},
		{name: "no list", image: unlisted, unknown: "the commit has no list"},
		{name: "no list, full", image: unlisted, args: []string{"--full"}, want: base, source: "rpm-database"},
		{name: "a node image", image: node, want: newer, source: "metadata-layer"},
		{name: "built upon a node image", image: upon, unknown: "it is not the metadata layer"},
		{name: "a metadata layer with more in it", image: derive(t, listed, metalayer, mixed), unknown: "it is not the metadata layer"},
		{name: "the label without the layer", image: derive(t, listed, metalayer,
			nativeimage.DerivedLayer{Files: map[string]sysroot.File{"usr/share/openshift/x": {Content: "x"}}}), unknown: "the last layer has no /usr/share/openshift/base/meta.json"},
		{name: "a database in a layer on top", image: derive(t, unlisted, nil, nativeimage.DerivedLayer{Files: database(t, "usr/share/rpm/rpmdb.sqlite", newer)}),
			args: []string{"--full"}, want: newer, source: "rpm-database"},
		{name: "a layer that changes the kernel without saying so", image: derive(t, listed, nil, nativeimage.DerivedLayer{Files: map[string]sysroot.File{"usr/lib/modules/x/vmlinuz": {Content: "x"}}}),
			unknown: "1 layers follow the commit"},
		{name: "the database is taken away", image: derive(t, unlisted, nil, nativeimage.DerivedLayer{Removed: []string{"usr/share/rpm/rpmdb.sqlite", "usr/lib/sysimage/rpm/rpmdb.sqlite"}}),
			args: []string{"--full"}, unknown: "no layer has one"},
		{name: "its folder is taken away", image: derive(t, unlisted, nil, nativeimage.DerivedLayer{Removed: []string{"usr/share/rpm", "usr/lib/sysimage"}}),
			args: []string{"--full"}, unknown: "no layer has one"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ref := l.push(t, "os", tt.image)
			d := l.inspect(t, append(tt.args, ref)...)
			if tt.unknown == "" {
				d.asRPM(t, tt.want, tt.source)
				if n := l.reg.Bytes(); len(tt.args) == 0 && n > 2<<20 {
					t.Errorf("%d bytes were read", n)
				}
				return
			}
			if d.OS.Packages != nil || !strings.Contains(d.OS.PackagesUnknown, tt.unknown) {
				t.Errorf("%d packages, %q; want %q", len(d.OS.Packages), d.OS.PackagesUnknown, tt.unknown)
			}
			if f := d.OS.Facts["glibc"]; f.Value != "" || f.Absent || f.Unknown == "" {
				t.Errorf("glibc is %+v; want it unknown", f)
			}
			if f := d.OS.Facts["kernel"]; f.Value != "" && d.OS.Facts["derived-layers"].Value != "0" {
				t.Errorf("kernel is %+v, of an image with layers upon it", f)
			}
		})
	}
}

// Where nothing tells a version, the layers' annotations still name the packages.
func TestComponents(t *testing.T) {
	l := newLab(t)
	m := l.image(t, sysroot.Tree{FillerBytes: 4 << 20}, sysroot.CommitOptions{}, nativeimage.Options{Chunks: 8})
	for i := range m.Layers {
		if i == 1 {
			m.Layers[i].Annotations = map[string]string{"ostree.components": "glibc,kernel-core"}
		}
	}
	m, err := m.Edit(func(*nativeimage.Config) {})
	if err != nil {
		t.Fatal(err)
	}
	d := l.inspect(t, l.push(t, "os", m))
	if f := d.OS.Facts["glibc"]; f.Value != "" || !strings.Contains(f.Unknown, "the layers' annotations name glibc, without a version") {
		t.Errorf("glibc is %+v", f)
	}
	if f := d.OS.Facts["kernel-rt"]; f.Absent || strings.Contains(f.Unknown, "annotations") {
		t.Errorf("kernel-rt is %+v", f)
	}
}

func TestLegacy(t *testing.T) {
	l := newLab(t)
	base := installed()
	commit, err := l.build.CommitTree(sysroot.Tree{FillerBytes: 4 << 20}, sysroot.CommitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	for _, p := range base {
		evr := p.Version + "-" + p.Release
		if p.Epoch != "0" {
			evr = p.Epoch + ":" + evr
		}
		fmt.Fprintf(&list, "%s-%s.%s\n", p.Name, evr, p.Arch)
	}
	labels := map[string]string{"version": "49.84.1", "com.coreos.rpm.kernel": "4.18.0-305.el8_4.x86_64", "com.coreos.rpm.systemd": "239-45.el8_4.x86_64",
		"com.coreos.os-extensions": "usbguard;kernel-rt;kernel-devel", "io.openshift.build.version-display-names": "machine-os=Red Hat Enterprise Linux CoreOS"}
	m, err := nativeimage.BuildLegacy(t.TempDir(), l.build.Repo(), []string{commit}, nativeimage.LegacyOptions{Label: commit, Labels: labels, PackageList: list.String()})
	if err != nil {
		t.Fatal(err)
	}
	ref := l.push(t, "legacy", m)
	d := l.inspect(t, ref)
	for name, want := range map[string]fact{
		"kernel": {Value: "4.18.0-305.el8_4.x86_64", Source: "label"}, "systemd": {Value: "239-45.el8_4.x86_64", Source: "label"},
		"os-version": {Value: "49.84.1", Source: "label"}, "os-name": {Value: "Red Hat Enterprise Linux CoreOS", Source: "label"},
		"rhel-version": {Value: "8.4", Source: "packages"}, "inner-commit": {Value: commit, Source: "commit"},
	} {
		if got := d.OS.Facts[name]; got != want {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
	}
	if f := d.OS.Facts["glibc"]; f.Unknown == "" {
		t.Errorf("glibc is %+v, want it unknown", f)
	}
	if _, ok := d.Extensions.Shipped["usbguard"]; !ok || slices.Contains(d.Extensions.Missing, "usbguard") || !slices.Contains(d.Extensions.Missing, "ipsec") {
		t.Errorf("the extensions are %+v", d.Extensions)
	}
	full := l.inspect(t, "--full", ref)
	full.asRPM(t, base, "rpm-database")
}

func rpms() []nativeimage.RPM {
	return []nativeimage.RPM{
		{Name: "usbguard", Version: "1.0.0", Release: "15.el9", Arch: "x86_64", Filler: 4 << 10},
		{Name: "krb5-workstation", Version: "1.21.1", Release: "1.el9", Arch: "x86_64", Filler: 4 << 10},
		{Name: "libkadm5", Version: "1.21.1", Release: "1.el9", Arch: "x86_64", Filler: 4 << 10},
		{Name: "kernel-rt-core", Version: "5.14.0", Release: "427.el9_4", Arch: "x86_64", Filler: 3 << 20},
		{Name: "kernel-rt-kvm", Version: "5.14.0", Release: "427.el9_4", Arch: "x86_64", Filler: 4 << 10},
		{Name: "kernel-rt-modules", Version: "5.14.0", Release: "427.el9_4", Arch: "x86_64", Filler: 4 << 10},
		{Name: "kernel-rt-modules-extra", Version: "5.14.0", Release: "427.el9_4", Arch: "x86_64", Filler: 4 << 10},
	}
}

func TestExtensionsAndRelease(t *testing.T) {
	l := newLab(t)
	os := l.image(t, sysroot.Tree{FillerBytes: 4 << 20}, sysroot.CommitOptions{Packages: installed()}, nativeimage.Options{})
	osRef := l.push(t, "os", os)
	build := func(opts nativeimage.ExtensionsOptions) string {
		t.Helper()
		m, err := nativeimage.BuildExtensions(t.TempDir(), opts)
		if err != nil {
			t.Fatal(err)
		}
		return l.push(t, "extensions", m)
	}
	list, none := build(nativeimage.ExtensionsOptions{Packages: rpms()}), build(nativeimage.ExtensionsOptions{Packages: rpms(), WithoutList: true, Labels: map[string]string{"io.openshift.os.extensions": "true"}})
	check := func(t *testing.T, d document) {
		t.Helper()
		if got := d.Extensions.Shipped["kerberos"]; len(got) != 2 || got[0].EVRA != "1.21.1-1.el9.x86_64" {
			t.Errorf("kerberos is %+v", got)
		}
		want := []string{"ipsec", "kernel-devel", "sandboxed-containers", "sysstat", "two-node-ha", "wasm"}
		if diff := cmp.Diff(want, d.Extensions.Missing); diff != "" {
			t.Errorf("missing (-want +got)\n%s", diff)
		}
	}
	t.Run("with a list", func(t *testing.T) {
		l.reg.ResetRequests()
		check(t, l.inspect(t, list))
		if n := l.reg.Bytes(); n > 64<<10 {
			t.Errorf("%d bytes were read", n)
		}
	})
	t.Run("without a list", func(t *testing.T) {
		d := l.inspect(t, none)
		if d.Extensions.Shipped != nil || !strings.Contains(d.Extensions.Unknown, "--full") {
			t.Errorf("the extensions are %+v", d.Extensions)
		}
		check(t, l.inspect(t, "--full", none))
	})
	kernel := rpm(t, installed())["kernel-core"]
	for name, tt := range map[string]struct{ label, same string }{
		"driver-toolkit of the same kernel": {strings.TrimSuffix(kernel, ".x86_64"), "same"},
		"of another kernel":                 {"5.14.0-1.el9", "differs"},
		"without a label":                   {"", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			toolkit := l.push(t, "toolkit", derive(t, os, map[string]string{"kernel-version": tt.label}, nativeimage.DerivedLayer{Files: map[string]sysroot.File{"etc/motd": {Content: name}}}))
			refs := fmt.Sprintf(`{"kind":"ImageStream","spec":{"tags":[{"name":"rhel-coreos","from":{"kind":"DockerImage","name":%q}},
				{"name":"rhel-coreos-extensions","from":{"kind":"DockerImage","name":%q}},{"name":"driver-toolkit","from":{"kind":"DockerImage","name":%q}}]}}`, osRef, list, toolkit)
			release := l.push(t, "release", derive(t, os, map[string]string{"io.openshift.release": "4.19.3"},
				nativeimage.DerivedLayer{Files: map[string]sysroot.File{"release-manifests/image-references": {Content: refs}}}))
			d := l.inspect(t, "docker://"+release)
			check(t, d)
			if d.Release != "4.19.3" || d.OS.Facts["kernel"].Value != kernel || d.DriverToolkit.SameKernel != tt.same {
				t.Errorf("release %s, kernel %+v, driver-toolkit %+v; want it %s", d.Release, d.OS.Facts["kernel"], d.DriverToolkit, tt.same)
			}
			if out, _, status := l.run(t, "inspect", "--field", "kernel", release); status != 0 || out != kernel+"\n" {
				t.Errorf("--field kernel: %q, exit status %d", out, status)
			}
		})
	}
	t.Run("not an OS image", func(t *testing.T) {
		ubi, err := os.Edit(func(c *nativeimage.Config) { c.Labels = map[string]string{"com.redhat.component": "ubi9-container"} })
		if err != nil {
			t.Fatal(err)
		}
		other := l.push(t, "other", ubi)
		out, errs, status := l.run(t, "inspect", other)
		if status != 1 || out != "" || errs == "" {
			t.Errorf("%q, %q, exit status %d", out, errs, status)
		}
	})
}
