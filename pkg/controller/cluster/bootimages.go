package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/oneboot/oneboot/pkg/controller/node"
	"github.com/oneboot/oneboot/pkg/fleet"
	"github.com/oneboot/oneboot/pkg/forecast"
)

// learned are the contents of OS versions that nodes have booted on their first boots,
// as their annotations say. A version that two nodes have seen with different contents
// tells nothing.
//
// Only an OS without layers of its own counts: since 4.19 the node image has the
// version of its base, which is what a stock disk image has.
func learned(nodes []metav1.PartialObjectMetadata) fleet.Table {
	all, torn := fleet.Table{}, map[string]bool{}
	for n := range nodes {
		b, ok := node.FirstBooted(&nodes[n])
		if !ok {
			continue
		}
		key := b.Version + "/" + b.Architecture
		content := forecast.Content{Commit: b.Commit}
		if have, seen := all[key]; seen && have != content {
			torn[key] = true
		}
		all[key] = content
	}
	for key := range torn {
		delete(all, key)
	}
	return all
}
