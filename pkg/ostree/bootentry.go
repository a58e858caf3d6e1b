package ostree

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sort"
	"strings"

	"github.com/oneboot/oneboot/pkg/ostree/format"
)

const (
	maxEntries   = 256
	maxEntrySize = 64 << 10
)

// A BootEntry is a boot loader entry, /boot/loader/entries/ostree-*.conf.
type BootEntry struct {
	// File is the entry's file name.
	File    string
	Title   string
	Version string
	Linux   string
	// Initrds are the paths of the initial ramdisks in order. The first is
	// the deployment's own; others are overlays.
	Initrds []string
	// Options is the kernel command line, verbatim.
	Options string
}

// parseBootEntry decodes an entry the way libostree's bootconfig parser does:
// a key, one blank, and the rest of the line verbatim; of a repeated key the
// last one counts, except that initrd is a list. Options that are repeated are
// an error, for boot loaders join them.
func parseBootEntry(file string, b []byte) (BootEntry, error) {
	e := BootEntry{File: file}
	options := false
	for _, line := range strings.Split(string(b), "\n") {
		key, value, ok := cutBlank(line)
		if !ok || !isAlpha(key[0]) {
			continue
		}
		switch key {
		case "title":
			e.Title = value
		case "version":
			e.Version = value
		case "linux":
			e.Linux = value
		case "options":
			if options {
				return BootEntry{}, fmt.Errorf("boot entry %s: more than one options line", file)
			}
			e.Options, options = value, true
		case "initrd":
			e.Initrds = append(e.Initrds, value)
		}
	}
	return e, nil
}

func cutBlank(line string) (key, value string, ok bool) {
	i := strings.IndexAny(line, " \t")
	if i <= 0 {
		return "", "", false
	}
	return line[:i], line[i+1:], true
}

func isAlpha(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// ostreeArgument returns the value of the first ostree= among arguments that
// are separated by blanks.
func ostreeArgument(line string) (string, bool) {
	for _, arg := range strings.Fields(line) {
		if v, ok := strings.CutPrefix(arg, "ostree="); ok {
			return v, true
		}
	}
	return "", false
}

// readBootEntries reads the entries of the active boot version, the default
// one first.
func (s *Sysroot) readBootEntries() ([]BootEntry, error) {
	version, err := s.bootVersion()
	if err != nil {
		return nil, err
	}
	dir := path.Join(s.bootDir, "loader."+version, "entries")
	list, err := s.root.ReadDir(dir, maxEntries)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing boot entries: %w", err)
	}
	var entries []BootEntry
	for _, f := range list {
		if !strings.HasPrefix(f.Name(), "ostree-") || !strings.HasSuffix(f.Name(), ".conf") {
			continue
		}
		b, err := s.root.ReadFile(path.Join(dir, f.Name()), maxEntrySize)
		if errors.Is(err, errNotRegular) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading boot entry: %w", err)
		}
		e, err := parseBootEntry(f.Name(), b)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, sortBootEntries(entries)
}

// sortBootEntries sorts as libostree does, by descending version. It is an
// error where that leaves the order open: then nobody knows the default.
func sortBootEntries(entries []BootEntry) error {
	sort.SliceStable(entries, func(i, j int) bool {
		return compareVersions(entries[i].Version, entries[j].Version) > 0
	})
	for i := 1; i < len(entries); i++ {
		a, b := entries[i-1], entries[i]
		if compareVersions(a.Version, b.Version) == 0 {
			return fmt.Errorf("sorting boot entries: %s and %s have the same version %q", a.File, b.File, a.Version)
		}
	}
	return nil
}

// bootVersion is "0" or "1", from the link /boot/loader.
func (s *Sysroot) bootVersion() (string, error) {
	name := path.Join(s.bootDir, "loader")
	target, err := s.root.Readlink(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "0", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading link to the boot entries: %w", err)
	}
	switch target {
	case "loader.0":
		return "0", nil
	case "loader.1":
		return "1", nil
	}
	return "", fmt.Errorf("reading %s: it leads to %q, want loader.0 or loader.1", name, target)
}

// compareVersions is strverscmp(3): digits compare as numbers, with leading
// zeros as fractions.
func compareVersions(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	if i == len(a) && i == len(b) {
		return 0
	}
	// Back to the start of the digits that the difference is part of.
	start := i
	for start > 0 && isDigit(a[start-1]) {
		start--
	}
	na, nb := digits(a[start:]), digits(b[start:])
	if na == 0 || nb == 0 {
		return compareBytes(a, b, i)
	}
	if a[start] == '0' || b[start] == '0' {
		return compareFractions(a[start:start+na], b[start:start+nb], a, b, i)
	}
	if na != nb {
		return na - nb
	}
	return compareBytes(a, b, i)
}

// compareFractions compares two runs of digits at least one of which has
// leading zeros: the more leading zeros, the smaller.
func compareFractions(da, db, a, b string, i int) int {
	za, zb := zeros(da), zeros(db)
	if za != zb {
		// A run of zeros alone is an integer zero beside a fraction.
		switch {
		case za == len(da) && za < zb:
			return 1
		case zb == len(db) && zb < za:
			return -1
		}
		return zb - za
	}
	switch {
	case za == len(da) && zb < len(db):
		return 1
	case zb == len(db) && za < len(da):
		return -1
	}
	return compareBytes(a, b, i)
}

func compareBytes(a, b string, i int) int {
	switch {
	case i == len(a):
		return -1
	case i == len(b):
		return 1
	}
	return int(a[i]) - int(b[i])
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func digits(s string) int {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}

func zeros(s string) int {
	n := 0
	for n < len(s) && s[n] == '0' {
		n++
	}
	return n
}

// link decodes the entry's ostree= argument.
func (e BootEntry) link() (format.BootLink, error) {
	arg, ok := ostreeArgument(e.Options)
	if !ok {
		return format.BootLink{}, fmt.Errorf("boot entry %s: options have no ostree= argument", e.File)
	}
	l, err := format.ParseBootLink(arg)
	if err != nil {
		return format.BootLink{}, fmt.Errorf("boot entry %s: options: %w", e.File, err)
	}
	return l, nil
}
