package act

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/pkg/record"
)

// calls are the system calls by which a run changes the host.
var calls = []string{"write", "fsync", "renameat", "renameat2", "unlinkat", "fchmod", "fchown", "fsetxattr", "fremovexattr", "mkdirat", "utimensat", "flock"}

// maxCalls is more than a run makes of any of them.
const maxCalls = 100

func killAt(call string, when int) []string {
	return []string{"-o", "/dev/null", "-e", "trace=" + call, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", call, when)}
}

// fewCalls are those between which the files on the disk differ.
var fewCalls = []string{"write", "fsync", "renameat", "renameat2"}

// each kills a run at every call of the kinds; run says whether it was killed.
func each(t *testing.T, calls []string, run func(what string, strace []string) (killed bool)) {
	t.Helper()
	total := 0
	for _, call := range calls {
		for when := 1; ; when++ {
			if when == maxCalls {
				t.Fatalf("%s: %d calls and no end", call, when)
			}
			if !run(fmt.Sprintf("%s %d", call, when), killAt(call, when)) {
				break
			}
			total++
		}
	}
	if total < 10 {
		t.Errorf("%d kills: that is not the program", total)
	}
	t.Logf("%d kills", total)
}

// Killed anywhere, files are untouched or whole. The next run finishes or
// undoes the act; revert brings back every byte, owner, mode, label and time.
// What the next run is takes turns.
func TestKilled(t *testing.T) {
	next := []func(n *node, mode string, before map[string]file, what string){
		(*node).nextAgain, (*node).nextReport, (*node).nextRevert,
	}
	for turn, mode := range []string{"assert", "complete"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			before := n.snapshot()
			each(t, calls, func(what string, strace []string) bool {
				n.forget()
				out := n.run(strace, "firstboot", "--mode", mode)
				n.whole(what, before, mode)
				next[turn%len(next)](n, mode, before, what)
				turn++
				n.revert()
				n.same(what+", then revert", before)
				return out.status != 0
			})
		})
	}
}

// nextAgain: the act is done after all.
func (n *node) nextAgain(mode string, before map[string]file, what string) {
	n.t.Helper()
	over := n.committed()
	rec := n.firstboot(mode)
	got := n.snapshot()
	n.sameAs(what+", then again", got, n.acted(before, got, mode))
	if !over && rec.Act.State != record.ActDone {
		n.t.Fatalf("%s, then again: act %+v", what, rec.Act)
	}
}

// nextReport: a run that may not act undoes what is half done.
func (n *node) nextReport(mode string, before map[string]file, what string) {
	n.t.Helper()
	stays := n.committed() || n.done()
	rec := n.firstboot("report")
	if rec.Act.State != record.ActNone {
		n.t.Fatalf("%s, then report: act %+v", what, rec.Act)
	}
	if !stays {
		n.same(what+", then report", before)
		return
	}
	got := n.snapshot()
	n.sameAs(what+", then report", got, n.acted(before, got, mode))
}

func (n *node) nextRevert(string, map[string]file, string) {}

// committed: the first boot is over.
func (n *node) committed() bool {
	_, err := os.Lstat(n.Path(encapsulated))
	return err != nil
}

// A run that ends what another one has begun may be killed too.
func TestKilledAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	before := n.snapshot()
	// The rename of the last repository: all but the commit point is done.
	first := killAt("renameat2", 1)
	for _, second := range [][]string{{"firstboot", "--mode", "complete"}, {"revert"}} {
		each(t, fewCalls, func(what string, strace []string) bool {
			n.forget()
			if out := n.run(first, "firstboot", "--mode", "complete"); out.status == 0 {
				t.Fatal("the first run was not killed")
			}
			out := n.run(strace, second...)
			what = second[0] + " killed at " + what
			n.whole(what, before, "complete")
			if second[0] == "firstboot" {
				n.firstboot("complete")
				got := n.snapshot()
				n.sameAs(what+", then again", got, n.acted(before, got, "complete"))
			}
			n.revert()
			n.same(what, before)
			return out.status != 0
		})
	}
}

// So may a revert of an act that was done.
func TestRevertKilled(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	before := n.snapshot()
	each(t, calls, func(what string, strace []string) bool {
		n.forget()
		n.firstboot("complete")
		out := n.run(strace, "revert")
		n.whole(what, before, "complete")
		n.revert()
		n.same(what, before)
		if rec := n.record(); rec.Act.State != record.ActUndone {
			t.Errorf("%s: act %+v", what, rec.Act)
		}
		return out.status != 0
	})
}

// Where the node has joined upon an act that was cut off, it stays: undone, it
// would have the machine-config-daemon pivot.
func TestKilledAndJoined(t *testing.T) {
	n := newNode(t)
	// The annotations, after the origin.
	if out := n.run(killAt("renameat", 4), "firstboot", "--mode", "assert"); out.status == 0 {
		t.Fatal("the run was not killed")
	}
	check(t, n.WriteFile("etc/machine-config-daemon/currentconfig", "{}"))
	check(t, os.Remove(n.Path(encapsulated)))
	before := n.snapshot()
	// What the killed run was about to rename is all that goes.
	const left = "etc/machine-config-daemon/.node-annotations.json.oneboot-tmp"
	if _, ok := before[left]; !ok {
		t.Fatal("the run was killed elsewhere")
	}
	delete(before, left)
	if f := before[n.origin]; !strings.Contains(f.Content, n.image) {
		t.Fatalf("the origin is %q", f.Content)
	}
	rec := n.firstboot("report")
	n.same("report", before)
	if rec.Act.State != record.ActNone || !strings.Contains(rec.Act.Reason, "what an earlier run did stays") {
		t.Errorf("act %+v", rec.Act)
	}
	if out := n.run(nil, "revert"); out.status != 1 {
		t.Errorf("%+v", out)
	}
	n.same("revert", before)
	n.revert("--force")
	if f := n.snapshot()[n.origin]; strings.Contains(f.Content, n.image) {
		t.Errorf("the origin is %q", f.Content)
	}
}
