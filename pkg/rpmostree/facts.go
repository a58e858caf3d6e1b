package rpmostree

import (
	"fmt"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// unseen is what no status shows, whatever the version of rpm-ostree.
const unseen = "rpm-ostree status does not show a prepared or done soft reboot, partial commits, unknown keys of the origin, and with --booted not what boots next"

// Facts returns what a status alone tells of the booted system: Identity,
// Deployment and OriginReference, and as Architecture that of the booted
// image or commit. The others were not gathered. What
// rpm-ostree has read from a commit, digests and checksums, counts as known;
// roots of commits are not in a status. The Deployment always says what was
// not to be seen.
func (s *Status) Facts() verdict.Booted {
	d := s.Booted()
	id := d.identity()
	return verdict.Booted{
		Architecture:    d.architecture(id),
		Identity:        id,
		Deployment:      verdict.Known(s.deployment(d)),
		OriginReference: d.originReference(),
	}
}

func (s *Status) deployment(d *Deployment) verdict.Deployment {
	v := verdict.Deployment{
		Checksum:    d.Checksum,
		Serial:      d.Serial,
		Stateroot:   d.Stateroot,
		Kind:        d.kind(),
		Timestamp:   d.Timestamp,
		Divergences: append(s.bootOrder(d), d.divergences()...),
		Unseen:      unseen,
	}
	if len(d.Missing) > 0 {
		v.Unseen += "; this one lacks " + strings.Join(d.Missing, ", ")
	}
	v.RequestedPackages = set(d.RequestedPackages, d.RequestedLocal, d.RequestedFileOverride)
	v.RequestedRemovals = set(d.RequestedRemovals)
	v.LayeredPackages, v.RemovedPackages = set(d.Packages), set(d.Removals)
	if d.Layered {
		v.Base = verdict.Base{Checksum: d.BaseChecksum, Kind: d.baseKind()}
	}
	return v
}

// set joins lists that rpm-ostree keeps as sets, or writes in the order of a
// hash table.
func set(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

func (d *Deployment) kind() verdict.DeploymentKind {
	if d.Layered {
		return verdict.ClientLayered
	}
	return d.baseKind()
}

// baseKind is the kind of the commit below layered packages, or of the deployed
// one where none are layered.
func (d *Deployment) baseKind() verdict.DeploymentKind {
	if d.image() {
		return verdict.ContainerImage
	}
	return verdict.PlainCommit
}

// image reports whether a container image made the (base) commit. Metadata that
// name no image settle that none did, also where the origin names one: before
// v2022.16 rpm-ostree deployed the commit of a single-layer image as it was.
// Where the status lacks them, the reference leaves no plain commit for sure.
func (d *Deployment) image() bool {
	return d.Base.ofImage() || d.ContainerImageDigest != "" ||
		d.ContainerImageReference != "" && slices.Contains(d.Missing, keyBaseMetadata)
}

// bootOrder looks at the other deployments: rpm-ostree lists a staged one
// first, then the others as the boot loader has them.
func (s *Status) bootOrder(booted *Deployment) []verdict.Divergence {
	var out []verdict.Divergence
	first := true
	for i := range s.Deployments {
		o := &s.Deployments[i]
		if o.Staged {
			out = append(out, verdict.Divergence{Kind: verdict.Staged, Detail: o.ID()})
			continue
		}
		if first && !o.Booted {
			out = append(out, verdict.Divergence{Kind: verdict.NotDefault, Detail: o.ID() + " boots next"})
		}
		first = false
	}
	if s.Transaction {
		out = append(out, verdict.Divergence{Kind: verdict.Staged, Detail: "rpm-ostree was at work on a transaction"})
	}
	return out
}

func (d *Deployment) divergences() []verdict.Divergence {
	var out []verdict.Divergence
	add := func(when bool, kind verdict.DivergenceKind, detail string) {
		if when {
			out = append(out, verdict.Divergence{Kind: kind, Detail: detail})
		}
	}
	list := func(kind verdict.DivergenceKind, key string, words []string) {
		add(len(words) > 0, kind, key+": "+strings.Join(words, " "))
	}
	add(d.Unlocked != "" && d.Unlocked != "none", verdict.Unlocked, d.Unlocked)
	add(d.LiveReplaced != "", verdict.LiveApplied, "live-replaced: "+d.LiveReplaced)
	add(d.LiveInProgress != "", verdict.LiveApplied, "live-inprogress: "+d.LiveInProgress)
	for _, o := range d.Replacements {
		add(true, verdict.PackageOverride, o)
	}
	add(d.RegenerateInitramfs, verdict.InitramfsRegenerated, "regenerate-initramfs")
	list(verdict.InitramfsRegenerated, "initramfs-args", d.InitramfsArgs)
	list(verdict.InitramfsRegenerated, "initramfs-etc", d.InitramfsEtc)
	add(d.CLIWrap, verdict.LocalAssembly, "cliwrap")
	list(verdict.LocalAssembly, "modules", d.Modules)
	add(d.Origin != "" && d.ContainerImageReference != "", verdict.OriginConflict,
		"both origin and container-image-reference are set")
	return out
}

// architecture is what the booted system was built for.
func (d *Deployment) architecture(id verdict.Identity) verdict.Fact[string] {
	if d.image() {
		return id.Architecture
	}
	switch d.Base.BaseArch {
	case "x86_64":
		return verdict.Known("amd64")
	case "aarch64":
		return verdict.Known("arm64")
	case "ppc64le", "s390x":
		return verdict.Known(d.Base.BaseArch)
	}
	return verdict.Unknown[string]("base-commit-meta names no architecture that is known")
}

// originReference follows the machine-config-daemon's GetBootedOSImageURL
// (pkg/daemon/rpm-ostree.go).
func (d *Deployment) originReference() verdict.Fact[string] {
	if d.ContainerImageReference != "" {
		r, err := format.ParseImageReference(d.ContainerImageReference)
		if err != nil {
			return verdict.Unknown[string]("container-image-reference: " + err.Error())
		}
		return verdict.Known(r.PullSpec())
	}
	spec, ok := strings.CutPrefix(d.CustomURL, "pivot://")
	if !ok {
		return verdict.Known("")
	}
	return verdict.Known(spec)
}

// identity says what content the deployment is, below packages layered on
// this host.
func (d *Deployment) identity() verdict.Identity {
	if d.image() {
		return d.imageIdentity()
	}
	id := verdict.UnknownIdentity("the deployment was not made from a container image")
	id.Version, id.KernelRelease = d.Base.Version, d.Base.KernelRelease
	if id.Version == "" {
		id.Version = d.Version
	}
	id.DerivedLayers = verdict.Known(0)
	inner := verdict.InnerCommit{Checksum: d.Checksum, Source: verdict.CommitFromDeployment, Timestamp: d.Timestamp}
	if d.Layered {
		inner = verdict.InnerCommit{Checksum: d.BaseChecksum, Source: verdict.CommitFromParent}
	}
	id.InnerCommit = verdict.Known(inner)
	if inner.Checksum == "" {
		id.InnerCommit = verdict.Unknown[verdict.InnerCommit]("packages are layered, but there is no base-checksum")
	}
	return id
}

func (d *Deployment) imageIdentity() verdict.Identity {
	id := verdict.UnknownIdentity("base-commit-meta has no ostree.container.image-config")
	id.Version, id.KernelRelease = d.Version, d.Base.KernelRelease
	id.ManifestDigest = d.manifestDigest()
	layers := -1
	switch manifest, err := format.ParseStoredManifest(d.Base.Manifest); {
	case d.Base.Manifest == nil:
		id.ConfigDigest = verdict.Unknown[verdict.Digest]("base-commit-meta has no ostree.manifest")
		id.Layers = verdict.Unknown[int](id.ConfigDigest.Why())
	case err != nil:
		id.ConfigDigest = verdict.Unknown[verdict.Digest]("base-commit-meta: ostree.manifest: " + err.Error())
		id.Layers = verdict.Unknown[int](id.ConfigDigest.Why())
	default:
		layers = len(manifest.Layers)
		id.ConfigDigest, id.Layers = verdict.Known(manifest.Config), verdict.Known(layers)
	}
	if d.Base.Config == nil {
		return id
	}
	config, err := format.ParseImageConfig(d.Base.Config)
	if err != nil {
		why := verdict.UnknownIdentity("base-commit-meta: ostree.container.image-config: " + err.Error())
		id.Architecture, id.DiffIDs = why.Architecture, why.DiffIDs
		id.FinalDiffID, id.DerivedLayers, id.InnerCommit = why.FinalDiffID, why.DerivedLayers, why.InnerCommit
		return id
	}
	if v := config.Version(); v != "" {
		id.Version = v
	}
	if id.KernelRelease == "" {
		id.KernelRelease = config.Labels["ostree.linux"]
	}
	id.Architecture, id.DiffIDs = verdict.Known(config.Architecture), verdict.Known(config.DiffIDs)
	id.FinalDiffID = config.FinalDiffID()
	id.DerivedLayers = verdict.Unknown[int]("the number of layers is not known: " + id.Layers.Why())
	if layers >= 0 {
		id.DerivedLayers = config.DerivedLayers(layers)
	}
	id.InnerCommit = labelledCommit(config)
	return id
}

// manifestDigest is known where rpm-ostree's reading of the commit and the
// commit's own metadata do not contradict each other.
func (d *Deployment) manifestDigest() verdict.Fact[verdict.Digest] {
	switch read, stored := d.ContainerImageDigest, d.Base.ManifestDigest; {
	case read == "" && stored == "":
		return verdict.Unknown[verdict.Digest]("container-image-reference-digest and ostree.manifest-digest are missing")
	case read == "":
		return verdict.Known(stored)
	case stored == "" || stored == read:
		return verdict.Known(read)
	default:
		return verdict.Unknown[verdict.Digest](fmt.Sprintf("container-image-reference-digest is %s, but ostree.manifest-digest is %s", read, stored))
	}
}

// labelledCommit is the commit that the label names, which proves nothing: a
// status does not show the commit that layer 0 was imported as.
func labelledCommit(config format.ImageConfig) verdict.Fact[verdict.InnerCommit] {
	c, err := format.ParseChecksum(config.Labels["ostree.commit"])
	if err != nil {
		return verdict.Unknown[verdict.InnerCommit]("a status does not show the ostree commit that the image encapsulates")
	}
	return verdict.Known(verdict.InnerCommit{Checksum: c, Source: verdict.CommitFromLabel})
}
