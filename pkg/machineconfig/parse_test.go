package machineconfig

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/oneboot/oneboot/pkg/verdict"
)

const (
	digestA = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	imageA  = "quay.io/example/os@" + digestA
)

// spec returns a document with the given members of spec.
// ignoreSets leaves out what the tables bring, which have a test of their own.
var ignoreSets = cmpopts.IgnoreFields(verdict.MachineConfig{}, "KernelTypeSets", "KernelTypePackages", "ExtensionSets")

func spec(members string) string { return `{"spec":{` + members + `}}` }

// with returns a sound document with one more member of spec.
func with(member string) string { return spec(`"osImageURL":"` + imageA + `",` + member) }

func TestParseFiles(t *testing.T) {
	tests := []struct {
		file string
		want verdict.MachineConfig
	}{
		{"served-3.4.json", verdict.MachineConfig{
			Name:            "rendered-worker-9a6b1f0c2d3e4f5061728394a5b6c7d8",
			Release:         "4.18.3",
			OSImageURL:      "quay.io/openshift-release-dev/ocp-v4.0-art-dev@sha256:57864105c9e7c669662415f395b0d6ef9b5ba1007bf2685ec041902d9cc33514",
			Digest:          "sha256:57864105c9e7c669662415f395b0d6ef9b5ba1007bf2685ec041902d9cc33514",
			KernelArguments: []string{"systemd.unified_cgroup_hierarchy=1", `cgroup_no_v1="all"`, "psi=0"},
			KernelType:      "default",
			Extensions:      []string{"usbguard", "ipsec"},
			FIPS:            true,
			ExtensionsImage: "quay.io/openshift-release-dev/ocp-v4.0-art-dev@sha256:0daf5c4a35424410e88dde102022fc3581302bc8a98e09e2e4748502c59b3661",
		}},
		{"served-2.2.json", verdict.MachineConfig{
			Name:       "rendered-master-f0db02dc9fb258ad37bed110741198c1",
			OSImageURL: "registry.svc.ci.openshift.org/openshift/origin-v4.0-2019-02-21-043513@sha256:660061d6eae3ee6d93ca836cd52e6033f1d611c629c1ce47cf272c9e9bda2488",
			Digest:     "sha256:660061d6eae3ee6d93ca836cd52e6033f1d611c629c1ce47cf272c9e9bda2488",
			KernelType: "default",
		}},
		{"served-3.2.json", verdict.MachineConfig{
			Name:       "rendered-worker-1",
			OSImageURL: "quay.io/openshift/okd-content:machine-os",
			KernelType: "realtime",
		}},
		{"layered.json", verdict.MachineConfig{
			Name:         "rendered-layered-1",
			OSImageURL:   "registry.example.com/os/layered@sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc",
			Digest:       "sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc",
			KernelType:   "default",
			LayeredImage: "registry.example.com/os/layered@sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc",
		}},
		{"full-config.yaml", verdict.MachineConfig{
			Name:            "rendered-worker-yaml",
			OSImageURL:      "quay.io:443/example/os:4.18@" + digestA,
			Digest:          digestA,
			KernelArguments: []string{"1", "a=1 b=2"},
			KernelType:      "default",
			Extensions:      []string{"usbguard"},
			Foreign: []string{
				"ignition.security.tls.certificateAuthorities[0]",
				"kernelArguments.shouldExist[0]",
				"passwd.users: core",
				"passwd.groups: wheel",
				"storage.directories: /var/lib/example",
				"storage.disks: /dev/sdb",
				"storage.files: /etc/example",
				"storage.filesystems: /dev/sdb1",
				"storage.links: /etc/localtime",
				"storage.luks: crypt",
				"storage.raid: md",
				"systemd.units: example.service",
			},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join("testdata", tt.file))
			if err != nil {
				t.Fatal(err)
			}
			parse := Parse
			if strings.HasSuffix(tt.file, ".yaml") {
				parse = ParseManifest
			}
			got, err := parse(b)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, ignoreSets); diff != "" {
				t.Errorf("MachineConfig (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct {
		name, in string
		want     string // the whole text behind "parsing MachineConfig: "
	}{
		{"nothing", "", "the document is empty"},
		{"blanks", " \n\t", "the document is empty"},
		{"null", "null", "the document is null, not an object"},
		{"list", "[]", "the document is a list, not an object"},
		{"text", `"x"`, "the document is a string, not an object"},
		{"not UTF-8", "{\"a\":\"\xff\"}", "the document is not UTF-8 text"},
		{"cut off", `{"spec":{"fips":tr`, "spec.fips: the JSON ends too early: the file is cut off"},
		{"cut off in a list", `{"spec":{"extensions":["a"`, "spec.extensions: the JSON ends too early: the file is cut off"},
		{"malformed", `{"spec":{"fips":yes}}`, "spec.fips: the JSON is malformed behind byte 16: invalid character 'y' looking for beginning of value"},
		{"trailing garbage", with(`"fips":false`) + "x", "there is something behind the JSON document, which ends at byte 129: remove it"},
		{"a second document", with(`"fips":false`) + "\n{}", "there is something behind the JSON document, which ends at byte 129: remove it"},
		{"byte order mark", "\ufeff{}", "the JSON is malformed behind byte 0: invalid character 'ï' looking for beginning of value"},
		{"too deep", strings.Repeat(`[`, 70), strings.Repeat("[0]", 65) + ": is nested deeper than 64 levels"},
		{"too many values", `[` + strings.Repeat(`0,`, maxNodes) + `0]`, "the document has more than 131072 values"},
		{"too large", `{"a":"` + strings.Repeat("x", maxSize) + `"}`, "the document has 2097160 bytes, more than 2097152"},
		{"duplicate key", `{"spec":{"osImageURL":"` + imageA + `","osImageURL":"` + imageA + `"}}`, "spec.osImageURL: the key appears twice: keep one"},
		{"duplicate key elsewhere", with(`"config":{"storage":{"a":1,"a":2}}`), "spec.config.storage.a: the key appears twice: keep one"},
		{"duplicate in other case", with(`"OSImageURL":"` + imageA + `"`), `spec.OSImageURL: is not the spelling that is expected: write "osImageURL"`},
		{"other case alone", spec(`"osimageurl":"` + imageA + `"`), `spec.osimageurl: is not the spelling that is expected: write "osImageURL"`},
		{"other case that only Unicode folds", with(`"fip\u017f":true`), `spec.fipſ: is not the spelling that is expected: write "fips"`},
		{"another kind", `{"kind":"KubeletConfig","apiVersion":"machineconfiguration.openshift.io/v1","spec":{}}`, "kind: is KubeletConfig, want MachineConfig"},
		{"another group", `{"kind":"MachineConfig","apiVersion":"v1","spec":{}}`, "apiVersion: is v1, want machineconfiguration.openshift.io/v1"},
		{"kind is a list", `{"kind":[],"spec":{}}`, "kind: want a string, found a list"},
		{"no spec", `{"kind":"MachineConfig"}`, "spec: is missing: this is not a MachineConfig"},
		{"null spec", `{"spec":null}`, "spec: is missing: this is not a MachineConfig"},
		{"spec is text", `{"spec":"x"}`, "spec: want an object, found a string"},
		{"metadata is text", `{"metadata":"x","spec":{}}`, "metadata: want an object, found a string"},
		{"name is a number", `{"metadata":{"name":1},"spec":{"osImageURL":"` + imageA + `"}}`, "metadata.name: want a string, found a number: put it into quotes"},
		{"annotations are a list", `{"metadata":{"annotations":[]},"spec":{"osImageURL":"` + imageA + `"}}`, "metadata.annotations: want an object, found a list"},
		{"layering annotation is null-like", `{"metadata":{"annotations":{"machineconfiguration.openshift.io/ocl-osimageurl":1}},"spec":{"osImageURL":"` + imageA + `"}}`, `metadata.annotations["machineconfiguration.openshift.io/ocl-osimageurl"]: want a string, found a number: put it into quotes`},
		{"osImageURL is a number", spec(`"osImageURL":1`), "spec.osImageURL: want a string, found a number: put it into quotes"},
		{"fips is text", with(`"fips":"true"`), "spec.fips: want true or false, found a string: write it without quotes"},
		{"kernelArguments is text", with(`"kernelArguments":"a"`), "spec.kernelArguments: want a list, found a string"},
		{"an argument is null", with(`"kernelArguments":["a",null]`), "spec.kernelArguments[1]: want a string, found null"},
		{"an extension is an object", with(`"extensions":[{}]`), "spec.extensions[0]: want a string, found an object"},
		{"config is text", with(`"config":"e30="`), "spec.config: want an object, found a string"},
		{"ignition is a list", with(`"config":{"ignition":[]}`), "spec.config.ignition: want an object, found a list"},
		{"ignition version is a number", with(`"config":{"ignition":{"version":3}}`), "spec.config.ignition.version: want a string, found a number: put it into quotes"},
		{"kernelType is a list", with(`"kernelType":[]`), "spec.kernelType: want a string, found a list"},
		{"YAML", "spec:\n  osImageURL: x\n", "the JSON is malformed behind byte 0: invalid character 's' looking for beginning of value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse([]byte(tt.in))
			if err == nil {
				t.Fatalf("no error, got %+v", got)
			}
			if diff := cmp.Diff("parsing MachineConfig: "+tt.want, err.Error(), ignoreSets); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(verdict.MachineConfig{}, got, ignoreSets); diff != "" {
				t.Errorf("value beside an error (-zero +got):\n%s", diff)
			}
		})
	}
}

func TestParseManifestErrors(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"empty", "# nothing\n", "the YAML is malformed: EOF"},
		{"two documents", "spec: {}\n---\nspec: {}\n", "there is more than one YAML document: keep the MachineConfig alone"},
		{"alias", "a: &x [1]\nspec: *x\n", "a: YAML anchors and aliases are not read: write the value out"},
		{"merge key", "spec:\n  <<: {a: 1}\n", "spec: a key is not plain text"},
		{"list as key", "? [a]\n: 1\n", "a key is not plain text"},
		{"own tag", "spec: !!binary aGk=\n", "spec: has a YAML tag that is not read: write plain text"},
		{"duplicate key", "spec: {}\nspec: {}\n", "spec: the key appears twice: keep one"},
		{"yes is not a flag", "spec:\n  osImageURL: " + imageA + "\n  fips: yes\n", "spec.fips: want true or false, found a string: write it without quotes"},
		{"an argument is a number", "spec:\n  kernelArguments: [1]\n", "spec.kernelArguments[0]: want a string, found a number: put it into quotes"},
		{"tabs", "spec:\n\tfips: true\n", "the YAML is malformed: yaml: line 2: found character that cannot start any token"},
		{"JSON stays strict", "{spec: {}}", "the JSON is malformed behind byte 1: invalid character 's'"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseManifest([]byte(tt.in))
			if err == nil {
				t.Fatalf("no error, got %+v", got)
			}
			if diff := cmp.Diff("parsing MachineConfig: "+tt.want, err.Error(), ignoreSets); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseOSImageURL(t *testing.T) {
	tests := []struct {
		in      string
		want    verdict.Digest
		problem string // a part of the message
	}{
		{in: imageA, want: digestA},
		{in: "quay.io/example/os:4.18@" + digestA, want: digestA},
		{in: "localhost/os@" + digestA, want: digestA},
		{in: "registry:5000/os@" + digestA, want: digestA},
		{in: "[::1]:5000/os@" + digestA, want: digestA},
		{in: "quay.io/example/os:latest"},
		{in: "quay.io/example/os"},
		{in: "127.0.0.1:5000/os:1"},
		{in: "", problem: "is empty"},
		{in: "://dummy", problem: "placeholder"},
		{in: " " + imageA, problem: "blanks around"},
		{in: imageA + "\n", problem: "blanks around"},
		{in: "docker://" + imageA, problem: "transport"},
		{in: "docker:" + imageA, problem: "transport"},
		{in: "ostree-unverified-registry:" + imageA, problem: "transport"},
		{in: "oci-archive:/var/tmp/a.tar", problem: "transport"},
		{in: "pivot://" + imageA, problem: "transport"},
		{in: "https://user:hunter2@quay.io/x", problem: "transport"},
		{in: "quay.io/example/os@", problem: "malformed digest"},
		{in: "quay.io/example/os@sha256:abc", problem: "malformed digest"},
		{in: "quay.io/example/os@sha256:" + strings.Repeat("A", 64), problem: "malformed digest"},
		{in: "quay.io/example/os@sha512:" + strings.Repeat("a", 128), problem: "malformed digest"},
		{in: imageA + "@" + digestA, problem: "malformed digest"},
		{in: "@" + digestA, problem: "not a pull spec"},
		{in: "quay.io/Example/OS@" + digestA, problem: "not a pull spec"},
		{in: "quay.io/a b", problem: "not a pull spec"},
		{in: "quay.io/example/os:", problem: "not a pull spec"},
		{in: strings.Repeat("a", 64), problem: "not a pull spec"},
		{in: "rhcos@" + digestA, problem: "short name"},
		{in: "example/os:1", problem: "short name"},
		{in: "os", problem: "short name"},
		{in: "quay.io/" + strings.Repeat("a", 2000), problem: "longer than any"},
	}
	for _, tt := range tests {
		t.Run(tt.in[:min(len(tt.in), 40)], func(t *testing.T) {
			got, err := ParseOSImageURL(tt.in)
			if got != tt.want {
				t.Errorf("digest = %q, want %q", got, tt.want)
			}
			if tt.problem == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			oe, ok := errors.AsType[*OSImageURLError](err)
			if !ok || !strings.Contains(oe.Problem, tt.problem) {
				t.Fatalf("error = %v, want one about %q", err, tt.problem)
			}
			if !strings.HasPrefix(err.Error(), "spec.osImageURL: ") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error = %v", err)
			}
		})
	}
}

func TestParseKeepsTheRestBesideABadTarget(t *testing.T) {
	got, err := Parse([]byte(spec(`"osImageURL":"://dummy","fips":true,"kernelArguments":["a"]`)))
	if _, ok := errors.AsType[*OSImageURLError](err); !ok {
		t.Fatalf("error = %v, want an *OSImageURLError", err)
	}
	want := verdict.MachineConfig{FIPS: true, KernelType: "default", KernelArguments: []string{"a"}}
	if diff := cmp.Diff(want, got, ignoreSets); diff != "" {
		t.Errorf("MachineConfig (-want +got):\n%s", diff)
	}
}

func TestForeign(t *testing.T) {
	many := `{"path":"/a"}` + strings.Repeat(`,{"path":"/a"}`, 11)
	tests := []struct {
		name, member string
		want         []string
	}{
		{"no config", `"fips":false`, nil},
		{"null config", `"config":null`, nil},
		{"empty config", `"config":{}`, nil},
		{"empty sections", `"config":{"storage":{"files":[],"links":null},"systemd":{"units":[]},"passwd":{"users":null}}`, nil},
		{"file", `"config":{"storage":{"files":[{"path":"/etc/a","filesystem":"root"}]}}`, []string{"storage.files: /etc/a"}},
		{"file without a path", `"config":{"storage":{"files":[{}]}}`, []string{"storage.files[0]"}},
		{"unit", `"config":{"systemd":{"units":[{"name":"a.service"}]}}`, []string{"systemd.units: a.service"}},
		{"2.x networkd", `"config":{"networkd":{"units":[{"name":"a.network"}]}}`, []string{"networkd.units: a.network"}},
		{"2.x append", `"config":{"ignition":{"config":{"append":[{"source":"http://x"}]}}}`, []string{"ignition.config.append[0]"}},
		{"3.x merge", `"config":{"ignition":{"config":{"merge":[{"source":"http://x"}]}}}`, []string{"ignition.config.merge[0]"}},
		{"3.x replace", `"config":{"ignition":{"config":{"replace":{"source":"http://x"}}}}`, []string{"ignition.config.replace.source"}},
		{"timeouts", `"config":{"ignition":{"timeouts":{"httpTotal":5}}}`, []string{"ignition.timeouts.httpTotal"}},
		{"unknown section", `"config":{"clevis":{"tang":true}}`, []string{"clevis.tang"}},
		{"section in another case", `"config":{"Storage":{"Files":[{"Path":"/a"}]}}`, []string{"Storage.Files[0]"}},
		{"unprintable name", `"config":{"systemd":{"units":[{"name":"a\u001b[2J"}]}}`, []string{`systemd.units: "a\x1b[2J"`}},
		{"many", `"config":{"storage":{"files":[` + many + `]}}`, []string{
			"storage.files: /a", "storage.files: /a", "storage.files: /a", "storage.files: /a",
			"storage.files: /a", "storage.files: /a", "storage.files: /a", "storage.files: /a",
			"storage.files: and 4 more",
		}},
		{"unknown field of spec", `"irreconcilable":{"a":1}`, []string{"spec.irreconcilable"}},
		{"unknown empty field of spec", `"irreconcilable":{"a":[]}`, []string{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse([]byte(with(tt.member)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(append([]string{}, tt.want...), append([]string{}, got.Foreign...), ignoreSets); diff != "" {
				t.Errorf("Foreign (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRelease(t *testing.T) {
	const key = "machineconfiguration.openshift.io/release-image-version"
	for annotations, want := range map[string]string{`null`: "", `{"a":"b"}`: "", `{"` + key + `":""}`: "", `{"` + key + `":"4.16.3"}`: "4.16.3"} {
		got, err := Parse([]byte(`{"metadata":{"annotations":` + annotations + `},"spec":{"osImageURL":"` + imageA + `"}}`))
		if err != nil || got.Release != want {
			t.Errorf("%s: got %q, %v, want %q", annotations, got.Release, err, want)
		}
	}
}

func TestLayeringMarks(t *testing.T) {
	const original, layered, preBuilt = originalOSImageURLAnnotation, layeredOSImageURLAnnotation, preBuiltImageAnnotation
	tests := []struct {
		name        string
		annotations string
		want        []string
	}{
		{"null", `null`, nil},
		{"none", `{"a":"b"}`, nil},
		{"empty", `{"` + original + `":"","` + layered + `":""}`, nil},
		{"serves the layered image", `{"` + original + `":"quay.io/a/b:c","` + layered + `":"` + imageA + `"}`, nil},
		{"serves another", `{"` + original + `":"` + imageA + `","` + layered + `":"quay.io/a/b:c"}`, []string{original, layered}},
		{"original alone", `{"` + original + `":"` + imageA + `"}`, []string{original}},
		{"layered alone", `{"` + layered + `":"quay.io/a/b:c"}`, []string{layered}},
		{"pre-built is served", `{"` + preBuilt + `":"` + imageA + `"}`, nil},
		{"pre-built is another", `{"` + preBuilt + `":"quay.io/a/b:c"}`, []string{preBuilt}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse([]byte(`{"metadata":{"annotations":` + tt.annotations + `},"spec":{"osImageURL":"` + imageA + `"}}`))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.LayeringMarks, ignoreSets); diff != "" {
				t.Errorf("LayeringMarks (-want +got):\n%s", diff)
			}
		})
	}
}
