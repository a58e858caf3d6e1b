package verdict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// An MCO predicts what the unmodified machine-config-daemon does next, by its
// own rules: strings, not content.
type MCO struct {
	// WouldSkip is true only if it skips the reboot by itself: in the release
	// that Release names, or where that is not known in every release from
	// 4.12 on.
	WouldSkip bool `json:"wouldSkip"`
	// Release is the OpenShift release that the MachineConfig says it is of;
	// empty where it does not, or names one older than 4.12.
	Release string `json:"release,omitempty"`
	// Why lists what keeps it from skipping, or could, in that release or in
	// any; empty exactly where WouldSkip is true.
	Why []MCOReason `json:"why"`
}

// An MCOReason is one cause for the machine-config-daemon to reboot.
type MCOReason struct {
	// Code is stable.
	Code string `json:"code"`
	// Detail is for a person.
	Detail string `json:"detail"`
	// Versions says for which OpenShift releases it holds: "all", "4.15+",
	// "before 4.15". Releases older than 4.12 do not count.
	Versions string `json:"versions"`
}

// The codes that a look at the booted packages can clear.
const (
	rpmOSTreeGateUnknown = "rpm-ostree-gate-unknown"
	skopeoGateUnknown    = "skopeo-gate-unknown"
)

// A release is an OpenShift release without its patch level. The zero release
// is not known.
type release struct{ major, minor int }

func (r release) before(o release) bool {
	return r.major < o.major || r.major == o.major && r.minor < o.minor
}

// parseRelease reads "4.16.3" and everything that starts like it: a
// pre-release counts as its release. Older ones than this program has rules
// for are not known.
func parseRelease(s string) release {
	major, rest, _ := strings.Cut(s, ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, err1 := strconv.ParseUint(major, 10, 8)
	y, err2 := strconv.ParseUint(minor, 10, 8)
	r := release{int(x), int(y)}
	if err1 != nil || err2 != nil || r.before(release{4, 12}) {
		return release{}
	}
	return r
}

// A span is a run of releases that behave alike; the zero span is all.
type span struct{ from, until release }

func since(minor int) span  { return span{from: release{4, minor}} }
func before(minor int) span { return span{until: release{4, minor}} }

// holds reports whether r is in the span, or may be.
func (s span) holds(r release) bool {
	return r == release{} || !r.before(s.from) && (s.until == release{} || r.before(s.until))
}

// String writes what [MCOReason] documents for Versions.
func (s span) String() string {
	switch {
	case s.until != release{}:
		return fmt.Sprintf("before %d.%d", s.until.major, s.until.minor)
	case s.from != release{}:
		return fmt.Sprintf("%d.%d+", s.from.major, s.from.minor)
	}
	return "all"
}

// A prediction collects the reasons that hold for a release.
type prediction struct {
	release release
	why     []MCOReason
}

func (p *prediction) add(code string, s span, detail string) {
	if s.holds(p.release) {
		p.why = append(p.why, MCOReason{Code: code, Detail: detail, Versions: s.String()})
	}
}

// predictMCO follows RunFirstbootCompleteMachineconfig (pkg/daemon/daemon.go of
// the machine-config-operator) and newMachineConfigDiff (pkg/daemon/update.go),
// as they are on the branches release-4.12 to release-5.2, as far as the
// host's own files tell.
//
// Which release's daemon runs is told by the MachineConfig: the cluster's
// render controller annotates every one with the release that it is of, and
// the unit that runs the daemon comes from the same rendering. Only the
// reasons that hold for this release count. Without a release any one's daemon
// may run, and a reason counts if it holds for one: before 4.15 the daemon
// takes the host to run without kernel arguments and FIPS, so that a
// MachineConfig with either is then not predicted to be skipped, since true has
// to mean that the daemon skips. That is so for the control plane that the
// bootstrap host serves: its ControllerConfig has no release to copy
// (manifests/machineconfigcontroller/controllerconfig.yaml), which leaves the
// annotation empty.
func predictMCO(b Booted, t Target) MCO {
	mc, ok := t.MachineConfig.Get()
	if !ok {
		return MCO{Why: []MCOReason{{Code: "machineconfig-unknown", Versions: span{}.String(), Detail: t.MachineConfig.Why()}}}
	}
	p := prediction{release: parseRelease(mc.Release), why: []MCOReason{}}
	p.osImageURL(b, mc)
	p.forceFile(b)
	p.kernelArguments(b, mc)
	p.fips(b, mc)
	p.packages(mc)
	if len(mc.Foreign) > 0 {
		p.add("ignition-content", span{}, "the MachineConfig brings "+strings.Join(mc.Foreign, ", "))
	}
	// The other marks of layering change nothing on first boot.
	if mc.LayeredImage != "" {
		p.add("on-cluster-layering", since(20), "the annotation ocl-osimageurl makes it update whatever the image")
	}
	p.gates(b, t, mc)
	m := MCO{WouldSkip: len(p.why) == 0, Why: p.why}
	if p.release != (release{}) {
		m.Release = mc.Release
	}
	return m
}

// osImageURL follows GetBootedOSImageURL (pkg/daemon/rpm-ostree.go) and the
// comparison of strings.
func (p *prediction) osImageURL(b Booted, mc MachineConfig) {
	const detail = "it compares strings: the origin names %q, osImageURL is %q"
	origin, ok := b.OriginReference.Get()
	switch {
	case !ok:
		p.add("os-image-url-unknown", span{}, "the origin of the booted deployment: "+b.OriginReference.Why())
	case origin != mc.OSImageURL:
		p.add("os-image-url", span{}, fmt.Sprintf(detail, origin, mc.OSImageURL))
	case b.LegacyOriginReference == "":
		p.add("os-image-url-unknown", before(15), "the origin of the booted deployment: how it spells its reference was not read")
	case b.LegacyOriginReference != mc.OSImageURL:
		p.add("os-image-url-spelling", before(15), fmt.Sprintf(detail, b.LegacyOriginReference, mc.OSImageURL))
	}
}

func (p *prediction) forceFile(b Booted) {
	if forced, ok := b.ForceFile.Get(); !ok {
		p.add("force-file-unknown", since(14), b.ForceFile.Why())
	} else if forced {
		p.add("force-file", since(14), "/run/machine-config-daemon-force exists")
	}
}

// kernelArguments follows setRunningKargs: of the arguments that rpm-ostree
// kargs prints it keeps those that equal a whole wanted entry, in their order,
// and compares the two lists. rpm-ostree prints the boot entry of the
// deployment that boots next.
func (p *prediction) kernelArguments(b Booted, mc MachineConfig) {
	if len(mc.KernelArguments) == 0 {
		return
	}
	p.add("kernel-arguments-not-read", before(15), "it compares with no kernel arguments whatever the host runs")
	unknown := func(why string) { p.add("kernel-arguments-unknown", since(15), why) }
	line, ok := b.BootEntryOptions.Get()
	if !ok {
		unknown("boot entry: " + b.BootEntryOptions.Why())
		return
	}
	dep, ok := b.Deployment.Get()
	if !ok {
		unknown("whether another deployment boots next: " + b.Deployment.Why())
		return
	}
	if slices.ContainsFunc(dep.Divergences, func(d Divergence) bool { return d.Kind == Staged || d.Kind == NotDefault }) {
		unknown("it reads the boot entry of the deployment that boots next, which is another one")
		return
	}
	var running []string
	for _, w := range SplitKernelArguments(line) {
		if slices.Contains(mc.KernelArguments, w) {
			running = append(running, w)
		}
	}
	switch {
	case strings.Contains(line, "\xa0"):
		// A space to the kernel, part of a word to the daemon.
		unknown("boot entry: holds a byte that the kernel and the daemon read in different ways")
	case !slices.Equal(running, mc.KernelArguments):
		p.add("kernel-arguments", since(15), fmt.Sprintf("it compares whole entries in order: the boot entry gives %q, the MachineConfig %q", showLines(running), showLines(mc.KernelArguments)))
	}
}

// fips follows setNodeFipsIntoMC and checkFIPS. Before 4.15 the comparison is
// with FIPS off, so that a host in FIPS mode passes where it is not wanted.
func (p *prediction) fips(b Booted, mc MachineConfig) {
	have, ok := b.FIPS.Get()
	if ok && have != mc.FIPS {
		s := since(15)
		if mc.FIPS {
			s = span{}
		}
		p.add("fips", s, "it refuses to change FIPS mode and tries again each minute")
		return
	}
	if mc.FIPS {
		p.add("fips-not-read", before(15), "it compares with FIPS off whatever the host runs")
	}
	if !ok {
		p.add("fips-unknown", since(15), b.FIPS.Why())
	}
}

// packages: the booted OS is always compared as one with the default kernel
// and without extensions.
func (p *prediction) packages(mc MachineConfig) {
	if mc.KernelType != defaultKernelType {
		s := span{}
		if mc.KernelType == "64k-pages" {
			// Until then canonicalizeKernelType made it the default.
			s = since(15)
		}
		p.add("kernel-type", s, "it takes the booted kernel type to be the default one: any other reboots")
	}
	if len(mc.Extensions) > 0 {
		p.add("extensions", span{}, "it takes the booted OS to have no extensions: any wanted one reboots")
	}
}

// gates: before it compares anything the daemon pivots in place where the
// host's tools are too old. Packages that nobody has looked for are only named
// where nothing else keeps it from skipping.
func (p *prediction) gates(b Booted, t Target, mc MachineConfig) {
	packages, ok := b.Packages.Get()
	list := mayBeList(b, t, mc)
	if !ok {
		if !b.Packages.Gathered() && len(p.why) > 0 {
			return
		}
		p.add(rpmOSTreeGateUnknown, span{}, "if the host's rpm-ostree cannot deploy containers, it pivots before it compares; packages: "+b.Packages.Why())
		if list {
			p.add(skopeoGateUnknown, since(22), "if the image is a manifest list and the host's skopeo older than "+multiArchSkopeo+", it pivots before it compares; packages: "+b.Packages.Why())
		}
		return
	}
	if have, ok := deploysContainers(packages); !ok {
		p.add("rpm-ostree-gate", span{}, "it pivots before it compares, since rpm-ostree is older than "+containerRPMOSTree+": "+have)
	}
	have, ok := readsMultiArch(packages)
	switch {
	case ok:
	case !list && have != notInstalled && t.Identity.ManifestDigest.IsKnown():
	case !list && have != notInstalled:
		// An old skopeo asks the registry, and no answer means a pivot too.
		p.add(skopeoGateUnknown, since(22), "skopeo is older than "+multiArchSkopeo+" ("+have+"), so it asks the registry whether the image is a manifest list, and pivots where it gets no answer")
	default:
		// Without any skopeo the daemon cannot tell a list from a manifest.
		p.add("skopeo-gate", since(22), "it pivots before it compares, since the image is or may be a manifest list and skopeo is older than "+multiArchSkopeo+": "+have)
	}
}

// containerRPMOSTree is the first release of rpm-ostree that always lists
// "container" among the Features that rpm-ostree --version prints, which
// IsNewEnoughForLayering looks for (pkg/daemon/rpm-ostree.go; rpm-ostree's
// get_features in rust/src/utils.rs).
const containerRPMOSTree = "2022.13"

// containerRPMOSTreeEL8 is the first snapshot of rpm-ostree's branch rhel8 with
// that feature: v2022.10-91-g1a30695b. Snapshots of the main branch with such
// numbers, which lack it, were not built for EL 8.
const containerRPMOSTreeEL8 = "2022.10.91"

// deploysContainers reports whether the host's rpm-ostree passes, and what it
// is.
func deploysContainers(packages []Package) (string, bool) {
	evra, version := onlyVersion(packages, "rpm-ostree")
	switch {
	case !numericParts(version, 2, true):
		return evra, false
	case compareVersions(version, containerRPMOSTree) >= 0:
		return evra, true
	}
	el8 := strings.HasPrefix(version, "2022.10.") && strings.Contains(evra, ".el8")
	return evra, el8 && compareVersions(version, containerRPMOSTreeEL8) >= 0
}

// multiArchSkopeo is the skopeo that skopeoVersionSupportsMultiArchSigstore
// asks for (pkg/daemon/update.go, 4.22 and later).
const multiArchSkopeo = "1.22.2"

// readsMultiArch reports whether the host's skopeo is new enough, and what it
// is. The daemon parses a semantic version: anything else counts as old.
func readsMultiArch(packages []Package) (string, bool) {
	evra, version := onlyVersion(packages, "skopeo")
	return evra, numericParts(version, 3, false) && compareVersions(version, multiArchSkopeo) >= 0
}

const notInstalled = "not installed"

// onlyVersion finds a package of which there is one version, for show and for
// comparison; the latter is empty where there is none or more than one.
func onlyVersion(packages []Package, name string) (evra, version string) {
	var found []string
	for _, p := range packages {
		if p.Name == name {
			found = append(found, p.EVRA)
		}
	}
	found = sorted(found)
	switch len(found) {
	case 0:
		return notInstalled, ""
	case 1:
		return found[0], upstreamVersion(found[0])
	}
	return strings.Join(found, " "), ""
}

// mayBeList reports whether osImageURL may name a manifest list: it does not
// where its digest is known to be that of a manifest.
func mayBeList(b Booted, t Target, mc MachineConfig) bool {
	booted, ok1 := b.Identity.ManifestDigest.Get()
	target, ok2 := t.Identity.ManifestDigest.Get()
	return mc.Digest == "" || !(ok1 && booted == mc.Digest || ok2 && target == mc.Digest)
}

// predictionNeeds asks for the booted packages where they alone keep the
// prediction from being exact, also on a verdict to proceed: that the daemon
// will skip then is worth knowing. They never change the verdict: one that is
// a skip without them rests on none of them.
func predictionNeeds(b Booted, t Target, v Verdict, p Policy) []Need {
	if b.Packages.Gathered() || !t.MachineConfig.IsKnown() || slices.Contains(v.Needs, NeedPackages) {
		return nil
	}
	others := slices.ContainsFunc(v.MCO.Why, func(r MCOReason) bool {
		return r.Code != rpmOSTreeGateUnknown && r.Code != skopeoGateUnknown
	})
	if p.Full || !others {
		return []Need{NeedPackages}
	}
	return nil
}
