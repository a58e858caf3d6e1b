// Package clustermanifests renders what an admin applies to a cluster, as
// kubectl apply -k does, and checks it: its kinds and fields, its alerts, that
// they use no metric that there is not.
package clustermanifests

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Render builds a kustomization folder and returns its objects in the order in
// which they are to be applied.
func Render(dir string) ([]*unstructured.Unstructured, error) {
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy
	m, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", dir, err)
	}
	var all []*unstructured.Unstructured
	for _, r := range m.Resources() {
		object, err := r.Map()
		if err != nil {
			return nil, fmt.Errorf("rendering %s: %s: %w", dir, r.CurId(), err)
		}
		all = append(all, &unstructured.Unstructured{Object: object})
	}
	return all, nil
}
