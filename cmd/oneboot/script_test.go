package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

func TestMain(m *testing.M) {
	program := func() { os.Exit(run(os.Args)) }
	testscript.Main(m, map[string]func(){"oneboot": program, "oc-oneboot": program, "kubectl-oneboot": program})
}

// TestScripts runs the program as its callers do. -update rewrites the outputs
// that the scripts hold.
func TestScripts(t *testing.T) {
	t.Cleanup(func() {
		if err := nodeParts.remove(); err != nil {
			t.Error(err)
		}
	})
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Defer(func() {
				if err := sysroot.Unlock(e.WorkDir); err != nil {
					e.T().Log(err)
				}
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": scriptStatus, "node": scriptNode, "normal": scriptNormal, "columns": scriptColumns,
			"disagree": scriptDisagree, "disk": scriptDisk, "cut": scriptCut, "hold": scriptHold,
			"serve": scriptServe, "release": scriptRelease, "image": scriptImage,
		},
	})
}

var update = flag.Bool("update", false, "rewrite the expected outputs in the scripts")

// scriptStatus is "status N program args...": the exit status must be N.
func scriptStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N program args...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("running %s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("got exit status %d, want %d", got, want)
	}
}

// scriptColumns is "columns FILE N": no line is longer than N characters.
func scriptColumns(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: columns FILE N")
	}
	most, err := strconv.Atoi(args[1])
	ts.Check(err)
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > most {
			ts.Fatalf("%d columns: %s", n, line)
		}
	}
}

var digest = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// scriptNormal is "normal FROM TO": it copies an output with the digests made
// the same on all machines, each of them a letter of the same length, so that
// equal ones and the layout still show.
func scriptNormal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: normal FROM TO")
	}
	text, letter := ts.ReadFile(args[0]), 'a'
	for {
		found := digest.FindString(text)
		if found == "" {
			break
		}
		// Upper case is no digest: it is not found again.
		text = strings.ReplaceAll(text, found, strings.Repeat(strings.ToUpper(string(letter)), len(found)))
		text = strings.ReplaceAll(text, found[:12], strings.Repeat(strings.ToUpper(string(letter)), 12))
		letter++
	}
	text = strings.ReplaceAll(text, runtime.GOARCH, "amd64")
	text = strings.ReplaceAll(text, ts.Getenv("WORK"), "$WORK")
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o644))
}

// scriptDisagree is "disagree FROM TO": it copies an rpm-ostree status with a
// package more.
func scriptDisagree(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: disagree FROM TO")
	}
	text := strings.Replace(ts.ReadFile(args[0]), `"requested-packages": []`, `"requested-packages": ["vim"]`, 1)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o644))
}

// scriptCut is "cut N FROM TO": it copies the first N bytes of a file.
func scriptCut(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: cut N FROM TO")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	text := ts.ReadFile(args[1])
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(text[:min(n, len(text))]), 0o644))
}

// scriptHold is "hold PIPE": it waits for a reader of the pipe, and gives it
// nothing to read.
func scriptHold(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hold PIPE")
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			ts.Defer(func() { f.Close() })
			return
		}
		if !errors.Is(err, syscall.ENXIO) || time.Now().After(end) {
			ts.Fatalf("%v", err)
		}
	}
}

// scriptNode is "node KIND DIR": it makes the root of a booted node in DIR,
// puts what rpm-ostree says of it into DIR.status.json and sets $IMAGE to the
// pull spec that its MachineConfig wants. The kinds:
//
//	skip       runs the very image that it wants
//	kargs      the same, but it wants a kernel argument more
//	other      the same, but it wants another image
//	fips       the same, but what the kernel says of FIPS is garbage
//	joined     the same, and it has joined its cluster already
//	unreachable  it wants another image of a registry that is not there
func scriptNode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: node KIND DIR")
	}
	image, err := makeNode(args[0], ts.MkAbs(args[1]))
	ts.Check(err)
	ts.Setenv("IMAGE", image)
}

// parts are what all nodes have in common; making them takes a second.
type parts struct {
	sync.Once
	dir   string
	image *nativeimage.Image
	err   error
}

var nodeParts parts

func (p *parts) get() (*nativeimage.Image, error) {
	p.Do(func() { p.err = p.make() })
	return p.image, p.err
}

func (p *parts) make() error {
	var err error
	if p.dir, err = os.MkdirTemp("", "script-"); err != nil {
		return err
	}
	build, err := sysroot.New(filepath.Join(p.dir, "build"))
	if err != nil {
		return err
	}
	commit, err := build.CommitTree(sysroot.Tree{}, sysroot.CommitOptions{})
	if err != nil {
		return err
	}
	p.image, err = nativeimage.Build(filepath.Join(p.dir, "image"), build.Repo(), commit, nativeimage.Options{})
	return err
}

func (p *parts) remove() error {
	if p.dir == "" {
		return nil
	}
	return sysroot.Remove(p.dir)
}

func makeNode(kind, dir string) (image string, err error) {
	made, err := nodeParts.get()
	if err != nil {
		return "", err
	}
	root, err := sysroot.NewRoot(dir)
	if err != nil {
		return "", err
	}
	commit, err := nativeimage.Import(root.Sysroot.Repo(), made, nativeimage.ImportOptions{})
	if err != nil {
		return "", err
	}
	d, err := root.Sysroot.Deploy(commit, sysroot.DeployOptions{
		KernelArguments: []string{"root=UUID=6f0e", "rw", "$ignition_firstboot"},
		Origin:          sysroot.ContainerOrigin("ostree-image-signed:oci-archive:/rhcos.ociarchive"),
	})
	if err != nil {
		return "", err
	}
	digest := made.Digest
	mc := sysroot.MachineConfig{}
	switch kind {
	case "skip", "fips", "joined", "unreachable":
	case "kargs":
		mc.KernelArguments = []string{"nosmt"}
	case "other":
		digest = "sha256:" + strings.Repeat("5", 64)
	default:
		return "", fmt.Errorf("no kind of node %q", kind)
	}
	mc.OSImageURL = "quay.io/openshift-release-dev/ocp-v4.0-art-dev@" + digest
	if kind == "unreachable" {
		mc.OSImageURL = "localhost:1/os@sha256:" + strings.Repeat("5", 64)
	}
	if err := root.Boot(d, sysroot.BootOptions{MachineConfig: &mc}); err != nil {
		return "", err
	}
	status, err := d.Status(nil)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(dir+".status.json", []byte(status), 0o644); err != nil {
		return "", err
	}
	switch kind {
	case "fips":
		err = root.WriteFile(sysroot.FIPSPath, "maybe\n")
	case "joined":
		const file = "/etc/ignition-machine-config-encapsulated.json"
		err = os.Rename(dir+file, dir+file+".bak")
	}
	return mc.OSImageURL, err
}
