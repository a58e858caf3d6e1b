package ostree_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/ostree"
	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/ostree/ostreetest"
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
		"--add-metadata=rpmostree.rpmdb.pkglist=[('bash','0','5','9','x86_64')]", "--timestamp=@1700000000")
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
	if p := known(t, "packages", f.Packages); len(p) != 1 || p[0].Name != "bash" {
		t.Errorf("packages: got %v", p)
	}
	if p := known(t, "layered packages", f.LayeredPackages); len(p) != 0 {
		t.Errorf("layered packages: got %v", p)
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

func TestDivergences(t *testing.T) {
	state := func(s *system, name string) string {
		d, err := s.open().Default()
		if err != nil {
			s.t.Fatal(err)
		}
		return filepath.Join(s.top, "run/ostree/deployment-state", fmt.Sprintf("%s.%d", d.Checksum, d.Serial), name)
	}
	origin := func(lines string) func(*testing.T, *system) {
		return func(t *testing.T, s *system) {
			file := s.deploymentFile(".origin")
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			replaceFile(t, file, append(b, lines...))
		}
	}
	tests := []struct {
		name   string
		change func(t *testing.T, s *system)
		want   []verdict.DivergenceKind
	}{
		{"none", func(*testing.T, *system) {}, nil},
		{"pinned", origin("[libostree-transient]\npinned=true\n"), nil},
		{"unlocked development", func(t *testing.T, s *system) { write(t, state(s, "unlocked-development"), "") }, []verdict.DivergenceKind{verdict.Unlocked}},
		{"unlocked transient", func(t *testing.T, s *system) { write(t, state(s, "unlocked-transient"), "") }, []verdict.DivergenceKind{verdict.Unlocked}},
		{"unlocked by a dangling link", func(t *testing.T, s *system) { symlink(t, "none", state(s, "unlocked-development")) }, []verdict.DivergenceKind{verdict.Unlocked}},
		{"unlocked hotfix", origin("[origin]\nunlocked=hotfix\n"), []verdict.DivergenceKind{verdict.Unlocked}},
		{"live-applied", func(t *testing.T, s *system) { write(t, state(s, "rpmostree-is-live.stamp"), "") }, []verdict.DivergenceKind{verdict.LiveApplied}},
		{"unknown state", func(t *testing.T, s *system) { write(t, state(s, "future"), "") }, []verdict.DivergenceKind{verdict.LocalAssembly}},
		{"state of another deployment", func(t *testing.T, s *system) {
			write(t, filepath.Join(s.top, "run/ostree/deployment-state", strings.Repeat("a", 64)+".0/unlocked-development"), "")
		}, nil},
		{"staged", func(t *testing.T, s *system) {
			d, err := s.open().Default()
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(s.top, "run/ostree/staged-deployment"), string(ostreetest.EncodeDict([]ostreetest.Entry{{Key: "target", Value: []ostreetest.Entry{
				{Key: "name", Value: fmt.Sprintf("%s.%d", d.Checksum, d.Serial)}, {Key: "osname", Value: stateroot}, {Key: "bootcsum", Value: "b"},
			}}})))
		}, []verdict.DivergenceKind{verdict.Staged}},
		{"staged in a form unknown", func(t *testing.T, s *system) { write(t, filepath.Join(s.top, "run/ostree/staged-deployment"), "x") }, []verdict.DivergenceKind{verdict.Staged}},
		{"staged through a dangling link", func(t *testing.T, s *system) {
			symlink(t, "none", filepath.Join(s.top, "run/ostree/staged-deployment"))
		}, []verdict.DivergenceKind{verdict.Staged}},
		{"soft reboot prepared", func(t *testing.T, s *system) { write(t, filepath.Join(s.top, "run/ostree/nextroot-booted"), "") }, []verdict.DivergenceKind{verdict.SoftRebootPending}},
		{"next root mounted", func(t *testing.T, s *system) { mkdir(t, filepath.Join(s.top, "run/nextroot/usr")) }, []verdict.DivergenceKind{verdict.SoftRebootPending}},
		{"next root empty", func(t *testing.T, s *system) { mkdir(t, filepath.Join(s.top, "run/nextroot")) }, nil},
		{"override remove", origin("[overrides]\nremove=docker;\n"), []verdict.DivergenceKind{verdict.PackageOverride}},
		{"override replace", origin("[overrides]\nreplace=repo=x,kernel;\n"), []verdict.DivergenceKind{verdict.PackageOverride}},
		{"override replace-local", origin("[overrides]\nreplace-local=1:a;\n"), []verdict.DivergenceKind{verdict.PackageOverride}},
		{"initramfs regenerated", origin("[rpmostree]\nregenerate-initramfs=true\n"), []verdict.DivergenceKind{verdict.InitramfsRegenerated}},
		{"initramfs-etc", origin("[rpmostree]\ninitramfs-etc=/etc/x;\n"), []verdict.DivergenceKind{verdict.InitramfsRegenerated}},
		{"overlay initrd", func(t *testing.T, s *system) {
			entries, err := filepath.Glob(filepath.Join(s.dir, "boot/loader/entries/*.conf"))
			if err != nil || len(entries) != 1 {
				t.Fatal(entries, err)
			}
			b, err := os.ReadFile(entries[0])
			if err != nil {
				t.Fatal(err)
			}
			write(t, entries[0], string(b)+"initrd /ostree/initramfs-overlays/x.img\n")
		}, []verdict.DivergenceKind{verdict.InitramfsRegenerated}},
		{"cliwrap", origin("[rpmostree]\nex-cliwrap=true\n"), []verdict.DivergenceKind{verdict.LocalAssembly}},
		{"modules", origin("[modules]\nenable=a;\n"), []verdict.DivergenceKind{verdict.LocalAssembly}},
		{"override-commit", origin("[origin]\noverride-commit=a\n"), []verdict.DivergenceKind{verdict.LocalAssembly}},
		{"unconfigured", origin("[origin]\nunconfigured-state=register\n"), []verdict.DivergenceKind{verdict.LocalAssembly}},
		{"unknown key", origin("[future]\nx=y\n"), []verdict.DivergenceKind{verdict.LocalAssembly}},
		{"two identities", origin("[origin]\ncontainer-image-reference=ostree-unverified-registry:quay.io/x\n"), []verdict.DivergenceKind{verdict.OriginConflict}},
		{"no identity", func(t *testing.T, s *system) { replaceFile(t, s.deploymentFile(".origin"), nil) }, []verdict.DivergenceKind{verdict.OriginConflict}},
		{"partial", func(t *testing.T, s *system) {
			d, err := s.open().Default()
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(s.dir, "ostree/repo/state", string(d.Checksum)+".commitpartial"), "")
		}, []verdict.DivergenceKind{verdict.CommitPartial}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			s.deployTest()
			tt.change(t, s)
			d := known(t, "deployment", s.facts().Booted.Deployment)
			var got []verdict.DivergenceKind
			for _, v := range d.Divergences {
				got = append(got, v.Kind)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%+v", diff, d.Divergences)
			}
		})
	}
}

func TestNotDefault(t *testing.T) {
	s := newSystem(t)
	s.deployTest()
	s.deploy(testRef, "--os="+stateroot)
	sys := s.open()
	list, err := sys.Deployments()
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	b, err := sys.Booted(list[1].Entry.Options)
	if err != nil {
		t.Fatal(err)
	}
	d := known(t, "deployment", sys.Facts(b).Booted.Deployment)
	if len(d.Divergences) != 1 || d.Divergences[0].Kind != verdict.NotDefault || !strings.Contains(d.Divergences[0].Detail, list[0].Name()) {
		t.Errorf("got %+v", d.Divergences)
	}
	b.SoftRebooted = "x"
	d = known(t, "deployment", sys.Facts(b).Booted.Deployment)
	if len(d.Divergences) != 2 || d.Divergences[1].Kind != verdict.SoftRebooted {
		t.Errorf("got %+v", d.Divergences)
	}
}

func TestOriginReference(t *testing.T) {
	const spec = "quay.io/openshift/os@sha256:0123"
	tests := []struct{ name, origin, want string }{
		{"refspec", "refspec=x\n", ""},
		{"pivot", "refspec=x\ncustom-url=pivot://" + spec + "\n", spec},
		{"another custom url", "refspec=x\ncustom-url=https://" + spec + "\n", ""},
		{"container", "container-image-reference=ostree-unverified-registry:" + spec + "\n", spec},
		{"container beats pivot", "container-image-reference=ostree-image-signed:docker://" + spec + "\ncustom-url=pivot://other\n", spec},
		{"archive", "container-image-reference=ostree-image-signed:oci-archive:/rhcos.ociarchive\n", "/rhcos.ociarchive"},
		{"nonsense", "container-image-reference=" + spec + "\n", "!"},
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

// An image is what a merge commit is made from.
type image struct {
	// layers are the digests, inner the layers up to ostree.final-diffid.
	layers  []string
	diffIDs []string
	labels  map[string]string
	arch    string
}

func digest(c string) string { return "sha256:" + strings.Repeat(c, 64) }

func newImage() *image {
	return &image{
		layers: []string{digest("1"), digest("2"), digest("3")}, diffIDs: []string{digest("a"), digest("b"), digest("c")},
		labels: map[string]string{"ostree.final-diffid": digest("c"), "org.opencontainers.image.version": "9.6.2", "version": "old", "ostree.linux": kernel},
		arch:   "amd64",
	}
}

func (i *image) metadata(t testing.TB) []string {
	t.Helper()
	type m = map[string]any
	var layers []m
	for _, l := range i.layers {
		layers = append(layers, m{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": l, "size": 1})
	}
	manifest, err := json.Marshal(m{"schemaVersion": 2, "config": m{"digest": digest("d"), "size": 1}, "layers": layers})
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(m{"architecture": i.arch, "os": "linux", "config": m{"Labels": i.labels}, "rootfs": m{"type": "layers", "diff_ids": i.diffIDs}})
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"--add-metadata-string=ostree.manifest-digest=" + digest("e"), "--add-metadata-string=ostree.manifest=" + string(manifest),
		"--add-metadata-string=ostree.container.image-config=" + string(config), "--add-metadata-string=ostree.importer.version=0.15.3",
	}
}

const blobRef = "ostree/container/blob/sha256_3A_1111111111111111111111111111111111111111111111111111111111111111"

// deployImage commits a base, merges it and deploys the merge.
func (s *system) deployImage(i *image, args ...string) (base, merge string) {
	s.t.Helper()
	base = s.commit(newTree(s.t), blobRef)
	args = append(append([]string{"commit", "-b", "ostree/container/image/x", "--tree=ref=" + base}, i.metadata(s.t)...), args...)
	merge = s.repo(args...)
	s.deploy(merge, "--os="+stateroot)
	replaceFile(s.t, s.deploymentFile(".origin"), []byte("[origin]\ncontainer-image-reference=ostree-unverified-registry:quay.io/x:1\n"))
	return base, merge
}

func TestFactsOfContainer(t *testing.T) {
	s := newSystem(t)
	base, merge := s.deployImage(newImage())
	f := s.facts()
	d := known(t, "deployment", f.Booted.Deployment)
	if d.Kind != verdict.ContainerImage || string(d.Checksum) != merge || len(d.Divergences) != 0 {
		t.Errorf("deployment: got %+v", d)
	}
	id := f.Booted.Identity
	inner := known(t, "inner commit", id.InnerCommit)
	if string(inner.Checksum) != base || inner.Source != verdict.CommitFromBlobRef || inner.Root != d.Root {
		t.Errorf("inner commit: got %+v, deployment's root %+v", inner, d.Root)
	}
	if got := known(t, "manifest digest", id.ManifestDigest); string(got) != digest("e") {
		t.Errorf("manifest digest: got %s", got)
	}
	if got := known(t, "config digest", id.ConfigDigest); string(got) != digest("d") {
		t.Errorf("config digest: got %s", got)
	}
	want := []verdict.Digest{verdict.Digest(digest("a")), verdict.Digest(digest("b")), verdict.Digest(digest("c"))}
	if got := known(t, "diff ids", id.DiffIDs); !cmp.Equal(got, want) {
		t.Errorf("diff ids: got %v", got)
	}
	if got := known(t, "final diff id", id.FinalDiffID); got != want[2] {
		t.Errorf("final diff id: got %s", got)
	}
	if n, m := known(t, "layers", id.Layers), known(t, "derived layers", id.DerivedLayers); n != 3 || m != 0 {
		t.Errorf("layers: got %d, derived %d", n, m)
	}
	if id.Version != "9.6.2" || id.KernelRelease != kernel || known(t, "image architecture", id.Architecture) != "amd64" {
		t.Errorf("got %+v", id)
	}
	if got := known(t, "origin reference", f.Booted.OriginReference); got != "quay.io/x:1" {
		t.Errorf("origin reference: got %s", got)
	}
	if len(f.Booted.Blobs) != 1 || !f.Booted.Blobs[verdict.Digest(digest("1"))] {
		t.Errorf("blobs: got %v", f.Booted.Blobs)
	}
}

func TestContainerVariants(t *testing.T) {
	const none = -1
	tests := []struct {
		name    string
		change  func(i *image)
		parent  string // "base", "" or another
		noBlob  bool
		derived int // none for unknown
		source  verdict.CommitSource
		why     string
	}{
		{name: "derived", change: func(i *image) { i.labels["ostree.final-diffid"] = digest("a") }, derived: 2, source: verdict.CommitFromBlobRef},
		{name: "no final-diffid", change: func(i *image) { delete(i.labels, "ostree.final-diffid") }, derived: none, why: "no label ostree.final-diffid"},
		{name: "squashed", change: func(i *image) { i.labels["ostree.final-diffid"] = digest("9") }, derived: none, source: verdict.CommitFromBlobRef},
		{name: "final-diffid twice", change: func(i *image) { i.diffIDs[0] = digest("c") }, derived: none, source: verdict.CommitFromBlobRef},
		{name: "final-diffid is no digest", change: func(i *image) { i.labels["ostree.final-diffid"] = "x" }, derived: none, source: verdict.CommitFromBlobRef},
		{name: "fewer diff ids", change: func(i *image) { i.diffIDs = i.diffIDs[1:] }, derived: none, source: verdict.CommitFromBlobRef},
		{name: "no blob ref, no parent", change: func(*image) {}, noBlob: true, derived: 0, why: "no parent"},
		{name: "no blob ref, parent without a label", change: func(*image) {}, noBlob: true, parent: "base", derived: 0, why: "no label ostree.commit"},
		{name: "no blob ref, parent is the label", change: func(i *image) { i.labels["ostree.commit"] = "base" }, noBlob: true, parent: "base", derived: 0, source: verdict.CommitFromParent},
		{name: "no blob ref, stale label", change: func(i *image) { i.labels["ostree.commit"] = strings.Repeat("7", 64) }, noBlob: true, parent: "base", derived: 0, why: "is not the label"},
		{name: "blob ref beats label", change: func(i *image) { i.labels["ostree.commit"] = strings.Repeat("7", 64) }, derived: 0, source: verdict.CommitFromBlobRef},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			i := newImage()
			tt.change(i)
			base := s.commit(newTree(t), blobRef)
			if i.labels["ostree.commit"] == "base" {
				i.labels["ostree.commit"] = base
			}
			args := append([]string{"commit", "-b", "ostree/container/image/x", "--tree=ref=" + base}, i.metadata(t)...)
			if tt.parent == "base" {
				args = append(args, "--parent="+base)
			}
			s.deploy(s.repo(args...), "--os="+stateroot)
			if tt.noBlob {
				s.repo("refs", "--delete", blobRef)
			}
			id := s.facts().Booted.Identity
			if tt.derived == none {
				unknown(t, "derived layers", id.DerivedLayers, "")
			} else if n := known(t, "derived layers", id.DerivedLayers); n != tt.derived {
				t.Errorf("derived layers: got %d, want %d", n, tt.derived)
			}
			if _, ok := i.labels["ostree.final-diffid"]; !ok && known(t, "final diff id", id.FinalDiffID) != "" {
				t.Error("final diff id: want it empty")
			}
			if tt.source == "" {
				unknown(t, "inner commit", id.InnerCommit, tt.why)
			} else if c := known(t, "inner commit", id.InnerCommit); string(c.Checksum) != base || c.Source != tt.source {
				t.Errorf("inner commit: got %+v, want %s from %s", c, base, tt.source)
			}
		})
	}
}

// A blob ref that leads to a layer's import, or to nothing, proves nothing.
func TestInnerCommitNotShown(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, s *system, base string)
		why   string
	}{
		{"imported layer", func(t *testing.T, s *system, _ string) {
			s.commit(newTree(t), blobRef, "--add-metadata-string=ostree.importer.version=0.15")
		}, "imported layer"},
		{"commit is gone", func(t *testing.T, s *system, base string) { remove(t, s.object(base, "commit")) }, "no such file"},
		{"commit is corrupt", func(t *testing.T, s *system, base string) {
			replaceFile(t, s.object(base, "commit"), []byte("x"))
		}, "corrupt"},
		{"ref is garbage", func(t *testing.T, s *system, _ string) {
			write(t, filepath.Join(s.dir, "ostree/repo/refs/heads", blobRef), "garbage\n")
		}, "checksum"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			base, _ := s.deployImage(newImage())
			tt.spoil(t, s, base)
			f := s.facts()
			unknown(t, "inner commit", f.Booted.Identity.InnerCommit, tt.why)
			known(t, "manifest digest", f.Booted.Identity.ManifestDigest)
		})
	}
}

func TestContainerMetadataMalformed(t *testing.T) {
	tests := []struct {
		name string
		args []string
		// known facts; the others are unknown.
		manifest, config, diffIDs bool
	}{
		{"digest only", []string{"--add-metadata-string=ostree.manifest-digest=" + digest("e")}, true, false, false},
		{"digest malformed", []string{"--add-metadata-string=ostree.manifest-digest=x"}, false, false, false},
		{"digest of another type", []string{"--add-metadata=ostree.manifest-digest=true"}, false, false, false},
		{"manifest is no JSON", []string{"--add-metadata-string=ostree.manifest={"}, false, false, false},
		{"manifest without layers", []string{"--add-metadata-string=ostree.manifest={}"}, false, false, false},
		{"manifest with a bad layer", []string{`--add-metadata-string=ostree.manifest={"config":{"digest":"` + digest("d") + `"},"layers":[{"digest":"x"}]}`}, false, false, false},
		{"manifest with a bad config", []string{`--add-metadata-string=ostree.manifest={"layers":[{"digest":"` + digest("1") + `"}]}`}, false, false, false},
		{"config only", []string{`--add-metadata-string=ostree.container.image-config={"architecture":"amd64","rootfs":{"diff_ids":["` + digest("a") + `"]}}`}, false, false, true},
		{"config without diff ids", []string{`--add-metadata-string=ostree.container.image-config={"architecture":"amd64"}`}, false, false, false},
		{"config without architecture", []string{`--add-metadata-string=ostree.container.image-config={"rootfs":{"diff_ids":["` + digest("a") + `"]}}`}, false, false, false},
		{"config with a bad diff id", []string{`--add-metadata-string=ostree.container.image-config={"architecture":"amd64","rootfs":{"diff_ids":["x"]}}`}, false, false, false},
		{"config is a list", []string{"--add-metadata-string=ostree.container.image-config=[]"}, false, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			s.commit(newTree(t), testRef, tt.args...)
			s.deploy(testRef, "--os="+stateroot)
			f := s.facts()
			if d := known(t, "deployment", f.Booted.Deployment); d.Kind != verdict.ContainerImage {
				t.Errorf("kind: got %s", d.Kind)
			}
			id := f.Booted.Identity
			got := []bool{id.ManifestDigest.IsKnown(), id.ConfigDigest.IsKnown(), id.DiffIDs.IsKnown(), id.InnerCommit.IsKnown(), id.DerivedLayers.IsKnown()}
			if diff := cmp.Diff([]bool{tt.manifest, tt.config, tt.diffIDs, false, false}, got); diff != "" {
				t.Errorf("known (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClientLayered(t *testing.T) {
	const layer = "--add-metadata=rpmostree.clientlayer=true"
	s := newSystem(t)
	base, merge := s.deployImage(newImage())
	deploy := func(args ...string) ostree.Facts {
		t.Helper()
		tree := newTree(t)
		write(t, filepath.Join(tree, "usr/bin/usbguard"), "x")
		sum := s.repo(append([]string{"commit", "-b", "rpmostree/x", "--tree=dir=" + tree}, args...)...)
		s.deploy(sum, "--os="+stateroot)
		replaceFile(t, s.deploymentFile(".origin"), []byte("[origin]\ncontainer-image-reference=ostree-unverified-registry:quay.io/x:1\n[packages]\nrequested=usbguard;strongswan;\nrequested-local=12:local-1;\n"))
		return s.facts()
	}
	f := deploy("--parent="+merge, layer, "--add-metadata=rpmostree.packages=['usbguard']")
	d := known(t, "deployment", f.Booted.Deployment)
	if d.Kind != verdict.ClientLayered || len(d.Divergences) != 0 || !cmp.Equal(d.RequestedPackages, []string{"12:local-1", "strongswan", "usbguard"}) {
		t.Errorf("deployment: got %+v", d)
	}
	id := f.Booted.Identity
	if c := known(t, "inner commit", id.InnerCommit); string(c.Checksum) != base || c.Root == d.Root {
		t.Errorf("inner commit: got %+v, want %s", c, base)
	}
	if got := known(t, "manifest digest", id.ManifestDigest); string(got) != digest("e") {
		t.Errorf("manifest digest: got %s", got)
	}
	if p := known(t, "layered packages", f.LayeredPackages); !cmp.Equal(p, []string{"usbguard"}) {
		t.Errorf("layered packages: got %v", p)
	}

	// On a plain base, with overrides in the commit.
	f = deploy("--parent="+base, layer, "--add-metadata=rpmostree.packages=@as []",
		"--add-metadata=rpmostree.removed-base-packages=[<('kernel',)>]", "--add-metadata=rpmostree.replaced-base-packages=@a(vv) []")
	d = known(t, "deployment", f.Booted.Deployment)
	if d.Kind != verdict.ClientLayered || len(d.Divergences) != 1 || d.Divergences[0].Kind != verdict.PackageOverride {
		t.Errorf("deployment: got %+v", d)
	}
	if c := known(t, "inner commit", f.Booted.Identity.InnerCommit); string(c.Checksum) != base || c.Source != verdict.CommitFromParent {
		t.Errorf("inner commit: got %+v", c)
	}

	f = deploy(layer)
	unknown(t, "inner commit", f.Booted.Identity.InnerCommit, "below the layered packages")
	unknown(t, "layered packages", f.LayeredPackages, "rpmostree.packages")
	f = deploy("--add-metadata=rpmostree.clientlayer='yes'")
	unknown(t, "deployment", f.Booted.Deployment, "rpmostree.clientlayer")
	unknown(t, "inner commit", f.Booted.Identity.InnerCommit, "rpmostree.clientlayer")
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
