package main

import (
	"os"
	"strings"
	"testing"
)

// Every command line of the README is one that the program takes.
func TestReadmeCommands(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if !strings.HasPrefix(line, "    oneboot ") {
			continue
		}
		found++
		cmd, rest, err := newRoot("oneboot").Find(words[1:])
		if err != nil || !cmd.HasParent() {
			t.Errorf("%s: no such command: %v", line, err)
			continue
		}
		if err := cmd.ParseFlags(rest); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if found < 5 {
		t.Errorf("%d commands found in the README", found)
	}
}
