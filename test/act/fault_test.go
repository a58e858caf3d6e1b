package act

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/test/sysroot"
)

// A call that fails, anywhere: the act is undone at once or done all the same,
// the boot goes on, and who looks is told.
func TestFaults(t *testing.T) {
	faults := []struct {
		name, calls, errno string
		// stays: every later call fails too, as on a full disk.
		stays bool
	}{
		{"full disk, once", "write", "ENOSPC", false},
		{"full disk", "write", "ENOSPC", true},
		{"disk error", "fsync", "EIO", false},
		{"read-only", "renameat", "EROFS", true},
		{"read-only at the last step", "renameat2", "EROFS", false},
		{"no second name", "renameat2", "EINVAL", false},
		{"no owner", "fchown", "EPERM", false},
		{"no mode", "fchmod", "EPERM", false},
		{"no label", "fsetxattr", "EOPNOTSUPP", false},
		{"no time", "utimensat", "EPERM", false},
	}
	for _, tt := range faults {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			before := n.snapshot()
			for when := 1; when < maxCalls; when++ {
				n.forget()
				expr := fmt.Sprint(when)
				if tt.stays {
					expr += "+"
				}
				log := filepath.Join(t.TempDir(), "log")
				out := n.run([]string{"-o", log, "-e", "trace=" + tt.calls, "-e", fmt.Sprintf("inject=%s:error=%s:when=%s", tt.calls, tt.errno, expr)},
					"firstboot", "--mode", "complete")
				what := fmt.Sprintf("%s, from call %d", tt.name, when)
				injected := strings.Contains(string(must[[]byte](t)(os.ReadFile(log))), "(INJECTED)")
				n.afterFault(what, before, out, injected)
				if !injected {
					return
				}
			}
			t.Fatal("no end")
		})
	}
}

// afterFault holds what must be after a run in which calls failed.
func (n *node) afterFault(what string, before map[string]file, out outcome, injected bool) {
	n.t.Helper()
	n.whole(what, before, "complete")
	switch {
	case out.status == 0 && n.committed():
		// Past the commit point nothing is undone.
	case out.status == 0 && !injected:
		n.t.Fatalf("%s: nothing failed, and the act was not done: %s", what, out.stdout)
	case out.status == 0 && n.record().Act.State == record.ActNone && strings.Contains(out.stdout, "PROCEED"):
		// It failed before there was a verdict.
	case out.status == 0:
		if rec := n.record(); rec.Act.State != record.ActFailed || rec.Act.Reason == "" || len(rec.Verdict.Errors) == 0 {
			n.t.Fatalf("%s: act %+v, errors %v", what, rec.Act, rec.Verdict.Errors)
		}
		if !strings.Contains(out.stderr, "the act failed, the node goes on as always") {
			n.t.Fatalf("%s: stderr %q", what, out.stderr)
		}
	case out.status != 1:
		n.t.Fatalf("%s: exit status %d, stderr %q", what, out.status, out.stderr)
	}
	// An undo for which there is no room either is the next run's.
	n.firstboot("report")
	if !n.committed() {
		n.same(what, before)
	}
	n.revert()
	n.same(what+", then revert", before)
}

// A disk that is really full: from no room at all to just enough.
func TestFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "disk")
	check(t, os.Mkdir(dir, 0o755))
	check(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"))
	t.Cleanup(func() { check(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	n := newNodeIn(t, filepath.Join(dir, "root"), "")
	t.Cleanup(func() { check(t, sysroot.Unlock(dir)) })
	check(t, n.WriteFile(secondRepo, strings.Repeat("[b]\nenabled=1\n", 1000)))
	before := n.snapshot()
	seen := map[record.ActState]int{}
	filler := filepath.Join(dir, "filler")
	for pages := int64(0); ; pages++ {
		if pages == 128 {
			t.Fatal("no end")
		}
		n.forget()
		var st unix.Statfs_t
		check(t, unix.Statfs(dir, &st))
		f := must[*os.File](t)(os.Create(filler))
		check(t, unix.Fallocate(int(f.Fd()), 0, 0, (int64(st.Bavail)-pages)*int64(st.Bsize)))
		check(t, f.Close())
		out := n.run(nil, "firstboot", "--mode", "complete")
		what := fmt.Sprintf("%d pages free", pages)
		n.whole(what, before, "complete")
		if (out.status == 0) != n.committed() && !strings.Contains(out.stdout+out.stderr, "no space left") {
			t.Errorf("%s: exit status %d: %s", what, out.status, out.stderr)
		}
		state := record.ActState("no record")
		if raw, err := os.ReadFile(n.Path(stateDir + "/firstboot.json")); err == nil && out.status == 0 {
			rec := must[*record.Record](t)(record.Parse(raw))
			if state = rec.Act.State; state == record.ActFailed && rec.Verdict.Errors[0].Code != "act-no-space" {
				t.Errorf("%s: errors %v", what, rec.Verdict.Errors)
			}
		}
		if !n.committed() {
			n.same(what, before)
		}
		check(t, os.Remove(filler))
		seen[state]++
		n.revert()
		n.same(what+", then revert", before)
		if state == record.ActDone {
			break
		}
	}
	t.Logf("pages of room, by how the run ended: %v", seen)
	if seen["no record"] == 0 || seen[record.ActFailed] == 0 {
		t.Errorf("the disk was never full at the right time: %v", seen)
	}
}

// Everything is on the disk before what rests on it: a power cut at any moment
// is like a kill.
func TestOrder(t *testing.T) {
	n := newNode(t)
	log := filepath.Join(t.TempDir(), "log")
	out := n.run([]string{"-y", "-o", log, "-e", "trace=write,fsync,renameat,renameat2,fchmod,fchown,fsetxattr,utimensat"}, "firstboot", "--mode", "complete")
	if out.status != 0 {
		t.Fatal(out.stderr)
	}
	dirty := map[string]bool{} // files and folders with changes that are not synced
	renames := 0
	for line := range strings.Lines(string(must[[]byte](t)(os.ReadFile(log)))) {
		m := traced.FindStringSubmatch(line)
		if m == nil || !strings.HasPrefix(m[2], n.Dir) {
			continue
		}
		call, path := m[1], strings.TrimPrefix(m[2], n.Dir)
		switch {
		case call == "fsync":
			delete(dirty, path)
		case strings.HasPrefix(call, "renameat"):
			renames++
			for name := range dirty {
				t.Errorf("%s is not synced before: %s", name, line)
			}
			dirty[path] = true
		case call == "utimensat" && m[3] == ".":
			// A folder's time: rpm-ostree's daemon reads it, in this boot only.
		default:
			for name := range dirty {
				if name != path {
					t.Errorf("%s is not synced before: %s", name, line)
				}
			}
			dirty[path] = true
		}
	}
	for name := range dirty {
		t.Errorf("%s is not synced in the end", name)
	}
	// Two of the record, two of the journal, four files, and the commit point.
	if renames != 9 {
		t.Errorf("%d renames", renames)
	}
}

// traced is a line of strace -f -y: the call, what its descriptor leads to, and
// a name where there is one.
var traced = regexp.MustCompile(`^[0-9]+ +(\w+)\([0-9]+<([^>]*)>(?:, "([^"]*)")?`)
