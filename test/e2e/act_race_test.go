package e2e

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/sysroot"
)

// Between the facts and the act a registry may take its time. What the verdict
// rests on and another program has changed by then is no ground to act on.
func TestChangedBeforeAct(t *testing.T) {
	l := newLab(t)
	base, rebuilt := l.push(t, "race/base", l.native), l.push(t, "race/rebuilt", l.rebuiltImage)
	write := func(name, text string) func(*testing.T, *node) {
		return func(t *testing.T, n *node) {
			if err := n.WriteFile(name, text); err != nil {
				t.Error(err)
			}
		}
	}
	tests := []struct {
		name   string
		change func(*testing.T, *node)
		why    string
	}{
		{"nothing", func(*testing.T, *node) {}, ""},
		{"another MachineConfig", func(t *testing.T, n *node) {
			name := n.Path(sysroot.MachineConfigPath)
			text := strings.Replace(string(must[[]byte](t)(os.ReadFile(name))), base, rebuilt, 1)
			write(sysroot.MachineConfigPath, text)(t, n)
		}, "the MachineConfig"},
		{"no MachineConfig", func(t *testing.T, n *node) {
			if err := os.Remove(n.Path(sysroot.MachineConfigPath)); err != nil {
				t.Error(err)
			}
		}, "/etc/ignition-machine-config-encapsulated.json: no such file"},
		{"a staged deployment", write(sysroot.StagedPath, "x"), "deployment"},
		{"the daemon's force file", write("run/machine-config-daemon-force", ""), "force-file"},
		{"kernel arguments of old", write("etc/pivot/kernel-args", "ADD nosmt\n"), "legacy-kernel-arguments"},
		{"another deployment is the default", func(t *testing.T, n *node) {
			if _, err := n.Sysroot.Deploy(l.base, sysroot.DeployOptions{KernelArguments: []string{"quiet"}}); err != nil {
				t.Error(err)
			}
		}, "deployment"},
		{"the node joins", write("etc/machine-config-daemon/currentconfig", "{}"), "the node has joined"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			defer l.reg.ClearFaults()
			n := l.bootNode(t, nodeOptions{commit: l.base, mc: sysroot.MachineConfig{OSImageURL: base, Annotations: ofRelease("4.16.3")}})
			before := string(must[[]byte](t)(os.ReadFile(n.deployment.OriginFile())))
			var once sync.Once
			l.reg.AddFault(&registry.Fault{Path: regexp.MustCompile("/race/base/"), Do: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				once.Do(func() { tt.change(t, n) })
				next.ServeHTTP(w, r)
			}})
			res := n.firstboot(t, daemon.ModeComplete)
			if res.Verdict.Action != verdict.Skip {
				t.Fatalf("%s\n%s", actionText(res.Verdict.Action), checksText(res.Verdict))
			}
			after := string(must[[]byte](t)(os.ReadFile(n.deployment.OriginFile())))
			_, err := os.Lstat(n.Path(sysroot.MachineConfigPath + ".bak"))
			acted := err == nil
			if want := tt.why == ""; acted != want || (after != before) != want || (res.Act.State == record.ActDone) != want || !strings.Contains(res.Act.Reason, tt.why) {
				t.Errorf("act %+v, want %q; renamed %v, origin %q", res.Act, tt.why, acted, after)
			}
		})
	}
}
