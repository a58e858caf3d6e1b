package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// columns is the width of a serial console.
const columns = 80

// printText writes a verdict for a person at a serial console: the answer in
// one line, then why. No line is wider than the console, but where a single
// word is.
func printText(w io.Writer, v verdict.Verdict) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", headline(v))
	printNames(&b, v)
	printChecks(&b, v)
	b.WriteString("\n")
	printMCO(&b, v)
	if v.Cost != nil {
		writeWrapped(&b, "A pivot would fetch "+costText(*v.Cost)+".", "")
	}
	for _, s := range v.Warnings {
		writeWrapped(&b, "warning: "+short(clean(s)), "  ")
	}
	for _, e := range v.Errors {
		writeWrapped(&b, fmt.Sprintf("error %s: %s", clean(e.Code), short(clean(e.Message))), "  ")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// headline is the answer in one line.
func headline(v verdict.Verdict) string {
	word, why := "PROCEED", "nothing was proven"
	if v.Action == verdict.Skip {
		word, why = "SKIP", "the booted OS is the wanted one, proven by "+proofText(v.Proof)
	} else {
		for _, c := range v.Checks {
			if string(v.Reason) == string(c.Name)+"-"+c.Outcome.String() {
				why = reasonText(c)
			}
		}
	}
	if v.Hypothetical {
		word += " (hypothetical)"
	}
	line := word + ": " + why
	for _, e := range v.Errors {
		if more := " (" + clean(e.Code) + ")"; decidedBy(v, e) && len(line)+len(more) <= columns {
			return line + more
		}
	}
	return line
}

// decidedBy reports whether the check that the verdict goes by is unknown for
// this error.
func decidedBy(v verdict.Verdict, e verdict.Error) bool {
	for _, c := range v.Checks {
		if string(v.Reason) == string(c.Name)+"-"+verdict.OutcomeUnknown.String() {
			return e.Message != "" && strings.Contains(c.Detail, e.Message)
		}
	}
	return false
}

// reasonText says in words what a check that is not the same means. With the
// longest word before it, it fits in one line.
func reasonText(c verdict.Check) string {
	words, ok := map[verdict.CheckName][2]string{
		verdict.CheckMachineConfig:         {"the MachineConfig asks for more than a first boot does", "the MachineConfig is not known"},
		verdict.CheckPinned:                {"the wanted image is not pinned by a digest", "the wanted image is not known"},
		verdict.CheckArchitecture:          {"the wanted image is for another architecture", "the host's or the image's architecture is not known"},
		verdict.CheckOSContent:             {"the booted OS is not the wanted OS", "whether the booted OS is the wanted one is not known"},
		verdict.CheckDeployment:            {"the booted deployment was changed, or will not stay", "the state of the booted deployment is not known"},
		verdict.CheckRunningKernel:         {"the running kernel is not the booted deployment's", "the running kernel is not known"},
		verdict.CheckKernelArguments:       {"the kernel arguments are not the wanted ones", "the kernel arguments are not known"},
		verdict.CheckLegacyKernelArguments: {"the tuning file asks for other kernel arguments", "what the tuning file asks for is not known"},
		verdict.CheckKernelType:            {"another type of kernel is wanted", "the wanted type of kernel cannot be proven"},
		verdict.CheckExtensions:            {"the layered packages are not the wanted ones", "the wanted extensions cannot be proven"},
		verdict.CheckFIPS:                  {"FIPS mode is not as wanted", "whether FIPS mode is on is not known"},
		verdict.CheckForceFile:             {"a pivot is asked for by a file", "whether a pivot is asked for is not known"},
		verdict.CheckNodePayload:           {"the booted OS cannot run a cluster node", "whether the OS can run a cluster node is not known"},
		verdict.CheckNetworkState:          {"the network runs on what the initrd set up", "the state of the network is not known"},
		verdict.CheckSignaturePolicy:       {"the signature policy refuses the wanted image", "the wanted signature is not verified"},
	}[c.Name]
	switch {
	case !ok:
		return string(c.Name) + " " + c.Outcome.String()
	case c.Outcome == verdict.OutcomeDiffers:
		return words[0]
	default:
		return words[1]
	}
}

func proofText(p verdict.Proof) string {
	switch p {
	case verdict.ProofManifestDigest:
		return "manifest digest"
	case verdict.ProofConfigDigest:
		return "config digest"
	case verdict.ProofDiffIDs:
		return "its layers"
	case verdict.ProofOSTreeCommit:
		return "ostree commit"
	case verdict.ProofContentChecksum:
		return "file tree"
	case "":
		return "checks left out" // never without --skip-check
	}
	return string(p)
}

// printNames shows what is compared, in full: the digest of an image in a line
// of its own, where it fits and can be copied.
func printNames(b *strings.Builder, v verdict.Verdict) {
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
	b.WriteString("\n")
}

// printChecks writes the table. What does not fit into the last column goes
// below the line.
func printChecks(b *strings.Builder, v verdict.Verdict) {
	width := 0
	for _, c := range v.Checks {
		width = max(width, len(c.Name))
	}
	for _, c := range v.Checks {
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
			writeWrapped(b, strings.Repeat(" ", 9)+text, strings.Repeat(" ", 9))
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
		text = c.Detail
		// The same long message need not be read twice.
		for _, e := range v.Errors {
			if e.Message != "" {
				text = strings.ReplaceAll(text, e.Message, "see error "+e.Code)
			}
		}
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

var hash = regexp.MustCompile(`\b(?:sha256:)?([0-9a-f]{12})[0-9a-f]{52}\b`)

// short cuts digests to the 12 digits that people compare.
func short(s string) string { return hash.ReplaceAllString(s, "$1") }

// clean keeps bytes from outside from steering the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
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
	printMCOAs(b, "By itself the machine-config-daemon", v.MCO)
}

func printMCOAs(b *strings.Builder, line string, m verdict.MCO) {
	if m.Release != "" {
		line += " of " + clean(m.Release)
	}
	if m.WouldSkip {
		line += " would skip the reboot"
	} else {
		line += " would pivot and reboot"
	}
	if len(m.Why) == 0 {
		b.WriteString(line + ".\n")
		return
	}
	b.WriteString(line + ":\n")
	for _, r := range m.Why {
		writeWrapped(b, fmt.Sprintf("  %s (%s): %s", clean(r.Code), clean(r.Versions), short(clean(r.Detail))), "    ")
	}
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
