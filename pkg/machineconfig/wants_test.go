package machineconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadWants(t *testing.T) {
	tests := []struct {
		name, text string
		want       []Wants
		others     int
		err        string
	}{
		{name: "one", text: "kind: MachineConfig\nmetadata:\n  name: a\nspec:\n  kernelType: realtime\n  extensions: [usbguard]\n",
			want: []Wants{{Name: Word{"a", 3}, KernelType: Word{"realtime", 5}, Extensions: []Word{{"usbguard", 6}}}}},
		{name: "two documents and another kind", text: "---\n---\nkind: Secret\n---\nkind: MachineConfig\n---\nkind: MachineConfig\nspec:\n  extensions:\n  - a\n  - b\n",
			want: []Wants{{}, {Extensions: []Word{{"a", 10}, {"b", 11}}}}, others: 1},
		{name: "JSON", text: `{"kind":"MachineConfig","spec":{"kernelType":"default","extensions":null}}`, want: []Wants{{KernelType: Word{"default", 1}}}},
		{name: "a list", text: "kind: List\nitems:\n- kind: MachineConfig\n  spec: {extensions: [ipsec]}\n- kind: Pod\n", want: []Wants{{Extensions: []Word{{"ipsec", 4}}}}, others: 1},
		{name: "a list that names the kind alone", text: "kind: MachineConfigList\nitems:\n- spec: {extensions: [ipsec]}\n", want: []Wants{{Extensions: []Word{{"ipsec", 3}}}}},
		{name: "a role", text: "kind: MachineConfig\nmetadata:\n  labels: {machineconfiguration.openshift.io/role: worker}\n", want: []Wants{{Role: Word{"worker", 3}}}},
		{name: "twice", text: "kind: MachineConfig\nspec:\n  kernelType: a\n  kernelType: b\n", err: "line 4: the key kernelType appears twice"},
		{name: "not a string", text: "kind: MachineConfig\nspec:\n  extensions: [5]\n", err: "line 3: spec.extensions[0] is not a string"},
		{name: "not a list", text: "kind: MachineConfig\nspec:\n  extensions: usbguard\n", err: "line 3: spec.extensions is not a list"},
		{name: "an anchor", text: "x: &x [usbguard]\nkind: MachineConfig\nspec:\n  extensions: *x\n", err: "line 4: extensions is a reference to an anchor"},
		{name: "merged", text: "kind: MachineConfig\nspec:\n  <<: {kernelType: realtime}\n", err: "line 3: merged keys"},
		{name: "no YAML", text: "kind: [", err: "line 1"},
		{name: "a scalar", text: "hello", err: "line 1: not an object"},
		{name: "lists in lists", text: "kind: List\nitems: [{kind: List}]", err: "line 2: a List in a List"},
		{name: "nothing", text: " ", err: "the document is empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, others, err := ReadWants([]byte(tt.text))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || others != tt.others {
				t.Fatalf("%d others, %v", others, err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func FuzzReadWants(f *testing.F) {
	f.Add([]byte("kind: List\nitems:\n- kind: MachineConfig\n  spec: {extensions: [ipsec], kernelType: realtime}\n"))
	f.Add([]byte("a: &a [*a]\nkind: MachineConfig\nspec: *a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		wants, _, err := ReadWants(b)
		if err != nil && wants != nil {
			t.Error("both an answer and an error")
		}
	})
}
