package verdict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// check makes one check.
func check(name CheckName, b Booted, t Target, p Policy) finding {
	switch name {
	case CheckOSContent:
		return checkContent(b, t)
	case CheckDeployment:
		return checkDeployment(b, t)
	case CheckRunningKernel:
		return checkRunningKernel(b)
	case CheckNodePayload:
		return checkNodePayload(b)
	case CheckNetworkState:
		return checkNetworkState(b)
	case CheckForceFile:
		return checkForceFile(b)
	}
	mc, ok := t.MachineConfig.Get()
	if !ok {
		return unknownBecause("the MachineConfig is not known: " + t.MachineConfig.Why())
	}
	switch name {
	case CheckMachineConfig:
		return checkMachineConfig(mc)
	case CheckPinned:
		return checkPinned(mc)
	case CheckArchitecture:
		return checkArchitecture(b, t, mc)
	case CheckKernelArguments:
		return checkKernelArguments(b, mc, p)
	case CheckLegacyKernelArguments:
		return checkLegacyKernelArguments(b, p)
	case CheckKernelType:
		return checkKernelType(b, mc)
	case CheckExtensions:
		return checkExtensions(b, t, mc)
	case CheckFIPS:
		return checkFIPS(b, mc)
	case CheckSignaturePolicy:
		return checkSignaturePolicy(t)
	}
	return unknownBecause("no such check")
}

func checkMachineConfig(mc MachineConfig) finding {
	if mc.OSImageURL == "" {
		return unknownBecause("osImageURL is empty")
	}
	if len(mc.Foreign) > 0 {
		return differs("", mc.Name, "its Ignition holds "+strings.Join(mc.Foreign, ", ")+", which the encapsulated MachineConfig never does")
	}
	if len(mc.LayeringMarks) > 0 {
		return differs("", mc.Name, "marked for on-cluster layering: "+strings.Join(mc.LayeringMarks, ", "))
	}
	return same("", mc.Name)
}

func checkPinned(mc MachineConfig) finding {
	if mc.Digest == "" {
		return differs("", mc.OSImageURL, "osImageURL is not pinned by digest: a tag may name another image tomorrow")
	}
	return same("", string(mc.Digest))
}

// checkArchitecture compares the host with the image. Where the pinned digest
// is the one that the deployment was made from, the image is the booted one.
func checkArchitecture(b Booted, t Target, mc MachineConfig) finding {
	host, ok := b.Architecture.Get()
	if !ok {
		return unknownBecause("the host's architecture is not known: " + b.Architecture.Why())
	}
	fact := t.Identity.Architecture
	if !fact.IsKnown() && sameImage(b, mc, t) {
		fact = b.Identity.Architecture
	}
	image, ok := fact.Get()
	switch {
	case !ok && fact.Gathered():
		return unknownBecause("the image's architecture is not known: " + fact.Why())
	case !ok:
		return unknownBecause("the image's architecture is not read", NeedConfig)
	case image == "" || image != host:
		return differs(host, image, "")
	}
	return same(host, image)
}

// sameImage reports whether the target's config is known to be the booted
// image's own, by the digest of the manifest or of the config itself.
func sameImage(b Booted, mc MachineConfig, t Target) bool {
	if booted, ok := b.Identity.ManifestDigest.Get(); ok {
		if target, ok := t.Identity.ManifestDigest.Get(); mc.Digest != "" && booted == mc.Digest || ok && target == booted {
			return true
		}
	}
	booted, ok1 := b.Identity.ConfigDigest.Get()
	target, ok2 := t.Identity.ConfigDigest.Get()
	return ok1 && ok2 && booted == target
}

func checkDeployment(b Booted, t Target) finding {
	d, ok := b.Deployment.Get()
	if !ok {
		return unknownBecause(b.Deployment.Why())
	}
	name := fmt.Sprintf("%s %s.%d", d.Stateroot, d.Checksum, d.Serial)
	var why []string
	for _, v := range d.Divergences {
		s := string(v.Kind)
		if v.Detail != "" {
			s += " (" + v.Detail + ")"
		}
		why = append(why, s)
	}
	mc, ok := t.MachineConfig.Get()
	if d.Kind == ClientLayered && (!ok || len(mc.Extensions) == 0 && mc.KernelType == defaultKernelType) {
		why = append(why, "packages are layered on this host")
	}
	if removed := sorted(append(slices.Clone(d.RequestedRemovals), d.RemovedPackages...)); len(removed) > 0 && (!ok || mc.KernelType == defaultKernelType) {
		why = append(why, string(PackageOverride)+" ("+strings.Join(removed, " ")+" removed from the base)")
	}
	if len(why) > 0 {
		return differs(name, "", strings.Join(why, "; "))
	}
	if d.Unseen != "" {
		return unknownBecause("not seen: " + d.Unseen)
	}
	return same(name, "")
}

func checkRunningKernel(b Booted) finding {
	running, ok := b.RunningKernel.Get()
	if !ok {
		return unknownBecause("the running kernel is not known: " + b.RunningKernel.Why())
	}
	own, ok := b.DeploymentKernels.Get()
	if !ok {
		return unknownBecause("the deployment's kernels are not known: " + b.DeploymentKernels.Why())
	}
	if running == "" || !slices.Contains(own, running) {
		return differs(running, strings.Join(own, " "), "the running kernel is not one of the booted deployment's")
	}
	return same(running, strings.Join(own, " "))
}

func checkFIPS(b Booted, mc MachineConfig) finding {
	have, ok := b.FIPS.Get()
	if !ok {
		return unknownBecause("whether FIPS mode is on is not known: " + b.FIPS.Why())
	}
	hs, ws := strconv.FormatBool(have), strconv.FormatBool(mc.FIPS)
	if have != mc.FIPS {
		return differs(hs, ws, "FIPS mode cannot be changed on first boot: install the node with the other setting")
	}
	return same(hs, ws)
}

func checkForceFile(b Booted) finding {
	forced, ok := b.ForceFile.Get()
	switch {
	case !ok:
		return unknownBecause(b.ForceFile.Why())
	case forced:
		return differs("present", "absent", "/run/machine-config-daemon-force asks for a pivot")
	}
	return same("absent", "absent")
}

func checkNodePayload(b Booted) finding {
	p, ok := b.NodePayload.Get()
	if !ok {
		return unknownBecause(b.NodePayload.Why())
	}
	var missing []string
	if !p.Kubelet {
		missing = append(missing, "usr/bin/kubelet")
	}
	if !p.CRIO {
		missing = append(missing, "usr/bin/crio")
	}
	if len(missing) > 0 {
		return differs("without "+strings.Join(missing, " and "), "kubelet and crio", "the booted deployment cannot run a cluster node")
	}
	return same("kubelet and crio", "kubelet and crio")
}

func checkNetworkState(b Booted) finding {
	n, ok := b.NetworkState.Get()
	switch {
	case !ok:
		return unknownBecause(b.NetworkState.Why())
	case n.Leftover != "":
		return differs(n.Leftover, "", "the network runs on initrd-made state that the boot after a pivot cleans away")
	}
	return same("", "")
}

func checkSignaturePolicy(t Target) finding {
	s, ok := t.SignaturePolicy.Get()
	if !ok && !t.SignaturePolicy.Gathered() {
		return unknownBecause("the signature policy is not read")
	}
	if !ok {
		return unknownBecause(t.SignaturePolicy.Why())
	}
	switch s.Requirement {
	case SignatureNone, SignatureVerified:
		return same(string(s.Requirement), s.Scope)
	case SignatureReject, SignatureInvalid:
		return differs(string(s.Requirement), s.Scope, s.Detail)
	case SignatureRequired:
		return unknownBecause("policy.json asks for a signature ("+s.Scope+"): "+s.Detail, NeedSignature)
	}
	return unknownBecause("the signature requirement " + strconv.Quote(string(s.Requirement)) + " is not known")
}
