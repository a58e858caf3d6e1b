package ostree_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/ostree"
	"github.com/oneboot/oneboot/pkg/ostree/ostreetest"
)

// The order and the names are those of `ostree admin status`.
func TestDeploymentsAgainstOSTree(t *testing.T) {
	s := newSystem(t)
	s.run("ostree", "admin", "os-init", "--sysroot="+s.dir, "other")
	s.commit(newTree(t), testRef, "--add-metadata-string=version=1")
	s.deploy(testRef, "--os="+stateroot, "--karg=root=LABEL=root")
	bootVersion := func() string {
		t.Helper()
		l, err := os.Readlink(filepath.Join(s.dir, "boot/loader"))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	seen := map[string]bool{bootVersion(): true}
	steps := []func(){
		func() { s.deploy(testRef, "--os="+stateroot, "--karg=again=1") },
		func() { s.deploy(testRef, "--os=other", "--karg=other=1") },
		func() {
			tree := newTree(t)
			write(t, filepath.Join(tree, "usr/lib/modules", kernel, "vmlinuz"), "another kernel")
			s.commit(tree, testRef, "--add-metadata-string=version=2")
			s.deploy(testRef, "--os="+stateroot, "--retain")
		},
		func() { s.deploy(testRef, "--os="+stateroot, "--not-as-default", "--retain") },
	}
	for i, step := range steps {
		step()
		seen[bootVersion()] = true
		status := s.run("ostree", "admin", "status", "--sysroot="+s.dir)
		var want []string
		for _, m := range regexp.MustCompile(`(?m)^[* ]*(\S+ [0-9a-f]{64}\.[0-9]+)`).FindAllStringSubmatch(status, -1) {
			want = append(want, m[1])
		}
		for _, dir := range []string{s.top, s.dir} { // as booted, and as a disk
			sys := openAt(t, dir)
			list, err := sys.Deployments()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range list {
				got = append(got, d.Name())
				o, err := sys.Origin(d)
				if err != nil || o.Refspec != testRef {
					t.Errorf("%s: origin %+v, %v", d.Name(), o, err)
				}
				if len(d.Entry.Initrds) != 1 || !strings.Contains(d.Entry.Linux, d.BootCsum) || !strings.Contains(d.Entry.Initrds[0], d.BootCsum) {
					t.Errorf("%s: boot entry %+v", d.Name(), d.Entry)
				}
				if _, err := os.Stat(filepath.Join(dir, d.Dir, "usr/bin/kubelet")); err != nil {
					t.Error(err)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("step %d (-ostree +we):\n%s", i, diff)
			}
			def, err := sys.Default()
			if err != nil || def.Name() != want[0] {
				t.Errorf("default: got %v, %v; want %s", def, err, want[0])
			}
			if dir == s.dir {
				continue
			}
			// Every one of them is found as the booted one.
			for _, d := range list {
				b, err := sys.Booted("ro " + d.Entry.Options)
				if err != nil || b.Name() != d.Name() || b.SoftRebooted != "" || b.Confirmed || b.Entry == nil || b.Entry.Options != d.Entry.Options {
					t.Errorf("booted: got %+v, %v; want %s", b, err, d.Name())
				}
			}
		}
	}
	if len(seen) != 2 {
		t.Errorf("only %v seen, want both boot versions", seen)
	}
}

func TestBootedErrors(t *testing.T) {
	s := newSystem(t)
	s.deployTest()
	options := s.options()
	link := regexp.MustCompile(`ostree=\S+`).FindString(options)
	tests := []struct{ name, cmdline, want string }{
		{"empty", "", "no ostree= argument"},
		{"live ISO", "coreos.liveiso=rhcos ignition.firstboot", "no ostree= argument"},
		{"android", "androidboot.slot_suffix=_a " + options, "Android"},
		{"other form", "ostree=/ostree/root.a", "want ostree="},
		{"climbing", "ostree=/ostree/boot.0/../../0", "want ostree="},
		{"dangling", strings.Replace(options, "/0", "/7", 1), "no such file"},
		{"other stateroot", strings.Replace(options, "/rhcos/", "/none/", 1), "no such file"},
		{"the first counts", "ostree=/nonsense " + link, "want ostree="},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := s.open().Booted(tt.cmdline)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %+v, %v; want an error with %q", b, err, tt.want)
			}
		})
	}
	remove(t, filepath.Join(s.top, "run/ostree-booted"))
	if b, err := s.open().Booted(options); err == nil || !strings.Contains(err.Error(), "/run/ostree-booted") {
		t.Errorf("without /run/ostree-booted: got %+v, %v", b, err)
	}
	write(t, filepath.Join(s.top, "run/ostree-booted"), "garbage")
	if b, err := s.open().Booted(options); err == nil || !strings.Contains(err.Error(), "/run/ostree-booted") {
		t.Errorf("with a malformed /run/ostree-booted: got %+v, %v", b, err)
	}
}

// The device and inode that were recorded at boot tell the running deployment
// where the command line no longer does.
func TestBootedByInode(t *testing.T) {
	s := newSystem(t)
	s.deployTest()
	first := s.options()
	tree := newTree(t)
	write(t, filepath.Join(tree, "usr/lib/modules", kernel, "vmlinuz"), "another kernel")
	s.commit(tree, testRef)
	s.deploy(testRef, "--os="+stateroot)
	sys := s.open()
	list, err := sys.Deployments()
	if err != nil || len(list) != 2 {
		t.Fatalf("got %v, %v", list, err)
	}
	record := func(d *ostree.Deployment) {
		t.Helper()
		dev, ino := uint64(1), uint64(1)
		if d != nil {
			root, err := hostfs.Open(s.top)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if dev, ino, err = root.DeviceInode(d.Dir); err != nil {
				t.Fatal(err)
			}
		}
		write(t, filepath.Join(s.top, "run/ostree-booted"), string(ostreetest.EncodeDict([]ostreetest.Entry{
			{Key: "composefs", Value: true}, {Key: "backing-root-device-inode", Value: [2]uint64{dev, ino}},
		})))
	}
	tests := []struct {
		name        string
		running     *ostree.Deployment
		cmdline     string
		want        *ostree.Deployment
		softReboot  bool
		unconfirmed bool
	}{
		{"as booted", list[0], list[0].Entry.Options, list[0], false, false},
		{"soft-rebooted", list[1], list[0].Entry.Options, list[1], true, false},
		// Which of the two the kernel booted cannot be told any more.
		{"gone link, same kernel", list[1], first, list[1], true, false},
		{"gone link, other kernel", list[0], first, list[0], true, false},
		{"a copy of another system's files", nil, list[0].Entry.Options, list[0], false, true},
		{"a copy and a gone link", nil, first, nil, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			record(tt.running)
			b, err := s.open().Booted(tt.cmdline)
			if tt.want == nil {
				if err == nil {
					t.Errorf("got %s, want an error", b.Name())
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if b.Name() != tt.want.Name() || (b.SoftRebooted != "") != tt.softReboot || b.Confirmed == tt.unconfirmed || b.Entry == nil {
				t.Errorf("got %s, soft-rebooted %q, confirmed %v", b.Name(), b.SoftRebooted, b.Confirmed)
			}
		})
	}
	write(t, filepath.Join(s.top, "run/ostree-booted"), string(ostreetest.EncodeDict([]ostreetest.Entry{{Key: "backing-root-device-inode", Value: "x"}})))
	if b, err := s.open().Booted(list[0].Entry.Options); err == nil {
		t.Errorf("a key of another type: got %s, want an error", b.Name())
	}
}

func TestStaged(t *testing.T) {
	s := newSystem(t)
	sum := s.deployTest()
	file := filepath.Join(s.top, "run/ostree/staged-deployment")
	if d, err := s.open().Staged(); d != nil || err != nil {
		t.Fatalf("none staged: got %v, %v", d, err)
	}
	target := func(name, osname string) string {
		return string(ostreetest.EncodeDict([]ostreetest.Entry{
			{Key: "target", Value: []ostreetest.Entry{{Key: "name", Value: name}, {Key: "osname", Value: osname}, {Key: "bootcsum", Value: "b"}}},
			{Key: "kargs", Value: []string{"a", "b=c"}},
		}))
	}
	write(t, file, target(sum+".0", stateroot))
	d, err := s.open().Staged()
	if err != nil || d.Name() != stateroot+" "+sum+".0" || !d.Staged || d.BootCsum != "b" {
		t.Errorf("got %+v, %v", d, err)
	}
	for name, content := range map[string]string{
		"no target": string(ostreetest.EncodeDict([]ostreetest.Entry{{Key: "x", Value: "y"}})), "empty": "", "garbage": "garbage",
		"bad name": target("x", stateroot), "climbing": target(sum+".0", ".."), "not there": target(sum+".9", stateroot),
	} {
		write(t, file, content)
		if d, err := s.open().Staged(); err == nil || !strings.Contains(err.Error(), "/run/ostree/staged-deployment") {
			t.Errorf("%s: got %v, %v; want an error that names the file", name, d, err)
		}
	}
}

func TestOpenSysroot(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, dir string)
		want error // nil for any
	}{
		{"empty", func(*testing.T, string) {}, ostree.ErrNotOSTree},
		{"dangling link", func(t *testing.T, dir string) { symlink(t, "sysroot/ostree", filepath.Join(dir, "ostree")) }, hostfs.ErrDangling},
		{"looping link", func(t *testing.T, dir string) { symlink(t, "ostree", filepath.Join(dir, "ostree")) }, nil},
		{"two repositories", func(t *testing.T, dir string) {
			for _, d := range []string{"ostree", "sysroot/ostree"} {
				write(t, filepath.Join(dir, d, "repo/config"), "[core]\nrepo_version=1\nmode=bare\n")
			}
		}, nil},
		{"boot/loader is a folder", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "ostree/repo/config"), "[core]\nrepo_version=1\nmode=bare\n")
			mkdir(t, filepath.Join(dir, "boot/loader"))
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			tt.make(t, dir)
			root, err := hostfs.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			s, err := ostree.OpenSysroot(root)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("got %v, %v; want %v", s, err, tt.want)
			}
		})
	}
}

// What is wrong with the boot entries makes the order unknown, not shorter.
func TestBrokenBootEntries(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, s *system, entry string)
	}{
		{"no ostree=", func(t *testing.T, _ *system, entry string) { write(t, entry, "version 1\noptions root=x\n") }},
		{"two options lines", func(t *testing.T, _ *system, entry string) {
			b, err := os.ReadFile(entry)
			if err != nil {
				t.Fatal(err)
			}
			write(t, entry, string(b)+"options more\n")
		}},
		{"same version twice", func(t *testing.T, _ *system, entry string) {
			b, err := os.ReadFile(entry)
			if err != nil {
				t.Fatal(err)
			}
			write(t, strings.Replace(entry, "ostree-", "ostree-9-", 1), string(b))
		}},
		{"loader leads elsewhere", func(t *testing.T, s *system, _ string) {
			remove(t, filepath.Join(s.dir, "boot/loader"))
			symlink(t, "loader.7", filepath.Join(s.dir, "boot/loader"))
		}},
		{"boot link is gone", func(t *testing.T, s *system, _ string) {
			for i := range 2 {
				_ = os.Remove(filepath.Join(s.dir, fmt.Sprintf("ostree/boot.%d", i)))
			}
		}},
		{"too large", func(t *testing.T, _ *system, entry string) { write(t, entry, strings.Repeat("x", 1<<20)) }},
		{"too many", func(t *testing.T, _ *system, entry string) {
			for i := range 300 {
				write(t, fmt.Sprintf("%s.%d", entry, i), "")
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			s.deployTest()
			entries, err := filepath.Glob(filepath.Join(s.dir, "boot/loader/entries/*.conf"))
			if err != nil || len(entries) != 1 {
				t.Fatalf("got %v, %v", entries, err)
			}
			tt.spoil(t, s, entries[0])
			if list, err := s.open().Deployments(); err == nil {
				t.Errorf("got %d deployments, want an error", len(list))
			}
		})
	}
}

func TestNoBootEntries(t *testing.T) {
	s := newSystem(t)
	if list, err := s.open().Deployments(); err != nil || len(list) != 0 {
		t.Errorf("got %v, %v", list, err)
	}
	if d, err := s.open().Default(); err == nil {
		t.Errorf("got %v, want an error", d)
	}
}

func TestOriginErrors(t *testing.T) {
	s := newSystem(t)
	s.deployTest()
	file := s.deploymentFile(".origin")
	sys, b := s.booted()
	replaceFile(t, file, []byte("nonsense"))
	if _, err := sys.Origin(b.Deployment); err == nil || !strings.Contains(err.Error(), ".origin") {
		t.Errorf("got %v, want an error that names the file", err)
	}
	remove(t, file)
	if _, err := sys.Origin(b.Deployment); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want not-exist", err)
	}
}
