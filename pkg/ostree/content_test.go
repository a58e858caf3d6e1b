package ostree

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// contentRepo makes a repository of the mode with one commit of the tree.
func contentRepo(t *testing.T, mode, tree string) (*Repo, *format.Commit, string) {
	t.Helper()
	top := t.TempDir()
	ostree := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("ostree", append([]string{"--repo=" + filepath.Join(top, "repo")}, args...)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, stderr.String())
		}
		return strings.TrimSpace(string(out))
	}
	ostree("init", "--mode="+mode)
	sum := ostree("commit", "-b", "x", "--canonical-permissions", "--tree=dir="+tree)
	if mode != modeBareUserOnly {
		sum = ostree("commit", "-b", "x", "--tree=dir="+tree)
	}
	root, err := hostfs.Open(top)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	repo, err := OpenRepo(root, "/repo")
	if err != nil {
		t.Fatal(err)
	}
	c, err := repo.Commit(verdict.Checksum(sum))
	if err != nil {
		t.Fatal(err)
	}
	return repo, c, filepath.Join(top, "repo")
}

// contentTree has files with everything that a checksum covers.
func contentTree(t *testing.T) (dir string, files map[string]string) {
	t.Helper()
	dir = t.TempDir()
	files = map[string]string{"plain": "content", "empty": "", "large": strings.Repeat("0123456789", 1<<17), "owned": "o", "xattrs": "x", "long-xattr": "l"}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	owned := filepath.Join(dir, "owned")
	for _, err := range []error{
		os.Chown(owned, 1000, 70000), os.Chmod(owned, 0o751|os.ModeSetuid),
		unix.Setxattr(filepath.Join(dir, "xattrs"), "user.b", []byte("\x00binary\xff"), 0),
		unix.Setxattr(filepath.Join(dir, "xattrs"), "user.a", []byte("first"), 0),
		unix.Setxattr(filepath.Join(dir, "long-xattr"), "user.long", bytes.Repeat([]byte("v"), 300), 0),
		os.Symlink("plain", filepath.Join(dir, "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir, files
}

func TestContent(t *testing.T) {
	tree, files := contentTree(t)
	for _, mode := range []string{modeBare, modeBareUser, modeBareUserOnly, modeArchive} {
		t.Run(mode, func(t *testing.T) {
			repo, commit, _ := contentRepo(t, mode, tree)
			for name, want := range files {
				e, err := repo.Lookup(commit.Root, name)
				if err != nil {
					t.Fatal(err)
				}
				c, err := repo.content(e.File, int64(len(want)))
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				got, err := io.ReadAll(io.NewSectionReader(c, 0, c.size))
				if err != nil || string(got) != want {
					t.Errorf("%s: got %d bytes, %v; want %d", name, len(got), err, len(want))
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				if want == "" {
					continue
				}
				if _, err := repo.content(e.File, int64(len(want))-1); err == nil || !strings.Contains(err.Error(), "over the limit") {
					t.Errorf("%s: got %v; want it over the limit", name, err)
				}
			}
			e, err := repo.Lookup(commit.Root, "link")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := repo.content(e.File, 1<<20); err == nil {
				t.Error("a link has content")
			}
		})
	}
}

// Whatever an object's checksum covers is noticed.
func TestContentCorrupt(t *testing.T) {
	tree, _ := contentTree(t)
	tests := []struct {
		name, mode, file string
		spoil            func(object string) error
		why              string
	}{
		{"content", modeBare, "plain", func(o string) error { return os.WriteFile(o, []byte("contenx"), 0) }, "corrupt"},
		{"truncated", modeBare, "large", func(o string) error { return os.Truncate(o, 1000) }, "corrupt"},
		{"mode", modeBare, "plain", func(o string) error { return os.Chmod(o, 0o755) }, "corrupt"},
		{"owner", modeBare, "plain", func(o string) error { return os.Chown(o, 1, 0) }, "corrupt"},
		{"attribute more", modeBare, "plain", func(o string) error { return unix.Setxattr(o, "user.x", []byte("y"), 0) }, "corrupt"},
		{"attribute less", modeBare, "xattrs", func(o string) error { return unix.Removexattr(o, "user.a") }, "corrupt"},
		{"missing", modeBare, "plain", os.Remove, "no such file"},
		{"content of bare-user", modeBareUser, "plain", func(o string) error { return os.WriteFile(o, []byte("contenx"), 0) }, "corrupt"},
		{"no attribute of bare-user", modeBareUser, "plain", func(o string) error { return unix.Removexattr(o, userMeta) }, userMeta},
		{"bad attribute of bare-user", modeBareUser, "plain", func(o string) error { return unix.Setxattr(o, userMeta, []byte("x"), 0) }, userMeta},
		{"archive truncated", modeArchive, "large", func(o string) error { return os.Truncate(o, 200) }, "decompressing"},
		{"archive without a header", modeArchive, "plain", func(o string) error { return os.Truncate(o, 20) }, "header ends early"},
		{"archive of nothing", modeArchive, "plain", func(o string) error { return os.Truncate(o, 0) }, "header ends early"},
		{"archive of a large header", modeArchive, "plain", func(o string) error { return os.WriteFile(o, []byte("\xff\xff\xff\xff\x00\x00\x00\x00"), 0) }, "header of"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			repo, commit, dir := contentRepo(t, tt.mode, tree)
			e, err := repo.Lookup(commit.Root, tt.file)
			if err != nil {
				t.Fatal(err)
			}
			kind := format.FileObject
			if tt.mode == modeArchive {
				kind = format.FileZObject
			}
			if err := tt.spoil(filepath.Join(dir, format.ObjectPath(e.File, kind))); err != nil {
				t.Fatal(err)
			}
			if _, err := repo.content(e.File, 4<<20); err == nil || !strings.Contains(err.Error(), tt.why) {
				t.Errorf("got %v; want an error with %q", err, tt.why)
			}
		})
	}
	t.Run("another mode", func(t *testing.T) {
		repo, commit, _ := contentRepo(t, modeBare, tree)
		e, err := repo.Lookup(commit.Root, "plain")
		if err != nil {
			t.Fatal(err)
		}
		repo.config.Mode = modeBareSplitXattrs
		if _, err := repo.content(e.File, 100); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("mode %q", modeBareSplitXattrs)) {
			t.Errorf("got %v", err)
		}
	})
}
