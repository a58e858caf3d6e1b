package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// printText writes a verdict for a person at a serial console: the answer in
// one line, then why.
func printText(w io.Writer, v verdict.Verdict) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", headline(v))
	if v.Target.OSImageURL != "" {
		fmt.Fprintf(&b, "wanted  %s\n", clean(v.Target.OSImageURL))
	}
	if v.Booted.Checksum != "" {
		fmt.Fprintf(&b, "booted  %s %s\n", v.Booted.Checksum, clean(v.Booted.Version))
	}
	b.WriteString("\n")
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, c := range v.Checks {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", c.Outcome, c.Name, checkText(c, v.Proof))
	}
	_ = tw.Flush()
	b.WriteString("\n" + mcoText(v.MCO) + "\n")
	if v.Cost != nil {
		fmt.Fprintf(&b, "A pivot would fetch %s.\n", costText(*v.Cost))
	}
	for _, s := range v.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", clean(s))
	}
	for _, e := range v.Errors {
		fmt.Fprintf(&b, "error: %s [%s]\n", clean(e.Message), e.Code)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// headline is the answer in one line.
func headline(v verdict.Verdict) string {
	word, why := "PROCEED", "nothing was proven"
	if v.Action == verdict.Skip {
		word, why = "SKIP", "the booted OS is the wanted OS, proven by "+proofText(v.Proof)
	} else {
		for _, c := range v.Checks {
			if string(v.Reason) == string(c.Name)+"-"+c.Outcome.String() {
				why = fmt.Sprintf("%s %s", c.Name, outcomeWords(c.Outcome))
				if d := checkText(c, ""); d != "" {
					why += ": " + d
				}
			}
		}
	}
	if v.Hypothetical {
		word += " (hypothetical)"
	}
	return word + ": " + why
}

func outcomeWords(o verdict.Outcome) string {
	if o == verdict.OutcomeUnknown {
		return "is unknown"
	}
	return o.String()
}

func proofText(p verdict.Proof) string {
	switch p {
	case verdict.ProofManifestDigest:
		return "the image's manifest digest"
	case verdict.ProofConfigDigest:
		return "the image's config digest"
	case verdict.ProofDiffIDs:
		return "the image's uncompressed layers"
	case verdict.ProofOSTreeCommit:
		return "the ostree commit inside the image"
	case verdict.ProofContentChecksum:
		return "the file tree inside the image"
	}
	return string(p)
}

func checkText(c verdict.Check, p verdict.Proof) string {
	switch {
	case c.Outcome == verdict.OutcomeSame && c.Name == verdict.CheckOSContent:
		return string(p) + " " + clean(short(c.Booted))
	case c.Outcome == verdict.OutcomeSame:
		return clean(short(c.Booted))
	case c.Detail != "":
		return clean(c.Detail)
	case c.Booted != "" || c.Target != "":
		return fmt.Sprintf("booted %s, wanted %s", orNone(c.Booted), orNone(c.Target))
	}
	return ""
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return clean(short(s))
}

// short cuts digests to the 12 digits that people compare.
func short(s string) string {
	words := strings.Fields(s)
	for i, w := range words {
		hex := strings.TrimPrefix(w, "sha256:")
		if name, tail, _ := strings.Cut(hex, "."); len(name) == 64 && strings.Trim(name, "0123456789abcdef") == "" {
			words[i] = name[:12]
			if tail != "" {
				words[i] += "." + tail
			}
		}
	}
	return strings.Join(words, " ")
}

// clean keeps bytes from outside from steering the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

func mcoText(m verdict.MCO) string {
	word := "The machine-config-daemon will pivot and reboot"
	if m.WouldSkip {
		word = "The machine-config-daemon will skip the reboot by itself"
	}
	if len(m.Why) == 0 {
		return word + "."
	}
	lines := []string{word + ":"}
	for _, r := range m.Why {
		lines = append(lines, fmt.Sprintf("  %s (%s): %s", r.Code, r.Versions, clean(r.Detail)))
	}
	return strings.Join(lines, "\n")
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
		s += ", " + c.Kernel + " kernel"
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
