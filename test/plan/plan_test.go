// Package plan runs oneboot plan on folders as people have them: each in testdata
// has objects, what the command prints and the exit status of --exit-code.
package plan

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "plan-")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "oneboot")
	if out, err := exec.Command("go", "build", "-tags", "containers_image_openpgp,exclude_graphdriver_btrfs", "-o", program, "../../cmd/oneboot").CombinedOutput(); err != nil {
		panic(string(out))
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func plan(t *testing.T, stdin string, args ...string) (out string, status int, usage *syscall.Rusage) {
	t.Helper()
	cmd := exec.Command(program, append([]string{"plan", "--offline"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	usage, _ = cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return stdout.String() + stderr.String(), cmd.ProcessState.ExitCode(), usage
}

func TestScenarios(t *testing.T) {
	dirs, err := filepath.Glob("testdata/*/in")
	if err != nil || len(dirs) < 15 {
		t.Fatalf("%d scenarios, %v", len(dirs), err)
	}
	for _, in := range dirs {
		dir := filepath.Dir(in)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			args := []string{in, "--exit-code"}
			if table := filepath.Join(dir, "bootimages.yaml"); exists(table) {
				args = append(args, "--bootimages", table)
			}
			for _, output := range []string{"text", "json"} {
				got, status, _ := plan(t, "", append(args, "-o", output)...)
				if output == "text" {
					got += fmt.Sprintf("exit status %d\n", status)
				}
				golden := filepath.Join(dir, "out."+output)
				if *update {
					if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(string(want), got); d != "" {
					t.Errorf("%s (-want +got)\n%s", output, d)
				}
			}
		})
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// What cannot be read is named, and the rest is read.
func TestHostile(t *testing.T) {
	const good = "\n---\nkind: InfraEnv\nmetadata: {name: good}\nspec: {cpuArchitecture: x86_64}\n"
	tests := []struct{ name, text, want string }{
		{"anchors that explode", "kind: MachineSet\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b]", "line 3: a reference to an anchor"},
		{"a scalar of six megabytes", "kind: MachineSet\na: " + strings.Repeat("x", 6<<20), "over the limit"},
		{"wrong types", "kind: MachineSet\nmetadata: 5\nspec: [1, 2]", ""},
		{"keys that stand twice", "kind: MachineSet\nspec: {}\nspec: {}", `line 3: the key "spec" appears twice`},
		{"nested a thousand deep", "kind: MachineSet\na: " + strings.Repeat("[", 1000) + strings.Repeat("]", 1000), "nested deeper than 64 levels"},
		{"no YAML", "kind: MachineSet\n\t- x: [", "yaml"},
		{"a list of scalars", "kind: List\nitems:\n- 1\n- 2\n", "not an object"},
		{"binary", "\x00\x01\x02\xff", "yaml"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			began := time.Now()
			got, status, usage := plan(t, tt.text+good, "-")
			if status != 0 || !strings.Contains(got, "InfraEnv good") {
				t.Errorf("exit status %d; the good object is not in\n%.2000s", status, got)
			}
			if tt.want != "" && !strings.Contains(got, tt.want) {
				t.Errorf("no %q in\n%.2000s", tt.want, got)
			}
			if strings.Contains(got, "panic") || time.Since(began) > 20*time.Second || usage.Maxrss > 400<<10 {
				t.Errorf("%s, %d KiB:\n%.2000s", time.Since(began), usage.Maxrss, got)
			}
		})
	}
	if _, status, _ := plan(t, "", "/nonexistent"); status != 1 {
		t.Errorf("a path that is not there: exit status %d", status)
	}
}

// manyObjects are those of a large cluster in the form that oc prints.
func manyObjects(n int) string {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: List\nitems:\n")
	for i := range n {
		kind := []string{"Pod", "Secret", "Machine", "MachineSet", "BareMetalHost"}[i%5]
		fmt.Fprintf(&b, `- apiVersion: machine.openshift.io/v1beta1
  kind: %s
  metadata:
    name: o-%d
    namespace: openshift-machine-api
    annotations: {a: "1", b: "2"}
  spec:
    template:
      spec:
        providerSpec:
          value:
            kind: AWSMachineProviderConfig
            ami: {id: ami-%d}
            userDataSecret: {name: worker-user-data}
`, kind, i, i)
	}
	return b.String()
}

func BenchmarkTenThousandObjects(b *testing.B) {
	file := filepath.Join(b.TempDir(), "all.yaml")
	if err := os.WriteFile(file, []byte(manyObjects(10_000)), 0o644); err != nil {
		b.Fatal(err)
	}
	var peak int64
	for b.Loop() {
		cmd := exec.Command(program, "plan", "--offline", file)
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
		if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			peak = max(peak, usage.Maxrss)
		}
	}
	b.ReportMetric(float64(peak)/1024, "MiB")
}
