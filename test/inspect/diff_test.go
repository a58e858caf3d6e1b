package inspect

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// A change is a package in the document.
type change struct{ Name, From, To string }

type imageDiff struct {
	Content, Urgency, Base, Unknown string
	LayersToPull                    *int
	BytesToPull                     *int64
	First, Added, Removed, Changed  []change
	Requests                        int
}

func (l *lab) diff(t *testing.T, args ...string) imageDiff {
	t.Helper()
	out, errs, status := l.run(t, append([]string{"diff", "-o", "json"}, args...)...)
	if status != 0 || errs != "" {
		t.Fatalf("exit status %d: %s", status, errs)
	}
	var d imageDiff
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// asRPM checks the changes beside what rpm says of the two databases.
func (d imageDiff) asRPM(t *testing.T, from, to []sysroot.Package) {
	t.Helper()
	a, b := rpm(t, from), rpm(t, to)
	added, removed, changed := []change{}, []change{}, []change{}
	for n, v := range b {
		switch {
		case a[n] == "":
			added = append(added, change{n, "", v})
		case a[n] != v:
			changed = append(changed, change{n, a[n], v})
		}
	}
	for n, v := range a {
		if b[n] == "" {
			removed = append(removed, change{n, v, ""})
		}
	}
	byName := func(x, y change) int { return strings.Compare(x.Name, y.Name) }
	for _, c := range []struct {
		what      string
		want, got []change
	}{{"added", added, d.Added}, {"removed", removed, d.Removed}, {"changed", changed, d.Changed}} {
		slices.SortFunc(c.want, byName)
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-rpm +diff)\n%s", c.what, diff)
		}
	}
}

// edited are packages with some changed by a function; an empty name leaves one out.
func edited(packages []sysroot.Package, edit func(*sysroot.Package)) []sysroot.Package {
	var all []sysroot.Package
	for _, p := range packages {
		if edit(&p); p.Name != "" {
			all = append(all, p)
		}
	}
	return all
}

func TestDiff(t *testing.T) {
	l := newLab(t)
	base := installed()
	kernel := edited(base, func(p *sysroot.Package) {
		if strings.HasPrefix(p.Name, "kernel") {
			p.Release = "999.el9_4"
		}
	})
	userspace := append(edited(base, func(p *sysroot.Package) {
		switch p.Name {
		case "glibc":
			p.Release = "200.el9"
		case "dbus":
			p.Name = ""
		}
	}), sysroot.Package{Name: "new", Epoch: "0", Version: "1", Release: "1", Arch: "noarch"})
	tree := sysroot.Tree{FillerBytes: 3 << 20}
	otherFiles := sysroot.Tree{FillerBytes: 3 << 20, Files: map[string]sysroot.File{"usr/share/x": {Content: "x"}}}
	image := func(tree sysroot.Tree, packages []sysroot.Package, opts nativeimage.Options) *nativeimage.Image {
		return l.image(t, tree, sysroot.CommitOptions{Packages: packages}, opts)
	}
	a := image(tree, base, nativeimage.Options{})
	node := derive(t, a, metalayer, metadata(t, userspace))
	tests := []struct {
		name     string
		from, to *nativeimage.Image
		a, b     []sysroot.Package
		// content, urgency, base
		want [3]string
	}{
		{"itself", a, a, base, base, [3]string{"same", "none", "same"}},
		{"recompressed", a, image(tree, base, nativeimage.Options{Compression: nativeimage.Zstd}), base, base, [3]string{"same", "none", "same"}},
		{"in other chunks", a, image(tree, base, nativeimage.Options{Chunks: -1}), base, base, [3]string{"same", "none", "differs"}},
		{"the same packages, other files", a, image(otherFiles, base, nativeimage.Options{}), base, base, [3]string{"same-packages", "userspace", "differs"}},
		{"another kernel", a, image(otherFiles, kernel, nativeimage.Options{}), base, kernel, [3]string{"other", "kernel", "differs"}},
		{"back to the kernel before", image(otherFiles, kernel, nativeimage.Options{}), a, kernel, base, [3]string{"other", "kernel", "differs"}},
		{"another glibc", a, image(otherFiles, userspace, nativeimage.Options{}), base, userspace, [3]string{"other", "userspace", "differs"}},
		{"a node image on its base", a, node, base, userspace, [3]string{"other", "userspace", "same"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			from, to := l.push(t, "from", tt.from), l.push(t, "to", tt.to)
			d := l.diff(t, from, to)
			if got := [3]string{d.Content, d.Urgency, d.Base}; got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			d.asRPM(t, tt.a, tt.b)
			if len(d.First) != 4 || d.First[0].Name != "kernel-core" || d.First[1].Name != "glibc" {
				t.Errorf("first are %+v", d.First)
			}
			if tt.to == node && (*d.LayersToPull != 1 || *d.BytesToPull != tt.to.Layers[len(tt.to.Layers)-1].Blob.Size) {
				t.Errorf("%d layers, %d bytes to pull", *d.LayersToPull, *d.BytesToPull)
			}
			if tt.name == "itself" && *d.LayersToPull != 0 {
				t.Errorf("%d layers to pull", *d.LayersToPull)
			}
		})
	}
	t.Run("packages that are not known", func(t *testing.T) {
		upon := derive(t, node, nil, nativeimage.DerivedLayer{Files: map[string]sysroot.File{"etc/motd": {Content: "mine"}}})
		d := l.diff(t, l.push(t, "from", a), l.push(t, "to", upon))
		if d.Content != "unknown" || d.Urgency != "unknown" || d.Unknown == "" || d.Changed != nil || d.Base != "same" || *d.LayersToPull != 2 {
			t.Errorf("got %+v", d)
		}
	})
	t.Run("for two architectures", func(t *testing.T) {
		arm := image(tree, base, nativeimage.Options{Architecture: "arm64"})
		if _, errs, status := l.run(t, "diff", l.push(t, "from", a), l.push(t, "to", arm)); status != 1 || !strings.Contains(errs, "choose with --arch") {
			t.Errorf("exit status %d, %s", status, errs)
		}
	})
	t.Run("words", func(t *testing.T) {
		out, _, _ := l.run(t, "diff", "--all", l.push(t, "from", a), l.push(t, "to", image(otherFiles, userspace, nativeimage.Options{})))
		for _, want := range []string{"urgency                userspace\n", "glibc                  2.34-100.el9_4.4.x86_64 -> 2.34-200.el9.x86_64\n", "packages               1 added, 1 removed, 1 changed\n", "\n+ new 1-1.noarch\n", "\n- dbus "} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
	})
	t.Run("a host", func(t *testing.T) { l.hostDiff(t, a, node, base, userspace) })
}

// hostDiff compares a booted node, which asks no registry for its own part.
func (l *lab) hostDiff(t *testing.T, booted, target *nativeimage.Image, from, to []sysroot.Package) {
	t.Helper()
	host, err := sysroot.NewRoot(filepath.Join(sysroot.TempDir(t), "host"))
	if err != nil {
		t.Fatal(err)
	}
	merge, err := nativeimage.Import(host.Sysroot.Repo(), booted, nativeimage.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := host.Sysroot.Deploy(merge, sysroot.DeployOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Boot(d, sysroot.BootOptions{}); err != nil {
		t.Fatal(err)
	}
	write(t, host.Path("etc/containers/certs.d/"+l.reg.Host+"/ca.crt"), l.reg.CA)
	elsewhere := *l
	elsewhere.root = host.Dir
	ref := l.push(t, "to", target)
	if got := elsewhere.diff(t, "host", l.push(t, "from", booted)); got.Content != "same" || got.Urgency != "none" || *got.LayersToPull != 0 {
		t.Errorf("a host and its own image: %+v", got)
	}
	got := elsewhere.diff(t, "host", ref)
	if got.Urgency != "userspace" || got.Base != "same" || *got.LayersToPull != 1 {
		t.Errorf("got %+v", got)
	}
	got.asRPM(t, from, to)
	l.layeredDiff(t, booted, from)
	if got := elsewhere.diff(t, "host", "host"); got.Content != "same" || got.Requests != 0 {
		t.Errorf("a host and itself: %+v", got)
	}
}

// layeredDiff compares a node upon whose image rpm-ostree has layered a package: it has
// the image's layers, and is not the image.
func (l *lab) layeredDiff(t *testing.T, image *nativeimage.Image, packages []sysroot.Package) {
	t.Helper()
	host, err := sysroot.NewRoot(filepath.Join(sysroot.TempDir(t), "layered"))
	if err != nil {
		t.Fatal(err)
	}
	merge, err := nativeimage.Import(host.Sysroot.Repo(), image, nativeimage.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	usbguard := sysroot.Package{Name: "usbguard", Epoch: "0", Version: "1.0.0", Release: "15.el9", Arch: "x86_64"}
	layer, err := host.Sysroot.CommitLayer(sysroot.ClientLayer{Base: merge, BasePackages: packages, Requested: []string{"usbguard"}, Added: []sysroot.Package{usbguard}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := host.Sysroot.Deploy(layer, sysroot.DeployOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Boot(d, sysroot.BootOptions{}); err != nil {
		t.Fatal(err)
	}
	write(t, host.Path("etc/containers/certs.d/"+l.reg.Host+"/ca.crt"), l.reg.CA)
	elsewhere := *l
	elsewhere.root = host.Dir
	got := elsewhere.diff(t, "host", l.push(t, "from", image))
	if got.Content == "same" || got.Urgency == "none" {
		t.Errorf("a node with a package layered on the image, and the image: %+v", got)
	}
	if got := elsewhere.diff(t, "host", "host"); got.Content == "other" || got.Content == "same-packages" {
		t.Errorf("a host and itself: %+v", got)
	}
}
