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
	image := pushImage(t, reg, binary)
	for _, mode := range []string{"report", "assert", "complete"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, podmanUnit(t))
			n.write("etc/oneboot/firstboot.env", "ONEBOOT_IMAGE="+image+"\nONEBOOT_MODE="+mode+"\n")
			// This machine has no D-Bus, and no controllers in its control groups.
			n.write("etc/containers/containers.conf", "[containers]\npids_limit = 0\n[engine]\ncgroup_manager = \"cgroupfs\"\n")
			n.write("etc/containers/registries.conf", fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", reg.Host))
			n.file(filepath.Join(n.physical, "ostree/deploy/rhcos/var/lib/kubelet/config.json"),
				fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, reg.Host, base64.StdEncoding.EncodeToString([]byte("core:secret"))), 0o600)
			b := n.boot()
			b.before(t, kubelet)
			n.check(mode, b)
		})
	}
}

// pushImage builds the image and pushes it with skopeo; it returns its pull
// spec by digest.
func pushImage(t *testing.T, reg *registry.Registry, binary string) string {
	t.Helper()
	dir := t.TempDir()
	archive := filepath.Join(dir, "oneboot.oci.tar")
	run(t, "go", "run", "-tags", "containers_image_openpgp exclude_graphdriver_btrfs", "../image", "-o", archive, runtime.GOARCH+"="+binary)
	digest := filepath.Join(dir, "digest")
	run(t, "skopeo", "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false", "--dest-creds=core:secret", "--digestfile="+digest,
		"oci-archive:"+archive, "docker://"+reg.Host+"/tools/oneboot:test")
	text, err := os.ReadFile(digest)
	if err != nil {
		t.Fatal(err)
	}
	return reg.Host + "/tools/oneboot@" + strings.TrimSpace(string(text))
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}
