package inspect

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/test/measure"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// A layout is an image as some release has it.
type layout struct {
	name string
	ref  string
	size int64
	args []string
}

// layouts pushes an image of each form, those of an OS with 128 MiB of files.
func (l *lab) layouts(b *testing.B) []layout {
	b.Helper()
	const filler = 128 << 20
	base, labels := installed(), map[string]string{"io.openshift.release": "4.19.3"}
	listed := l.image(b, sysroot.Tree{FillerBytes: filler}, sysroot.CommitOptions{Packages: base}, nativeimage.Options{})
	unlisted := l.image(b, sysroot.Tree{FillerBytes: filler, Packages: base}, sysroot.CommitOptions{}, nativeimage.Options{})
	zstd, err := nativeimage.Recompress(b.TempDir(), listed, nativeimage.Zstd)
	if err != nil {
		b.Fatal(err)
	}
	node := derive(b, listed, metalayer, nativeimage.DerivedLayer{Files: map[string]sysroot.File{"usr/bin/kubelet": {Content: "another"}}}, metadata(b, base))
	upon := derive(b, unlisted, nil, nativeimage.DerivedLayer{Files: database(b, "usr/share/rpm/rpmdb.sqlite", base)})
	commit, err := l.build.CommitTree(sysroot.Tree{FillerBytes: filler}, sysroot.CommitOptions{Packages: base})
	if err != nil {
		b.Fatal(err)
	}
	legacy, err := nativeimage.BuildLegacy(b.TempDir(), l.build.Repo(), []string{commit}, nativeimage.LegacyOptions{Label: commit,
		Labels: map[string]string{"version": "49.84.1", "com.coreos.rpm.kernel": "4.18.0-305.el8_4.x86_64"}})
	if err != nil {
		b.Fatal(err)
	}
	offers := append(rpms(), nativeimage.RPM{Name: "kernel-rt-modules", Version: "5.14.0", Release: "427.el9_4", Arch: "x86_64", Filler: 48 << 20})
	extensions := func(without bool) *nativeimage.Image {
		m, err := nativeimage.BuildExtensions(b.TempDir(), nativeimage.ExtensionsOptions{Packages: offers, WithoutList: without, Labels: map[string]string{"io.openshift.os.extensions": "true"}})
		if err != nil {
			b.Fatal(err)
		}
		return m
	}
	var all []layout
	add := func(name string, m *nativeimage.Image, args ...string) string {
		ref := l.push(b, fmt.Sprintf("layout%d", len(all)), m)
		all = append(all, layout{name, ref, m.Size(), args})
		return ref
	}
	os := add("commit with a package list, gzip", listed)
	add("commit with a package list, zstd", zstd)
	nodeRef := add("node image, metadata layer", node)
	add("commit without a list", unlisted)
	add("commit without a list, --full", unlisted, "--full")
	add("database in a layer on top, --full", upon, "--full")
	add("machine-os-content", legacy)
	list := add("extensions, 4.19 and later", extensions(false))
	add("extensions before 4.19", extensions(true))
	add("extensions before 4.19, --full", extensions(true), "--full")
	refs := fmt.Sprintf(`{"kind":"ImageStream","spec":{"tags":[{"name":"rhel-coreos","from":{"kind":"DockerImage","name":%q}},
		{"name":"rhel-coreos-extensions","from":{"kind":"DockerImage","name":%q}},{"name":"driver-toolkit","from":{"kind":"DockerImage","name":%q}}]}}`, nodeRef, list, os)
	small := l.image(b, sysroot.Tree{}, sysroot.CommitOptions{}, nativeimage.Options{})
	add("release image, with its three", derive(b, small, labels, nativeimage.DerivedLayer{Files: map[string]sysroot.File{"release-manifests/image-references": {Content: refs}}}))
	return all
}

// spend runs a program and returns what it cost, in bytes on the wire.
func (l *lab) spend(b *testing.B, away *measure.Relay, name string, args ...string) measure.Cost {
	b.Helper()
	l.reg.ResetRequests()
	away.Received.Store(0)
	cmd := exec.Command(name, args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	c, err := measure.Run(cmd)
	if err != nil {
		b.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, errs.String())
	}
	c.Requests, c.Bytes = len(l.reg.Requests()), away.Received.Load()
	return c
}

// BenchmarkInspect prints what each layout costs with a registry 100 ms away,
// beside skopeo inspect, which knows labels and layers, and beside copying the
// image.
func BenchmarkInspect(b *testing.B) {
	l := newLab(b)
	away := measure.Far(b, l.reg.Host)
	l.reg.Host = away.Addr
	l.configure(b)
	layouts := l.layouts(b)
	certs := filepath.Join(l.root, "etc/containers/certs.d", l.reg.Host)
	for b.Loop() {
		fmt.Print("\n", measure.Head) // a log would be cut
		for _, y := range layouts {
			ours := l.spend(b, away, program, append(append([]string{"inspect", "-o", "json", "--root", l.root, "--authfile", l.auth}, y.args...), y.ref)...)
			skopeo := l.spend(b, away, "skopeo", "inspect", "--no-tags", "--authfile", l.auth, "--cert-dir", certs, "docker://"+y.ref)
			to := filepath.Join(l.dir, "copy")
			whole := l.spend(b, away, "skopeo", "copy", "--src-authfile", l.auth, "--src-cert-dir", certs, "docker://"+y.ref, "dir:"+to)
			if err := os.RemoveAll(to); err != nil {
				b.Fatal(err)
			}
			what := fmt.Sprintf("inspect %s, %.0f MB", y.name, float64(y.size)/1e6)
			for i, theirs := range []measure.Cost{skopeo, whole} {
				fmt.Print(measure.Row(what, measure.RoundTrip.String(), []string{"skopeo inspect --no-tags", "skopeo copy"}[i], ours, theirs))
			}
		}
	}
}
