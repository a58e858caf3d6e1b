package daemon

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/machineconfig"
)

func testJournal() journal {
	return journal{APIVersion: journalVersion, Kind: journalKind, State: actIntended, Mode: ModeComplete, Changes: []change{
		{Kind: changeContent, Path: "/ostree/deploy/o/deploy/c.0.origin", Old: fileState{Content: []byte("x\x00"), Mode: 0o4755, UID: 1, GID: 2, ModTime: -1,
			XAttrs: map[string][]byte{"security.selinux": []byte("a\x00")}}, New: []byte("y"), Touch: "/ostree/deploy"},
		{Kind: changeContent, Path: reposDir + "/a.repo"}, {Kind: changeContent, Path: machineconfig.NodeAnnotationsPath},
		{Kind: changeMode, Path: machineconfig.BootstrapKubeconfigPath, NewMode: 0o600},
		{Kind: changeName, Path: machineconfig.EncapsulatedPath, To: machineconfig.EncapsulatedBakPath},
	}}
}

func TestJournalRoundTrip(t *testing.T) {
	want := testJournal()
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseJournal(raw)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(*got, want); d != "" {
		t.Error(d)
	}
}

// A journal that is not read to the letter is not acted upon.
func TestJournalRefuses(t *testing.T) {
	const head = `{"apiVersion":"oneboot.dev/v1","kind":"FirstbootAct",`
	tests := []struct{ name, in, want string }{
		{"empty", "", "EOF"},
		{"half", head, "unexpected EOF"},
		{"another kind", `{"apiVersion":"oneboot.dev/v1","kind":"FirstbootRecord"}`, "not a journal"},
		{"a newer one", head + `"state":"done","future":1}`, "future"},
		{"trailing", head + `"state":"done"}{}`, "follows"},
		{"a state", head + `"state":"maybe"}`, `"maybe" is not known`},
		{"a kind of change", head + `"state":"done","changes":[{"kind":"owner","path":"/a"}]}`, `changes[0]: kind "owner"`},
		{"a relative path", head + `"state":"done","changes":[{"kind":"mode","path":"../a"}]}`, "absolute path"},
		{"a path upwards", head + `"state":"done","changes":[{"kind":"mode","path":"/a/../b"}]}`, "absolute path"},
		{"another file", head + `"state":"done","changes":[{"kind":"content","path":"/etc/shadow"}]}`, "no act changes its content"},
		{"a file below a deployment", head + `"state":"done","changes":[{"kind":"content","path":"/ostree/deploy/o/deploy/c.0/etc/a.origin"}]}`, "no act changes its content"},
		{"a hidden repository", head + `"state":"done","changes":[{"kind":"content","path":"/etc/yum.repos.d/.a.repo"}]}`, "no act changes its content"},
		{"the mode of another file", head + `"state":"done","changes":[{"kind":"mode","path":"/etc/shadow"}]}`, "no act changes its mode"},
		{"another folder's time", head + `"state":"done","changes":[{"kind":"content","path":"/ostree/deploy/o/deploy/c.0.origin","touch":"/etc"}]}`, "touch"},
		{"a name for a change of content", head + `"state":"done","changes":[{"kind":"content","path":"/etc/yum.repos.d/a.repo","to":"/etc/yum.repos.d/b.repo"}]}`, "b.repo"},
		{"a move", head + `"state":"done","changes":[{"kind":"name","path":"/etc/ignition-machine-config-encapsulated.json","to":"/etc/a"}]}`, "no act changes its name"},
		{"too many", head + `"state":"done","changes":[` + strings.Repeat(`{"kind":"mode","path":"/a"},`, maxChanges) + `{"kind":"mode","path":"/a"}]}`, "over the limit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseJournal([]byte(tt.in))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func FuzzParseJournal(f *testing.F) {
	raw, err := json.Marshal(testJournal())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, in []byte) {
		j, err := parseJournal(in)
		if err != nil {
			return
		}
		for _, c := range j.Changes {
			if strings.Contains(c.Path, "..") && c.check() == nil && strings.Contains(c.Path, "/../") {
				t.Errorf("path %q", c.Path)
			}
		}
		if _, err := json.Marshal(j); err != nil {
			return // a time that JSON cannot hold
		}
	})
}

// The machine-config-operator's unit does it with sed.
func TestDisableReposLikeSed(t *testing.T) {
	for _, in := range []string{
		"", "enabled=1", "[a]\nenabled=1\n\n[b]\nenabled=0\nenabled=1 enabled=1\n", "enabled = 1\r\nxenabled=10\r\n",
		"# enabled=1\n\xff\x00enabled=1\nenabled=1",
	} {
		sed := exec.Command("sed", "s/enabled=1/enabled=0/")
		sed.Stdin = strings.NewReader(in)
		sed.Env = []string{"LC_ALL=C"}
		want, err := sed.Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := disableRepos([]byte(in)); !bytes.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
