package e2e

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/sysroot"
)

// Many runs in one process, as a daemon that uses the packages would do: nothing of
// one stays once it has ended, however it ended.
func TestNothingLeaks(t *testing.T) {
	dir := t.TempDir()
	l := newLab(t)
	// A registry of its own: the others' tests are not to be seen in its faults.
	reg, err := registry.Start(registry.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reg.Close() })
	digest := must[string](t)(reg.Push("os/base", l.native))
	url := reg.Reference("os/base", digest)
	options := sysroot.BootOptions{InsecureRegistries: []string{reg.Host}}
	byDigest := l.bootNode(t, nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: url}, boot: options})
	byCommit := l.bootNode(t, nodeOptions{commit: l.base, mc: sysroot.MachineConfig{OSImageURL: url}, boot: options})
	other := l.bootNode(t, nodeOptions{commit: l.other, mc: sysroot.MachineConfig{OSImageURL: url}, boot: options})
	round := func() {
		for _, n := range []*node{byDigest, byCommit, other} {
			n.analyze(t)
		}
		reg.AddFault(&registry.Fault{Do: registry.Drop})
		byCommit.analyze(t)
		reg.ClearFaults()
	}
	round()
	goroutines, files := settled(t, 0, 0)
	for range 10 {
		round()
	}
	// A connection that is being closed may be seen for a moment.
	if g, f := settled(t, goroutines, files); g > goroutines+2 || f > files+2 {
		stacks := make([]byte, 1<<16)
		t.Errorf("%d goroutines and %d files after one round, %d and %d after ten more\n%s", goroutines, files, g, f, stacks[:runtime.Stack(stacks, true)])
	}
}

// settled counts goroutines and open files once they are no more than those given, or
// after some seconds.
func settled(t *testing.T, goroutines, files int) (g, f int) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", os.Getpid()))
		if err != nil {
			t.Fatal(err)
		}
		g, f = runtime.NumGoroutine(), len(open)
		if g <= goroutines && f <= files || time.Now().After(end) {
			return g, f
		}
	}
}
