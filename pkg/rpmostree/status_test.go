package rpmostree

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/verdict"
)

func sum(c string) verdict.Checksum  { return verdict.Checksum(strings.Repeat(c, 64)) }
func digest(c string) verdict.Digest { return verdict.Digest("sha256:" + strings.Repeat(c, 64)) }

func load(t *testing.T, name string) *Status {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// status returns a sound status of one plain deployment, with keys changed or,
// where the value is nil, left out.
func status(t *testing.T, change map[string]any) string {
	t.Helper()
	d := map[string]any{
		"osname": "rhcos", "checksum": sum("a"), "serial": 0, "booted": true, "staged": false, "unlocked": "none",
		"base-commit-meta": map[string]any{}, "packages": []string{}, "regenerate-initramfs": false,
		"requested-packages": []string{}, "requested-local-packages": []string{}, "requested-base-removals": []string{},
		"requested-base-local-replacements": []string{}, "base-removals": []string{}, "base-local-replacements": []string{},
		"origin": string(sum("a")),
	}
	maps.Copy(d, change)
	maps.DeleteFunc(d, func(_ string, v any) bool { return v == nil })
	b, err := json.Marshal(map[string]any{"deployments": []any{d}})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestParseErrors(t *testing.T) {
	type m = map[string]any
	one := func(key string, v any) string { return status(t, m{key: v}) }
	sound := status(t, nil)
	tests := []struct{ name, in, want string }{
		{"nothing", "", "it is empty: rpm-ostree wrote nothing to its standard output"},
		{"blanks", "\n\n", "it is empty: rpm-ostree wrote nothing to its standard output"},
		{"null", "null", "it does not start with a JSON object: save the standard output of rpm-ostree status --json alone"},
		{"a list", "[]", "it does not start with a JSON object: save the standard output of rpm-ostree status --json alone"},
		{"a message first", "note: reload\n" + sound, "it does not start with a JSON object: save the standard output of rpm-ostree status --json alone"},
		{"error text", "error: Couldn't start daemon", "it does not start with a JSON object: save the standard output of rpm-ostree status --json alone"},
		{"a message behind", sound + "\nerror: x", "there is something behind the JSON document, which ends at byte "},
		{"cut off", sound[:len(sound)/2], "it ends too early: the output is cut off"},
		{"malformed", `{"deployments":[}`, "the JSON is malformed behind byte 16: "},
		{"not UTF-8", "{\"a\":\"\xff\"}", "it is not UTF-8 text"},
		{"too deep", `{"a":` + strings.Repeat("[", 80), "it is nested deeper than 64 levels"},
		{"too many values", `{"a":[` + strings.Repeat("0,", maxTokens) + "0]}", "it has more than 1048576 values"},
		{"too large", `{"a":"` + strings.Repeat("x", maxSize) + `"}`, "it has 16777224 bytes, more than 16777216"},
		{"a key twice", strings.Replace(sound, `"osname"`, `"serial":0,"osname"`, 1), `the key "serial" appears twice in one object, before byte `},
		{"no deployments", "{}", "deployments: is missing or null: rpm-ostree saw no ostree system"},
		{"null deployments", `{"deployments":null}`, "deployments: is missing or null: rpm-ostree saw no ostree system"},
		{"other case", strings.Replace(sound, "deployments", "Deployments", 1), "deployments: is missing or null: rpm-ostree saw no ostree system"},
		{"empty deployments", `{"deployments":[],"transaction":null}`, "deployments: is empty: no deployment is booted"},
		{"deployments is an object", `{"deployments":{}}`, "deployments: want a list, found an object"},
		{"many deployments", `{"deployments":[` + strings.Repeat("{},", maxDeployments) + "{}]}", "deployments: has 65 entries, more than 64"},
		{"a deployment is null", `{"deployments":[null]}`, "deployments[0]: is null"},
		{"a deployment is text", `{"deployments":["x"]}`, "deployments[0]: want an object, found a string"},
		{"none booted", one("booted", false), "deployments: 0 of 1 say booted, want 1"},
		{"two booted", strings.Replace(sound, `[{`, `[`+sound[len(`{"deployments":[`):len(sound)-2]+`,{`, 1), "deployments: 2 of 2 say booted, want 1"},
		{"no osname", one("osname", nil), "deployments[0].osname: is missing"},
		{"no checksum", one("checksum", nil), "deployments[0].checksum: is missing"},
		{"no serial", one("serial", nil), "deployments[0].serial: is missing"},
		{"no booted", one("booted", nil), "deployments[0].booted: is missing"},
		{"booted is text", one("booted", "true"), "deployments[0].booted: want true or false, found a string"},
		{"empty checksum", one("checksum", ""), "deployments[0].checksum: is empty"},
		{"upper-case checksum", one("checksum", sum("A")), "deployments[0].checksum: "},
		{"short base-checksum", one("base-checksum", "abc"), "deployments[0].base-checksum: "},
		{"negative serial", one("serial", -1), "deployments[0].serial: is -1, want a whole number from 0 to 2147483647"},
		{"large serial", one("serial", 1<<31), "deployments[0].serial: is 2147483648, want a whole number from 0 to 2147483647"},
		{"broken serial", one("serial", 1.5), "deployments[0].serial: is 1.5, want a whole number from 0 to 2147483647"},
		{"serial is text", one("serial", "0"), "deployments[0].serial: want a number, found a string"},
		{"negative timestamp", one("timestamp", -5), "deployments[0].timestamp: is -5, want a whole number from 0 to 9223372036854775807"},
		{"timestamp beyond 64 bits", one("timestamp", json.RawMessage("18446744073709551616")), "deployments[0].timestamp: is 18446744073709551616, want a whole number from 0 to 9223372036854775807"},
		{"exponent", one("timestamp", json.RawMessage("1e3")), "deployments[0].timestamp: is 1e3, want a whole number from 0 to 9223372036854775807"},
		{"malformed digest", one("container-image-reference-digest", "sha256:abc"), "deployments[0].container-image-reference-digest: "},
		{"custom-origin of one", one("custom-origin", []string{"pivot://x"}), "deployments[0].custom-origin: has 1 strings, want a URL and a description"},
		{"custom-origin is text", one("custom-origin", "pivot://x"), "deployments[0].custom-origin: want a list, found a string"},
		{"custom-origin of numbers", one("custom-origin", []int{1, 2}), "deployments[0].custom-origin[0]: want a string, found a number"},
		{"a package is null", one("requested-packages", []any{"a", nil}), "deployments[0].requested-packages[1]: want a string, found null"},
		{"removals are text", one("base-removals", "kernel"), "deployments[0].base-removals: want a list, found a string"},
		{"a removal is text", one("base-removals", []string{"kernel"}), "deployments[0].base-removals[0]: want a list of a package's full name, its name and more"},
		{"a removal without a name", one("base-removals", []any{[]any{"kernel-1-1.x86_64"}}), "deployments[0].base-removals[0]: want a list of"},
		{"a removal with a number", one("base-removals", []any{[]any{"a-1-1.noarch", "a"}, []any{"kernel-1-1.x86_64", 1}}), "deployments[0].base-removals[1]: want a list of"},
		{"a requested removal is a list", one("requested-base-removals", []any{[]string{"kernel"}}), "deployments[0].requested-base-removals[0]: want a string, found a list"},
		{"replacements are text", one("base-local-replacements", "kernel"), "deployments[0].base-local-replacements: want a list, found a string"},
		{"many packages", one("packages", make([]string, maxList+1)), "deployments[0].packages: has 4097 entries, more than 4096"},
		{"meta is a list", one("base-commit-meta", []string{}), "deployments[0].base-commit-meta: want an object, found a list"},
		{"manifest is a number", one("base-commit-meta", m{"ostree.manifest": 1}), "deployments[0].base-commit-meta.ostree.manifest: want a string or an object, found a number"},
		{"manifest digest is malformed", one("base-commit-meta", m{"ostree.manifest-digest": "x"}), "deployments[0].base-commit-meta.ostree.manifest-digest: "},
		{"id of another", one("id", "fedora-coreos-0.0"), `deployments[0].id: is "fedora-coreos-0.0", but osname, checksum and serial make "rhcos-`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse([]byte(tt.in))
			if err == nil {
				t.Fatalf("no error, got %+v", got)
			}
			if want := "parsing rpm-ostree status: " + tt.want; !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error = %v\nwant     %s", err, want)
			}
			if len(err.Error()) > 400 {
				t.Errorf("error of %d bytes", len(err.Error()))
			}
		})
	}
}

func TestParse(t *testing.T) {
	got := load(t, "pivot.json").Booted()
	want := &Deployment{
		Stateroot: "rhcos", Checksum: sum("f"), Serial: 1, Booted: true, Unlocked: "none",
		Version: "47.0", Timestamp: 1729527641, Origin: string(sum("f")),
		CustomURL: "pivot://quay.io/example/os@" + string(digest("8")), CustomDescription: "Provisioned from oscontainer",
		Base: BaseMetadata{Version: "47.0", KernelRelease: "4.18.0-240.el8.x86_64"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("booted deployment (-want +got):\n%s", diff)
	}
}
