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
			dir := t.TempDir()
			for name, text := range tt.files {
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
			defer root.Close()
			m := machineFacts(root)
			got := []string{shown(t, m.Virtualization), shown(t, m.Confidential), shown(t, m.KexecDisabled), shown(t, m.Denied), shown(t, m.Allowed)}
			if diff := cmp.Diff([]string{tt.virtual, tt.confidential, tt.disabled, tt.denied, tt.allowed}, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
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
