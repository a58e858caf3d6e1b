// Package e2e runs the whole analysis on real parts: sysroots made by ostree,
// images built from real commits, a real registry.
package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/sysroot"
)

// A lab has what all scenarios share: commits, images and a registry. It is
// made once; nothing in it is changed by a test but the registry's faults and
// log.
type lab struct {
	dir   string
	build *sysroot.Sysroot
	reg   *registry.Registry

	// base is an OS, rebuilt the same tree committed again, other another OS.
	base, rebuilt, other string
	// native is the base as an image; derived adds one layer to it.
	native, derived *nativeimage.Image
	rebuiltImage    *nativeimage.Image
	otherImage      *nativeimage.Image
}

var theLab struct {
	sync.Once
	*lab
	err error
}

func TestMain(m *testing.M) {
	if spec := os.Getenv(liveVariable); spec != "" {
		// Not a test, but the first process of a root that one made.
		if err := liveMain(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if l := theLab.lab; l != nil {
		_ = l.reg.Close()
		_ = sysroot.Remove(l.dir)
	}
	os.Exit(code)
}

func newLab(t testing.TB) *lab {
	t.Helper()
	theLab.Do(func() { theLab.lab, theLab.err = makeLab() })
	if theLab.err != nil {
		t.Fatal(theLab.err)
	}
	theLab.reg.ClearFaults()
	theLab.reg.ResetRequests()
	return theLab.lab
}

func makeLab() (*lab, error) {
	dir, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		return nil, err
	}
	l := &lab{dir: dir}
	if l.build, err = sysroot.New(filepath.Join(dir, "build")); err != nil {
		return nil, err
	}
	if l.reg, err = registry.Start(registry.Options{Dir: filepath.Join(dir, "registry")}); err != nil {
		return nil, err
	}
	tree := sysroot.Tree{FillerBytes: 2 << 20}
	packages := labPackages()
	otherTree := sysroot.Tree{Version: "416.94.202411050000-0", FillerBytes: 2 << 20, FillerSeed: 1,
		Files: map[string]sysroot.File{"usr/share/other": {Content: "another build\n"}}}
	for _, c := range []struct {
		to   *string
		tree sysroot.Tree
		opts sysroot.CommitOptions
	}{
		{&l.base, tree, sysroot.CommitOptions{Packages: packages}},
		{&l.rebuilt, tree, sysroot.CommitOptions{Packages: packages, Timestamp: sysroot.DefaultTimestamp + 86400}},
		{&l.other, otherTree, sysroot.CommitOptions{Packages: packages, Timestamp: sysroot.DefaultTimestamp + 172800}},
	} {
		if *c.to, err = l.build.CommitTree(c.tree, c.opts); err != nil {
			return nil, err
		}
	}
	if l.native, err = l.image(l.base, nativeimage.Options{}); err != nil {
		return nil, err
	}
	if l.rebuiltImage, err = l.image(l.rebuilt, nativeimage.Options{}); err != nil {
		return nil, err
	}
	if l.otherImage, err = l.image(l.other, nativeimage.Options{}); err != nil {
		return nil, err
	}
	l.derived, err = l.derive(l.native)
	return l, err
}

func (l *lab) image(commit string, opts nativeimage.Options) (*nativeimage.Image, error) {
	dir, err := os.MkdirTemp(l.dir, "image-")
	if err != nil {
		return nil, err
	}
	return nativeimage.Build(dir, l.build.Repo(), commit, opts)
}

// derive puts one layer on an image, as a node image is built on its base.
func (l *lab) derive(base *nativeimage.Image) (*nativeimage.Image, error) {
	dir, err := os.MkdirTemp(l.dir, "image-")
	if err != nil {
		return nil, err
	}
	return nativeimage.Derive(dir, base, nil, nativeimage.DerivedLayer{
		Files: map[string]sysroot.File{"usr/share/derived": {Content: "one layer more\n"}}})
}

// push pushes an image and returns its pull spec by digest.
func (l *lab) push(t testing.TB, repository string, m *nativeimage.Image) string {
	t.Helper()
	digest, err := l.reg.Push(repository, m)
	if err != nil {
		t.Fatal(err)
	}
	return l.reg.Reference(repository, digest)
}

// A node is a host of one scenario.
type node struct {
	*sysroot.Root
	deployment sysroot.Deployment
}

// A nodeOptions says what a node runs and what it is to become.
type nodeOptions struct {
	// commit is deployed as a plain commit, image as a container deployment.
	commit string
	image  *nativeimage.Image
	// importOpts says how the image was pulled.
	importOpts nativeimage.ImportOptions
	// kargs are in the boot entry.
	kargs []string
	// mc is what the node is to become; boot the rest of what it shows.
	mc   sysroot.MachineConfig
	boot sysroot.BootOptions
	// origin replaces the origin file's text.
	origin string
	// layer is put on what is deployed; its Base is filled in.
	layer *sysroot.ClientLayer
}

// bootNode makes a node that has booted what the options say.
func (l *lab) bootNode(t testing.TB, o nodeOptions) *node {
	t.Helper()
	root, err := sysroot.NewRoot(filepath.Join(sysroot.TempDir(t), "root"))
	if err != nil {
		t.Fatal(err)
	}
	d := l.deploy(t, root.Sysroot, o)
	if o.boot.MachineConfig == nil {
		o.boot.MachineConfig = &o.mc
	}
	o.boot.InsecureRegistries = append(o.boot.InsecureRegistries, l.reg.Host)
	if err := root.Boot(d, o.boot); err != nil {
		t.Fatal(err)
	}
	return &node{Root: root, deployment: d}
}

// containerOrigin is what the disk image of an RHCOS release has.
var containerOrigin = sysroot.ContainerOrigin("ostree-image-signed:oci-archive:/rhcos.ociarchive")

// layerOrigin is what rpm-ostree adds to an origin.
func layerOrigin(c sysroot.ClientLayer) string {
	text := "[packages]\nrequested=" + strings.Join(c.Requested, ";") + ";\n"
	if len(c.Removed) > 0 {
		text += "[overrides]\nremove=" + strings.Join(c.Removed, ";") + ";\n"
	}
	return text
}

// labPackages are those of the lab's commits.
func labPackages() []sysroot.Package { return sysroot.Packages(500, sysroot.DefaultKernel) }

func (l *lab) deploy(t testing.TB, s *sysroot.Sysroot, o nodeOptions) sysroot.Deployment {
	t.Helper()
	commit, origin := o.commit, o.origin
	if o.image != nil {
		merge, err := nativeimage.Import(s.Repo(), o.image, o.importOpts)
		if err != nil {
			t.Fatal(err)
		}
		commit = merge
		if origin == "" {
			origin = containerOrigin
		}
	} else if _, err := sysroot.Ostree("pull-local", "--repo="+s.Repo(), "--disable-fsync", l.build.Repo(), commit); err != nil {
		t.Fatal(err)
	}
	if o.layer != nil {
		if origin == "" {
			origin = "[origin]\nbaserefspec=" + commit + "\n"
		}
		origin += layerOrigin(*o.layer)
		layer := *o.layer
		layer.Base = commit
		commit = must[string](t)(s.CommitLayer(layer))
	}
	kargs := append([]string{"root=UUID=6f0e", "rw", "$ignition_firstboot"}, o.kargs...)
	d, err := s.Deploy(commit, sysroot.DeployOptions{KernelArguments: kargs, Origin: origin})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// analyze runs the analysis on the node.
func (n *node) analyze(t testing.TB, edit ...func(*daemon.Options)) *daemon.Result {
	t.Helper()
	opts := daemon.Options{Root: n.Dir, Timeout: 20 * time.Second}
	for _, e := range edit {
		e(&opts)
	}
	res, err := daemon.Analyze(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// An answer is what a scenario expects.
type answer struct {
	action   verdict.Action
	proof    verdict.Proof
	reason   verdict.Reason
	requests int // at most; none where 0, -1 for any
}

func skip(p verdict.Proof, requests int) answer {
	return answer{action: verdict.Skip, proof: p, reason: verdict.ReasonProven, requests: requests}
}

func proceed(r verdict.Reason, requests int) answer {
	return answer{reason: r, requests: requests}
}

// expect compares, and holds what must be true of every verdict.
func (l *lab) expect(t testing.TB, res *daemon.Result, want answer) {
	t.Helper()
	v := res.Verdict
	if v.Action != want.action || v.Reason != want.reason || want.proof != "" && v.Proof != want.proof {
		t.Errorf("got %v, reason %s, proof %s; want %v, %s, %s\n%s", actionText(v.Action), v.Reason, v.Proof,
			actionText(want.action), want.reason, want.proof, checksText(v))
	}
	served := l.reg.Requests()
	if want.requests >= 0 && len(served) > want.requests {
		t.Errorf("%d registry requests, want at most %d: %v", len(served), want.requests, served)
	}
	if res.Transfer.Requests != len(served) {
		t.Errorf("counted %d requests, the registry saw %d: %v", res.Transfer.Requests, len(served), served)
	}
	if len(v.Checks) != len(verdict.CheckNames()) {
		t.Errorf("%d checks in the verdict", len(v.Checks))
	}
}

func actionText(a verdict.Action) string {
	b, _ := a.MarshalText()
	return string(b)
}

func checksText(v verdict.Verdict) string {
	var s string
	for _, c := range v.Checks {
		s += fmt.Sprintf("  %-8s %-24s %s\n", c.Outcome, c.Name, c.Detail)
	}
	for _, e := range v.Errors {
		s += fmt.Sprintf("  error %s: %s\n", e.Code, e.Message)
	}
	return s
}
