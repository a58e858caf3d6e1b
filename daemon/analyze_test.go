package daemon

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// A run without a root panics at its first read: a fault in the program.
func TestFaultProceeds(t *testing.T) {
	tests := []struct {
		name         string
		opts         Options
		hypothetical bool
	}{
		{"booted", Options{}, false},
		{"unbooted", Options{Unbooted: true}, true},
		// What is left out cannot make up for what is not known.
		{"every check left out", Options{SkipChecks: verdict.CheckNames()}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &run{opts: tt.opts}
			r.fail("earlier", "", context.Canceled)
			v, _ := r.analyze(context.Background())
			if v.Action != verdict.Proceed || v.Conclusive || v.Proof != "" || v.Hypothetical != tt.hypothetical {
				t.Errorf("got %+v", v)
			}
			if len(v.Checks) != len(verdict.CheckNames()) {
				t.Errorf("%d checks", len(v.Checks))
			}
			if len(v.Errors) != 2 || v.Errors[0].Code != "earlier" || v.Errors[1].Code != codeInternal {
				t.Fatalf("got errors %+v", v.Errors)
			}
			if e := v.Errors[1]; !strings.Contains(e.Message, "nil pointer") || !strings.Contains(e.Source, "pkg/hostfs.(*Root)") {
				t.Errorf("the error does not say what and where: %+v", e)
			}
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if s := string(b); strings.Contains(s, "goroutine") || strings.Contains(s, "0x") || !strings.Contains(s, `"reason":"machineconfig-unknown"`) {
				t.Errorf("got %s", s)
			}
		})
	}
}
