package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// The answer is one line of a serial console, whatever the answer.
func TestHeadlineFits(t *testing.T) {
	var all []verdict.Verdict
	for _, name := range verdict.CheckNames() {
		for _, o := range []verdict.Outcome{verdict.OutcomeDiffers, verdict.OutcomeUnknown} {
			all = append(all, verdict.Verdict{
				Reason: verdict.Reason(string(name) + "-" + o.String()),
				Checks: []verdict.Check{{Name: name, Outcome: o, Detail: "because of that"}},
				Errors: []verdict.Error{{Code: "registries-conf-invalid", Message: "that"}},
			})
		}
	}
	for _, p := range []verdict.Proof{verdict.ProofManifestDigest, verdict.ProofConfigDigest, verdict.ProofDiffIDs,
		verdict.ProofOSTreeCommit, verdict.ProofContentChecksum, ""} {
		all = append(all, verdict.Verdict{Action: verdict.Skip, Reason: verdict.ReasonProven, Proof: p})
	}
	all = append(all, verdict.Verdict{})
	for _, v := range all {
		v.Hypothetical = true
		line := headline(v)
		if utf8.RuneCountInString(line) > columns || strings.Contains(line, "\n") {
			t.Errorf("%d columns: %s", utf8.RuneCountInString(line), line)
		}
		if word := "PROCEED"; v.Action == verdict.Skip {
			word = "SKIP"
			if !strings.HasPrefix(line, word) {
				t.Errorf("got %q, want %s first", line, word)
			}
		} else if !strings.HasPrefix(line, word) {
			t.Errorf("got %q, want %s first", line, word)
		}
		if len(v.Checks) == 1 && strings.Contains(line, string(v.Checks[0].Name)+" "+v.Checks[0].Outcome.String()) {
			t.Errorf("%s has no words of its own: %s", v.Checks[0].Name, line)
		}
	}
}

func TestWriteWrapped(t *testing.T) {
	long := strings.Repeat("x", 100)
	tests := []struct{ name, text, indent, want string }{
		{"nothing", "", "  ", "\n"},
		{"short", "one two", "  ", "one two\n"},
		{"as wide as the console", strings.Repeat("y", 80), "  ", strings.Repeat("y", 80) + "\n"},
		{"two lines", strings.Repeat("ab ", 30), " ", strings.TrimSpace(strings.Repeat("ab ", 27)) + "\n " + strings.TrimSpace(strings.Repeat("ab ", 3)) + "\n"},
		{"a word wider than the console", "see " + long + " there", "  ", "see\n  " + long + "\n  there\n"},
		{"wide letters", strings.Repeat("é", 80), "  ", strings.Repeat("é", 80) + "\n"},
		{"an indent of its own", "    one two", "  ", "    one two\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			writeWrapped(&b, tt.text, tt.indent)
			if b.String() != tt.want {
				t.Errorf("got %q, want %q", b.String(), tt.want)
			}
		})
	}
}

// What is shown of a verdict read from a file steers no terminal, and ends.
func FuzzText(f *testing.F) {
	f.Add("plain text", "quay.io/os@sha256:00")
	f.Add("\x1b[2J \u202e \xff", strings.Repeat(" a", 200))
	f.Add(strings.Repeat("word ", 40), strings.Repeat("9", 64))
	f.Fuzz(func(t *testing.T, a, b string) {
		var out strings.Builder
		err := printText(&out, verdict.Verdict{
			Booted: verdict.View{Checksum: verdict.Checksum(a), Version: b},
			Target: verdict.View{OSImageURL: b},
			Checks: []verdict.Check{{Name: verdict.CheckName(a), Detail: b}, {Outcome: verdict.OutcomeSame, Booted: a}},
			MCO:    verdict.MCO{Why: []verdict.MCOReason{{Code: b, Detail: a}}},
			Errors: []verdict.Error{{Code: a, Message: b}}, Warnings: []string{a + " " + b},
		})
		if err != nil {
			t.Fatal(err)
		}
		if i := strings.IndexFunc(out.String(), func(r rune) bool { return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 || r == 0x202e }); i >= 0 {
			t.Errorf("%q", out.String()[i:])
		}
	})
}
