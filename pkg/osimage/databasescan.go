package osimage

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/rpmdb"
	"github.com/oneboot/oneboot/pkg/verdict"
)

const (
	// maxSpools is how many files that look like a database are kept until their
	// names are seen, each in a file without a name.
	maxSpools = 3
	// maxOddObjects bounds the objects of a layer that are empty, or links, and may
	// stand behind a name that matters.
	maxOddObjects = 10_000
)

// A spool is a file of a layer on this machine's disk.
type spool struct {
	name string
	file *os.File
	size int64
}

// A databaseScan looks for the database in one layer after the other, from the last
// one down.
type databaseScan struct {
	// open are the names that no layer above has settled, of databases and of the
	// logs beside them.
	open, openLogs map[string]bool
	// unwritten is a log with changes that are not in the database yet.
	unwritten string
	layerScanned
}

// layerScanned is what one layer has.
type layerScanned struct {
	spools []spool
	// found are the names with the spool that is theirs.
	found map[string]spool
	// hidden are the names that the layers beneath cannot have, removed those of
	// them that are named one by one.
	hidden, removed map[string]bool
	// empty are objects without content, links those that are symbolic links.
	empty map[string]bool
	links map[string]string
}

func newDatabaseScan() *databaseScan {
	s := &databaseScan{open: map[string]bool{}, openLogs: map[string]bool{}}
	for _, name := range databaseNames() {
		s.open[name] = true
	}
	for _, name := range logNames() {
		s.openLogs[name] = true
	}
	return s
}

func (s *databaseScan) close() {
	for _, p := range s.spools {
		p.file.Close()
	}
	s.spools = nil
}

func (s *databaseScan) read(ctx context.Context, r io.Reader) error {
	s.layerScanned = layerScanned{found: map[string]spool{}, hidden: map[string]bool{}, removed: map[string]bool{}, empty: map[string]bool{}, links: map[string]string{}}
	t := tar.NewReader(r)
	for {
		h, err := nextEntry(ctx, t)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.entry(ctx, t, h); err != nil {
			return err
		}
	}
}

func (s *databaseScan) entry(ctx context.Context, t *tar.Reader, h *tar.Header) error {
	name := entryName(h)
	dir, base := parent(name), path.Base(name)
	switch object := objectFile.MatchString(name); {
	case base == opaqueWhiteout:
		s.hide(dir, false)
	case strings.HasPrefix(base, whiteout):
		s.hide(path.Join(dir, strings.TrimPrefix(base, whiteout)), true)
	case object && h.Typeflag == tar.TypeSymlink:
		if len(s.links) < maxOddObjects && mayLead(h.Linkname) {
			s.links[name] = h.Linkname
		}
	case object && h.Typeflag == tar.TypeReg && h.Size == 0:
		if len(s.empty) < maxOddObjects {
			s.empty[name] = true
		}
	case object && h.Typeflag == tar.TypeReg, s.open[name] && h.Typeflag == tar.TypeReg:
		return s.keep(ctx, t, h, name)
	case s.openLogs[name]:
		s.log(h, name)
	case s.open[name], h.Typeflag != tar.TypeDir:
		return s.other(h, name)
	}
	return nil
}

// log takes note of a log; an empty one says that nothing waits.
func (s *databaseScan) log(h *tar.Header, name string) {
	empty := h.Typeflag == tar.TypeReg && h.Size == 0 || h.Typeflag == tar.TypeLink && s.empty[linked(h)]
	if !empty && s.unwritten == "" {
		s.unwritten = name
	}
	s.hidden[name] = true
}

// linked is what a hard link names.
func linked(h *tar.Header) string { return entryName(&tar.Header{Name: h.Linkname}) }

// other looks at what is no regular file: at a database's own name, or where one of
// its folders is meant to be.
func (s *databaseScan) other(h *tar.Header, name string) error {
	if h.Typeflag == tar.TypeLink && s.open[name] {
		i := slices.IndexFunc(s.spools, func(p spool) bool { return p.name == linked(h) })
		if i < 0 {
			return fmt.Errorf("/%s is a link to /%.200s, which is not before it in the layer, or no database", name, linked(h))
		}
		return s.put(name, s.spools[i])
	}
	within := func(n string) bool { return n == name || strings.HasPrefix(n, name+"/") }
	for open := range s.open {
		if !within(open) {
			continue
		}
		to, ok := s.target(h, name)
		to += strings.TrimPrefix(open, name)
		if !ok || within(to) || !slices.Contains(databaseNames(), to) {
			return fmt.Errorf("/%.200s is not a folder or a database, and no link to where one may be", name)
		}
	}
	// What the layers beneath have there is not seen any more.
	s.hide(name, false)
	return nil
}

// mayLead reports whether a link may lead to a database or a folder of one. An OS has
// some ten thousand links, and few of those.
func mayLead(to string) bool {
	return slices.ContainsFunc(databaseNames(), func(name string) bool {
		return slices.Contains(strings.Split(name, "/"), path.Base(to))
	})
}

// target is where a symbolic link leads, by itself or by the object that it is.
func (s *databaseScan) target(h *tar.Header, name string) (string, bool) {
	to, ok := h.Linkname, h.Typeflag == tar.TypeSymlink
	if h.Typeflag == tar.TypeLink {
		to, ok = s.links[linked(h)]
	}
	if !strings.HasPrefix(to, "/") {
		to = parent(name) + "/" + to
	}
	return path.Clean("/" + to)[1:], ok
}

// hide takes note that a path of the layers beneath is gone, with all in it.
func (s *databaseScan) hide(gone string, named bool) {
	for _, open := range []map[string]bool{s.open, s.openLogs} {
		for name := range open {
			if name == gone || gone == "" || strings.HasPrefix(name, gone+"/") {
				s.hidden[name] = true
				s.removed[name] = s.removed[name] || named
			}
		}
	}
}

// keep copies a file that may be the database to the disk.
func (s *databaseScan) keep(ctx context.Context, t io.Reader, h *tar.Header, name string) error {
	content := bufio.NewReader(timedReader{ctx, t})
	magic, err := content.Peek(16)
	if err != nil && !errors.Is(err, io.EOF) {
		return noEOF(err)
	}
	named := s.open[name]
	if !named && !rpmdb.Looks(magic) {
		return nil
	}
	if h.Size > rpmdb.MaxSize {
		if named {
			return fmt.Errorf("/%s has %d bytes, over the limit of %d", name, h.Size, int64(rpmdb.MaxSize))
		}
		return nil
	}
	f, err := os.CreateTemp("", "oneboot-rpmdb-")
	if err != nil {
		return fmt.Errorf("making room for the rpm database: %w", bare(err))
	}
	p := spool{name: name, file: f, size: h.Size}
	s.spools = append(s.spools, p)
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("making room for the rpm database: %w", bare(err))
	}
	if named {
		// Before it costs the disk any room: a second one is an error.
		if err := s.put(name, p); err != nil {
			return err
		}
	}
	if _, err := io.Copy(f, content); err != nil {
		return noEOF(err)
	}
	if !named && len(s.spools) > maxSpools {
		i := slices.IndexFunc(s.spools, func(p spool) bool { return !s.isFound(p) })
		s.spools[i].file.Close()
		s.spools = slices.Delete(s.spools, i, i+1)
	}
	return nil
}

// put gives a name its file. A layer has one database, under one name or two.
func (s *databaseScan) put(name string, p spool) error {
	if _, twice := s.found[name]; twice {
		return fmt.Errorf("/%s is there twice", name)
	}
	for at, f := range s.found {
		if f.file != p.file {
			return fmt.Errorf("two rpm databases, /%s and /%s", at, name)
		}
	}
	s.found[name] = p
	return nil
}

func (s *databaseScan) isFound(p spool) bool {
	for _, f := range s.found {
		if f.file == p.file {
			return true
		}
	}
	return false
}

// packages reads the database that the layer has; nil where it has none.
func (s *databaseScan) packages() ([]verdict.Package, error) {
	for _, name := range databaseNames() {
		p, ok := s.found[name]
		switch {
		case !ok:
			continue
		case s.removed[name]:
			return nil, fmt.Errorf("/%s is both there and taken away", name)
		case s.unwritten != "":
			return nil, fmt.Errorf("/%s has changes that are not in the database yet", s.unwritten)
		}
		packages, err := rpmdb.List(p.file, p.size)
		if err != nil {
			return nil, fmt.Errorf("/%s: %w", name, err)
		}
		if len(packages) == 0 {
			// An OS has some: it is not the one that counts.
			return nil, fmt.Errorf("/%s lists no package", name)
		}
		return packages, nil
	}
	for name := range s.hidden {
		delete(s.open, name)
		delete(s.openLogs, name)
	}
	return nil, nil
}
