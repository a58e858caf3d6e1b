package rpmostree

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/oneboot/oneboot/pkg/verdict"
)

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	for _, s := range []string{
		"", "null", "[]", "{}", `{"deployments":null}`, `{"deployments":[]}`, `{"deployments":[{"booted":true}]}`,
		`{"deployments":[{"osname":"a","checksum":"` + string(sum("a")) + `","serial":0,"booted":true,"base-removals":[["a-1-1.noarch","a",0,"1","1","noarch"]],"packages":["b","a"]}]}`,
		`{"deployments":[{"osname":"a","checksum":"x","serial":1e9,"booted":true,"custom-origin":[null]}]}`,
		"error: Couldn't start daemon: Error setting up sysroot: Reading deployment 0: Missing base image ref",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b)
		if err != nil {
			if s != nil {
				t.Errorf("a status beside an error: %+v", s)
			}
			return
		}
		facts := s.Facts()
		d, ok := facts.Deployment.Get()
		if !ok || d.Unseen == "" || len(d.Checksum) != 64 || d.Root != (verdict.Root{}) {
			t.Errorf("deployment = %+v", d)
		}
		if layered := d.Kind == verdict.ClientLayered; layered != (d.Base.Kind != "") || !layered && len(d.LayeredPackages)+len(d.RemovedPackages) > 0 {
			t.Errorf("kind and base do not go together: %+v", d)
		}
		for _, list := range [][]string{d.RequestedPackages, d.RequestedRemovals, d.LayeredPackages, d.RemovedPackages} {
			if !slices.IsSorted(list) {
				t.Errorf("not sorted: %q", list)
			}
		}
		if id, ok := facts.Identity.ManifestDigest.Get(); ok && len(id) != len("sha256:")+64 {
			t.Errorf("manifest digest = %q", id)
		}
		if c, ok := facts.Identity.InnerCommit.Get(); ok && len(c.Checksum) != 64 {
			t.Errorf("inner commit = %+v", c)
		}
	})
}
