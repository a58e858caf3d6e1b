package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/pkg/fleet"
	"github.com/oneboot/oneboot/pkg/forecast"
	"github.com/oneboot/oneboot/pkg/record"
)

// The version of a node tells what a disk image of that version has only where the
// node's OS is a stock one: layers inherit the version of what is beneath them.
func TestReadRecord(t *testing.T) {
	const head = `{"apiVersion": "` + record.APIVersion + `", "kind": "` + record.Kind + `", "verdict": {"booted": {"version": "9.6.20251212-1", "architecture": "amd64", "manifestDigest": "sha256:aa"`
	tests := []struct {
		name, more, err string
		want            fleet.Table
	}{
		{"no layers", `, "derivedLayers": 0`, "", fleet.Table{"9.6.20251212-1/amd64": {ManifestDigest: "sha256:aa"}}},
		{"layers", `, "derivedLayers": 2`, "2 layers follow the booted commit", fleet.Table{}},
		{"not known", "", "does not say whether layers follow", fleet.Table{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			table := fleet.Table{}
			ok, err := readRecord(table, []byte(head+tt.more+"}}}"))
			if !ok || fmt.Sprint(table) != fmt.Sprint(tt.want) || tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got %v, %v, %v", table, ok, err)
			}
		})
	}
}

// Two files that say different things of one disk image tell nothing.
func TestReadTwoTables(t *testing.T) {
	table := fleet.Table{}
	for _, tt := range []struct{ text, err string }{
		{"bootimages: {ami-1: {commit: a}}", ""}, {"bootimages: {ami-1: {commit: a}}", ""}, {"bootimages: {ami-1: {commit: b}}", "something else is in it"},
	} {
		if ok, err := readContents(table, []byte(tt.text)); !ok || tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: %v, %v", tt.text, ok, err)
		}
	}
}

// A file that is not read is named: what is in it could be what makes a node pivot.
func TestPlanNamesLinks(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	p, err := MakePlan(t.Context(), PlanOptions{Paths: []string{dir}, Offline: true}, nil)
	if err != nil || len(p.Problems) != 1 || !strings.Contains(p.Problems[0].Message, "not followed") {
		t.Errorf("got %+v, %v", p, err)
	}
}

// What an image for other machines has tells nothing of these.
func TestPlanArchitecture(t *testing.T) {
	of := func(arch string) forecast.Outcome {
		s := forecast.Source{Flow: forecast.FlowBootimage, Bootimage: forecast.Bootimage{Version: "416.94.202410160352-0", Architecture: "arm64", Facts: &forecast.Content{Commit: "c"}}}
		image := &forecast.Image{Architecture: arch, Content: forecast.Content{Commit: "c"}}
		return forecast.Of(s, &forecast.Target{OSImage: "quay.io/os@sha256:aa", Release: "4.16.3", Image: image}).Outcome
	}
	if of("arm64") != forecast.Skip || of("amd64") != forecast.Unknown {
		t.Errorf("got %s and %s", of("arm64"), of("amd64"))
	}
}
