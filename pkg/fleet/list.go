package fleet

import (
	"bytes"
	"regexp"
)

var (
	itemsLine = regexp.MustCompile(`(?m)^items:[ \t\r]*$`)
	// topKey is a line that begins a key of the List itself.
	topKey = regexp.MustCompile(`^["']?[A-Za-z][A-Za-z0-9]*["']?:(?:[ \t\r\n]|$)`)
)

// An item is one of a List, as it stands there, and the number of lines before it.
type item struct {
	raw  []byte
	line int
}

// text is the item as a document: two columns to the left.
func (i item) text() []byte {
	out := make([]byte, 0, len(i.raw))
	for l := range bytes.Lines(i.raw) {
		switch {
		case bytes.HasPrefix(l, []byte("- ")), bytes.HasPrefix(l, []byte("  ")):
			l = l[2:]
		case l[0] == '-':
			l = l[1:]
		}
		out = append(out, l...)
	}
	return out
}

// cutList cuts a List in the form that kubectl and oc print, one item after the
// other at the first column, so that only items that matter are decoded. It reports
// whether the List has that form in each of its lines; one that has not is decoded
// as a whole.
func cutList(b []byte) (items []item, ok bool) {
	found := itemsLine.FindIndex(b)
	if found == nil {
		return nil, false
	}
	at := found[1]
	line := bytes.Count(b[:at], []byte("\n"))
	over := false // the keys behind the items have begun
	for l := range bytes.Lines(b[at:]) {
		trimmed := bytes.TrimSpace(l)
		switch {
		case len(trimmed) == 0, l[0] == '#':
		case len(items) > maxParts:
			return nil, false
		case !over && (bytes.HasPrefix(l, []byte("- ")) || l[0] == '-' && len(trimmed) == 1):
			items = append(items, item{b[at:at], line})
		case bytes.HasPrefix(l, []byte("  ")) && (over || len(items) > 0):
		case topKey.Match(l) && !bytes.HasPrefix(l, []byte("items")):
			over = true
		default:
			return nil, false
		}
		at += len(l)
		line++
		if n := len(items) - 1; n >= 0 && !over {
			items[n].raw = items[n].raw[:len(items[n].raw)+len(l)]
		}
	}
	return items, true
}
