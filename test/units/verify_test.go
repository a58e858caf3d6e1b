package units

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// verify is what systemd-analyze verify says of a whole boot with the unit.
// The program that it starts is replaced by one that the host has.
func verify(t *testing.T, unit string) string {
	t.Helper()
	m := newMachine(t, regexp.MustCompile(`(?m)^ExecStart=-/usr/bin/oneboot`).ReplaceAllString(unit, "ExecStart=-/bin/true"))
	dir := filepath.Join(m.root, "etc/systemd/system")
	scripts, err := filepath.Glob(dir + "/*.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scripts {
		if out, err := exec.Command("sed", "-i", "s,/usr/bin/did,/bin/true,; s,/usr/bin/report,/bin/true,", s).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	cmd := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=yes", dir+"/multi-user.target", dir+"/"+unitName)
	cmd.Env = append(cmd.Environ(), "SYSTEMD_UNIT_PATH="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	return string(out)
}

func TestVerify(t *testing.T) {
	for form, unit := range map[string]string{"binary": shippedUnit(t), "podman": podmanUnit(t)} {
		if out := verify(t, unit); out != "" {
			t.Errorf("%s: %s", form, out)
		}
		// What it is worth: it sees a cycle and a key that is none.
		if out := verify(t, strings.Replace(unit, "\nBefore=", "\nBefore=NetworkManager.service ", 1)); !strings.Contains(out, "ordering cycle") {
			t.Errorf("%s: a cycle goes unnoticed: %s", form, out)
		}
		if out := verify(t, strings.Replace(unit, "\nTimeoutStartSec=", "\nTimeoutStartSecs=", 1)); !strings.Contains(out, "Unknown key") {
			t.Errorf("%s: an unknown key goes unnoticed: %s", form, out)
		}
	}
}

// The two forms are one unit but for what they run and how it is shut in.
func TestFormsAgree(t *testing.T) {
	lines := func(unit string) string {
		var keep []string
		for line := range strings.Lines(unit) {
			key, _, _ := strings.Cut(line, "=")
			switch key {
			case "Description", "ConditionPathExists", "ConditionKernelCommandLine", "Wants", "After", "Before", "Type", "RemainAfterExit",
				"Environment", "EnvironmentFile", "SyslogIdentifier", "StandardOutput", "StandardError", "WantedBy", "RequiredBy":
				keep = append(keep, line)
			}
		}
		return strings.Join(keep, "")
	}
	if binary, podman := lines(shippedUnit(t)), lines(podmanUnit(t)); binary != podman {
		t.Errorf("got\n%s\nand\n%s", binary, podman)
	}
}

// How exposed the unit is, by systemd's own measure: a change for the worse is
// to be seen.
func TestExposure(t *testing.T) {
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=42", "../../daemon/units/"+unitName).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
