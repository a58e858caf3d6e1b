package bootimage_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/bootimage"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares a document with the file that holds it.
func golden(t *testing.T, name string, v any) {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", " ")
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("testdata/"+name, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(read(t, name)), b.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestOffers(t *testing.T) {
	for _, name := range []string{"rhcos", "scos", "fcos"} {
		t.Run(name, func(t *testing.T) {
			golden(t, name+".offers.json", only(t, name+".json").Offers())
		})
	}
}

// Regions do not all have the same version while a build is being published.
func TestOffersByVersion(t *testing.T) {
	s, err := bootimage.ParseStream([]byte(`{"stream":"x","architectures":{"x86_64":{"images":{"aws":{"regions":{
		"b":{"release":"2","image":"ami-b"},"a":{"release":"1","image":"ami-a"},"c":{"release":"2","image":"ami-c"}}}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []bootimage.Offer{
		{Stream: "x", Architecture: "x86_64", Platform: "aws", Version: "1", Kind: bootimage.KindAMI, Images: []bootimage.CloudImage{{Region: "a", Image: "ami-a"}}},
		{Stream: "x", Architecture: "x86_64", Platform: "aws", Version: "2", Kind: bootimage.KindAMI, Images: []bootimage.CloudImage{{Region: "b", Image: "ami-b"}, {Region: "c", Image: "ami-c"}}},
	}
	if diff := cmp.Diff(want, s.Offers()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOldForm(t *testing.T) {
	for _, tt := range []struct{ name, arch string }{{"rhcos", "amd64"}, {"scos", "s390x"}, {"fcos", ""}} {
		t.Run(tt.name, func(t *testing.T) {
			old, err := only(t, tt.name+".json").OldForm(tt.arch)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, tt.name+".old.json", old)
		})
	}
}

// What the old form cannot say is an error.
func TestOldFormErrors(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	file := func(folder, name string) string {
		return `{"disk":{"location":"https://example.com/` + folder + `/` + name + `","sha256":"` + sum + `"}}`
	}
	tests := []struct{ name, artifacts, want string }{
		{"two versions", `"aws":{"release":"1","formats":{"vmdk":` + file("a", "x") + `}},"gcp":{"release":"2","formats":{"tar.gz":` + file("a", "y") + `}}`, "files of 1 and of 2"},
		{"two folders", `"aws":{"release":"1","formats":{"vmdk":` + file("a", "x") + `}},"gcp":{"release":"1","formats":{"tar.gz":` + file("b", "y") + `}}`, "the old form has one folder"},
		{"no files", `"aws":{"release":"1","formats":{}}`, "has no files"},
		{"two of a name", `"metal":{"release":"1","formats":{"raw.gz":` + file("a", "x") + `,"raw.xz":` + file("a", "y") + `}}`, "another file is called metal"},
		{"a bad file", `"aws":{"release":"1","formats":{"vmdk":{"disk":{"location":"x"}}}}`, "not an http address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := bootimage.ParseStream([]byte(`{"stream":"x","architectures":{"x86_64":{"artifacts":{` + tt.artifacts + `}}}}`))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.OldForm("x86_64"); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
