package verdict

import (
	"maps"
	"slices"
	"strings"
)

// A KernelArgument is one argument as the kernel sees it: quotes that only
// group are gone.
type KernelArgument struct {
	Key string
	// Value is empty for a bare key; HasValue tells "quiet" from "quiet=".
	Value    string
	HasValue bool
}

// String writes the argument without quotes.
func (a KernelArgument) String() string {
	if a.HasValue {
		return a.Key + "=" + a.Value
	}
	return a.Key
}

// SplitKernelArguments cuts a line at white space outside double quotes and
// keeps each word as it stands: the rule of the kernel's next_arg
// (lib/cmdline.c), where a quote anywhere toggles and nothing escapes. An
// unterminated quote runs to the end of the line.
func SplitKernelArguments(line string) []string {
	var words []string
	start, quoted := -1, false
	for i := 0; i < len(line); i++ {
		c := line[i]
		if c == '"' {
			quoted = !quoted
		}
		if isKernelSpace(c) && !quoted {
			if start >= 0 {
				words = append(words, line[start:i])
			}
			start = -1
			continue
		}
		if start < 0 {
			start = i
		}
	}
	if start >= 0 {
		words = append(words, line[start:])
	}
	return words
}

// isKernelSpace is the kernel's isspace on bytes; 0xa0 is a space to it too.
func isKernelSpace(c byte) bool {
	return c == ' ' || c >= '\t' && c <= '\r' || c == 0xa0
}

// parseKernelArgument takes one word apart as next_arg does: a quote before
// the key or right after the first "=" is dropped together with one at the
// very end.
func parseKernelArgument(word string) KernelArgument {
	quoted := strings.HasPrefix(word, `"`)
	if quoted {
		word = strings.TrimSuffix(word[1:], `"`)
	}
	// An "=" in the first place belongs to the key there.
	i := strings.IndexByte(word, '=')
	if i == 0 {
		if j := strings.IndexByte(word[1:], '='); j >= 0 {
			i = j + 1
		} else {
			i = -1
		}
	}
	if i < 0 {
		return KernelArgument{Key: word}
	}
	key, value := word[:i], word[i+1:]
	if strings.HasPrefix(value, `"`) {
		value = value[1:]
		if !quoted {
			value = strings.TrimSuffix(value, `"`)
		}
	}
	return KernelArgument{Key: key, Value: value, HasValue: true}
}

// ParseKernelArguments returns what the kernel sees of a line: arguments
// behind a bare "--" are for init, not for the kernel.
func ParseKernelArguments(line string) []KernelArgument {
	var args []KernelArgument
	for _, w := range SplitKernelArguments(line) {
		a := parseKernelArgument(w)
		if a.Key == "--" && !a.HasValue {
			break
		}
		args = append(args, a)
	}
	return args
}

// foldKey maps "-" to "_": the kernel's parameq takes them for one letter.
func foldKey(key string) string { return strings.ReplaceAll(key, "-", "_") }

// positionalGroup names the group of keys among which order has a meaning to
// the kernel, dracut or systemd; empty for all other keys.
func positionalGroup(key string) string {
	key = foldKey(key)
	switch key {
	case "ro", "rw":
		return "root-mode"
	case "quiet", "debug", "loglevel":
		return "loglevel"
	case "nosmp", "maxcpus", "nr_cpus":
		return "cpus"
	case "iommu", "iommu.passthrough", "iommu.strict", "intel_iommu", "amd_iommu":
		return "iommu"
	case "console", "earlycon", "earlyprintk", "netconsole", "consoleblank":
		return "console"
	case "hugepagesz", "hugepages", "default_hugepagesz", "hugetlb_cma":
		return "hugepages"
	case "ip", "ifname", "bond", "bridge", "team", "vlan", "nameserver", "bootdev", "netroot":
		return "dracut"
	case "dyndbg":
		return "dyndbg"
	}
	if strings.HasPrefix(key, "rd.") || strings.HasPrefix(key, "rd_") || strings.HasPrefix(key, "nvmf.") {
		return "dracut"
	}
	if strings.HasSuffix(key, ".dyndbg") {
		return "dyndbg"
	}
	return ""
}

// wantedWords cuts the MachineConfig's entries into words as the MCD does when
// it applies them (splitKernelArguments in pkg/daemon/update.go): one entry may
// hold several arguments, one of white space only holds none.
func wantedWords(entries []string) []string {
	var words []string
	for _, e := range entries {
		words = append(words, SplitKernelArguments(e)...)
	}
	return words
}

// changeKernelArguments tells what applying the wanted words would change of a
// line for the kernel; empty where nothing. The MCD deletes what is there of
// them and appends them all. Words are matched raw in a boot entry, which
// rpm-ostree compares as strings, and as the kernel sees them in /proc/cmdline,
// where the boot loader has dropped quotes.
func changeKernelArguments(line string, wanted []string, raw bool) string {
	matches := func(word string) bool {
		if raw {
			return slices.Contains(wanted, word)
		}
		a := parseKernelArgument(word)
		return slices.ContainsFunc(wanted, func(w string) bool { return parseKernelArgument(w) == a })
	}
	words := SplitKernelArguments(line)
	kept := slices.DeleteFunc(slices.Clone(words), matches)
	// Joined and parsed again: an open quote swallows what is appended.
	after := ParseKernelArguments(strings.Join(append(kept, wanted...), " "))
	before := ParseKernelArguments(line)

	groups := map[string]bool{}
	for _, w := range wanted {
		a := parseKernelArgument(w)
		if d := valuesOf(after, a.Key); !slices.Equal(valuesOf(before, a.Key), d) {
			if have := valuesOf(before, a.Key); len(have) > 0 {
				return joinArguments(have) + " would become " + joinArguments(d)
			}
			return joinArguments(d) + " is missing"
		}
		if !slices.Contains(after, a) {
			return a.shown() + " would not reach the kernel"
		}
		if g := positionalGroup(a.Key); g != "" {
			groups[g] = true
		}
	}
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		if !slices.Equal(groupOf(before, g), groupOf(after, g)) {
			return "the order would become " + joinArguments(groupOf(after, g))
		}
	}
	return ""
}

func valuesOf(args []KernelArgument, key string) []KernelArgument {
	return slices.DeleteFunc(slices.Clone(args), func(a KernelArgument) bool { return foldKey(a.Key) != foldKey(key) })
}

func groupOf(args []KernelArgument, group string) []KernelArgument {
	return slices.DeleteFunc(slices.Clone(args), func(a KernelArgument) bool { return positionalGroup(a.Key) != group })
}

func joinArguments(args []KernelArgument) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = a.shown()
	}
	return strings.Join(words, " ")
}

func checkKernelArguments(b Booted, mc MachineConfig, p Policy) finding {
	wanted := wantedWords(mc.KernelArguments)
	if len(wanted) == 0 {
		return same("", "")
	}
	shown := showLine(strings.Join(wanted, " "))
	lines := []struct {
		name string
		line Fact[string]
		raw  bool
	}{{"boot entry", b.BootEntryOptions, true}, {"/proc/cmdline", b.CommandLine, false}}
	if p.Unbooted {
		lines = lines[:1]
	}
	for _, l := range lines {
		line, ok := l.line.Get()
		if !ok {
			return unknownBecause(l.name + ": " + l.line.Why())
		}
		if change := changeKernelArguments(line, wanted, l.raw); change != "" {
			return differs(showLine(line), shown, l.name+": "+change)
		}
	}
	return same(shown, shown)
}

// checkLegacyKernelArguments holds /etc/pivot/kernel-args against both lines:
// what it adds must be there, what it deletes must not.
func checkLegacyKernelArguments(b Booted, p Policy) finding {
	file, ok := b.LegacyKernelArguments.Get()
	if !ok {
		return unknownBecause("/etc/pivot/kernel-args: " + b.LegacyKernelArguments.Why())
	}
	if len(file) == 0 {
		return same("", "")
	}
	entry, ok := b.BootEntryOptions.Get()
	if !ok {
		return unknownBecause("boot entry: " + b.BootEntryOptions.Why())
	}
	lines := []string{entry}
	if !p.Unbooted {
		cmdline, ok := b.CommandLine.Get()
		if !ok {
			return unknownBecause("/proc/cmdline: " + b.CommandLine.Why())
		}
		lines = append(lines, cmdline)
	}
	for _, l := range file {
		verb, rest, _ := strings.Cut(l, " ")
		words := SplitKernelArguments(rest)
		if verb != "ADD" && verb != "DELETE" || len(words) == 0 {
			return unknownBecause("/etc/pivot/kernel-args: the line " + quoteShort(showLine(l)) + " is neither ADD nor DELETE with an argument")
		}
		for _, w := range words {
			for _, line := range lines {
				if slices.Contains(ParseKernelArguments(line), parseKernelArgument(w)) != (verb == "ADD") {
					return differs(showLine(line), showLine(l), "/etc/pivot/kernel-args would change the kernel arguments")
				}
			}
		}
	}
	shown := strings.Join(showLines(file), "; ")
	return same(shown, shown)
}

func quoteShort(s string) string {
	if len(s) > 80 {
		s = s[:80] + "..."
	}
	return `"` + strings.ToValidUTF8(s, "?") + `"`
}
