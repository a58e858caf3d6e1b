package hostfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/hostfs"
)

func newRoot(t *testing.T) (*hostfs.Root, string) {
	t.Helper()
	outer := t.TempDir()
	if err := os.WriteFile(filepath.Join(outer, "secret"), []byte("outside"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(outer, "root")
	if err := os.MkdirAll(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := hostfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, dir
}

// Links lead inside the root, whatever they say.
func TestLinksStayInside(t *testing.T) {
	r, dir := newRoot(t)
	secret := filepath.Join(filepath.Dir(dir), "secret")
	if err := os.WriteFile(filepath.Join(dir, "etc/inside"), []byte("inside"), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, target, want string }{
		{"absolute", "/etc/inside", "inside"},
		{"climbing", "../../../../../../etc/inside", "inside"},
		{"absolute-outside", secret, ""},
		{"climbing-outside", "../../secret", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			link := filepath.Join(dir, "etc", tt.name)
			if err := os.Symlink(tt.target, link); err != nil {
				t.Fatal(err)
			}
			got, err := r.ReadFile("/etc/"+tt.name, 100)
			if tt.want == "" {
				if !errors.Is(err, hostfs.ErrDangling) {
					t.Fatalf("read %q, %v; want a dangling link", got, err)
				}
				return
			}
			if err != nil || string(got) != tt.want {
				t.Fatalf("got %q, %v; want %q", got, err, tt.want)
			}
			if l, err := r.Readlink("/etc/" + tt.name); err != nil || l != tt.target {
				t.Errorf("Readlink: got %q, %v; want %q", l, err, tt.target)
			}
		})
	}
	if _, err := r.ReadFile("../secret", 100); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reading ../secret: got %v, want not-exist", err)
	}
}

// What a dangling link stands for is not known to be absent, whether the link
// is the file, a folder above or one that another link leads to.
func TestDangling(t *testing.T) {
	r, dir := newRoot(t)
	for link, target := range map[string]string{
		"file": "nothing", "folder": "/no/folder", "chain": "etc/second", "etc/second": "../file", "good": "etc",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name string
		want error
	}{
		{"file", hostfs.ErrDangling},
		{"/etc/../file", hostfs.ErrDangling},
		{"folder/deep/below", hostfs.ErrDangling},
		{"chain", hostfs.ErrDangling},
		{"chain/below", hostfs.ErrDangling},
		{"good/second", hostfs.ErrDangling},
		{"good/none", fs.ErrNotExist},
		{"none/at/all", fs.ErrNotExist},
		{"good", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found, err := r.Exists(tt.name)
			want := tt.want
			if errors.Is(want, fs.ErrNotExist) {
				want = nil
			}
			if !errors.Is(err, want) || found != (tt.want == nil) {
				t.Errorf("Exists: got %v, %v; want %v", found, err, want)
			}
			if _, err := r.Stat(tt.name); !errors.Is(err, tt.want) {
				t.Errorf("Stat: got %v, want %v", err, tt.want)
			}
			if tt.want == nil {
				return
			}
			_, err = r.ReadFile(tt.name, 10)
			if !errors.Is(err, tt.want) || strings.Contains(err.Error(), dir) {
				t.Errorf("ReadFile: got %v, want %v", err, tt.want)
			}
			if errors.Is(err, hostfs.ErrDangling) && errors.Is(err, fs.ErrNotExist) {
				t.Error("dangling matches not-exist")
			}
			if _, err := r.ReadDir(tt.name, 10); !errors.Is(err, tt.want) {
				t.Errorf("ReadDir: got %v, want %v", err, tt.want)
			}
		})
	}
}

// A read ends, whatever stands at the path.
func TestOddFiles(t *testing.T) {
	r, dir := newRoot(t)
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "big"), []byte(strings.Repeat("x", 101)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("loop", filepath.Join(dir, "loop")); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for name, want := range map[string]error{
			"fifo": hostfs.ErrNotRegular, "etc": hostfs.ErrNotRegular, "big": hostfs.ErrTooLarge,
			"none": fs.ErrNotExist, "loop": unix.ELOOP,
		} {
			if _, err := r.ReadFile(name, 100); !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", name, err, want)
			} else if strings.Contains(err.Error(), dir) {
				t.Errorf("%s: error names the root: %v", name, err)
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("a read hangs")
	}
	if _, err := r.ReadDir("/", 2); !errors.Is(err, hostfs.ErrTooLarge) {
		t.Errorf("ReadDir over its limit: got %v", err)
	}
	if got, err := r.ReadDir("/", 100); err != nil || len(got) != 4 || got[0].Name() != "big" {
		t.Errorf("ReadDir: got %v, %v", got, err)
	}
	if ok, err := r.Exists("none"); ok || err != nil {
		t.Errorf("Exists(none): got %v, %v", ok, err)
	}
	if ok, err := r.Exists("loop"); ok || err == nil {
		t.Errorf("Exists(loop): got %v, %v; want an error", ok, err)
	}
}

func TestLive(t *testing.T) {
	r, _ := newRoot(t)
	if r.Live() {
		t.Error("a test directory is not the live root")
	}
	host, err := hostfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	var a, b unix.Stat_t
	if unix.Stat("/proc/1/root", &a) == nil && unix.Stat("/", &b) == nil && a.Ino == b.Ino && a.Dev == b.Dev && !host.Live() {
		t.Error("/ is the live root")
	}
}
