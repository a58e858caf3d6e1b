package fleet

import "testing"

func FuzzAdd(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: List\nitems:\n- kind: MachineSet\n  metadata: {name: a}\n  spec:\n    template: {}\n- kind: Pod\nmetadata: {}\n"))
	f.Add([]byte("---\nkind: InfraEnv\nspec: {clusterRef: {name: a}}\n---\nkind: AgentClusterInstall\nmetadata: {name: a}\nspec: {imageSetRef: {name: x}}\n"))
	f.Add([]byte(`{"kind":"List","items":[{"kind":"NodePool","spec":{"release":{"image":"q/r:4.18.2-multi"}}}]}`))
	f.Add([]byte("kind: SiteConfig\nspec: {clusters: [{clusterName: a}]}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var fl Fleet
		fl.Add("f", b)
		sources, targets := fl.Sources()
		for _, s := range sources {
			if s.Kind == "" || s.File != "f" {
				t.Errorf("a source of nothing: %+v", s)
			}
		}
		for pool, target := range targets {
			if target == nil || target.Pool != pool {
				t.Errorf("a target of nothing: %q, %+v", pool, target)
			}
		}
	})
}
