package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/oneboot/oneboot/pkg/api/v1alpha1"
	"github.com/oneboot/oneboot/pkg/fleet"
	"github.com/oneboot/oneboot/pkg/forecast"
	"github.com/oneboot/oneboot/pkg/metrics"
)

// FieldManager owns what the controller writes.
const FieldManager = "oneboot-controller"

// A Controller keeps the custom resources of one cluster.
type Controller struct {
	Manager  manager.Manager
	Registry Registry
	// Releases are release images beside those that the cluster names.
	Releases []string
	// Collector gets the forecasts.
	Collector *metrics.ForecastCollector

	controller controller.Controller
	recorder   events.EventRecorder
	served     map[schema.GroupVersionKind]bool
	crdsSeen   string
	last       time.Time
	failures   map[string]failure
	// releases are what release images name: a digest never changes what it names.
	releases map[string][]image
	// readUntil is when this look begins to read no further image.
	readUntil time.Time
}

// between is the least time between two looks at everything.
const between = time.Second

// Setup adds the controller to its manager.
func (c *Controller) Setup() error {
	c.served, c.failures, c.releases = map[schema.GroupVersionKind]bool{}, map[string]failure{}, map[string][]image{}
	c.recorder = c.Manager.GetEventRecorder(FieldManager)
	var err error
	if c.controller, err = controller.New("cluster", c.Manager, controller.Options{Reconciler: c, MaxConcurrentReconciles: 1}); err != nil {
		return err
	}
	// The kubelet writes each Node's status every few minutes, and none of that is
	// read here.
	told := predicate.Or[client.Object](predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})
	crds := &metav1.PartialObjectMetadata{}
	crds.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	nodes := &metav1.PartialObjectMetadata{}
	nodes.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Node"})
	if err := c.controller.Watch(source.Kind[client.Object](c.Manager.GetCache(), nodes, handler.EnqueueRequestsFromMapFunc(toEverything), told)); err != nil {
		return err
	}
	for _, o := range []client.Object{crds, &v1alpha1.OSImage{}, &v1alpha1.FirstbootForecast{}} {
		if err := c.controller.Watch(source.Kind(c.Manager.GetCache(), o, handler.EnqueueRequestsFromMapFunc(toEverything))); err != nil {
			return err
		}
	}
	return nil
}

// Reconcile looks at everything.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	// Many objects change at once; they are looked at once.
	if wait := between - time.Since(c.last); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	c.last = time.Now()
	if err := c.watchServed(ctx); err != nil {
		return reconcile.Result{}, err
	}
	nodes, err := c.nodes(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	f := &fleet.Fleet{Bootimages: learned(nodes)}
	others := map[string][]unstructured.Unstructured{}
	for gvk := range c.served {
		list, err := c.objects(ctx, gvk)
		if err != nil {
			return reconcile.Result{}, err
		}
		for _, o := range list {
			if !slices.Contains(fleet.Kinds(), gvk.Kind) || gvk.Kind == kindClusterVersion {
				others[gvk.Kind] = append(others[gvk.Kind], o)
			}
			f.AddObject(o.GetNamespace()+"/"+o.GetName(), o.Object)
		}
	}
	sources, targets := f.Sources()
	for _, p := range f.Problems() {
		log.FromContext(ctx).Info("not read", "object", p.File, "problem", p.Message)
	}
	c.Registry.mirrors = mirrors(append(others["ImageDigestMirrorSet"], others["ImageContentSourcePolicy"]...))
	return c.look(ctx, &looked{sources: sources, targets: targets, nodes: nodes, streams: others[kindOSImageStream], versions: others[kindClusterVersion]})
}

// A looked is what one look has found.
type looked struct {
	sources           []forecast.Source
	targets           map[string]*forecast.Target
	nodes             []metav1.PartialObjectMetadata
	streams, versions []unstructured.Unstructured
}

// look keeps the objects: with what is known first, and then it reads images.
func (c *Controller) look(ctx context.Context, l *looked) (reconcile.Result, error) {
	var again time.Duration
	for _, reading := range []time.Duration{0, lookTime} {
		c.readUntil = time.Now().Add(reading)
		want := wanted(l.targets, l.streams)
		wait, err := c.addReleases(ctx, want, l.versions)
		if err != nil {
			return reconcile.Result{}, err
		}
		waitImage, images, err := c.images(ctx, want)
		if err != nil {
			return reconcile.Result{}, err
		}
		again = sooner(wait, waitImage)
		for _, t := range l.targets {
			if i := images[digestOf(t.OSImage)]; i != nil {
				t.Image, t.Version = imageOf(i), i.Status.Version
			}
		}
		if err := c.forecasts(ctx, l); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// errNotReady is for a check of readiness.
var errNotReady = errors.New("the objects were not looked at yet")

// Ready is a check of readiness.
func (c *Controller) Ready() error {
	if c.controller == nil {
		return errNotReady
	}
	return nil
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	const longest = 1024
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: upTo(message, longest)}
}

// camel makes a reason of a condition of a code such as registry-unreachable.
func camel(code string) string {
	out, up := "", true
	for _, r := range code {
		switch {
		case r == '-':
			up = true
		case up:
			out += string(r - 'a' + 'A')
			up = false
		default:
			out += string(r)
		}
	}
	if out == "" {
		return "Unknown"
	}
	return out
}

func wrap(what, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", what, name, err)
}
