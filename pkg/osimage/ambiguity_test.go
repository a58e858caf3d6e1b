package osimage

import (
	"strings"
	"testing"
)

func TestUnambiguous(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"manifest", `{"config":{"digest":"a"},"layers":[{"digest":"a"},{"digest":"b"}]}`, ""},
		{"image config", `{"config":{"Labels":{"a":"1","A":"2"},"Env":["x"]},"rootfs":{"diff_ids":[]}}`, ""},
		{"config twice", `{"config":{},"config":{}}`, "twice"},
		{"config in two spellings", `{"config":{},"Config":{}}`, "spelled"},
		{"another spelling alone", `{"RootFS":{}}`, "spelled"},
		{"in a list", `{"manifests":[{"digest":"a","Digest":"b"}]}`, "spelled"},
		{"a long s folds to s", "{\"layer\u017f\":[]}", "spelled"},
		{"unknown keys in two cases", `{"x":1,"X":2}`, "twice"},
		{"a label twice", `{"config":{"Labels":{"a":"1","a":"2"}}}`, "twice"},
		{"trailing", `{}{}`, "follows"},
		{"deep", strings.Repeat("[", 100) + strings.Repeat("]", 100), "nested"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := unambiguous([]byte(tt.in))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func FuzzUnambiguous(f *testing.F) {
	f.Add([]byte(`{"config":{"Labels":{"a":"1"}},"rootfs":{"diff_ids":["x"]}}`))
	f.Add([]byte(`{"config":1,"Config":2}`))
	f.Fuzz(func(_ *testing.T, b []byte) { _ = unambiguous(b) })
}

// A commit behind ".." is not where the importer looks.
func TestEntryNameWithDots(t *testing.T) {
	for name, want := range map[string]bool{
		"sysroot/ostree/repo/objects/aa/" + strings.Repeat("b", 62) + ".commit":                 true,
		"./sysroot/ostree/repo/objects/aa/" + strings.Repeat("b", 62) + ".commit":               true,
		"usr/share/../../sysroot/ostree/repo/objects/aa/" + strings.Repeat("b", 62) + ".commit": false,
		"sysroot/ostree/repo/objects/aa/../aa/" + strings.Repeat("b", 62) + ".commit":           false,
	} {
		if got := plainName(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
