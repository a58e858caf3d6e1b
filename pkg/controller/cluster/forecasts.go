package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/oneboot/oneboot/pkg/api/v1alpha1"
	"github.com/oneboot/oneboot/pkg/forecast"
	"github.com/oneboot/oneboot/pkg/metrics"
)

// forecasts keeps a FirstbootForecast for each source, and no others.
func (c *Controller) forecasts(ctx context.Context, l *looked) error {
	seen := history(l.nodes, l.sources)
	keep := map[string]bool{}
	var all []metrics.Forecast
	for _, s := range l.sources {
		f := forecast.Of(s, l.targets[s.Pool])
		name := forecastName(s)
		keep[name] = true
		m := metrics.Forecast{Pool: s.Pool, Outcome: string(f.Outcome)}
		var err error
		if m.CameTrue, m.CameOtherwise, err = c.forecast(ctx, name, f, seen); err != nil {
			return err
		}
		all = append(all, m)
	}
	c.Collector.Set(all)
	list := &v1alpha1.FirstbootForecastList{}
	if err := c.Manager.GetCache().List(ctx, list); err != nil {
		return wrap("listing", "FirstbootForecasts", err)
	}
	for n := range list.Items {
		if i := &list.Items[n]; !keep[i.Name] {
			if err := c.Manager.GetClient().Delete(ctx, i, client.Preconditions{UID: &i.UID}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
				return wrap("removing FirstbootForecast", i.Name, err)
			}
		}
	}
	return nil
}

// forecast keeps one FirstbootForecast, and says how often it came true.
func (c *Controller) forecast(ctx context.Context, name string, f forecast.Forecast, seen joins) (cameTrue, cameOtherwise int, err error) {
	o := &v1alpha1.FirstbootForecast{}
	err = c.Manager.GetCache().Get(ctx, client.ObjectKey{Name: name}, o)
	if apierrors.IsNotFound(err) {
		o = &v1alpha1.FirstbootForecast{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.FirstbootForecastSpec{Source: v1alpha1.SourceReference{Kind: f.Source.Kind, Namespace: f.Source.Namespace, Name: f.Source.Name}}}
		if err = c.Manager.GetClient().Create(ctx, o, client.FieldOwner(FieldManager)); apierrors.IsAlreadyExists(err) {
			return 0, 0, nil // the cache is behind, and brings it
		}
	}
	if err != nil {
		return 0, 0, wrap("keeping FirstbootForecast", name, err)
	}
	before := o.DeepCopy()
	s := &o.Status
	if s.OutcomeSince == nil || s.Outcome != string(f.Outcome) {
		// As the API server keeps it: in seconds.
		now := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
		s.OutcomeSince = &now
	}
	s.Pool, s.Outcome, s.Reason, s.Confidence = f.Source.Pool, string(f.Outcome), string(f.Reason), string(f.Confidence)
	s.Message, s.Change, s.Bytes, s.Observed, s.OSImage = f.Why, f.Change, f.Bytes, seen.observed[f.Source.Pool], ""
	s.CameTrue, s.CameOtherwise = seen.since(f, s.OutcomeSince.Time)
	if f.Target != nil {
		s.OSImage = f.Target.OSImage
	}
	status := map[forecast.Outcome]metav1.ConditionStatus{forecast.Skip: metav1.ConditionTrue, forecast.Unknown: metav1.ConditionUnknown}[f.Outcome]
	if status == "" {
		status = metav1.ConditionFalse
	}
	meta.SetStatusCondition(&s.Conditions, condition(v1alpha1.ConditionWillSkip, status, camel(string(f.Reason)), f.Why))
	if equality.Semantic.DeepEqual(before.Status, o.Status) {
		return int(s.CameTrue), int(s.CameOtherwise), nil
	}
	err = c.Manager.GetClient().Status().Patch(ctx, o, client.MergeFrom(before), client.FieldOwner(FieldManager))
	if client.IgnoreNotFound(err) != nil {
		return 0, 0, wrap("keeping the status of FirstbootForecast", name, err)
	}
	if err == nil && before.Status.Outcome != "" && before.Status.Outcome != s.Outcome {
		// Without the version of the object, Events of one that flaps become a series.
		o.ResourceVersion = ""
		c.recorder.Eventf(o, nil, corev1.EventTypeNormal, "ForecastChanged", "Forecast", "from %s to %s: %s", before.Status.Outcome, s.Outcome, f.Why)
	}
	return int(s.CameTrue), int(s.CameOtherwise), nil
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
