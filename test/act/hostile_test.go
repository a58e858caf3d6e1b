package act

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/pkg/record"
)

// Where the first boot cannot be taken back, the origin stays too: with the one
// and without the other the node would join and then pivot, without a drain.
func TestRevertStopsAtCommitPoint(t *testing.T) {
	n := newNode(t)
	before := n.snapshot()
	n.firstboot("complete")
	acted := n.snapshot()
	out := n.run([]string{"-o", "/dev/null", "-e", "trace=renameat2", "-e", "inject=renameat2:error=EIO:when=1"}, "revert")
	if out.status != 1 || !strings.Contains(out.stderr, "input/output error") {
		t.Errorf("%+v", out)
	}
	n.same("failed revert", acted)
	n.firstboot("report")
	n.same("then report", acted)
	n.revert()
	n.same("then revert", before)
}

// A journal that is not oneboot's changes nothing: who can write in /var must not
// be able to write in the OS by it.
func TestForgedJournal(t *testing.T) {
	victim := "usr/bin/victim"
	tests := []struct{ name, change string }{
		{"a program", `{"kind":"content","path":"/usr/bin/victim","old":{"content":"ZXZpbAo=","mode":2541},"new":"Z29vZAo="}`},
		{"a program's mode", `{"kind":"mode","path":"/usr/bin/victim","old":{"mode":2541},"newMode":493}`},
		{"a program's name", `{"kind":"name","path":"/usr/bin/gone","to":"/usr/bin/victim","old":{"content":"Z29vZAo="}}`},
		{"a file beside the origins", `{"kind":"content","path":"/ostree/deploy/rhcos/deploy/x.origin/../../victim","old":{"content":"ZXZpbAo="},"new":"Z29vZAo="}`},
	}
	for _, tt := range tests {
		for _, args := range [][]string{{"firstboot", "--mode", "report"}, {"revert"}, {"revert", "--force"}} {
			t.Run(tt.name+", "+strings.Join(args, " "), func(t *testing.T) {
				n := newNode(t)
				check(t, n.WriteFile(victim, "good\n"))
				check(t, os.Chmod(n.Path(victim), 0o755))
				check(t, n.WriteFile(stateDir+"/act.json",
					`{"apiVersion":"oneboot.dev/v1","kind":"FirstbootAct","state":"intended","mode":"assert","changes":[`+tt.change+`]}`))
				before := n.look(n.Path(victim))
				n.run(nil, args...)
				if _, err := os.Lstat(n.Path(victim)); err != nil {
					t.Fatal(err)
				}
				if after := n.look(n.Path(victim)); after.Content != before.Content || after.Mode != before.Mode {
					t.Errorf("%+v", after)
				}
			})
		}
	}
}

// A second act that is cut off once it has undone the first one must not leave
// the first one's record: that says done.
func TestRecordOfActUponAct(t *testing.T) {
	n := newNode(t)
	before := n.snapshot()
	each(t, []string{"renameat", "write"}, func(what string, strace []string) bool {
		n.forget()
		n.firstboot("assert")
		acted := n.snapshot()
		out := n.run(strace, "firstboot", "--mode", "complete")
		raw, err := os.ReadFile(n.Path(stateDir + "/firstboot.json"))
		check(t, err)
		var rec record.Record
		check(t, json.Unmarshal(raw, &rec))
		if now := n.snapshot(); rec.Act.State == record.ActDone && now[n.origin].Content != acted[n.origin].Content {
			t.Errorf("%s: the record says %+v, the origin %q", what, rec.Act, now[n.origin].Content)
		}
		n.firstboot("report")
		n.revert()
		n.same(what, before)
		return out.status != 0
	})
}

// A difference that shows after an act, in another boot, and that the daemon does
// not look at where it finds the origin in order: the act goes.
func TestDifferenceAfterAct(t *testing.T) {
	n := newNode(t)
	n.firstboot("assert")
	check(t, n.WriteFile("etc/pivot/kernel-args", "ADD nosmt\n"))
	acted := n.snapshot()
	n.firstboot("report")
	n.same("report", acted)
	rec := n.firstboot("assert")
	if rec.Act.State != record.ActUndone || len(rec.Act.Changed) != 2 || !strings.Contains(rec.Act.Reason, "the verdict is proceed now") {
		t.Errorf("act %+v", rec.Act)
	}
	got := n.snapshot()
	if strings.Contains(got[n.origin].Content, n.image) || strings.Contains(got[annotations].Content, "oneboot.dev") {
		t.Errorf("%+v", got[n.origin])
	}
	// Nor does a node that has joined lose what it joined upon.
	check(t, os.Remove(n.Path("etc/pivot/kernel-args")))
	n.firstboot("assert")
	check(t, n.WriteFile("etc/pivot/kernel-args", "ADD nosmt\n"))
	check(t, n.WriteFile("etc/machine-config-daemon/currentconfig", "{}"))
	joined := n.snapshot()
	n.firstboot("assert")
	n.same("joined", joined)
}

// A record that is not one does not keep an act from being undone for good.
func TestRevertBrokenRecord(t *testing.T) {
	n := newNode(t)
	before := n.snapshot()
	n.firstboot("assert")
	check(t, n.WriteFile(stateDir+"/firstboot.json", "{"))
	n.revert()
	n.same("revert", before)
	if out := n.revert(); !strings.Contains(out.stdout, "There is nothing to undo") {
		t.Errorf("again: %+v", out)
	}
}

// Cut off before its last change, an act upon which the daemon has skipped by
// itself stays: it has removed the MachineConfig, and the node is about to join.
func TestCompleteKilledAndSkipped(t *testing.T) {
	n := newNode(t)
	if out := n.run(killAt("renameat2", 1), "firstboot", "--mode", "complete"); out.status == 0 {
		t.Fatal("the run was not killed")
	}
	check(t, os.Remove(n.Path(encapsulated)))
	before := n.snapshot()
	n.firstboot("report")
	n.same("report", before)
	if out := n.run(nil, "revert"); out.status != 1 || !strings.Contains(out.stderr, "has finished the first boot") {
		t.Errorf("%+v", out)
	}
	n.same("revert", before)
}
