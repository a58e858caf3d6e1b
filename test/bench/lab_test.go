package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
	firstInspect func() cost
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
func (l *lab) node(t testing.TB, image *nativeimage.Image, commit, want string, arguments ...string) *sysroot.Root {
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
	d, err := root.Sysroot.Deploy(commit, sysroot.DeployOptions{KernelArguments: append([]string{"root=UUID=6f0e", "rw"}, arguments...), Origin: origin})
	if err == nil {
		err = root.Boot(d, sysroot.BootOptions{MachineConfig: &sysroot.MachineConfig{OSImageURL: want}, InsecureRegistries: []string{l.reg.Host, l.away.Addr}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// A cost is what a program took.
type cost struct {
	wall, processor time.Duration
	kib             int64
	requests        int
	bytes           int64
}

// run runs a program several times, and returns the cost of the one in the middle by
// its time.
func (l *lab) run(t testing.TB, times int, check func(out []byte), name string, args ...string) cost {
	t.Helper()
	var all []cost
	for range times {
		all = append(all, l.once(t, check, name, args...))
	}
	return middle(all)
}

func (l *lab) once(t testing.TB, check func(out []byte), name string, args ...string) cost {
	t.Helper()
	l.reg.ResetRequests()
	cmd := exec.Command(name, args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	kib, err := measure.Peak(cmd)
	wall := time.Since(began)
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, errs.String())
	}
	if check != nil {
		check([]byte(out.String()))
	}
	return cost{wall, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), kib, len(l.reg.Requests()), l.reg.Bytes()}
}

func middle(all []cost) cost {
	slices.SortFunc(all, func(a, b cost) int { return int(a.wall - b.wall) })
	return all[len(all)/2]
}

// beside runs two programs in turns, so that what else goes on meets both.
func (l *lab) beside(t testing.TB, times int, ours, theirs func() cost) (a, b cost) {
	t.Helper()
	var as, bs []cost
	for range times {
		as, bs = append(as, ours()), append(bs, theirs())
	}
	return middle(as), middle(bs)
}

// analyze is a run on a host that must skip by a proof.
func (l *lab) analyze(t testing.TB, root, proof string) func() cost {
	return func() cost {
		return l.once(t, func(out []byte) {
			var v struct{ Action, Proof, Reason string }
			if err := json.Unmarshal(out, &v); err != nil || v.Action != "skip" || v.Proof != proof {
				t.Fatalf("%+v, %v; want a skip by %s", v, err, proof)
			}
		}, program, "analyze", "-o", "json", "--root", root)
	}
}

// skopeo is a run of it.
func (l *lab) skopeo(t testing.TB, args ...string) func() cost {
	return func() cost { return l.once(t, nil, "skopeo", args...) }
}

func (c cost) String() string {
	return fmt.Sprintf("%.3f s, %d requests, %.0f kB, %.2f s CPU, %.0f MiB", c.wall.Seconds(), c.requests, float64(c.bytes)/1000, c.processor.Seconds(), float64(c.kib)/1024)
}

// ratio is how often a fits into b.
func ratio(a, b cost) float64 { return float64(b.wall) / float64(a.wall) }
