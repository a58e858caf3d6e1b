//go:build kube

package kube

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/oneboot/oneboot/pkg/api/v1alpha1"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// withStatus creates an object with the status that it has.
func (c *cluster) withStatus(t testing.TB, text string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	status := u.DeepCopy()
	delete(u.Object, "status")
	if err := c.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	status.SetResourceVersion(u.GetResourceVersion())
	if err := c.Status().Update(t.Context(), status); err != nil {
		t.Fatal(err)
	}
}

// release pushes a release image that names an OS image, and what belongs to it.
func (s *site) release(t testing.TB, version string, os *nativeimage.Image, kernel string) (release, extensions, toolkit string) {
	t.Helper()
	dir := t.TempDir()
	e, err := nativeimage.BuildExtensions(dir, nativeimage.ExtensionsOptions{Packages: []nativeimage.RPM{{Name: "usbguard", Version: "1.0.0", Release: "15.el9", Arch: "x86_64"}}})
	extensions = s.push(t, "extensions", e, err)
	file := func(name, content string) nativeimage.DerivedLayer {
		return nativeimage.DerivedLayer{Files: map[string]sysroot.File{name: {Content: content}}}
	}
	m, err := nativeimage.Derive(dir, os, map[string]string{"kernel-version": kernel}, file("etc/motd", version))
	toolkit = s.push(t, "toolkit", m, err)
	refs := ""
	for name, image := range map[string]string{"rhel-coreos": s.reg.Reference("os", os.Digest), "rhel-coreos-extensions": extensions, "driver-toolkit": toolkit} {
		refs += fmt.Sprintf(`,{"name":%q,"from":{"kind":"DockerImage","name":%q}}`, name, image)
	}
	m, err = nativeimage.Derive(dir, os, map[string]string{"io.openshift.release": version}, file("release-manifests/image-references", `{"kind":"ImageStream","spec":{"tags":[`+refs[1:]+`]}}`))
	return s.push(t, "release", m, err), extensions, toolkit
}

// TestControllerReleases: the extensions and the driver-toolkit of the cluster's release
// and of an available update are read once, ever, through the cluster's mirrors.
func TestControllerReleases(t *testing.T) {
	c, s := newCluster(t, "controller/openshift"), newSite(t)
	k := c.typed(t)
	now, extensions, _ := s.release(t, "4.16.3", s.base, strings.TrimSuffix(sysroot.DefaultKernel, ".x86_64"))
	update, _, _ := s.release(t, "4.16.4", s.next, "5.14.0-1.el9")
	// As a disconnected cluster has it: its objects name a registry that nobody reaches.
	away := func(pullSpec string) string { return strings.Replace(pullSpec, s.reg.Host, "release.invalid/ocp", 1) }
	c.object(t, fmt.Sprintf("apiVersion: config.openshift.io/v1\nkind: ImageDigestMirrorSet\nmetadata: {name: ocp}\nspec: {imageDigestMirrors: [{source: release.invalid/ocp, mirrors: [%q], mirrorSourcePolicy: NeverContactSource}]}\n", s.reg.Host))
	c.object(t, fmt.Sprintf("apiVersion: operator.openshift.io/v1alpha1\nkind: ImageContentSourcePolicy\nmetadata: {name: old}\nspec: {repositoryDigestMirrors: [{source: registry.invalid, mirrors: [%q]}]}\n", s.reg.Host))
	c.pool(t, strings.Replace(s.reg.Reference("os", s.base.Digest), s.reg.Host, "registry.invalid", 1))
	c.withStatus(t, fmt.Sprintf(`apiVersion: config.openshift.io/v1
kind: ClusterVersion
metadata: {name: version}
spec: {clusterID: 6d7cb8d8-8a7c-4b0e-9d3a-1f0f4a3f0a10}
status:
  desired: {version: 4.16.3, image: %q}
  availableUpdates: [{version: 4.16.4, image: %q}]
  observedGeneration: 1
  versionHash: x
`, away(now), away(update)))
	// The refs in the release images are the registry's own.
	r := c.controller(t, s)
	have := func(digest, user, sameKernel string) *v1alpha1.OSImage {
		t.Helper()
		o := &v1alpha1.OSImage{}
		eventually(t, "the OSImage of "+user, func() (string, bool) {
			err := k.Get(t.Context(), client.ObjectKey{Name: strings.ReplaceAll(digest, ":", "-")}, o)
			e, d := o.Status.Extensions, o.Status.DriverToolkit
			return fmt.Sprintf("%v, %+v, extensions %+v, driver-toolkit %+v", err, o.Status, e, d),
				err == nil && o.Status.UsedBy == user && e != nil && e.Read && d != nil && d.Read && d.SameKernel == sameKernel
		})
		return o
	}
	o := have(s.base.Digest, "pool worker, release 4.16.3", "same")
	if e := o.Status.Extensions; e.Image != extensions || len(e.Shipped) != 1 || e.Shipped[0].Name != "usbguard" || e.Shipped[0].Packages[0] != "usbguard-1.0.0-15.el9.x86_64" || len(e.Missing) < 5 {
		t.Errorf("the extensions are %+v", e)
	}
	have(s.next.Digest, "update 4.16.4", "differs")

	r.stop(t)
	s.reg.ResetRequests()
	c.controller(t, s)
	c.ensureNamespace(t, "openshift-machine-api")
	c.object(t, machineSet)
	forecasted(t, k, "machineset.openshift-machine-api.w", "pivot-full")
	have(s.next.Digest, "update 4.16.4", "differs")
	if n := len(s.reg.Requests()); n != 0 {
		t.Errorf("%d requests after a restart", n)
	}
}

const (
	awsMachineSet = `apiVersion: machine.openshift.io/v1beta1
kind: MachineSet
metadata: {name: w, namespace: openshift-machine-api}
spec: {template: {spec: {providerSpec: {value: {kind: AWSMachineProviderConfig, ami: {id: ami-0123}, userDataSecret: {name: worker-user-data}}}}}}
`
	bootimages = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: coreos-bootimages, namespace: openshift-machine-config-operator}\ndata: {stream: %q}\n"
	awsStream  = `{"stream": "rhel-9", "metadata": {"last-modified": "2026-01-01T00:00:00Z"}, "architectures": {"x86_64": {"images": {"aws": {"regions": {"eu-west-1": {"release": "VERSION", "image": "ami-0123"}}}}}}}`
)

// TestControllerHistory: what nodes have booted first says what is in a disk image, and
// what became of their pivots says how often a forecast came true.
func TestControllerHistory(t *testing.T) {
	c, s := newCluster(t, "controller/openshift"), newSite(t)
	k := c.typed(t)
	c.ensureNamespace(t, "openshift-machine-api")
	c.pool(t, s.reg.Reference("os", s.base.Digest))
	const name, version = "machineset.openshift-machine-api.w", sysroot.DefaultVersion
	c.ensureNamespace(t, "openshift-machine-config-operator")
	c.object(t, fmt.Sprintf(bootimages, strings.ReplaceAll(awsStream, "VERSION", version)))
	c.object(t, awsMachineSet)
	r := c.controller(t, s)
	forecasted(t, k, name, "unknown")
	nodes := 0
	node := func(machine string, annotations map[string]string) {
		t.Helper()
		all := map[string]string{"machineconfiguration.openshift.io/currentConfig": "rendered-worker-1", "machine.openshift.io/machine": machine}
		for key, value := range annotations {
			all["oneboot.dev/"+key] = value
		}
		nodes++
		n := fmt.Sprintf("n%d", nodes)
		c.addNodeAlone(t, n, all)
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": n}}}
		if err := c.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"kubernetes.io/arch":"amd64"}}}`))); err != nil {
			t.Fatal(err)
		}
	}
	booted := func(commit, layers, pivot string) map[string]string {
		return map[string]string{"booted-version": version, "booted-commit": commit, "booted-layers": layers, "pivot": pivot}
	}
	// A node image has its base's version, and says nothing of a disk image of that.
	node("openshift-machine-api/other-abcde", booted(s.base.Commit, "3", "done"))
	node("openshift-machine-api/w-abcde", booted(s.base.Commit, "0", "skipped"))
	f := forecasted(t, k, name, "skip")
	if f.Status.Confidence != "exact" || f.Status.Reason != "same-content" {
		t.Errorf("the forecast is %+v", f.Status)
	}
	counted := func(cameTrue, otherwise int32) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d as forecast and %d otherwise", cameTrue, otherwise), func() (string, bool) {
			err := k.Get(t.Context(), client.ObjectKey{Name: name}, f)
			return fmt.Sprintf("%v, %+v", err, f.Status), err == nil && f.Status.CameTrue == cameTrue && f.Status.CameOtherwise == otherwise
		})
	}
	// The API server's times are in seconds.
	eventually(t, "the next second", func() (string, bool) {
		now := metav1.Now()
		return now.String(), now.Sub(f.Status.OutcomeSince.Time) > 2e9
	})
	node("openshift-machine-api/w-fghij", booted(s.base.Commit, "0", "skipped"))
	node("openshift-machine-api/w-klmno", booted(s.base.Commit, "0", "skipped"))
	node("openshift-machine-api/w-pqrst", booted(s.base.Commit, "0", "done"))
	node("openshift-machine-api/w-uvwxy", booted(s.base.Commit, "0", "unknown"))
	counted(2, 1)
	r.measured(t, c.reader(t, "oneboot-controller-metrics-reader"), `oneboot_forecast_nodes{pool="worker",result="as-forecast"} 2`)
	r.measured(t, c.reader(t, "oneboot-controller-metrics-reader"), `oneboot_forecast_nodes{pool="worker",result="otherwise"} 1`)
	// Another node says that this version has other content: nothing is known.
	node("openshift-machine-api/w-zzzzz", booted(s.next.Commit, "0", "done"))
	forecasted(t, k, name, "unknown")
	counted(0, 0)
}
