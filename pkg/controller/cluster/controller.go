package cluster

import (
	"context"
	"errors"
	"fmt"
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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/oneboot/oneboot/pkg/api/v1alpha1"
	"github.com/oneboot/oneboot/pkg/fleet"
	"github.com/oneboot/oneboot/pkg/forecast"
	"github.com/oneboot/oneboot/pkg/metrics"
	"github.com/oneboot/oneboot/pkg/osimage"
)

// FieldManager owns what the controller writes.
const FieldManager = "oneboot-controller"

// Inspect reads an image; see [osimage.Image.Inspect].
type Inspect func(ctx context.Context, image string) (*osimage.Inspection, error)

// References are the images that a release image names; see
// [osimage.Image.References].
type References func(ctx context.Context, image string) (map[string]string, error)

// A Controller keeps the custom resources of one cluster.
type Controller struct {
	Manager    manager.Manager
	Inspect    Inspect
	References References
	// Releases are release images beside those that the cluster names.
	Releases []string
	// Collector gets the forecasts.
	Collector *metrics.ForecastCollector

	controller controller.Controller
	recorder   events.EventRecorder
	served     map[schema.GroupVersionKind]bool
	last       time.Time
	failures   map[string]failure
	// releases are the OS images of release images, by the release image: a digest
	// never changes what it names.
	releases map[string]string
}

// between is the least time between two looks at everything.
const between = time.Second

// Setup adds the controller to its manager.
func (c *Controller) Setup() error {
	c.served, c.failures, c.releases = map[schema.GroupVersionKind]bool{}, map[string]failure{}, map[string]string{}
	c.recorder = c.Manager.GetEventRecorder(FieldManager)
	var err error
	if c.controller, err = controller.New("cluster", c.Manager, controller.Options{Reconciler: c, MaxConcurrentReconciles: 1}); err != nil {
		return err
	}
	crds := &metav1.PartialObjectMetadata{}
	crds.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	nodes := &metav1.PartialObjectMetadata{}
	nodes.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Node"})
	for _, o := range []client.Object{crds, nodes, &v1alpha1.OSImage{}, &v1alpha1.FirstbootForecast{}} {
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
	f := &fleet.Fleet{}
	var streams, versions []unstructured.Unstructured
	for gvk := range c.served {
		list, err := c.objects(ctx, gvk)
		if err != nil {
			return reconcile.Result{}, err
		}
		for _, o := range list {
			switch gvk.Kind {
			case "OSImageStream":
				streams = append(streams, o)
				continue
			case "ClusterVersion":
				versions = append(versions, o)
			}
			f.AddObject(o.GetNamespace()+"/"+o.GetName(), o.Object)
		}
	}
	sources, targets := f.Sources()
	for _, p := range f.Problems() {
		log.FromContext(ctx).Info("not read", "object", p.File, "problem", p.Message)
	}
	again, images, err := c.images(ctx, wanted(targets, streams), versions)
	if err != nil {
		return reconcile.Result{}, err
	}
	for _, t := range targets {
		if i := images[digestOf(t.OSImage)]; i != nil {
			t.Image, t.Version = imageOf(i), i.Status.Version
		}
	}
	if err := c.forecasts(ctx, sources, targets); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// wanted are the pull specs that pools and image streams name, with who wants them.
func wanted(targets map[string]*forecast.Target, streams []unstructured.Unstructured) map[string][]string {
	all := map[string][]string{}
	for pool, t := range targets {
		if digestOf(t.OSImage) != "" {
			all[t.OSImage] = append(all[t.OSImage], "pool "+pool)
		}
	}
	for _, s := range streams {
		available, _, _ := unstructured.NestedSlice(s.Object, "status", "availableStreams")
		for _, a := range available {
			m, _ := a.(map[string]any)
			name, _ := m["name"].(string)
			image, _ := m["osImage"].(string)
			if digestOf(image) != "" {
				all[image] = append(all[image], "stream "+name)
			}
		}
	}
	return all
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
	if len(message) > longest {
		message = message[:longest]
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
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
