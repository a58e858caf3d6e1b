package units

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// A node is a machine that boots a real ostree deployment, with its disk
// read-only at /sysroot, and has the built program.
type node struct {
	*machine
	deployment sysroot.Deployment
	image      string
	physical   string
}

// newNode runs the very image that its MachineConfig wants.
func newNode(t *testing.T, unit string) *node {
	t.Helper()
	dir := sysroot.TempDir(t)
	side := filepath.Join(dir, "node")
	n := &node{physical: side + ".physical"}
	disk, err := sysroot.New(n.physical)
	if err != nil {
		t.Fatal(err)
	}
	// systemd wants links at the root that an OS has.
	commit, err := disk.CommitTree(sysroot.Tree{Files: map[string]sysroot.File{
		"sbin":  {Link: "usr/sbin"},
		"lib64": {Link: "usr/lib64"},
	}}, sysroot.CommitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made, err := nativeimage.Build(filepath.Join(dir, "image"), disk.Repo(), commit, nativeimage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if commit, err = nativeimage.Import(disk.Repo(), made, nativeimage.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	n.deployment, err = disk.Deploy(commit, sysroot.DeployOptions{
		KernelArguments: []string{"root=UUID=6f0e", "rw"},
		Origin:          sysroot.ContainerOrigin("ostree-image-signed:oci-archive:/rhcos.ociarchive"),
	})
	if err != nil {
		t.Fatal(err)
	}
	n.image = "quay.io/openshift-release-dev/ocp-v4.0-art-dev@" + made.Digest
	n.machine = newMachineAt(t, n.deployment.Dir, side, unit)
	n.hostFiles()
	return n
}

// hostFiles are what Ignition and the kernel leave on the first boot.
func (n *node) hostFiles() {
	n.t.Helper()
	mc := sysroot.MachineConfig{OSImageURL: n.image}
	text, err := mc.JSON()
	if err != nil {
		n.t.Fatal(err)
	}
	n.write("etc/ignition-machine-config-encapsulated.json", text)
	n.write("etc/containers/policy.json", `{"default":[{"type":"insecureAcceptAnything"}]}`)
	n.write("etc/yum.repos.d/fedora.repo", "[fedora]\nenabled=1\n")
	n.write("etc/kubernetes/kubeconfig", "{}\n")
	_, entry, err := n.deployment.BootEntry()
	if err != nil {
		n.t.Fatal(err)
	}
	kernel, err := n.deployment.Kernel()
	if err != nil {
		n.t.Fatal(err)
	}
	n.write("etc/kernel/cmdline", entry["options"]+"\n")
	n.write("etc/kernel/osrelease", kernel+"\n")
	// Not by mounts of the machine's: the unit gets a /proc of its own.
	n.dropIn(`[Service]
BindReadOnlyPaths=/etc/kernel/cmdline:/proc/cmdline
BindReadOnlyPaths=/etc/kernel/osrelease:/proc/sys/kernel/osrelease
`)
}

func program(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "oneboot")
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "containers_image_openpgp exclude_graphdriver_btrfs", "-ldflags", "-s -w", "-o", binary, "../../cmd/oneboot")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// give puts the program where the unit starts it.
func (n *node) give(binary string) {
	n.t.Helper()
	to := n.side + ".usr/bin/oneboot"
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Link(binary, to); err != nil {
		content, rerr := os.ReadFile(binary)
		if rerr != nil {
			n.t.Fatal(rerr)
		}
		n.file(to, string(content), 0o755)
	}
}

// record is what the run has left below /var/lib/oneboot.
func (n *node) record() map[string]any {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join(n.physical, "ostree/deploy/rhcos/var/lib/oneboot/firstboot.json"))
	if err != nil {
		n.t.Fatal(err)
	}
	var r map[string]any
	if err := json.Unmarshal(text, &r); err != nil {
		n.t.Fatal(err)
	}
	return r
}

// bareUnit starts the same with nothing forbidden.
const bareUnit = `[Unit]
Before=machine-config-daemon-pull.service firstboot-osupdate.target
[Service]
Type=oneshot
Environment=ONEBOOT_MODE=assert
EnvironmentFile=-/etc/oneboot/firstboot.env
ExecStart=-/usr/bin/oneboot firstboot --mode ${ONEBOOT_MODE}
StandardOutput=journal+console
StandardError=journal+console
[Install]
WantedBy=firstboot-osupdate.target
`

// The built program, started by either form of the unit on a real sysroot.
func TestProgram(t *testing.T) {
	binary := program(t)
	t.Run("shut in", func(t *testing.T) { t.Parallel(); shutIn(t, binary) })
	t.Run("engine", func(t *testing.T) { t.Parallel(); engine(t, binary) })
}

// The shipped unit shuts the program in, and it can do all that it must: it
// sees what it sees without, and acts on a disk that is read-only for everybody
// else.
func shutIn(t *testing.T, binary string) {
	for _, mode := range []string{"report", "assert", "complete"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			verdict, act := onNode(t, shippedUnit(t), binary, mode)
			if mode == "complete" {
				// A completed first boot waits for the clock: once is enough.
				return
			}
			if v, a := onNode(t, bareUnit, binary, mode); v != verdict || a != act {
				t.Errorf("bare:\n%s\n%s\nshut in:\n%s\n%s", v, a, verdict, act)
			}
		})
	}
}

// onNode boots a node with the unit and returns verdict and act of the record.
func onNode(t *testing.T, unit, binary, mode string) (verdict, act string) {
	t.Helper()
	n := newNode(t, unit)
	n.give(binary)
	n.write("etc/oneboot/firstboot.env", "ONEBOOT_MODE="+mode+"\n")
	b := n.boot()
	b.before(t, kubelet)
	n.check(mode, b)
	r := n.record()
	return compact(t, r["verdict"]), compact(t, r["act"])
}

// check looks at what the run has said and what the mode has changed, and that
// the disk is read-only still where it was.
func (n *node) check(mode string, b boot) {
	n.t.Helper()
	r := n.record()
	verdict, _ := r["verdict"].(map[string]any)
	act, _ := r["act"].(map[string]any)
	want := "done"
	if mode == "report" {
		want = "none"
	}
	if verdict["action"] != "skip" || act["state"] != want || b.failed != "" {
		n.t.Fatalf("got %v, failed units %q\n%s", r, b.failed, b.console)
	}
	if !strings.Contains(b.console, "SKIP: ") {
		n.t.Errorf("no verdict on the console:\n%s", b.console)
	}
	origin, err := os.ReadFile(n.deployment.Dir + ".origin")
	if err != nil {
		n.t.Fatal(err)
	}
	names := strings.Contains(string(origin), "container-image-reference=ostree-unverified-registry:"+n.image+"\n")
	if names != (mode != "report") {
		n.t.Errorf("origin: %s\n%s", origin, b.console)
	}
	_, err = os.Stat(filepath.Join(n.root, "etc/ignition-machine-config-encapsulated.json"))
	if completed := errors.Is(err, os.ErrNotExist); completed != (mode == "complete") || b.ran("machine-config-daemon-firstboot") == completed {
		n.t.Errorf("encapsulated file: %v; ran %v", err, b.order)
	}
	mounts, err := os.ReadFile(filepath.Join(n.root, "etc/report/mounts"))
	if err != nil {
		n.t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^\S+ /sysroot \S+ ro,`).Match(mounts) {
		n.t.Errorf("/sysroot is not read-only: %s", mounts)
	}
}

func compact(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
