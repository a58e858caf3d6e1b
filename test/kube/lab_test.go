//go:build kube

package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/clustermanifests"
	"github.com/oneboot/oneboot/test/sysroot"
)

// A cluster is an API server with the manifests applied.
type cluster struct {
	env    *envtest.Environment
	config *rest.Config
	client.Client
	*kubernetes.Clientset
}

// namespace and account are those of the manifests.
const namespace, account = "oneboot", "oneboot-node"

// program is oneboot-cluster as it is built for the image.
var program string

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "kube")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "oneboot-cluster")
	out, err := exec.Command("go", "build", "-trimpath", "-tags", "containers_image_openpgp,exclude_graphdriver_btrfs", "-ldflags", "-s -w",
		"-o", program, "../../cmd/oneboot-cluster").CombinedOutput()
	if err != nil {
		panic(string(out))
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// newCluster starts an API server, changed by edits, and applies an overlay.
func newCluster(t testing.TB, overlay string, edits ...func(*envtest.Environment)) *cluster {
	t.Helper()
	binaries, err := filepath.Abs("../../bin/kube")
	if err != nil {
		t.Fatal(err)
	}
	api := moduleDir(t, "github.com/openshift/api")
	env := &envtest.Environment{BinaryAssetsDirectory: binaries, ErrorIfCRDPathMissing: true, CRDDirectoryPaths: []string{"testdata/crds",
		api + "/security/v1/zz_generated.crd-manifests/0000_03_config-operator_01_securitycontextconstraints.crd.yaml",
		api + "/machineconfiguration/v1/zz_generated.crd-manifests/0000_80_machine-config_01_machineconfigs.crd.yaml",
		api + "/machineconfiguration/v1/zz_generated.crd-manifests/0000_80_machine-config_01_machineconfigpools-SelfManagedHA.crd.yaml",
		api + "/machineconfiguration/v1/zz_generated.crd-manifests/0000_80_machine-config_01_osimagestreams-SelfManagedHA.crd.yaml",
		api + "/machine/v1beta1/zz_generated.crd-manifests/0000_10_machine-api_01_machinesets-Default.crd.yaml",
	}}
	for _, crd := range []string{"config/v1/zz_generated.crd-manifests/0000_00_cluster-version-operator_01_clusterversions-Default.crd.yaml",
		"config/v1/zz_generated.crd-manifests/0000_10_config-operator_01_imagedigestmirrorsets.crd.yaml",
		"operator/v1alpha1/zz_generated.crd-manifests/0000_10_config-operator_01_imagecontentsourcepolicies.crd.yaml",
		"machine/v1/zz_generated.crd-manifests/0000_10_control-plane-machine-set_01_controlplanemachinesets-Default.crd.yaml",
	} {
		env.CRDDirectoryPaths = append(env.CRDDirectoryPaths, filepath.Join(api, crd))
	}
	for _, edit := range edits {
		edit(env)
	}
	env.ControlPlane.GetAPIServer().SecureServing.ListenAddr = envtest.ListenAddr{Address: "127.0.0.1", Port: strconv.Itoa(freePort(t))}
	config, err := env.Start()
	if err != nil {
		t.Fatalf("starting the API server: %v: run make test-kube", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	config.QPS, config.Burst = 1000, 1000
	c := &cluster{env: env, config: config, Clientset: kubernetes.NewForConfigOrDie(config)}
	if c.Client, err = client.New(config, client.Options{}); err != nil {
		t.Fatal(err)
	}
	c.applyOverlay(t, overlay)
	return c
}

// lastPort is the last one that freePort gave.
var lastPort atomic.Int32

// freePort is a port below those that the kernel gives to connections that go out
// (32768 and up on Linux): while the server is dead, no client that looks for it can
// get its port, and so no server that starts again finds it taken.
func freePort(t testing.TB) int {
	t.Helper()
	lastPort.CompareAndSwap(0, int32(20000+os.Getpid()%1000*10))
	for port := int(lastPort.Add(1)); port < 32768; port = int(lastPort.Add(1)) {
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port from 20000 to 32767 is free")
	return 0
}

// killServer kills the API server, as a host that dies does; the function that it
// returns starts it again with the same arguments, so with the same keys.
func (c *cluster) killServer(t *testing.T) func() {
	t.Helper()
	lists, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	port := "--secure-port=" + strings.TrimRight(c.config.Host[strings.LastIndexByte(c.config.Host, ':')+1:], "/")
	for _, name := range lists {
		text, err := os.ReadFile(name)
		args := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
		if err != nil || !slices.Contains(args, port) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
		return func() { c.startServer(t, args) }
	}
	t.Fatalf("no API server runs with %s", port)
	return nil
}

func (c *cluster) startServer(t *testing.T, args []string) {
	t.Helper()
	// The one that was killed holds its port until the kernel has done with it.
	address := strings.TrimRight(strings.TrimPrefix(c.config.Host, "https://"), "/")
	eventually(t, "the port of the API server that was killed", func() (string, bool) {
		l, err := net.Listen("tcp", address)
		if err == nil {
			err = l.Close()
		}
		return fmt.Sprint(err), err == nil
	})
	cmd := exec.Command(args[0], args[1:]...)
	said, err := os.Create(filepath.Join(t.TempDir(), "kube-apiserver.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		said.Close()
		if t.Failed() {
			text, _ := os.ReadFile(said.Name())
			t.Logf("the API server said:\n%s", text[max(0, len(text)-8<<10):])
		}
	})
	eventually(t, "the API server", func() (string, bool) {
		_, err := c.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceDefault, metav1.GetOptions{})
		return fmt.Sprint(err), err == nil
	})
}

// moduleDir is where a module's files are.
func moduleDir(t testing.TB, module string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// applyOverlay applies the rendered manifests; a field that the API server does
// not know is an error.
func (c *cluster) applyOverlay(t testing.TB, overlay string) {
	t.Helper()
	all, err := clustermanifests.Render("../../manifests/" + overlay)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range all {
		if ns := u.GetNamespace(); ns != "" && !strings.HasPrefix(ns, namespace) {
			c.ensureNamespace(t, ns)
		}
		c.apply(t, u)
	}
}

func (c *cluster) ensureNamespace(t testing.TB, name string) {
	t.Helper()
	err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func (c *cluster) apply(t testing.TB, u *unstructured.Unstructured) {
	t.Helper()
	err := client.WithFieldValidation(c.Client, metav1.FieldValidationStrict).
		Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("admin"), client.ForceOwnership)
	if err != nil {
		t.Fatalf("applying %s %s: %v", u.GetKind(), u.GetName(), err)
	}
}

// addNode makes a Node and the pod of the DaemonSet that runs there.
func (c *cluster) addNode(t *testing.T, name string, annotations map[string]string) {
	t.Helper()
	c.addNodeAlone(t, name, annotations)
	c.addPod(t, "oneboot-"+name, name)
}

func (c *cluster) addNodeAlone(t testing.TB, name string, annotations map[string]string) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{"node-role.kubernetes.io/worker": ""}}}
	if err := c.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) addPod(t *testing.T, name, node string) {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
	if err := c.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) removePod(t *testing.T, name string) {
	t.Helper()
	none := int64(0)
	if err := c.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
		t.Fatal(err)
	}
}

// token is what the kubelet would put into the pod; one that is bound to no pod
// where that is empty.
func (c *cluster) token(t *testing.T, account, pod string) string {
	t.Helper()
	r := &authenticationv1.TokenRequest{}
	if pod != "" {
		r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod}
	}
	got, err := c.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, r, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Status.Token
}

func tokenRequest() *authenticationv1.TokenRequest { return &authenticationv1.TokenRequest{} }

// configOf is the configuration of a client with a token.
func (c *cluster) configOf(token string) *rest.Config {
	config := rest.AnonymousClientConfig(c.config)
	config.BearerToken = token
	return config
}

// as is a client with a token.
func (c *cluster) as(t *testing.T, token string) *kubernetes.Clientset {
	t.Helper()
	return kubernetes.NewForConfigOrDie(c.configOf(token))
}

// node reads a Node as the API server has it.
func (c *cluster) node(t *testing.T, name string) *corev1.Node {
	t.Helper()
	n, err := c.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A hostRoot is a node's files.
type hostRoot struct {
	*sysroot.Root
	deployment sysroot.Deployment
	record     *record.Record
}

const (
	wanted    = "registry.example.com/os@sha256:" + "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	firstBoot = "11111111-1111-1111-1111-111111111111"
)

// newHost is a node that has booted a deployment and skipped its pivot in that
// very boot, as the record says.
func newHost(t *testing.T) *hostRoot {
	t.Helper()
	dir := openDir(t)
	r, err := sysroot.NewRoot(filepath.Join(dir, "host"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sysroot.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	commit, err := r.Sysroot.CommitTree(sysroot.Tree{}, sysroot.CommitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.Sysroot.Deploy(commit, sysroot.DeployOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Boot(d, sysroot.BootOptions{}); err != nil {
		t.Fatal(err)
	}
	h := &hostRoot{Root: r, deployment: d, record: &record.Record{
		Version: "v0.1.0", Mode: "assert", BootID: firstBoot, Time: time.Now().Add(-time.Minute).UTC(), Seconds: 0.5,
		Registry: record.Registry{Requests: 4, Bytes: 1000},
		Verdict: verdict.Verdict{APIVersion: verdict.APIVersion, Kind: verdict.Kind, Action: verdict.Skip, Conclusive: true,
			Reason: verdict.ReasonProven, Proof: verdict.ProofOSTreeCommit,
			Booted: verdict.View{Checksum: verdict.Checksum(commit)}, Target: verdict.View{OSImageURL: wanted}},
		Act: &record.Act{State: record.ActDone, Mode: "assert"},
	}}
	h.boots(t, firstBoot, time.Now().Add(-2*time.Minute))
	h.records(t)
	return h
}

// boots says which boot runs.
func (h *hostRoot) boots(t *testing.T, id string, at time.Time) {
	t.Helper()
	h.write(t, "proc/sys/kernel/random/boot_id", id+"\n")
	h.write(t, "proc/stat", fmt.Sprintf("cpu 1 2 3\nbtime %d\n", at.Unix()))
}

func (h *hostRoot) records(t *testing.T) {
	t.Helper()
	b, err := h.record.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	h.write(t, strings.TrimPrefix(record.Path, "/"), string(b))
}

// configured is what the machine-config-daemon leaves of a MachineConfig.
func (h *hostRoot) configured(t *testing.T, name, image string) {
	t.Helper()
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"osImageURL": image}})
	if err != nil {
		t.Fatal(err)
	}
	h.write(t, "etc/machine-config-daemon/currentconfig", string(b))
}

func (h *hostRoot) remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(h.Path(name)); err != nil {
		t.Fatal(err)
	}
}

func (h *hostRoot) write(t *testing.T, name, content string) {
	t.Helper()
	if err := h.WriteFile(name, content); err != nil {
		t.Fatal(err)
	}
}

// A run is the program on a node.
type run struct {
	cmd             *exec.Cmd
	tokenFile       string
	metrics, probes string
	mu              sync.Mutex
	log             bytes.Buffer
	done            chan error
}

func (r *run) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(b)
}

func (r *run) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// start runs the program on a node as the DaemonSet does, though with a kubeconfig
// that names the server; as the container's user, who is not root.
func (c *cluster) start(t *testing.T, node string, h *hostRoot) *run {
	t.Helper()
	return c.startAt(t, node, h, c.config.Host, c.config.CAData)
}

// openDir is a folder that not only root may enter, as the test's own are.
func openDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kube-run")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// startAt is start with another server's address and certificate.
func (c *cluster) startAt(t *testing.T, node string, h *hostRoot, server string, ca []byte) *run {
	t.Helper()
	dir := openDir(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &run{tokenFile: filepath.Join(dir, "token"), metrics: freeAddress(t), probes: freeAddress(t), done: make(chan error, 1)}
	r.setToken(t, c.token(t, account, "oneboot-"+node))
	kubeconfig := filepath.Join(dir, "kubeconfig")
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{TokenFile: r.tokenFile}
	k.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*k, kubeconfig); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(kubeconfig, 0o644); err != nil {
		t.Fatal(err)
	}
	// setpriv: no capability, another user, as in the pod.
	r.cmd = exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all",
		program, "node", "--root", h.Dir, "--interval=1s", "--metrics-bind-address="+r.metrics, "--health-probe-bind-address="+r.probes)
	r.cmd.Env = []string{"KUBECONFIG=" + kubeconfig, "NODE_NAME=" + node, "PATH=" + os.Getenv("PATH")}
	r.cmd.Stdout, r.cmd.Stderr = r, r
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.done <- r.cmd.Wait() }()
	t.Cleanup(func() {
		r.stop(t)
		if t.Failed() {
			t.Logf("the program on %s said:\n%s", node, r.said())
		}
	})
	return r
}

// setToken takes the place of the token at once, as the kubelet does.
func (r *run) setToken(t testing.TB, token string) {
	t.Helper()
	if err := os.WriteFile(r.tokenFile+".new", []byte(token), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(r.tokenFile+".new", r.tokenFile); err != nil {
		t.Fatal(err)
	}
}

// stop ends the program as the kubelet does.
func (r *run) stop(t testing.TB) {
	t.Helper()
	if r.cmd.ProcessState != nil {
		return
	}
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		return // it has ended
	}
	select {
	case <-r.done:
	case <-time.After(40 * time.Second):
		t.Error("the program does not end when it is asked to")
		_ = r.cmd.Process.Kill()
		<-r.done
	}
}

func freeAddress(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t)))
}

// eventually waits until what holds, and says what it got instead.
func eventually(t testing.TB, what string, got func() (string, bool)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for {
		now, ok := got()
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s; there is\n%s", what, now)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
