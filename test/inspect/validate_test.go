package inspect

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// release pushes a release image with an OS image and what can be layered on it.
func (l *lab) release(t *testing.T, version, arch string, packages []nativeimage.RPM) string {
	t.Helper()
	os := l.image(t, sysroot.Tree{FillerBytes: 3 << 20}, sysroot.CommitOptions{Packages: installed()}, nativeimage.Options{Architecture: arch})
	e, err := nativeimage.BuildExtensions(t.TempDir(), nativeimage.ExtensionsOptions{Packages: packages, Architecture: arch, WithoutList: version < "4.19"})
	if err != nil {
		t.Fatal(err)
	}
	refs := fmt.Sprintf(`{"kind":"ImageStream","spec":{"tags":[{"name":"rhel-coreos","from":{"kind":"DockerImage","name":%q}},
		{"name":"rhel-coreos-extensions","from":{"kind":"DockerImage","name":%q}}]}}`, l.push(t, "os", os), l.push(t, "extensions", e))
	return l.push(t, "release", derive(t, os, map[string]string{"io.openshift.release": version},
		nativeimage.DerivedLayer{Files: map[string]sysroot.File{"release-manifests/image-references": {Content: refs}}}))
}

func TestValidate(t *testing.T) {
	l := newLab(t)
	new, old := l.release(t, "4.19.3", "amd64", rpms()), l.release(t, "4.16.1", "amd64", rpms())
	arm, older := l.release(t, "4.19.3", "arm64", rpms()), l.release(t, "4.14.2", "arm64", rpms())
	part := l.release(t, "4.19.3", "amd64", slices.DeleteFunc(rpms(), func(p nativeimage.RPM) bool { return strings.HasPrefix(p.Name, "kernel-rt-modules") }))
	mc := func(spec string) string { return "kind: MachineConfig\nmetadata:\n  name: mc\nspec:\n" + spec }
	const unknownName = `spec.extensions[0]: no release knows the extension "usbgard": is it usbguard? (extension-unknown)`
	tests := []struct {
		name, image, text string
		args              []string
		want              []string
	}{
		{name: "shipped", image: new, text: mc("  extensions: [usbguard, kerberos]\n  kernelType: realtime\n")},
		{name: "shipped, from repodata", image: old, text: mc("  extensions: [usbguard, kerberos]\n  kernelType: realtime\n")},
		{name: "nothing wanted", image: new, text: mc("  kernelType: default\n")},
		{name: "misspelt", image: new, text: mc("  extensions: [usbgard]\n"), want: []string{"5: " + unknownName}},
		{name: "not shipped", image: new, text: mc("  extensions:\n  - usbguard\n  - sysstat\n"),
			want: []string{"7: spec.extensions[1]: the image does not ship the extension sysstat (extension-not-shipped)"}},
		{name: "of another release", image: old, text: mc("  extensions: [two-node-ha]\n"),
			want: []string{"5: spec.extensions[0]: release 4.16.1 does not know the extension two-node-ha: it is of 4.19 to before 5.3 (extension-other-release)"}},
		{name: "kernel-devel with realtime", image: new, text: mc("  extensions: [kernel-devel]\n  kernelType: realtime\n"),
			want: []string{"5: spec.extensions[0]: kernel-devel is refused beside kernelType realtime (line 6) (kernel-devel-kernel-type)",
				"5: spec.extensions[0]: the image does not ship the extension kernel-devel (extension-not-shipped)"}},
		{name: "64k pages on amd64", image: new, text: mc("  kernelType: 64k-pages\n"),
			want: []string{"5: spec.kernelType: kernelType 64k-pages is for arm64, and the image is for amd64 (kernel-type-architecture)"}},
		{name: "64k pages not shipped", image: arm, args: []string{"--arch", "aarch64"}, text: mc("  kernelType: 64k-pages\n"),
			want: []string{"5: spec.kernelType: the image does not ship kernel-64k-core, kernel-64k-modules, kernel-64k-modules-core, kernel-64k-modules-extra, which kernelType 64k-pages needs (kernel-type-not-shipped)"}},
		{name: "64k pages of another release", image: older, args: []string{"--arch", "aarch64"}, text: mc("  kernelType: 64k-pages\n"),
			want: []string{"5: spec.kernelType: release 4.14.2 does not know the kernelType 64k-pages (kernel-type-unknown)"}},
		{name: "a part of realtime", image: part, text: mc("  kernelType: realtime\n"),
			want: []string{"5: spec.kernelType: the image does not ship kernel-rt-modules, kernel-rt-modules-extra, which kernelType realtime needs (kernel-type-not-shipped)"}},
		{name: "kernel-devel with realtime in another MachineConfig", image: new, text: mc("  extensions: [kernel-devel]\n") + "---\n" + mc("  kernelType: realtime\n"),
			want: []string{"5: spec.extensions[0]: the image does not ship the extension kernel-devel (extension-not-shipped)",
				"5: spec.extensions[0]: kernel-devel is refused beside kernelType realtime (mc.yaml, line 11) (kernel-devel-kernel-type)"}},
		{name: "kernel-devel with realtime of another pool", image: new,
			text: strings.Replace(mc("  extensions: [kernel-devel]\n"), "name: mc", "labels: {machineconfiguration.openshift.io/role: worker}", 1) +
				"---\n" + strings.Replace(mc("  kernelType: realtime\n"), "name: mc", "labels: {machineconfiguration.openshift.io/role: master}", 1),
			want: []string{"5: spec.extensions[0]: the image does not ship the extension kernel-devel (extension-not-shipped)"}},
		{name: "a kernel type that is none", image: new, text: mc("  kernelType: realtme\n"),
			want: []string{`5: spec.kernelType: no release knows the kernelType "realtme": is it realtime? (kernel-type-unknown)`}},
		{name: "no MachineConfig", image: new, text: "kind: Pod\n", want: []string{"there is no MachineConfig in it (no-machineconfig)"}},
		{name: "unreadable", image: new, text: "kind: MachineConfig\nspec: {extensions: 5}\n", want: []string{"line 2: spec.extensions is not a list (unreadable)"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "mc.yaml")
			write(t, file, []byte(tt.text))
			out, errs, status := l.run(t, append(tt.args, "validate", file, "--image", tt.image)...)
			wantStatus := 0
			if len(tt.want) > 0 {
				wantStatus = 1
			}
			if status != wantStatus || errs != "" {
				t.Errorf("exit status %d, %s", status, errs)
			}
			got := strings.Split(strings.TrimSpace(strings.NewReplacer(file+": ", "", file+":", "", filepath.Dir(file)+"/", "").Replace(out)), "\n")
			if d := cmp.Diff(tt.want, got[:len(got)-1], cmpEmpty); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}

	t.Run("a folder, JSON", func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "a.yaml"), []byte(mc("  extensions: [usbguard]\n")+"---\n"+mc("  extensions: [usbgard]\n")))
		write(t, filepath.Join(dir, "sub/b.json"), []byte(`{"kind":"List","items":[{"kind":"MachineConfig","metadata":{"name":"b"},"spec":{"kernelType":"realtime"}},{"kind":"Pod"}]}`))
		write(t, filepath.Join(dir, "notes.txt"), []byte("none"))
		write(t, filepath.Join(dir, ".git/c.yaml"), []byte("["))
		out, _, status := l.run(t, "validate", dir, "-o", "json", "--image", new)
		var v struct {
			Release                string
			MachineConfigs, Others int
			Findings               []struct {
				File, Name, Field, Code string
				Line                    int
			}
		}
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Fatal(err)
		}
		if status != 1 || v.Release != "4.19.3" || v.MachineConfigs != 3 || v.Others != 1 || len(v.Findings) != 1 || v.Findings[0].Line != 11 || v.Findings[0].Code != "extension-unknown" {
			t.Errorf("exit status %d, %s", status, out)
		}
	})
	t.Run("a pipe that nobody writes to", func(t *testing.T) {
		dir := t.TempDir()
		if err := syscall.Mkfifo(filepath.Join(dir, "a.yaml"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, _, status := l.run(t, "validate", dir, "--image", new)
		if status != 1 || !strings.Contains(out, "not a regular file (unreadable)") {
			t.Errorf("exit status %d, %s", status, out)
		}
	})
	t.Run("stdin, no image, an image that is not there", func(t *testing.T) {
		cmd := exec.Command(program, "validate", "-", "--root", l.root, "--authfile", l.auth, "--image", new)
		cmd.Stdin = strings.NewReader(mc("  extensions: [usbguard]\n"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if _, errs, status := l.run(t, "validate", "-"); status != 2 || !strings.Contains(errs, "--image is missing") {
			t.Errorf("exit status %d, %s", status, errs)
		}
		file := filepath.Join(t.TempDir(), "mc.yaml")
		write(t, file, []byte(mc("")))
		out, errs, status := l.run(t, "validate", file, "--image", l.reg.Host+"/none:latest")
		if status != 1 || out != "" || errs == "" {
			t.Errorf("exit status %d, %s%s", status, out, errs)
		}
	})
	t.Run("an OS image that has the kernel itself", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "mc.yaml")
		write(t, file, []byte(mc("  kernelType: realtime\n")))
		packages := append(installed(), sysroot.Package{Name: "kernel-rt-core", Epoch: "0", Version: "5.14.0", Release: "427.el9_4", Arch: "x86_64"})
		os := l.push(t, "os", l.image(t, sysroot.Tree{}, sysroot.CommitOptions{Packages: packages}, nativeimage.Options{}))
		out, _, status := l.run(t, "validate", file, "--image", os)
		if status != 1 || !strings.Contains(out, "the daemon would layer it again") {
			t.Errorf("exit status %d, %s", status, out)
		}
	})
	t.Run("an OS image alone", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "mc.yaml")
		write(t, file, []byte(mc("  extensions: [usbguard]\n")))
		os := l.push(t, "os", l.image(t, sysroot.Tree{}, sysroot.CommitOptions{Packages: installed()}, nativeimage.Options{}))
		out, _, status := l.run(t, "validate", file, "--image", os)
		if status != 1 || !strings.Contains(out, "(not-verified)") {
			t.Errorf("exit status %d, %s", status, out)
		}
	})
}

// cmpEmpty takes no list for an empty one.
var cmpEmpty = cmp.Transformer("empty", func(s []string) []string { return append([]string{}, s...) })
