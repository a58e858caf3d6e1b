package clustermanifests

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const (
	nodeDir    = "../../manifests/node/"
	metricsDir = "../../pkg/metrics/testdata/"
)

func render(t *testing.T, overlay string) []*unstructured.Unstructured {
	t.Helper()
	all, err := Render(nodeDir + overlay)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// find is the one object of a kind and name.
func find(t *testing.T, all []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, u := range all {
		if u.GetKind() == kind && u.GetName() == name {
			return u
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

// strict reads an object with the type of its kind; an unknown field is an error.
func strict(t *testing.T, u *unstructured.Unstructured, into any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, into, true); err != nil {
		t.Errorf("%s %s: %v", u.GetKind(), u.GetName(), err)
	}
}

func TestKinds(t *testing.T) {
	for _, overlay := range []string{"openshift", "kubernetes", "base"} {
		t.Run(overlay, func(t *testing.T) {
			seen := map[string]bool{}
			for _, u := range render(t, overlay) {
				id := strings.Join([]string{u.GetKind(), u.GetNamespace(), u.GetName()}, "/")
				if seen[id] {
					t.Errorf("%s is there twice", id)
				}
				seen[id] = true
				var into any
				switch u.GetKind() {
				case "Namespace":
					into = &corev1.Namespace{}
				case "ServiceAccount":
					into = &corev1.ServiceAccount{}
				case "Service":
					into = &corev1.Service{}
				case "ConfigMap":
					into = &corev1.ConfigMap{}
				case "DaemonSet":
					into = &appsv1.DaemonSet{}
				case "NetworkPolicy":
					into = &networkingv1.NetworkPolicy{}
				case "ClusterRole":
					into = &rbacv1.ClusterRole{}
				case "Role":
					into = &rbacv1.Role{}
				case "ClusterRoleBinding":
					into = &rbacv1.ClusterRoleBinding{}
				case "RoleBinding":
					into = &rbacv1.RoleBinding{}
				case "ValidatingAdmissionPolicy":
					into = &admissionv1.ValidatingAdmissionPolicy{}
				case "ValidatingAdmissionPolicyBinding":
					into = &admissionv1.ValidatingAdmissionPolicyBinding{}
				case "ServiceMonitor", "PrometheusRule", "SecurityContextConstraints":
					// The API server of test/kube has their schemas.
					continue
				default:
					t.Errorf("%s: a kind that no test reads", id)
					continue
				}
				strict(t, u, into)
			}
		})
	}
}

// The pod reads the host and is as little privileged as that allows.
func TestPod(t *testing.T) {
	for _, overlay := range []string{"openshift", "kubernetes"} {
		t.Run(overlay, func(t *testing.T) {
			all := render(t, overlay)
			var ds appsv1.DaemonSet
			strict(t, find(t, all, "DaemonSet", "oneboot-node"), &ds)
			pod := ds.Spec.Template.Spec
			if pod.HostNetwork || pod.HostPID || pod.HostIPC {
				t.Error("the pod shares a namespace of the host")
			}
			for _, v := range pod.Volumes {
				if v.HostPath != nil && v.HostPath.Path != "/" {
					t.Errorf("the pod mounts %s of the host", v.HostPath.Path)
				}
			}
			if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
				t.Fatalf("%d containers", len(pod.Containers))
			}
			c := pod.Containers[0]
			for _, m := range c.VolumeMounts {
				if !m.ReadOnly {
					t.Errorf("%s is mounted for writing", m.MountPath)
				}
			}
			s := c.SecurityContext
			if s.Privileged != nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
				s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
				t.Errorf("the container may more than it needs: %+v", s)
			}
			if pod.SecurityContext.RunAsNonRoot == nil || !*pod.SecurityContext.RunAsNonRoot {
				t.Error("the container runs as root")
			}
			for _, u := range all {
				if u.GetKind() == "ClusterRole" || u.GetKind() == "Role" {
					var role rbacv1.ClusterRole
					strict(t, &unstructured.Unstructured{Object: u.Object}, &role)
					for _, r := range role.Rules {
						if slices.Contains(r.Resources, "secrets") || slices.Contains(r.Verbs, "*") || slices.Contains(r.Resources, "*") {
							t.Errorf("%s allows %v on %v", u.GetName(), r.Verbs, r.Resources)
						}
					}
				}
			}
		})
	}
}

// promtool reads the rules, and the cases of testdata/rules.yaml in which they
// fire or must not.
func TestRules(t *testing.T) {
	rule := find(t, render(t, "openshift"), "PrometheusRule", "oneboot-node")
	groups, _, err := unstructured.NestedFieldCopy(rule.Object, "spec")
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(groups)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules-of-oneboot.yaml"), text)
	cases, err := os.ReadFile("testdata/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "cases.yaml"), cases)
	promtool(t, dir, "", "check", "rules", "rules-of-oneboot.yaml")
	promtool(t, dir, "", "test", "rules", "cases.yaml")
	// Each alert has a case in which it fires, and a place in the docs.
	docs, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)alert: (\S+)`).FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(string(cases), "alertname: "+m[1]+"\n        exp_alerts:\n          - exp_labels") {
			t.Errorf("no case has %s fire", m[1])
		}
		if !strings.Contains(string(docs), "### "+m[1]+"\n") {
			t.Errorf("docs/metrics.md has no heading %s", m[1])
		}
	}
}

func TestExposition(t *testing.T) {
	for _, name := range expositions(t) {
		promtool(t, ".", name, "check", "metrics")
	}
}

func expositions(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob(metricsDir + "*.prom")
	if err != nil || len(names) == 0 {
		t.Fatalf("no golden exposition: %v", err)
	}
	return names
}

// promtool runs that of make deps in a folder, with a file as its input.
func promtool(t *testing.T, dir, stdin string, args ...string) {
	t.Helper()
	program, err := filepath.Abs("../../bin/promtool")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	if stdin != "" {
		f, err := os.Open(stdin)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd.Stdin = f
	}
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s %s: %v\n%s", strings.Join(args, " "), stdin, err, out)
	}
}

func write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

var metricName = regexp.MustCompile(`\b(pool:)?oneboot_[a-z_]+(:[a-z]+)?\b`)

// Rules and dashboard use only metrics that are there, with labels that they
// have.
func TestMetricsExist(t *testing.T) {
	known := map[string]bool{}
	labels := map[string]bool{"namespace": true, "pod": true, "node": true}
	for _, name := range expositions(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "#") {
				known[metricName.FindString(line)] = true
			}
			for _, l := range regexp.MustCompile(`[{,]([a-z]+)=`).FindAllStringSubmatch(line, -1) {
				labels[l[1]] = true
			}
		}
	}
	rule := find(t, render(t, "openshift"), "PrometheusRule", "oneboot-node")
	var rules struct {
		Groups []struct {
			Rules []struct{ Record, Alert, Expr string }
		}
	}
	spec, _, err := unstructured.NestedFieldCopy(rule.Object, "spec")
	if err != nil {
		t.Fatal(err)
	}
	remarshal(t, spec, &rules)
	var expressions []string
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Record != "" {
				known[r.Record] = true
			}
			expressions = append(expressions, r.Expr)
		}
	}
	expressions = append(expressions, dashboardExpressions(t)...)
	used := map[string]bool{}
	for _, e := range expressions {
		for _, name := range metricName.FindAllString(e, -1) {
			used[name] = true
			if !known[name] {
				t.Errorf("there is no metric %s, in %s", name, e)
			}
		}
		for _, l := range regexp.MustCompile(`[{,]\s*([a-z]+)\s*(?:=|!=|=~)"`).FindAllStringSubmatch(e, -1) {
			if !labels[l[1]] {
				t.Errorf("no metric has a label %s, in %s", l[1], e)
			}
		}
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Record != "" && !used[r.Record] {
				t.Errorf("nothing uses %s", r.Record)
			}
		}
	}
}

func remarshal(t *testing.T, from, into any) {
	t.Helper()
	b, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// dashboardExpressions are those of the dashboard; Grafana and the console get
// the same one.
func dashboardExpressions(t *testing.T) []string {
	t.Helper()
	texts := map[string]string{}
	for overlay, at := range map[string]string{"openshift": "openshift-config-managed", "kubernetes": "oneboot"} {
		u := find(t, render(t, overlay), "ConfigMap", "oneboot-dashboard")
		if u.GetNamespace() != at {
			t.Errorf("%s has the dashboard in namespace %s", overlay, u.GetNamespace())
		}
		text, _, err := unstructured.NestedString(u.Object, "data", "oneboot.json")
		if err != nil {
			t.Fatal(err)
		}
		texts[overlay] = text
	}
	if texts["openshift"] != texts["kubernetes"] {
		t.Error("the console's dashboard is not Grafana's")
	}
	var d struct {
		Rows []struct {
			Panels []struct {
				Title, Type string
				Targets     []struct{ Expr string }
			}
		}
		Templating struct {
			List []struct{ Query string }
		}
	}
	if err := json.Unmarshal([]byte(texts["openshift"]), &d); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, r := range d.Rows {
		for _, p := range r.Panels {
			// The console draws these alone.
			if !slices.Contains([]string{"graph", "singlestat", "table"}, p.Type) || len(p.Targets) == 0 {
				t.Errorf("panel %q is a %s with %d expressions", p.Title, p.Type, len(p.Targets))
			}
			for _, target := range p.Targets {
				all = append(all, target.Expr)
			}
		}
	}
	for _, v := range d.Templating.List {
		all = append(all, v.Query)
	}
	return all
}
