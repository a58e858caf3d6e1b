//go:build mcd

package mcdlab

import (
	"strings"
	"testing"

	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/sysroot"
)

// integrated is the daemon of 4.20 with oneboot as a library (test/mcd/integration).
func integrated() daemonBuild {
	return daemonBuild{"4.20.0", "../../bin/machine-config-daemon-oneboot", "machine-config-daemon-oneboot", true}
}

// TestIntegration: the daemon that asks oneboot's packages skips where the content is
// proven, whatever the origin says, and pivots in every other case.
func TestIntegration(t *testing.T) {
	l := newLab(t)
	tests := []struct {
		name string
		node nodeOptions
		want outcome
		says string
	}{
		{"a disk image of the release", diskImage(nodeOptions{}), skipped, "proven by manifest-digest"},
		{"the origin names the image", nodeOptions{container: true}, skipped, "proven by manifest-digest"},
		{"another build", diskImage(nodeOptions{older: true}), rebooted, "os-content-differs"},
		{"a kernel argument is wanted", diskImage(nodeOptions{mc: sysroot.MachineConfig{KernelArguments: []string{"nosmt"}}}), rebooted, "kernel-arguments-differs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// The node's pull secret; and no root of process 1 that is this root, which
			// in a chroot is not the deployment's folder.
			tt.node.files = map[string]string{"/var/lib/kubelet/config.json": "{}", "/proc/1/root": ""}
			n := l.bootNode(t, integrated(), tt.node)
			r := n.mcd(t)
			if r.outcome != tt.want || !strings.Contains(r.output, tt.says) {
				t.Errorf("the daemon %s, without %q in\n%s%s", r.outcome, tt.says, r.output, n.read(record.Path))
			}
			// What checkOS asks in the cluster.
			rec := must[*record.Record](t)(record.Parse([]byte(n.read(record.Path))))
			booted := verdict.Checksum(n.deployment.Checksum)
			if got := rec.Proves(n.url, booted); got != (tt.want == skipped) {
				t.Errorf("the record proves the wanted image: %v", got)
			}
			if rec.Proves(l.older.url, booted) {
				t.Error("the record proves another image")
			}
		})
	}
}
