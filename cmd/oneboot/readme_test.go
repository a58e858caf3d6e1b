package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every command line of the documentation is one that the program takes, and
// every file of the repository that it names is there.
func TestDocumentedCommands(t *testing.T) {
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	least := map[string]int{"README.md": 5, "oncall.md": 6}
	for _, path := range append(docs, "../../README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "    ") {
				if words := oneboot(line); words != nil {
					found++
					checkCommand(t, filepath.Base(path), words)
				}
			}
			checkFiles(t, filepath.Base(path), line)
		}
		if found < least[filepath.Base(path)] {
			t.Errorf("%d commands found in %s", found, path)
		}
	}
}

// oneboot is what follows the program's name on a line that calls it, itself or
// in a container; nil on others.
func oneboot(line string) []string {
	line, _, _ = strings.Cut(line, " #")
	line, _, _ = strings.Cut(line, " >")
	words := strings.Fields(line)
	i := slices.IndexFunc(words, func(w string) bool { return w == "/usr/bin/oneboot" })
	if len(words) > 0 && words[0] == "oneboot" {
		i = 0
	}
	if i < 0 {
		return nil
	}
	return words[i+1:]
}

func checkCommand(t *testing.T, doc string, words []string) {
	t.Helper()
	root := newRoot("oneboot")
	root.InitDefaultCompletionCmd(words...)
	cmd, rest, err := root.Find(words)
	if err != nil || !cmd.HasParent() {
		t.Errorf("%s: %v: no such command: %v", doc, words, err)
		return
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Errorf("%s: %v: %v", doc, words, err)
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		t.Errorf("%s: %v: %v", doc, words, err)
	}
}

// checkFiles looks for the repository's files that a line names.
func checkFiles(t *testing.T, doc, line string) {
	t.Helper()
	for _, word := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" `=()|,;:\n", r) }) {
		if strings.HasPrefix(word, "manifests/") || strings.HasPrefix(word, "daemon/") || strings.HasPrefix(word, "docs/") {
			if _, err := os.Stat("../../" + strings.TrimSuffix(word, ".")); err != nil {
				t.Errorf("%s: %v", doc, err)
			}
		}
	}
}
