package cluster

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/oneboot/oneboot/pkg/osimage"
)

// mirrors are those of ImageDigestMirrorSets and of the older
// ImageContentSourcePolicies, merged by source: in the order of the objects' names,
// each mirror once; the source is asked unless one of them says never.
func mirrors(sets []unstructured.Unstructured) []osimage.Mirror {
	slices.SortFunc(sets, func(a, b unstructured.Unstructured) int {
		return slices.Compare([]string{a.GetName(), a.GetKind()}, []string{b.GetName(), b.GetKind()})
	})
	all := map[string]*osimage.Mirror{}
	for _, s := range sets {
		entries, _, _ := unstructured.NestedSlice(s.Object, "spec", "imageDigestMirrors")
		if s.GetKind() == "ImageContentSourcePolicy" {
			entries, _, _ = unstructured.NestedSlice(s.Object, "spec", "repositoryDigestMirrors")
		}
		for _, e := range entries {
			m, _ := e.(map[string]any)
			source, _ := m["source"].(string)
			if source == "" {
				continue
			}
			if all[source] == nil {
				all[source] = &osimage.Mirror{Source: source}
			}
			locations, _, _ := unstructured.NestedStringSlice(m, "mirrors")
			for _, l := range locations {
				if !slices.Contains(all[source].Mirrors, l) {
					all[source].Mirrors = append(all[source].Mirrors, l)
				}
			}
			if policy, _ := m["mirrorSourcePolicy"].(string); policy == "NeverContactSource" {
				all[source].Only = true
			}
		}
	}
	var out []osimage.Mirror
	for _, source := range slices.Sorted(maps.Keys(all)) {
		out = append(out, *all[source])
	}
	return out
}
