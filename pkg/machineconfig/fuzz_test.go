package machineconfig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// seeds adds every file of testdata and some broken documents.
func seeds(f *testing.F) {
	f.Helper()
	files, err := filepath.Glob("testdata/*.*")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	for _, s := range []string{
		"", "null", "{}", `{"spec":{}}`, `{"spec":{"osImageURL":"://dummy"}}`, `{"spec":{"osImageURL":"a@sha256:"}}`,
		`{"spec":{"osImageURL":"quay.io/a/b:c","osImageURL":""}}`, `{"spec":{"config":{"ignition":{"version":3}}}}`,
		"a: &a [*a]", "- - - -", "spec: {fips: ~}", "? {a: b}\n: c", "%YAML 1.2\n---\nspec: !!set {a}\n",
	} {
		f.Add([]byte(s))
	}
}

func FuzzParse(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		checkParse(t, b, Parse)
		checkParse(t, b, ParseManifest)
	})
}

func checkParse(t *testing.T, b []byte, parse func([]byte) (verdict.MachineConfig, error)) {
	t.Helper()
	mc, err := parse(b)
	if mc.Digest != "" && !valid(mc.Digest) {
		t.Errorf("digest %q is neither valid nor empty", mc.Digest)
	}
	if err != nil {
		if mc.OSImageURL != "" || mc.Digest != "" {
			t.Errorf("a target beside an error: %+v", mc)
		}
		return
	}
	if mc.OSImageURL == "" || mc.KernelType == "" {
		t.Errorf("no error, but %+v", mc)
	}
	again, err := parse(b)
	if err != nil {
		t.Errorf("a second parse fails: %v", err)
	}
	if diff := cmp.Diff(mc, again); diff != "" {
		t.Errorf("a second parse differs:\n%s", diff)
	}
}

func FuzzParseOSImageURL(f *testing.F) {
	for _, s := range []string{imageA, "", "://dummy", "a@sha256:", "quay.io/a:b", "docker://x", "[::1]:1/a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		digest, err := ParseOSImageURL(s)
		if digest != "" && (err != nil || !valid(digest)) {
			t.Errorf("digest %q, error %v", digest, err)
		}
	})
}

func valid(d verdict.Digest) bool {
	_, err := format.ParseDigest(string(d))
	return err == nil
}
