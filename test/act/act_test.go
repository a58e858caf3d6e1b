package act

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// Each mode changes what it is to change and nothing else, says so in the
// record, and does nothing more the second time.
func TestModes(t *testing.T) {
	tests := []struct {
		mode, acted string
		changed     []string
	}{
		{"report", "", []string{}},
		{"assert", "assert", []string{"ORIGIN", "/" + annotations}},
		{"complete", "complete", []string{"ORIGIN", "/" + annotations, "/" + kubeconfig, "/" + firstRepo, "/" + secondRepo, "/" + encapsulated}},
		// The node's packages are not known, so the daemon may pivot.
		{"auto", "complete", []string{"ORIGIN", "/" + annotations, "/" + kubeconfig, "/" + firstRepo, "/" + secondRepo, "/" + encapsulated}},
	}
	for _, tt := range tests {
		t.Run(tt.mode, func(t *testing.T) {
			n := newNode(t)
			before := n.snapshot()
			rec := n.firstboot(tt.mode)
			for i, name := range tt.changed {
				if name == "ORIGIN" {
					tt.changed[i] = strings.TrimPrefix("/"+n.origin, "/sysroot")
				}
			}
			if rec.Verdict.Action != verdict.Skip || rec.Mode != tt.mode || rec.Act.Mode != tt.acted || !cmp.Equal(rec.Act.Changed, tt.changed) {
				t.Errorf("mode %s, act %+v, want mode %s, changed %v", rec.Mode, rec.Act, tt.acted, tt.changed)
			}
			if (rec.Act.MCO != nil) != (tt.acted == "assert") {
				t.Errorf("prediction %+v", rec.Act.MCO)
			}
			if tt.acted == "" {
				n.same("report", before)
				return
			}
			got := n.snapshot()
			n.sameAs("act", got, n.acted(before, got, tt.acted))
			if !rec.Proves(n.image, rec.Verdict.Booted.Checksum) {
				t.Error("the record proves nothing")
			}
			if tt.acted == "assert" {
				again := n.firstboot(tt.mode)
				if again.Act.State != record.ActDone || len(again.Act.Changed) > 0 {
					t.Errorf("again: act %+v", again.Act)
				}
			} else if again := n.firstboot(tt.mode); again.Act.State != record.ActNone || len(again.Act.Changed) != len(tt.changed) {
				t.Errorf("again: act %+v", again.Act)
			}
			n.sameAs("again", n.snapshot(), got)
			n.revert()
			n.same("revert", before)
			if rec := n.record(); rec.Act.State != record.ActUndone || rec.Act.Mode != tt.acted {
				t.Errorf("reverted: act %+v", rec.Act)
			}
		})
	}
}

// An act upon an act: revert brings back what was there before both.
func TestCompleteAfterAssert(t *testing.T) {
	n := newNode(t)
	before := n.snapshot()
	n.firstboot("assert")
	n.firstboot("complete")
	got := n.snapshot()
	n.sameAs("complete", got, n.acted(before, got, "complete"))
	n.revert()
	n.same("revert", before)
}

// The time of ostree/deploy tells rpm-ostree's daemon to read the origins again.
func TestTouch(t *testing.T) {
	n := newNode(t)
	deploy := n.Path("sysroot/ostree/deploy")
	for _, step := range []func(){func() { n.firstboot("assert") }, func() { n.revert() }} {
		old := must[os.FileInfo](t)(os.Stat(n.Path("etc"))).ModTime().Add(-1e15)
		check(t, os.Chtimes(deploy, old, old))
		step()
		if now := must[os.FileInfo](t)(os.Stat(deploy)).ModTime(); !now.After(old) {
			t.Errorf("the time is still %s", now)
		}
	}
}

// Another instance at the same time does nothing.
func TestSecondInstance(t *testing.T) {
	n := newNode(t)
	n.firstboot("assert")
	before := n.snapshot()
	lock := must[*os.File](t)(os.Open(n.Path(stateDir + "/lock")))
	defer lock.Close()
	check(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	raw := must[[]byte](t)(os.ReadFile(n.Path(stateDir + "/firstboot.json")))
	for _, args := range [][]string{{"firstboot", "--mode", "complete"}, {"firstboot", "--mode", "report"}, {"revert"}, {"revert", "--force"}} {
		out := n.run(nil, args...)
		if out.status != 1 || out.stdout != "" || !strings.Contains(out.stderr, "another oneboot is at work on this host") {
			t.Errorf("%v: %+v", args, out)
		}
		n.same(strings.Join(args, " "), before)
	}
	if now := must[[]byte](t)(os.ReadFile(n.Path(stateDir + "/firstboot.json"))); string(now) != string(raw) {
		t.Error("the record has changed")
	}
}

// What stands in the way of an act: everything stays as it is, the exit status
// is 0, and the record says why.
func TestNoAct(t *testing.T) {
	write := func(name, text string) func(*node) {
		return func(n *node) { check(n.t, n.WriteFile(name, text)) }
	}
	tests := []struct {
		name string
		edit func(*node)
		mode string
		want record.ActState
		code string
		why  string
	}{
		{"the node has joined", write("etc/machine-config-daemon/node-annotation.json.bak", "{}"), "assert", record.ActNone, "", "the node has joined: /etc/machine-config-daemon/node-annotation.json.bak exists"},
		{"the node has a certificate", write("var/lib/kubelet/pki/kubelet-client-current.pem", "x"), "assert", record.ActNone, "", "kubelet-client-current.pem exists"},
		{"whether it has joined is not known", func(n *node) {
			check(n.t, os.MkdirAll(n.Path("var/lib/kubelet/pki"), 0o700))
			check(n.t, os.Symlink("nowhere", n.Path("var/lib/kubelet/pki/kubelet-client-current.pem")))
		}, "assert", record.ActNone, "", "whether the node has joined is not known"},
		{"the verdict is proceed", write("etc/pivot/kernel-args", "ADD nosmt\n"), "complete", record.ActNone, "", "the verdict is proceed"},
		{"a first boot was finished before", write(encapsulated+".bak", "{}"), "complete", record.ActFailed, "act-failed", ".bak: is there already"},
		{"the daemon boots the node anew", write("etc/systemd/system/machine-config-daemon-revert.service", ""), "complete", record.ActFailed, "act-failed", "boots this node anew"},
		{"a repository is a link", func(n *node) {
			check(n.t, os.Rename(n.Path(firstRepo), n.Path("etc/a")))
			check(n.t, os.Symlink("../a", n.Path(firstRepo)))
		}, "complete", record.ActFailed, "act-failed", "/etc/yum.repos.d/a.repo: is a symbolic link"},
		{"the kubeconfig is a folder", func(n *node) {
			check(n.t, os.Remove(n.Path(kubeconfig)))
			check(n.t, os.Mkdir(n.Path(kubeconfig), 0o700))
		}, "complete", record.ActFailed, "act-failed", "/etc/kubernetes/kubeconfig: is not a regular file"},
		{"the origin is a link", func(n *node) {
			check(n.t, os.Rename(n.Path(n.origin), n.Path(n.origin)+".elsewhere"))
			check(n.t, os.Symlink(filepath.Base(n.origin)+".elsewhere", n.Path(n.origin)))
		}, "assert", record.ActFailed, "act-failed", ".origin: is a symbolic link"},
		{"the journal is broken", write(stateDir+"/act.json", "{"), "assert", record.ActFailed, "act-unfinished", "reading journal /var/lib/oneboot/act.json"},
		{"a file that cannot be replaced", func(n *node) { n.immutable(firstRepo, true) }, "complete", record.ActFailed, "act-failed", "/etc/yum.repos.d/a.repo: operation not permitted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			tt.edit(n)
			before := n.snapshot()
			rec := n.firstboot(tt.mode)
			n.immutable(firstRepo, false)
			n.same("after", before)
			if rec.Act.State != tt.want || !strings.Contains(rec.Act.Reason, tt.why) {
				t.Errorf("act %+v, want %s, %q", rec.Act, tt.want, tt.why)
			}
			if found := slices.ContainsFunc(rec.Verdict.Errors, func(e verdict.Error) bool { return e.Code == tt.code }); found != (tt.code != "") {
				t.Errorf("errors %+v, want %s", rec.Verdict.Errors, tt.code)
			}
		})
	}
}

// immutable sets or clears the attribute that keeps a file from being replaced.
func (n *node) immutable(name string, on bool) {
	n.t.Helper()
	const flag = 0x10 // FS_IMMUTABLE_FL
	f, err := os.Open(n.Path(name))
	if err != nil {
		return
	}
	defer f.Close()
	flags := must[int](n.t)(unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS))
	flags &^= flag
	if on {
		flags |= flag
	}
	check(n.t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags))
}

// Annotations that cannot be extended without doubt are left alone; the act goes
// on without them.
func TestAnnotations(t *testing.T) {
	tests := []struct {
		name string
		edit func(*node)
		warn string
	}{
		{"absent", func(n *node) { check(n.t, os.Remove(n.Path(annotations))) }, ""},
		{"malformed", func(n *node) { check(n.t, n.WriteFile(annotations, `{"a":`)) }, "not a JSON document"},
		{"not strings", func(n *node) { check(n.t, n.WriteFile(annotations, `{"a":1}`)) }, `the value of "a" is not a string`},
		{"too large", func(n *node) { check(n.t, n.WriteFile(annotations, `{"a":"`+strings.Repeat("x", 2<<20)+`"}`)) }, "larger than the limit"},
		{"a link", func(n *node) {
			check(n.t, os.Remove(n.Path(annotations)))
			check(n.t, os.Symlink("/etc/os-release", n.Path(annotations)))
		}, "is a symbolic link"},
		{"unwritable", func(n *node) { n.immutable(annotations, true) }, "left as it is: /etc/machine-config-daemon/node-annotations.json: operation not permitted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			tt.edit(n)
			defer n.immutable(annotations, false)
			before := n.snapshot()
			rec := n.firstboot("assert")
			got := n.snapshot()
			want := n.acted(before, got, "assert")
			if f, ok := before[annotations]; ok {
				want[annotations] = f
			} else {
				delete(want, annotations)
			}
			n.sameAs("act", got, want)
			if rec.Act.State != record.ActDone || slices.Contains(rec.Act.Changed, "/"+annotations) {
				t.Errorf("act %+v", rec.Act)
			}
			if found := strings.Contains(strings.Join(rec.Verdict.Warnings, "\n"), tt.warn) && len(rec.Verdict.Warnings) > 0; found != (tt.warn != "") {
				t.Errorf("warnings %q, want %q", rec.Verdict.Warnings, tt.warn)
			}
			n.revert()
			n.same("revert", before)
		})
	}
}

// What the machine-config-daemon applies to the node.
func TestAnnotationValues(t *testing.T) {
	n := newNode(t)
	n.firstboot("assert")
	var got map[string]string
	check(t, json.Unmarshal(must[[]byte](t)(os.ReadFile(n.Path(annotations))), &got))
	if got["oneboot.dev/action"] != "skip" || got["oneboot.dev/proof"] != "manifest-digest" || got["machineconfiguration.openshift.io/state"] != "Done" || len(got) != 6 {
		t.Errorf("%v", got)
	}
}

// Revert refuses where it is too late or something else has changed a file, and
// does nothing then; with --force it undoes the rest.
func TestRevertRefuses(t *testing.T) {
	tests := []struct {
		name string
		mode string
		edit func(*node)
		why  string
		late bool
		left []string
	}{
		{"the node has joined", "assert", func(n *node) {
			check(n.t, n.WriteFile("etc/machine-config-daemon/currentconfig", "{}"))
		}, "the node has joined: /etc/machine-config-daemon/currentconfig exists", true, nil},
		{"the daemon has taken the annotations", "complete", func(n *node) {
			check(n.t, os.Rename(n.Path(annotations), n.Path("etc/machine-config-daemon/node-annotation.json.bak")))
		}, "node-annotation.json.bak exists", true, []string{"/" + annotations}},
		{"the daemon has finished the first boot", "assert", func(n *node) {
			check(n.t, os.Remove(n.Path(encapsulated)))
		}, "the machine-config-daemon has finished the first boot", true, nil},
		{"a file was changed", "complete", func(n *node) {
			check(n.t, n.WriteFile(firstRepo, "[z]\n"))
		}, "something else has changed since: /etc/yum.repos.d/a.repo", false, []string{"/" + firstRepo}},
		{"a file is gone", "complete", func(n *node) {
			check(n.t, os.Remove(n.Path(encapsulated+".bak")))
		}, "the machine-config-daemon has finished the first boot: /" + encapsulated + " is gone", true, []string{"/" + encapsulated}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			before := n.snapshot()
			n.firstboot(tt.mode)
			tt.edit(n)
			acted := n.snapshot()
			out := n.run(nil, "revert")
			if out.status != 1 || out.stdout != "" || !strings.Contains(out.stderr, tt.why) || strings.Contains(out.stderr, "/run/machine-config-daemon-force") != tt.late {
				t.Errorf("%+v, want %q", out, tt.why)
			}
			n.same("refused", acted)
			forced := n.revert("--force")
			got := n.snapshot()
			for name, f := range before {
				if slices.Contains(tt.left, "/"+name) || name == encapsulated && tt.mode == "assert" {
					if !cmp.Equal(got[name], acted[name]) || tt.left != nil && !strings.Contains(forced.stdout, "left    /"+name) {
						t.Errorf("%s was not left alone: %s", name, forced.stdout)
					}
				} else if !cmp.Equal(got[name], f) {
					t.Errorf("%s: %s", name, cmp.Diff(got[name], f))
				}
			}
			rec := n.record()
			if rec.Act.State != record.ActUndone || rec.Act.Forced != tt.late {
				t.Errorf("act %+v", rec.Act)
			}
		})
	}
}

// A root of the running kernel whose deployment was not confirmed is not acted
// upon.
func TestUnconfirmed(t *testing.T) {
	n := newNode(t)
	id := must[[]byte](t)(os.ReadFile("/proc/sys/kernel/random/boot_id"))
	check(t, n.WriteFile("proc/sys/kernel/random/boot_id", string(id)))
	before := n.snapshot()
	rec := n.firstboot("assert")
	if rec.Act.State != record.ActNone || !strings.Contains(rec.Act.Reason, "by device and inode") {
		t.Errorf("act %+v", rec.Act)
	}
	n.same("after", before)
	check(t, n.WriteFile("proc/sys/kernel/random/boot_id", "another\n"))
	if rec := n.firstboot("assert"); rec.Act.State != record.ActDone {
		t.Errorf("act %+v", rec.Act)
	}
}

// Links, absolute ones and those upwards, lead nowhere out of the root.
func TestContained(t *testing.T) {
	n := newNode(t)
	outside := filepath.Join(filepath.Dir(n.Dir), "outside")
	for _, link := range []struct{ name, to string }{
		{"etc/yum.repos.d", outside + "/yum.repos.d"},
		{"etc/kubernetes", strings.Repeat("../", 16) + strings.TrimPrefix(outside, "/") + "/kubernetes"},
		{"etc/machine-config-daemon", outside + "/machine-config-daemon"},
	} {
		base := filepath.Base(link.name)
		inside := n.Path(outside + "/" + base)
		check(t, os.MkdirAll(filepath.Dir(inside), 0o755))
		check(t, os.Rename(n.Path(link.name), inside))
		check(t, os.CopyFS(filepath.Join(outside, base), os.DirFS(inside)))
		check(t, os.Symlink(link.to, n.Path(link.name)))
	}
	look := func(dir string) map[string]file {
		out := map[string]file{}
		check(t, filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
			out[strings.TrimPrefix(p, dir)] = n.look(p)
			return err
		}))
		return out
	}
	before, insideBefore := look(outside), look(n.Path(outside))
	rec := n.firstboot("complete")
	if rec.Act.State != record.ActDone || len(rec.Act.Changed) != 6 {
		t.Errorf("act %+v", rec.Act)
	}
	n.sameAs("outside", look(outside), before)
	if cmp.Equal(look(n.Path(outside)), insideBefore) {
		t.Error("nothing was changed inside")
	}
	n.revert()
	n.sameAs("inside", look(n.Path(outside)), insideBefore)
	n.sameAs("outside", look(outside), before)
}
