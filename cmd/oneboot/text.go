package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// columns is the width of a serial console.
const columns = 80

// consoleLines is its height.
const consoleLines = 24

// printText writes a verdict for a person at a serial console: the answer, then
// why, then more about the run; the answer again where it has scrolled away. No
// line is wider than the console, but where a single word is.
func printText(w io.Writer, v verdict.Verdict, more string) error {
	var b strings.Builder
	writeWrapped(&b, headline(v), "  ")
	b.WriteString("\n")
	printNames(&b, v)
	printChecks(&b, v)
	b.WriteString("\n")
	printMCO(&b, v)
	if v.Cost != nil {
		writeWrapped(&b, "A pivot would fetch "+costText(*v.Cost)+".", "")
	}
	if advice := adviceText(v); advice != "" {
		writeWrapped(&b, advice, "")
	}
	for _, s := range v.Warnings {
		writeWrapped(&b, "warning: "+short(clean(s)), "  ")
	}
	for _, e := range v.Errors {
		writeWrapped(&b, fmt.Sprintf("error %s: %s", clean(e.Code), short(clean(e.Message))), "  ")
	}
	if more != "" {
		b.WriteString("\n" + more)
	}
	if strings.Count(b.String(), "\n") > consoleLines {
		b.WriteString("\n")
		writeWrapped(&b, headline(v), "  ")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// adviceText says what makes the next node boot once; empty where it is nothing
// that an administrator can do.
func adviceText(v verdict.Verdict) string {
	if n := v.Target.DerivedLayers; v.Reason == verdict.Reason(verdict.CheckOSContent+"-differs") && n != nil && *n > 0 {
		return "To boot once, write the disk from the node image itself."
	}
	return ""
}

// printNames shows what is compared, in full: the digest of an image in a line
// of its own, where it fits and can be copied.
func printNames(b *strings.Builder, v verdict.Verdict) {
	before := b.Len()
	if url := clean(v.Target.OSImageURL); url != "" {
		name, digest, pinned := strings.Cut(url, "@")
		fmt.Fprintf(b, "wanted  %s\n", name)
		if pinned {
			fmt.Fprintf(b, "        @%s\n", digest)
		}
	}
	if sum := clean(string(v.Booted.Checksum)); sum != "" {
		label := "booted"
		if version := clean(v.Booted.Version); version != "" {
			fmt.Fprintf(b, "%s  %s\n", label, version)
			label = "      "
		}
		fmt.Fprintf(b, "%s  %s\n", label, sum)
	}
	if b.Len() > before {
		b.WriteString("\n")
	}
}

// A row of the table is one check, or several that are unknown for one and the
// same cause.
type row struct {
	checks []verdict.Check
	cause  string
}

func rowsOf(v verdict.Verdict) []row {
	var rows []row
next:
	for _, c := range v.Checks {
		cause := causeOf(c, v)
		for i := range rows {
			if cause != "" && rows[i].cause == cause {
				rows[i].checks = append(rows[i].checks, c)
				continue next
			}
		}
		rows = append(rows, row{[]verdict.Check{c}, cause})
	}
	return rows
}

// causeOf is what keeps a check from an answer, in the words that it shares with
// others; empty where it has one.
func causeOf(c verdict.Check, v verdict.Verdict) string {
	if c.Outcome != verdict.OutcomeUnknown {
		return ""
	}
	for _, e := range v.Errors {
		if e.Message != "" && strings.HasSuffix(c.Detail, e.Message) {
			return "see error " + e.Code
		}
	}
	for _, s := range []string{daemon.NotAsked, daemon.NoSysroot} {
		if strings.HasSuffix(c.Detail, s) {
			return s
		}
	}
	return c.Detail
}

// printChecks writes the table. What does not fit into the last column goes
// below the line.
func printChecks(b *strings.Builder, v verdict.Verdict) {
	rows, width := rowsOf(v), 0
	for _, r := range rows {
		if len(r.checks) == 1 {
			width = max(width, len(r.checks[0].Name))
		}
	}
	indent := strings.Repeat(" ", 9)
	for _, r := range rows {
		if len(r.checks) > 1 {
			var names []string
			for _, c := range r.checks {
				names = append(names, string(c.Name))
			}
			var shared strings.Builder
			writeWrapped(&shared, indent+clean(strings.Join(names, ", "))+": "+short(clean(r.cause)), indent)
			b.WriteString("UNKNOWN  " + shared.String()[len(indent):])
			continue
		}
		c := r.checks[0]
		outcome := c.Outcome.String()
		if c.Outcome == verdict.OutcomeDiffers || c.Outcome == verdict.OutcomeUnknown {
			outcome = strings.ToUpper(outcome)
		}
		line := fmt.Sprintf("%-7s  %-*s", outcome, width, clean(string(c.Name)))
		text := checkText(c, v)
		switch {
		case text == "":
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		case len(line)+2+utf8.RuneCountInString(text) <= columns:
			b.WriteString(line + "  " + text + "\n")
		default:
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			writeWrapped(b, indent+text, indent)
		}
	}
}

func checkText(c verdict.Check, v verdict.Verdict) string {
	var text string
	switch {
	case c.Outcome == verdict.OutcomeSame && c.Name == verdict.CheckOSContent:
		text = string(v.Proof) + " " + c.Booted
	case c.Outcome == verdict.OutcomeSame && c.Booted == "":
		text = c.Target
	case c.Outcome == verdict.OutcomeSame:
		text = c.Booted
	case c.Detail != "":
		text = once(c.Detail, v.Errors)
	case c.Booted != "" || c.Target != "":
		text = fmt.Sprintf("booted %s, wanted %s", orNone(c.Booted), orNone(c.Target))
	}
	return short(clean(text))
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// once refers to the errors that a text repeats: the same long message need not
// be read twice.
func once(text string, errs []verdict.Error) string {
	for _, e := range errs {
		if e.Message != "" {
			text = strings.ReplaceAll(text, e.Message, "see error "+e.Code)
		}
	}
	return text
}

// hash finds digests within the words that hold them.
var hash = regexp.MustCompile(`([^\s"'(),;=]*/[^\s"'(),;=@]*)?(@?)\b(?:sha256:)?([0-9a-f]{12})[0-9a-f]{52}\b`)

// short cuts digests to the 12 digits that people compare: in a pull spec so
// that it shows, and not at all in a path, which is there to be copied.
func short(s string) string {
	return hash.ReplaceAllStringFunc(s, func(word string) string {
		m := hash.FindStringSubmatch(word)
		switch {
		case m[2] == "@":
			return m[1] + "@sha256:" + m[3] + "..."
		case m[1] != "":
			return word
		}
		return m[3]
	})
}

// clean keeps bytes from outside from steering the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// cleanLines is [clean] for what may have several lines.
func cleanLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = clean(l)
	}
	return strings.Join(lines, "\n")
}

// writeWrapped writes text in lines of the console's width, all but the first
// behind the indent. It breaks at spaces only, so that names can be copied.
func writeWrapped(b *strings.Builder, text, indent string) {
	first := text[:len(text)-len(strings.TrimLeft(text, " "))]
	n := len(first)
	b.WriteString(first)
	for i, word := range strings.Fields(text) {
		width := utf8.RuneCountInString(word)
		switch {
		case i > 0 && n+1+width > columns:
			b.WriteString("\n" + indent)
			n = len(indent)
		case i > 0:
			b.WriteString(" ")
			n++
		}
		b.WriteString(word)
		n += width
	}
	b.WriteString("\n")
}

// printMCO says what the unmodified machine-config-daemon would do.
func printMCO(b *strings.Builder, v verdict.Verdict) {
	printMCOAs(b, "by itself", v.MCO, v.Errors)
}

// printMCOAs says what it would do after what has been done, or by itself. What
// the errors say is not said again.
func printMCOAs(b *strings.Builder, when string, m verdict.MCO, errs []verdict.Error) {
	mcd := "the machine-config-daemon"
	if m.Release != "" {
		mcd += " of " + clean(m.Release)
	}
	line := strings.ToUpper(when[:1]) + when[1:] + " " + mcd + " would pivot and reboot"
	if m.WouldSkip {
		line = strings.TrimSuffix(line, "pivot and reboot") + "skip the reboot"
	} else if onlyUnknown(m.Why) {
		line = "What " + mcd + " would do " + when + " is not known"
	}
	if len(m.Why) == 0 {
		writeWrapped(b, line+".", "")
		return
	}
	writeWrapped(b, line+":", "")
	for _, r := range m.Why {
		writeWrapped(b, fmt.Sprintf("  %s (%s): %s", clean(r.Code), clean(releasesText(r.Versions)), short(clean(once(r.Detail, errs)))), "    ")
	}
}

// onlyUnknown reports whether nothing is known that keeps the daemon from
// skipping.
func onlyUnknown(why []verdict.MCOReason) bool {
	return len(why) > 0 && !slices.ContainsFunc(why, func(r verdict.MCOReason) bool { return !strings.HasSuffix(r.Code, "-unknown") })
}

func releasesText(versions string) string {
	if from, ok := strings.CutSuffix(versions, "+"); ok {
		return from + " and later"
	}
	if versions == "all" {
		return "all releases"
	}
	return versions
}

func costText(c verdict.Cost) string {
	s := fmt.Sprintf("%d layers, %s", c.Layers, sizeText(c.Bytes))
	if c.Layers == 1 {
		s = "1 layer, " + sizeText(c.Bytes)
	}
	if c.SameBase != nil && *c.SameBase {
		s += ", on the same base"
	} else if c.SameBase != nil {
		s += ", on another base"
	}
	if c.Kernel != "unknown" {
		s += ", " + clean(c.Kernel) + " kernel"
	}
	return s
}

func sizeText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}
