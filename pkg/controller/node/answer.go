package node

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/oneboot/oneboot/pkg/metrics"
	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// Annotations of the Node. The first five are those that the node's first
// annotations have where firstboot acted; see docs/metrics.md.
const (
	prefix               = "oneboot.dev/"
	annotationAction     = prefix + "action"
	annotationProof      = prefix + "proof"
	annotationMode       = prefix + "mode"
	annotationDeployment = prefix + "deployment"
	annotationTarget     = prefix + "target"
	annotationReason     = prefix + "reason"
	// annotationPivot is what became of the first pivot, annotationBoot the boot
	// id of the decision that this is about: once the node has booted again
	// nothing else tells.
	annotationPivot = prefix + "pivot"
	annotationBoot  = prefix + "boot"
	// These are of the OS that booted first: the version, the inner ostree commit and
	// how many layers follow it.
	annotationBootedVersion = prefix + "booted-version"
	annotationBootedCommit  = prefix + "booted-commit"
	annotationBootedLayers  = prefix + "booted-layers"
)

// Annotations and labels of others.
const (
	// CurrentMachineConfigAnnotationKey, DesiredMachineConfigAnnotationKey and
	// MachineConfigDaemonStateAnnotationKey of the machine-config-operator
	// (pkg/daemon/constants/constants.go).
	mcoCurrentConfig = "machineconfiguration.openshift.io/currentConfig"
	mcoDesiredConfig = "machineconfiguration.openshift.io/desiredConfig"
	mcoState         = "machineconfiguration.openshift.io/state"
	mcoStateDone     = "Done"
	// hyperShiftPool is on the nodes of a hosted cluster (NodePoolLabel in
	// api/hypershift/v1beta1 of HyperShift).
	hyperShiftPool = "hypershift.openshift.io/nodePool"
	rolePrefix     = "node-role.kubernetes.io/"
)

// maxJoin is the longest time that counts as one from a decision to a join: a
// node that took longer waited for a person.
const maxJoin = 24 * time.Hour

// pool is the pool of a node: by the name of its rendered MachineConfig, which
// is rendered-<pool>-<hash> (getMachineConfigHashedName in
// pkg/controller/render of the machine-config-operator), by its NodePool, by its
// role; empty where it has none.
func pool(n *metav1.PartialObjectMetadata) string {
	if name, ok := strings.CutPrefix(n.Annotations[mcoCurrentConfig], "rendered-"); ok {
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			return name[:i]
		}
	}
	if name := n.Labels[hyperShiftPool]; name != "" {
		return name
	}
	role := ""
	for k := range n.Labels {
		// The first of several, so that it is always the same one.
		if r, ok := strings.CutPrefix(k, rolePrefix); ok && (role == "" || r < role) {
			role = r
		}
	}
	return role
}

// pivotOf says what became of the first pivot. The caller runs as a pod of the
// node: the node has joined in the running boot at the latest.
func pivotOf(h host, n *metav1.PartialObjectMetadata) metrics.PivotState {
	if h.record == nil || h.record.BootID == "" {
		return metrics.PivotUnknown
	}
	if n.Annotations[annotationBoot] == h.record.BootID {
		switch p := metrics.PivotState(n.Annotations[annotationPivot]); p {
		case metrics.PivotSkipped, metrics.PivotDone:
			return p
		}
	}
	created := n.CreationTimestamp.Time
	switch {
	case created.Before(h.record.Time.Truncate(time.Second)):
		// Decided upon after it had joined, by hand; or installed anew under an
		// old name.
		return metrics.PivotUnknown
	case h.bootID == h.record.BootID:
		return metrics.PivotSkipped
	case h.bootID != "" && !h.bootTime.IsZero() && created.After(h.bootTime) && joinSeconds(h, n) >= 0:
		// It joined first in this boot, which is another one. A Node of much later
		// was made anew, and says nothing of the first join.
		return metrics.PivotDone
	}
	return metrics.PivotUnknown
}

// joinSeconds is the time from the decision to the Node object; negative where
// it cannot be told.
func joinSeconds(h host, n *metav1.PartialObjectMetadata) float64 {
	if h.record == nil {
		return -1
	}
	d := n.CreationTimestamp.Sub(h.record.Time)
	if d < 0 || d > maxJoin {
		return -1
	}
	return d.Seconds()
}

// holds says whether a skip that was acted upon is still right, given the image
// that the node's current MachineConfig wants; empty where that is not known.
func holds(h host, osImage string) metrics.HoldState {
	r := h.record
	if r == nil || r.Verdict.Action != verdict.Skip || r.Act == nil || r.Act.State != record.ActDone {
		return metrics.HoldNone
	}
	if osImage == "" || h.booted == "" {
		return metrics.HoldUnknown
	}
	wanted := osImage
	if pinned := targetDigest(osImage); pinned != "" && pinned == targetDigest(r.Verdict.Target.OSImageURL) {
		// The same image under another name: the machine-config-daemon compares the
		// digests too (compareOSImageURL in pkg/daemon/daemon.go).
		osImage = r.Verdict.Target.OSImageURL
	}
	// Packages that an extension brought later lie upon the proven commit.
	for _, running := range []verdict.Checksum{h.booted, h.base} {
		if r.Proves(osImage, running) {
			return metrics.HoldYes
		}
	}
	proven := r.Verdict.Booted.Checksum
	if proven != "" && (h.booted == proven || h.base == proven) {
		return metrics.HoldNo
	}
	if osImage != r.Verdict.Target.OSImageURL || names(h.origin, wanted) {
		// Another OS, as the MachineConfig wants it, or the same image pulled anew.
		return metrics.HoldSuperseded
	}
	return metrics.HoldNo
}

// names reports whether an origin's reference is to that image: there is a transport
// before it (ostree-unverified-registry:, docker://) or nothing.
func names(origin, image string) bool {
	before, ok := strings.CutSuffix(origin, image)
	return ok && (before == "" || strings.HasSuffix(before, ":") || strings.HasSuffix(before, "://"))
}

// settled reports whether the node is where its MachineConfig wants it: during an
// update, files and Node say different things.
func settled(n *metav1.PartialObjectMetadata) bool {
	a := n.Annotations
	return a[mcoCurrentConfig] != "" && a[mcoCurrentConfig] == a[mcoDesiredConfig] && a[mcoState] == mcoStateDone
}

// annotations are all that the Node is to have under the prefix.
func annotations(h host, pivot metrics.PivotState) map[string]string {
	r := h.record
	v := r.Verdict
	mode := r.Mode
	if r.Act != nil && r.Act.Mode != "" {
		mode = r.Act.Mode
	}
	all := map[string]string{
		annotationAction: v.Action.String(), annotationReason: string(v.Reason), annotationProof: string(v.Proof), annotationMode: mode,
		annotationDeployment: string(v.Booted.Checksum), annotationTarget: targetDigest(v.Target.OSImageURL),
		annotationPivot: string(pivot), annotationBoot: r.BootID,
		annotationBootedVersion: v.Booted.Version, annotationBootedCommit: v.Booted.InnerCommit,
	}
	if v.Booted.DerivedLayers != nil {
		all[annotationBootedLayers] = strconv.Itoa(*v.Booted.DerivedLayers)
	}
	for k, s := range all {
		if !shown(s) {
			delete(all, k)
		}
	}
	return all
}

// stale are the annotations of a Node that an earlier record, or the node's first
// annotations, have left and that this one does not have.
func stale(n *metav1.PartialObjectMetadata, want map[string]string) []string {
	var all []string
	for _, k := range []string{annotationAction, annotationProof, annotationMode, annotationDeployment, annotationTarget, annotationReason,
		annotationPivot, annotationBoot, annotationBootedVersion, annotationBootedCommit, annotationBootedLayers} {
		_, is := n.Annotations[k]
		if _, wanted := want[k]; is && !wanted {
			all = append(all, k)
		}
	}
	return all
}

// shown reports whether a value may leave the node. A record is a file there: what is
// no short word stays.
func shown(s string) bool {
	return s != "" && len(s) <= maxValue && !strings.ContainsFunc(s, notPrintable)
}

// maxValue bounds an annotation's value, in bytes.
const maxValue = 128

func notPrintable(c rune) bool { return c < 0x20 || c > 0x7e }

// targetDigest is the digest that a pull spec pins; empty where it pins none.
func targetDigest(pullSpec string) string {
	_, digest, _ := strings.Cut(pullSpec, "@")
	return digest
}

// Outcome is the pool of a node and what became of its first pivot, as its annotations
// say; empty where they say nothing.
func Outcome(n *metav1.PartialObjectMetadata) (string, metrics.PivotState) {
	return pool(n), metrics.PivotState(n.Annotations[annotationPivot])
}

// A Bootimage is the OS that a node booted first.
type Bootimage struct {
	Version, Commit string
	// Architecture is in Go's naming.
	Architecture string
}

// FirstBooted is the OS that a node booted first, as its annotations say; ok is false
// where they do not, and of an OS with layers upon its commit.
func FirstBooted(n *metav1.PartialObjectMetadata) (b Bootimage, ok bool) {
	a := n.Annotations
	b = Bootimage{a[annotationBootedVersion], a[annotationBootedCommit], n.Labels[archLabel]}
	return b, b.Version != "" && b.Architecture != "" && commitForm.MatchString(b.Commit) && a[annotationBootedLayers] == "0"
}

// archLabel is on every Node (LabelArchStable in k8s.io/api/core/v1).
const archLabel = "kubernetes.io/arch"

var commitForm = regexp.MustCompile(`^[0-9a-f]{64}$`)
