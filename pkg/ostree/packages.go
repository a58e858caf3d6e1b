package ostree

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/rpmdb"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// layered are the names of the packages that the deployed commit was really
// layered with, sorted.
func (r *factReader) layered(kind verdict.DeploymentKind) ([]string, error) {
	list, ok, err := r.commit.Metadata.Strings(keyLayered)
	return sortedNames(keyLayered, list, ok || kind != verdict.ClientLayered, err)
}

// removed are the names of the base packages that were really left out of the
// deployed commit, sorted.
func (r *factReader) removed(kind verdict.DeploymentKind) ([]string, error) {
	list, ok, err := r.commit.Metadata.RemovedPackages(keyRemoved)
	return sortedNames(keyRemoved, list, ok || kind != verdict.ClientLayered, err)
}

func sortedNames(key string, list []string, ok bool, err error) ([]string, error) {
	switch {
	case err != nil:
		return nil, err
	case !ok:
		// Commits without it are older than any EL9.
		return nil, errors.New("layered, but no metadata key " + key)
	case len(list) == 0:
		return nil, nil
	}
	slices.Sort(list)
	return list, nil
}

// A layerBase is the commit that identity and base facts describe: the
// deployed one, or the one below client-side layering.
type layerBase struct {
	commit *format.Commit
	sum    verdict.Checksum
	kind   verdict.DeploymentKind
}

// findBase reads the commit below client-side layering; where there is none
// the deployed commit is its own base.
func (r *factReader) findBase() (layerBase, error) {
	if r.commitErr != nil {
		return layerBase{}, r.commitErr
	}
	base := layerBase{commit: r.commit, sum: r.b.Checksum}
	var err error
	if base.kind, err = commitKind(r.commit); err == nil && base.kind == verdict.ClientLayered {
		base, err = r.parentOf(r.commit)
	}
	if err != nil {
		return layerBase{}, fmt.Errorf("reading commit %s: %w", r.b.Checksum, err)
	}
	return base, nil
}

func (r *factReader) parentOf(c *format.Commit) (layerBase, error) {
	base := layerBase{sum: c.Parent}
	var err error
	if base.commit, err = r.s.repo.Commit(c.Parent); err != nil {
		return layerBase{}, fmt.Errorf("reading the commit below the layered packages: %w", err)
	}
	if base.kind, err = commitKind(base.commit); err != nil {
		return layerBase{}, fmt.Errorf("reading the commit below the layered packages: %s: %w", c.Parent, err)
	}
	if base.kind == verdict.ClientLayered {
		return layerBase{}, errors.New("the commit below the layered packages is layered itself")
	}
	return base, nil
}

// listed are the packages that a commit's own metadata lists. The fact is not
// gathered where it has no list.
func (r *factReader) listed(c *format.Commit, sum verdict.Checksum) verdict.Fact[[]verdict.Package] {
	list, ok, err := c.Metadata.Packages(keyPackageList)
	if err != nil {
		err = fmt.Errorf("reading commit %s: %w", sum, err)
		r.unreadable(err)
		return verdict.Unknown[[]verdict.Package](err.Error())
	}
	if !ok {
		return verdict.Fact[[]verdict.Package]{}
	}
	packages := make([]verdict.Package, 0, len(list))
	for _, p := range list {
		packages = append(packages, verdict.Package{Name: p.Name, EVRA: p.EVRA()})
	}
	return verdict.Known(packages)
}

// baseListed are the packages of the base commit: as its own metadata lists
// them, else as the commit does that its image encapsulates, where that one
// has the very same files.
func (r *factReader) baseListed() verdict.Fact[[]verdict.Package] {
	if r.baseErr != nil {
		return verdict.Unknown[[]verdict.Package](r.baseErr.Error())
	}
	if f := r.listed(r.base.commit, r.base.sum); f.Gathered() {
		return f
	}
	inner, ok := r.facts.Booted.Identity.InnerCommit.Get()
	if !ok || r.base.kind != verdict.ContainerImage || inner.Root != r.base.commit.Root {
		return verdict.Fact[[]verdict.Package]{}
	}
	c, err := r.s.repo.Commit(inner.Checksum)
	if err != nil {
		return verdict.Fact[[]verdict.Package]{}
	}
	return r.listed(c, inner.Checksum)
}

// packages sets the lists that cost nothing.
func (r *factReader) packages(b *verdict.Booted) {
	if r.commitErr != nil {
		b.Packages = verdict.Unknown[[]verdict.Package](r.commitErr.Error())
		b.BasePackages = b.Packages
		return
	}
	if r.baseErr == nil && r.base.commit == r.commit {
		b.Packages = r.baseListed()
		return
	}
	// The list of a layered commit was written on this node: its rpm database
	// has to agree, which takes longer.
	b.BasePackages = r.baseListed()
}

// rpmDatabaseDirs are where a tree has its rpm database; one of them, or both
// of other trees, may be links (RPMOSTREE_RPMDB_LOCATION and
// RPMOSTREE_SYSIMAGE_RPMDB in rpm-ostree).
func rpmDatabaseDirs() []string { return []string{"usr/share/rpm", "usr/lib/sysimage/rpm"} }

const rpmDatabase = "rpmdb.sqlite"

var errNoDatabase = errors.New("there is no rpm database")

// Packages reads the packages of a deployment and, where packages are layered
// on the node, those of the commit beneath; else base is not gathered. They
// come from the commits' metadata or, which takes longer, from the rpm
// database among the commits' own files.
func (s *Sysroot) Packages(b *Booted) (packages, base verdict.Fact[[]verdict.Package]) {
	r := factReader{s: s, b: b}
	r.commit, r.commitErr = s.repo.Commit(b.Checksum)
	r.base, r.baseErr = r.findBase()
	r.facts.Booted.Identity = r.identity()
	f := &r.facts.Booted
	r.packages(f)
	if !f.Packages.Gathered() {
		f.Packages = fact(&r, r.installedAsListed)
	}
	if r.baseErr == nil && r.base.commit != r.commit && !f.BasePackages.Gathered() {
		f.BasePackages = fact(&r, func() ([]verdict.Package, error) { return s.installed(r.base.sum, r.base.commit) })
	}
	return f.Packages, f.BasePackages
}

// installedAsListed are the packages in the deployed commit's rpm database. A
// list in its metadata must say the same, and stands alone where there is no such
// database.
func (r *factReader) installedAsListed() ([]verdict.Package, error) {
	installed, err := r.s.installed(r.b.Checksum, r.commit)
	f := r.listed(r.commit, r.b.Checksum)
	listed, ok := f.Get()
	switch {
	case errors.Is(err, errNoDatabase) && ok:
		return listed, nil
	case err != nil:
		return nil, err
	case !f.Gathered():
		return installed, nil
	case !ok:
		return nil, errors.New(f.Why())
	case !samePackages(listed, installed):
		return nil, fmt.Errorf("commit %s: its package list (%s) is not what its rpm database holds", r.b.Checksum, keyPackageList)
	}
	return installed, nil
}

func samePackages(a, b []verdict.Package) bool {
	order := func(p, q verdict.Package) int {
		return cmp.Or(strings.Compare(p.Name, q.Name), strings.Compare(p.EVRA, q.EVRA))
	}
	return slices.Equal(slices.SortedFunc(slices.Values(a), order), slices.SortedFunc(slices.Values(b), order))
}

// installed lists the rpm database in a commit's tree. The folders are not
// looked for through links, whose targets nothing vouches for: where one
// folder is a link the other one is not.
func (s *Sysroot) installed(sum verdict.Checksum, c *format.Commit) ([]verdict.Package, error) {
	where := "reading the rpm database of commit " + string(sum)
	var found Entry
	var dir string
	for _, d := range rpmDatabaseDirs() {
		e, err := s.repo.Lookup(c.Root, path.Join(d, rpmDatabase))
		switch {
		case errors.Is(err, ErrNotInTree):
			continue
		case err != nil:
			return nil, fmt.Errorf("%s: %w", where, err)
		case dir != "" && e.File != found.File:
			return nil, fmt.Errorf("%s: those in %s and %s differ", where, dir, d)
		}
		found, dir = e, d
		if err := s.noJournal(c.Root, d); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
	}
	if dir == "" {
		return nil, fmt.Errorf("%s: %w (%s in %s); those of other kinds, before EL9, are not read", where, errNoDatabase, rpmDatabase, strings.Join(rpmDatabaseDirs(), " or "))
	}
	if found.IsDir() {
		return nil, fmt.Errorf("%s: %s is a directory", where, path.Join(dir, rpmDatabase))
	}
	db, err := s.repo.content(found.File, rpmdb.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	defer db.Close()
	list, err := rpmdb.List(db, db.size)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", where, path.Join(dir, rpmDatabase), err)
	}
	return list, nil
}

// noJournal makes sure that the database file is the whole database. rpm
// leaves an empty write-ahead log behind.
func (s *Sysroot) noJournal(root verdict.Root, dir string) error {
	for _, suffix := range []string{"-wal", "-journal"} {
		name := path.Join(dir, rpmDatabase+suffix)
		e, err := s.repo.Lookup(root, name)
		if errors.Is(err, ErrNotInTree) {
			continue
		}
		if err != nil {
			return err
		}
		if e.IsDir() {
			return fmt.Errorf("%s is a directory", name)
		}
		c, err := s.repo.content(e.File, 0)
		if err != nil {
			return fmt.Errorf("%s is not empty or not readable: %w", name, err)
		}
		c.Close()
	}
	return nil
}
