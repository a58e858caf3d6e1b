package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// The image is what every new node pulls: it holds the program alone, is small,
// and can be read by the tools that will.
const entrypoint = "/usr/bin/oneboot"

func TestImage(t *testing.T) {
	dir := t.TempDir()
	binary := build(t, dir, "../../cmd/oneboot")
	archive := filepath.Join(dir, "oneboot.oci.tar")
	if err := run([]string{"-o", archive, runtime.GOARCH + "=" + binary}); err != nil {
		t.Fatal(err)
	}
	// skopeo checks every digest on the way.
	out := filepath.Join(dir, "copy")
	skopeo(t, "copy", "--quiet", "oci-archive:"+archive, "dir:"+out)
	var config struct {
		Architecture string
		Config       struct{ Entrypoint []string }
	}
	if err := json.Unmarshal(skopeo(t, "inspect", "--config", "oci-archive:"+archive), &config); err != nil {
		t.Fatal(err)
	}
	if config.Architecture != runtime.GOARCH || !slices.Equal(config.Config.Entrypoint, []string{entrypoint}) {
		t.Errorf("got %+v", config)
	}
	var m v1.Manifest
	readJSON(t, filepath.Join(out, "manifest.json"), &m)
	if len(m.Layers) != 1 {
		t.Fatalf("%d layers", len(m.Layers))
	}
	if m.Layers[0].Size > 8<<20 {
		t.Errorf("a node pulls %d bytes", m.Layers[0].Size)
	}
	t.Logf("a node pulls %d bytes", m.Layers[0].Size)

	files := untar(t, filepath.Join(out, m.Layers[0].Digest.Encoded()))
	if len(files) != 1 || files[entrypoint] == nil {
		t.Fatalf("the image has %d files", len(files))
	}
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, files[entrypoint], 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := exec.Command(program, "version").Output(); err != nil || len(got) == 0 {
		t.Errorf("got %q, %v", got, err)
	}
}

// Several architectures go into one list, and equal binaries make equal bytes.
func TestArchitectures(t *testing.T) {
	dir := t.TempDir()
	// Any static program will do; which machine it is for is not looked at.
	binary := build(t, dir, ".")
	archive := filepath.Join(dir, "oneboot.oci.tar")
	var first []byte
	for range 2 {
		if err := run([]string{"-o", archive, "amd64=" + binary, "s390x=" + binary}); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		if first != nil && !bytes.Equal(got, first) {
			t.Error("a second run made another archive")
		}
		first = got
	}
	out := filepath.Join(dir, "copy")
	skopeo(t, "copy", "--quiet", "--all", "oci-archive:"+archive, "dir:"+out)
	var list v1.Index
	readJSON(t, filepath.Join(out, "manifest.json"), &list)
	var got []string
	for _, m := range list.Manifests {
		got = append(got, m.Platform.Architecture)
	}
	if !slices.Equal(got, []string{"amd64", "s390x"}) {
		t.Errorf("got %v", got)
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("this is no program at all"), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"amd64=/bin/true"}, "usage"},
		{[]string{"-o", dir + "/x"}, "usage"},
		{[]string{"-o", dir + "/x", "/bin/true"}, "ARCHITECTURE=BINARY"},
		{[]string{"-o", dir + "/x", "amd64=/bin/true"}, "linked dynamically"},
		{[]string{"-o", dir + "/x", "amd64=" + text}, "bad magic"},
	}
	for _, tt := range tests {
		if err := run(tt.args); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: got %v, want %q", tt.args, err, tt.want)
		}
	}
}

// The Dockerfile makes the same image: one file from scratch, and what it
// starts.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, last, ok := strings.Cut(string(text), "\nFROM scratch\n")
	if !ok {
		t.Fatal("the last stage is not from scratch")
	}
	want := "COPY --from=build /src/bin/oneboot " + entrypoint + "\nENTRYPOINT [\"" + entrypoint + "\"]\n"
	if last != want {
		t.Errorf("got\n%s\nwant\n%s", last, want)
	}
}

func build(t *testing.T, dir, pkg string) string {
	t.Helper()
	binary := filepath.Join(dir, "program.bin")
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "containers_image_openpgp exclude_graphdriver_btrfs", "-ldflags", "-s -w", "-o", binary, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

func skopeo(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := exec.Command("skopeo", append([]string{"--insecure-policy"}, args...)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("skopeo %v: %s", args, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// untar reads the regular files of a layer; there may be folders, nothing else.
func untar(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		switch h.Typeflag {
		case tar.TypeDir:
		case tar.TypeReg:
			if h.Mode != 0o755 || h.Uid != 0 || h.Gid != 0 {
				t.Errorf("%s: mode %o of %d:%d", h.Name, h.Mode, h.Uid, h.Gid)
			}
			if files["/"+h.Name], err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s is of type %c", h.Name, h.Typeflag)
		}
	}
}
