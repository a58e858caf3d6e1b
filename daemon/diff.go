package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/osimage"
	"github.com/oneboot/oneboot/pkg/ostree"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// HostName stands for the booted deployment of the root in the place of an image.
const HostName = "host"

// An Urgency is what a change asks for, from facts alone.
type Urgency string

// The urgencies.
const (
	UrgencyNone      Urgency = "none"      // the same content
	UrgencyUserspace Urgency = "userspace" // the same kernel
	UrgencyKernel    Urgency = "kernel"    // another kernel
	UrgencyUnknown   Urgency = "unknown"   // what one of them has is not known
)

// A Content is how two images compare as a whole.
type Content string

// The comparisons.
const (
	ContentSame         Content = "same"          // the same layers, or the same commit without layers upon it
	ContentSamePackages Content = "same-packages" // the same packages, other files
	ContentOther        Content = "other"         // other packages
	ContentUnknown      Content = "unknown"
)

// A Change is a package in two images.
type Change struct {
	Name string `json:"name"`
	// From and To are [epoch:]version-release.arch; empty where the package is not
	// there.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// An ImageDiff is what changes from one image to another.
type ImageDiff struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	From       DiffSide `json:"from"`
	To         DiffSide `json:"to"`
	Content    Content  `json:"content"`
	Urgency    Urgency  `json:"urgency"`
	// Base compares what is beneath the layers upon the encapsulated commit.
	Base verdict.Outcome `json:"base"`
	// LayersToPull and BytesToPull are what a machine that has From would fetch for
	// To; null where From's layers are not known.
	LayersToPull *int   `json:"layersToPull"`
	BytesToPull  *int64 `json:"bytesToPull"`
	// First are kernel, glibc, CRI-O and kubelet, changed or not.
	First []Change `json:"first"`
	// Added, Removed and Changed are all packages, sorted by name; null where they
	// are not known, and Unknown says why.
	Added   []Change `json:"added"`
	Removed []Change `json:"removed"`
	Changed []Change `json:"changed"`
	Unknown string   `json:"unknown,omitempty"`
	// Requests and Bytes are what was asked of registries.
	Requests int   `json:"requests"`
	Bytes    int64 `json:"bytes"`
}

// A DiffSide is one of the two.
type DiffSide struct {
	// Image is the reference, or "host".
	Image        string         `json:"image"`
	Digest       verdict.Digest `json:"digest,omitempty"`
	Architecture string         `json:"architecture,omitempty"`
	Version      string         `json:"version,omitempty"`
	// PackagesSource is where its packages were read.
	PackagesSource osimage.Source `json:"packagesSource,omitempty"`
}

// side is what is compared.
type side struct {
	DiffSide
	packages map[string][]string
	unknown  string
	// layers are the image's, or the deployment's as its commit names them; nil
	// where they are not known.
	layers  []osimage.LayerInfo
	derived int // negative where it is not known
	commit  verdict.Checksum
	// assembled says that rpm-ostree made the deployed commit of those layers and of
	// more, on the host.
	assembled bool
}

// Diff compares two images, or the booted deployment of the root with an image. Of
// a release image the OS image counts.
func Diff(ctx context.Context, opts InspectOptions, from, to string) (*ImageDiff, error) {
	d := &ImageDiff{APIVersion: ImageInspectionVersion, Kind: "ImageDiff"}
	var sides [2]side
	for i, name := range []string{from, to} {
		var err error
		if name == HostName {
			sides[i], err = hostSide(opts.Root)
		} else {
			sides[i], err = d.imageSide(ctx, opts, name)
		}
		if err != nil {
			return nil, err
		}
	}
	a, b := sides[0], sides[1]
	d.From, d.To = a.DiffSide, b.DiffSide
	if a.Architecture != "" && b.Architecture != "" && a.Architecture != b.Architecture {
		return nil, fmt.Errorf("%s is for %s and %s for %s: choose with --arch", from, a.Architecture, to, b.Architecture)
	}
	d.compareLayers(a, b)
	d.comparePackages(a, b)
	d.judge(a, b)
	return d, nil
}

func (d *ImageDiff) imageSide(ctx context.Context, opts InspectOptions, name string) (side, error) {
	opts.Image = name
	i, err := Inspect(ctx, opts)
	if err != nil {
		return side{}, err
	}
	d.Requests += i.Requests
	d.Bytes += i.Bytes
	if i.OS == nil {
		return side{}, fmt.Errorf("%s: not an OS image", name)
	}
	s := side{derived: -1, layers: i.OS.Layers, unknown: i.OS.PackagesUnknown, DiffSide: DiffSide{
		Image: i.OS.Image, Digest: i.OS.Digest, Architecture: i.OS.Architecture, Version: i.OS.Facts[osimage.FactOSVersion].Value, PackagesSource: i.OS.PackagesSource,
	}}
	if f := i.OS.Facts[osimage.FactDerived]; f.Value != "" {
		s.derived = 0
		for _, l := range i.OS.Layers {
			if l.Derived {
				s.derived++
			}
		}
	}
	if f := i.OS.Facts[osimage.FactInnerCommit]; f.Source == osimage.SourceCommit {
		s.commit = verdict.Checksum(f.Value)
	}
	if i.OS.Packages != nil {
		s.packages = byName(i.OS.Packages)
	}
	return s, nil
}

// hostSide reads the booted deployment.
func hostSide(dir string) (side, error) {
	root, err := hostfs.Open(dir)
	if err != nil {
		return side{}, err
	}
	defer root.Close()
	sysroot, err := ostree.OpenSysroot(root)
	if err != nil {
		return side{}, err
	}
	cmdline, err := root.ReadFile(cmdlinePath, maxSmallFile)
	if err != nil {
		return side{}, fmt.Errorf("finding booted deployment: %w", err)
	}
	booted, err := sysroot.Booted(string(cmdline))
	if err != nil {
		return side{}, err
	}
	facts := sysroot.Facts(booted).Booted
	id := facts.Identity
	deployment, _ := facts.Deployment.Get()
	s := side{assembled: assembled(deployment), derived: -1, DiffSide: DiffSide{Image: HostName, Version: id.Version}}
	s.Architecture, _ = id.Architecture.Get()
	s.Digest, _ = id.ManifestDigest.Get()
	if n, ok := id.DerivedLayers.Get(); ok {
		s.derived = n
	}
	if c, ok := id.InnerCommit.Get(); ok && c.Source.Proving() {
		s.commit = c.Checksum
	}
	diffIDs, _ := id.DiffIDs.Get()
	for i, d := range diffIDs {
		s.layers = append(s.layers, osimage.LayerInfo{DiffID: d, Derived: s.derived >= 0 && i >= len(diffIDs)-s.derived})
	}
	packages, _ := sysroot.Packages(booted)
	list, ok := packages.Get()
	if !ok {
		s.unknown = packages.Why()
		return s, nil
	}
	s.packages, s.PackagesSource = byName(list), osimage.SourceCommit
	return s, nil
}

// assembled reports whether a deployment has more than what it was made of: packages,
// an initramfs or other changes of this host.
func assembled(d verdict.Deployment) bool {
	return d.Kind == verdict.ClientLayered || slices.ContainsFunc(d.Divergences, func(v verdict.Divergence) bool {
		return slices.Contains([]verdict.DivergenceKind{verdict.PackageOverride, verdict.InitramfsRegenerated, verdict.LocalAssembly}, v.Kind)
	})
}

// byName are the versions of each package; some, such as kernels, may be there at
// more than one.
func byName(list []verdict.Package) map[string][]string {
	m := map[string][]string{}
	for _, p := range list {
		m[p.Name] = append(m[p.Name], p.EVRA)
	}
	for _, versions := range m {
		slices.Sort(versions)
	}
	return m
}

func (d *ImageDiff) compareLayers(a, b side) {
	d.Base = verdict.OutcomeUnknown
	if a.derived >= 0 && b.derived >= 0 && known(a.layers) && known(b.layers) {
		d.Base = verdict.OutcomeDiffers
		if slices.Equal(diffIDs(a.layers[:len(a.layers)-a.derived]), diffIDs(b.layers[:len(b.layers)-b.derived])) {
			d.Base = verdict.OutcomeSame
		}
	}
	if !known(a.layers) || !known(b.layers) {
		return
	}
	has := map[verdict.Digest]bool{}
	for _, l := range a.layers {
		has[l.DiffID] = true
	}
	layers, bytes := 0, int64(0)
	for _, l := range b.layers {
		if !has[l.DiffID] {
			layers++
			bytes += l.Bytes
			has[l.DiffID] = true
		}
	}
	d.LayersToPull = &layers
	if d.To.Image != HostName {
		d.BytesToPull = &bytes
	}
}

// known reports whether each layer's diff id is.
func known(layers []osimage.LayerInfo) bool {
	return len(layers) > 0 && !slices.ContainsFunc(layers, func(l osimage.LayerInfo) bool { return l.DiffID == "" })
}

func diffIDs(layers []osimage.LayerInfo) []verdict.Digest {
	var all []verdict.Digest
	for _, l := range layers {
		all = append(all, l.DiffID)
	}
	return all
}

// firstNames are shown first; the first name that one of the two has counts.
func firstNames() [][]string {
	return [][]string{{"kernel-core", "kernel"}, {"glibc"}, {"cri-o"}, {"openshift-kubelet", "openshift-hyperkube", "kubernetes-kubelet", "kubernetes-node"}}
}

func (d *ImageDiff) comparePackages(a, b side) {
	d.First = []Change{}
	if a.packages == nil || b.packages == nil {
		var why []string
		for _, s := range []side{a, b} {
			if s.packages == nil {
				why = append(why, s.Image+": "+s.unknown)
			}
		}
		d.Unknown = strings.Join(why, "; ")
		return
	}
	for _, names := range firstNames() {
		for _, n := range names {
			if from, to := a.packages[n], b.packages[n]; from != nil || to != nil {
				d.First = append(d.First, Change{n, strings.Join(from, " "), strings.Join(to, " ")})
				break
			}
		}
	}
	d.Added, d.Removed, d.Changed = []Change{}, []Change{}, []Change{}
	all := map[string]bool{}
	for _, m := range []map[string][]string{a.packages, b.packages} {
		for n := range m {
			all[n] = true
		}
	}
	for _, n := range sortedKeys(all) {
		from, to := a.packages[n], b.packages[n]
		c := Change{n, strings.Join(from, " "), strings.Join(to, " ")}
		switch {
		case from == nil:
			d.Added = append(d.Added, c)
		case to == nil:
			d.Removed = append(d.Removed, c)
		case !slices.Equal(from, to):
			d.Changed = append(d.Changed, c)
		}
	}
}

func sortedKeys(m map[string]bool) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// judge says what the differences come to.
func (d *ImageDiff) judge(a, b side) {
	sameLayers := known(a.layers) && slices.Equal(diffIDs(a.layers), diffIDs(b.layers))
	sameCommit := a.commit != "" && a.commit == b.commit && a.derived == 0 && b.derived == 0
	if (a.assembled || b.assembled) && a.Image != b.Image {
		sameLayers, sameCommit = false, false
	}
	otherKernel := func(c Change) bool { return strings.HasPrefix(c.Name, "kernel") }
	switch {
	case sameLayers || sameCommit:
		d.Content, d.Urgency = ContentSame, UrgencyNone
	case d.Changed == nil:
		d.Content, d.Urgency = ContentUnknown, UrgencyUnknown
	case len(d.Added)+len(d.Removed)+len(d.Changed) == 0:
		d.Content, d.Urgency = ContentSamePackages, UrgencyUserspace
	case slices.ContainsFunc(slices.Concat(d.Added, d.Removed, d.Changed), otherKernel):
		d.Content, d.Urgency = ContentOther, UrgencyKernel
	default:
		d.Content, d.Urgency = ContentOther, UrgencyUserspace
	}
}
