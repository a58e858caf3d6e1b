package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

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

// Kinds that package fleet does not read, or not for this.
const (
	kindClusterVersion = "ClusterVersion"
	kindOSImageStream  = "OSImageStream"
)

// watched are the kinds that package fleet reads, those that name OS images and those
// that say where images are mirrored. No cluster has all of them.
func watched() []schema.GroupVersionKind {
	kind := func(group, version, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
	}
	return []schema.GroupVersionKind{
		kind("", "v1", "ConfigMap"), // coreos-bootimages alone: see CacheOptions
		kind("machineconfiguration.openshift.io", "v1", "MachineConfigPool"), kind("machineconfiguration.openshift.io", "v1", "MachineConfig"),
		kind("machineconfiguration.openshift.io", "v1", "MachineOSConfig"), kind("machineconfiguration.openshift.io", "v1", kindOSImageStream),
		kind("machine.openshift.io", "v1beta1", "MachineSet"), kind("machine.openshift.io", "v1", "ControlPlaneMachineSet"),
		kind("config.openshift.io", "v1", kindClusterVersion), kind("metal3.io", "v1alpha1", "BareMetalHost"),
		kind("agent-install.openshift.io", "v1beta1", "InfraEnv"), kind("agent-install.openshift.io", "v1beta1", "AgentServiceConfig"),
		kind("extensions.hive.openshift.io", "v1beta1", "AgentClusterInstall"), kind("hive.openshift.io", "v1", "ClusterImageSet"),
		kind("siteconfig.open-cluster-management.io", "v1alpha1", "ClusterInstance"), kind("hypershift.openshift.io", "v1beta1", "NodePool"),
		kind("config.openshift.io", "v1", "ImageDigestMirrorSet"), kind("operator.openshift.io", "v1alpha1", "ImageContentSourcePolicy"),
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
// forgets those that it no longer does. It asks the API server only when a CRD has
// changed: for a kind that is not there the mapper asks each time.
func (c *Controller) watchServed(ctx context.Context) error {
	crds, err := c.crds(ctx)
	if err != nil || crds == c.crdsSeen {
		return err
	}
	if err := c.watchNew(ctx); err != nil {
		return err
	}
	c.crdsSeen = crds
	return nil
}

// crds identifies all CRDs as they are now.
func (c *Controller) crds(ctx context.Context) (string, error) {
	l := &metav1.PartialObjectMetadataList{}
	l.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinitionList"})
	if err := c.Manager.GetCache().List(ctx, l); err != nil {
		return "", fmt.Errorf("listing CustomResourceDefinitions: %w", err)
	}
	var all []string
	for _, d := range l.Items {
		all = append(all, d.Name+"@"+d.ResourceVersion)
	}
	slices.Sort(all)
	return strings.Join(all, " "), nil
}

func (c *Controller) watchNew(ctx context.Context) error {
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
