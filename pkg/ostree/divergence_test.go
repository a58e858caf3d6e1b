package ostree_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/ostree/ostreetest"
	"github.com/oneboot/oneboot/pkg/verdict"
)

func TestDivergences(t *testing.T) {
	state := func(s *system, name string) string {
		d, err := s.open().Default()
		if err != nil {
			s.t.Fatal(err)
		}
		return filepath.Join(s.top, "run/ostree/deployment-state", fmt.Sprintf("%s.%d", d.Checksum, d.Serial), name)
	}
	origin := func(lines string) func(*testing.T, *system) {
		return func(t *testing.T, s *system) {
			file := s.deploymentFile(".origin")
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			replaceFile(t, file, append(b, lines...))
		}
	}
	tests := []struct {
		name   string
		change func(t *testing.T, s *system)
		want   []verdict.DivergenceKind
	}{
		{"none", func(*testing.T, *system) {}, nil},
		{"pinned", origin("[libostree-transient]\npinned=true\n"), nil},
		{"unlocked development", func(t *testing.T, s *system) { write(t, state(s, "unlocked-development"), "") }, []verdict.DivergenceKind{verdict.Unlocked}},
		{"unlocked transient", func(t *testing.T, s *system) { write(t, state(s, "unlocked-transient"), "") }, []verdict.DivergenceKind{verdict.Unlocked}},
		{"unlocked by a dangling link", func(t *testing.T, s *system) { symlink(t, "none", state(s, "unlocked-development")) }, []verdict.DivergenceKind{verdict.Unlocked}},
		{"unlocked hotfix", origin("[origin]\nunlocked=hotfix\n"), []verdict.DivergenceKind{verdict.Unlocked}},
		{"live-applied", func(t *testing.T, s *system) { write(t, state(s, "rpmostree-is-live.stamp"), "") }, []verdict.DivergenceKind{verdict.LiveApplied}},
		{"unknown state", func(t *testing.T, s *system) { write(t, state(s, "future"), "") }, []verdict.DivergenceKind{verdict.LocalAssembly}},
		{"state of another deployment", func(t *testing.T, s *system) {
			write(t, filepath.Join(s.top, "run/ostree/deployment-state", strings.Repeat("a", 64)+".0/unlocked-development"), "")
		}, nil},
		{"staged", func(t *testing.T, s *system) {
			d, err := s.open().Default()
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(s.top, "run/ostree/staged-deployment"), string(ostreetest.EncodeDict([]ostreetest.Entry{{Key: "target", Value: []ostreetest.Entry{
				{Key: "name", Value: fmt.Sprintf("%s.%d", d.Checksum, d.Serial)}, {Key: "osname", Value: stateroot}, {Key: "bootcsum", Value: "b"},
			}}})))
		}, []verdict.DivergenceKind{verdict.Staged}},
		{"staged in a form unknown", func(t *testing.T, s *system) { write(t, filepath.Join(s.top, "run/ostree/staged-deployment"), "x") }, []verdict.DivergenceKind{verdict.Staged}},
		{"staged through a dangling link", func(t *testing.T, s *system) {
			symlink(t, "none", filepath.Join(s.top, "run/ostree/staged-deployment"))
		}, []verdict.DivergenceKind{verdict.Staged}},
		{"soft reboot prepared", func(t *testing.T, s *system) { write(t, filepath.Join(s.top, "run/ostree/nextroot-booted"), "") }, []verdict.DivergenceKind{verdict.SoftRebootPending}},
		{"next root mounted", func(t *testing.T, s *system) { mkdir(t, filepath.Join(s.top, "run/nextroot/usr")) }, []verdict.DivergenceKind{verdict.SoftRebootPending}},
		{"next root empty", func(t *testing.T, s *system) { mkdir(t, filepath.Join(s.top, "run/nextroot")) }, nil},
		{"override remove", origin("[overrides]\nremove=docker;\n"), nil},
		{"override replace", origin("[overrides]\nreplace=repo=x,kernel;\n"), []verdict.DivergenceKind{verdict.PackageOverride}},
		{"override replace-local", origin("[overrides]\nreplace-local=1:a;\n"), []verdict.DivergenceKind{verdict.PackageOverride}},
		{"initramfs regenerated", origin("[rpmostree]\nregenerate-initramfs=true\n"), []verdict.DivergenceKind{verdict.InitramfsRegenerated}},
		{"initramfs-etc", origin("[rpmostree]\ninitramfs-etc=/etc/x;\n"), []verdict.DivergenceKind{verdict.InitramfsRegenerated}},
		{"overlay initrd", func(t *testing.T, s *system) {
			entries, err := filepath.Glob(filepath.Join(s.dir, "boot/loader/entries/*.conf"))
			if err != nil || len(entries) != 1 {
				t.Fatal(entries, err)
			}
			b, err := os.ReadFile(entries[0])
			if err != nil {
				t.Fatal(err)
			}
			write(t, entries[0], string(b)+"initrd /ostree/initramfs-overlays/x.img\n")
		}, []verdict.DivergenceKind{verdict.InitramfsRegenerated}},
		{"cliwrap", origin("[rpmostree]\nex-cliwrap=true\n"), []verdict.DivergenceKind{verdict.LocalAssembly}},
		{"modules", origin("[modules]\nenable=a;\n"), []verdict.DivergenceKind{verdict.LocalAssembly}},
		{"override-commit", origin("[origin]\noverride-commit=a\n"), []verdict.DivergenceKind{verdict.LocalAssembly}},
		{"unconfigured", origin("[origin]\nunconfigured-state=register\n"), []verdict.DivergenceKind{verdict.LocalAssembly}},
		{"unknown key", origin("[future]\nx=y\n"), []verdict.DivergenceKind{verdict.LocalAssembly}},
		{"two identities", origin("[origin]\ncontainer-image-reference=ostree-unverified-registry:quay.io/x\n"), []verdict.DivergenceKind{verdict.OriginConflict}},
		{"no identity", func(t *testing.T, s *system) { replaceFile(t, s.deploymentFile(".origin"), nil) }, []verdict.DivergenceKind{verdict.OriginConflict}},
		{"partial", func(t *testing.T, s *system) {
			d, err := s.open().Default()
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(s.dir, "ostree/repo/state", string(d.Checksum)+".commitpartial"), "")
		}, []verdict.DivergenceKind{verdict.CommitPartial}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			s.deployTest()
			tt.change(t, s)
			d := known(t, "deployment", s.facts().Booted.Deployment)
			var got []verdict.DivergenceKind
			for _, v := range d.Divergences {
				got = append(got, v.Kind)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%+v", diff, d.Divergences)
			}
		})
	}
}

func TestNotDefault(t *testing.T) {
	s := newSystem(t)
	s.deployTest()
	s.deploy(testRef, "--os="+stateroot)
	sys := s.open()
	list, err := sys.Deployments()
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	b, err := sys.Booted(list[1].Entry.Options)
	if err != nil {
		t.Fatal(err)
	}
	d := known(t, "deployment", sys.Facts(b).Booted.Deployment)
	if len(d.Divergences) != 1 || d.Divergences[0].Kind != verdict.NotDefault || !strings.Contains(d.Divergences[0].Detail, list[0].Name()) {
		t.Errorf("got %+v", d.Divergences)
	}
	b.SoftRebooted = "x"
	d = known(t, "deployment", sys.Facts(b).Booted.Deployment)
	if len(d.Divergences) != 2 || d.Divergences[1].Kind != verdict.SoftRebooted {
		t.Errorf("got %+v", d.Divergences)
	}
}
