//go:build mcd

package mcdlab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/sysroot"
)

// A daemonBuild is a machine-config-daemon that make test-mcd has built.
type daemonBuild struct {
	// release is the OpenShift release that it is of.
	release string
	// file is where it lies, name what it is called in a node.
	file, name string
	// asks: it may ask the registry.
	asks bool
}

// daemons are the builds. The module of test/mcd/4.14 is a commit of the branch
// release-4.14 (a2469941c0dc, October 2023), that of test/mcd/4.20 one from
// which release-4.20 was cut (ab14c8e2843b, July 2025).
func daemons() []daemonBuild {
	return []daemonBuild{
		{"4.14.0", "../../bin/machine-config-daemon", "machine-config-daemon-4.14", false},
		{"4.20.0", "../../bin/machine-config-daemon-4.20", "machine-config-daemon-4.20", false},
	}
}

// A lab has what all nodes share; nothing of it is changed by a test.
type lab struct {
	dir   string
	build *sysroot.Sysroot
	reg   *registry.Registry
	// tools has the daemons and the stand-ins for the programs that they call.
	tools   string
	oneboot string

	// base is the OS that is wanted, older another one.
	base, older osBuild
	// extensions is the extensions image of base.
	extensions string
}

// An osBuild is an OS as a commit and as an image in the registry.
type osBuild struct {
	commit string
	// merge is the commit that a pull of the image leaves.
	merge string
	// url is the image's name by digest, tag its name by tag.
	url, tag string
}

var theLab struct {
	sync.Once
	*lab
	err error
}

func TestMain(m *testing.M) {
	if f, ok := standIns()[filepath.Base(os.Args[0])]; ok {
		// Not a test, but a program that the daemon calls.
		if err := f(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if root := os.Getenv(enterVariable); root != "" {
		fmt.Fprintln(os.Stderr, enter(root))
		os.Exit(1)
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
	return theLab.lab
}

func makeLab() (*lab, error) {
	dir, err := os.MkdirTemp("", "mcdlab-")
	if err != nil {
		return nil, err
	}
	l := &lab{dir: dir, tools: filepath.Join(dir, "tools"), oneboot: filepath.Join(dir, "oneboot")}
	if l.build, err = sysroot.New(filepath.Join(dir, "build")); err != nil {
		return nil, err
	}
	if l.reg, err = registry.Start(registry.Options{Dir: filepath.Join(dir, "registry")}); err != nil {
		return nil, err
	}
	if l.base, err = l.makeBuild("base", sysroot.Tree{}, 1); err != nil {
		return nil, err
	}
	if l.older, err = l.makeBuild("older", sysroot.Tree{Version: "416.94.202409050000-0",
		Files: map[string]sysroot.File{"usr/share/older": {Content: "another build\n"}}}, 0); err != nil {
		return nil, err
	}
	extensions, err := nativeimage.BuildExtensions(filepath.Join(dir, "extensions"), nativeimage.ExtensionsOptions{
		Packages: []nativeimage.RPM{{Name: usbguard.Name, Version: usbguard.Version, Release: usbguard.Release, Arch: usbguard.Arch}}})
	if err != nil {
		return nil, err
	}
	digest, err := l.reg.Push("os/extensions", extensions)
	if err != nil {
		return nil, err
	}
	l.extensions = l.reg.Reference("os/extensions", digest)
	if out, err := exec.Command("go", "build", "-tags", "containers_image_openpgp exclude_graphdriver_btrfs", "-o", l.oneboot, "../../cmd/oneboot").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building oneboot: %w: %s", err, out)
	}
	return l, l.makeTools()
}

// makeBuild builds an OS, so many days after the first.
func (l *lab) makeBuild(name string, tree sysroot.Tree, days int64) (osBuild, error) {
	stamp := sysroot.DefaultTimestamp + days*86400
	withRPMOSTree(&tree, rpmOSTreeVersion)
	commit, err := l.build.CommitTree(tree, sysroot.CommitOptions{Packages: tree.Packages, Timestamp: stamp})
	if err != nil {
		return osBuild{}, err
	}
	image, err := nativeimage.Build(filepath.Join(l.dir, "image-"+name), l.build.Repo(), commit, nativeimage.Options{})
	if err != nil {
		return osBuild{}, err
	}
	digest, err := l.reg.Push("os/"+name, image)
	if err != nil {
		return osBuild{}, err
	}
	merge, err := nativeimage.Import(l.build.Repo(), image, nativeimage.ImportOptions{})
	if err != nil {
		return osBuild{}, err
	}
	return osBuild{commit: commit, merge: merge, url: l.reg.Reference("os/"+name, digest), tag: l.reg.Host + "/os/" + name + ":latest"}, nil
}

// usbguard is the package of the extension of that name.
var usbguard = sysroot.Package{Name: "usbguard", Epoch: "0", Version: "1.0.0", Release: "15.el9", Arch: "x86_64"}

// basePackages are those of every OS here, in that version of rpm-ostree and
// with a skopeo that passes every daemon's gate.
func basePackages(rpmOSTree string) []sysroot.Package {
	list := sysroot.Packages(20, sysroot.DefaultKernel)
	for i, p := range list {
		switch p.Name {
		case "rpm-ostree":
			list[i].Version = rpmOSTree
		case "skopeo":
			list[i].Version = "1.22.2"
		}
	}
	return list
}

// rpmOSTreeVersion is that of a node unless it says otherwise.
const rpmOSTreeVersion = "2024.3"

// versionFile has the version that the stand-in for rpm-ostree prints.
const versionFile = "usr/lib/rpm-ostree-version"

// withRPMOSTree gives a tree that version of rpm-ostree: the package, and what
// the program prints.
func withRPMOSTree(tree *sysroot.Tree, version string) {
	tree.Packages = basePackages(version)
	if tree.Files == nil {
		tree.Files = map[string]sysroot.File{}
	}
	tree.Files[versionFile] = sysroot.File{Content: version}
}

// makeTools makes the folder that is mounted into every node: the daemons, the
// test's binary under the name of each stand-in, and the ostree tool with the
// libraries that it needs.
func (l *lab) makeTools() error {
	if err := os.MkdirAll(filepath.Join(l.tools, libraryDir), 0o755); err != nil {
		return err
	}
	for _, d := range append(daemons(), integrated()) {
		if err := copyProgram(d.file, filepath.Join(l.tools, d.name)); err != nil {
			return fmt.Errorf("%w: make test-mcd builds it", err)
		}
	}
	self := filepath.Join(l.tools, "stand-in")
	if err := copyProgram("/proc/self/exe", self); err != nil {
		return err
	}
	for name := range standIns() {
		if err := os.Link(self, filepath.Join(l.tools, name)); err != nil {
			return err
		}
	}
	tool, err := exec.LookPath("ostree")
	if err != nil {
		return err
	}
	out, err := exec.Command("ldd", tool).Output()
	if err != nil {
		return fmt.Errorf("listing the libraries of %s: %w", tool, err)
	}
	files := []string{tool}
	for word := range strings.FieldsSeq(string(out)) {
		if filepath.IsAbs(word) {
			files = append(files, word)
		}
	}
	for _, f := range files {
		if err := copyProgram(f, filepath.Join(l.tools, libraryDir, filepath.Base(f))); err != nil {
			return err
		}
	}
	return nil
}

func copyProgram(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}
