// Command demo shows the program at work on real parts: sysroots made by
// ostree, images built from real commits and a real registry on the loopback
// interface. It needs root and the ostree tool; it cleans up behind itself.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/sysroot"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: demo PROGRAM")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "demo: "+err.Error())
		os.Exit(1)
	}
}

// A scene is one node.
type scene struct {
	title  string
	image  *nativeimage.Image // what osImageURL names
	booted *nativeimage.Image // deployed from a container image; nil for a plain commit
}

// A stage holds what the scenes share.
type stage struct {
	dir, program, commit string
	build                *sysroot.Sysroot
	reg                  *registry.Registry
}

func run(program string) (err error) {
	program, err = filepath.Abs(program)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "oneboot-demo-")
	if err != nil {
		return err
	}
	defer func() {
		if rerr := sysroot.Remove(dir); err == nil {
			err = rerr
		}
	}()
	s := &stage{dir: dir, program: program}
	if s.build, err = sysroot.New(filepath.Join(dir, "build")); err != nil {
		return err
	}
	tree := sysroot.Tree{FillerBytes: 8 << 20}
	tree.Packages = sysroot.Packages(500, tree.Kernel())
	if s.commit, err = s.build.CommitTree(tree, sysroot.CommitOptions{Packages: tree.Packages}); err != nil {
		return err
	}
	base, err := nativeimage.Build(dir, s.build.Repo(), s.commit, nativeimage.Options{})
	if err != nil {
		return err
	}
	derived, err := nativeimage.Derive(dir, base, nil, nativeimage.DerivedLayer{
		Files: map[string]sysroot.File{"usr/bin/oc": {Content: "a layer on top of the base\n", Mode: 0o755}}})
	if err != nil {
		return err
	}
	if s.reg, err = registry.Start(registry.Options{Dir: filepath.Join(dir, "registry")}); err != nil {
		return err
	}
	defer s.reg.Close()
	for i, sc := range []scene{
		{title: "The disk holds the very ostree commit that is inside the image", image: base},
		{title: "The node image inherits that commit's label, but adds a layer to it", image: derived},
		{title: "The disk was written from that node image: no registry is asked", image: derived, booted: derived},
	} {
		if err := s.play(i+1, sc); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) play(number int, sc scene) error {
	digest, err := s.reg.Push("example/os", sc.image)
	if err != nil {
		return err
	}
	root, err := sysroot.NewRoot(filepath.Join(s.dir, fmt.Sprintf("node%d", number)))
	if err != nil {
		return err
	}
	url := s.reg.Reference("example/os", digest)
	commit, origin := s.commit, ""
	if sc.booted != nil {
		if commit, err = nativeimage.Import(root.Sysroot.Repo(), sc.booted, nativeimage.ImportOptions{PullSpec: url}); err != nil {
			return err
		}
		origin = sysroot.ContainerOrigin("ostree-unverified-registry:" + url)
	} else if _, err := sysroot.Ostree("pull-local", "--repo="+root.Sysroot.Repo(), s.build.Repo(), commit); err != nil {
		return err
	}
	d, err := root.Sysroot.Deploy(commit, sysroot.DeployOptions{
		KernelArguments: []string{"root=LABEL=root", "rw", "$ignition_firstboot"}, Origin: origin})
	if err != nil {
		return err
	}
	if err := root.Boot(d, sysroot.BootOptions{MachineConfig: &sysroot.MachineConfig{OSImageURL: url},
		InsecureRegistries: []string{s.reg.Host}}); err != nil {
		return err
	}
	fmt.Printf("\n=== %d. %s\n$ oneboot analyze --root %s\n", number, sc.title, filepath.Base(root.Dir))
	s.reg.ResetRequests()
	cmd := exec.Command(s.program, "analyze", "--root", root.Dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %s: %w", strings.Join(cmd.Args, " "), err)
	}
	fmt.Printf("(%d registry requests)\n", len(s.reg.Requests()))
	return nil
}
