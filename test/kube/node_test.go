//go:build kube

package kube

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// config is the MachineConfig that the tests' nodes are on.
const config = "rendered-worker-0123456789abcdef0123456789abcdef"

// settled are the annotations of a node that the machine-config-daemon is done with.
var settled = map[string]string{
	"machineconfiguration.openshift.io/currentConfig": config,
	"machineconfiguration.openshift.io/desiredConfig": config,
	"machineconfiguration.openshift.io/state":         "Done",
}

// ours are the annotations under oneboot.dev/.
func ours(n *corev1.Node) map[string]string {
	m := maps.Clone(n.Annotations)
	maps.DeleteFunc(m, func(k, _ string) bool { return !strings.HasPrefix(k, "oneboot.dev/") })
	return m
}

func (h *hostRoot) wantAnnotations(pivot string) map[string]string {
	return map[string]string{
		"oneboot.dev/action": "skip", "oneboot.dev/reason": "proven", "oneboot.dev/proof": "ostree-commit", "oneboot.dev/mode": "assert",
		"oneboot.dev/deployment": h.deployment.Checksum, "oneboot.dev/target": strings.TrimPrefix(wanted, "registry.example.com/os@"),
		"oneboot.dev/pivot": pivot, "oneboot.dev/boot": firstBoot,
	}
}

// annotated waits for the annotations.
func (c *cluster) annotated(t *testing.T, node string, want map[string]string) {
	t.Helper()
	eventually(t, "the annotations of "+node, func() (string, bool) {
		d := cmp.Diff(want, ours(c.node(t, node)))
		return d, d == ""
	})
}

// events are the Events about a node.
func (c *cluster) events(t *testing.T, node string) []corev1.Event {
	t.Helper()
	l, err := c.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + node})
	if err != nil {
		t.Fatal(err)
	}
	return l.Items
}

// scrape reads the metrics; an error is a status.
func (r *run) scrape(t *testing.T, token string) (string, int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.metrics+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err.Error(), 0
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error(), 0
	}
	return string(b), resp.StatusCode
}

// reader is the token of somebody who may read metrics.
func (c *cluster) reader(t *testing.T, role string) string {
	t.Helper()
	c.ensureNamespace(t, namespace)
	for _, name := range []string{"prometheus", "nobody"} {
		if err := c.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "prometheus"}}}
	if err := c.Create(t.Context(), b); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return c.token(t, "prometheus", "")
}

// measured waits for lines of the exposition.
func (r *run) measured(t *testing.T, token string, want ...string) {
	t.Helper()
	eventually(t, strings.Join(want, ", "), func() (string, bool) {
		text, _ := r.scrape(t, token)
		for _, w := range want {
			if !strings.Contains("\n"+text, "\n"+w+"\n") {
				return grep(text, "oneboot_"), false
			}
		}
		return "", true
	})
}

func grep(text, word string) string {
	var b strings.Builder
	for l := range strings.Lines(text) {
		if strings.Contains(l, word) && !strings.HasPrefix(l, "#") {
			b.WriteString(l)
		}
	}
	return b.String()
}

// TestNode is the life of one node: its first boot, a restart of the pod, later
// boots, an update.
func TestNode(t *testing.T) {
	c := newCluster(t, "node/openshift")
	reader := c.reader(t, "oneboot-metrics-reader")
	h := newHost(t)
	c.addNode(t, "n", settled)
	h.configured(t, config, wanted)
	r := c.start(t, "n", h)
	c.annotated(t, "n", h.wantAnnotations("skipped"))
	r.measured(t, reader, `oneboot_node_info{pool="worker"} 1`, `oneboot_firstboot_record_state{state="read"} 1`,
		`oneboot_firstboot_decision_info{action="skip",mode="assert",proof="ostree-commit",reason="proven",version="v0.1.0"} 1`,
		`oneboot_firstboot_pivot_state{state="skipped"} 1`, `oneboot_firstboot_skip_holds_state{state="yes"} 1`,
		`oneboot_firstboot_registry_requests 4`, `oneboot_firstboot_conclusive 1`)
	if text, status := r.scrape(t, ""); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d %s", status, text)
	}
	if text, status := r.scrape(t, c.token(t, "nobody", "")); status != http.StatusForbidden {
		t.Errorf("with the token of somebody who may not: %d %s", status, text)
	}

	t.Run("another boot", func(t *testing.T) {
		r.stop(t)
		h.boots(t, "22222222-2222-2222-2222-222222222222", time.Now())
		r := c.start(t, "n", h)
		// What was seen in the first boot stays.
		r.measured(t, reader, `oneboot_firstboot_pivot_state{state="skipped"} 1`)
		c.annotated(t, "n", h.wantAnnotations("skipped"))
	})
	t.Run("one event", func(t *testing.T) {
		all := c.events(t, "n")
		if len(all) != 1 || all[0].Reason != "FirstPivotSkipped" || all[0].Namespace != "default" {
			t.Fatalf("the Events are %+v", all)
		}
		const want = "oneboot proved by ostree-commit that the booted OS is the wanted one; the node joined in that boot"
		if all[0].Message != want {
			t.Errorf("it says %q; want %q", all[0].Message, want)
		}
	})
	t.Run("an update", func(t *testing.T) {
		r := c.start(t, "n", h)
		set := func(key, value string) {
			t.Helper()
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"machineconfiguration.openshift.io/%s":%q}}}`, key, value)
			if _, err := c.CoreV1().Nodes().Patch(t.Context(), "n", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		const next = "rendered-worker-ffffffffffffffffffffffffffffffff"
		set("state", "Working")
		set("desiredConfig", next)
		r.measured(t, reader, `oneboot_firstboot_skip_holds_state{state="unknown"} 1`)
		// The node says that it is done, and runs the OS of before.
		set("currentConfig", next)
		set("state", "Done")
		h.configured(t, next, "registry.example.com/os@sha256:"+strings.Repeat("b", 64))
		r.measured(t, reader, `oneboot_firstboot_skip_holds_state{state="no"} 1`)
	})
	t.Run("by the MachineConfig in the API", func(t *testing.T) {
		h := newHost(t)
		c.addNode(t, "n2", settled)
		mc := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
			"metadata": map[string]any{"name": config}, "spec": map[string]any{"osImageURL": wanted}}}
		c.apply(t, mc)
		r := c.start(t, "n2", h)
		r.measured(t, reader, `oneboot_firstboot_skip_holds_state{state="yes"} 1`)
	})
	t.Run("no record", func(t *testing.T) {
		h := newHost(t)
		h.remove(t, "var/lib/oneboot/firstboot.json")
		c.addNode(t, "old", nil)
		r := c.start(t, "old", h)
		r.measured(t, reader, `oneboot_firstboot_record_state{state="none"} 1`)
		if got := ours(c.node(t, "old")); len(got) > 0 {
			t.Errorf("a node without a record got %v", got)
		}
		h.write(t, "var/lib/oneboot/firstboot.json", "{")
		r.measured(t, reader, `oneboot_firstboot_record_state{state="unreadable"} 1`)
		if got := c.events(t, "old"); len(got) > 0 {
			t.Errorf("a node without a readable record got %v", got)
		}
	})
	t.Run("pivoted", func(t *testing.T) {
		h := newHost(t)
		h.boots(t, "33333333-3333-3333-3333-333333333333", time.Now().Add(-30*time.Second))
		c.addNode(t, "p", settled)
		c.start(t, "p", h)
		c.annotated(t, "p", h.wantAnnotations("done"))
	})
}

// TestOwnNode: with what the manifests grant, a pod changes its own Node's
// annotations under oneboot.dev/ and nothing else.
func TestOwnNode(t *testing.T) {
	c := newCluster(t, "node/openshift")
	c.addNode(t, "own", settled)
	c.addNode(t, "other", settled)
	pod := c.as(t, c.token(t, account, "oneboot-own"))
	unbound := c.as(t, c.token(t, account, ""))
	patch := func(k *kubernetes.Clientset, node, body string) error {
		_, err := k.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	// The policy takes a moment to be in force.
	n := 0
	eventually(t, "the admission policy", func() (string, bool) {
		n++
		err := patch(pod, "other", fmt.Sprintf(`{"metadata":{"annotations":{"oneboot.dev/try":"%d"}}}`, n))
		return fmt.Sprint(err), err != nil
	})
	annotation := func(k string) string { return fmt.Sprintf(`{"metadata":{"annotations":{%q:"x"}}}`, k) }
	tests := []struct {
		name, node, body string
		as               *kubernetes.Clientset
		allowed          bool
	}{
		{"its own annotation", "own", annotation("oneboot.dev/action"), pod, true},
		{"another annotation", "own", annotation("machineconfiguration.openshift.io/desiredConfig"), pod, false},
		{"removing another annotation", "own", `{"metadata":{"annotations":{"machineconfiguration.openshift.io/state":null}}}`, pod, false},
		{"a label", "own", `{"metadata":{"labels":{"node-role.kubernetes.io/master":""}}}`, pod, false},
		{"a taint", "own", `{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`, pod, false},
		{"cordoning", "own", `{"spec":{"unschedulable":true}}`, pod, false},
		{"another node", "other", annotation("oneboot.dev/action"), pod, false},
		{"a token of no pod", "own", annotation("oneboot.dev/action"), unbound, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := patch(tt.as, tt.node, tt.body)
			if tt.allowed && err != nil {
				t.Error(err)
			}
			if !tt.allowed && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
				t.Errorf("got %v; want it forbidden", err)
			}
		})
	}
	if _, err := pod.CoreV1().Events("default").Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e"}, InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "other"}}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Errorf("an Event of another node: %v", err)
	}
	for what, err := range map[string]error{
		"secrets":    second(pod.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})),
		"pods":       second(pod.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})),
		"configmaps": second(pod.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})),
		"a token": second(pod.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account,
			&authenticationv1.TokenRequest{}, metav1.CreateOptions{})),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("reading %s: %v; want it forbidden", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// A faulty server is the API server behind a proxy that fails when it is told to.
type faulty struct {
	mu sync.Mutex
	// answer is asked first; it reports whether it has answered.
	answer func(w http.ResponseWriter, r *http.Request) bool
	failed int
}

func (f *faulty) fail(answer func(w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

func (f *faulty) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// faulty is an API server that can be made to answer otherwise.
func (c *cluster) faulty(t *testing.T) (f *faulty, server *httptest.Server) {
	t.Helper()
	upstream, err := url.Parse(c.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	f = &faulty{}
	proxy := httputil.NewSingleHostReverseProxy(upstream)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	proxy.FlushInterval = -1
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		answered := f.answer != nil && f.answer(w, r)
		if answered {
			f.failed++
		}
		f.mu.Unlock()
		if !answered {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return f, server
}

// certificate is the server's own.
func certificate(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// TestFaults: the API server is busy, somebody else was faster, it goes away and
// comes back, the pod's token is another one.
func TestFaults(t *testing.T) {
	c := newCluster(t, "node/kubernetes")
	reader := c.reader(t, "oneboot-metrics-reader")
	f, server := c.faulty(t)
	h := newHost(t)
	c.addNode(t, "n", nil)

	left := 4
	f.fail(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch && r.Method != http.MethodPost || !strings.Contains(r.URL.Path, "nodes") && !strings.Contains(r.URL.Path, "events") || left == 0 {
			return false
		}
		left--
		if left%2 == 1 {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "busy", http.StatusTooManyRequests)
			return true
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`)
		return true
	})
	r := c.startAt(t, "n", h, server.URL, certificate(server))
	c.annotated(t, "n", h.wantAnnotations("skipped"))
	if f.count() != 4 {
		t.Errorf("%d requests failed; want 4", f.count())
	}
	if got := len(c.events(t, "n")); got != 1 {
		t.Errorf("%d Events; want 1", got)
	}
	f.fail(nil)

	// The server that is started again is there until the end.
	whole := t
	t.Run("API server away and back", func(t *testing.T) {
		restart := c.killServer(whole)
		// Something changes meanwhile.
		h.record.Act.Mode = "complete"
		h.records(t)
		if text, status := r.scrape(t, reader); status == http.StatusOK {
			t.Errorf("metrics were given to somebody whom nobody could know: %s", grep(text, "oneboot_"))
		}
		restart()
		want := h.wantAnnotations("skipped")
		want["oneboot.dev/mode"] = "complete"
		c.annotated(t, "n", want)
		r.measured(t, reader, `oneboot_firstboot_record_state{state="read"} 1`)
	})
	t.Run("another token", func(t *testing.T) {
		old := r.token(t)
		if !c.good(t, old) {
			t.Fatal("the first token is not good")
		}
		c.addPod(t, "second", "n")
		// A token dies with its pod.
		c.removePod(t, "oneboot-n")
		eventually(t, "the old token to be refused", func() (string, bool) { return "it is good", !c.good(t, old) })
		r.setToken(t, c.token(t, account, "second"))
		h.record.Act.Mode = "assert"
		h.records(t)
		c.annotated(t, "n", h.wantAnnotations("skipped"))
	})
}

// good reports whether the API server knows a token.
func (c *cluster) good(t *testing.T, token string) bool {
	t.Helper()
	r := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := c.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r.Status.Authenticated
}

// token is what the program's token file has.
func (r *run) token(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(r.tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
