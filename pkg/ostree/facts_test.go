package ostree_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/ostree"
	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// facts reads the facts of the default deployment as the booted one.
func (s *system) facts() ostree.Facts {
	s.t.Helper()
	sys, b := s.booted()
	return sys.Facts(b)
}

func known[T any](t *testing.T, what string, f verdict.Fact[T]) T {
	t.Helper()
	v, ok := f.Get()
	if !ok {
		t.Fatalf("%s is unknown: %s", what, f.Why())
	}
	return v
}

func unknown[T any](t *testing.T, what string, f verdict.Fact[T], why string) {
	t.Helper()
	if v, ok := f.Get(); ok || !f.Gathered() || !strings.Contains(f.Why(), why) {
		t.Errorf("%s: got %v, %q; want unknown because of %q", what, v, f.Why(), why)
	}
}

func TestFactsOfPlainCommit(t *testing.T) {
	s := newSystem(t)
	sum := s.commit(newTree(t), testRef, "--add-metadata-string=version=9.6.1", "--add-metadata-string=ostree.linux="+kernel,
		"--add-metadata=rpmostree.rpmdb.pkglist=[('bash','0','5','9','x86_64'),('skopeo','2','1','3','x86_64')]", "--timestamp=@1700000000")
	s.deploy(testRef, "--os="+stateroot, "--karg=root=LABEL=root", "--karg=console=ttyS0")
	s.repo("refs", "--create=ostree/container/blob/sha256_3A_"+strings.Repeat("1", 64), testRef)
	f := s.facts()
	commit, err := s.open().Repo().Commit(verdict.Checksum(sum))
	if err != nil {
		t.Fatal(err)
	}
	want := verdict.Deployment{
		Checksum: verdict.Checksum(sum), Stateroot: stateroot, Kind: verdict.PlainCommit,
		Root: commit.Root, Timestamp: 1700000000,
	}
	if diff := cmp.Diff(want, known(t, "deployment", f.Booted.Deployment)); diff != "" {
		t.Errorf("deployment (-want +got):\n%s", diff)
	}
	id := f.Booted.Identity
	inner := known(t, "inner commit", id.InnerCommit)
	if inner.Checksum != want.Checksum || inner.Source != verdict.CommitFromDeployment || inner.Root != commit.Root || inner.Timestamp != 1700000000 {
		t.Errorf("inner commit: got %+v", inner)
	}
	if n := known(t, "derived layers", id.DerivedLayers); n != 0 {
		t.Errorf("derived layers: got %d", n)
	}
	if id.Version != "9.6.1" || id.KernelRelease != kernel {
		t.Errorf("version %q, kernel %q", id.Version, id.KernelRelease)
	}
	unknown(t, "manifest digest", id.ManifestDigest, "not made from a container image")
	unknown(t, "diff ids", id.DiffIDs, "not made from a container image")
	if arch := known(t, "architecture", f.Booted.Architecture); arch != runtime.GOARCH {
		t.Errorf("architecture: got %s", arch)
	}
	if k := known(t, "kernels", f.Booted.DeploymentKernels); !cmp.Equal(k, []string{kernel}) {
		t.Errorf("kernels: got %q", k)
	}
	if p := known(t, "node payload", f.Booted.NodePayload); !p.Kubelet || !p.CRIO {
		t.Errorf("node payload: got %+v", p)
	}
	if o := known(t, "options", f.Booted.BootEntryOptions); !strings.HasPrefix(o, "root=LABEL=root console=ttyS0 ostree=/ostree/boot.") {
		t.Errorf("options: got %q", o)
	}
	if r := known(t, "origin reference", f.Booted.OriginReference); r != "" {
		t.Errorf("origin reference: got %q", r)
	}
	packages := []verdict.Package{{Name: "bash", EVRA: "5-9.x86_64"}, {Name: "skopeo", EVRA: "2:1-3.x86_64"}}
	if diff := cmp.Diff(packages, known(t, "packages", f.Booted.Packages)); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
	if f.Booted.BasePackages.Gathered() {
		t.Error("base packages of a commit that is not layered")
	}
	if !f.Booted.Blobs[verdict.Digest("sha256:"+strings.Repeat("1", 64))] || len(f.Booted.Blobs) != 1 {
		t.Errorf("blobs: got %v", f.Booted.Blobs)
	}
	if len(f.Unreadable) != 0 {
		t.Errorf("unreadable: got %v", f.Unreadable)
	}
	for what, gathered := range map[string]bool{
		"running kernel": f.Booted.RunningKernel.Gathered(), "command line": f.Booted.CommandLine.Gathered(), "FIPS": f.Booted.FIPS.Gathered(),
	} {
		if gathered {
			t.Errorf("%s is not a sysroot's to tell", what)
		}
	}
}

func TestNodePayloadAndKernels(t *testing.T) {
	tests := []struct {
		name    string
		change  func(t *testing.T, tree string)
		payload verdict.NodePayload
		kernels []string
	}{
		{"no kubelet", func(t *testing.T, tree string) { remove(t, filepath.Join(tree, "usr/bin/kubelet")) }, verdict.NodePayload{CRIO: true}, []string{kernel}},
		{"dangling crio", func(t *testing.T, tree string) { remove(t, filepath.Join(tree, "usr/libexec/crio")) }, verdict.NodePayload{Kubelet: true}, []string{kernel}},
		{"crio outside", func(t *testing.T, tree string) {
			remove(t, filepath.Join(tree, "usr/bin/crio"))
			symlink(t, "/var/lib/crio", filepath.Join(tree, "usr/bin/crio"))
		}, verdict.NodePayload{Kubelet: true}, []string{kernel}},
		{"kubelet is a folder", func(t *testing.T, tree string) {
			remove(t, filepath.Join(tree, "usr/bin/kubelet"))
			mkdir(t, filepath.Join(tree, "usr/bin/kubelet"))
		}, verdict.NodePayload{CRIO: true}, []string{kernel}},
		{"bin is a link", func(t *testing.T, tree string) {
			if err := os.Rename(filepath.Join(tree, "usr/bin"), filepath.Join(tree, "usr/sbin")); err != nil {
				t.Fatal(err)
			}
			symlink(t, "sbin", filepath.Join(tree, "usr/bin"))
		}, verdict.NodePayload{Kubelet: true, CRIO: true}, []string{kernel}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			tree := newTree(t)
			tt.change(t, tree)
			s.commit(tree, testRef)
			s.deploy(testRef, "--os="+stateroot)
			// What the deployment's folder or the running /usr holds does not count.
			write(t, filepath.Join(s.top, "usr/bin/kubelet"), "live")
			write(t, filepath.Join(s.top, "var/lib/crio"), "live")
			f := s.facts()
			if p := known(t, "node payload", f.Booted.NodePayload); p != tt.payload {
				t.Errorf("node payload: got %+v, want %+v", p, tt.payload)
			}
			if k := known(t, "kernels", f.Booted.DeploymentKernels); !cmp.Equal(k, tt.kernels) {
				t.Errorf("kernels: got %q, want %q", k, tt.kernels)
			}
		})
	}
}

func TestOriginReference(t *testing.T) {
	const spec = "quay.io/openshift/os@sha256:0123"
	tests := []struct{ name, origin, want, legacy string }{
		{"refspec", "refspec=x\n", "", ""},
		{"pivot", "refspec=x\ncustom-url=pivot://" + spec + "\n", spec, spec},
		{"another custom url", "refspec=x\ncustom-url=https://" + spec + "\n", "", ""},
		{"container", "container-image-reference=ostree-unverified-registry:" + spec + "\n", spec, spec},
		{"container beats pivot", "container-image-reference=ostree-image-signed:docker://" + spec + "\ncustom-url=pivot://other\n", spec, "docker://" + spec},
		{"archive", "container-image-reference=ostree-image-signed:oci-archive:/rhcos.ociarchive\n", "/rhcos.ociarchive", "oci-archive:/rhcos.ociarchive"},
		{"nonsense", "container-image-reference=" + spec + "\n", "!", ""},
	}
	s := newSystem(t)
	s.deployTest()
	file := s.deploymentFile(".origin")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			replaceFile(t, file, []byte("[origin]\n"+tt.origin))
			f := s.facts()
			if tt.want == "!" {
				unknown(t, "origin reference", f.Booted.OriginReference, "container-image-reference")
				return
			}
			if got := known(t, "origin reference", f.Booted.OriginReference); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if got := f.Booted.LegacyOriginReference; got != tt.legacy {
				t.Errorf("before 4.15: got %q, want %q", got, tt.legacy)
			}
		})
	}
}

// Whatever cannot be read is unknown, and says why.
func TestUnreadable(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, s *system, commit *format.Commit, sum string)
		check func(t *testing.T, f ostree.Facts)
	}{
		{"commit truncated", func(t *testing.T, s *system, _ *format.Commit, sum string) {
			replaceFile(t, s.object(sum, "commit"), []byte("x"))
		}, func(t *testing.T, f ostree.Facts) {
			unknown(t, "deployment", f.Booted.Deployment, "corrupt")
			unknown(t, "inner commit", f.Booted.Identity.InnerCommit, "corrupt")
			unknown(t, "derived layers", f.Booted.Identity.DerivedLayers, "corrupt")
			unknown(t, "kernels", f.Booted.DeploymentKernels, "corrupt")
			unknown(t, "node payload", f.Booted.NodePayload, "corrupt")
		}},
		{"commit missing", func(t *testing.T, s *system, _ *format.Commit, sum string) { remove(t, s.object(sum, "commit")) },
			func(t *testing.T, f ostree.Facts) { unknown(t, "deployment", f.Booted.Deployment, "no such file") }},
		{"origin missing", func(t *testing.T, s *system, _ *format.Commit, _ string) { remove(t, s.deploymentFile(".origin")) },
			func(t *testing.T, f ostree.Facts) {
				unknown(t, "deployment", f.Booted.Deployment, ".origin")
				unknown(t, "origin reference", f.Booted.OriginReference, ".origin")
				known(t, "inner commit", f.Booted.Identity.InnerCommit)
			}},
		{"origin is a folder", func(t *testing.T, s *system, _ *format.Commit, _ string) {
			file := s.deploymentFile(".origin")
			remove(t, file)
			mkdir(t, file)
		}, func(t *testing.T, f ostree.Facts) {
			unknown(t, "deployment", f.Booted.Deployment, "not a regular file")
		}},
		{"root dirtree corrupt", func(t *testing.T, s *system, c *format.Commit, _ string) {
			replaceFile(t, s.object(string(c.Root.DirTree), "dirtree"), []byte("x"))
		}, func(t *testing.T, f ostree.Facts) {
			unknown(t, "kernels", f.Booted.DeploymentKernels, "corrupt")
			unknown(t, "node payload", f.Booted.NodePayload, "corrupt")
			known(t, "deployment", f.Booted.Deployment)
		}},
		{"run/ostree is a file", func(t *testing.T, s *system, _ *format.Commit, _ string) {
			write(t, filepath.Join(s.top, "run/ostree"), "")
		}, func(t *testing.T, f ostree.Facts) { unknown(t, "deployment", f.Booted.Deployment, "/run/ostree") }},
		{"state folder loops", func(t *testing.T, s *system, _ *format.Commit, _ string) {
			symlink(t, "deployment-state", filepath.Join(s.top, "run/ostree/deployment-state"))
		}, func(t *testing.T, f ostree.Facts) { unknown(t, "deployment", f.Booted.Deployment, "deployment-state") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			sum := s.deployTest()
			sys, b := s.booted()
			c, err := sys.Repo().Commit(verdict.Checksum(sum))
			if err != nil {
				t.Fatal(err)
			}
			tt.spoil(t, s, c, sum)
			f := sys.Facts(b)
			tt.check(t, f)
			if len(f.Unreadable) == 0 {
				t.Error("no error kept")
			}
			for _, err := range f.Unreadable {
				if strings.Contains(err.Error(), s.top) {
					t.Errorf("error names the root itself: %v", err)
				}
			}
		})
	}
}

// A disk that never booted is read by its default boot entry.
func TestUnbooted(t *testing.T) {
	s := newSystem(t)
	sum := s.deployTest()
	sys := openAt(t, s.dir)
	d, err := sys.Default()
	if err != nil {
		t.Fatal(err)
	}
	f := sys.Facts(&ostree.Booted{Deployment: d})
	if got := known(t, "deployment", f.Booted.Deployment); string(got.Checksum) != sum || len(got.Divergences) != 0 {
		t.Errorf("got %+v", got)
	}
	if len(f.Unreadable) != 0 {
		t.Errorf("unreadable: got %v", f.Unreadable)
	}
}

func TestArchitectureOfText(t *testing.T) {
	s := newSystem(t)
	tree := newTree(t)
	write(t, filepath.Join(tree, "usr/bin/kubelet"), "#!/bin/sh\nexit 0 # a script\n")
	s.commit(tree, testRef)
	s.deploy(testRef, "--os="+stateroot)
	unknown(t, "architecture", s.facts().Booted.Architecture, "not an ELF file")
}

func BenchmarkReadHost(b *testing.B) {
	s := newSystem(b)
	s.deployImage(newImage())
	options := s.options()
	root, err := hostfs.Open(s.top)
	if err != nil {
		b.Fatal(err)
	}
	defer root.Close()
	for b.Loop() {
		sys, err := ostree.OpenSysroot(root)
		if err != nil {
			b.Fatal(err)
		}
		booted, err := sys.Booted(options)
		if err != nil {
			b.Fatal(err)
		}
		if f := sys.Facts(booted); !f.Booted.Deployment.IsKnown() {
			b.Fatal(f.Unreadable)
		}
	}
}
