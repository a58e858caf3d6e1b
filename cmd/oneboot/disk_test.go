package main

import (
	"os"
	"regexp"
	"testing"
)

// The page names every check and code of a disk report, and none that there is
// not.
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
	documented := map[string]bool{}
	for _, table := range regexp.MustCompile(`(?m)^\| (?:check|code) \|.*\n((?:\|.*\n)*)`).FindAllStringSubmatch(page, -1) {
		for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\|").FindAllStringSubmatch(table[1], -1) {
			documented[m[1]] = true
			if !known[m[1]] {
				t.Errorf("there is no %s", m[1])
			}
		}
	}
	for s := range known {
		if !documented[s] {
			t.Errorf("docs/disk.md does not name %s", s)
		}
	}
}
