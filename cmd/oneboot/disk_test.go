package main

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// The page names every check, code and field of a disk report, and no check or
// code that there is not.
func TestDiskDocument(t *testing.T) {
	raw, err := os.ReadFile("../../docs/disk.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	known := map[string]bool{}
	for _, s := range append(codesIn(t, "daemon", `^DiskCheck.* CheckName$|^DiskCheck[A-Z]`), codesIn(t, "daemon", ` DiskCode$`)...) {
		known[s] = true
	}
	if len(known) != 13+5 {
		t.Fatalf("found %d checks and codes: %v", len(known), known)
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\|").FindAllStringSubmatch(page, -1)
	documented := map[string]bool{}
	for _, m := range rows {
		documented[m[1]] = true
		if !known[m[1]] {
			t.Errorf("there is no %s", m[1])
		}
	}
	for s := range known {
		if !documented[s] {
			t.Errorf("docs/disk.md does not name %s", s)
		}
	}
	verdicts := map[string]bool{}
	for _, s := range fieldsOf(reflect.TypeFor[verdict.Verdict]()) {
		verdicts[s] = true
	}
	for _, s := range fieldsOf(reflect.TypeFor[daemon.DiskReport]()) {
		if !verdicts[s] && !strings.Contains(page, "`"+s+"`") {
			t.Errorf("docs/disk.md does not name the field %s", s)
		}
	}
}
