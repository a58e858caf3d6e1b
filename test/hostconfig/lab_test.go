// Package hostconfig holds that a host's own registry configuration means to
// oneboot what it means to podman, skopeo and rpm-ostree there: the whole
// analysis runs on a real sysroot with the files in their real places, against
// real registries, beside the real skopeo.
package hostconfig

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
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

// wholeAnswer is what a plain commit needs of a registry: ping, manifest,
// config, the head of a layer.
const wholeAnswer = 4

// A lab is a host that runs the very content of an image, so that it can skip
// where its configuration leads to that image, and only there.
type lab struct {
	dir        string
	root       *sysroot.Root
	deployment sysroot.Deployment
	image      *nativeimage.Image
}

var theLab struct {
	sync.Once
	*lab
	err error
}

func TestMain(m *testing.M) {
	if spec := os.Getenv(childVariable); spec != "" {
		if err := childMain(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if l := theLab.lab; l != nil {
		if err := sysroot.Remove(l.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func newLab(t testing.TB) *lab {
	t.Helper()
	theLab.Do(func() { theLab.lab, theLab.err = makeLab() })
	if theLab.err != nil {
		t.Fatal(theLab.err)
	}
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"} {
		t.Setenv(name, "")
	}
	return theLab.lab
}

func makeLab() (*lab, error) {
	dir, err := os.MkdirTemp("", "hostconfig-")
	if err != nil {
		return nil, err
	}
	l := &lab{dir: dir}
	// A process of another user must get there.
	if err := os.Chmod(dir, 0o755); err != nil {
		return l, err
	}
	if l.root, err = sysroot.NewRoot(filepath.Join(dir, "root")); err != nil {
		return l, err
	}
	commit, err := l.root.Sysroot.CommitTree(sysroot.Tree{}, sysroot.CommitOptions{})
	if err != nil {
		return l, err
	}
	images := filepath.Join(dir, "image")
	if err := os.Mkdir(images, 0o755); err != nil {
		return l, err
	}
	if l.image, err = nativeimage.Build(images, l.root.Sysroot.Repo(), commit, nativeimage.Options{}); err != nil {
		return l, err
	}
	l.deployment, err = l.root.Sysroot.Deploy(commit, sysroot.DeployOptions{KernelArguments: []string{"root=UUID=6f0e", "rw"}})
	return l, err
}

// start starts a registry that has the image in the repositories.
func (l *lab) start(t testing.TB, o registry.Options, repositories ...string) *registry.Registry {
	t.Helper()
	r, err := registry.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range repositories {
		if _, err := r.Push(name, l.image, "latest"); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// downAddress is an address where nothing listens.
func downAddress(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// files are a host's files by their path below the root.
type files map[string]string

// The places of a host's configuration.
const (
	confFile    = "etc/containers/registries.conf"
	confDir     = "etc/containers/registries.conf.d/"
	kubeletFile = "var/lib/kubelet/config.json"
	runFile     = "run/ostree/auth.json"
	etcFile     = "etc/ostree/auth.json"
	proxyFile   = "etc/mco/proxy.env"
	certsDir    = "etc/containers/certs.d/"
	dockerCerts = "etc/docker/certs.d/"
)

const acceptAnything = `{"default":[{"type":"insecureAcceptAnything"}]}`

// host makes the root that of a host with these files, which is to become url.
func (l *lab) host(t testing.TB, url string, fs files) {
	t.Helper()
	if err := os.RemoveAll(l.root.Path("sysroot/ostree/deploy/" + sysroot.Stateroot + "/var/lib/kubelet")); err != nil {
		t.Fatal(err)
	}
	mc := sysroot.MachineConfig{OSImageURL: url}
	if err := l.root.Boot(l.deployment, sysroot.BootOptions{MachineConfig: &mc}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(l.root.Path(sysroot.RegistriesPath)); err != nil {
		t.Fatal(err)
	}
	for name, content := range fs {
		if err := l.root.WriteFile(name, content); err != nil {
			t.Fatal(err)
		}
	}
}

// analyze runs the analysis on the host.
func (l *lab) analyze(t testing.TB, edit ...func(*daemon.Options)) verdict.Verdict {
	t.Helper()
	opts := daemon.Options{Root: l.root.Dir, Timeout: 20 * time.Second}
	for _, e := range edit {
		e(&opts)
	}
	res, err := daemon.Analyze(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return res.Verdict
}

// A want is the answer to expect: skip, or proceed with an error that says all
// of the texts.
type want struct {
	failed bool
	code   string // any where empty
	texts  []string
}

func skip() want { return want{} }

func fails(code string, texts ...string) want { return want{true, code, texts} }

// secret is in every secret of the tests: nothing shows it.
const secret = "sw0rdfish"

func (w want) check(t testing.TB, v verdict.Verdict) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{secret, base64.StdEncoding.EncodeToString([]byte("puller:" + secret))} {
		if strings.Contains(string(text), s) {
			t.Errorf("the verdict shows a secret: %s", text)
		}
	}
	if !w.failed {
		if v.Action != verdict.Skip || v.Proof != verdict.ProofOSTreeCommit {
			t.Errorf("got reason %s, want skip: %+v", v.Reason, v.Errors)
		}
		return
	}
	if v.Action == verdict.Skip || v.Conclusive {
		t.Errorf("got action %v, conclusive %v, reason %s; want proceed, open", v.Action, v.Conclusive, v.Reason)
	}
	if len(v.Errors) == 0 {
		t.Fatalf("no error; want %s", w.code)
	}
	if !slices.ContainsFunc(v.Errors, func(e verdict.Error) bool {
		return (w.code == "" || e.Code == w.code) && !slices.ContainsFunc(w.texts, func(s string) bool { return !strings.Contains(e.Source+": "+e.Message, s) })
	}) {
		t.Errorf("got errors %+v; want %s with %q", v.Errors, w.code, w.texts)
	}
}

// basic is an auth file with one entry.
func basic(key, userPassword string) string {
	return fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, key, base64.StdEncoding.EncodeToString([]byte(userPassword)))
}

// asked is how many requests the registry has answered, of those that are not
// for tokens.
func asked(r *registry.Registry) int {
	n := 0
	for _, q := range r.Requests() {
		if q.Path != "/v2/auth" {
			n++
		}
	}
	return n
}

// full gathers every fact.
func full(o *daemon.Options) { o.Full = true }
