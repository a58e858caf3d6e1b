package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/oneboot/oneboot/pkg/metrics"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// FieldManager owns the annotations.
const FieldManager = "oneboot-node"

// EventNamespace is where the Events of Nodes are.
const EventNamespace = metav1.NamespaceDefault

// nodeKind and machineConfigKind are what is read.
var (
	nodeKind          = schema.GroupVersionKind{Version: "v1", Kind: "Node"}
	machineConfigKind = schema.GroupVersionKind{Group: "machineconfiguration.openshift.io", Version: "v1", Kind: "MachineConfig"}
)

// A Reconciler reports on one node.
type Reconciler struct {
	// Client reads Nodes from a cache and all else from the API server.
	Client client.Client
	// Name is the node's own name.
	Name string
	// Root is where the host's root is mounted.
	Root string
	// Every is how often the host is read.
	Every time.Duration
	// Collector gets what is known.
	Collector *metrics.NodeCollector

	// configImage is what the MachineConfig of that name wants: it never changes
	// under a name.
	configName, configImage string
	// problems is what was last said to be unreadable, so as to say it once.
	problems string
}

// Setup has the manager call the reconciler for its own Node; the manager's cache
// must hold no other.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	// Known before the API server is: a node whose API is away has a record too.
	r.set(readHost(r.Root), nil, "")
	return ctrl.NewControllerManagedBy(mgr).Named("node").
		For(&corev1.Node{}, builder.OnlyMetadata).Complete(r)
}

// Reconcile reads the host, tells the collector and, where it is not there yet,
// writes the annotations and the Event.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req.Name != r.Name {
		return ctrl.Result{}, nil
	}
	n := &metav1.PartialObjectMetadata{}
	n.SetGroupVersionKind(nodeKind)
	if err := r.Client.Get(ctx, req.NamespacedName, n); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	h := readHost(r.Root)
	osImage, err := r.osImage(ctx, h, n)
	if err != nil {
		h.why = append(h.why, err)
	}
	r.complain(ctx, h.why)
	pivot := r.set(h, n, osImage)
	if h.record == nil {
		return ctrl.Result{RequeueAfter: r.Every}, nil
	}
	err = r.report(ctx, h, n, pivot)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		// No use in trying at once again: an older API server's tokens do not name
		// their node.
		r.complain(ctx, append(h.why, err))
		err = nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: r.Every}, nil
}

// complain logs problems that are not those of the last time.
func (r *Reconciler) complain(ctx context.Context, why []error) {
	text := ""
	if err := errors.Join(why...); err != nil {
		text = err.Error()
	}
	if text != r.problems && text != "" {
		log.FromContext(ctx).Info("something is not known", "problem", text)
	}
	r.problems = text
}

// set hands what is known to the collector. Without a Node little is.
func (r *Reconciler) set(h host, n *metav1.PartialObjectMetadata, osImage string) metrics.PivotState {
	s := metrics.Node{State: h.state, Record: h.record, Pivot: metrics.PivotUnknown, Hold: holds(h, osImage), JoinSeconds: -1}
	if n != nil {
		s.Pool, s.Pivot, s.JoinSeconds = pool(n), pivotOf(h, n), joinSeconds(h, n)
	}
	r.Collector.Set(s)
	return s.Pivot
}

// osImage is the image that the node's current MachineConfig wants: by the
// host's own file, and where the machine-config-daemon has not written that yet,
// by the API. It is empty while the node is being updated.
func (r *Reconciler) osImage(ctx context.Context, h host, n *metav1.PartialObjectMetadata) (string, error) {
	name := n.Annotations[mcoCurrentConfig]
	switch {
	case !settled(n):
		return "", nil
	case h.configName == name:
		return h.osImage, nil
	case h.configName != "":
		return "", fmt.Errorf("the host has finished MachineConfig %s, and the Node says %s", h.configName, name)
	case r.configName == name:
		return r.configImage, nil
	}
	mc := &unstructured.Unstructured{}
	mc.SetGroupVersionKind(machineConfigKind)
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, mc)
	if meta.IsNoMatchError(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading MachineConfig %s: %w", name, err)
	}
	image, _, err := unstructured.NestedString(mc.Object, "spec", "osImageURL")
	if err != nil {
		return "", fmt.Errorf("reading MachineConfig %s: %w", name, err)
	}
	r.configName, r.configImage = name, image
	return image, nil
}

// report writes the Event and then the annotations, which say that it is there.
func (r *Reconciler) report(ctx context.Context, h host, n *metav1.PartialObjectMetadata, pivot metrics.PivotState) error {
	want := annotations(h, pivot)
	if want[annotationBoot] == "" {
		// Without the decision's boot nothing says later that this was reported.
		return nil
	}
	if n.Annotations[annotationBoot] != want[annotationBoot] {
		if err := r.event(ctx, h, n, pivot); err != nil {
			return err
		}
	}
	is := map[string]string{}
	for k := range want {
		if v, ok := n.Annotations[k]; ok {
			is[k] = v
		}
	}
	left := stale(n, want)
	if maps.Equal(is, want) && len(left) == 0 {
		return nil
	}
	// The uid keeps it from making a Node, or from annotating a new one of that name.
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": n.Name, "uid": string(n.UID)}}}
	u.SetGroupVersionKind(nodeKind)
	u.SetAnnotations(want)
	err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(FieldManager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("annotating Node %s: %w", n.Name, err)
	}
	return r.remove(ctx, n, left)
}

// remove takes annotations away. Applying leaves those that somebody else has set too:
// the kubelet the node's first ones.
func (r *Reconciler) remove(ctx context.Context, n *metav1.PartialObjectMetadata, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	none := map[string]any{}
	for _, k := range keys {
		none[k] = nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": n.UID, "annotations": none}})
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(nodeKind)
	u.SetName(n.Name)
	if err := r.Client.Patch(ctx, u, client.RawPatch(types.MergePatchType, body), client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("removing annotations of Node %s: %w", n.Name, err)
	}
	return nil
}

// event makes the one Event of a decision. Its name is the decision's, so that a
// second try makes no second one.
func (r *Reconciler) event(ctx context.Context, h host, n *metav1.PartialObjectMetadata, pivot metrics.PivotState) error {
	sum := sha256.Sum256([]byte(h.record.BootID))
	now := metav1.Now()
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: EventNamespace, Name: n.Name + ".oneboot-" + hex.EncodeToString(sum[:8])},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID},
		Source:         corev1.EventSource{Component: FieldManager, Host: n.Name},
		FirstTimestamp: now, LastTimestamp: now, Count: 1, Type: corev1.EventTypeNormal,
	}
	e.Reason, e.Message = words(h, pivot)
	if err := r.Client.Create(ctx, e, client.FieldOwner(FieldManager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("writing the Event of Node %s: %w", n.Name, err)
	}
	return nil
}

// words are an Event's reason and message.
func words(h host, pivot metrics.PivotState) (reason, message string) {
	v := h.record.Verdict
	word := func(s string) string {
		if !shown(s) {
			return "what the record does not say in a word"
		}
		return s
	}
	what := "oneboot decided to proceed: " + word(string(v.Reason))
	if v.Action == verdict.Skip {
		what = "oneboot proved by " + word(string(v.Proof)) + " that the booted OS is the wanted one"
	}
	switch pivot {
	case metrics.PivotSkipped:
		return "FirstPivotSkipped", what + "; the node joined in that boot"
	case metrics.PivotDone:
		return "FirstPivotDone", what + "; the node booted again before it joined"
	case metrics.PivotUnknown:
	}
	return "FirstPivotUnknown", what + "; whether the node booted again before it joined is not known"
}

// errNoName is what a deployment without a node name gets.
var errNoName = errors.New("the node's name is not known: set --node-name, or NODE_NAME from spec.nodeName")

// Check returns an error where the reconciler cannot work.
func (r *Reconciler) Check() error {
	if r.Name == "" {
		return errNoName
	}
	return nil
}
