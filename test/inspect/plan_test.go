package inspect

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// A plan asks the pools' images what they are: how much will be pulled, and whether
// the commit is that of the disk image.
func TestPlanAsks(t *testing.T) {
	l := newLab(t)
	base := l.image(t, sysroot.Tree{FillerBytes: 3 << 20}, sysroot.CommitOptions{Packages: installed()}, nativeimage.Options{})
	node := derive(t, base, metalayer, metadata(t, installed()))
	other := l.image(t, sysroot.Tree{FillerBytes: 3 << 20, FillerSeed: 1}, sysroot.CommitOptions{Packages: installed()}, nativeimage.Options{})
	size := func(m *nativeimage.Image, from int) int64 {
		n := int64(0)
		for _, layer := range m.Layers[from:] {
			n += layer.Blob.Size
		}
		return n
	}
	tests := []struct {
		name                  string
		image                 *nativeimage.Image
		outcome, reason, sure string
		bytes                 int64
		release               string
	}{
		{"the disk image's commit", base, "skip", "same-content", "exact", 0, "4.16.3"},
		{"layers on its commit", node, "pivot-layers", "same-base", "exact", size(node, len(base.Layers)), "4.19.3"},
		{"another commit", other, "pivot-full", "other-content", "exact", size(other, 0), "4.16.3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "objects/all.yaml"), fmt.Appendf(nil, `kind: MachineConfigPool
metadata: {name: worker}
spec: {configuration: {name: mc}}
---
kind: MachineConfig
metadata: {name: mc, annotations: {machineconfiguration.openshift.io/release-image-version: %s}}
spec: {osImageURL: %q}
---
kind: MachineSet
metadata: {name: a}
spec: {template: {spec: {providerSpec: {value: {kind: AWSMachineProviderConfig, ami: {id: ami-1}, userDataSecret: {name: worker-user-data}}}}}}
`, tt.release, l.push(t, "os", tt.image)))
			write(t, filepath.Join(dir, "table.yaml"), []byte("bootimages:\n  ami-1: {commit: "+base.Commit+"}\n"))
			out, errs, status := l.run(t, "plan", filepath.Join(dir, "objects"), "--bootimages", filepath.Join(dir, "table.yaml"), "-o", "json")
			var p struct {
				Forecasts []struct {
					Outcome, Reason, Confidence string
					Bytes                       *int64
				}
				Problems []struct{ Message string }
			}
			if err := json.Unmarshal([]byte(out), &p); err != nil || status != 0 || len(p.Forecasts) != 1 || len(p.Problems) != 0 {
				t.Fatalf("exit status %d, %v, %s\n%s", status, err, errs, out)
			}
			f := p.Forecasts[0]
			if f.Outcome != tt.outcome || f.Reason != tt.reason || f.Confidence != tt.sure || f.Bytes == nil || *f.Bytes != tt.bytes {
				t.Errorf("got %s; want %+v", out, tt)
			}
		})
	}
}
