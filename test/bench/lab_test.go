package bench

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/test/measure"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/sysroot"
)

// program is oneboot, built as it is released.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "oneboot")
	if out, err := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-tags", "containers_image_openpgp,exclude_graphdriver_btrfs", "-o", program, "../../cmd/oneboot").CombinedOutput(); err != nil {
		panic(string(out))
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// A lab is a registry, far or near, and where its images are made.
type lab struct {
	reg   *registry.Registry
	away  *measure.Relay
	build *sysroot.Sysroot
	// firstInspect is the inspection that others are compared with.
	firstInspect func() measure.Cost
	dir          string
}

func newLab(t testing.TB) *lab {
	t.Helper()
	l := &lab{dir: sysroot.TempDir(t)}
	var err error
	if l.reg, err = registry.Start(registry.Options{Dir: filepath.Join(l.dir, "registry")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.reg.Close() })
	l.away = measure.Far(t, l.reg.Host)
	if l.build, err = sysroot.New(filepath.Join(l.dir, "build")); err != nil {
		t.Fatal(err)
	}
	return l
}

// commit makes an OS of so many MiB.
func (l *lab) commit(t testing.TB, mib int64) string {
	t.Helper()
	tree := sysroot.Tree{FillerBytes: mib << 20, FillerSeed: uint64(mib)}
	c, err := l.build.CommitTree(tree, sysroot.CommitOptions{Packages: sysroot.Packages(500, tree.Kernel())})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (l *lab) native(t testing.TB, commit string) *nativeimage.Image {
	t.Helper()
	m, err := nativeimage.Build(t.TempDir(), l.build.Repo(), commit, nativeimage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// push pushes an image and returns its pull spec, near and far.
func (l *lab) push(t testing.TB, name string, m *nativeimage.Image) (near, far string) {
	t.Helper()
	digest, err := l.reg.Push(name, m, "latest", "other")
	if err != nil {
		t.Fatal(err)
	}
	return l.reg.Reference(name, digest), l.away.Addr + "/" + name + "@" + digest
}

// node is the root of a host that has booted an image, or a commit as a disk image has
// it, and is to become what a pull spec names.
func (l *lab) node(t testing.TB, image *nativeimage.Image, commit, want string) *host {
	t.Helper()
	root, err := sysroot.NewRoot(filepath.Join(sysroot.TempDir(t), "root"))
	if err != nil {
		t.Fatal(err)
	}
	origin := ""
	if image != nil {
		commit, err = nativeimage.Import(root.Sysroot.Repo(), image, nativeimage.ImportOptions{})
		origin = sysroot.ContainerOrigin("ostree-image-signed:oci-archive:/rhcos.ociarchive")
	} else {
		_, err = sysroot.Ostree("pull-local", "--repo="+root.Sysroot.Repo(), "--disable-fsync", l.build.Repo(), commit)
	}
	if err != nil {
		t.Fatal(err)
	}
	h := &host{Root: root, options: sysroot.BootOptions{MachineConfig: &sysroot.MachineConfig{OSImageURL: want}, InsecureRegistries: []string{l.reg.Host, l.away.Addr}}}
	h.deployment, err = root.Sysroot.Deploy(commit, sysroot.DeployOptions{KernelArguments: []string{"root=UUID=6f0e", "rw"}, Origin: origin})
	if err != nil {
		t.Fatal(err)
	}
	h.boots(t)
	return h
}

// A host is a root and the deployment that runs.
type host struct {
	*sysroot.Root
	deployment sysroot.Deployment
	options    sysroot.BootOptions
}

// boots has the host boot its deployment again: another one that was made since has
// changed the links to all.
func (h *host) boots(t testing.TB) {
	t.Helper()
	if err := h.Boot(h.deployment, h.options); err != nil {
		t.Fatal(err)
	}
}

// once runs a program.
func (l *lab) once(t testing.TB, check func(out []byte), name string, args ...string) measure.Cost {
	t.Helper()
	l.reg.ResetRequests()
	cmd := exec.Command(name, args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	c, err := measure.Run(cmd)
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, errs.String())
	}
	if check != nil {
		check([]byte(out.String()))
	}
	c.Requests, c.Bytes = len(l.reg.Requests()), l.reg.Bytes()
	return c
}

// analyze is a run on a host that must skip by a proof.
func (l *lab) analyze(t testing.TB, root, proof string) func() measure.Cost {
	return func() measure.Cost {
		return l.once(t, func(out []byte) {
			var v struct{ Action, Proof, Reason string }
			if err := json.Unmarshal(out, &v); err != nil || v.Action != "skip" || v.Proof != proof {
				t.Fatalf("%+v, %v; want a skip by %s\n%s", v, err, proof, out)
			}
		}, program, "analyze", "-o", "json", "--root", root)
	}
}

// skopeo is a run of it.
func (l *lab) skopeo(t testing.TB, args ...string) func() measure.Cost {
	return func() measure.Cost { return l.once(t, nil, "skopeo", args...) }
}
