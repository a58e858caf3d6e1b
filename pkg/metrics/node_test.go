package metrics_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/oneboot/oneboot/pkg/metrics"
	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
)

var update = flag.Bool("update", false, "write the golden files anew")

func skipped() *record.Record {
	return &record.Record{
		Version: "v0.1.0", Mode: "assert", BootID: "b", Time: time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC),
		Seconds: 0.25, Registry: record.Registry{Requests: 4, Bytes: 1000},
		Verdict: verdict.Verdict{Action: verdict.Skip, Conclusive: true, Reason: verdict.ReasonProven, Proof: verdict.ProofOSTreeCommit},
		Act:     &record.Act{State: record.ActDone, Mode: "assert"},
	}
}

// exposition is what a scrape of the node would get.
func exposition(t *testing.T, n *metrics.Node) string {
	t.Helper()
	var c metrics.NodeCollector
	if n != nil {
		c.Set(*n)
	}
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(&c); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// The golden files are what the manifests' rules and dashboard are checked
// against.
func TestNodeExposition(t *testing.T) {
	proceeded := skipped()
	proceeded.Verdict = verdict.Verdict{Action: verdict.Proceed, Reason: "os-content-unknown"}
	proceeded.Act = nil
	tests := []struct {
		name string
		node metrics.Node
	}{
		{"skipped", metrics.Node{Pool: "worker", State: metrics.RecordRead, Record: skipped(), Pivot: metrics.PivotSkipped, Hold: metrics.HoldYes, JoinSeconds: 42}},
		{"proceeded", metrics.Node{Pool: "worker", State: metrics.RecordRead, Record: proceeded, Pivot: metrics.PivotDone, Hold: metrics.HoldNone, JoinSeconds: 620}},
		{"unknown", metrics.Node{State: metrics.RecordRead, Record: skipped(), Pivot: metrics.PivotUnknown, Hold: metrics.HoldUnknown, JoinSeconds: -1}},
		{"none", metrics.Node{Pool: "master", State: metrics.RecordNone, JoinSeconds: -1}},
		{"unreadable", metrics.Node{Pool: "master", State: metrics.RecordUnreadable, JoinSeconds: -1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := exposition(t, &tt.node)
			golden := filepath.Join("testdata", "node-"+tt.name+".prom")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// Before the first snapshot nothing is said, not even a zero.
func TestNothingKnown(t *testing.T) {
	if got := exposition(t, nil); got != "" {
		t.Errorf("got %s", got)
	}
}

// What a damaged record says makes no series of its own.
func TestHostileWords(t *testing.T) {
	r := skipped()
	r.Mode, r.Version = "as\nsert", strings.Repeat("v", 1000)
	r.Verdict.Reason, r.Verdict.Proof = "\xff", `"}`
	r.Act.State = "bad"
	got := exposition(t, &metrics.Node{State: metrics.RecordRead, Record: r, JoinSeconds: -1})
	const want = `oneboot_firstboot_decision_info{action="skip",mode="invalid",proof="invalid",reason="invalid",version="invalid"} 1`
	if !strings.Contains(got, want) {
		t.Errorf("want %s in\n%s", want, got)
	}
	if strings.Contains(got, "bad") {
		t.Errorf("a state that is none is in\n%s", got)
	}
}
