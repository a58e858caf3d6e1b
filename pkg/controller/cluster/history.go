package cluster

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/oneboot/oneboot/pkg/api/v1alpha1"
	"github.com/oneboot/oneboot/pkg/controller/node"
	"github.com/oneboot/oneboot/pkg/forecast"
	"github.com/oneboot/oneboot/pkg/metrics"
)

// A join is a node whose first pivot went one way or the other.
type join struct {
	made    time.Time
	skipped bool
}

// joins are what the nodes' annotations say of their first pivots.
type joins struct {
	// observed is by pool.
	observed map[string]v1alpha1.Observed
	// bySource has the nodes of each source that can be told, by its forecast's name.
	bySource map[string][]join
}

// machineAnnotation names a node's Machine, as NAMESPACE/NAME (machine-api-operator,
// pkg/controller/nodelink).
const machineAnnotation = "machine.openshift.io/machine"

// history sorts the nodes by where they are from.
func history(nodes []metav1.PartialObjectMetadata, sources []forecast.Source) joins {
	all := joins{observed: map[string]v1alpha1.Observed{}, bySource: map[string][]join{}}
	perPool, sets := map[string][]forecast.Source{}, map[string]forecast.Source{}
	for _, s := range sources {
		perPool[s.Pool] = append(perPool[s.Pool], s)
		if s.Kind == "MachineSet" {
			sets[s.Namespace+"/"+s.Name] = s
		}
	}
	for n := range nodes {
		pool, pivot := node.Outcome(&nodes[n])
		o := all.observed[pool]
		switch pivot {
		case metrics.PivotSkipped:
			o.Skipped++
		case metrics.PivotDone:
			o.Done++
		case metrics.PivotUnknown:
			o.Unknown++
		}
		all.observed[pool] = o
		if pivot != metrics.PivotSkipped && pivot != metrics.PivotDone {
			continue
		}
		// A Machine is called like its set, and a word that the API server made up.
		machine := nodes[n].Annotations[machineAnnotation]
		s, known := sets[machine[:max(0, strings.LastIndexByte(machine, '-'))]]
		if of := perPool[pool]; !known && len(of) == 1 {
			s, known = of[0], true
		}
		if known {
			name := forecastName(s)
			all.bySource[name] = append(all.bySource[name], join{nodes[n].CreationTimestamp.Time, pivot == metrics.PivotSkipped})
		}
	}
	return all
}

// since counts the nodes of a source that were made after a time, by whether they did
// what is forecast. Of an outcome that promises neither it counts none.
func (j joins) since(f forecast.Forecast, since time.Time) (cameTrue, cameOtherwise int32) {
	if f.Outcome == forecast.Unknown || f.Outcome == forecast.Impossible {
		return 0, 0
	}
	for _, n := range j.bySource[forecastName(f.Source)] {
		switch {
		case !n.made.After(since):
		case n.skipped == (f.Outcome == forecast.Skip):
			cameTrue++
		default:
			cameOtherwise++
		}
	}
	return cameTrue, cameOtherwise
}
