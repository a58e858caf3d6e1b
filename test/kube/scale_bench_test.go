//go:build kube

package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/oneboot/oneboot/pkg/api/v1alpha1"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// quiet is how long a cluster rests while requests are counted.
const quiet = time.Minute

// BenchmarkScale is a cluster of a tenth and one of the full size: the first look
// from the start of the program to the last forecast, the requests of a minute in
// which kubelets alone write, the memory. It prints a table.
func BenchmarkScale(b *testing.B) {
	const pools, images = 50, 20
	table := "| Nodes | MachineSets | first look | processor | memory | requests a minute | registry |\n|---|---|---|---|---|---|---|\n"
	for _, nodes := range []int{500, 5000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			for b.Loop() {
				table += scale(b, nodes, nodes/10, pools, images)
			}
		})
	}
	b.Logf("\n%s", table)
}

func scale(b *testing.B, nodes, sets, pools, images int) string {
	dir := b.TempDir()
	log, policy := filepath.Join(dir, "audit.log"), filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata, users: ["+controllerUser+"]}, {level: None}]\n"), 0o644); err != nil {
		b.Fatal(err)
	}
	c := newCluster(b, "controller/openshift", func(e *envtest.Environment) {
		e.ControlPlane.GetAPIServer().Configure().Set("audit-policy-file", policy).Set("audit-log-path", log)
	})
	s := newSite(b)
	k := c.typed(b)
	c.ensureNamespace(b, "openshift-machine-api")
	specs := make([]string, images)
	for n := range specs {
		m, err := nativeimage.Derive(dir, s.base, map[string]string{"n": strconv.Itoa(n)}, nativeimage.DerivedLayer{Files: map[string]sysroot.File{"etc/motd": {Content: strconv.Itoa(n)}}})
		specs[n] = s.push(b, "os", m, err)
	}
	// A rendered MachineConfig of a real cluster has some hundred kilobytes of files.
	files := strings.Repeat("x", 100<<10)
	each(b, pools, func(n int) client.Object {
		return object(b, "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: rendered-p%d-1, annotations: {machineconfiguration.openshift.io/release-image-version: 4.16.3}}\nspec: {osImageURL: %q, config: {ignition: {version: 3.2.0}, storage: {files: [{path: /etc/x, contents: {source: \"data:,%s\"}}]}}}\n", n, specs[n%images], files)
	}, c.Client)
	each(b, pools, func(n int) client.Object {
		return object(b, "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: p%d}\nspec: {configuration: {name: rendered-p%d-1}}\n", n, n)
	}, c.Client)
	each(b, sets, func(n int) client.Object {
		return object(b, "apiVersion: machine.openshift.io/v1beta1\nkind: MachineSet\nmetadata: {name: w%d, namespace: openshift-machine-api}\nspec: {template: {spec: {providerSpec: {value: {kind: VSphereMachineProviderSpec, template: rhcos-413.92.202307260246-0-vmware.x86_64, userDataSecret: {name: p%d-user-data}}}}}}\n", n, n%pools)
	}, c.Client)
	node := func(n int) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", n), Labels: map[string]string{"kubernetes.io/arch": "amd64"}, Annotations: map[string]string{
			"machineconfiguration.openshift.io/currentConfig": fmt.Sprintf("rendered-p%d-1", n%pools),
			"machine.openshift.io/machine":                    fmt.Sprintf("openshift-machine-api/w%d-%05d", n%sets, n), "oneboot.dev/pivot": "done"}}}
	}
	each(b, nodes, func(n int) client.Object { return node(n) }, c.Client)
	s.reg.ResetRequests()

	start := time.Now()
	r := c.controller(b, s)
	long := time.Now().Add(10 * time.Minute)
	for done := 0; done < sets; {
		l := &v1alpha1.FirstbootForecastList{}
		if err := k.List(b.Context(), l); err != nil || time.Now().After(long) {
			b.Fatalf("%d of %d forecasts: %v", done, sets, err)
		}
		done = 0
		for _, f := range l.Items {
			if f.Status.Outcome == "pivot-full" && f.Status.Bytes != nil {
				done++
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
	first := time.Since(start)
	requests := len(s.reg.Requests())
	time.Sleep(5 * time.Second)
	ticks := processor(b, r.cmd.Process.Pid)

	// A minute in which a fifth of the kubelets write their statuses, as they do every
	// five minutes.
	before := lines(b, log)
	resting := time.Now()
	for n := 0; n < nodes/5; n++ {
		u := node(n)
		u.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
		if err := c.Status().Patch(b.Context(), u, client.MergeFrom(node(n))); err != nil {
			b.Fatal(err)
		}
		time.Sleep(time.Until(resting.Add(time.Duration(n) * quiet / time.Duration(nodes/5))))
	}
	time.Sleep(time.Until(resting.Add(quiet)))
	asked := kinds(b, log, before)
	b.Logf("in the minute: %v", asked)
	total, leases := 0, 0
	for what, n := range asked {
		total += n
		if strings.Contains(what, "leases") {
			leases += n
		}
	}
	after := processor(b, r.cmd.Process.Pid)
	b.ReportMetric(first.Seconds(), "first-look-s")
	row := fmt.Sprintf("| %d | %d | %.1f s | %.1f s, then %.2f s a minute | %d MiB | %d, and %d of the leader's lease | %d requests |\n", nodes, sets, first.Seconds(), ticks, after-ticks, peak(b, r.cmd.Process.Pid)>>20, total-leases, leases, requests)
	r.stop(b)
	return row
}

func object(b *testing.B, form string, args ...any) client.Object {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(fmt.Appendf(nil, form, args...), &u.Object); err != nil {
		b.Fatal(err)
	}
	return u
}

// each creates objects, some at a time.
func each(b *testing.B, n int, object func(int) client.Object, c client.Client) {
	b.Helper()
	var wg sync.WaitGroup
	next := make(chan int)
	for range 16 {
		wg.Go(func() {
			for i := range next {
				if err := c.Create(context.Background(), object(i)); err != nil && !apierrors.IsAlreadyExists(err) {
					b.Error(err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

func lines(b *testing.B, name string) int {
	b.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		b.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// kinds counts the requests behind the first ones by what they asked.
func kinds(b *testing.B, name string, skip int) map[string]int {
	b.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		b.Fatal(err)
	}
	all := map[string]int{}
	for n, line := range strings.Split(string(text), "\n") {
		if n >= skip && line != "" {
			var e struct {
				Verb       string `json:"verb"`
				RequestURI string `json:"requestURI"`
			}
			if err := yaml.Unmarshal([]byte(line), &e); err != nil {
				b.Fatal(err)
			}
			all[e.Verb+" "+strings.Split(e.RequestURI, "?")[0]]++
		}
	}
	return all
}

// processor is what a process has used, in seconds (proc_pid_stat(5); the kernel
// counts hundredths).
func processor(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	if err != nil || err2 != nil {
		b.Fatal(err, err2)
	}
	return float64(user+system) / 100
}

// peak is the most memory that a process has had, in bytes.
func peak(b *testing.B, pid int) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return kib << 10
}
