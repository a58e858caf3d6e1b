package act

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// program is the program as it is shipped.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "act-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "oneboot")
	cmd := exec.Command("go", "build", "-tags", "containers_image_openpgp exclude_graphdriver_btrfs", "-o", bin, "../../cmd/oneboot")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building: %w: %s", err, out)
	}
	return bin, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if bin, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}

func must[T any](t testing.TB) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const imageName = "quay.io/openshift-release-dev/ocp-v4.0-art-dev"

// A node has booted the very image that it wants, and has every file that an
// act changes, each with attributes of its own.
type node struct {
	*sysroot.Root
	t      testing.TB
	origin string // below the root
	image  string
}

// Paths that an act changes beside the origin.
const (
	kubeconfig   = "etc/kubernetes/kubeconfig"
	annotations  = "etc/machine-config-daemon/node-annotations.json"
	firstRepo    = "etc/yum.repos.d/a.repo"
	secondRepo   = "etc/yum.repos.d/b.repo"
	encapsulated = sysroot.MachineConfigPath
	stateDir     = "var/lib/oneboot"
)

// newNode makes a node in memory, where a sync costs nothing.
func newNode(t testing.TB) *node {
	t.Helper()
	dir := must[string](t)(os.MkdirTemp("/dev/shm", "act-"))
	t.Cleanup(func() { check(t, sysroot.Remove(dir)) })
	return newNodeIn(t, filepath.Join(dir, "root"), "")
}

// newNodeIn makes a node in dir; an origin that is not empty takes the place of
// the one that a disk image has.
func newNodeIn(t testing.TB, dir, origin string) *node {
	t.Helper()
	root := must[*sysroot.Root](t)(sysroot.NewRoot(dir))
	commit := must[string](t)(root.Sysroot.CommitTree(sysroot.Tree{}, sysroot.CommitOptions{}))
	build := filepath.Join(dir, "build")
	image := must[*nativeimage.Image](t)(nativeimage.Build(build, root.Sysroot.Repo(), commit, nativeimage.Options{}))
	merge := must[string](t)(nativeimage.Import(root.Sysroot.Repo(), image, nativeimage.ImportOptions{}))
	check(t, os.RemoveAll(build))
	if origin == "" {
		origin = "# kept\n[origin]\ncontainer-image-reference=ostree-image-signed:oci-archive:/rhcos.ociarchive\n\n[libostree-transient]\npinned=true\n"
	}
	d := must[sysroot.Deployment](t)(root.Sysroot.Deploy(merge, sysroot.DeployOptions{
		KernelArguments: []string{"root=UUID=6f0e", "rw"}, Origin: origin}))
	n := &node{Root: root, t: t, image: imageName + "@" + image.Digest}
	mc := sysroot.MachineConfig{OSImageURL: n.image}
	check(t, root.Boot(d, sysroot.BootOptions{MachineConfig: &mc}))
	n.origin = must[string](t)(filepath.Rel(dir, d.OriginFile()))
	for name, text := range map[string]string{
		kubeconfig: "secret\n", firstRepo: "[a]\nenabled=1\n", secondRepo: "[b]\nenabled=0\n\n[c]\nenabled=1\n",
		annotations: `{"machineconfiguration.openshift.io/state":"Done"}`, "etc/yum.repos.d/off.repo": "[d]\nenabled=0\n",
		"etc/yum.repos.d/not-a-repo": "enabled=1\n",
	} {
		check(t, n.WriteFile(name, text))
	}
	n.attributes()
	return n
}

// attributes gives the files owners, modes, labels and times of their own.
func (n *node) attributes() {
	n.t.Helper()
	old := time.Date(2024, 2, 3, 4, 5, 6, 7000, time.UTC)
	for i, f := range []struct {
		name     string
		uid, gid int
		mode     os.FileMode
		label    string
	}{
		{n.origin, 0, 7, 0o640, "system_u:object_r:root_t:s0"},
		{annotations, 0, 0, 0o644, "system_u:object_r:etc_t:s0"},
		{firstRepo, 5, 6, 0o664 | os.ModeSetgid, "system_u:object_r:system_conf_t:s0"},
		{secondRepo, 0, 0, 0o600, "system_u:object_r:system_conf_t:s0"},
		{kubeconfig, 0, 0, 0o644, "system_u:object_r:kubernetes_file_t:s0"},
		{encapsulated, 0, 0, 0o644, "system_u:object_r:etc_t:s0"},
	} {
		p := n.Path(f.name)
		check(n.t, os.Chown(p, f.uid, f.gid))
		check(n.t, os.Chmod(p, f.mode))
		check(n.t, unix.Setxattr(p, "security.selinux", append([]byte(f.label), 0), 0))
		check(n.t, unix.Setxattr(p, "trusted.test", fmt.Appendf(nil, "%d", i), 0))
		check(n.t, os.Chtimes(p, old, old.Add(time.Duration(i)*time.Second)))
	}
}

// A file is everything about a file but its inode and change time.
type file struct {
	Mode     uint32
	UID, GID uint32
	ModTime  int64 // of regular files
	Content  string
	XAttrs   map[string]string
}

// snapshot looks at all of the root but what the kernel and oneboot keep there
// and ostree's own objects.
func (n *node) snapshot() map[string]file {
	n.t.Helper()
	out := map[string]file{}
	skip := map[string]bool{"proc": true, "sysroot/ostree/repo": true, "usr": true,
		filepath.Join(filepath.Dir(filepath.Dir(n.origin)), stateDir): true, "sysroot/ostree/deploy/rhcos/var/lib/oneboot": true}
	check(n.t, filepath.WalkDir(n.Dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := must[string](n.t)(filepath.Rel(n.Dir, p))
		if skip[name] || strings.HasSuffix(filepath.Dir(name), "/rhcos/deploy") && e.IsDir() {
			return fs.SkipDir
		}
		out[name] = n.look(p)
		return nil
	}))
	// What oneboot has made for itself.
	delete(out, "sysroot/ostree/deploy/rhcos/var/lib")
	return out
}

func (n *node) look(p string) file {
	n.t.Helper()
	var st unix.Stat_t
	check(n.t, unix.Lstat(p, &st))
	f := file{Mode: st.Mode, UID: st.Uid, GID: st.Gid}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		f.Content = must[string](n.t)(os.Readlink(p))
		return f
	case unix.S_IFREG:
		f.Content, f.ModTime = string(must[[]byte](n.t)(os.ReadFile(p))), st.Mtim.Nano()
	}
	f.XAttrs = map[string]string{}
	buf := make([]byte, 64<<10)
	size := must[int](n.t)(unix.Llistxattr(p, buf))
	for name := range strings.SplitSeq(strings.TrimSuffix(string(buf[:size]), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		value := make([]byte, 4096)
		f.XAttrs[name] = string(value[:must[int](n.t)(unix.Lgetxattr(p, name, value))])
	}
	return f
}

// same compares the root with a snapshot.
func (n *node) same(what string, want map[string]file) {
	n.t.Helper()
	if d := cmp.Diff(n.snapshot(), want); d != "" {
		n.t.Fatalf("%s: not as before (-got +want):\n%s", what, d)
	}
}

// acted is what the root looks like after an act in this mode. Times of changed
// files are of then: they are taken from got.
func (n *node) acted(before, got map[string]file, mode string) map[string]file {
	want := maps.Clone(before)
	edit := func(name string, change func(string) string) {
		f := want[name]
		f.Content, f.ModTime = change(f.Content), got[name].ModTime
		want[name] = f
	}
	edit(n.origin, func(s string) string {
		return strings.Replace(s, "ostree-image-signed:oci-archive:/rhcos.ociarchive", "ostree-unverified-registry:"+n.image, 1)
	})
	edit(annotations, func(s string) string {
		checksum, _, _ := strings.Cut(filepath.Base(n.origin), ".")
		_, digest, _ := strings.Cut(n.image, "@")
		return strings.TrimSuffix(s, "}") + fmt.Sprintf(`,"oneboot.dev/action":"skip","oneboot.dev/proof":"manifest-digest","oneboot.dev/mode":%q,`+
			`"oneboot.dev/deployment":%q,"oneboot.dev/target":%q}`, mode, checksum, digest)
	})
	if mode != "complete" {
		return want
	}
	for _, name := range []string{firstRepo, secondRepo} {
		edit(name, func(s string) string { return strings.ReplaceAll(s, "enabled=1", "enabled=0") })
	}
	f := want[kubeconfig]
	f.Mode = f.Mode&^0o777 | 0o600
	want[kubeconfig] = f
	want[encapsulated+".bak"] = want[encapsulated]
	delete(want, encapsulated)
	return want
}

// whole holds that every file is as before, or as after the act, and that there
// is no other.
func (n *node) whole(what string, before map[string]file, mode string) {
	n.t.Helper()
	got := n.snapshot()
	after := n.acted(before, got, mode)
	for name, f := range got {
		old, wasThere := before[name]
		now, isThere := after[name]
		switch {
		case wasThere && cmp.Equal(f, old), isThere && cmp.Equal(f, now):
		case !wasThere && !isThere && strings.HasSuffix(name, ".oneboot-tmp"):
			// What a killed run leaves beside a file is the next run's to remove.
		default:
			n.t.Fatalf("%s: %s is neither as before nor as after: %+v", what, name, f)
		}
	}
	for name := range before {
		if _, ok := got[name]; !ok && name != encapsulated {
			n.t.Fatalf("%s: %s is gone", what, name)
		}
	}
}

// forget removes what oneboot keeps for itself.
func (n *node) forget() {
	n.t.Helper()
	check(n.t, os.RemoveAll(n.Path(stateDir)))
}

// An outcome is how a run ended.
type outcome struct {
	status         int // -1 where it was killed
	stdout, stderr string
}

// run runs the program on the node, below strace where flags are given.
func (n *node) run(strace []string, args ...string) outcome {
	n.t.Helper()
	bin := must[string](n.t)(program())
	line := append([]string{bin}, args...)
	line = append(line, "--root", n.Dir)
	if len(strace) > 0 {
		line = append(append([]string{"strace", "-f", "-qq"}, strace...), line...)
	}
	cmd := exec.Command(line[0], line[1:]...)
	// A killed run leaves its private copies there.
	temp := must[string](n.t)(os.MkdirTemp("", "act-"))
	defer os.RemoveAll(temp)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	out := outcome{stdout: stdout.String(), stderr: stderr.String()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		out.status = exit.ExitCode()
	case err != nil:
		n.t.Fatal(err)
	}
	return out
}

// firstboot runs to the end, and has a verdict written.
func (n *node) firstboot(mode string) *record.Record {
	n.t.Helper()
	out := n.run(nil, "firstboot", "--mode", mode)
	if out.status != 0 {
		n.t.Fatalf("firstboot --mode %s: exit status %d: %s", mode, out.status, out.stderr)
	}
	return n.record()
}

// done: the journal says that an act is done.
func (n *node) done() bool {
	raw, err := os.ReadFile(n.Path(stateDir + "/act.json"))
	return err == nil && bytes.Contains(raw, []byte(`"state":"done"`))
}

func (n *node) record() *record.Record {
	n.t.Helper()
	raw := must[[]byte](n.t)(os.ReadFile(n.Path(stateDir + "/firstboot.json")))
	return must[*record.Record](n.t)(record.Parse(raw))
}

func (n *node) revert(args ...string) outcome {
	n.t.Helper()
	out := n.run(nil, append([]string{"revert"}, args...)...)
	if out.status != 0 {
		n.t.Fatalf("revert: exit status %d: %s", out.status, out.stderr)
	}
	return out
}

func (n *node) sameAs(what string, got, want map[string]file) {
	n.t.Helper()
	if d := cmp.Diff(got, want); d != "" {
		n.t.Fatalf("%s (-got +want):\n%s", what, d)
	}
}
