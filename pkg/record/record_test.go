package record_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
)

func skip() record.Record {
	n, yes := 0, true
	return record.Record{
		APIVersion: record.APIVersion, Kind: record.Kind, Version: "v0", Mode: "report", BootID: "b",
		Time: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), Seconds: 0.25, Registry: record.Registry{Requests: 4, Bytes: 1000},
		Verdict: verdict.Verdict{APIVersion: verdict.APIVersion, Kind: verdict.Kind, Action: verdict.Skip, Conclusive: true,
			Reason: verdict.ReasonProven, Proof: verdict.ProofOSTreeCommit,
			Booted:   verdict.View{Checksum: "c0", DerivedLayers: &n},
			Target:   verdict.View{OSImageURL: "quay.io/os@sha256:aa"},
			Checks:   []verdict.Check{{Name: verdict.CheckFIPS, Outcome: verdict.OutcomeSame}},
			MCO:      verdict.MCO{Why: []verdict.MCOReason{{Code: "os-image-url", Versions: "all"}}},
			Cost:     &verdict.Cost{Layers: 1, Bytes: 2, SameBase: &yes, Kernel: "same"},
			Warnings: []string{"w"}, Errors: []verdict.Error{{Code: "timeout", Message: "m", Source: "s"}}},
		Act: &record.Act{State: record.ActUndone, Mode: "assert", Reason: "r", Changed: []string{"/a"}, Forced: true,
			MCO: &verdict.MCO{WouldSkip: true, Release: "4.16.3", Why: []verdict.MCOReason{}}},
	}
}

func TestRoundTrip(t *testing.T) {
	want := skip()
	b, err := want.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := record.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(*got, want); d != "" {
		t.Error(d)
	}
}

// A record from before there were acts is read, and is written as it was.
func TestRecordWithoutAct(t *testing.T) {
	r := skip()
	r.Act = nil
	b, err := r.Marshal()
	if err != nil || bytes.Contains(b, []byte(`"act"`)) {
		t.Fatalf("%s, %v", b, err)
	}
	got, err := record.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if got.Act != nil || !got.Proves("quay.io/os@sha256:aa", "c0") {
		t.Errorf("got %+v", got)
	}
}

func TestParseRefuses(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"empty", "", "EOF"},
		{"another kind", `{"apiVersion":"oneboot.dev/v1","kind":"Verdict"}`, "not a oneboot record"},
		{"a later version", `{"apiVersion":"oneboot.dev/v2","kind":"FirstbootRecord"}`, "not a oneboot record"},
		{"an action that is none", `{"apiVersion":"oneboot.dev/v1","kind":"FirstbootRecord","verdict":{"action":"maybe"}}`, "neither skip nor proceed"},
		{"trailing", `{"apiVersion":"oneboot.dev/v1","kind":"FirstbootRecord"}{}`, "follows the document"},
		{"too large", strings.Repeat(" ", record.MaxSize+1), "over the limit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := record.Parse([]byte(tt.in))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := record.Parse([]byte(`{"kind":"x"}`)); !errors.Is(err, record.ErrNotRecord) {
		t.Errorf("got %v, want ErrNotRecord", err)
	}
}

func TestProves(t *testing.T) {
	const url = "quay.io/os@sha256:aa"
	tests := []struct {
		name string
		edit func(*record.Record)
		url  string
		csum verdict.Checksum
		want bool
	}{
		{"this very deployment", func(*record.Record) {}, url, "c0", true},
		{"another deployment", func(*record.Record) {}, url, "c1", false},
		{"another image", func(*record.Record) {}, "quay.io/os@sha256:bb", "c0", false},
		{"nothing known", func(r *record.Record) { r.Verdict.Booted.Checksum, r.Verdict.Target.OSImageURL = "", "" }, "", "", false},
		{"hypothetical", func(r *record.Record) { r.Verdict.Hypothetical = true }, url, "c0", false},
		{"proceed", func(r *record.Record) { r.Verdict.Action = verdict.Proceed }, url, "c0", false},
		{"its act failed", func(r *record.Record) { r.Act = &record.Act{State: record.ActFailed} }, url, "c0", true},
		{"its act was undone", func(r *record.Record) { r.Act = &record.Act{State: record.ActUndone} }, url, "c0", false},
		{"inconclusive", func(r *record.Record) { r.Verdict.Conclusive = false }, url, "c0", false},
		{"a proceed that was acted upon", func(r *record.Record) {
			r.Act, r.Verdict.Action = &record.Act{State: record.ActDone}, verdict.Proceed
		}, url, "c0", false},
		{"without a proof", func(r *record.Record) { r.Verdict.Proof = "" }, url, "c0", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := skip()
			r.Act.State = record.ActDone
			tt.edit(&r)
			if got := r.Proves(tt.url, tt.csum); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	r := skip()
	b, err := r.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"apiVersion":"oneboot.dev/v1","kind":"FirstbootRecord"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := record.Parse(b)
		if err != nil {
			return
		}
		if r.Proves("", "") {
			t.Error("a record proves the empty image")
		}
		again, err := r.Marshal()
		if err != nil {
			return // a time that JSON cannot hold
		}
		r2, err := record.Parse(again)
		if err != nil {
			t.Fatalf("reading what was written: %v", err)
		}
		third, _ := r2.Marshal()
		if !bytes.Equal(again, third) {
			t.Error("writing twice gives other bytes")
		}
	})
}
