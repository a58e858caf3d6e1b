package verdict

import (
	"regexp"
	"strconv"
	"strings"
)

// redacted stands for a value that may be a secret.
const redacted = "(redacted)"

// markPrefix begins what a [Redactor] writes for a secret.
const markPrefix = "redacted-"

// secretName finds words in a kernel argument's key that announce a secret.
var secretName = regexp.MustCompile(`(?i)pass(word|wd|phrase)?$|secret|token|credential|psk$|api_?key|private_?key|cookie`)

// addressSecret finds a user's name and password, or a query, in an address.
var addressSecret = regexp.MustCompile(`(://)[^/@\s"]*@|\?[^\s"]+`)

// targetSecret finds the user and password of an iSCSI or other network root:
// netroot=iscsi:user:password@server::... (dracut.cmdline(7)).
var targetSecret = regexp.MustCompile(`^[a-z0-9]+:[^@\s]*@`)

// maySecret reports whether an argument may hold a secret: by the words of its
// key, as an address with credentials or a query in its value, as a network root
// with a password, or because an open quote made other arguments part of its value.
func maySecret(a KernelArgument) bool {
	switch {
	case !a.HasValue || a.Value == "":
		return false
	case secretName.MatchString(foldKey(a.Key)):
		return true
	case strings.Contains(a.Value, "://") && addressSecret.MatchString(a.Value):
		return true
	case strings.Contains(a.Value, markPrefix):
		return true
	case targetSecret.MatchString(a.Value):
		return true
	}
	for word := range strings.FieldsSeq(a.Value) {
		if key, value, ok := strings.Cut(word, "="); ok && value != "" && (secretName.MatchString(foldKey(key)) || targetSecret.MatchString(value)) {
			return true
		}
	}
	return false
}

// shown is the argument for a person or a log.
func (a KernelArgument) shown() string {
	if maySecret(a) {
		return a.Key + "=" + redacted
	}
	return a.String()
}

// showLine is a line of kernel arguments for a person or a log: words that may
// hold secrets lose their values, the others stay as they are.
func showLine(line string) string {
	var words []string
	changed := false
	for _, w := range SplitKernelArguments(line) {
		a := parseKernelArgument(w)
		if !maySecret(a) {
			words = append(words, w)
			continue
		}
		words, changed = append(words, a.shown()), true
		if !wellQuoted(w) {
			// What follows may be the secret's rest.
			words = append(words, "...")
			break
		}
	}
	if !changed {
		return line
	}
	return strings.Join(words, " ")
}

// wellQuoted: no quotes, or one pair around the word or its value.
func wellQuoted(word string) bool {
	switch strings.Count(word, `"`) {
	case 0:
		return true
	case 2:
		return strings.HasSuffix(word, `"`) && (strings.HasPrefix(word, `"`) || strings.Contains(word, `="`))
	}
	return false
}

func showLines(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = showLine(l)
	}
	return out
}

// A Redactor takes secrets out of facts so that they can be shown to others:
// equal values get equal marks, so that comparing the marks answers as
// comparing the values did.
type Redactor struct{ marks map[string]string }

// Facts returns the facts without the values of kernel arguments that may be
// secrets. The other facts hold none.
func (r *Redactor) Facts(b Booted, t Target) (Booted, Target) {
	b.BootEntryOptions = mapFact(b.BootEntryOptions, r.line)
	b.CommandLine = mapFact(b.CommandLine, r.line)
	b.LegacyKernelArguments = mapFact(b.LegacyKernelArguments, r.lines)
	t.MachineConfig = mapFact(t.MachineConfig, func(mc MachineConfig) MachineConfig {
		mc.KernelArguments = r.lines(mc.KernelArguments)
		return mc
	})
	return b, t
}

func mapFact[T any](f Fact[T], to func(T) T) Fact[T] {
	if v, ok := f.Get(); ok {
		return Known(to(v))
	}
	return f
}

func (r *Redactor) lines(lines []string) []string {
	if lines == nil {
		return nil
	}
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = r.line(l)
	}
	return out
}

// line replaces the values within the words and leaves what is between them,
// and every quote, as it is.
func (r *Redactor) line(line string) string {
	var out strings.Builder
	rest := line
	for _, w := range SplitKernelArguments(line) {
		before, after, _ := strings.Cut(rest, w)
		out.WriteString(before)
		out.WriteString(r.word(w))
		rest = after
	}
	out.WriteString(rest)
	return out.String()
}

func (r *Redactor) word(word string) string {
	a := parseKernelArgument(word)
	if !maySecret(a) {
		return word
	}
	i := strings.LastIndex(word, a.Value)
	return word[:i] + r.mark(a.Value) + word[i+len(a.Value):]
}

// mark is the stand-in for a value. White space and quotes stay, since they
// decide where words end; all between them goes.
func (r *Redactor) mark(value string) string {
	var out strings.Builder
	start := 0
	flush := func(end int) {
		if start < end {
			out.WriteString(r.markOf(value[start:end]))
		}
	}
	for i := 0; i < len(value); i++ {
		if isKernelSpace(value[i]) || value[i] == '"' {
			flush(i)
			out.WriteByte(value[i])
			start = i + 1
		}
	}
	flush(len(value))
	return out.String()
}

func (r *Redactor) markOf(piece string) string {
	if r.marks == nil {
		r.marks = map[string]string{}
	}
	if r.marks[piece] == "" {
		r.marks[piece] = markPrefix + strconv.Itoa(len(r.marks)+1)
	}
	return r.marks[piece]
}

// RedactText takes user names, passwords and queries out of addresses in a
// text, and the values of words that may be secrets.
func RedactText(text []byte) []byte {
	lines := strings.SplitAfter(string(text), "\n")
	for i, l := range lines {
		line := strings.TrimSuffix(l, "\n")
		lines[i] = addressSecret.ReplaceAllString(showLine(line), "$1") + l[len(line):]
	}
	return []byte(strings.Join(lines, ""))
}
