package units

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/test/registry"
)

// The whole delivery: the image as `make image` makes it, in a registry that
// asks for the kubelet's credentials, and the MachineConfig's unit, run by a
// real podman on a node whose disk is read-only.
func engine(t *testing.T, binary string) {
	reg, err := registry.Start(registry.Options{Username: "core", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := reg.Close(); err != nil {
			t.Error(err)
		}
	})
	image := pushImage(t, reg, "oneboot", binary)
	for _, mode := range []string{"report", "assert", "complete"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			n := newEngineNode(t, reg.Host, image, mode)
			b := n.boot()
			b.before(t, kubelet)
			n.check(mode, b)
		})
	}
	t.Run("deaf", func(t *testing.T) {
		t.Parallel()
		deafImage(t, reg)
	})
	t.Run("on call", func(t *testing.T) {
		t.Parallel()
		n := newEngineNode(t, reg.Host, image, "assert")
		before := n.read(n.deployment.Dir + ".origin")
		n.program("oncall", onCall(t)+`
oneboot show >/etc/report/shown 2>&1
oneboot revert >/etc/report/reverted 2>&1
oneboot collect --file - >/etc/report/capture 2>/etc/report/collected`)
		b := n.boot()
		b.before(t, kubelet)
		if shown := n.read(n.root + "/etc/report/shown"); !strings.Contains(shown, "SKIP: ") || !strings.Contains(shown, "done, mode assert") {
			t.Errorf("got %s", shown)
		}
		if after := n.read(n.deployment.Dir + ".origin"); after != before {
			t.Errorf("got origin %s, want %s: %s", after, before, n.read(n.root+"/etc/report/reverted"))
		}
		if act, _ := n.record()["act"].(map[string]any); act["state"] != "undone" {
			t.Errorf("got %v", act)
		}
		if n.read(n.root+"/etc/report/capture") == "" {
			t.Errorf("no capture: %s", n.read(n.root+"/etc/report/collected"))
		}
	})
}

// deaf is a program that neither answers nor hears a signal.
const deaf = `package main

import (
	"fmt"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	fmt.Println("deaf")
	time.Sleep(time.Hour)
}
`

// A container lives in a control group that systemd does not kill, and outlives
// whoever started it: even so the boot goes on in time, and it does not stay.
func deafImage(t *testing.T, reg *registry.Registry) {
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "deaf.go"), filepath.Join(dir, "deaf")
	if err := os.WriteFile(source, []byte(deaf), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "env", "CGO_ENABLED=0", "go", "build", "-o", binary, source)
	n := newEngineNode(t, reg.Host, pushImage(t, reg, "deaf", binary), "assert")
	n.write("etc/systemd/system/"+unitName+".d/60-short.conf", "[Service]\nTimeoutStartSec=6\nTimeoutStopSec=1\n")
	b := n.boot()
	b.before(t, "machine-config-daemon-pull", "machine-config-daemon-firstboot", kubelet)
	if !strings.Contains(b.console, "deaf") || b.state["Result"] != "timeout" {
		t.Errorf("got result %s\n%s", b.state["Result"], b.console)
	}
	if took := b.at[kubelet] - b.at["NetworkManager-wait-online"]; took > 6+3*1+5 {
		t.Errorf("the kubelet came after %.1f s\n%s", took, b.console)
	}
}

// newEngineNode has the image in its environment file and may pull it.
func newEngineNode(t *testing.T, host, image, mode string) *node {
	t.Helper()
	n := newNode(t, podmanUnit(t))
	n.write("etc/oneboot/firstboot.env", "ONEBOOT_IMAGE="+image+"\nONEBOOT_MODE="+mode+"\n")
	// This machine has no D-Bus, and no controllers in its control groups.
	n.write("etc/containers/containers.conf", "[containers]\npids_limit = 0\n[engine]\ncgroup_manager = \"cgroupfs\"\n")
	n.write("etc/containers/registries.conf", fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", host))
	n.file(filepath.Join(n.physical, "ostree/deploy/rhcos/var/lib/kubelet/config.json"),
		fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, base64.StdEncoding.EncodeToString([]byte("core:secret"))), 0o600)
	return n
}

// onCall is what docs/oncall.md has one type on a node to get the program.
func onCall(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/oncall.md")
	if err != nil {
		t.Fatal(err)
	}
	var lines string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "    . /etc/oneboot/") || strings.HasPrefix(line, "    oneboot() {") {
			lines += strings.TrimPrefix(line, "    ")
		}
	}
	if strings.Count(lines, "\n") != 2 {
		t.Fatalf("docs/oncall.md: found %q", lines)
	}
	return lines
}

// pushImage builds the image and pushes it with skopeo; it returns its pull
// spec by digest.
func pushImage(t *testing.T, reg *registry.Registry, name, binary string) string {
	t.Helper()
	dir := t.TempDir()
	archive := filepath.Join(dir, "oneboot.oci.tar")
	run(t, "go", "run", "-tags", "containers_image_openpgp exclude_graphdriver_btrfs", "../image", "-o", archive, runtime.GOARCH+"="+binary)
	digest := filepath.Join(dir, "digest")
	run(t, "skopeo", "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false", "--dest-creds=core:secret", "--digestfile="+digest,
		"oci-archive:"+archive, "docker://"+reg.Host+"/tools/"+name+":test")
	text, err := os.ReadFile(digest)
	if err != nil {
		t.Fatal(err)
	}
	return reg.Host + "/tools/" + name + "@" + strings.TrimSpace(string(text))
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}
