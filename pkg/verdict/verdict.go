package verdict

import "fmt"

// APIVersion and Kind head every verdict document.
const (
	APIVersion = "oneboot.dev/v1"
	Kind       = "Verdict"
)

// An Action is what the node may do. The zero value is Proceed.
type Action uint8

// The actions.
const (
	Proceed Action = iota // pivot and reboot as always
	Skip                  // the booted OS is proven to be the target
)

// String is "proceed" or "skip".
func (a Action) String() string {
	if a == Skip {
		return "skip"
	}
	return "proceed"
}

// MarshalText writes what String says.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (a *Action) UnmarshalText(b []byte) error {
	switch string(b) {
	case "skip":
		*a = Skip
	case "proceed":
		*a = Proceed
	default:
		return fmt.Errorf("reading action: %q is neither skip nor proceed", b)
	}
	return nil
}

// An Outcome is the result of one check. The zero value is OutcomeUnknown.
type Outcome uint8

// The outcomes.
const (
	OutcomeUnknown Outcome = iota
	OutcomeSame
	OutcomeDiffers
	// OutcomeSkipped: the caller asked to leave the check out, or an unbooted
	// disk cannot answer it. The verdict is then hypothetical.
	OutcomeSkipped
)

var outcomeNames = [...]string{"unknown", "same", "differs", "skipped"}

// String returns the name used in the JSON.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return outcomeNames[OutcomeUnknown]
}

// MarshalText writes the name.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (o *Outcome) UnmarshalText(b []byte) error {
	for i, n := range outcomeNames {
		if n == string(b) {
			*o = Outcome(i) //nolint:gosec // i is below 4
			return nil
		}
	}
	return fmt.Errorf("reading outcome: %q is not known", b)
}

// A CheckName is the stable code of a check.
type CheckName string

// The checks, in the order in which they are made and reported.
const (
	CheckMachineConfig         CheckName = "machineconfig"
	CheckPinned                CheckName = "pinned"
	CheckArchitecture          CheckName = "architecture"
	CheckOSContent             CheckName = "os-content"
	CheckDeployment            CheckName = "deployment"
	CheckRunningKernel         CheckName = "running-kernel"
	CheckKernelArguments       CheckName = "kernel-arguments"
	CheckLegacyKernelArguments CheckName = "legacy-kernel-arguments"
	CheckKernelType            CheckName = "kernel-type"
	CheckExtensions            CheckName = "extensions"
	CheckFIPS                  CheckName = "fips"
	CheckForceFile             CheckName = "force-file"
	CheckNodePayload           CheckName = "node-payload"
	CheckNetworkState          CheckName = "network-state"
	CheckSignaturePolicy       CheckName = "signature-policy"
)

// CheckNames returns all checks in order.
func CheckNames() []CheckName {
	return []CheckName{
		CheckMachineConfig, CheckPinned, CheckArchitecture, CheckOSContent, CheckDeployment,
		CheckRunningKernel, CheckKernelArguments, CheckLegacyKernelArguments, CheckKernelType,
		CheckExtensions, CheckFIPS, CheckForceFile, CheckNodePayload, CheckNetworkState,
		CheckSignaturePolicy,
	}
}

// A Reason is the stable code of why a verdict is what it is: "proven" for a
// skip, else "<check>-differs" or "<check>-unknown".
type Reason string

// ReasonProven is the reason of every skip.
const ReasonProven Reason = "proven"

// A Proof is the stable code of how the OS content was proven equal.
type Proof string

// The proofs, in the order in which they are tried.
const (
	ProofManifestDigest  Proof = "manifest-digest"
	ProofConfigDigest    Proof = "config-digest"
	ProofDiffIDs         Proof = "diff-ids"
	ProofOSTreeCommit    Proof = "ostree-commit"
	ProofContentChecksum Proof = "content-checksum"
)

// A Need is a fact whose gathering costs something and could still turn the
// verdict into a skip.
type Need string

// The needs, cheapest first.
const (
	// NeedPackages are the packages of the booted deployment, and of the
	// commit beneath layered packages, from their rpm databases.
	NeedPackages Need = "booted-packages"
	// NeedInstance is the manifest digest for this architecture.
	NeedInstance Need = "target-instance"
	// NeedManifest is the target's manifest: config digest and layers.
	NeedManifest Need = "target-manifest"
	// NeedConfig is the target's config: diff ids, labels, architecture.
	NeedConfig Need = "target-config"
	// NeedSignature is the verification of a signature that the host's
	// policy requires.
	NeedSignature Need = "target-signature"
	// NeedInnerCommit is the ostree commit in the target's first layer.
	NeedInnerCommit Need = "target-inner-commit"
	// NeedExtensions are the packages that the target's extensions image
	// offers.
	NeedExtensions Need = "target-extensions"
)

// AllNeeds returns all needs, cheapest first.
func AllNeeds() []Need {
	return []Need{NeedPackages, NeedInstance, NeedManifest, NeedConfig, NeedSignature, NeedInnerCommit, NeedExtensions}
}

// A Check is one comparison.
type Check struct {
	Name    CheckName `json:"name"`
	Outcome Outcome   `json:"outcome"`
	// Booted and Target are the two values compared, for show.
	Booted string `json:"booted,omitempty"`
	Target string `json:"target,omitempty"`
	// Detail says in words what differs or why it is unknown.
	Detail string `json:"detail,omitempty"`
}

// An Error is a problem met on the way, with a stable code.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Source is the file (below the root), image or flag that it is about.
	Source string `json:"source,omitempty"`
}

// Cost forecasts what the pivot has to fetch.
type Cost struct {
	// Layers and Bytes (compressed) that the host does not have yet.
	Layers int   `json:"layers"`
	Bytes  int64 `json:"bytes"`
	// SameBase says whether the target is built on the booted base: its base
	// layers or its inner commit are the booted ones. Absent if unknown.
	SameBase *bool `json:"sameBase,omitempty"`
	// Kernel is "same", "other" or "unknown".
	Kernel string `json:"kernel"`
}

// A View is an Identity as far as it is known, for the JSON.
type View struct {
	Architecture    string `json:"architecture,omitempty"`
	Version         string `json:"version,omitempty"`
	ManifestDigest  Digest `json:"manifestDigest,omitempty"`
	ConfigDigest    Digest `json:"configDigest,omitempty"`
	DiffIDs         int    `json:"diffIDs,omitempty"` // how many; the digests themselves are in the image config
	FinalDiffID     Digest `json:"finalDiffID,omitempty"`
	DerivedLayers   *int   `json:"derivedLayers,omitempty"`
	InnerCommit     string `json:"innerCommit,omitempty"`
	InnerCommitFrom string `json:"innerCommitFrom,omitempty"`
	// Checksum is the deployed commit; booted side only.
	Checksum Checksum `json:"checksum,omitempty"`
	// OSImageURL is the wanted pull spec; target side only.
	OSImageURL string `json:"osImageURL,omitempty"`
}

// A Verdict is the answer. Its zero value means proceed.
type Verdict struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Action     Action `json:"action"`
	// Conclusive is false when an unknown decided.
	Conclusive bool `json:"conclusive"`
	// Hypothetical verdicts are for reading only: a check was left out, the
	// disk was not booted, a saved status took part, or another target was
	// asked about.
	Hypothetical bool   `json:"hypothetical"`
	Reason       Reason `json:"reason"`
	// Proof is how the OS content was proven equal; empty unless os-content
	// is the same.
	Proof  Proof   `json:"proof,omitempty"`
	Booted View    `json:"booted"`
	Target View    `json:"target"`
	Checks []Check `json:"checks"`
	MCO    MCO     `json:"mco"`
	Cost   *Cost   `json:"cost"`
	// FastReboot is about the reboot that a proceed costs.
	FastReboot FastReboot `json:"fastReboot"`
	Warnings   []string   `json:"warnings"`
	Errors     []Error    `json:"errors"`

	// Needs lists the facts that could still make it a skip, cheapest first,
	// or the prediction of a skip exact. Empty once both are final. Not part
	// of the document.
	Needs []Need `json:"-"`
}

// A Policy is how the caller wants to be answered.
type Policy struct {
	// SkipChecks are left out; any entry makes the verdict hypothetical.
	SkipChecks []CheckName `json:"skipChecks"`
	// Full asks for every fact, not only for those that could make a skip.
	Full bool `json:"full"`
	// Unbooted says that the root is a disk that is not running: what only a
	// running host can tell is left out, and the verdict is hypothetical.
	Unbooted bool `json:"unbooted"`
	// OtherTarget says that the target is not what the node's own
	// MachineConfig asks for; the verdict is hypothetical.
	OtherTarget bool `json:"otherTarget"`
	// SavedStatus says that what the caller has saved of rpm-ostree takes part:
	// it may be old, edited or another machine's. The verdict is hypothetical.
	SavedStatus bool `json:"savedStatus"`
	// FastReboot asks for what a fast reboot depends on, too.
	FastReboot bool `json:"fastReboot,omitempty"`
}

func (p Policy) hypothetical() bool {
	return p.Unbooted || p.OtherTarget || p.SavedStatus || len(p.SkipChecks) > 0
}

func (p Policy) skips(name CheckName) bool {
	for _, s := range p.SkipChecks {
		if s == name {
			return true
		}
	}
	return p.Unbooted && hostOnly(name)
}

// hostOnly names the checks that only a running host can answer.
func hostOnly(name CheckName) bool {
	switch name {
	case CheckRunningKernel, CheckFIPS, CheckForceFile, CheckNetworkState:
		return true
	}
	return false
}

// finding is a check's result with what would settle it.
type finding struct {
	Check
	proof Proof
	needs []Need
}

func same(booted, target string) finding {
	return finding{Check: Check{Outcome: OutcomeSame, Booted: booted, Target: target}}
}

func differs(booted, target, detail string) finding {
	return finding{Check: Check{Outcome: OutcomeDiffers, Booted: booted, Target: target, Detail: detail}}
}

func unknownBecause(detail string, needs ...Need) finding {
	return finding{Check: Check{Detail: detail}, needs: needs}
}

// Decide answers whether the booted OS is proven to be the target OS. It is a
// pure function: equal facts give equal verdicts. It never fails; whatever is
// missing makes it proceed.
func Decide(b Booted, t Target, p Policy) Verdict {
	v := Verdict{
		APIVersion: APIVersion, Kind: Kind,
		Hypothetical: p.hypothetical(),
		Booted:       bootedView(b), Target: targetView(t),
		MCO: predictMCO(b, t), Cost: forecastCost(b, t),
		Warnings: []string{}, Errors: []Error{},
	}
	var needs []Need
	open := true // no check so far rules a skip out for good
	for _, name := range CheckNames() {
		f := check(name, b, t, p)
		f.Name = name
		if p.skips(name) {
			f = finding{Check: Check{Name: name, Outcome: OutcomeSkipped, Booted: f.Booted, Target: f.Target}, proof: f.proof}
		}
		v.Checks = append(v.Checks, f.Check)
		if f.proof != "" {
			v.Proof = f.proof
		}
		if f.Outcome == OutcomeDiffers || f.Outcome == OutcomeUnknown && len(f.needs) == 0 {
			open = false
		}
		needs = append(needs, f.needs...)
	}
	if open || p.Full {
		v.Needs = needs
	}
	if p.Full {
		v.Needs = append(v.Needs, imageNeeds(t)...)
	}
	v.Action, v.Conclusive, v.Reason = conclude(v.Checks)
	if v.Action == Proceed {
		v.Warnings = append(v.Warnings, forecastWarnings(b, t)...)
	}
	v.FastReboot = predictFastReboot(b, t, v.Action)
	if p.FastReboot {
		v.Needs = append(v.Needs, fastRebootNeeds(t, v.FastReboot)...)
	}
	v.Needs = append(v.Needs, predictionNeeds(b, t, v, p)...)
	return v
}

// imageNeeds is what a person who wants to see everything has not seen of the
// target yet. The ostree commit is left out: it costs a part of a layer.
func imageNeeds(t Target) []Need {
	if !t.MachineConfig.IsKnown() {
		return nil
	}
	var needs []Need
	for _, f := range []struct {
		gathered bool
		need     Need
	}{
		{t.Identity.ManifestDigest.Gathered(), NeedInstance},
		{t.Identity.ConfigDigest.Gathered(), NeedManifest},
		{t.Identity.DiffIDs.Gathered(), NeedConfig},
	} {
		if !f.gathered {
			needs = append(needs, f.need)
		}
	}
	return needs
}

// conclude applies the law: skip needs every check to say same.
func conclude(checks []Check) (Action, bool, Reason) {
	var firstUnknown *Check
	for i := range checks {
		switch checks[i].Outcome {
		case OutcomeDiffers:
			return Proceed, true, Reason(string(checks[i].Name) + "-differs")
		case OutcomeSame, OutcomeSkipped:
		case OutcomeUnknown:
			if firstUnknown == nil {
				firstUnknown = &checks[i]
			}
		default:
			return Proceed, false, Reason(string(checks[i].Name) + "-unknown")
		}
	}
	if firstUnknown != nil {
		return Proceed, false, Reason(string(firstUnknown.Name) + "-unknown")
	}
	if len(checks) != len(CheckNames()) {
		return Proceed, false, Reason(string(CheckMachineConfig) + "-unknown")
	}
	return Skip, true, ReasonProven
}

func view(id Identity) View {
	w := View{Version: id.Version}
	w.Architecture, _ = id.Architecture.Get()
	w.ManifestDigest, _ = id.ManifestDigest.Get()
	w.ConfigDigest, _ = id.ConfigDigest.Get()
	w.FinalDiffID, _ = id.FinalDiffID.Get()
	if d, ok := id.DiffIDs.Get(); ok {
		w.DiffIDs = len(d)
	}
	if n, ok := id.DerivedLayers.Get(); ok {
		w.DerivedLayers = &n
	}
	if c, ok := id.InnerCommit.Get(); ok {
		w.InnerCommit, w.InnerCommitFrom = string(c.Checksum), string(c.Source)
	}
	return w
}

func bootedView(b Booted) View {
	w := view(b.Identity)
	if d, ok := b.Deployment.Get(); ok {
		w.Checksum = d.Checksum
	}
	return w
}

func targetView(t Target) View {
	w := view(t.Identity)
	if mc, ok := t.MachineConfig.Get(); ok {
		w.OSImageURL = mc.OSImageURL
	}
	return w
}
