package daemon

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnnotate(t *testing.T) {
	add := []annotation{{"oneboot.dev/action", "skip"}, {"oneboot.dev/proof", "manifest-digest"}}
	const more = `"oneboot.dev/action":"skip","oneboot.dev/proof":"manifest-digest"`
	tests := []struct{ name, in, want string }{
		{"as the server writes it", `{"a/currentConfig":"rendered-worker-0","a/state":"Done"}`, `{"a/currentConfig":"rendered-worker-0","a/state":"Done",` + more + `}`},
		{"every other byte stays", " {\n  \"a\\u002fb\" : \"x\\/y\" ,\t\"\" : \"\"\n}\n\n", " {\n  \"a\\u002fb\" : \"x\\/y\" ,\t\"\" : \"\"," + more + "\n}\n\n"},
		{"empty", `{}`, `{` + more + `}`},
		{"empty, with space", "{ }\n", "{ " + more + "}\n"},
		{"there already", `{"oneboot.dev/proof":"manifest-digest","oneboot.dev/action":"skip","a":"}"}`, `{"oneboot.dev/proof":"manifest-digest","oneboot.dev/action":"skip","a":"}"}`},
		{"of an earlier run", `{"oneboot.dev/action" : "proceed","a":"b","oneboot.dev/other":"c","oneboot.dev/proof": "x" }`,
			`{"oneboot.dev/action" : "skip","a":"b","oneboot.dev/other":"c","oneboot.dev/proof": "manifest-digest" }`},
		{"keys that look alike", `{"Oneboot.dev/action":"x","\u006fneboot.dev/action":"y"}`, `{"Oneboot.dev/action":"x","\u006fneboot.dev/action":"skip","oneboot.dev/proof":"manifest-digest"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := annotate([]byte(tt.in), add)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(got), tt.want); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestAnnotateRefuses(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"nothing", "", "not a JSON document"},
		{"half", `{"a":"b"`, "not a JSON document"},
		{"two documents", `{"a":"b"}{}`, "not a JSON document"},
		{"null", `null`, "not a JSON object"},
		{"a list", `["a"]`, "not a JSON object"},
		{"a number", `{"a":"b","c":1}`, `the value of "c" is not a string`},
		{"null inside", `{"a":null}`, `the value of "a" is not a string`},
		{"nested", `{"a":{"b":"c"}}`, `the value of "a" is not a string`},
		{"twice", `{"a":"b","\u0061":"c"}`, `the key "a" stands there twice`},
		{"not UTF-8", "{\"a\":\"\xff\"}", "not a JSON document"},
		{"too much", `{"oneboot.dev/x":"` + strings.Repeat("y", 1<<10) + `"}`, "over the limit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := annotate([]byte(tt.in), []annotation{{"oneboot.dev/action", "skip"}})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// What the machine-config-daemon reads is what was there and what was added.
func FuzzAnnotate(f *testing.F) {
	f.Add([]byte(`{"a":"b"}`))
	f.Add([]byte(` { "oneboot.dev/action" : "\u0041" , "b":"\\" }`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		add := []annotation{{"oneboot.dev/action", "skip"}, {"oneboot.dev/proof", `"\`}}
		got, err := annotate(in, add)
		if err != nil {
			return
		}
		var before, after map[string]string
		if err := json.Unmarshal(in, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		for _, a := range add {
			before[a.key] = a.value
		}
		if d := cmp.Diff(after, before); d != "" {
			t.Error(d)
		}
	})
}
