package ostree

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// Keys of commit metadata that rpm-ostree writes (rpmostree-core.cxx).
const (
	keyPackageList    = "rpmostree.rpmdb.pkglist"
	keyClientLayer    = "rpmostree.clientlayer"
	keyOldClientLayer = "rpmostree.spec"
	keyLayered        = "rpmostree.packages"
	keyRemoved        = "rpmostree.removed-base-packages"
	keyReplaced       = "rpmostree.replaced-base-packages"
	keyReplacedRemote = "rpmostree.replaced-base-remote-packages"
)

// Facts are what a sysroot says about one deployment.
type Facts struct {
	// Booted has the fields that can be learned from a sysroot: Architecture,
	// Identity, Deployment, DeploymentKernels, BootEntryOptions, NodePayload,
	// Blobs and OriginReference; Packages and BasePackages where a commit's
	// metadata lists them, else see [Sysroot.Packages]. The others were not
	// gathered.
	Booted verdict.Booted
	// Origin is the deployment's origin file. Nothing in it proves anything.
	Origin verdict.Fact[format.Origin]
	// Unreadable are the errors behind the facts that are unknown because
	// something could not be read.
	Unreadable []error
}

// Facts reads all that the sysroot says about a deployment: the booted one, or
// with a [Booted] made by hand, that of a system never booted. What cannot be
// read is unknown, with the reason.
func (s *Sysroot) Facts(b *Booted) Facts {
	r := factReader{s: s, b: b}
	r.commit, r.commitErr = s.repo.Commit(b.Checksum)
	r.origin, r.originErr = s.Origin(b.Deployment)
	r.base, r.baseErr = r.findBase()
	f := &r.facts
	f.Origin = fact(&r, func() (format.Origin, error) {
		if r.originErr != nil {
			return format.Origin{}, r.originErr
		}
		return *r.origin, nil
	})
	f.Booted.Deployment = fact(&r, r.deployment)
	f.Booted.Identity = r.identity()
	f.Booted.Architecture = fact(&r, func() (string, error) { return s.architecture(b.Deployment) })
	f.Booted.DeploymentKernels = fact(&r, r.kernels)
	f.Booted.NodePayload = fact(&r, r.nodePayload)
	f.Booted.BootEntryOptions = fact(&r, r.options)
	f.Booted.OriginReference = fact(&r, r.originReference)
	f.Booted.LegacyOriginReference = r.legacyOriginReference(f.Booted.OriginReference)
	r.packages(&f.Booted)
	f.Booted.Blobs = r.blobs()
	return r.facts
}

// A factReader holds what several facts of one deployment need.
type factReader struct {
	s         *Sysroot
	b         *Booted
	commit    *format.Commit
	commitErr error
	origin    *format.Origin
	originErr error
	base      layerBase
	baseErr   error
	facts     Facts
}

// fact turns a value or an error into a fact.
func fact[T any](r *factReader, read func() (T, error)) verdict.Fact[T] {
	v, err := read()
	if err != nil {
		r.unreadable(err)
		return verdict.Unknown[T](err.Error())
	}
	return verdict.Known(v)
}

// unreadable notes an error once; several facts may need the same object.
func (r *factReader) unreadable(err error) {
	for _, old := range r.facts.Unreadable {
		if old.Error() == err.Error() {
			return
		}
	}
	r.facts.Unreadable = append(r.facts.Unreadable, err)
}

func (r *factReader) deployment() (verdict.Deployment, error) {
	if r.commitErr != nil {
		return verdict.Deployment{}, r.commitErr
	}
	if r.originErr != nil {
		return verdict.Deployment{}, r.originErr
	}
	kind, err := commitKind(r.commit)
	if err != nil {
		return verdict.Deployment{}, fmt.Errorf("reading commit %s: %w", r.b.Checksum, err)
	}
	d := verdict.Deployment{
		Checksum: r.b.Checksum, Serial: r.b.Serial, Stateroot: r.b.Stateroot,
		Kind: kind, Root: r.commit.Root, Timestamp: r.commit.Timestamp,
	}
	if d.Divergences, err = r.divergences(); err != nil {
		return verdict.Deployment{}, err
	}
	if err := r.layering(&d); err != nil {
		return verdict.Deployment{}, err
	}
	return d, nil
}

// layering fills in what was asked of rpm-ostree and what it did.
func (r *factReader) layering(d *verdict.Deployment) (err error) {
	if r.baseErr != nil {
		return r.baseErr
	}
	if d.Kind == verdict.ClientLayered {
		d.Base = verdict.Base{Checksum: r.base.sum, Kind: r.base.kind, Root: r.base.commit.Root}
	}
	o := r.origin
	for _, list := range [][]string{o.Requested, o.RequestedLocal, o.RequestedLocalFileOverride} {
		d.RequestedPackages = append(d.RequestedPackages, list...)
	}
	slices.Sort(d.RequestedPackages)
	d.RequestedRemovals = append(d.RequestedRemovals, o.OverrideRemove...)
	slices.Sort(d.RequestedRemovals)
	if d.LayeredPackages, err = r.layered(d.Kind); err == nil {
		d.RemovedPackages, err = r.removed(d.Kind)
	}
	if err != nil {
		return fmt.Errorf("reading commit %s: %w", r.b.Checksum, err)
	}
	return nil
}

// commitKind tells from a commit's metadata what made it.
func commitKind(c *format.Commit) (verdict.DeploymentKind, error) {
	layered, _, err := c.Metadata.Bool(keyClientLayer)
	if err != nil {
		return "", err
	}
	switch {
	case layered || c.Metadata.Has(keyOldClientLayer):
		return verdict.ClientLayered, nil
	case c.Metadata.Has(keyManifestDigest) || c.Metadata.Has(keyManifest) || c.Metadata.Has(keyImageConfig):
		return verdict.ContainerImage, nil
	}
	return verdict.PlainCommit, nil
}

// kernels lists the kernel releases of the deployed commit's own tree.
func (r *factReader) kernels() ([]string, error) {
	if r.commitErr != nil {
		return nil, r.commitErr
	}
	const dir = "usr/lib/modules"
	list, err := r.s.repo.ListDir(r.commit.Root, dir)
	if err != nil && !errors.Is(err, ErrNotInTree) {
		return nil, err
	}
	kernels := []string{}
	for _, e := range list {
		if !e.IsDir() {
			continue
		}
		k, err := r.s.repo.Lookup(r.commit.Root, path.Join(dir, e.Name, "vmlinuz"))
		if errors.Is(err, ErrNotInTree) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !k.IsDir() {
			kernels = append(kernels, e.Name)
		}
	}
	return kernels, nil
}

func (r *factReader) nodePayload() (verdict.NodePayload, error) {
	if r.commitErr != nil {
		return verdict.NodePayload{}, r.commitErr
	}
	var p verdict.NodePayload
	var err error
	if p.Kubelet, err = r.hasFile("usr/bin/kubelet"); err != nil {
		return verdict.NodePayload{}, err
	}
	if p.CRIO, err = r.hasFile("usr/bin/crio"); err != nil {
		return verdict.NodePayload{}, err
	}
	return p, nil
}

func (r *factReader) hasFile(name string) (bool, error) {
	e, err := r.s.repo.Resolve(r.commit.Root, name)
	if errors.Is(err, ErrNotInTree) {
		return false, nil
	}
	return err == nil && !e.IsDir(), err
}

func (r *factReader) options() (string, error) {
	if r.b.Entry == nil {
		return "", fmt.Errorf("deployment %s has no boot entry", r.b.Name())
	}
	return r.b.Entry.Options, nil
}

// originReference follows the machine-config-daemon's GetBootedOSImageURL.
func (r *factReader) originReference() (string, error) {
	if r.originErr != nil {
		return "", r.originErr
	}
	if ref := r.origin.ContainerImageReference; ref != "" {
		i, err := format.ParseImageReference(ref)
		if err != nil {
			return "", fmt.Errorf("reading origin %s.origin: [origin] container-image-reference: %w", r.b.Dir, err)
		}
		return i.PullSpec(), nil
	}
	spec, ok := strings.CutPrefix(r.origin.CustomURL, "pivot://")
	if !ok {
		return "", nil
	}
	return spec, nil
}

// legacyOriginReference follows the same function before 4.15, which took no
// reference apart.
func (r *factReader) legacyOriginReference(today verdict.Fact[string]) string {
	spec, ok := today.Get()
	if !ok || r.origin.ContainerImageReference == "" {
		return spec
	}
	_, spec, _ = strings.Cut(r.origin.ContainerImageReference, ":")
	return spec
}

// blobs are for the cost only, so refs that are none of ostree-ext's are
// passed over, and unreadable ones are like absent ones.
func (r *factReader) blobs() map[verdict.Digest]bool {
	names, err := r.s.repo.refNames(strings.TrimSuffix(format.BlobRefPrefix, "/"))
	if err != nil {
		r.unreadable(err)
		return nil
	}
	blobs := map[verdict.Digest]bool{}
	for _, name := range names {
		if d, err := format.ParseBlobRef(name); err == nil {
			blobs[d] = true
		}
	}
	return blobs
}
