package verdict_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// A world is a host and a target whose relation is known by construction.
type world struct {
	b verdict.Booted
	t verdict.Target
}

const kernel = "5.14.0-427.13.1.el9_4.x86_64"

func hexOf(r *rapid.T, label string) string {
	// The label takes part, so that two things never collide by chance.
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%s %d", label, rapid.Uint64().Draw(r, label))))
}

func digestOf(r *rapid.T, label string) verdict.Digest {
	return verdict.Digest("sha256:" + hexOf(r, label))
}

func rootOf(r *rapid.T, label string) verdict.Root {
	return verdict.Root{DirTree: verdict.Checksum(hexOf(r, label+"-tree")), DirMeta: verdict.Checksum(hexOf(r, label+"-meta"))}
}

// drawWorld makes a host and a target that are the same OS, provable in
// exactly the way that proof names.
func drawWorld(r *rapid.T, proof verdict.Proof) world {
	pinned := digestOf(r, "pinned")
	commit := verdict.Checksum(hexOf(r, "commit"))
	root := rootOf(r, "root")
	kargs := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"nosmt", "console=ttyS0", "ip=dhcp", `a="b c"`, "psi=1"}), 0, 4, rapid.ID).Draw(r, "kargs")
	fips := rapid.Bool().Draw(r, "fips")
	options := strings.Join(append([]string{"root=UUID=1", "rw", "$ignition_firstboot"}, kargs...), " ")
	w := world{
		b: verdict.Booted{
			Architecture:          verdict.Known("amd64"),
			DeploymentKernels:     verdict.Known([]string{kernel}),
			RunningKernel:         verdict.Known(kernel),
			BootEntryOptions:      verdict.Known(options),
			CommandLine:           verdict.Known("BOOT_IMAGE=(hd0)/vmlinuz " + options),
			LegacyKernelArguments: verdict.Known([]string(nil)),
			FIPS:                  verdict.Known(fips),
			ForceFile:             verdict.Known(false),
			NodePayload:           verdict.Known(verdict.NodePayload{Kubelet: true, CRIO: true}),
			NetworkState:          verdict.Known(verdict.NetworkState{}),
		},
		t: verdict.Target{
			MachineConfig: verdict.Known(verdict.MachineConfig{
				Name: "rendered-worker-1", OSImageURL: "quay.io/os@" + string(pinned), Digest: pinned,
				KernelArguments: kargs, KernelType: "default", FIPS: fips,
			}),
			SignaturePolicy: verdict.Known(verdict.SignaturePolicy{Requirement: verdict.SignatureNone}),
		},
	}
	w.t.Identity.Architecture = verdict.Known("amd64")
	w.t.Identity.ManifestDigest = verdict.Known(digestOf(r, "instance"))
	w.t.Identity.ConfigDigest = verdict.Known(digestOf(r, "target-config"))
	targetIDs := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) verdict.Digest { return digestOf(r, "diffid") }), 2, 6).Draw(r, "diffids")
	w.t.Identity.DiffIDs = verdict.Known(targetIDs)
	w.t.Identity.Layers = verdict.Known(len(targetIDs))
	w.t.Identity.FinalDiffID = verdict.Known(targetIDs[len(targetIDs)-1])
	w.t.Identity.DerivedLayers = verdict.Known(0)
	w.t.Identity.InnerCommit = verdict.Known(verdict.InnerCommit{Checksum: commit, Root: root,
		Source: rapid.SampledFrom([]verdict.CommitSource{verdict.CommitFromLayerHead, verdict.CommitFromLayer, verdict.CommitFromLegacyRepo}).Draw(r, "source")})

	dep := verdict.Deployment{Checksum: commit, Stateroot: "rhcos", Kind: verdict.PlainCommit, Root: root}
	bi := verdict.Identity{DerivedLayers: verdict.Known(0),
		InnerCommit: verdict.Known(verdict.InnerCommit{Checksum: commit, Root: root, Source: verdict.CommitFromDeployment})}
	container := func() {
		dep.Kind, dep.Checksum = verdict.ContainerImage, verdict.Checksum(hexOf(r, "merge"))
		bi.Architecture = verdict.Known("amd64")
		bi.ManifestDigest = verdict.Known(digestOf(r, "booted-manifest"))
		bi.ConfigDigest = verdict.Known(digestOf(r, "booted-config"))
		ids := append(slices.Clone(targetIDs), digestOf(r, "other-diffid"))
		bi.DiffIDs, bi.Layers = verdict.Known(ids), verdict.Known(len(ids))
		bi.FinalDiffID = verdict.Known(ids[len(ids)-1])
		bi.InnerCommit = verdict.Known(verdict.InnerCommit{Checksum: verdict.Checksum(hexOf(r, "other-commit")),
			Root: rootOf(r, "other-root"), Source: verdict.CommitFromBlobRef})
	}
	switch proof {
	case verdict.ProofManifestDigest:
		container()
		dep.Root = rootOf(r, "merge-root")
		d := pinned
		if rapid.Bool().Draw(r, "list") {
			d, _ = w.t.Identity.ManifestDigest.Get()
		}
		bi.ManifestDigest = verdict.Known(d)
	case verdict.ProofConfigDigest:
		container()
		dep.Root = rootOf(r, "merge-root")
		bi.ConfigDigest, bi.DiffIDs, bi.Layers = w.t.Identity.ConfigDigest, w.t.Identity.DiffIDs, w.t.Identity.Layers
	case verdict.ProofDiffIDs:
		container()
		dep.Root = rootOf(r, "merge-root")
		bi.DiffIDs, bi.Layers, bi.FinalDiffID = w.t.Identity.DiffIDs, w.t.Identity.Layers, w.t.Identity.FinalDiffID
	case verdict.ProofOSTreeCommit:
		if rapid.Bool().Draw(r, "container") {
			container()
			bi.InnerCommit = verdict.Known(verdict.InnerCommit{Checksum: commit, Root: root, Source: verdict.CommitFromBlobRef})
		}
	case verdict.ProofContentChecksum:
		if rapid.Bool().Draw(r, "container") {
			container()
		} else {
			dep.Checksum = verdict.Checksum(hexOf(r, "earlier-commit"))
			bi.InnerCommit = verdict.Known(verdict.InnerCommit{Checksum: dep.Checksum, Root: root, Source: verdict.CommitFromDeployment})
		}
	}
	w.b.Identity, w.b.Deployment = bi, verdict.Known(dep)
	return w
}

func proofs() []verdict.Proof {
	return []verdict.Proof{verdict.ProofManifestDigest, verdict.ProofConfigDigest, verdict.ProofDiffIDs,
		verdict.ProofOSTreeCommit, verdict.ProofContentChecksum}
}

func change[T any](f *verdict.Fact[T], edit func(*T)) {
	v, _ := f.Get()
	edit(&v)
	*f = verdict.Known(v)
}
