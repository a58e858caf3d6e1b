package clustermanifests

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The controller's pod keeps to what a restricted namespace allows, and its account
// reads no Secret.
func TestControllerPod(t *testing.T) {
	for _, overlay := range []string{"openshift", "kubernetes"} {
		t.Run(overlay, func(t *testing.T) {
			all, err := Render("../../manifests/controller/" + overlay)
			if err != nil {
				t.Fatal(err)
			}
			var ds appsv1.Deployment
			strict(t, find(t, all, "Deployment", "oneboot-controller"), &ds)
			pod := ds.Spec.Template.Spec
			c := pod.Containers[0].SecurityContext
			if len(pod.Containers) != 1 || c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem ||
				!slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || !*pod.SecurityContext.RunAsNonRoot || pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("the pod may more than a restricted namespace allows: %+v, %+v", pod.SecurityContext, c)
			}
			secrets := 0
			for _, v := range pod.Volumes {
				if v.HostPath != nil {
					t.Errorf("it mounts %s of the host", v.HostPath.Path)
				}
				if v.Secret != nil {
					secrets++
				}
			}
			if secrets != 1 {
				t.Errorf("it mounts %d secrets; want the pull secret alone", secrets)
			}
			for _, u := range all {
				if !strings.HasSuffix(u.GetKind(), "Role") {
					continue
				}
				var role rbacv1.ClusterRole
				strict(t, &unstructured.Unstructured{Object: u.Object}, &role)
				for _, r := range role.Rules {
					if slices.Contains(r.Resources, "secrets") || slices.Contains(r.Verbs, "*") || slices.Contains(r.Resources, "*") || slices.Contains(r.APIGroups, "*") {
						t.Errorf("%s allows %v on %v", u.GetName(), r.Verbs, r.Resources)
					}
				}
			}
		})
	}
}
