package ostree_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/ostree"
	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// modes are all in which libostree can write a repository.
var modes = []string{"bare", "bare-user", "bare-user-only", "bare-split-xattrs", "archive"}

func newRepo(t testing.TB, mode string) (run func(args ...string) string, open func() *ostree.Repo) {
	t.Helper()
	// libostree writes that mode for tests only.
	t.Setenv("OSTREE_EXP_WRITE_BARE_SPLIT_XATTRS", "1")
	s := &system{t: t, top: t.TempDir()}
	s.dir = s.top
	mkdir(t, filepath.Join(s.dir, "ostree"))
	s.repo("init", "--mode="+mode)
	return s.repo, func() *ostree.Repo {
		t.Helper()
		root, err := hostfs.Open(s.top)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { root.Close() })
		r, err := ostree.OpenRepo(root, "/ostree/repo")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

// What we read of a commit is what ostree prints.
func TestCommitAgainstOSTree(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			run, open := newRepo(t, mode)
			tree := newTree(t)
			if mode == "bare-user-only" {
				// That mode refuses what it cannot keep.
				if err := os.Chmod(tree, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			first := run("commit", "-b", "base", "--tree=dir="+tree, "-s", "one", "--timestamp=@1700000000", "--canonical-permissions")
			second := run("commit", "-b", "base", "--tree=dir="+tree, "-s", "two", "-m", "a body\nof lines", "--canonical-permissions",
				"--add-metadata-string=version=1.2.3", "--add-metadata-string=long="+strings.Repeat("é", 40_000),
				"--add-metadata=flag=true", "--add-metadata=list=['a', 'b']", "--add-metadata=bytes=[byte 0x01, 0x02]",
				"--add-metadata=odd=(uint16 7, {'k': <[1.5]>}, @ms nothing, [@a{sv} {}])",
				"--add-metadata=rpmostree.rpmdb.pkglist=[('bash','0','5.1.8','9.el9','x86_64'),('grub2-tools','1','2.06','1','x86_64')]")
			repo := open()
			c, err := repo.Commit(verdict.Checksum(second))
			if err != nil {
				t.Fatal(err)
			}
			if string(c.Parent) != first || c.Subject != "two" || c.Body != "a body\nof lines" {
				t.Errorf("got parent %s, subject %q, body %q", c.Parent, c.Subject, c.Body)
			}
			if !strings.Contains(run("show", "base"), "ContentChecksum:  "+string(c.ContentChecksum())) {
				t.Errorf("content checksum %s is not what ostree shows:\n%s", c.ContentChecksum(), run("show", "base"))
			}
			for _, key := range []string{"version", "long"} {
				s, ok, err := c.Metadata.String(key)
				if err != nil || !ok || "'"+s+"'" != run("show", "--print-metadata-key="+key, "base") {
					t.Errorf("%s: got %.20q, %v, %v", key, s, ok, err)
				}
			}
			if v, ok, err := c.Metadata.Bool("flag"); !v || !ok || err != nil {
				t.Errorf("flag: got %v, %v, %v", v, ok, err)
			}
			if l, _, err := c.Metadata.Strings("list"); !cmp.Equal(l, []string{"a", "b"}) || err != nil {
				t.Errorf("list: got %q, %v", l, err)
			}
			if b, _, err := c.Metadata.Bytes("bytes"); !cmp.Equal(b, []byte{1, 2}) || err != nil {
				t.Errorf("bytes: got %v, %v", b, err)
			}
			pkgs, ok, err := c.Metadata.Packages("rpmostree.rpmdb.pkglist")
			want := []format.Package{
				{Name: "bash", Epoch: "0", Version: "5.1.8", Release: "9.el9", Arch: "x86_64"},
				{Name: "grub2-tools", Epoch: "1", Version: "2.06", Release: "1", Arch: "x86_64"},
			}
			if !ok || err != nil || !cmp.Equal(pkgs, want) {
				t.Errorf("packages: got %v, %v, %v", pkgs, ok, err)
			}
			old, err := repo.Commit(verdict.Checksum(first))
			if err != nil || old.Timestamp != 1700000000 || old.Root != c.Root || old.Parent != "" {
				t.Errorf("first commit: got %+v, %v", old, err)
			}
			compareTree(t, repo, c, run("ls", "-R", "-C", "base"))
		})
	}
}

// compareTree compares every line of `ostree ls -R -C` with Lookup.
func compareTree(t *testing.T, repo *ostree.Repo, c *format.Commit, listing string) {
	t.Helper()
	lines := strings.Split(listing, "\n")
	if len(lines) < 15 {
		t.Fatalf("only %d lines", len(lines))
	}
	for _, line := range lines {
		f := strings.Fields(line)
		var name string
		switch f[0][0] {
		case 'd':
			name = f[6]
			e, err := repo.Lookup(c.Root, name)
			if err != nil || string(e.Dir.DirTree) != f[4] || string(e.Dir.DirMeta) != f[5] {
				t.Errorf("%s: got %+v, %v; want %s %s", name, e, err, f[4], f[5])
			}
			if _, err := repo.ListDir(c.Root, name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case '-', 'l':
			name = f[5]
			e, err := repo.Lookup(c.Root, name)
			if err != nil || string(e.File) != f[4] || e.IsDir() {
				t.Errorf("%s: got %+v, %v; want %s", name, e, err, f[4])
			}
			r, err := repo.Resolve(c.Root, name)
			if errors.Is(err, ostree.ErrNotInTree) && name == "/ostree" {
				continue // the tree has no sysroot/ostree
			}
			if err != nil {
				t.Errorf("resolving %s: %v", name, err)
			} else if (f[0][0] == 'l') == (r == e) {
				t.Errorf("%s: link or not: got %+v", line, r)
			}
		default:
			t.Fatalf("what is %q?", line)
		}
	}
}

func TestResolve(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			if mode == "bare-split-xattrs" {
				// libostree's test-only writer loses links in this mode.
				return
			}
			run, open := newRepo(t, mode)
			tree := t.TempDir()
			write(t, filepath.Join(tree, "usr/libexec/real"), "real")
			for name, target := range map[string]string{
				"bin": "usr/bin", "usr/bin/relative": "../libexec/real", "usr/bin/absolute": "/usr/libexec/real",
				"usr/bin/chain": "relative", "usr/bin/loop": "loop", "usr/bin/out": "../../../../usr/libexec/real",
				"usr/bin/dangling": "nothing", "usr/bin/dir": "../libexec", "usr/bin/through": "dir/../libexec/./real",
			} {
				symlink(t, target, filepath.Join(tree, name))
			}
			sum := run("commit", "-b", "links", "--tree=dir="+tree, "--canonical-permissions")
			repo := open()
			c, err := repo.Commit(verdict.Checksum(sum))
			if err != nil {
				t.Fatal(err)
			}
			tests := []struct {
				name string
				want string // of the entry; "" for not in the tree, "!" for another error
			}{
				{"usr/bin/relative", "real"}, {"usr/bin/absolute", "real"}, {"usr/bin/chain", "real"}, {"bin/chain", "real"},
				{"usr/bin/out", "real"}, {"usr/bin/through", "real"}, {"usr/bin/dir/real", "real"}, {"usr/bin/dir", "libexec"}, {"/", "/"},
				{"usr/bin/dangling", ""}, {"usr/bin/loop", "!"}, {"usr/libexec/real/x", ""}, {"none/x", ""},
			}
			for _, tt := range tests {
				t.Run(tt.name, func(t *testing.T) {
					got, err := repo.Resolve(c.Root, tt.name)
					switch tt.want {
					case "", "!":
						if err == nil || errors.Is(err, ostree.ErrNotInTree) != (tt.want == "") {
							t.Errorf("got %+v, %v", got, err)
						}
					default:
						if err != nil || got.Name != tt.want {
							t.Errorf("got %+v, %v; want %s", got, err, tt.want)
						}
					}
				})
			}
		})
	}
}

func TestRefs(t *testing.T) {
	run, open := newRepo(t, "bare")
	tree := newTree(t)
	sum := verdict.Checksum(run("commit", "-b", "a/b/c", "--tree=dir="+tree))
	run("refs", "--create=a/d", "a/b/c")
	run("refs", "--create=ostree/container/blob/sha256_3A_"+strings.Repeat("0", 64), "a/d")
	run("refs", "--alias", "--create=alias", "a/b/c")
	run("refs", "--create=remote:x/y", "a/b/c")
	repo := open()
	for _, ref := range []string{"a/b/c", "a/d", "alias", "remote:x/y"} {
		got, err := repo.ResolveRef(ref)
		if err != nil || got != sum || string(got) != run("rev-parse", ref) {
			t.Errorf("%s: got %v, %v; want %s", ref, got, err, sum)
		}
	}
	for _, ref := range []string{"", "/a", "a/", "a//b", "../config", "a/../a/d", ":", "remote:", "re/mote:x", "..:x", "a/b"} {
		if got, err := repo.ResolveRef(ref); err == nil {
			t.Errorf("%q: got %s, want an error", ref, got)
		}
	}
	if _, err := repo.ResolveRef("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: got %v, want not-exist", err)
	}
	tests := []struct{ prefix, listed string }{{"", ""}, {"a", "a"}, {"a/b/c", "a/b/c"}, {"none", "none"}}
	for _, tt := range tests {
		t.Run("list "+tt.prefix, func(t *testing.T) {
			got, err := repo.ListRefs(tt.prefix)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]verdict.Checksum{}
			args := []string{"refs"}
			if tt.prefix == "" {
				// ostree lists remote refs too, we do not.
				want["alias"] = sum
			} else {
				args = append(args, "--list", tt.prefix)
			}
			for _, ref := range strings.Fields(run(args...)) {
				if !strings.Contains(ref, ":") {
					want[ref] = sum
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-ostree +we):\n%s", diff)
			}
		})
	}
	if _, err := repo.ListRefs("../x"); err == nil {
		t.Error("prefix ../x: want an error")
	}
}

func TestRepoConfig(t *testing.T) {
	tests := []struct {
		name, config string
		want         ostree.RepoConfig
		ok           bool
	}{
		{"two core groups", "[core]\nrepo_version=1\nmode=bare\n\n[sysroot]\nreadonly=true\n\n[core]\nmode=archive-z2\n", ostree.RepoConfig{Mode: "archive-z2"}, true},
		{"default mode", "[core]\nrepo_version=1\n", ostree.RepoConfig{Mode: "bare"}, true},
		{"parent", "[core]\nrepo_version=1\nmode=bare\nparent=/other\n", ostree.RepoConfig{Mode: "bare", Parent: "/other"}, true},
		{"version", "[core]\nrepo_version=2\nmode=bare\n", ostree.RepoConfig{}, false},
		{"garbage", "what\n", ostree.RepoConfig{}, false},
		{"empty", "", ostree.RepoConfig{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "repo/config"), tt.config)
			root, err := hostfs.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			r, err := ostree.OpenRepo(root, "repo")
			if (err == nil) != tt.ok {
				t.Fatalf("got %v", err)
			}
			if !tt.ok {
				if !strings.Contains(err.Error(), "repo/config") {
					t.Errorf("error does not name the file: %v", err)
				}
				return
			}
			if got := r.Config(); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if tt.want.Parent != "" {
				_, err := r.Commit(verdict.Checksum(strings.Repeat("a", 64)))
				if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), tt.want.Parent) {
					t.Errorf("got %v, want not-exist that names the parent", err)
				}
			}
		})
	}
}

// No bytes but the right ones are taken for an object.
func TestCorruptObjects(t *testing.T) {
	s := newSystem(t)
	sum := s.deployTest()
	repo := s.open().Repo()
	c, err := repo.Commit(verdict.Checksum(sum))
	if err != nil {
		t.Fatal(err)
	}
	file := s.object(sum, "commit")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte(nil), good...)
	flipped[len(flipped)/2] ^= 1
	for name, b := range map[string][]byte{"truncated": good[:len(good)-1], "empty": nil, "flipped": flipped, "longer": append(good[:len(good):len(good)], 0)} {
		t.Run(name, func(t *testing.T) {
			replaceFile(t, file, b)
			if _, err := repo.Commit(verdict.Checksum(sum)); err == nil || !strings.Contains(err.Error(), "corrupt") {
				t.Errorf("got %v, want an error", err)
			}
		})
	}
	replaceFile(t, file, good)
	tree := s.object(string(c.Root.DirTree), "dirtree")
	replaceFile(t, tree, []byte("x"))
	if _, err := repo.Lookup(c.Root, "usr/bin"); err == nil || errors.Is(err, ostree.ErrNotInTree) {
		t.Errorf("corrupt dirtree: got %v, want an error other than not-in-tree", err)
	}
	remove(t, tree)
	if _, err := repo.Lookup(c.Root, "usr/bin"); err == nil || errors.Is(err, ostree.ErrNotInTree) {
		t.Errorf("missing dirtree: got %v, want an error other than not-in-tree", err)
	}
	// The right content under the wrong name.
	other := strings.Repeat("ab", 32)
	write(t, s.object(other, "commit"), string(good))
	if _, err := repo.Commit(verdict.Checksum(other)); err == nil {
		t.Error("a commit under another name: want an error")
	}
	for _, bad := range []verdict.Checksum{"", "..", "../../../etc/passwd", verdict.Checksum(strings.ToUpper(sum))} {
		if _, err := repo.Commit(bad); !errors.Is(err, format.ErrMalformed) {
			t.Errorf("commit %q: got %v, want malformed", bad, err)
		}
	}
}

// replaceFile replaces a file that may be a hard link.
func replaceFile(t testing.TB, name string, b []byte) {
	t.Helper()
	remove(t, name)
	write(t, name, string(b))
}
