package verdict

// A Digest is an OCI digest with its algorithm: "sha256:" and 64 lower-case
// hexadecimal digits. Readers validate it before it comes here.
type Digest string

// A Checksum is an ostree SHA-256 object checksum: 64 lower-case hexadecimal
// digits.
type Checksum string

// A Root names the root directory of an ostree commit: the checksums of its
// dirtree and dirmeta objects. Two commits with equal roots hold the same
// files, owners, modes and extended attributes.
type Root struct {
	DirTree Checksum `json:"dirTree"`
	DirMeta Checksum `json:"dirMeta"`
}

// CommitSource says how an inner ostree commit was learned. Only the sources
// documented as proving may carry a proof.
type CommitSource string

const (
	// CommitFromDeployment is the deployed commit itself, read from the
	// host's repository and hash-checked (a plain commit deployment). Proving.
	CommitFromDeployment CommitSource = "deployment"
	// CommitFromBlobRef is the commit behind the host's
	// ostree/container/blob ref for layer 0, hash-checked. Proving.
	CommitFromBlobRef CommitSource = "blob-ref"
	// CommitFromParent is the parent of the host's merge commit, present in
	// the repository and hash-checked. Proving.
	CommitFromParent CommitSource = "merge-parent"
	// CommitFromLayerHead is the commit object at the head of the image's
	// layer 0, hash-checked and equal to the ostree.commit label of the
	// digest-verified config. Proving.
	CommitFromLayerHead CommitSource = "layer-head"
	// CommitFromLayer is the only commit object in a layer (of a
	// machine-os-content image: in all layers) that was read whole and matched
	// its digest. Proving.
	CommitFromLayer CommitSource = "layer"
	// CommitFromLegacyRepo is the commit object in /srv/repo of a
	// machine-os-content image, hash-checked and named by the label
	// com.coreos.ostree-commit of the digest-verified config. Proving.
	CommitFromLegacyRepo CommitSource = "legacy-repo"
	// CommitFromLabel is the label alone. It proves nothing.
	CommitFromLabel CommitSource = "label"
)

// Proving reports whether a commit learned this way may carry a proof.
func (s CommitSource) Proving() bool {
	switch s {
	case CommitFromDeployment, CommitFromBlobRef, CommitFromParent, CommitFromLayerHead, CommitFromLayer, CommitFromLegacyRepo:
		return true
	case CommitFromLabel:
		return false
	}
	return false
}

// An InnerCommit is the ostree commit that an OS image encapsulates, or that a
// plain deployment is.
type InnerCommit struct {
	Checksum Checksum     `json:"checksum"`
	Source   CommitSource `json:"source"`
	// Root is the commit's root, from the hash-checked commit object.
	Root Root `json:"root"`
	// Timestamp is the commit's own time in seconds since the epoch.
	Timestamp uint64 `json:"timestamp"`
}

// An Identity says what content an OS is. On the booted side it comes from the
// deployed commit, on the target side from the registry.
type Identity struct {
	// Architecture is the image's CPU architecture in Go's naming.
	Architecture Fact[string] `json:"architecture"`
	// Version is for show only; it never proves anything.
	Version string `json:"version"`
	// ManifestDigest is the digest of the manifest for one architecture
	// (never of a manifest list).
	ManifestDigest Fact[Digest] `json:"manifestDigest"`
	// ConfigDigest is the digest of the image config (the image ID).
	ConfigDigest Fact[Digest] `json:"configDigest"`
	// DiffIDs are the digests of the uncompressed layers, in order.
	DiffIDs Fact[[]Digest] `json:"diffIDs"`
	// Layers is the number of layers in the manifest.
	Layers Fact[int] `json:"layers"`
	// FinalDiffID is the label ostree.final-diffid; known and empty where the
	// image has no such label.
	FinalDiffID Fact[Digest] `json:"finalDiffID"`
	// DerivedLayers counts the layers after ostree.final-diffid; a plain
	// commit deployment has none.
	DerivedLayers Fact[int] `json:"derivedLayers"`
	// InnerCommit is the encapsulated ostree commit.
	InnerCommit Fact[InnerCommit] `json:"innerCommit"`
	// KernelRelease is the label or metadata key ostree.linux, for the cost
	// forecast only.
	KernelRelease string `json:"kernelRelease"`
}

// UnknownIdentity has every fact unknown for the same reason.
func UnknownIdentity(why string) Identity {
	return Identity{
		Architecture:   Unknown[string](why),
		ManifestDigest: Unknown[Digest](why),
		ConfigDigest:   Unknown[Digest](why),
		DiffIDs:        Unknown[[]Digest](why),
		Layers:         Unknown[int](why),
		FinalDiffID:    Unknown[Digest](why),
		DerivedLayers:  Unknown[int](why),
		InnerCommit:    Unknown[InnerCommit](why),
	}
}

// DeploymentKind says how the booted deployment came about.
type DeploymentKind string

const (
	// PlainCommit is a deployment of an ostree commit that no container image
	// made: its checksum is the inner commit.
	PlainCommit DeploymentKind = "commit"
	// ContainerImage is a deployment of a merge commit written by ostree-ext.
	ContainerImage DeploymentKind = "container"
	// ClientLayered is a deployment with packages layered or overridden by
	// rpm-ostree on this host.
	ClientLayered DeploymentKind = "layered"
)

// A Deployment is the state of the booted deployment beyond its content.
type Deployment struct {
	// Checksum is the deployed commit.
	Checksum Checksum `json:"checksum"`
	// Serial is the number behind the checksum in the deployment's name.
	Serial int `json:"serial"`
	// Stateroot is the deployment's operating system name.
	Stateroot string         `json:"stateroot"`
	Kind      DeploymentKind `json:"kind"`
	// Root is the root of the deployed (possibly merged or layered) commit;
	// the zero Root is not known.
	Root Root `json:"root"`
	// Timestamp is the deployed commit's time in seconds since the epoch.
	Timestamp uint64 `json:"timestamp"`
	// Divergences are all ways in which the running system may differ from
	// the deployed commit, or will differ after the next boot. Empty means
	// none, where Unseen is empty too: the readers have looked for every one.
	Divergences []Divergence `json:"divergences"`
	// Unseen says which divergences the reader could not look for (a saved
	// rpm-ostree status shows some only); empty where it looked for all.
	Unseen string `json:"unseen"`
	// RequestedPackages are the package names that the origin asks rpm-ostree
	// to layer; sorted.
	RequestedPackages []string `json:"requestedPackages"`
	// RequestedRemovals are the names of the base packages that the origin
	// asks rpm-ostree to leave out ([overrides] remove); sorted.
	RequestedRemovals []string `json:"requestedRemovals"`
	// LayeredPackages are the package names that the deployed commit was
	// really layered with (rpmostree.packages of the commit); sorted, empty
	// where nothing is layered.
	LayeredPackages []string `json:"layeredPackages"`
	// RemovedPackages are the names of the base packages that were really
	// left out of the deployed commit (rpmostree.removed-base-packages);
	// sorted.
	RemovedPackages []string `json:"removedPackages"`
	// Base is the commit beneath the layered packages; the zero Base where
	// Kind is not ClientLayered.
	Base Base `json:"base"`
}

// A Base is the commit that rpm-ostree layered packages on.
type Base struct {
	Checksum Checksum `json:"checksum"`
	// Kind is PlainCommit or ContainerImage.
	Kind DeploymentKind `json:"kind"`
	// Root is the base commit's root; the zero Root is not known.
	Root Root `json:"root"`
}

// A Package is an RPM package, installed or offered.
type Package struct {
	Name string `json:"name"`
	// EVRA is [epoch:]version-release.arch; an epoch of 0 is left out.
	EVRA string `json:"evra"`
}

// A DivergenceKind is a stable code.
type DivergenceKind string

// Ways in which a node is not, or will not stay, what its booted commit says.
const (
	NotDefault           DivergenceKind = "not-default"           // another deployment boots next
	Staged               DivergenceKind = "staged"                // /run/ostree/staged-deployment
	Unlocked             DivergenceKind = "unlocked"              // development, transient or hotfix overlay
	LiveApplied          DivergenceKind = "live-applied"          // rpm-ostree apply-live
	SoftRebooted         DivergenceKind = "soft-rebooted"         // the running root is not the one that the kernel booted
	SoftRebootPending    DivergenceKind = "soft-reboot-pending"   // /run/nextroot is prepared
	PackageOverride      DivergenceKind = "package-override"      // [overrides] in the origin, or replaced/removed packages in the commit
	InitramfsRegenerated DivergenceKind = "initramfs-regenerated" // regenerate-initramfs, initramfs-etc
	LocalAssembly        DivergenceKind = "local-assembly"        // cliwrap, modules, override-commit, unconfigured-state and other local changes
	CommitPartial        DivergenceKind = "commit-partial"        // state/<commit>.commitpartial exists
	OriginConflict       DivergenceKind = "origin-conflict"       // the origin names two identities
	SourcesDisagree      DivergenceKind = "sources-disagree"      // rpm-ostree and the sysroot say different things
)

// A Divergence is one such way, with a detail for a person.
type Divergence struct {
	Kind   DivergenceKind `json:"kind"`
	Detail string         `json:"detail"`
}

// NodePayload says whether the deployment's own tree holds what a cluster node
// needs to join.
type NodePayload struct {
	Kubelet bool `json:"kubelet"` // usr/bin/kubelet is a regular file in the deployed commit
	CRIO    bool `json:"crio"`    // usr/bin/crio likewise
}

// NetworkState says whether this boot still runs on NetworkManager state made
// in the initrd which the boot after a pivot would have cleaned away
// (NetworkManager-clean-initrd-state.service of the machine-config-operator).
type NetworkState struct {
	// Leftover is empty where nothing would have been cleaned, else it says
	// what: a device and its profile.
	Leftover string `json:"leftover"`
}

// Booted holds the facts of the host.
type Booted struct {
	// Architecture is the host's own, in Go's naming.
	Architecture Fact[string]     `json:"architecture"`
	Identity     Identity         `json:"identity"`
	Deployment   Fact[Deployment] `json:"deployment"`
	// DeploymentKernels are the kernel releases in the deployed commit's own
	// usr/lib/modules.
	DeploymentKernels Fact[[]string] `json:"deploymentKernels"`
	// RunningKernel is the release of the running kernel (uname -r).
	RunningKernel Fact[string] `json:"runningKernel"`
	// BootEntryOptions is the options line of the booted deployment's boot
	// loader entry.
	BootEntryOptions Fact[string] `json:"bootEntryOptions"`
	// CommandLine is /proc/cmdline.
	CommandLine Fact[string] `json:"commandLine"`
	// LegacyKernelArguments are the lines of /etc/pivot/kernel-args; known
	// and empty where there is no such file.
	LegacyKernelArguments Fact[[]string] `json:"legacyKernelArguments"`
	FIPS                  Fact[bool]     `json:"fips"`
	// ForceFile says whether /run/machine-config-daemon-force exists.
	ForceFile    Fact[bool]         `json:"forceFile"`
	NodePayload  Fact[NodePayload]  `json:"nodePayload"`
	NetworkState Fact[NetworkState] `json:"networkState"`
	// Machine is for the fast reboot alone.
	Machine Machine `json:"machine"`
	// Packages are the packages of the deployed commit.
	Packages Fact[[]Package] `json:"packages"`
	// BasePackages are those of the commit beneath layered packages. Asked
	// for only where Kind is ClientLayered.
	BasePackages Fact[[]Package] `json:"basePackages"`
	// Blobs are the digests of the image layers that the host's repository
	// already holds (ostree/container/blob refs); for the cost only.
	Blobs map[Digest]bool `json:"blobs"`
	// OriginReference is the pull spec that the MCD reads from the origin:
	// custom-url pivot://X as X, overridden by container-image-reference with
	// transport and signature prefix removed. It predicts the MCD and never
	// proves anything.
	OriginReference Fact[string] `json:"originReference"`
	// LegacyOriginReference is the same as the MCD before 4.15 reads it: of a
	// container-image-reference all that follows the first colon. Empty where
	// OriginReference is not known.
	LegacyOriginReference string `json:"legacyOriginReference"`
}

// A MachineConfig holds what the encapsulated MachineConfig asks for.
type MachineConfig struct {
	// Name is metadata.name, for show.
	Name string `json:"name"`
	// Release is the OpenShift release that the annotation release-image-version
	// names: "4.16.3". It predicts the MCD and never proves anything.
	Release string `json:"release"`
	// OSImageURL is the pull spec of the target, verbatim.
	OSImageURL string `json:"osImageURL"`
	// Digest pins the target; empty where osImageURL is a tag.
	Digest Digest `json:"digest"`
	// KernelArguments are the entries of spec.kernelArguments, verbatim.
	KernelArguments []string `json:"kernelArguments"`
	// KernelType is canonical: "default", "realtime", "64k-pages" or a value
	// that this program does not know.
	KernelType string `json:"kernelType"`
	// KernelTypeSets are the package replacements that KernelType has stood
	// for, newest first; none for a type that no release knows.
	KernelTypeSets []KernelPackageSet `json:"kernelTypeSets"`
	// KernelTypePackages are the packages that any kernel type layers.
	KernelTypePackages []string `json:"kernelTypePackages"`
	Extensions         []string `json:"extensions"`
	// ExtensionSets holds for each of Extensions the package sets that the
	// name has stood for, newest first; none for a name that no release knows.
	ExtensionSets map[string][]PackageSet `json:"extensionSets"`
	FIPS          bool                    `json:"fips"`
	// ExtensionsImage is spec.baseOSExtensionsContainerImage.
	ExtensionsImage string `json:"extensionsImage"`
	// Foreign lists what an encapsulated MachineConfig never has: Ignition
	// files, units, users and other sections, each named.
	Foreign []string `json:"foreign"`
	// LayeringMarks names the annotations of on-cluster layering that are
	// set although osImageURL is not the layered image that they name.
	LayeringMarks []string `json:"layeringMarks"`
	// LayeredImage is the image that the annotation ocl-osimageurl names,
	// whether or not it is osImageURL; for the prediction of the MCD.
	LayeredImage string `json:"layeredImage"`
}

// A ReleaseRange is a run of OpenShift releases: from Since up to Before, which
// itself is not part of it. Both are written "4.14".
type ReleaseRange struct {
	Since  string `json:"since"`
	Before string `json:"before"`
}

// A PackageSet is what one release line of the machine-config-operator layers
// for an extension.
type PackageSet struct {
	// Packages are RPM names, sorted.
	Packages []string     `json:"packages"`
	Releases ReleaseRange `json:"releases"`
}

// A KernelPackageSet is how one release line of the daemon replaces the kernel:
// rpm-ostree override remove REMOVED... --install INSTALLED...
type KernelPackageSet struct {
	// Removed are the base packages that are removed, sorted.
	Removed []string `json:"removed"`
	// Installed are the packages that are layered instead, sorted.
	Installed []string     `json:"installed"`
	Releases  ReleaseRange `json:"releases"`
}

// SignatureRequirement is what the host's policy.json asks of the target.
type SignatureRequirement string

const (
	// SignatureNone accepts anything: insecureAcceptAnything.
	SignatureNone SignatureRequirement = "none"
	// SignatureReject refuses the image whatever its signature.
	SignatureReject SignatureRequirement = "reject"
	// SignatureRequired asks for a signature, not yet looked for.
	SignatureRequired SignatureRequirement = "required"
	// SignatureVerified means that a required signature was fetched and
	// verified.
	SignatureVerified SignatureRequirement = "verified"
	// SignatureInvalid means that it was fetched and refused.
	SignatureInvalid SignatureRequirement = "invalid"
)

// SignaturePolicy is a requirement and where it comes from, for show.
type SignaturePolicy struct {
	Requirement SignatureRequirement `json:"requirement"`
	// Scope is the policy.json scope that applies.
	Scope string `json:"scope"`
	// Detail is for a person.
	Detail string `json:"detail"`
}

// A Layer is a layer of the target's manifest.
type Layer struct {
	Digest Digest `json:"digest"`
	// Size is the compressed size in bytes.
	Size int64 `json:"size"`
	// Zstd says that the manifest calls it compressed with zstd; for a
	// warning only.
	Zstd bool `json:"zstd,omitempty"`
}

// Target holds the facts of the wanted OS.
type Target struct {
	MachineConfig Fact[MachineConfig] `json:"machineConfig"`
	Identity      Identity            `json:"identity"`
	// ManifestLayers are the target's layers; for the cost.
	ManifestLayers Fact[[]Layer] `json:"manifestLayers"`
	// SignaturePolicy is the host's policy for this image.
	SignaturePolicy Fact[SignaturePolicy] `json:"signaturePolicy"`
	// Extensions are the packages that the target's extensions image offers,
	// or the folder /extensions of a legacy image. A name may stand there more
	// than once.
	Extensions Fact[[]Package] `json:"extensions"`
}
