package main

import (
	"strings"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// headline is the answer and what it comes from: where something went wrong,
// that and its code.
func headline(v verdict.Verdict) string {
	word := "PROCEED"
	if v.Action == verdict.Skip {
		word = "SKIP"
	}
	if v.Hypothetical {
		word += " (hypothetical)"
	}
	return word + ": " + why(v)
}

func why(v verdict.Verdict) string {
	if v.Action == verdict.Skip {
		return "the booted OS is the wanted one, proven by " + proofText(v.Proof)
	}
	for _, c := range v.Checks {
		if string(v.Reason) != string(c.Name)+"-"+c.Outcome.String() {
			continue
		}
		if c.Outcome != verdict.OutcomeUnknown {
			return reasonText(c)
		}
		for _, e := range v.Errors {
			if e.Message != "" && strings.Contains(c.Detail, e.Message) {
				return causeText(c, e) + " (" + clean(e.Code) + ")"
			}
		}
		if strings.HasSuffix(c.Detail, daemon.NotAsked) {
			return "no registry may be asked (--offline)"
		}
		return reasonText(c)
	}
	return "nothing was proven"
}

// causeText says in words what an error means that decided.
func causeText(c verdict.Check, e verdict.Error) string {
	if e.Code == "no-ostree-host" {
		return clean(e.Message)
	}
	words, ok := errorWords()[e.Code]
	if !ok {
		// Of another version of this program.
		return reasonText(c)
	}
	registry, _, isImage := strings.Cut(e.Source, "/")
	if !isImage || registry == "" || strings.Contains(registry, "://") {
		words = strings.ReplaceAll(words, " HOST", "")
	}
	words = strings.ReplaceAll(words, "HOST", clean(registry))
	if strings.Contains(words, "registry") && strings.Contains(e.Message, "(Mirrors also failed: ") {
		words += ", and no mirror helped"
	}
	return words
}

// errorWords says what each code means; HOST is the registry.
func errorWords() map[string]string {
	return map[string]string{
		"registry-unreachable":    "the registry HOST could not be reached",
		"registry-untrusted":      "the registry's certificate is not trusted",
		"registry-unauthorized":   "the registry HOST refuses the node's credentials",
		"registry-throttled":      "the registry HOST asks to slow down",
		"registry-server-error":   "the registry HOST failed",
		"registry-blocked":        "registries.conf blocks the registry HOST",
		"image-not-found":         "the wanted image is not there",
		"timeout":                 "there was no answer in time",
		"digest-mismatch":         "what was sent is not what the digest names",
		"reference-invalid":       "the wanted image's name cannot be used",
		"manifest-invalid":        "the wanted image's manifest cannot be used",
		"no-instance":             "the manifest list has no image for this architecture",
		"layer-truncated":         "a layer of the wanted image ended early",
		"layer-invalid":           "a layer of the wanted image is none of an OS image",
		"commit-label-mismatch":   "the image's ostree commit is not the one of its label",
		"commit-ambiguous":        "the image holds several ostree commits",
		"commit-not-read":         "the wanted image, by its label another one, was not read",
		"not-an-os-image":         "the wanted image is no OS image",
		"no-extensions":           "the image offers no packages for layering",
		"registries-conf-invalid": "the registry configuration cannot be used",
		"policy-invalid":          "the signature policy cannot be used",
		"signature-malformed":     "a signature of the wanted image cannot be used",
		"signature-unreadable":    "a signature of the wanted image cannot be read",
		"auth-unreadable":         "the credentials cannot be read",
		"certs-invalid":           "the certificates for registries cannot be used",
		"proxy-invalid":           "the proxy's settings cannot be used",
		"machineconfig-invalid":   "the MachineConfig cannot be used",
		"machineconfig-missing":   "there is no MachineConfig of a first boot",
		"no-ostree-host":          "this is no CoreOS host",
		"sysroot-unreadable":      "the sysroot cannot be read",
		"target-invalid":          "--target names no image that can be used",
		"target-unreadable":       "the wanted image cannot be read",
		"status-invalid":          "the saved status cannot be used",
		"rpm-ostree-failed":       "rpm-ostree did not answer",
		"interrupted":             "the run was interrupted",
		"internal-error":          "a fault in this program, please report it",
	}
}

// reasonText says in words what a check that is not the same means. With the
// longest word before it, it fits in one line.
func reasonText(c verdict.Check) string {
	words, ok := map[verdict.CheckName][2]string{
		verdict.CheckMachineConfig:         {"the MachineConfig asks for more than a first boot does", "the MachineConfig is not known"},
		verdict.CheckPinned:                {"the wanted image is not pinned by a digest", "the wanted image is not known"},
		verdict.CheckArchitecture:          {"the wanted image is for another architecture", "the host's or the image's architecture is not known"},
		verdict.CheckOSContent:             {"the booted OS is not the wanted OS", "whether the booted OS is the wanted one is not known"},
		verdict.CheckDeployment:            {"the booted deployment was changed, or will not stay", "the state of the booted deployment is not known"},
		verdict.CheckRunningKernel:         {"the running kernel is not the booted deployment's", "the running kernel is not known"},
		verdict.CheckKernelArguments:       {"the kernel arguments are not the wanted ones", "the kernel arguments are not known"},
		verdict.CheckLegacyKernelArguments: {"the tuning file asks for other kernel arguments", "what the tuning file asks for is not known"},
		verdict.CheckKernelType:            {"another type of kernel is wanted", "the wanted type of kernel cannot be proven"},
		verdict.CheckExtensions:            {"the layered packages are not the wanted ones", "the wanted extensions cannot be proven"},
		verdict.CheckFIPS:                  {"FIPS mode is not as wanted", "whether FIPS mode is on is not known"},
		verdict.CheckForceFile:             {"a pivot is asked for by a file", "whether a pivot is asked for is not known"},
		verdict.CheckNodePayload:           {"the booted OS cannot run a cluster node", "whether the OS can run a cluster node is not known"},
		verdict.CheckNetworkState:          {"the network runs on what the initrd set up", "the state of the network is not known"},
		verdict.CheckSignaturePolicy:       {"the signature policy refuses the wanted image", "the wanted signature is not verified"},
	}[c.Name]
	switch {
	case !ok:
		return string(c.Name) + " " + c.Outcome.String()
	case c.Outcome == verdict.OutcomeDiffers:
		return words[0]
	default:
		return words[1]
	}
}

func proofText(p verdict.Proof) string {
	switch p {
	case verdict.ProofManifestDigest:
		return "manifest digest"
	case verdict.ProofConfigDigest:
		return "config digest"
	case verdict.ProofDiffIDs:
		return "its layers"
	case verdict.ProofOSTreeCommit:
		return "ostree commit"
	case verdict.ProofContentChecksum:
		return "file tree"
	case "":
		return "checks left out" // never without --skip-check
	}
	return string(p)
}
