//go:build kube

package kube

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/oneboot/oneboot/pkg/api/v1alpha1"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/sysroot"
)

const controllerNamespace = "oneboot-controller"

// typed is a client of the custom resources.
func (c *cluster) typed(t testing.TB) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	k, err := client.New(c.config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// object creates an object from YAML.
func (c *cluster) object(t testing.TB, text string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	c.apply(t, u)
}

// A site is a registry with images, and what the controller reads it with.
type site struct {
	reg        *registry.Registry
	root, auth string
	base, next *nativeimage.Image
	// server is where the API server is to be asked, where that is not its own address.
	server string
	ca     []byte
	// env is for the controller.
	env []string
}

func newSite(t testing.TB) *site {
	t.Helper()
	dir := sysroot.TempDir(t)
	s := &site{root: filepath.Join(dir, "root"), auth: filepath.Join(dir, "auth.json")}
	var err error
	if s.reg, err = registry.Start(registry.Options{TLS: true, Username: "kim", Password: "secret", Dir: filepath.Join(dir, "registry")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.reg.Close() })
	build, err := sysroot.New(filepath.Join(dir, "build"))
	if err != nil {
		t.Fatal(err)
	}
	for i, to := range []**nativeimage.Image{&s.base, &s.next} {
		commit, err := build.CommitTree(sysroot.Tree{FillerBytes: 3 << 20, FillerSeed: uint64(i)}, sysroot.CommitOptions{
			Version: sysroot.DefaultVersion, Packages: sysroot.Packages(50, sysroot.DefaultKernel), Timestamp: sysroot.DefaultTimestamp + int64(i)})
		if err == nil {
			*to, err = nativeimage.Build(filepath.Join(dir, "layers"), build.Repo(), commit, nativeimage.Options{})
		}
		if err == nil {
			_, err = s.reg.Push("os", *to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string][]byte{
		filepath.Join(s.root, "etc/containers/certs.d", s.reg.Host, "ca.crt"): s.reg.CA,
		s.auth: []byte(`{"auths":{"` + s.reg.Host + `":{"auth":"a2ltOnNlY3JldA=="}}}`),
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s.reg.ResetRequests()
	return s
}

// push pushes an image and returns its pull spec.
func (s *site) push(t testing.TB, name string, m *nativeimage.Image, err error) string {
	t.Helper()
	digest := ""
	if err == nil {
		digest, err = s.reg.Push(name, m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s.reg.Reference(name, digest)
}

// controller starts the program with the manifests' account.
func (c *cluster) controller(t testing.TB, s *site, args ...string) *run {
	t.Helper()
	dir := t.TempDir()
	r := &run{tokenFile: filepath.Join(dir, "token"), metrics: freeAddress(t), probes: freeAddress(t), done: make(chan error, 1)}
	token, err := c.CoreV1().ServiceAccounts(controllerNamespace).CreateToken(t.Context(), "oneboot-controller", tokenRequest(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.setToken(t, token.Status.Token)
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	if s.server != "" {
		k.Clusters["c"] = &clientcmdapi.Cluster{Server: s.server, CertificateAuthorityData: s.ca}
	}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{TokenFile: r.tokenFile}
	k.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "x"
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*k, kubeconfig); err != nil {
		t.Fatal(err)
	}
	r.cmd = exec.Command(program, append([]string{"controller", "--root", s.root, "--authfile", s.auth, "--metrics-bind-address=" + r.metrics, "--health-probe-bind-address=" + r.probes}, args...)...)
	r.cmd.Env = []string{"KUBECONFIG=" + kubeconfig, "POD_NAMESPACE=" + controllerNamespace, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir}
	r.cmd.Env = append(r.cmd.Env, s.env...)
	r.cmd.Stdout, r.cmd.Stderr = r, r
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.done <- r.cmd.Wait() }()
	t.Cleanup(func() {
		r.stop(t)
		if t.Failed() {
			t.Logf("the controller said:\n%s", r.said())
		}
	})
	return r
}

// image waits for an OSImage with a condition.
func osImage(t testing.TB, k client.Client, digest, status string) *v1alpha1.OSImage {
	t.Helper()
	o := &v1alpha1.OSImage{}
	eventually(t, "OSImage "+digest+" to be read: "+status, func() (string, bool) {
		if err := k.Get(t.Context(), client.ObjectKey{Name: strings.ReplaceAll(digest, ":", "-")}, o); err != nil {
			return err.Error(), false
		}
		cond := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionRead)
		return fmt.Sprintf("%+v", o.Status), cond != nil && string(cond.Status) == status
	})
	return o
}

// forecasted waits for a forecast.
func forecasted(t testing.TB, k client.Client, name, outcome string) *v1alpha1.FirstbootForecast {
	t.Helper()
	o := &v1alpha1.FirstbootForecast{}
	eventually(t, "FirstbootForecast "+name+": "+outcome, func() (string, bool) {
		if err := k.Get(t.Context(), client.ObjectKey{Name: name}, o); err != nil {
			return err.Error(), false
		}
		return fmt.Sprintf("%+v", o.Status), o.Status.Outcome == outcome
	})
	return o
}

// pool makes a pool that wants an image.
func (c *cluster) pool(t testing.TB, image string) {
	t.Helper()
	c.object(t, fmt.Sprintf("apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: rendered-worker-1, annotations: {machineconfiguration.openshift.io/release-image-version: 4.16.3}}\nspec: {osImageURL: %q, config: {ignition: {version: 3.2.0}}}\n", image))
	c.object(t, "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: worker}\nspec: {configuration: {name: rendered-worker-1}}\n")
}

const machineSet = `apiVersion: machine.openshift.io/v1beta1
kind: MachineSet
metadata: {name: w, namespace: openshift-machine-api}
spec: {template: {spec: {providerSpec: {value: {kind: VSphereMachineProviderSpec, template: rhcos-413.92.202307260246-0-vmware.x86_64, userDataSecret: {name: worker-user-data}}}}}}
`

func TestController(t *testing.T) {
	c, s := newCluster(t, "controller/openshift"), newSite(t)
	k := c.typed(t)
	image := s.reg.Reference("os", s.base.Digest)
	c.ensureNamespace(t, "openshift-machine-api")
	c.pool(t, image)
	c.object(t, machineSet)
	c.addNodeAlone(t, "n1", map[string]string{"machineconfiguration.openshift.io/currentConfig": "rendered-worker-1", "oneboot.dev/pivot": "skipped"})
	c.addNodeAlone(t, "n2", map[string]string{"machineconfiguration.openshift.io/currentConfig": "rendered-worker-1", "oneboot.dev/pivot": "done"})
	r := c.controller(t, s)
	o := osImage(t, k, s.base.Digest, "True")
	if o.Status.Kernel == "" || o.Status.Version != sysroot.DefaultVersion || o.Status.InnerCommit != s.base.Commit || o.Status.UsedBy != "pool worker" || o.Spec.Image != image || len(o.Status.Facts) < 10 {
		t.Errorf("the OSImage is %+v, %+v", o.Spec, o.Status)
	}
	layers := int64(0)
	for _, l := range s.base.Layers {
		layers += l.Blob.Size
	}
	f := forecasted(t, k, "machineset.openshift-machine-api.w", "pivot-full")
	if f.Status.Pool != "worker" || f.Status.Observed.Skipped != 1 || f.Status.Observed.Done != 1 || f.Status.Bytes == nil || *f.Status.Bytes != layers || f.Status.Change == "" ||
		!meta.IsStatusConditionFalse(f.Status.Conditions, v1alpha1.ConditionWillSkip) {
		t.Errorf("the forecast is %+v, of %d bytes", f.Status, layers)
	}

	// What is started again is there until the end.
	whole := t
	t.Run("a restart reads nothing again", func(t *testing.T) {
		r.stop(t)
		s.reg.ResetRequests()
		r = c.controller(whole, s)
		c.object(t, strings.Replace(machineSet, "name: w,", "name: w2,", 1))
		forecasted(t, k, "machineset.openshift-machine-api.w2", "pivot-full")
		if n := len(s.reg.Requests()); n != 0 {
			t.Errorf("%d requests after a restart", n)
		}
	})
	t.Run("a source goes", func(t *testing.T) {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "metadata": map[string]any{"name": "w2", "namespace": "openshift-machine-api"}}}
		if err := c.Delete(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		eventually(t, "its forecast to go", func() (string, bool) {
			err := k.Get(t.Context(), client.ObjectKey{Name: "machineset.openshift-machine-api.w2"}, &v1alpha1.FirstbootForecast{})
			return fmt.Sprint(err), apierrors.IsNotFound(err)
		})
	})
	t.Run("a kind comes and goes", func(t *testing.T) {
		crd := looseCRD("metal3.io", "v1alpha1", "BareMetalHost", "baremetalhosts")
		if err := k.Create(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the kind", func() (string, bool) {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
				"metadata": map[string]any{"name": "host", "namespace": "openshift-machine-api"},
				"spec":     map[string]any{"customDeploy": map[string]any{"method": "install_coreos"}, "image": map[string]any{"url": "https://images.example.com/x.raw"}}}}
			err := c.Create(t.Context(), u)
			return fmt.Sprint(err), err == nil
		})
		forecasted(t, k, "baremetalhost.openshift-machine-api.host", "unknown")
		if err := k.Delete(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
		eventually(t, "its forecast to go", func() (string, bool) {
			err := k.Get(t.Context(), client.ObjectKey{Name: "baremetalhost.openshift-machine-api.host"}, &v1alpha1.FirstbootForecast{})
			return fmt.Sprint(err), apierrors.IsNotFound(err)
		})
	})
	t.Run("the pool wants another image, and the registry is away", func(t *testing.T) {
		s.reg.AddFault(&registry.Fault{Do: registry.Status(http.StatusServiceUnavailable, nil)})
		c.pool(t, s.reg.Reference("os", s.next.Digest))
		o := osImage(t, k, s.next.Digest, "False")
		if cond := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionRead); cond.Reason != "RegistryServerError" && cond.Reason != "RegistryUnreachable" {
			t.Errorf("the reason is %s: %s", cond.Reason, cond.Message)
		}
		s.reg.ClearFaults()
		osImage(t, k, s.next.Digest, "True")
		eventually(t, "the one before to have no user", func() (string, bool) {
			o := osImage(t, k, s.base.Digest, "True")
			return o.Status.UsedBy, o.Status.UsedBy == ""
		})
	})
	t.Run("an Event says that an outcome has changed", func(t *testing.T) {
		// A template of the wanted version, whose content nobody knows.
		c.object(t, strings.Replace(machineSet, "rhcos-413.92.202307260246-0", "rhcos-"+sysroot.DefaultVersion, 1))
		forecasted(t, k, "machineset.openshift-machine-api.w", "unknown")
		eventually(t, "the Event", func() (string, bool) {
			l, err := c.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err.Error(), false
			}
			for _, e := range l.Items {
				if e.Reason == "ForecastChanged" && strings.HasPrefix(e.Note, "from pivot-full to unknown: ") {
					return "", true
				}
			}
			return fmt.Sprintf("%d Events", len(l.Items)), false
		})
		c.object(t, machineSet)
		forecasted(t, k, "machineset.openshift-machine-api.w", "pivot-full")
	})
	t.Run("the API server dies and comes back", func(t *testing.T) {
		restart := c.killServer(whole)
		restart()
		c.object(t, strings.Replace(machineSet, "name: w,", "name: w3,", 1))
		forecasted(t, k, "machineset.openshift-machine-api.w3", "pivot-full")
	})
	t.Run("metrics", func(t *testing.T) {
		r.measured(t, c.reader(t, "oneboot-controller-metrics-reader"), `oneboot_forecast_sources{outcome="pivot-full",pool="worker"} 2`)
	})
}

// TestControllerAccount: anybody may read OSImages; the controller reads no Secret and
// changes nothing but its own kinds.
func TestControllerAccount(t *testing.T) {
	c := newCluster(t, "controller/kubernetes")
	c.ensureNamespace(t, namespace)
	if err := c.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vendor"}}); err != nil {
		t.Fatal(err)
	}
	vendor, err := client.New(c.configOf(c.token(t, "vendor", "")), client.Options{Scheme: c.typed(t).Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := vendor.List(t.Context(), &v1alpha1.OSImageList{}); err != nil {
		t.Errorf("a vendor's operator cannot list OSImages: %v", err)
	}
	o := &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: v1alpha1.OSImageSpec{Image: "q/os@sha256:" + strings.Repeat("a", 64)}}
	if err := vendor.Create(t.Context(), o); !apierrors.IsForbidden(err) {
		t.Errorf("a vendor's operator makes OSImages: %v", err)
	}
	token, err := c.CoreV1().ServiceAccounts(controllerNamespace).CreateToken(t.Context(), "oneboot-controller", tokenRequest(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own := c.as(t, token.Status.Token)
	for what, err := range map[string]error{
		"secrets":          second(own.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})),
		"its own secrets":  second(own.CoreV1().Secrets(controllerNamespace).List(t.Context(), metav1.ListOptions{})),
		"all ConfigMaps":   second(own.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})),
		"pods":             second(own.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})),
		"Nodes, to change": second(own.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})),
		"tokens of others": second(own.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "vendor", tokenRequest(), metav1.CreateOptions{})),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v; want it forbidden", what, err)
		}
	}
	// The schema refuses what is no pinned pull spec, and another image later.
	k := c.typed(t)
	for _, bad := range []string{"q/os:tag", "q/os@sha256:1", "", "two words@sha256:" + strings.Repeat("a", 64)} {
		if err := k.Create(t.Context(), &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: v1alpha1.OSImageSpec{Image: bad}}); !apierrors.IsInvalid(err) {
			t.Errorf("an OSImage of %q: %v; want it invalid", bad, err)
		}
	}
	if err := k.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	o.Spec.Image = "q/os@sha256:" + strings.Repeat("b", 64)
	if err := k.Update(t.Context(), o); !apierrors.IsInvalid(err) {
		t.Errorf("another image: %v; want it invalid", err)
	}
}

// TestGenerated: the CRDs and deep copies are those of the types.
func TestGenerated(t *testing.T) {
	before := generated(t)
	out, err := exec.Command("make", "-C", "../..", "generate").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !bytes.Equal(before, generated(t)) {
		t.Error("make generate has changed files: commit them")
	}
}

func generated(t *testing.T) []byte {
	t.Helper()
	names, err := filepath.Glob("../../manifests/controller/base/crds/*.yaml")
	if err != nil || len(names) != 2 {
		t.Fatalf("%v, %v", names, err)
	}
	var all []byte
	for _, name := range append(names, "../../pkg/api/v1alpha1/zz_generated.deepcopy.go") {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

// looseCRD is a kind of others, of any shape.
func looseCRD(group, version, kind, plural string) *apiextensionsv1.CustomResourceDefinition {
	yes := true
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: group, Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, Plural: plural, Singular: strings.ToLower(kind), ListKind: kind + "List"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: version, Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes}}}},
	}}
}
