package fields

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPathsOf(t *testing.T) {
	type Leaf struct {
		V string `json:"v"`
	}
	type Inner struct {
		A    int            `json:"a,omitempty"`
		Leaf []Leaf         `json:"leaf"`
		At   time.Time      `json:"at"`
		By   map[string]int `json:"by"`
	}
	type document struct {
		Inner
		Map    map[string]*Inner `json:"map"`
		One    *Leaf             `json:"one"`
		Hidden int               `json:"-"`
	}
	got := PathsOf(reflect.TypeFor[document](), "", map[reflect.Type]string{reflect.TypeFor[Leaf](): "leaf of all"})
	want := []string{"a", "leaf", "leaf of all.v", "at", "by", "map", "map.NAME.a", "map.NAME.leaf", "map.NAME.at", "map.NAME.by", "one"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestRowsOf(t *testing.T) {
	page := "# T\n\n## A\n\n| field | meaning |\n|---|---|\n| `a`, `b.c` | `not this` |\n\n| code | x |\n|---|---|\n| `e` | x |\n\n## AB\n\n| field | meaning |\n| `d` | x |\n"
	if diff := cmp.Diff([]string{"a", "b.c"}, rowsOf(page, "A")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got := rowsOf(page, "B"); got != nil {
		t.Errorf("got %v of no section", got)
	}
}
