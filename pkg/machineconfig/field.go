package machineconfig

import (
	"fmt"
	"strconv"
	"strings"
)

// maxShown is the length up to which a word of the document is shown.
const maxShown = 80

// shown makes a word of the document fit for a message: short, on one line.
func shown(s string) string {
	if len(s) > maxShown {
		s = strings.ToValidUTF8(s[:maxShown], "") + "..."
	}
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

func join(path, key string) string {
	if path == "" {
		return shown(key)
	}
	if strings.ContainsAny(key, "./ ") || key == "" {
		return path + "[" + strconv.Quote(shown(key)) + "]"
	}
	return path + "." + shown(key)
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// at names the field that an error is about.
func at(path string, err error) error {
	if path == "" {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// field returns the value of a key. The daemon's decoder matches keys whatever
// their case and lets the last one win, so a key in another spelling, or in
// two, is an error here rather than a value that only one of us sees.
func (n *node) field(path, key string) (*node, error) {
	var found *node
	for i, k := range n.keys {
		if !strings.EqualFold(k, key) {
			continue
		}
		if k != key {
			return nil, fmt.Errorf("%s: is not the spelling that is expected: write %q", join(path, k), key)
		}
		found = &n.items[i]
	}
	if found == nil {
		return &node{}, nil
	}
	return found, nil
}

func wrongKind(path string, want kind, n *node) error {
	hint := ""
	switch {
	case want == text && (n.kind == number || n.kind == boolean):
		hint = ": put it into quotes"
	case want == boolean && n.kind == text:
		hint = ": write it without quotes"
	}
	return fmt.Errorf("%s: want %s, found %s%s", path, want, n.kind, hint)
}

// A fields reads the members of one object and keeps the first error.
type fields struct {
	path string
	n    *node
	err  error
}

func (f *fields) get(key string, want kind) *node {
	if f.err != nil {
		return &node{}
	}
	v, err := f.n.field(f.path, key)
	if err != nil {
		f.err = err
		return &node{}
	}
	if v.kind != want && v.kind != null {
		f.err = wrongKind(join(f.path, key), want, v)
		return &node{}
	}
	return v
}

// text returns a string; a missing or null one is empty.
func (f *fields) text(key string) string { return f.get(key, text).text }

// bool returns a flag; a missing or null one is false.
func (f *fields) bool(key string) bool { return f.get(key, boolean).bool }

// texts returns a list of strings; a missing or null one is nil.
func (f *fields) texts(key string) []string {
	l := f.get(key, list)
	var out []string
	for i := range l.items {
		if l.items[i].kind != text {
			f.err = wrongKind(index(join(f.path, key), i), text, &l.items[i])
			return nil
		}
		out = append(out, l.items[i].text)
	}
	return out
}

// object returns the fields of an object; a missing or null one has none.
func (f *fields) object(key string) fields {
	return fields{path: join(f.path, key), n: f.get(key, object)}
}
