package ostree

import (
	"errors"
	"fmt"
	"slices"

	"github.com/oneboot/oneboot/pkg/ostree/format"
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
	b.Packages = r.listed(r.commit, r.b.Checksum)
	b.BasePackages = r.baseListed()
}
