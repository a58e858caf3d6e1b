package cases

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/capture"
	"github.com/oneboot/oneboot/pkg/verdict"
)

func TestCases(t *testing.T) {
	for _, c := range readCases(t) {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c)
			for _, r := range c.Runs {
				t.Run(r.Name, func(t *testing.T) {
					w.t = t
					w.run(r)
				})
			}
		})
	}
}

func (w *world) run(r runSpec) {
	w.t.Helper()
	opts := daemon.Options{Timeout: 20 * time.Second, Full: r.Full}
	if r.Timeout != "" {
		opts.Timeout = must[time.Duration](w.t)(time.ParseDuration(r.Timeout))
	}
	if err := w.lab.net.set(w, r.Network, r.ProxyUser); err != nil {
		w.t.Fatal(err)
	}
	if r.Node != nil {
		opts.Root = w.node(r).Dir
	} else {
		opts.Root = w.elsewhere(r)
	}
	if r.Status != "" {
		opts.StatusFile = filepath.Join(w.dir, "status.json")
		if err := os.WriteFile(opts.StatusFile, []byte(w.text(r.Status)), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	var v verdict.Verdict
	if r.Unprivileged {
		v = must[verdict.Verdict](w.t)(analyzeUnprivileged(opts))
	} else {
		res := must[*daemon.Result](w.t)(daemon.Analyze(context.Background(), opts))
		v = res.Verdict
		w.expectReplay(res)
	}
	w.expect(r.Expect, v)
}

// expect compares the whole answer.
func (w *world) expect(want expectSpec, v verdict.Verdict) {
	w.t.Helper()
	action := must[[]byte](w.t)(v.Action.MarshalText())
	type answer struct {
		Action, Reason, Proof    string
		Conclusive, Hypothetical bool
		Contacts                 []string
	}
	got := answer{string(action), string(v.Reason), string(v.Proof), v.Conclusive, v.Hypothetical, w.lab.net.asked()}
	expected := answer{want.Action, want.Reason, want.Proof, want.Conclusive, want.Hypothetical, want.Contacts}
	if len(expected.Contacts) == 0 {
		expected.Contacts = got.Contacts[:0]
	}
	if diff := cmp.Diff(expected, got); diff != "" {
		w.t.Errorf("answer (-want +got):\n%s", diff)
	}
	w.expectErrors(want, v)
	w.expectChecks(want, v)
	if want.MCO != nil {
		why := []string{}
		for _, r := range v.MCO.Why {
			why = append(why, r.Code)
		}
		if diff := cmp.Diff(mcoSpec{want.MCO.WouldSkip, append([]string{}, want.MCO.Why...)}, mcoSpec{v.MCO.WouldSkip, why}); diff != "" {
			w.t.Errorf("prediction of the machine-config-daemon (-want +got):\n%s", diff)
		}
	}
	document := string(must[[]byte](w.t)(json.Marshal(v)))
	for _, text := range want.Absent {
		if strings.Contains(document, text) {
			w.t.Errorf("%q is in the document", text)
		}
	}
	if w.t.Failed() || testing.Verbose() {
		w.t.Log("\n" + explain(v))
	}
}

// expectReplay holds that what a user would send of this node gives the same
// document elsewhere.
func (w *world) expectReplay(res *daemon.Result) {
	w.t.Helper()
	c := must[*capture.Capture](w.t)(capture.New("test", res.Booted, res.Target, res.Policy, res.Verdict))
	var archive bytes.Buffer
	if err := c.Write(&archive, nil); err != nil {
		w.t.Fatal(err)
	}
	read := must[*capture.Capture](w.t)(capture.Read(&archive))
	got := string(must[[]byte](w.t)(json.Marshal(read.Verdict())))
	if want := string(must[[]byte](w.t)(json.Marshal(res.Verdict))); got != want {
		w.t.Errorf("the capture's verdict (-want +got):\n%s", cmp.Diff(want, got))
	}
}

func (w *world) expectErrors(want expectSpec, v verdict.Verdict) {
	w.t.Helper()
	if len(want.Errors) != len(v.Errors) {
		w.t.Errorf("%d errors, want %d", len(v.Errors), len(want.Errors))
	}
	for i, e := range want.Errors[:min(len(want.Errors), len(v.Errors))] {
		got := v.Errors[i]
		if !slices.Contains(strings.Split(e.Code, " or "), got.Code) || e.Source != "" && got.Source != w.substitute(e.Source) {
			w.t.Errorf("error %d: got %s of %q, want %s of %q", i, got.Code, got.Source, e.Code, e.Source)
		}
		for _, s := range e.Says {
			if s = w.substitute(s); !strings.Contains(got.Message, s) {
				w.t.Errorf("error %d does not say %q: %s", i, s, got.Message)
			}
		}
	}
	if len(want.Warnings) != len(v.Warnings) {
		w.t.Errorf("%d warnings, want %d", len(v.Warnings), len(want.Warnings))
	}
	for i, s := range want.Warnings[:min(len(want.Warnings), len(v.Warnings))] {
		if !strings.Contains(v.Warnings[i], s) {
			w.t.Errorf("warning %d does not say %q: %s", i, s, v.Warnings[i])
		}
	}
}

func (w *world) expectChecks(want expectSpec, v verdict.Verdict) {
	w.t.Helper()
	got := map[string]verdict.Check{}
	for _, c := range v.Checks {
		got[string(c.Name)] = c
	}
	for name, text := range want.Checks {
		outcome, detail, _ := strings.Cut(text, ": ")
		c, ok := got[name]
		if !ok || c.Outcome.String() != outcome || !strings.Contains(c.Detail, w.substitute(detail)) {
			w.t.Errorf("check %s: got %s: %s; want %s", name, c.Outcome, c.Detail, text)
		}
	}
}

// explain is the verdict for a person who mends a test.
func explain(v verdict.Verdict) string {
	var s strings.Builder
	for _, c := range v.Checks {
		fmt.Fprintf(&s, "  %-8s %-24s %s | %s | %s\n", c.Outcome, c.Name, short(c.Booted), short(c.Target), c.Detail)
	}
	for _, e := range v.Errors {
		fmt.Fprintf(&s, "  error %s (%s): %s\n", e.Code, e.Source, e.Message)
	}
	for _, warning := range v.Warnings {
		fmt.Fprintf(&s, "  warning: %s\n", warning)
	}
	for _, r := range v.MCO.Why {
		fmt.Fprintf(&s, "  mco %s (%s): %s\n", r.Code, r.Versions, r.Detail)
	}
	return s.String()
}

func short(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}
