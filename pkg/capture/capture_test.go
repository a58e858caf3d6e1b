package capture

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/pkg/verdict"
)

const planted = "h0rse-battery"

// facts have a known, an unknown and an ungathered fact of each kind.
func facts() (verdict.Booted, verdict.Target) {
	digest := verdict.Digest("sha256:" + strings.Repeat("a", 64))
	b := verdict.Booted{
		Architecture: verdict.Known("amd64"),
		Identity: verdict.Identity{
			ManifestDigest: verdict.Known(digest), DiffIDs: verdict.Known([]verdict.Digest{digest}), FinalDiffID: verdict.Known(verdict.Digest("")),
			InnerCommit:  verdict.Known(verdict.InnerCommit{Checksum: "c", Source: verdict.CommitFromBlobRef, Root: verdict.Root{DirTree: "t", DirMeta: "m"}, Timestamp: 7}),
			ConfigDigest: verdict.Unknown[verdict.Digest]("no config"),
		},
		Deployment: verdict.Known(verdict.Deployment{
			Checksum: "d", Serial: 1, Stateroot: "rhcos", Kind: verdict.ClientLayered, Divergences: []verdict.Divergence{{Kind: verdict.Staged, Detail: "x"}},
			RequestedPackages: []string{"usbguard"}, Base: verdict.Base{Checksum: "b", Kind: verdict.PlainCommit},
		}),
		DeploymentKernels:     verdict.Known([]string{"6.1"}),
		BootEntryOptions:      verdict.Known("root=UUID=1 coreos.inst.token=" + planted + " rw"),
		CommandLine:           verdict.Known("rw proxy=http://u:" + planted + "@proxy:3128"),
		LegacyKernelArguments: verdict.Known([]string(nil)),
		FIPS:                  verdict.Unknown[bool]("no /proc/sys"),
		NodePayload:           verdict.Known(verdict.NodePayload{Kubelet: true}),
		Packages:              verdict.Known([]verdict.Package{{Name: "bash", EVRA: "1-1.x86_64"}}),
		Blobs:                 map[verdict.Digest]bool{digest: true},
	}
	t := verdict.Target{
		MachineConfig: verdict.Known(verdict.MachineConfig{
			Name: "rendered-worker-1", OSImageURL: "quay.io/os@" + string(digest), Digest: digest, KernelType: "default",
			KernelArguments: []string{"coreos.inst.token=" + planted},
			ExtensionSets:   map[string][]verdict.PackageSet{"usbguard": {{Packages: []string{"usbguard"}, Releases: verdict.ReleaseRange{Since: "4.12", Before: "5.3"}}}}, Extensions: []string{"usbguard"},
		}),
		ManifestLayers:  verdict.Known([]verdict.Layer{{Digest: digest, Size: 5}}),
		SignaturePolicy: verdict.Known(verdict.SignaturePolicy{Requirement: verdict.SignatureNone, Scope: "default"}),
	}
	return b, t
}

func TestRoundTrip(t *testing.T) {
	b, target := facts()
	p := verdict.Policy{Full: true, SkipChecks: []verdict.CheckName{verdict.CheckFIPS}}
	v := verdict.Decide(b, target, p)
	v.Warnings, v.Errors = append(v.Warnings, "a warning"), append(v.Errors, verdict.Error{Code: "timeout", Message: "late", Source: "quay.io"})
	c, err := New("v1", b, target, p, v)
	if err != nil {
		t.Fatal(err)
	}
	evidence := Evidence{"/etc/origin": []byte("[origin]\ncustom-url=https://user:" + planted + "@example.com/?sig=" + planted + "\ntoken=" + planted + "\n")}
	var first, second bytes.Buffer
	if err := c.Write(&first, evidence); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(&second, evidence); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two archives of one capture differ")
	}
	for name, content := range unpack(t, first.Bytes()) {
		if strings.Contains(content, planted) {
			t.Errorf("a secret is in %s:\n%s", name, content)
		}
	}
	read, err := Read(&first)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read, c) {
		t.Errorf("read %+v\nwrote %+v", read, c)
	}
	want, _ := json.Marshal(v)
	got, _ := json.Marshal(read.Verdict())
	if !bytes.Equal(want, got) {
		t.Errorf("replayed %s\nwant     %s", got, want)
	}
}

func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if err == io.EOF { //nolint:errorlint // the end itself
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(content)
	}
}

func TestNewRefusesAnotherVerdict(t *testing.T) {
	b, target := facts()
	v := verdict.Decide(b, target, verdict.Policy{})
	v.Reason = "os-content-differs"
	if _, err := New("v1", b, target, verdict.Policy{}, v); err == nil || !strings.Contains(err.Error(), "another verdict") {
		t.Errorf("got %v", err)
	}
}

func TestReadRefuses(t *testing.T) {
	archive := func(name, content string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		w := tar.NewWriter(z)
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
		w.Close()
		z.Close()
		return b.String()
	}
	head := `{"apiVersion":"oneboot.dev/v1","kind":"Capture"`
	tests := []struct{ name, archive, want string }{
		{"empty", "", "no archive that oneboot collect wrote"},
		{"no gzip", "capture", "no archive that oneboot collect wrote"},
		{"cut short", archive(captureFile, head+"}")[:40], "unexpected EOF"},
		{"another file", archive("other.json", head+"}"), "no capture.json in it"},
		{"no JSON", archive(captureFile, "kind: Capture"), "capture.json: invalid character"},
		{"another kind", archive(captureFile, `{"apiVersion":"oneboot.dev/v1","kind":"Verdict"}`), `kind "Verdict": not a capture`},
		{"another version", archive(captureFile, `{"apiVersion":"oneboot.dev/v9","kind":"Capture"}`), `apiVersion "oneboot.dev/v9"`},
		{"unknown field", archive(captureFile, head+`,"later":1}`), `unknown field "later"`},
		{"unknown fact", archive(captureFile, head+`,"booted":{"fips":{"value":true,"unknown":"x"}}}`), "want one of value and unknown"},
		{"unknown field of a fact", archive(captureFile, head+`,"booted":{"nodePayload":{"value":{"later":true}}}}`), `unknown field "later"`},
		{"a fact of another type", archive(captureFile, head+`,"booted":{"fips":{"value":"yes"}}}`), "reading fact"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Read(strings.NewReader(tt.archive))
			if err == nil || !strings.Contains(err.Error(), tt.want) || c != nil {
				t.Errorf("got %v, %v; want an error with %q", c, err, tt.want)
			}
		})
	}
}

// The facts of nobody decide for proceed.
func TestEmptyCaptureProceeds(t *testing.T) {
	c, err := parse([]byte(`{"apiVersion":"oneboot.dev/v1","kind":"Capture"}`))
	if err != nil {
		t.Fatal(err)
	}
	if v := c.Verdict(); v.Action != verdict.Proceed || v.Conclusive {
		t.Errorf("got %v", v.Action)
	}
}

func FuzzRead(f *testing.F) {
	b, target := facts()
	c, err := New("v1", b, target, verdict.Policy{}, verdict.Decide(b, target, verdict.Policy{}))
	if err != nil {
		f.Fatal(err)
	}
	var archive bytes.Buffer
	if err := c.Write(&archive, nil); err != nil {
		f.Fatal(err)
	}
	f.Add(archive.Bytes())
	f.Add([]byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := Read(bytes.NewReader(b)); err == nil {
			_ = c.Verdict()
		}
	})
}

func FuzzParse(f *testing.F) {
	b, target := facts()
	c := Capture{APIVersion: APIVersion, Kind: Kind, Booted: b, Target: target}
	doc, err := json.Marshal(c)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(doc)
	f.Fuzz(func(t *testing.T, doc []byte) {
		c, err := parse(doc)
		if err != nil {
			return
		}
		want, err := json.Marshal(c.Verdict())
		if err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		c2, err := parse(again)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := json.Marshal(c2.Verdict()); !bytes.Equal(got, want) {
			t.Errorf("written and read again it decides otherwise:\n%s\n%s", got, want)
		}
	})
}
