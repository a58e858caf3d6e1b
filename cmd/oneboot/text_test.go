package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// The answer is one line of a serial console, whatever the answer, but where an
// error decided it.
func TestHeadlineFits(t *testing.T) {
	var all []verdict.Verdict
	for _, name := range verdict.CheckNames() {
		for _, o := range []verdict.Outcome{verdict.OutcomeDiffers, verdict.OutcomeUnknown} {
			all = append(all, verdict.Verdict{
				Reason: verdict.Reason(string(name) + "-" + o.String()),
				Checks: []verdict.Check{{Name: name, Outcome: o, Detail: "because of that"}},
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

// Where an error decided, the headline leads with it and names its code.
func TestHeadlineCause(t *testing.T) {
	image := "mirror.example.com:5000/ocp/os@sha256:" + strings.Repeat("0", 64)
	tests := []struct {
		name, detail string
		errors       []verdict.Error
		want         string
	}{
		{"none", "not read", nil, "whether the booted OS is the wanted one is not known"},
		{"registry", "target manifest: no route", []verdict.Error{{Code: "registry-unreachable", Message: "no route", Source: image}},
			"the registry mirror.example.com:5000 could not be reached (registry-unreachable)"},
		{"mirrors", "x (Mirrors also failed: y): z", []verdict.Error{{Code: "registry-blocked", Message: "x (Mirrors also failed: y): z", Source: "quay.io/os"}},
			"registries.conf blocks the registry quay.io, and no mirror helped (registry-blocked)"},
		{"no source", "no route", []verdict.Error{{Code: "registry-unreachable", Message: "no route"}}, "the registry could not be reached (registry-unreachable)"},
		{"steers the terminal", "x", []verdict.Error{{Code: "registry-unreachable", Message: "x", Source: "\x1b[2J/os"}}, "the registry ?[2J could not be reached (registry-unreachable)"},
		{"that did not decide", "no route", []verdict.Error{{Code: "timeout", Message: "late"}, {Code: "auth-unreadable", Message: "no route"}}, "the credentials cannot be read (auth-unreadable)"},
		{"of another version", "x", []verdict.Error{{Code: "new-code", Message: "x"}}, "whether the booted OS is the wanted one is not known (new-code)"},
		{"offline", "target manifest: not asked: --offline", nil, "no registry may be asked (--offline)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := headline(verdict.Verdict{Reason: "os-content-unknown", Errors: tt.errors,
				Checks: []verdict.Check{{Name: verdict.CheckOSContent, Detail: tt.detail}}})
			if want := "PROCEED: " + tt.want; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestShort(t *testing.T) {
	sum := "87c5334e7cde" + strings.Repeat("0", 52)
	tests := []struct{ name, text, want string }{
		{"a digest", "sha256:" + sum, "87c5334e7cde"},
		{"a deployment", "rhcos " + sum + ".0", "rhcos 87c5334e7cde.0"},
		{"a pull spec", `osImageURL is "quay.io/a/b@sha256:` + sum + `"`, `osImageURL is "quay.io/a/b@sha256:87c5334e7cde..."`},
		{"its digest alone", "@sha256:" + sum, "@sha256:87c5334e7cde..."},
		{"two of them", "(quay.io/a@sha256:" + sum + ",b.io:5/c@sha256:" + sum + ")", "(quay.io/a@sha256:87c5334e7cde...,b.io:5/c@sha256:87c5334e7cde...)"},
		{"a path", "reading /ostree/deploy/rhcos/deploy/" + sum + ".0.origin: gone", "reading /ostree/deploy/rhcos/deploy/" + sum + ".0.origin: gone"},
		{"an address", `Get "https://quay.io/v2/a/blobs/sha256:` + sum + `": EOF`, `Get "https://quay.io/v2/a/blobs/sha256:` + sum + `": EOF`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := short(tt.text); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Checks that are unknown for the same cause share a row, and an answer that has
// scrolled away comes again at the end.
func TestPrintTextRows(t *testing.T) {
	v := verdict.Verdict{Reason: "machineconfig-unknown", Errors: []verdict.Error{{Code: "machineconfig-missing", Message: "no file"}},
		MCO: verdict.MCO{Why: []verdict.MCOReason{{Code: "machineconfig-unknown", Versions: "all", Detail: "no file"}, {Code: "fips-unknown", Versions: "4.15+", Detail: "gone"}}}}
	for _, name := range verdict.CheckNames() {
		c := verdict.Check{Name: name, Outcome: verdict.OutcomeSame}
		switch name {
		case verdict.CheckMachineConfig, verdict.CheckPinned:
			c = verdict.Check{Name: name, Detail: "the MachineConfig is not known: no file"}
		case verdict.CheckFIPS:
			c = verdict.Check{Name: name, Detail: "gone"}
		}
		v.Checks = append(v.Checks, c)
	}
	var b strings.Builder
	if err := printText(&b, v, strings.Repeat("more\n", 5)); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	const answer = "PROCEED: there is no MachineConfig of a first boot (machineconfig-missing)\n"
	for _, want := range []string{
		"UNKNOWN  machineconfig, pinned: see error machineconfig-missing\n", "UNKNOWN  fips                     gone\n",
		"What the machine-config-daemon would do by itself is not known:\n",
		"  machineconfig-unknown (all releases): see error machineconfig-missing\n", "  fips-unknown (4.15 and later): gone\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if !strings.HasPrefix(got, answer) || !strings.HasSuffix(got, "\n\n"+answer) {
		t.Errorf("the answer is not at both ends:\n%s", got)
	}
	b.Reset()
	if err := printText(&b, v, ""); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n > consoleLines || strings.Count(b.String(), answer) != 1 {
		t.Errorf("%d lines:\n%s", n, b.String())
	}
}

func allCommands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		all = append(all, allCommands(c)...)
	}
	return all
}

// Help fits the console, and names what a flag takes.
func TestHelpFits(t *testing.T) {
	for _, cmd := range allCommands(newRoot("oneboot")) {
		var b strings.Builder
		cmd.SetOut(&b)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > columns {
				t.Errorf("%s: %d columns: %s", cmd.Name(), n, line)
			}
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); name != strings.ToUpper(name) {
				t.Errorf("%s --%s takes a %s", cmd.Name(), f.Name, name)
			}
		})
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
		}, "")
		if err != nil {
			t.Fatal(err)
		}
		if i := strings.IndexFunc(out.String(), func(r rune) bool { return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 || r == 0x202e }); i >= 0 {
			t.Errorf("%q", out.String()[i:])
		}
	})
}
