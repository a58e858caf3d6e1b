// Package fields holds the tables of the documentation to the JSON that programs
// write: every field has its row, and no row is of a field that there is not.
package fields

import (
	"encoding"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Elsewhere, in the place of a path, says that a type has its table somewhere else.
const Elsewhere = ""

// Check compares the first column of a section's tables of fields with the
// fields of a document: paths such as os.facts.NAME.value, with NAME for any key.
// Lists have no mark of their own. The fields of a shared type are under one path of
// its own wherever it stands; below is that of the document itself.
func Check(t *testing.T, page, section, below string, document reflect.Type, shared map[reflect.Type]string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	rows := rowsOf(string(text), section)
	if len(rows) == 0 {
		t.Fatalf("%s has no table in the section %q", page, section)
	}
	want := PathsOf(document, below, shared)
	for _, p := range want {
		if !slices.Contains(rows, p) {
			t.Errorf("%s, %s: no row for %s", page, section, p)
		}
	}
	for i, p := range rows {
		if !slices.Contains(want, p) {
			t.Errorf("%s, %s: there is no field %s", page, section, p)
		}
		if slices.Contains(rows[:i], p) {
			t.Errorf("%s, %s: %s is there twice", page, section, p)
		}
	}
}

var (
	// A table of fields has this head; others in the section are of something else.
	table = regexp.MustCompile(`(?m)^\| field \| meaning \|\n((?:\|.*\n)*)`)
	row   = regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|")
	name  = regexp.MustCompile("`([^`]*)`")
)

// rowsOf are the names in the first columns of a section's tables of fields.
func rowsOf(page, section string) []string {
	_, text, found := strings.Cut(page, "\n## "+section+"\n")
	if !found {
		return nil
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var rows []string
	for _, t := range table.FindAllStringSubmatch(text+"\n", -1) {
		for _, r := range row.FindAllStringSubmatch(t[1], -1) {
			for _, n := range name.FindAllStringSubmatch(r[1], -1) {
				rows = append(rows, n[1])
			}
		}
	}
	return rows
}

// PathsOf are the paths of a document's fields.
func PathsOf(document reflect.Type, below string, shared map[reflect.Type]string) []string {
	var paths []string
	var walk func(t reflect.Type, below string)
	done := map[reflect.Type]bool{}
	inside := func(t reflect.Type, path string) {
		t, path = element(t, path)
		if prefix, ok := shared[t]; !ok {
			walk(t, path)
		} else if prefix != Elsewhere && !done[t] {
			done[t] = true
			walk(t, prefix)
		}
	}
	walk = func(t reflect.Type, below string) {
		if t.Kind() != reflect.Struct || writesItself(t) {
			return
		}
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-" || !f.IsExported():
			case name == "" && f.Anonymous:
				inside(f.Type, below)
			default:
				path := strings.TrimPrefix(below+"."+name, ".")
				paths = append(paths, path)
				inside(f.Type, path)
			}
		}
	}
	document, below = element(document, below)
	walk(document, below)
	return paths
}

// element is what is in pointers, lists and maps.
func element(t reflect.Type, path string) (reflect.Type, string) {
	for {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
		case reflect.Map:
			path += ".NAME"
		default:
			return t, path
		}
		t = t.Elem()
	}
}

// writesItself reports whether a type's JSON is not its fields.
func writesItself(t reflect.Type) bool {
	for _, i := range []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()} {
		if t.Implements(i) || reflect.PointerTo(t).Implements(i) {
			return true
		}
	}
	return false
}
