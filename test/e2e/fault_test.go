package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/sysroot"
)

// program builds the program once, as make build does.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "oneboot-bin-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "oneboot")
	cmd := exec.Command("go", "build", "-tags", "containers_image_openpgp exclude_graphdriver_btrfs", "-o", bin, "../../cmd/oneboot")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return bin, cmd.Run()
})

// A process is one run of the program.
type process struct {
	verdict verdict.Verdict
	stderr  string
	wall    time.Duration
	rss     int64 // bytes, at the most
}

// execute runs oneboot analyze -o json on the node.
func execute(t testing.TB, n *node, args ...string) process {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(bin, append([]string{"analyze", "-o", "json", "--root", n.Dir}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	peak := make(chan int64)
	go func() { peak <- peakMemory(cmd.Process.Pid, done) }()
	err = cmd.Wait()
	p := process{stderr: stderr.String(), wall: time.Since(start)}
	close(done)
	p.rss = <-peak
	if err != nil {
		t.Fatalf("%v: %s", err, p.stderr)
	}
	if err := json.Unmarshal(stdout.Bytes(), &p.verdict); err != nil {
		t.Fatalf("reading verdict: %v\n%s", err, stdout.String())
	}
	return p
}

// peakMemory watches a process until done is closed and returns the most memory
// that it was seen to have used, in bytes. The kernel's own account at exit
// will not do: it begins with the memory of the process that forked it.
func peakMemory(pid int, done <-chan struct{}) int64 {
	var peak int64
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // gone at the end
		for line := range strings.Lines(string(status)) {
			var kib int64
			if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
				peak = max(peak, kib<<10)
			}
		}
		select {
		case <-done:
			return peak
		case <-tick.C:
		}
	}
}

// Whatever a registry does, the answer is proceed, in time and within bounds.
func TestRegistryFaults(t *testing.T) {
	l := newLab(t)
	url := l.push(t, "os/base", l.native)
	layer0 := regexp.MustCompile("/blobs/" + l.native.Layers[0].Digest)
	config := regexp.MustCompile("/blobs/" + l.native.ConfigBlob().Digest)
	manifests, anything := regexp.MustCompile("/manifests/"), (*regexp.Regexp)(nil)
	type do = func(http.ResponseWriter, *http.Request, http.Handler)
	tests := []struct {
		name string
		path *regexp.Regexp
		do   do
		code string // of one of the errors
	}{
		{"drops every connection", anything, registry.Drop, "registry-unreachable"},
		{"hangs", anything, l.reg.Hang, "timeout"},
		{"hangs at the manifest", manifests, l.reg.Hang, "timeout"},
		{"hangs at the layer", layer0, l.reg.Hang, "timeout"},
		{"401", manifests, registry.Status(401, nil), "registry-unauthorized"},
		{"403", manifests, registry.Status(403, nil), "registry-unauthorized"},
		{"404", manifests, registry.Status(404, nil), "image-not-found"},
		{"429", manifests, registry.Status(429, nil), "registry-throttled"},
		{"500", manifests, registry.Status(500, nil), "registry-server-error"},
		{"500 at the config", config, registry.Status(500, nil), "registry-server-error"},
		{"404 at the layer", layer0, registry.Status(404, nil), "image-not-found"},
		{"another manifest's bytes", manifests, registry.Answer(l.otherImage.ManifestBytes), "digest-mismatch"},
		{"another config's bytes", config, registry.Answer(l.otherImage.ConfigBytes), "digest-mismatch"},
		{"another layer's bytes", layer0, registry.Answer([]byte("not a layer")), ""},
		{"half a layer", layer0, registry.Truncate(1000), "layer-truncated"},
		{"half a manifest", manifests, registry.Truncate(100), ""},
		{"a manifest of 1 GiB", manifests, registry.Endless(1 << 30), "manifest-invalid"},
		{"a config of 1 GiB", config, registry.Endless(1 << 30), ""},
		{"a layer of 1 GiB of spaces", layer0, registry.Endless(1 << 30), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := l.bootNode(t, nodeOptions{commit: l.base, mc: sysroot.MachineConfig{OSImageURL: url}})
			l.reg.AddFault(&registry.Fault{Path: tt.path, Do: tt.do})
			defer l.reg.ClearFaults()
			const timeout = 3 * time.Second
			p := execute(t, n, "--timeout", timeout.String())
			v := p.verdict
			if v.Action != verdict.Proceed || v.Conclusive {
				t.Errorf("got %s, %s, conclusive %v\n%s", actionText(v.Action), v.Reason, v.Conclusive, checksText(v))
			}
			if p.wall > timeout+2*time.Second {
				t.Errorf("took %s, --timeout %s", p.wall, timeout)
			}
			if p.rss == 0 || p.rss > 64<<20 {
				t.Errorf("used %d MiB", p.rss>>20)
			}
			found := tt.code == "" && len(v.Errors) > 0
			for _, e := range v.Errors {
				found = found || e.Code == tt.code
			}
			if !found {
				t.Errorf("no error with code %q\n%s", tt.code, checksText(v))
			}
			if p.stderr != "" {
				t.Errorf("stderr: %s", p.stderr)
			}
		})
	}
}

// A registry that nobody serves: refused at once.
func TestRegistryRefuses(t *testing.T) {
	l := newLab(t)
	n := l.bootNode(t, nodeOptions{commit: l.base, mc: sysroot.MachineConfig{OSImageURL: "127.0.0.1:1/os@" + l.native.Digest}})
	v := execute(t, n).verdict
	if v.Action != verdict.Proceed || v.Conclusive || len(v.Errors) == 0 || v.Errors[0].Code != "registry-unreachable" {
		t.Errorf("got %s, conclusive %v\n%s", v.Reason, v.Conclusive, checksText(v))
	}
}

// Bad input gets an error that names the file and field.
func TestBadInput(t *testing.T) {
	l := newLab(t)
	url := l.reg.Reference("os/base", l.native.Digest)
	mcFile := "etc/ignition-machine-config-encapsulated.json"
	spec := func(s string) string { return `{"kind":"MachineConfig","spec":{` + s + `}}` }
	write := func(name, content string) func(t *testing.T, n *node) {
		return func(t *testing.T, n *node) {
			if err := n.WriteFile(name, content); err != nil {
				t.Fatal(err)
			}
		}
	}
	object := func(n *node) string {
		c := n.deployment.Checksum
		return filepath.Join(n.Sysroot.Repo(), "objects", c[:2], c[2:]+".commit")
	}
	tests := []struct {
		name string
		edit func(t *testing.T, n *node)
		want []string // in one error's message
	}{
		{"no MachineConfig", func(t *testing.T, n *node) { _ = os.Remove(n.Path(mcFile)) }, []string{mcFile}},
		{"MachineConfig is a directory", func(t *testing.T, n *node) { _ = os.Remove(n.Path(mcFile)); _ = os.Mkdir(n.Path(mcFile), 0o755) }, []string{mcFile}},
		{"MachineConfig links to itself", func(t *testing.T, n *node) {
			_ = os.Remove(n.Path(mcFile))
			_ = os.Symlink(filepath.Base(mcFile), n.Path(mcFile))
		}, []string{mcFile}},
		{"MachineConfig is cut off", write(mcFile, spec(`"osImageURL":"x`)), []string{mcFile}},
		{"MachineConfig is a list", write(mcFile, `[]`), []string{mcFile}},
		{"osImageURL empty", write(mcFile, spec(`"osImageURL":""`)), []string{mcFile, "osImageURL"}},
		{"osImageURL a dummy", write(mcFile, spec(`"osImageURL":"://dummy"`)), []string{mcFile, "osImageURL"}},
		{"osImageURL a number", write(mcFile, spec(`"osImageURL":1`)), []string{mcFile, "osImageURL"}},
		{"osImageURL twice", write(mcFile, spec(`"osImageURL":"`+url+`","osImageURL":"`+url+`"`)), []string{mcFile, "osImageURL"}},
		{"osImageURL with a malformed digest", write(mcFile, spec(`"osImageURL":"quay.io/os@sha256:12"`)), []string{mcFile, "osImageURL"}},
		{"commit truncated", func(t *testing.T, n *node) { _ = os.Truncate(object(n), 100) }, []string{"commit"}},
		{"commit missing", func(t *testing.T, n *node) { _ = os.Remove(object(n)) }, []string{"commit"}},
		{"origin missing", func(t *testing.T, n *node) { _ = os.Remove(n.deployment.OriginFile()) }, []string{".origin"}},
		{"origin garbage", func(t *testing.T, n *node) { _ = n.deployment.SetOrigin("garbage\n") }, []string{".origin"}},
		{"boot link dangles", write("proc/cmdline", "ostree=/ostree/boot.1/rhcos/"+strings.Repeat("0", 64)+"/0\n"), []string{"/ostree/boot.1/"}},
		{"no ostree= argument", write("proc/cmdline", "root=/dev/sda\n"), []string{"ostree="}},
		{"policy.json malformed", write("etc/containers/policy.json", "{"), []string{"/etc/containers/policy.json"}},
		{"registries.conf malformed", write("etc/containers/registries.conf", "[[registry]\n"), []string{"/etc/containers/registries.conf"}},
		{"authfile malformed", write("var/lib/kubelet/config.json", "{"), []string{"/var/lib/kubelet/config.json"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := l.bootNode(t, nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: url}})
			tt.edit(t, n)
			v := execute(t, n).verdict
			if v.Action != verdict.Proceed || v.Conclusive {
				t.Errorf("got %s, %s, conclusive %v", actionText(v.Action), v.Reason, v.Conclusive)
			}
			if !hasError(v, tt.want) {
				t.Errorf("no error names %q\n%s", tt.want, checksText(v))
			}
			for _, e := range v.Errors {
				if strings.Contains(e.Message, n.Dir) {
					t.Errorf("an error names the caller's path of the root: %s", e.Message)
				}
			}
		})
	}
}

func hasError(v verdict.Verdict, words []string) bool {
	for _, e := range v.Errors {
		all := true
		for _, w := range words {
			all = all && strings.Contains(e.Message, w)
		}
		if all {
			return true
		}
	}
	return false
}

// A tag and an image that is no OS image.
func TestNoOSImage(t *testing.T) {
	l := newLab(t)
	t.Run("tag", func(t *testing.T) {
		n := l.bootNode(t, nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: l.reg.Reference("os/base", "latest")}})
		l.reg.ResetRequests()
		l.expect(t, n.analyze(t), proceed("pinned-differs", 0))
	})
	t.Run("an image without ostree", func(t *testing.T) {
		image := must[*nativeimage.Image](t)(l.image(l.base, nativeimage.Options{WithoutLabels: []string{"ostree.commit", "ostree.final-diffid"}}))
		url := l.push(t, "os/none", image)
		n := l.bootNode(t, nodeOptions{commit: l.base, mc: sysroot.MachineConfig{OSImageURL: url}})
		l.reg.ResetRequests()
		l.expect(t, n.analyze(t), proceed("os-content-unknown", 3))
	})
}

// A faultyContext panics deep inside the registry library, when the first
// request is about to be sent.
type faultyContext struct{ context.Context }

func (c faultyContext) Value(key any) any {
	if fmt.Sprintf("%T", key) == "httptrace.clientEventContextKey" {
		panic("a fault on purpose")
	}
	return c.Context.Value(key)
}

// A fault in a library ends as a verdict too.
func TestLibraryFault(t *testing.T) {
	l := newLab(t)
	n := l.bootNode(t, nodeOptions{commit: l.base, mc: sysroot.MachineConfig{OSImageURL: l.push(t, "os/base", l.native)}})
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	opts := daemon.Options{Root: n.Dir, Timeout: 20 * time.Second}
	res := must[*daemon.Result](t)(daemon.Analyze(faultyContext{context.Background()}, opts))
	v := res.Verdict
	if v.Action != verdict.Proceed || v.Conclusive || v.Reason != "machineconfig-unknown" {
		t.Errorf("got %v, %s\n%s", v.Action, v.Reason, checksText(v))
	}
	if len(v.Errors) != 1 || v.Errors[0].Code != "internal-error" || !strings.Contains(v.Errors[0].Message, "a fault on purpose") {
		t.Errorf("got errors %+v", v.Errors)
	}
	// Nothing is left behind, and the next run is none the worse.
	l.reg.ResetRequests()
	l.expect(t, n.analyze(t), skip(verdict.ProofOSTreeCommit, fourRequests))
	if left := must[[]os.DirEntry](t)(os.ReadDir(temp)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
