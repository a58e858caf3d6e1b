package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// The page says what to do about every reason to proceed and every error code, and
// about none that there is not.
func TestTroubleshooting(t *testing.T) {
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, check := range verdict.CheckNames() {
		known[string(check)+"-unknown"] = true
		known[string(check)+"-differs"] = true
	}
	for _, code := range errorCodes(t) {
		known[code] = true
	}
	found := map[string]bool{}
	for _, table := range regexp.MustCompile(`(?m)^\| (?:reason|code) \|.*\n((?:\|.*\n)*)`).FindAllStringSubmatch(string(page), -1) {
		for line := range strings.Lines(table[1]) {
			first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
			for _, m := range regexp.MustCompile("`([a-z0-9-]+)`").FindAllStringSubmatch(first, -1) {
				found[m[1]] = true
				if !known[m[1]] {
					t.Errorf("there is no reason and no code %s", m[1])
				}
			}
		}
	}
	for s := range known {
		if !found[s] {
			t.Errorf("docs/troubleshooting.md does not say what to do about %s", s)
		}
	}
}
