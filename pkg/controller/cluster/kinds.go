package cluster

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// watched are the kinds that package fleet reads, and those that name OS images. No
// cluster has all of them.
func watched() []schema.GroupVersionKind {
	kind := func(group, version, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
	}
	return []schema.GroupVersionKind{
		kind("", "v1", "ConfigMap"), // coreos-bootimages alone: see CacheOptions
		kind("machineconfiguration.openshift.io", "v1", "MachineConfigPool"), kind("machineconfiguration.openshift.io", "v1", "MachineConfig"),
		kind("machineconfiguration.openshift.io", "v1", "MachineOSConfig"), kind("machineconfiguration.openshift.io", "v1", "OSImageStream"),
		kind("machine.openshift.io", "v1beta1", "MachineSet"), kind("machine.openshift.io", "v1", "ControlPlaneMachineSet"),
		kind("config.openshift.io", "v1", "ClusterVersion"), kind("metal3.io", "v1alpha1", "BareMetalHost"),
		kind("agent-install.openshift.io", "v1beta1", "InfraEnv"), kind("agent-install.openshift.io", "v1beta1", "AgentServiceConfig"),
		kind("extensions.hive.openshift.io", "v1beta1", "AgentClusterInstall"), kind("hive.openshift.io", "v1", "ClusterImageSet"),
		kind("siteconfig.open-cluster-management.io", "v1alpha1", "ClusterInstance"), kind("hypershift.openshift.io", "v1beta1", "NodePool"),
	}
}

// Strip leaves out of a cached object what nobody reads: a MachineConfig's files are
// most of what a large cluster's objects weigh.
func Strip(o any) (any, error) {
	if m, err := meta.Accessor(o); err == nil {
		m.SetManagedFields(nil)
	}
	if u, ok := o.(*unstructured.Unstructured); ok && u.GetKind() == "MachineConfig" {
		unstructured.RemoveNestedField(u.Object, "spec", "config")
	}
	return o, nil
}

// everything is the one key: all objects are looked at together.
var everything = reconcile.Request{NamespacedName: types.NamespacedName{Name: "everything"}}

func toEverything(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{everything}
}

// watchServed begins to watch the kinds that the API server has come to serve, and
// forgets those that it no longer does.
func (c *Controller) watchServed(ctx context.Context) error {
	for _, gvk := range watched() {
		_, err := c.Manager.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		switch {
		case meta.IsNoMatchError(err) && c.served[gvk]:
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(gvk)
			if err := c.Manager.GetCache().RemoveInformer(ctx, u); err != nil {
				return fmt.Errorf("forgetting %s: %w", gvk.Kind, err)
			}
			delete(c.served, gvk)
		case meta.IsNoMatchError(err), c.served[gvk]:
		case err != nil:
			return fmt.Errorf("looking for %s: %w", gvk.Kind, err)
		default:
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(gvk)
			if err := c.controller.Watch(source.Kind[client.Object](c.Manager.GetCache(), u, handler.EnqueueRequestsFromMapFunc(toEverything))); err != nil {
				return fmt.Errorf("watching %s: %w", gvk.Kind, err)
			}
			c.served[gvk] = true
		}
	}
	return nil
}

// objects are all objects of a kind that is served.
func (c *Controller) objects(ctx context.Context, gvk schema.GroupVersionKind) ([]unstructured.Unstructured, error) {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := c.Manager.GetCache().List(ctx, l); err != nil {
		return nil, fmt.Errorf("listing %s: %w", gvk.Kind, err)
	}
	return l.Items, nil
}

// nodes are the Nodes' metadata.
func (c *Controller) nodes(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	l := &metav1.PartialObjectMetadataList{}
	l.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "NodeList"})
	if err := c.Manager.GetCache().List(ctx, l); err != nil {
		return nil, fmt.Errorf("listing Nodes: %w", err)
	}
	return l.Items, nil
}
