// Package forecast says what the next node of each source of new nodes will do on
// its first boot: skip the pivot, pivot, or worse, and which one change would make
// it skip. It is pure: facts in, forecasts out.
//
// A skip is forecast only from content that is known to be equal, or from a flow
// that writes the node image itself; never from a version string.
package forecast

import (
	"fmt"
	"strings"
)

// An Outcome is what a new node will do; a stable code. They are in the order from
// best to worst.
type Outcome string

// The outcomes.
const (
	Skip            Outcome = "skip"              // one boot
	PivotLayers     Outcome = "pivot-layers"      // the base is there: layers are pulled, and a reboot
	PivotFull       Outcome = "pivot-full"        // all is pulled, and a reboot
	PivotCrossMajor Outcome = "pivot-cross-major" // as that, to another major version of RHEL
	DoubleReboot    Outcome = "double-reboot"     // the old OS cannot pivot by itself: two reboots
	Impossible      Outcome = "impossible"        // it is not supported to join
	Unknown         Outcome = "unknown"           // what would tell is not known
)

// A Confidence says what an outcome rests on.
type Confidence string

// The confidences.
const (
	Exact    Confidence = "exact"    // digests or commits
	Inferred Confidence = "inferred" // versions, or what a flow is known to do
	NotKnown Confidence = "unknown"
)

// A Reason is why; a stable code.
type Reason string

// The reasons.
const (
	ReasonSameContent     Reason = "same-content"         // digests or commits are equal
	ReasonNodeImage       Reason = "node-image-on-disk"   // the flow writes the node image
	ReasonSameBase        Reason = "same-base"            // the base is the same, layers follow it
	ReasonOtherContent    Reason = "other-content"        // digests or commits differ
	ReasonOtherVersion    Reason = "other-version"        // another version of the OS
	ReasonNoPayload       Reason = "no-node-payload"      // since 4.19 disk images have no kubelet and CRI-O
	ReasonSameVersion     Reason = "same-version"         // the version is equal, which proves nothing
	ReasonOtherMajor      Reason = "other-rhel-major"     // another major version of RHEL
	ReasonOldRPMOSTree    Reason = "old-rpm-ostree"       // no container support (before 4.12)
	ReasonOldSkopeo       Reason = "old-skopeo"           // skopeo before 1.22.2 and a manifest list
	ReasonBelowFloor      Reason = "below-skew-floor"     // older than the machine-config-operator allows
	ReasonExtensions      Reason = "extensions"           // the MachineConfig wants extensions
	ReasonKernelType      Reason = "kernel-type"          // another kernel than the default one
	ReasonKernelArguments Reason = "kernel-arguments"     // arguments that the disk does not have
	ReasonLayeredPool     Reason = "on-cluster-layering"  // the pool is layered on the cluster
	ReasonNoTarget        Reason = "target-unknown"       // what the pool wants is not among the objects
	ReasonUnread          Reason = "configuration-unread" // manifests that the cluster gets were not read
	ReasonNoBootimage     Reason = "bootimage-unknown"    // what it boots from is not known
)

// A Flow is how the disk of a new node is written.
type Flow string

// The flows.
const (
	// FlowBootimage boots or writes a stock CoreOS image.
	FlowBootimage Flow = "bootimage"
	// FlowNodeImage writes the release's node image: the assisted and agent
	// installers since 4.15 (skipMcoReboot in assisted-installer).
	FlowNodeImage Flow = "node-image"
	// FlowCustomImage writes an image of the administrator's own.
	FlowCustomImage Flow = "custom-image"
	// FlowUnknown is not told by the objects.
	FlowUnknown Flow = "unknown"
)

// A Source is where new nodes come from.
type Source struct {
	// Kind, Namespace and Name are the object's; File is where it was read.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	File      string `json:"file"`
	// Pool is the MachineConfigPool or NodePool that its nodes join; empty where
	// it is not known.
	Pool     string `json:"pool"`
	Platform string `json:"platform,omitempty"`
	Flow     Flow   `json:"flow"`
	// Bootimage is what it boots from, if it says.
	Bootimage Bootimage `json:"bootimage"`
	// Notes are for a person.
	Notes []string `json:"notes,omitempty"`
}

// A Bootimage is a disk image, as far as it is known.
type Bootimage struct {
	// ID is its name at the source: an AMI, an address, a template.
	ID string `json:"id,omitempty"`
	// Version is that of the OS, such as 416.94.202410160352-0 or 9.6.20251212-1;
	// never proof.
	Version string `json:"version,omitempty"`
	// Architecture is in Go's naming.
	Architecture string `json:"architecture,omitempty"`
	// Facts are those that are known of its content.
	Facts *Content `json:"content,omitempty"`
}

// A Forecast is what the next node of a source will do.
type Forecast struct {
	Source     Source     `json:"source"`
	Target     *Target    `json:"target"`
	Outcome    Outcome    `json:"outcome"`
	Reason     Reason     `json:"reason"`
	Confidence Confidence `json:"confidence"`
	// Why says it in words.
	Why string `json:"why"`
	// Change is the one change that would make it skip; empty for a skip and where
	// none is known.
	Change string `json:"change,omitempty"`
	// Bytes are what it will pull; nil where that is not known.
	Bytes *int64 `json:"bytes"`
	// UserspaceOnly says whether the kernel stays the same; nil where that is not
	// known.
	UserspaceOnly *bool `json:"userspaceOnly"`
}

// floor is the oldest OS that may join (the limits of the skew enforcement in
// pkg/controller/common/constants.go of the machine-config-operator).
var floorRHEL = version{9, 2}

// Of forecasts one source. The target is nil where the pool's is not known.
func Of(s Source, t *Target) Forecast {
	if t != nil && t.Image != nil && s.Bootimage.Architecture != "" && t.Image.Architecture != "" && s.Bootimage.Architecture != t.Image.Architecture {
		other := *t
		other.Image = nil // what is in an image for other machines tells nothing
		t = &other
	}
	f := Forecast{Source: s, Target: t, Outcome: Unknown, Confidence: NotKnown}
	switch {
	case t == nil:
		f.Reason, f.Why = ReasonNoTarget, "what pool "+quoted(s.Pool)+" wants is not among the objects that were read"
		f.Change = "add the MachineConfigPool and its rendered MachineConfig"
		return f
	case s.Flow == FlowNodeImage:
		f.nodeImage()
	case s.Flow == FlowUnknown, s.Bootimage.Version == "" && s.Bootimage.Facts == nil:
		f.Reason, f.Why = ReasonNoBootimage, "what its nodes boot from is not known"
		if s.Bootimage.ID != "" {
			f.Why = "what is in " + s.Bootimage.ID + " is not known"
		}
		f.Change = tellContent
	default:
		f.bootimage()
	}
	f.cost()
	return f
}

const (
	tellContent = "say what is in it: --bootimages FILE, or a record of a node that it made"
	writeNode   = "write the node image to the disk: by the assisted or agent installer (4.15 and later), or a raw image made of it; oneboot disk check says whether such an image boots once"
)

func quoted(s string) string {
	if s == "" {
		return "of its nodes"
	}
	return s
}

// nodeImage is a flow that writes the node image: only what comes upon it reboots.
func (f *Forecast) nodeImage() {
	f.Confidence = Inferred
	if f.blocked(false) {
		return
	}
	if unread := f.Target.Unread; len(unread) > 0 {
		f.set(Unknown, ReasonUnread, NotKnown, "what the cluster gets besides its release was not read: "+strings.Join(unread, ", "), "add it to the objects: extensions or a kernel type in it cost a reboot")
		return
	}
	f.Outcome, f.Reason, f.Why = Skip, ReasonNodeImage, "the installer writes the node image to the disk, under the name that the MachineConfig has"
}

// blocked sets the outcome where something beside the content makes the node
// reboot. Arguments on the command line are given to an installer that writes the
// node image.
func (f *Forecast) blocked(arguments bool) bool {
	t := f.Target
	set := func(r Reason, why, change string) bool {
		f.Outcome, f.Reason, f.Why, f.Change = PivotLayers, r, why, change
		return true
	}
	switch {
	case t.Layered:
		return set(ReasonLayeredPool, "the pool is layered on the cluster: its nodes always pivot to the layered image", "build the image outside of the cluster, and name it as osImageURL")
	case len(t.Extensions) > 0:
		return set(ReasonExtensions, "the MachineConfig wants extensions, which are layered on the first boot: "+strings.Join(t.Extensions, ", "),
			"have the extensions in the image, and none in the MachineConfig")
	case t.KernelType != "" && t.KernelType != "default":
		return set(ReasonKernelType, "the MachineConfig wants the kernel type "+t.KernelType, "have that kernel in the image, and no kernelType in the MachineConfig")
	case arguments && len(t.KernelArguments) > 0:
		return set(ReasonKernelArguments, "the MachineConfig wants kernel arguments, which the disk does not have: "+strings.Join(t.KernelArguments, " "),
			"have the arguments in the disk's boot entry, in the MachineConfig's order")
	}
	return false
}

// bootimage is a disk image: by its content where that is known, else by its
// version.
func (f *Forecast) bootimage() {
	b, t := f.Source.Bootimage, f.Target
	have, haveOK := rhelOf(b.Version)
	want, wantOK := f.wantedRHEL()
	switch {
	case haveOK && have.before(version{8, 6}) && atLeast(t.Release, version{4, 13}):
		// Of OpenShift before 4.12, whose daemon knows no container images.
		f.set(Impossible, ReasonBelowFloor, Inferred, "the disk image is of RHEL "+have.String()+", older than the machine-config-operator supports", "use a disk image of RHEL "+floorRHEL.String()+" or later")
		return
	case haveOK && have.before(version{9, 0}) && atLeast(t.Release, version{4, 13}):
		f.set(DoubleReboot, ReasonOldRPMOSTree, Inferred, "the disk image is of RHEL "+have.String()+": the daemon has to update rpm-ostree first, and boots twice", "use a disk image of RHEL "+floorRHEL.String()+" or later")
		return
	case haveOK && have.before(floorRHEL) && atLeast(t.Release, version{4, 22}):
		f.set(Impossible, ReasonBelowFloor, Inferred, "the disk image is of RHEL "+have.String()+", below the machine-config-operator's floor of "+floorRHEL.String(), "use a disk image of RHEL "+floorRHEL.String()+" or later")
		return
	case haveOK && wantOK && have.major != want.major:
		f.set(PivotCrossMajor, ReasonOtherMajor, Inferred, fmt.Sprintf("the disk image is of RHEL %d and the OS image of RHEL %d", have.major, want.major), fmt.Sprintf("use a disk image of RHEL %d; to skip, %s", want.major, writeNode))
		return
	case t.Image != nil && t.Image.List && atLeast(t.Release, version{4, 22}) && haveOK && have.before(version{9, 8}):
		// skopeoSupportsMultiArchSigstore in pkg/daemon/update.go.
		f.set(DoubleReboot, ReasonOldSkopeo, Inferred, "the OS image is a manifest list, and the skopeo of RHEL "+have.String()+" is older than the daemon wants for one", "use a disk image of RHEL 9.8 or later, or a release for one architecture")
		return
	}
	if f.byContent() {
		return
	}
	f.byVersion()
}

func (f *Forecast) set(o Outcome, r Reason, c Confidence, why, change string) {
	f.Outcome, f.Reason, f.Confidence, f.Why, f.Change = o, r, c, why, change
}

// byContent compares what is known of both.
func (f *Forecast) byContent() bool {
	have, image := f.Source.Bootimage.Facts, f.Target.Image
	if have == nil {
		return false
	}
	digest := digestOf(f.Target.OSImage)
	same := have.ManifestDigest != "" && have.ManifestDigest == digest
	if image != nil {
		same = same || have.ManifestDigest != "" && have.ManifestDigest == image.ManifestDigest ||
			have.ConfigDigest != "" && have.ConfigDigest == image.ConfigDigest ||
			have.Commit != "" && have.Commit == image.Commit && !have.Derived && !image.Derived
	}
	switch {
	case same && f.blocked(true):
		f.Confidence = Exact
	case same:
		f.set(Skip, ReasonSameContent, Exact, "the disk image has the content of the OS image; oneboot proves it on the first boot", "")
	case image == nil:
		return false
	case have.Commit != "" && have.Commit == image.Commit && image.Derived && !have.Derived:
		f.set(PivotLayers, ReasonSameBase, Exact, fmt.Sprintf("the disk image has the base of the OS image, and %d layers follow it", image.DerivedLayers), writeNode)
	case have.Commit != "" && image.Commit != "", have.ConfigDigest != "" && image.ConfigDigest != "":
		f.set(PivotFull, ReasonOtherContent, Exact, "the disk image has other content than the OS image", f.better())
	default:
		return false
	}
	return true
}

// byVersion infers from versions what can be inferred; a skip never can.
func (f *Forecast) byVersion() {
	b, t := f.Source.Bootimage, f.Target
	layered := atLeast(t.Release, version{4, 19})
	same := b.Version != "" && b.Version == t.Version
	switch {
	case same && layered:
		f.set(PivotLayers, ReasonSameBase, Inferred, "the versions are equal: since 4.19 that is the base's, and the node's layers follow it", writeNode)
	case same:
		f.set(Unknown, ReasonSameVersion, NotKnown, "the versions are equal, which proves nothing: the content is not known", tellContent)
	case layered:
		f.set(PivotFull, ReasonNoPayload, Inferred, "since 4.19 a stock disk image has no kubelet and CRI-O, and this one is of another version", writeNode)
	case t.OSImage == "":
		f.set(Unknown, ReasonNoTarget, NotKnown, "the objects of the cluster that its nodes join were not read", "add the cluster's MachineConfigPools and MachineConfigs")
	case t.Version == "":
		f.set(Unknown, ReasonOtherVersion, NotKnown, "the version of the OS image is not known", "ask the registry: leave out --offline")
	default:
		f.set(PivotFull, ReasonOtherVersion, Inferred, "the disk image is "+b.Version+", the OS image "+t.Version, f.better())
	}
}

// better is the change for a disk image of other content.
func (f *Forecast) better() string {
	if atLeast(f.Target.Release, version{4, 19}) || f.Target.Version == "" {
		return writeNode
	}
	return "use the disk image " + f.Target.Version + "; oneboot proves then that it is the OS image"
}

// cost fills in what will be pulled.
func (f *Forecast) cost() {
	if f.Outcome == Skip {
		none := int64(0)
		f.Bytes = &none
		return
	}
	if f.Target == nil || f.Target.Image == nil {
		return
	}
	image := f.Target.Image
	switch f.Outcome {
	case PivotFull, PivotCrossMajor, DoubleReboot:
		f.Bytes = &image.Bytes
	case PivotLayers:
		if f.Reason == ReasonSameBase {
			f.Bytes = &image.DerivedBytes
		}
	}
	if have := f.Source.Bootimage.Facts; have != nil && have.Kernel != "" && image.Kernel != "" {
		same := have.Kernel == image.Kernel
		f.UserspaceOnly = &same
	}
}

// wantedRHEL is the target's version of RHEL.
func (f *Forecast) wantedRHEL() (version, bool) {
	if i := f.Target.Image; i != nil && i.RHEL != "" {
		return parseVersion(i.RHEL)
	}
	if v, ok := rhelOf(f.Target.Version); ok {
		return v, true
	}
	if _, major, ok := strings.Cut(f.Target.Stream, "-"); ok {
		return parseVersion(major + ".0")
	}
	return version{}, false
}

func digestOf(pullSpec string) string {
	_, digest, _ := strings.Cut(pullSpec, "@")
	return digest
}
