package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Whatever form objects are in, none is lost: one that is not read is a problem.
func TestAdd(t *testing.T) {
	const layered = "kind: MachineOSConfig\n%smetadata: {name: a}\n%sspec: {machineConfigPool: {name: worker}}\n"
	tests := []struct {
		name, text string
		objects    int
		problem    string
	}{
		{name: "a List as oc prints it", text: "apiVersion: v1\nitems:\n- kind: MachineOSConfig\n  metadata: {}\n- kind: Pod\nkind: List\nmetadata:\n  resourceVersion: \"\"\n", objects: 1},
		{name: "items to the right", text: "kind: List\nitems:\n  - kind: MachineOSConfig\n    metadata: {}\n", objects: 1},
		{name: "items one column to the right", text: "kind: List\nitems:\n - kind: MachineOSConfig\n", objects: 1},
		{name: "a comment in an item", text: "kind: List\nitems:\n- " + fmt.Sprintf(layered, "# why\n  ", "  "), objects: 1},
		{name: "a dash in a line of its own", text: "kind: List\nitems:\n-\n  kind: MachineOSConfig\n", objects: 1},
		{name: "items twice", text: "kind: List\nitems:\n- kind: Pod\nmetadata: {}\nitems:\n- kind: MachineOSConfig\n", problem: "appears twice"},
		{name: "items without a kind", text: "kind: ConfigMapList\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n", objects: 2},
		{name: "items without a kind, decoded as a whole", text: "kind: ConfigMapList\nitems: [{metadata: {name: a}}]\n", objects: 1},
		{name: "items without a kind in JSON", text: `{"kind":"ConfigMapList","items":[{"metadata":{"name":"a"}}]}`, objects: 1},
		{name: "a List in a List", text: "kind: List\nitems:\n- kind: List\n  items:\n  - kind: MachineOSConfig\n", problem: "a List in a List"},
		{name: "a List in a List in JSON", text: `{"kind":"List","items":[{"kind":"List","items":[{"kind":"MachineOSConfig"}]}]}`, problem: "a List in a List"},
		{name: "items that are none", text: "kind: List\nitems: 5\n", problem: "items is not a list"},
		{name: "a document behind the end of one", text: "kind: Pod\n...\nkind: MachineOSConfig\n", objects: 1},
		{name: "a kind twice", text: "kind: Pod\nkind: MachineOSConfig\n", problem: "appears twice"},
		{name: "a kind twice in JSON", text: `{"kind":"MachineOSConfig","kind":"Pod"}`, problem: "appears twice"},
		{name: "a kind in another case", text: `{"kind":"MachineOSConfig","Kind":"Pod"}`, objects: 1},
		{name: "a key twice in JSON", text: `{"kind":"MachineConfig","spec":{"extensions":["usbguard"],"extensions":[]}}`, problem: "appears twice"},
		{name: "deep JSON", text: `{"kind":"MachineConfig","spec":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}", problem: "nested deeper"},
		{name: "merged keys", text: "kind: MachineConfig\nspec:\n  <<: {extensions: [usbguard]}\n", problem: "merged keys"},
		{name: "a number for a key", text: "kind: MachineConfig\nspec: {1: x, extensions: [usbguard]}\n", objects: 1},
		{name: "a list for a key", text: "kind: MachineConfig\nspec: {? [a] : x}\n", problem: "a key is not a string"},
		{name: "comments alone", text: "# nothing\n---\n# here\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var f Fleet
			f.Add("f", []byte(tt.text))
			if len(f.documents) != tt.objects {
				t.Errorf("%d objects, want %d", len(f.documents), tt.objects)
			}
			switch {
			case tt.problem == "" && len(f.problems) > 0:
				t.Errorf("problems: %v", f.problems)
			case tt.problem != "" && (len(f.problems) != 1 || !strings.Contains(f.problems[0].Message, tt.problem)):
				t.Errorf("problems: %v, want %q", f.problems, tt.problem)
			}
		})
	}
}

// Lists in Lists cost no more than what they are.
func TestNestedLists(t *testing.T) {
	var b strings.Builder
	for depth := range 2000 {
		indent := strings.Repeat("  ", depth)
		fmt.Fprintf(&b, "kind: List\n%sitems:\n%s- ", indent, indent)
	}
	b.WriteString("kind: Pod\n")
	var f Fleet
	began := time.Now()
	f.Add("f", []byte(b.String()))
	if took := time.Since(began); took > 5*time.Second || len(f.problems) != 1 {
		t.Errorf("%s, problems: %v", took, f.problems)
	}
}

// A file of nothing but marks costs little, and what is too much is told once.
func TestManyParts(t *testing.T) {
	for name, text := range map[string]string{
		"ends": strings.Repeat("...\n", 2_000_000), "beginnings": strings.Repeat("---\n", 2_000_000),
		"problems": strings.Repeat("5\n---\n", maxProblems+5000), "items": "kind: List\nitems:\n" + strings.Repeat("-\n", 3_000_000),
	} {
		t.Run(name, func(t *testing.T) {
			var f Fleet
			began := time.Now()
			f.Add("f", []byte(text))
			if took := time.Since(began); took > 10*time.Second || len(f.problems) > maxProblems+1 {
				t.Errorf("%s, %d problems", took, len(f.problems))
			}
		})
	}
}
