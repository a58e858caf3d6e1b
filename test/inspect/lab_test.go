package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
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

// program is oneboot.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "inspect-")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "oneboot")
	if out, err := exec.Command("go", "build", "-tags", "containers_image_openpgp,exclude_graphdriver_btrfs", "-o", program, "../../cmd/oneboot").CombinedOutput(); err != nil {
		panic(string(out))
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// A lab is a registry, and a root that knows how to read from it.
type lab struct {
	reg   *registry.Registry
	build *sysroot.Sysroot
	dir   string
	root  string
	auth  string
}

func newLab(t testing.TB) *lab {
	t.Helper()
	dir := sysroot.TempDir(t)
	l := &lab{dir: dir, root: filepath.Join(dir, "root"), auth: filepath.Join(dir, "auth.json")}
	var err error
	if l.reg, err = registry.Start(registry.Options{TLS: true, Username: "kim", Password: "secret", Dir: filepath.Join(dir, "registry")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.reg.Close() })
	if l.build, err = sysroot.New(filepath.Join(dir, "build")); err != nil {
		t.Fatal(err)
	}
	l.configure(t)
	return l
}

// configure has the root know the registry.
func (l *lab) configure(t testing.TB) {
	t.Helper()
	write(t, filepath.Join(l.root, "etc/containers/certs.d", l.reg.Host, "ca.crt"), l.reg.CA)
	write(t, filepath.Join(l.root, "etc/containers/policy.json"), []byte(`{"default":[{"type":"insecureAcceptAnything"}]}`))
	write(t, l.auth, []byte(`{"auths":{"`+l.reg.Host+`":{"auth":"a2ltOnNlY3JldA=="}}}`))
}

func write(t testing.TB, name string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// image builds the image of a tree's commit.
func (l *lab) image(t testing.TB, tree sysroot.Tree, commit sysroot.CommitOptions, opts nativeimage.Options) *nativeimage.Image {
	t.Helper()
	c, err := l.build.CommitTree(tree, commit)
	if err != nil {
		t.Fatal(err)
	}
	m, err := nativeimage.Build(t.TempDir(), l.build.Repo(), c, opts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func derive(t testing.TB, base *nativeimage.Image, labels map[string]string, layers ...nativeimage.DerivedLayer) *nativeimage.Image {
	t.Helper()
	m, err := nativeimage.Derive(t.TempDir(), base, labels, layers...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (l *lab) push(t testing.TB, name string, m *nativeimage.Image) string {
	t.Helper()
	d, err := l.reg.Push(name, m)
	if err != nil {
		t.Fatal(err)
	}
	l.reg.ResetRequests()
	return l.reg.Reference(name, d)
}

// run runs the program and returns its exit status.
func (l *lab) run(t testing.TB, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	stdout, stderr, status, _ = l.measure(t, args...)
	return stdout, stderr, status
}

// measure is run that also says how much memory was needed at most, in KiB.
func (l *lab) measure(t testing.TB, args ...string) (stdout, stderr string, status int, peak int64) {
	t.Helper()
	cmd := exec.Command(program, append(args, "--root", l.root, "--authfile", l.auth)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	peak, err := measure.Peak(cmd)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode(), peak
}

// A document is what inspect prints, as a program that knows nothing of ours
// reads it.
type document struct {
	Release string
	OS      struct {
		Kind, Architecture, PackagesSource, PackagesUnknown string
		Facts                                               map[string]fact
		Packages                                            []struct{ Name, EVRA string }
	}
	Extensions struct {
		Shipped  map[string][]struct{ Name, EVRA string }
		Missing  []string
		Unknown  string
		Packages []struct{ Name, EVRA string }
	}
	DriverToolkit struct{ Kernel, SameKernel, Unknown string }
	Requests      int
	Bytes         int64
}

type fact struct {
	Value, Source, Unknown string
	Absent                 bool
}

func (l *lab) inspect(t testing.TB, args ...string) document {
	t.Helper()
	out, errs, status := l.run(t, append([]string{"inspect", "-o", "json"}, args...)...)
	if status != 0 || errs != "" {
		t.Fatalf("exit status %d: %s", status, errs)
	}
	var d document
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// rpm is what rpm says is installed below a root: name and [epoch:]version-release.arch.
func rpm(t testing.TB, packages []sysroot.Package) map[string]string {
	t.Helper()
	root := t.TempDir()
	db, err := sysroot.RPMDatabase(packages)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "db/rpmdb.sqlite"), []byte(db))
	out, err := exec.Command("rpm", "--root", root, "--dbpath", "/db", "-qa", "--qf", "%{name} %|epoch?{%{epoch}:}|%{version}-%{release}.%{arch}\n").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, evra, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[name] = strings.TrimPrefix(evra, "0:")
	}
	if len(all) == 0 {
		t.Fatal("rpm knows no packages")
	}
	return all
}
