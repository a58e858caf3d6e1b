package osimage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// A FactName names a fact of an [Inspection]; a stable code.
type FactName string

// The facts, in the order in which they are shown.
const (
	FactOSName       FactName = "os-name"
	FactOSVersion    FactName = "os-version"
	FactRHELVersion  FactName = "rhel-version"
	FactKernel       FactName = "kernel"
	FactKernelRT     FactName = "kernel-rt"
	FactKernel64K    FactName = "kernel-64k"
	FactGlibc        FactName = "glibc"
	FactSystemd      FactName = "systemd"
	FactCRIO         FactName = "cri-o"
	FactKubelet      FactName = "kubelet"
	FactOSTree       FactName = "ostree"
	FactRPMOSTree    FactName = "rpm-ostree"
	FactInnerCommit  FactName = "inner-commit"
	FactCommitSource FactName = "inner-commit-source"
	FactDerived      FactName = "derived-layers"
)

// FactNames are all of them.
func FactNames() []FactName {
	return []FactName{FactOSName, FactOSVersion, FactRHELVersion, FactKernel, FactKernelRT, FactKernel64K, FactGlibc, FactSystemd,
		FactCRIO, FactKubelet, FactOSTree, FactRPMOSTree, FactInnerCommit, FactCommitSource, FactDerived}
}

// A Fact is a value and where it was read, or why it is not known. The value of
// a package that the image has not is empty and Absent is true.
type Fact struct {
	Value  string `json:"value,omitempty"`
	Source Source `json:"source,omitempty"`
	// Absent says that the image is known not to have it.
	Absent bool `json:"absent,omitempty"`
	// Unknown says where was looked and why that does not answer.
	Unknown string `json:"unknown,omitempty"`
}

// A Kind says what an image is.
type Kind string

// The kinds.
const (
	KindOS         Kind = "os"
	KindExtensions Kind = "extensions"
	KindRelease    Kind = "release"
	// KindOther is none of them, KindUntold may be machine-os-content without
	// labels.
	KindOther  Kind = "other"
	KindUntold Kind = "untold"
)

// An Inspection is what is known of an image without pulling it. All bytes that
// it rests on were checked against the digests of the manifest, the manifest
// against that of the reference where it pins one.
type Inspection struct {
	// Image is the reference, Digest that of the manifest for Architecture.
	Image  string         `json:"image"`
	Kind   Kind           `json:"kind"`
	Digest verdict.Digest `json:"digest"`
	// ConfigDigest is that of the image's config, List says that the reference names
	// a manifest list.
	ConfigDigest verdict.Digest `json:"configDigest"`
	List         bool           `json:"manifestList"`
	Architecture string         `json:"architecture"`
	// Facts are those of an OS image; others have none.
	Facts  map[FactName]Fact `json:"facts"`
	Layers []LayerInfo       `json:"layers"`
	// Bytes is the size of all layers as they are fetched.
	Bytes  int64             `json:"bytes"`
	Labels map[string]string `json:"labels"`
	// Components are the packages that the layers' annotations name, without versions;
	// null where they have none.
	Components []string `json:"components"`
	// Packages are all that are installed; null where they are not known.
	Packages []verdict.Package `json:"packages"`
	// PackagesSource is where they were read, PackagesUnknown why they are not
	// known.
	PackagesSource  Source `json:"packagesSource,omitempty"`
	PackagesUnknown string `json:"packagesUnknown,omitempty"`
	// Offer is what can be layered on it; null where the image itself says
	// nothing of that.
	Offer *Offer `json:"extensions"`
}

// A LayerInfo is a layer as the manifest names it.
type LayerInfo struct {
	Digest verdict.Digest `json:"digest"`
	// DiffID is the digest of the uncompressed layer.
	DiffID verdict.Digest `json:"diffID,omitempty"`
	// Bytes is the size as it is fetched.
	Bytes int64 `json:"bytes"`
	// Derived says that it follows the encapsulated commit.
	Derived bool `json:"derived"`
}

// An Offer is what an image offers for layering.
type Offer struct {
	// Names are the names of extensions that the label com.coreos.os-extensions
	// has; null where there is no such label.
	Names []string `json:"names"`
	// Packages are the packages; null where they were not read, and Unknown says
	// why.
	Packages []verdict.Package `json:"packages"`
	Unknown  string            `json:"unknown,omitempty"`
}

const (
	labelExtensionNames  = "com.coreos.os-extensions"
	labelExtensionsImage = "io.openshift.os.extensions"
	labelRPM             = "com.coreos.rpm."
	// labelReleaseImage is what `oc adm release new` sets.
	labelReleaseImage = "io.openshift.release"
	labelVersions     = "io.openshift.build.versions"
	labelDisplayNames = "io.openshift.build.version-display-names"
	labelOSName       = "com.coreos.osname"
	// maxCheap bounds what is read without being asked to, in bytes as fetched:
	// the last layer of an extensions image, which since 4.19 has the list and
	// before is one of 300 MiB; the whole of an image for its rpm database.
	maxCheap = 2 << 20
)

// InspectOptions say how much may be read.
type InspectOptions struct {
	// Full also reads what costs a layer or the whole image: the rpm database, the
	// packages of extensions images before 4.19, the commit of machine-os-content.
	Full bool
	// Offer reads the packages of an extensions image whatever that costs.
	Offer bool
	// Extensions says that it is an extensions image; before 4.22 no label does.
	Extensions bool
}

// Inspect tells what the image is and has. Parts that do not answer are unknown
// facts; the error is for an image of which not even the config could be read, or
// for a registry that stopped answering.
func (img *Image) Inspect(ctx context.Context, opts InspectOptions) (*Inspection, error) {
	m, err := img.Manifest(ctx)
	if err != nil {
		return nil, err
	}
	c, err := img.Config(ctx)
	if err != nil {
		return nil, err
	}
	i := &Inspection{Image: img.name, Digest: m.Digest, ConfigDigest: m.ConfigDigest, List: img.isList(), Components: m.Components, Architecture: c.Architecture, Facts: map[FactName]Fact{}, Labels: c.Labels, Bytes: layerBytes(m)}
	i.Kind = kindOfImage(m, c)
	if opts.Extensions {
		i.Kind = KindExtensions
	}
	if err := img.inspectOffer(ctx, opts, m, c, i); err != nil {
		return nil, err
	}
	i.layers(m, c)
	if i.Kind == KindUntold && opts.Full {
		i.Kind = KindOS
	}
	if i.Kind != KindOS {
		return i, nil
	}
	if err := img.inspectCommit(ctx, opts, m, c, i); err != nil {
		return nil, err
	}
	list, err := img.Packages(ctx, opts.Full)
	_, unknown := errors.AsType[*PackagesUnknownError](err)
	switch {
	case err != nil && (ctx.Err() != nil || !unknown):
		return nil, err
	case unknown:
		i.PackagesUnknown = err.Error()
	default:
		i.Packages, i.PackagesSource = list.Packages, list.Source
	}
	i.packageFacts(c)
	i.nameFacts(c)
	return i, nil
}

// isList reports whether what was fetched first was a manifest list.
func (img *Image) isList() bool {
	img.mu.Lock()
	defer img.mu.Unlock()
	return img.top.done && img.top.err == nil && img.top.value.digest != img.instance.value.digest
}

// unknownText is an error without the image's name, which the reader knows.
func unknownText(err error) string {
	if e, ok := err.(*Error); ok { //nolint:errorlint // the outermost error's own text
		return e.Message
	}
	return err.Error()
}

func kindOfImage(m Manifest, c format.ImageConfig) Kind {
	form, _ := encapsulationOf(m, c)
	switch {
	case c.Labels[labelReleaseImage] != "":
		return KindRelease
	case c.Labels[labelExtensionsImage] != "":
		return KindExtensions
	case form == nativeEncapsulation || form == legacyEncapsulation && c.Labels[LabelLegacyCommit] != "":
		return KindOS
	case form == noEncapsulation:
		return KindOther
	case form == legacyEncapsulation:
		return KindUntold
	}
	return KindOS
}

func (i *Inspection) layers(m Manifest, c format.ImageConfig) {
	derived := derivedLayers(c, verdict.Known(m))
	n, ok := derived.Get()
	for at, l := range m.Layers {
		layer := LayerInfo{Digest: l.Digest, Bytes: l.Size, Derived: ok && at >= len(m.Layers)-n}
		if len(c.DiffIDs) == len(m.Layers) {
			layer.DiffID = c.DiffIDs[at]
		}
		i.Layers = append(i.Layers, layer)
	}
	switch {
	case i.Kind != KindOS:
	case ok:
		i.Facts[FactDerived] = Fact{Value: strconv.Itoa(n), Source: SourceConfig}
	default:
		i.Facts[FactDerived] = Fact{Unknown: derived.Why()}
	}
}

// inspectCommit sets the inner commit and how it is known.
func (img *Image) inspectCommit(ctx context.Context, opts InspectOptions, m Manifest, c format.ImageConfig, i *Inspection) error {
	label := c.Labels[LabelCommit]
	if label == "" {
		label = c.Labels[LabelLegacyCommit]
	}
	if !opts.Full && !headHasCommit(m, c) && layerBytes(m) > maxForRebuild {
		why := fmt.Sprintf("finding it costs up to %d MB, which --full allows", layerBytes(m)/1e6)
		if isChecksum(label) {
			i.Facts[FactInnerCommit] = Fact{Value: label, Source: SourceLabel}
			i.Facts[FactCommitSource] = Fact{Value: string(verdict.CommitFromLabel), Source: SourceLabel}
			return nil
		}
		i.Facts[FactInnerCommit], i.Facts[FactCommitSource] = Fact{Unknown: why}, Fact{Unknown: why}
		return nil
	}
	commit, err := img.InnerCommit(ctx, "")
	if err != nil {
		if ctx.Err() != nil || passes(err) {
			return err
		}
		i.Facts[FactInnerCommit] = Fact{Unknown: unknownText(err)}
		i.Facts[FactCommitSource] = Fact{Unknown: unknownText(err)}
		return nil
	}
	i.Facts[FactInnerCommit] = Fact{Value: string(commit.Checksum), Source: SourceCommit}
	i.Facts[FactCommitSource] = Fact{Value: string(commit.Source), Source: SourceCommit}
	return nil
}

// inspectOffer reads what can be layered.
func (img *Image) inspectOffer(ctx context.Context, opts InspectOptions, m Manifest, c format.ImageConfig, i *Inspection) error {
	var names []string
	if label, ok := c.Labels[labelExtensionNames]; ok {
		for name := range strings.SplitSeq(label, ";") {
			if name != "" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
	}
	last := m.Layers[len(m.Layers)-1].Size
	legacy := i.Kind == KindOS && c.Labels[LabelLegacyCommit] != "" && nativeKey(c.Labels) == ""
	switch {
	case i.Kind == KindExtensions, legacy:
	case (i.Kind == KindOther || i.Kind == KindUntold) && last <= maxCheap:
		// One that does not say what it is, with the list that one has.
		packages, err := img.Extensions(ctx)
		if ctx.Err() != nil || err != nil && passes(err) && CodeOf(err) != NoExtensions {
			return err
		}
		if err == nil {
			i.Kind, i.Offer = KindExtensions, &Offer{Packages: packages}
		}
		return nil
	default:
		return nil
	}
	i.Offer = &Offer{Names: names}
	if !opts.Full && !opts.Offer && last > maxCheap {
		i.Offer.Unknown = fmt.Sprintf("reading the packages costs up to %d MB, which --full allows", layerBytes(m)/1e6)
		return nil
	}
	packages, err := img.Extensions(ctx)
	switch {
	case ctx.Err() != nil, err != nil && passes(err) && CodeOf(err) != NoExtensions:
		return err
	case err != nil:
		i.Offer.Unknown = unknownText(err)
	default:
		i.Offer.Packages = packages
	}
	return nil
}

// factPackages are the packages whose version a fact is, in the order of
// preference.
func factPackages() map[FactName][]string {
	return map[FactName][]string{
		FactKernel: {"kernel-core", "kernel"}, FactKernelRT: {"kernel-rt-core", "kernel-rt"}, FactKernel64K: {"kernel-64k-core", "kernel-64k"},
		FactGlibc: {"glibc"}, FactSystemd: {"systemd"}, FactCRIO: {"cri-o"},
		FactKubelet: {"openshift-kubelet", "openshift-hyperkube", "kubernetes-kubelet", "kubernetes-node", "kubelet"},
		FactOSTree:  {"ostree"}, FactRPMOSTree: {"rpm-ostree"},
	}
}

// packageFacts sets the versions of packages: from the list, else from the
// labels that a build without derived layers has.
func (i *Inspection) packageFacts(c format.ImageConfig) {
	installed := map[string][]string{}
	for _, p := range i.Packages {
		installed[p.Name] = append(installed[p.Name], p.EVRA)
	}
	for name, packages := range factPackages() {
		fact := Fact{Absent: true, Source: i.PackagesSource}
		if i.Packages == nil {
			fact = i.labelFact(c, packages)
		}
		for _, p := range packages {
			if all := i.ofArchitecture(installed[p]); len(all) == 1 {
				fact = Fact{Value: all[0], Source: i.PackagesSource}
				break
			} else if len(all) > 1 {
				fact = Fact{Unknown: p + " is installed more than once: " + strings.Join(all, ", ")}
				break
			}
		}
		i.Facts[name] = fact
	}
}

// ofArchitecture are the versions of a package for the image's own architecture, or
// all where none is: an x86_64 image may have libraries for i686 too.
func (i *Inspection) ofArchitecture(versions []string) []string {
	rpm := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[i.Architecture]
	if rpm == "" {
		rpm = i.Architecture
	}
	own := slices.DeleteFunc(slices.Clone(versions), func(v string) bool { return !strings.HasSuffix(v, "."+rpm) })
	if len(own) == 0 {
		return versions
	}
	return own
}

// labelFact is a package's version as a label has it.
func (i *Inspection) labelFact(c format.ImageConfig, packages []string) Fact {
	if i.Facts[FactDerived].Value == "0" {
		for _, p := range packages {
			if v := c.Labels[labelRPM+p]; v != "" {
				return Fact{Value: v, Source: SourceLabel}
			}
		}
		if packages[0] == "kernel-core" {
			// It has the form of uname -r.
			if v := c.Labels[LabelKernel]; v != "" && v != "true" && v != "1" {
				return Fact{Value: v, Source: SourceLabel}
			}
		}
	}
	for _, p := range packages {
		if slices.Contains(i.Components, p) {
			return Fact{Unknown: i.PackagesUnknown + "; the layers' annotations name " + p + ", without a version"}
		}
	}
	return Fact{Unknown: i.PackagesUnknown}
}
