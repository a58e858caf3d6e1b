//go:build kube

package kube

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/oneboot/oneboot/pkg/api/v1alpha1"
	"github.com/oneboot/oneboot/test/clustermanifests"
	"github.com/oneboot/oneboot/test/registry"
)

// controllerUser is the controller's account as the API server calls it.
const controllerUser = "system:serviceaccount:oneboot-controller:oneboot-controller"

func TestControllerFaults(t *testing.T) {
	c, s := newCluster(t, "controller/openshift"), newSite(t)
	k := c.typed(t)
	c.ensureNamespace(t, "openshift-machine-api")
	f, server := c.faulty(t)
	away := startRelay(t, server.URL)
	s.server, s.ca = away.address, certificate(server)
	set := func(name string) { c.object(t, strings.Replace(machineSet, "name: w,", "name: "+name+",", 1)) }
	forecast := func(name string) *v1alpha1.FirstbootForecast {
		t.Helper()
		return forecasted(t, k, "machineset.openshift-machine-api."+name, "pivot-full")
	}
	c.pool(t, s.reg.Reference("os", s.base.Digest))
	set("w")
	r := c.controller(t, s)
	forecast("w")

	t.Run("all connections are lost", func(t *testing.T) {
		away.lose(false)
		set("w2")
		forecast("w2")
	})
	t.Run("the API server cannot be reached while objects come, go and change", func(t *testing.T) {
		away.lose(true)
		set("w3")
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "metadata": map[string]any{"name": "w2", "namespace": "openshift-machine-api"}}}
		if err := c.Delete(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if err := k.Get(t.Context(), client.ObjectKey{Name: "machineset.openshift-machine-api.w3"}, &v1alpha1.FirstbootForecast{}); !apierrors.IsNotFound(err) {
			t.Fatalf("a forecast was written through a line that was cut: %v", err)
		}
		away.mend()
		forecast("w3")
		eventually(t, "the forecast of w2 to go", func() (string, bool) {
			err := k.Get(t.Context(), client.ObjectKey{Name: "machineset.openshift-machine-api.w2"}, &v1alpha1.FirstbootForecast{})
			return fmt.Sprint(err), apierrors.IsNotFound(err)
		})
	})
	t.Run("429", func(t *testing.T) {
		f.fail(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/oneboot.dev/") {
				return false
			}
			w.Header().Set("Retry-After", "1")
			http.Error(w, "busy", http.StatusTooManyRequests)
			return true
		})
		set("w4")
		eventually(t, "some requests to fail", func() (string, bool) { return fmt.Sprint(f.count()), f.count() >= 3 })
		if err := k.Get(t.Context(), client.ObjectKey{Name: "machineset.openshift-machine-api.w4"}, &v1alpha1.FirstbootForecast{}); !apierrors.IsNotFound(err) {
			t.Fatalf("the API server was to say 429: %v", err)
		}
		f.fail(nil)
		forecast("w4")
	})
	t.Run("the pool changes while its image is being read", func(t *testing.T) {
		s.reg.AddFault(&registry.Fault{Path: regexp.MustCompile("/manifests/"), Do: s.reg.Delay(3 * time.Second)})
		c.pool(t, s.reg.Reference("os", s.next.Digest))
		eventually(t, "the read to begin", func() (string, bool) {
			n := len(s.reg.Requests())
			return fmt.Sprint(n), slices.ContainsFunc(s.reg.Requests(), func(q registry.Request) bool { return strings.Contains(q.Path, s.next.Digest) })
		})
		c.pool(t, s.reg.Reference("os", s.base.Digest))
		// Somebody takes away the very object that is being filled in.
		if err := k.Delete(t.Context(), &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(s.next.Digest, ":", "-")}}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the pool to have the image of before, and the other one to be gone", func() (string, bool) {
			f, o := forecast("w"), osImage(t, k, s.base.Digest, "True")
			err := k.Get(t.Context(), client.ObjectKey{Name: strings.ReplaceAll(s.next.Digest, ":", "-")}, &v1alpha1.OSImage{})
			return fmt.Sprintf("%+v, %+v, %v", f.Status, o.Status, err), f.Status.OSImage == s.reg.Reference("os", s.base.Digest) && o.Status.UsedBy == "pool worker" && apierrors.IsNotFound(err)
		})
		s.reg.ClearFaults()
	})
	t.Run("somebody else writes a status", func(t *testing.T) {
		f := forecast("w")
		before := f.DeepCopy()
		f.Status.Outcome = "skip"
		if err := k.Status().Patch(t.Context(), f, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		forecast("w")
	})
	select {
	case err := <-r.done:
		t.Errorf("the controller has ended: %v", err)
		r.done <- err
	default:
	}
}

// TestControllerVerbs: the audit log of a whole life says that the account uses every
// verb that it has, and asks for nothing else.
func TestControllerVerbs(t *testing.T) {
	dir := t.TempDir()
	log, policy := filepath.Join(dir, "audit.log"), filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata, users: ["+controllerUser+"]}, {level: None}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, s := newCluster(t, "controller/openshift", func(e *envtest.Environment) {
		e.ControlPlane.GetAPIServer().Configure().Set("audit-policy-file", policy).Set("audit-log-path", log)
	}), newSite(t)
	k := c.typed(t)
	c.ensureNamespace(t, "openshift-machine-api")
	for _, kind := range [][4]string{
		{"machineconfiguration.openshift.io", "v1", "MachineOSConfig", "machineosconfigs"}, {"metal3.io", "v1alpha1", "BareMetalHost", "baremetalhosts"},
		{"agent-install.openshift.io", "v1beta1", "InfraEnv", "infraenvs"}, {"agent-install.openshift.io", "v1beta1", "AgentServiceConfig", "agentserviceconfigs"},
		{"extensions.hive.openshift.io", "v1beta1", "AgentClusterInstall", "agentclusterinstalls"}, {"hive.openshift.io", "v1", "ClusterImageSet", "clusterimagesets"},
		{"siteconfig.open-cluster-management.io", "v1alpha1", "ClusterInstance", "clusterinstances"}, {"hypershift.openshift.io", "v1beta1", "NodePool", "nodepools"},
	} {
		if err := k.Create(t.Context(), looseCRD(kind[0], kind[1], kind[2], kind[3])); err != nil {
			t.Fatal(err)
		}
	}
	c.pool(t, s.reg.Reference("os", s.base.Digest))
	c.object(t, machineSet)
	r := c.controller(t, s)
	const name = "machineset.openshift-machine-api.w"
	forecasted(t, k, name, "pivot-full")
	// An Event, and one more of the same.
	for range 2 {
		c.object(t, strings.Replace(machineSet, "rhcos-413.92.202307260246-0", "rhcos-416.94.202501010000-0", 1))
		eventually(t, "another version", func() (string, bool) {
			f := forecasted(t, k, name, "pivot-full")
			return f.Status.Message, strings.Contains(f.Status.Message, "416.94.202501010000-0")
		})
		c.object(t, strings.Replace(machineSet, "template: rhcos-413.92.202307260246-0-vmware.x86_64", "template: nobody-knows", 1))
		forecasted(t, k, name, "unknown")
	}
	r.measured(t, c.reader(t, "oneboot-controller-metrics-reader"), `oneboot_forecast_sources{outcome="unknown",pool="worker"} 1`)
	// API servers before Kubernetes 1.32 stream no lists.
	r.stop(t)
	s.env = []string{"KUBE_FEATURE_WatchListClient=false"}
	c.controller(t, s)
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "metadata": map[string]any{"name": "w", "namespace": "openshift-machine-api"}}}
	if err := c.Delete(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	granted := grants(t, "../../manifests/controller/openshift")
	if len(granted) < 50 {
		t.Fatalf("the manifests grant %d verbs only: %v", len(granted), granted)
	}
	eventually(t, "every granted verb to be used", func() (string, bool) {
		used, denied := c.used(t, log)
		var idle, beyond []string
		for g := range granted {
			if !used[g] {
				idle = append(idle, g)
			}
		}
		for u := range used {
			if !granted[u] && !forEverybody(u) {
				beyond = append(beyond, u)
			}
		}
		slices.Sort(idle)
		return fmt.Sprintf("granted and not used: %v; used beyond: %v; denied: %v", idle, beyond, denied), len(idle)+len(beyond)+len(denied) == 0
	})
}

// forEverybody: discovery is for every account.
func forEverybody(use string) bool { return strings.HasPrefix(use, "get /") }

// used are the verbs that the account has used, and the requests that were denied.
func (c *cluster) used(t *testing.T, log string) (used map[string]bool, denied []string) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	used = map[string]bool{}
	for line := range strings.Lines(string(text)) {
		e := &auditv1.Event{}
		// The last line may not be whole yet.
		if !strings.HasSuffix(line, "\n") || yaml.Unmarshal([]byte(line), e) != nil || e.ObjectRef == nil && e.RequestURI == "" {
			continue
		}
		use := e.Verb + " " + strings.Split(e.RequestURI, "?")[0]
		if o := e.ObjectRef; o != nil {
			use = verb(e.Verb, o.APIGroup, o.Resource, o.Subresource)
		}
		if e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusForbidden {
			denied = append(denied, use+": "+e.ResponseStatus.Message)
		}
		used[use] = true
	}
	return used, denied
}

func verb(verb, group, resource, sub string) string {
	if sub != "" {
		resource += "/" + sub
	}
	return strings.TrimSpace(verb + " " + resource + "." + group)
}

// grants are the verbs that the rendered roles give the controller's account.
func grants(t *testing.T, overlay string) map[string]bool {
	t.Helper()
	objects, err := clustermanifests.Render(overlay)
	if err != nil {
		t.Fatal(err)
	}
	roles, bound := map[string][]rbacv1.PolicyRule{}, []string{}
	for _, u := range objects {
		switch u.GetKind() {
		case "ClusterRole", "Role":
			role := &rbacv1.ClusterRole{}
			convert(t, u, role)
			roles[u.GetKind()+"/"+u.GetName()] = role.Rules
		case "ClusterRoleBinding", "RoleBinding":
			b := &rbacv1.ClusterRoleBinding{}
			convert(t, u, b)
			if slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return s.Kind == "ServiceAccount" && s.Name == "oneboot-controller" }) {
				bound = append(bound, b.RoleRef.Kind+"/"+b.RoleRef.Name)
			}
		}
	}
	all := map[string]bool{}
	for _, name := range bound {
		for _, rule := range roles[name] {
			for _, v := range rule.Verbs {
				for _, g := range rule.APIGroups {
					for _, r := range rule.Resources {
						all[verb(v, g, r, "")] = true
					}
				}
			}
		}
	}
	return all
}

func convert(t *testing.T, u *unstructured.Unstructured, to any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, to); err != nil {
		t.Fatal(err)
	}
}
