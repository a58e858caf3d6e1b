package ostree

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

const (
	maxRefSize  = 1 << 10
	maxRefs     = 1 << 14
	maxRefDepth = 32
)

// A Repo is an ostree repository: bare, bare-user, bare-user-only,
// bare-split-xattrs or archive. It is safe for concurrent use.
type Repo struct {
	root   *hostfs.Root
	dir    string
	config RepoConfig
}

// A RepoConfig is what this program needs of the repository's config file.
type RepoConfig struct {
	// Mode is the storage mode: "bare", "archive-z2" and so on.
	Mode string
	// Parent is the path of a parent repository, "" where there is none. Its
	// objects are not looked at.
	Parent string
}

// OpenRepo opens the repository in dir, a path below the root, and reads its
// config file.
func OpenRepo(root *hostfs.Root, dir string) (*Repo, error) {
	r := &Repo{root: root, dir: dir}
	name := path.Join(dir, "config")
	b, err := root.ReadFile(name, format.MaxKeyFileSize)
	if err != nil {
		return nil, fmt.Errorf("reading repository config: %w", err)
	}
	// GLib merges repeated groups, and so does ParseKeyFile: config files with
	// two [core] groups exist in the field.
	f, err := format.ParseKeyFile(b)
	if err != nil {
		return nil, fmt.Errorf("reading repository config %s: %w", name, err)
	}
	mode, ok, err := f.String("core", "mode")
	if err != nil {
		return nil, fmt.Errorf("reading repository config %s: %w", name, err)
	}
	if !ok {
		// libostree's default.
		mode = modeBare
	}
	parent, _, err := f.String("core", "parent")
	if err != nil {
		return nil, fmt.Errorf("reading repository config %s: %w", name, err)
	}
	version, ok, err := f.String("core", "repo_version")
	if err != nil {
		return nil, fmt.Errorf("reading repository config %s: %w", name, err)
	}
	if !ok || version != "1" {
		return nil, fmt.Errorf("reading repository config %s: repo_version is %q, want 1", name, version)
	}
	r.config = RepoConfig{Mode: mode, Parent: parent}
	return r, nil
}

// Config returns the repository's configuration.
func (r *Repo) Config() RepoConfig { return r.config }

// object reads a metadata object and compares its checksum.
func (r *Repo) object(c verdict.Checksum, t format.ObjectType) ([]byte, error) {
	if _, err := format.ParseChecksum(string(c)); err != nil {
		return nil, fmt.Errorf("reading %s: %w", t, err)
	}
	name := path.Join(r.dir, format.ObjectPath(c, t))
	b, err := r.root.ReadFile(name, format.MaxObjectSize)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && r.config.Parent != "" {
			return nil, fmt.Errorf("reading %s (the repository's parent %s is not searched): %w", t, r.config.Parent, err)
		}
		return nil, fmt.Errorf("reading %s: %w", t, err)
	}
	if got := format.SumMetadata(b); got != c {
		return nil, fmt.Errorf("reading %s: %s holds an object with checksum %s: the repository is corrupt, see ostree fsck", t, name, got)
	}
	return b, nil
}

// Commit reads a commit. Its checksum is verified. An error wraps
// [fs.ErrNotExist] where there is no such commit.
func (r *Repo) Commit(c verdict.Checksum) (*format.Commit, error) {
	b, err := r.object(c, format.CommitObject)
	if err != nil {
		return nil, err
	}
	commit, err := format.ParseCommit(b)
	if err != nil {
		return nil, fmt.Errorf("reading commit %s: %w", c, err)
	}
	return commit, nil
}

// CommitPartial reports whether the commit is marked as incomplete: its
// objects may not all be there.
func (r *Repo) CommitPartial(c verdict.Checksum) (bool, error) {
	ok, err := r.root.Exists(path.Join(r.dir, "state", string(c)+".commitpartial"))
	if err != nil {
		return false, fmt.Errorf("looking for commitpartial: %w", err)
	}
	return ok, nil
}

// ResolveRef returns the commit that a ref names: NAME for a local ref,
// REMOTE:NAME for one of a remote. Unlike libostree it does not search the
// remotes for a bare name and takes no abbreviated checksums.
func (r *Repo) ResolveRef(ref string) (verdict.Checksum, error) {
	dir, name := "refs/heads", ref
	if remote, rest, ok := strings.Cut(ref, ":"); ok {
		if !refName(remote) || strings.Contains(remote, "/") {
			return "", fmt.Errorf("resolving ref %q: not a ref name", ref)
		}
		dir, name = "refs/remotes/"+remote, rest
	}
	if !refName(name) {
		return "", fmt.Errorf("resolving ref %q: not a ref name", ref)
	}
	return r.readRef(ref, path.Join(dir, name))
}

func (r *Repo) readRef(ref, file string) (verdict.Checksum, error) {
	b, err := r.root.ReadFile(path.Join(r.dir, file), maxRefSize)
	if err != nil {
		return "", fmt.Errorf("resolving ref %s: %w", ref, err)
	}
	c, err := format.ParseChecksum(strings.TrimRight(string(b), " \t\r\n\f\v"))
	if err != nil {
		return "", fmt.Errorf("resolving ref %s: %s: %w", ref, path.Join(r.dir, file), err)
	}
	return c, nil
}

// refName reports whether every part of the name is an ordinary file name.
func refName(name string) bool {
	if name == "" {
		return false
	}
	for _, p := range strings.Split(name, "/") {
		if p == "" || p == "." || p == ".." {
			return false
		}
	}
	return true
}

// ListRefs returns the local refs at and below prefix, by full name; the empty
// prefix means all. A ref that cannot be read is an error; a prefix below
// which there is nothing is none.
func (r *Repo) ListRefs(prefix string) (map[string]verdict.Checksum, error) {
	prefix = strings.TrimSuffix(prefix, "/")
	if prefix != "" && !refName(prefix) {
		return nil, fmt.Errorf("listing refs: %q is not a ref name", prefix)
	}
	names, err := r.refNames(prefix)
	if err != nil {
		return nil, err
	}
	refs := make(map[string]verdict.Checksum, len(names))
	for _, name := range names {
		c, err := r.readRef(name, path.Join("refs/heads", name))
		if err != nil {
			return nil, err
		}
		refs[name] = c
	}
	return refs, nil
}

// refNames lists the names of the local refs below prefix without reading
// them.
func (r *Repo) refNames(prefix string) ([]string, error) {
	top := path.Join(r.dir, "refs/heads", prefix)
	fi, err := r.root.Stat(top)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing refs: %w", err)
	case !fi.IsDir():
		return []string{prefix}, nil
	}
	return r.walkRefs(nil, prefix, 0)
}

func (r *Repo) walkRefs(names []string, dir string, depth int) ([]string, error) {
	if depth > maxRefDepth {
		return nil, fmt.Errorf("listing refs: %s is deeper than %d folders", dir, maxRefDepth)
	}
	entries, err := r.root.ReadDir(path.Join(r.dir, "refs/heads", dir), maxRefs)
	if err != nil {
		return nil, fmt.Errorf("listing refs: %w", err)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if e.IsDir() {
			if names, err = r.walkRefs(names, name, depth+1); err != nil {
				return nil, err
			}
			continue
		}
		if len(names) >= maxRefs {
			return nil, fmt.Errorf("listing refs: more than %d", maxRefs)
		}
		names = append(names, name)
	}
	return names, nil
}
