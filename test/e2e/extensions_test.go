package e2e

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/sysroot"
)

// The packages of two extensions and of the realtime kernel, with what they
// depend on.
var (
	usbguard = sysroot.Package{Name: "usbguard", Epoch: "0", Version: "1.0.0", Release: "15.el9", Arch: "x86_64"}
	protobuf = sysroot.Package{Name: "protobuf", Epoch: "2", Version: "3.14.0", Release: "13.el9", Arch: "x86_64"}
	sysstat  = sysroot.Package{Name: "sysstat", Epoch: "0", Version: "12.5.4", Release: "9.el9", Arch: "x86_64"}
)

const realtimeRelease = "5.14.0-427.35.1.el9_4.x86_64"

func realtimePackages() []sysroot.Package {
	var out []sysroot.Package
	for _, name := range []string{"kernel-rt-core", "kernel-rt-kvm", "kernel-rt-modules", "kernel-rt-modules-extra"} {
		out = append(out, sysroot.Package{Name: name, Epoch: "0", Version: "5.14.0", Release: "427.35.1.el9_4", Arch: "x86_64"})
	}
	return out
}

var baseKernelPackages = []string{"kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"}

func packageNames(packages []sysroot.Package) []string {
	var out []string
	for _, p := range packages {
		out = append(out, p.Name)
	}
	return out
}

func rpms(packages ...sysroot.Package) []nativeimage.RPM {
	var out []nativeimage.RPM
	for _, p := range packages {
		r := nativeimage.RPM{Name: p.Name, Version: p.Version, Release: p.Release, Arch: p.Arch, Filler: 4 << 10}
		if p.Epoch == "2" {
			r.Epoch = 2
		}
		out = append(out, r)
	}
	return out
}

// ofRelease is how a rendered MachineConfig says which release it is of.
func ofRelease(release string) map[string]string {
	return map[string]string{"machineconfiguration.openshift.io/release-image-version": release}
}

// layered is a node with usbguard layered as the daemon would.
func layered() *sysroot.ClientLayer {
	return &sysroot.ClientLayer{BasePackages: labPackages(), Requested: []string{"usbguard"}, Added: []sysroot.Package{usbguard, protobuf}}
}

// extensionsImage pushes an extensions image and returns its pull spec.
func (l *lab) extensionsImage(t testing.TB, opts nativeimage.ExtensionsOptions) string {
	t.Helper()
	return l.push(t, "os/extensions", must[*nativeimage.Image](t)(nativeimage.BuildExtensions(t.TempDir(), opts)))
}

func TestExtensions(t *testing.T) {
	l := newLab(t)
	url := l.push(t, "os/base", l.native)
	offers := l.extensionsImage(t, nativeimage.ExtensionsOptions{Packages: rpms(usbguard, protobuf, sysstat)})
	withoutList := l.extensionsImage(t, nativeimage.ExtensionsOptions{Packages: rpms(usbguard, protobuf, sysstat), WithoutList: true, Format: nativeimage.DockerV2S2})
	later := usbguard
	later.Release = "16.el9"
	offersLater := l.extensionsImage(t, nativeimage.ExtensionsOptions{Packages: rpms(later, protobuf)})
	offersOther := l.extensionsImage(t, nativeimage.ExtensionsOptions{Packages: rpms(usbguard, sysstat)})

	mc := func(image string, extensions ...string) sysroot.MachineConfig {
		return sysroot.MachineConfig{OSImageURL: url, Extensions: extensions, ExtensionsImage: image, Annotations: ofRelease("4.18.1")}
	}
	ofNoRelease, ofALaterRelease := mc(offers, "usbguard"), mc(offers, "usbguard")
	ofNoRelease.Annotations, ofALaterRelease.Annotations = nil, ofRelease("9.9.0")
	more := func(edit func(*sysroot.ClientLayer)) *sysroot.ClientLayer {
		layer := layered()
		edit(layer)
		return layer
	}
	const extensionRequests = 4 // ping, manifest, config, last layer
	tests := []struct {
		name string
		node nodeOptions
		want answer
	}{
		{"wanted and absent", nodeOptions{commit: l.base, mc: mc(offers, "usbguard")}, proceed("extensions-differs", 0)},
		{"layered on a plain commit", nodeOptions{commit: l.base, layer: layered(), mc: mc(offers, "usbguard")},
			skip(verdict.ProofOSTreeCommit, fourRequests+extensionRequests)},
		{"layered on a container deployment", nodeOptions{image: l.native, layer: layered(), mc: mc(offers, "usbguard")},
			skip(verdict.ProofManifestDigest, extensionRequests)},
		{"its rebuilt base", nodeOptions{commit: l.rebuilt, layer: layered(), mc: mc(offers, "usbguard")},
			skip(verdict.ProofContentChecksum, fourRequests+extensionRequests)},
		{"of an image from before extensions.json", nodeOptions{image: l.native, layer: layered(), mc: mc(withoutList, "usbguard")},
			skip(verdict.ProofManifestDigest, extensionRequests)},
		{"asked for twice", nodeOptions{image: l.native, layer: layered(), mc: mc(offers, "usbguard", "usbguard")},
			skip(verdict.ProofManifestDigest, extensionRequests)},
		{"layered on another base", nodeOptions{commit: l.other, layer: layered(), mc: mc(offers, "usbguard")},
			proceed("os-content-differs", -1)},
		{"of another version", nodeOptions{image: l.native, layer: layered(), mc: mc(offersLater, "usbguard")},
			proceed("extensions-differs", extensionRequests)},
		{"its dependency not offered", nodeOptions{image: l.native, layer: layered(), mc: mc(offersOther, "usbguard")},
			proceed("extensions-differs", extensionRequests)},
		{"not wanted any more", nodeOptions{image: l.native, layer: layered(), mc: mc(offers)}, proceed("deployment-differs", 0)},
		{"another wanted", nodeOptions{image: l.native, layer: layered(), mc: mc(offers, "sysstat")}, proceed("extensions-differs", 0)},
		{"one more wanted", nodeOptions{image: l.native, layer: layered(), mc: mc(offers, "usbguard", "sysstat")}, proceed("extensions-differs", 0)},
		{"one too many", nodeOptions{image: l.native, mc: mc(offers, "usbguard"), layer: more(func(c *sysroot.ClientLayer) {
			c.Requested, c.Added = append(c.Requested, "sysstat"), append(c.Added, sysstat)
		})}, proceed("extensions-differs", 0)},
		{"an unasked package beside it", nodeOptions{image: l.native, mc: mc(offersOther, "usbguard"), layer: more(func(c *sysroot.ClientLayer) {
			c.Added = []sysroot.Package{usbguard, {Name: "stowaway", Epoch: "0", Version: "1", Release: "1", Arch: "x86_64"}}
		})}, proceed("extensions-differs", extensionRequests)},
		{"unknown name", nodeOptions{image: l.native, layer: layered(), mc: mc(offers, "usbguard", "tailscale")}, proceed("extensions-unknown", 0)},
		{"of no release", nodeOptions{image: l.native, layer: layered(), mc: ofNoRelease}, proceed("extensions-unknown", 0)},
		{"of a release beyond the tables", nodeOptions{image: l.native, layer: layered(), mc: ofALaterRelease}, proceed("extensions-unknown", 0)},
		{"requested but inactive", nodeOptions{image: l.native, mc: mc(offers, "usbguard"),
			origin: containerOrigin + "[packages]\nrequested=usbguard;\n"}, proceed("extensions-differs", 0)},
		{"a base package replaced", nodeOptions{image: l.native, mc: mc(offers, "usbguard"), layer: more(func(c *sysroot.ClientLayer) {
			c.Metadata = map[string]string{"rpmostree.replaced-base-packages": "[(<'bash'>, <'bash-5.2'>)]"}
		})}, proceed("deployment-differs", 0)},
		{"the image a tag", nodeOptions{image: l.native, layer: layered(), mc: mc(l.reg.Host+"/os/extensions:latest", "usbguard")}, proceed("extensions-unknown", 0)},
		{"no extensions image", nodeOptions{image: l.native, layer: layered(), mc: mc("", "usbguard")}, proceed("extensions-unknown", -1)},
		{"not there", nodeOptions{image: l.native, layer: layered(), mc: mc(l.reg.Host+"/os/extensions@sha256:"+strings.Repeat("1", 64), "usbguard")},
			proceed("extensions-unknown", -1)},
		{"an OS image in its place", nodeOptions{image: l.native, layer: layered(), mc: mc(url, "usbguard")}, proceed("extensions-unknown", -1)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := l.bootNode(t, tt.node)
			l.reg.ResetRequests()
			res := n.analyze(t)
			l.expect(t, res, tt.want)
			if tt.want.reason == "extensions-unknown" && !strings.Contains(tt.name, "release") && tt.name != "unknown name" && len(res.Verdict.Errors) == 0 {
				t.Error("no error says why")
			}
			t.Logf("%d requests, %d bytes, %.1f ms", res.Transfer.Requests, res.Transfer.Bytes, res.Seconds*1000)
		})
	}
	t.Run("registry gone", func(t *testing.T) {
		n := l.bootNode(t, nodeOptions{image: l.native, layer: layered(), mc: mc(offers, "usbguard")})
		l.reg.ResetRequests()
		l.reg.AddFault(&registry.Fault{Path: regexp.MustCompile("/os/extensions/"), Do: registry.Drop})
		defer l.reg.ClearFaults()
		l.expect(t, n.analyze(t), proceed("extensions-unknown", -1))
	})
	t.Run("offline", func(t *testing.T) {
		n := l.bootNode(t, nodeOptions{image: l.native, layer: layered(), mc: mc(offers, "usbguard")})
		l.reg.ResetRequests()
		l.expect(t, n.analyze(t, func(o *daemon.Options) { o.Offline = true }), proceed("extensions-unknown", 0))
	})
}

// A node image built on its base carries no package list: the rpm databases of
// the deployment and of its base are read.
func TestExtensionsFromRPMDatabases(t *testing.T) {
	l := newLab(t)
	derived, packages := l.derivedOnRPMs(t)
	url := l.push(t, "os/node", derived)
	offers := l.extensionsImage(t, nativeimage.ExtensionsOptions{Packages: rpms(usbguard, protobuf)})
	mc := sysroot.MachineConfig{OSImageURL: url, Extensions: []string{"usbguard"}, ExtensionsImage: offers, Annotations: ofRelease("4.19.0")}
	layer := func() *sysroot.ClientLayer {
		c := layered()
		c.BasePackages, c.NoList = packages, true
		return c
	}
	older := usbguard
	older.Version = "0.9.9"
	tests := []struct {
		name string
		edit func(*sysroot.ClientLayer)
		want answer
	}{
		{"as wanted", func(*sysroot.ClientLayer) {}, skip(verdict.ProofManifestDigest, 4)},
		{"of another version", func(c *sysroot.ClientLayer) { c.Added = []sysroot.Package{older, protobuf} }, proceed("extensions-differs", 4)},
		{"a base package of another version", func(c *sysroot.ClientLayer) {
			c.BasePackages = slices.Clone(c.BasePackages)
			c.BasePackages[len(c.BasePackages)-1].Version = "99"
		}, proceed("extensions-differs", 0)},
		{"a database of another kind", func(c *sysroot.ClientLayer) {
			c.Files = map[string]sysroot.File{"usr/share/rpm/rpmdb.sqlite": {Content: "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x61\x15\x06\x00"}}
		}, proceed("extensions-unknown", 0)},
		{"a database cut short", func(c *sysroot.ClientLayer) {
			c.Files = map[string]sysroot.File{"usr/share/rpm/rpmdb.sqlite": {Content: "SQLite format 3\x00"}}
		}, proceed("extensions-unknown", 0)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := layer()
			tt.edit(c)
			n := l.bootNode(t, nodeOptions{image: derived, layer: c, mc: mc})
			l.reg.ResetRequests()
			res := n.analyze(t)
			l.expect(t, res, tt.want)
			t.Logf("%d requests, %d bytes, %.1f ms", res.Transfer.Requests, res.Transfer.Bytes, res.Seconds*1000)
		})
	}
}

// derivedOnRPMs is a node image that has an rpm database and no package list.
func (l *lab) derivedOnRPMs(t testing.TB) (*nativeimage.Image, []sysroot.Package) {
	t.Helper()
	tree := sysroot.Tree{}
	packages := sysroot.Packages(500, tree.Kernel())
	tree.Packages = packages
	commit := must[string](t)(l.build.CommitTree(tree, sysroot.CommitOptions{}))
	return must[*nativeimage.Image](t)(l.derive(must[*nativeimage.Image](t)(l.image(commit, nativeimage.Options{})))), packages
}

func TestKernelType(t *testing.T) {
	l := newLab(t)
	url := l.push(t, "os/base", l.native)
	offers := l.extensionsImage(t, nativeimage.ExtensionsOptions{Packages: rpms(append(realtimePackages(), usbguard, protobuf)...)})
	realtime := func(edit ...func(*sysroot.ClientLayer)) *sysroot.ClientLayer {
		c := &sysroot.ClientLayer{BasePackages: labPackages(), Requested: packageNames(realtimePackages()), Added: realtimePackages(),
			Removed: baseKernelPackages, Kernel: realtimeRelease + "+rt"}
		for _, e := range edit {
			e(c)
		}
		return c
	}
	mc := sysroot.MachineConfig{OSImageURL: url, ExtensionsImage: offers, KernelType: "realtime", Annotations: ofRelease("4.18.1")}
	withExtension := mc
	withExtension.Extensions = []string{"usbguard"}
	pages, unknown, standard := mc, mc, mc
	pages.KernelType, unknown.KernelType, standard.KernelType = "64k-pages", "debug", "default"
	tests := []struct {
		name string
		node nodeOptions
		want answer
	}{
		{"realtime in place", nodeOptions{image: l.native, layer: realtime(), mc: mc}, skip(verdict.ProofManifestDigest, 4)},
		{"on a plain commit", nodeOptions{commit: l.base, layer: realtime(), mc: mc}, skip(verdict.ProofOSTreeCommit, 8)},
		{"with an extension", nodeOptions{image: l.native, mc: withExtension, layer: realtime(func(c *sysroot.ClientLayer) {
			c.Requested, c.Added = append(c.Requested, "usbguard"), append(c.Added, usbguard, protobuf)
		})}, skip(verdict.ProofManifestDigest, 4)},
		{"with an extension more than wanted", nodeOptions{image: l.native, mc: mc, layer: realtime(func(c *sysroot.ClientLayer) {
			c.Requested, c.Added = append(c.Requested, "usbguard"), append(c.Added, usbguard, protobuf)
		})}, proceed("extensions-differs", 0)},
		{"wanted and absent", nodeOptions{image: l.native, mc: mc}, proceed("kernel-type-differs", 0)},
		{"not wanted", nodeOptions{image: l.native, layer: realtime(), mc: standard}, proceed("deployment-differs", 0)},
		{"the other kind wanted", nodeOptions{image: l.native, layer: realtime(), mc: pages}, proceed("kernel-type-differs", 0)},
		{"unknown", nodeOptions{image: l.native, layer: realtime(), mc: unknown}, proceed("kernel-type-unknown", 0)},
		{"a removal less", nodeOptions{image: l.native, mc: mc, layer: realtime(func(c *sysroot.ClientLayer) { c.Removed = c.Removed[1:] })},
			proceed("kernel-type-differs", 0)},
		{"a package less", nodeOptions{image: l.native, mc: mc, layer: realtime(func(c *sysroot.ClientLayer) { c.Requested = c.Requested[1:] })},
			proceed("kernel-type-differs", 0)},
		{"another kernel runs", nodeOptions{image: l.native, layer: realtime(), mc: mc, boot: sysroot.BootOptions{Kernel: sysroot.DefaultKernel}},
			proceed("running-kernel-differs", 0)},
		{"the kernel is not that of the package", nodeOptions{image: l.native, mc: mc, layer: realtime(func(c *sysroot.ClientLayer) { c.Kernel = "5.14.0-1.el9.x86_64+rt" })},
			proceed("kernel-type-differs", 0)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := l.bootNode(t, tt.node)
			l.reg.ResetRequests()
			l.expect(t, n.analyze(t), tt.want)
		})
	}
}
