package ostree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// Storage modes, from libostree's ostree-repo.c.
const (
	modeBare            = "bare"
	modeBareUser        = "bare-user"
	modeBareUserOnly    = "bare-user-only"
	modeBareSplitXattrs = "bare-split-xattrs"
	modeArchive         = "archive"
	modeArchiveZ2       = "archive-z2"
)

// userMeta is the extended attribute that holds owner, mode and attributes of
// a file in a repository of mode bare-user.
const userMeta = "user.ostreemeta"

const (
	maxTreeDepth = 64
	maxLinks     = 16
	maxTarget    = unix.PathMax
)

// ErrNotInTree is wrapped by errors about a path that a commit does not have.
var ErrNotInTree = errors.New("not in the commit")

// An Entry is a file or directory of a commit.
type Entry struct {
	Name string
	// File is the content object of a file or symbolic link, empty for a
	// directory.
	File verdict.Checksum
	// Dir is the root of a directory, zero for a file.
	Dir verdict.Root
}

// IsDir reports whether the entry is a directory.
func (e Entry) IsDir() bool { return e.Dir.DirTree != "" }

// Lookup finds a path below a commit's root by reading the dirtree objects on
// the way, each compared with its checksum. Symbolic links are not followed.
// An error wraps [ErrNotInTree] where the commit surely has no such path.
func (r *Repo) Lookup(root verdict.Root, name string) (Entry, error) {
	e := Entry{Name: "/", Dir: root}
	parts := split(name)
	if len(parts) > maxTreeDepth {
		return Entry{}, fmt.Errorf("looking up %s: more than %d folders", name, maxTreeDepth)
	}
	for _, p := range parts {
		if !e.IsDir() {
			return Entry{}, fmt.Errorf("looking up %s: %w: %s is not a directory", name, ErrNotInTree, e.Name)
		}
		tree, err := r.dirTree(e.Dir.DirTree)
		if err != nil {
			return Entry{}, fmt.Errorf("looking up %s: %w", name, err)
		}
		next, ok := find(tree, p)
		if !ok {
			return Entry{}, fmt.Errorf("looking up %s: %w", name, ErrNotInTree)
		}
		e = next
	}
	return e, nil
}

func split(name string) []string {
	return strings.FieldsFunc(path.Clean("/"+name), func(c rune) bool { return c == '/' })
}

func (r *Repo) dirTree(c verdict.Checksum) (*format.DirTree, error) {
	b, err := r.object(c, format.DirTreeObject)
	if err != nil {
		return nil, err
	}
	t, err := format.ParseDirTree(b)
	if err != nil {
		return nil, fmt.Errorf("reading dirtree %s: %w", c, err)
	}
	return t, nil
}

func find(t *format.DirTree, name string) (Entry, bool) {
	if i := sort.Search(len(t.Dirs), func(i int) bool { return t.Dirs[i].Name >= name }); i < len(t.Dirs) && t.Dirs[i].Name == name {
		return Entry{Name: name, Dir: t.Dirs[i].Root}, true
	}
	if i := sort.Search(len(t.Files), func(i int) bool { return t.Files[i].Name >= name }); i < len(t.Files) && t.Files[i].Name == name {
		return Entry{Name: name, File: t.Files[i].Checksum}, true
	}
	return Entry{}, false
}

// ListDir lists a directory of a commit, sorted by name.
func (r *Repo) ListDir(root verdict.Root, name string) ([]Entry, error) {
	e, err := r.Lookup(root, name)
	if err != nil {
		return nil, err
	}
	if !e.IsDir() {
		return nil, fmt.Errorf("listing %s: %w: not a directory", name, ErrNotInTree)
	}
	tree, err := r.dirTree(e.Dir.DirTree)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", name, err)
	}
	out := make([]Entry, 0, len(tree.Dirs)+len(tree.Files))
	for _, d := range tree.Dirs {
		out = append(out, Entry{Name: d.Name, Dir: d.Root})
	}
	for _, f := range tree.Files {
		out = append(out, Entry{Name: f.Name, File: f.Checksum})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

// Resolve is Lookup with symbolic links followed, inside the commit only. It
// never returns a link. The links' targets are read from the content objects,
// whose checksums are not verified: that would mean to read whole files.
func (r *Repo) Resolve(root verdict.Root, name string) (Entry, error) {
	rest, done, links := split(name), []string(nil), 0
	e := Entry{Name: "/", Dir: root}
	for len(rest) > 0 {
		p := rest[0]
		rest = rest[1:]
		if p == ".." {
			done = done[:max(len(done)-1, 0)]
			continue
		}
		next, err := r.Lookup(root, path.Join(append(append([]string{"/"}, done...), p)...))
		if err != nil {
			return Entry{}, fmt.Errorf("resolving %s: %w", name, err)
		}
		if next.IsDir() {
			done = append(done, p)
			continue
		}
		target, isLink, err := r.link(next.File)
		if err != nil {
			return Entry{}, fmt.Errorf("resolving %s: %w", name, err)
		}
		if !isLink {
			if len(rest) > 0 {
				return Entry{}, fmt.Errorf("resolving %s: %w: %s is not a directory", name, ErrNotInTree, p)
			}
			return next, nil
		}
		if links++; links > maxLinks {
			return Entry{}, fmt.Errorf("resolving %s: more than %d symbolic links", name, maxLinks)
		}
		if strings.HasPrefix(target, "/") {
			done = nil
		}
		rest = append(parts(target), rest...)
	}
	if len(done) > 0 {
		return r.Lookup(root, path.Join(append([]string{"/"}, done...)...))
	}
	return e, nil
}

// parts splits a link's target and keeps "..", which may not be cancelled
// against a part that is a link itself.
func parts(target string) []string {
	var out []string
	for _, p := range strings.Split(target, "/") {
		if p != "" && p != "." {
			out = append(out, p)
		}
	}
	return out
}

// link tells a symbolic link from a regular file.
func (r *Repo) link(c verdict.Checksum) (target string, isLink bool, err error) {
	switch r.config.Mode {
	case modeBare, modeBareUserOnly, modeBareSplitXattrs:
		return r.bareLink(c)
	case modeBareUser:
		return r.bareUserLink(c)
	case modeArchive, modeArchiveZ2:
		return r.archiveLink(c)
	}
	return "", false, fmt.Errorf("reading file object: unknown repository mode %q", r.config.Mode)
}

func (r *Repo) bareLink(c verdict.Checksum) (string, bool, error) {
	name := path.Join(r.dir, format.ObjectPath(c, format.FileObject))
	target, err := r.root.Readlink(name)
	if err == nil {
		return target, true, nil
	}
	// readlink says EINVAL where there is something else.
	if !errors.Is(err, unix.EINVAL) {
		return "", false, fmt.Errorf("reading file object: %w", err)
	}
	fi, err := r.root.Stat(name)
	if err != nil {
		return "", false, fmt.Errorf("reading file object: %w", err)
	}
	if !fi.Mode().IsRegular() {
		return "", false, fmt.Errorf("reading file object: %s is neither a file nor a link", name)
	}
	return "", false, nil
}

// bareUserLink reads the mode from the extended attribute user.ostreemeta,
// (uuua(ayay)) in big-endian order; a link's target is the file's content.
func (r *Repo) bareUserLink(c verdict.Checksum) (string, bool, error) {
	name := path.Join(r.dir, format.ObjectPath(c, format.FileObject))
	f, err := r.root.OpenFile(name)
	if err != nil {
		return "", false, fmt.Errorf("reading file object: %w", err)
	}
	defer f.Close()
	buf := make([]byte, 64<<10)
	n, err := unix.Fgetxattr(int(f.Fd()), userMeta, buf)
	if err != nil {
		return "", false, fmt.Errorf("reading user.ostreemeta of %s: %w", name, err)
	}
	if n < 12 {
		return "", false, fmt.Errorf("reading user.ostreemeta of %s: only %d bytes", name, n)
	}
	switch binary.BigEndian.Uint32(buf[8:]) & unix.S_IFMT {
	case unix.S_IFREG:
		return "", false, nil
	case unix.S_IFLNK:
	default:
		return "", false, fmt.Errorf("reading user.ostreemeta of %s: neither a file nor a link", name)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxTarget+1))
	if err != nil {
		return "", false, fmt.Errorf("reading file object %s: not readable", name)
	}
	b = bytes.TrimSuffix(b, []byte{0})
	if len(b) == 0 || len(b) > maxTarget || bytes.IndexByte(b, 0) >= 0 {
		return "", false, fmt.Errorf("reading file object: %s is not a link's target", name)
	}
	return string(b), true, nil
}

func (r *Repo) archiveLink(c verdict.Checksum) (string, bool, error) {
	name := path.Join(r.dir, format.ObjectPath(c, format.FileZObject))
	f, err := r.root.OpenFile(name)
	if err != nil {
		return "", false, fmt.Errorf("reading file object: %w", err)
	}
	defer f.Close()
	h, err := archiveHeader(f)
	if err != nil {
		return "", false, fmt.Errorf("reading file object %s: %w", name, err)
	}
	switch h.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "", false, nil
	case unix.S_IFLNK:
		return h.Target, true, nil
	}
	return "", false, fmt.Errorf("reading file object %s: neither a file nor a link", name)
}
