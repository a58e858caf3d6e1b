package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/verdict"
)

func TestMachineFacts(t *testing.T) {
	const metal, guest = "processor : 0\nflags\t\t: fpu vme sse\n", "processor : 0\nflags\t\t: fpu hypervisor sse\n"
	tests := []struct {
		name  string
		files map[string]string
		// want has each fact as JSON has it, empty where it is not known.
		virtual, confidential, disabled, denied, allowed string
	}{
		{"bare metal", map[string]string{cpuinfoPath: metal, kexecDisabledPath: "0\n"}, `""`, "false", "false", "null", "null"},
		{"a guest", map[string]string{cpuinfoPath: guest, kexecDisabledPath: "1\n"}, `"the processor is a hypervisor's"`, "false", "true", "null", "null"},
		{"a confidential guest", map[string]string{cpuinfoPath: guest, "/dev/sev-guest": "", kexecDisabledPath: "0\n"}, `"the processor is a hypervisor's"`, "true", "false", "null", "null"},
		{"Xen", map[string]string{cpuinfoPath: metal, hypervisorPath: "xen\n", kexecDisabledPath: "0\n"}, `"xen"`, "false", "false", "null", "null"},
		{"no flags", map[string]string{cpuinfoPath: "Features : fp asimd\n", kexecDisabledPath: "0\n"}, "", "", "false", "null", "null"},
		{"nothing", nil, "", "", "true", "null", "null"},
		{"lists", map[string]string{cpuinfoPath: metal, deniedPath: "# bad ones\n\nDell Inc./PowerEdge R6*\n", allowedPath: "\n"}, `""`, "false", "true", `["Dell Inc./PowerEdge R6*"]`, "[]"},
		{"a pattern that is none", map[string]string{cpuinfoPath: metal, deniedPath: "Dell[/x\n"}, `""`, "false", "true", "", "null"},
		{"a long list", map[string]string{cpuinfoPath: metal, allowedPath: strings.Repeat("x\n", maxSmallFile)}, `""`, "false", "true", "null", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := machineFacts(rootWith(t, tt.files))
			got := []string{shown(t, m.Virtualization), shown(t, m.Confidential), shown(t, m.KexecDisabled), shown(t, m.Denied), shown(t, m.Allowed)}
			if diff := cmp.Diff([]string{tt.virtual, tt.confidential, tt.disabled, tt.denied, tt.allowed}, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestLockdownAndSystemd(t *testing.T) {
	for _, tt := range []struct {
		name              string
		files             map[string]string
		lockdown, systemd string
	}{
		{"RHEL 9", map[string]string{lockdownPath: "[none] integrity confidentiality\n", "/usr/lib/systemd/libsystemd-shared-252.so": "", "/usr/lib/systemd/systemd": ""}, `"none"`, "252"},
		{"RHEL 10 with Secure Boot", map[string]string{lockdownPath: "none [integrity] confidentiality\n", "/usr/lib64/systemd/libsystemd-shared-257-9.el10.so": ""}, `"integrity"`, "257"},
		{"Debian", map[string]string{lockdownPath: "none [confidentiality]", "/usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-257.so": ""}, `"confidentiality"`, "257"},
		{"nothing", nil, "", ""},
		{"odd words", map[string]string{lockdownPath: "none integrity\n", "/usr/lib/systemd/libsystemd-shared-x.so": ""}, "", ""},
		{"two versions", map[string]string{lockdownPath: "[", "/usr/lib/systemd/libsystemd-shared-252.so": "", "/usr/lib64/systemd/libsystemd-shared-257.so": ""}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := machineFacts(rootWith(t, tt.files))
			if got := []string{shown(t, m.Lockdown), shown(t, m.Systemd)}; got[0] != tt.lockdown || got[1] != tt.systemd {
				t.Errorf("got %q; want %q, %q", got, tt.lockdown, tt.systemd)
			}
		})
	}
}

// rootWith is a root with these files.
func rootWith(t *testing.T, files map[string]string) *hostfs.Root {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := hostfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// shown is a fact's value as JSON; empty where it is not known.
func shown[T any](t *testing.T, f verdict.Fact[T]) string {
	t.Helper()
	v, ok := f.Get()
	if !ok {
		if f.Why() == "" {
			t.Error("a fact is unknown without a reason")
		}
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
