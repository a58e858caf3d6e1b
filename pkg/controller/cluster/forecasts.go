package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/oneboot/oneboot/pkg/api/v1alpha1"
	"github.com/oneboot/oneboot/pkg/controller/node"
	"github.com/oneboot/oneboot/pkg/forecast"
	"github.com/oneboot/oneboot/pkg/metrics"
)

// forecasts keeps a FirstbootForecast for each source, and no others.
func (c *Controller) forecasts(ctx context.Context, sources []forecast.Source, targets map[string]*forecast.Target) error {
	observed, err := c.observed(ctx)
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	var seen []metrics.Forecast
	for _, s := range sources {
		f := forecast.Of(s, targets[s.Pool])
		name := forecastName(s)
		keep[name] = true
		seen = append(seen, metrics.Forecast{Pool: s.Pool, Outcome: string(f.Outcome)})
		if err := c.forecast(ctx, name, f, observed[s.Pool]); err != nil {
			return err
		}
	}
	c.Collector.Set(seen)
	l := &v1alpha1.FirstbootForecastList{}
	if err := c.Manager.GetCache().List(ctx, l); err != nil {
		return wrap("listing", "FirstbootForecasts", err)
	}
	for n := range l.Items {
		if i := &l.Items[n]; !keep[i.Name] {
			if err := c.Manager.GetClient().Delete(ctx, i, client.Preconditions{UID: &i.UID}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
				return wrap("removing FirstbootForecast", i.Name, err)
			}
		}
	}
	return nil
}

// observed counts the nodes of each pool by what became of their first pivots.
func (c *Controller) observed(ctx context.Context) (map[string]v1alpha1.Observed, error) {
	nodes, err := c.nodes(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]v1alpha1.Observed{}
	for n := range nodes {
		pool, pivot := node.Outcome(&nodes[n])
		o := all[pool]
		switch pivot {
		case metrics.PivotSkipped:
			o.Skipped++
		case metrics.PivotDone:
			o.Done++
		case metrics.PivotUnknown:
			o.Unknown++
		}
		all[pool] = o
	}
	return all, nil
}

func (c *Controller) forecast(ctx context.Context, name string, f forecast.Forecast, observed v1alpha1.Observed) error {
	o := &v1alpha1.FirstbootForecast{}
	err := c.Manager.GetCache().Get(ctx, client.ObjectKey{Name: name}, o)
	if apierrors.IsNotFound(err) {
		o = &v1alpha1.FirstbootForecast{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.FirstbootForecastSpec{Source: v1alpha1.SourceReference{Kind: f.Source.Kind, Namespace: f.Source.Namespace, Name: f.Source.Name}}}
		if err = c.Manager.GetClient().Create(ctx, o, client.FieldOwner(FieldManager)); apierrors.IsAlreadyExists(err) {
			return nil // the cache is behind, and brings it
		}
	}
	if err != nil {
		return wrap("keeping FirstbootForecast", name, err)
	}
	before := o.DeepCopy()
	s := &o.Status
	s.Pool, s.Outcome, s.Reason, s.Confidence = f.Source.Pool, string(f.Outcome), string(f.Reason), string(f.Confidence)
	s.Message, s.Change, s.Bytes, s.Observed, s.OSImage = f.Why, f.Change, f.Bytes, observed, ""
	if f.Target != nil {
		s.OSImage = f.Target.OSImage
	}
	status := map[forecast.Outcome]metav1.ConditionStatus{forecast.Skip: metav1.ConditionTrue, forecast.Unknown: metav1.ConditionUnknown}[f.Outcome]
	if status == "" {
		status = metav1.ConditionFalse
	}
	meta.SetStatusCondition(&s.Conditions, condition(v1alpha1.ConditionWillSkip, status, camel(string(f.Reason)), f.Why))
	if equality.Semantic.DeepEqual(before.Status, o.Status) {
		return nil
	}
	err = c.Manager.GetClient().Status().Patch(ctx, o, client.MergeFrom(before), client.FieldOwner(FieldManager))
	if client.IgnoreNotFound(err) != nil {
		return wrap("keeping the status of FirstbootForecast", name, err)
	}
	if err == nil && before.Status.Outcome != "" && before.Status.Outcome != s.Outcome {
		c.recorder.Eventf(o, nil, corev1.EventTypeNormal, "ForecastChanged", "Forecast", "from %s to %s: %s", before.Status.Outcome, s.Outcome, f.Why)
	}
	return nil
}

// forecastName is by the source; of a long or unusual one by its hash.
func forecastName(s forecast.Source) string {
	name := strings.ToLower(s.Kind)
	for _, part := range []string{s.Namespace, s.Name} {
		if part != "" {
			name += "." + part
		}
	}
	const longest = 200
	if len(name) <= longest {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:longest-20] + "-" + hex.EncodeToString(sum[:8])
}
