package verdict_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/oneboot/oneboot/pkg/verdict"
)

func TestZeroValuesProceed(t *testing.T) {
	v := verdict.Decide(verdict.Booted{}, verdict.Target{}, verdict.Policy{})
	if v.Action != verdict.Proceed || v.Conclusive {
		t.Errorf("zero facts: got %v, conclusive %v", v.Action, v.Conclusive)
	}
	var zero verdict.Verdict
	if zero.Action != verdict.Proceed {
		t.Error("the zero verdict is not proceed")
	}
}

func TestEqualByConstructionSkips(t *testing.T) {
	for _, proof := range proofs() {
		t.Run(string(proof), func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				w := drawWorld(r, proof)
				v := verdict.Decide(w.b, w.t, verdict.Policy{})
				if v.Action != verdict.Skip || v.Proof != proof || v.Reason != verdict.ReasonProven || !v.Conclusive || v.Hypothetical || len(v.Needs) > 0 {
					r.Fatalf("got %v by %q: %s, needs %v\n%+v", v.Action, v.Proof, v.Reason, v.Needs, v.Checks)
				}
			})
		})
	}
}

// changes are single facts, each of which a skip cannot survive.
var changes = map[string]func(w *world){
	"osImageURL empty": func(w *world) { change(&w.t.MachineConfig, func(m *verdict.MachineConfig) { m.OSImageURL = "" }) },
	"tag":              func(w *world) { change(&w.t.MachineConfig, func(m *verdict.MachineConfig) { m.Digest = "" }) },
	"foreign ignition": func(w *world) {
		change(&w.t.MachineConfig, func(m *verdict.MachineConfig) { m.Foreign = []string{"files"} })
	},
	"layering mark": func(w *world) {
		change(&w.t.MachineConfig, func(m *verdict.MachineConfig) { m.LayeringMarks = []string{"x"} })
	},
	"karg wanted": func(w *world) {
		change(&w.t.MachineConfig, func(m *verdict.MachineConfig) { m.KernelArguments = append(slices.Clone(m.KernelArguments), "new=1") })
	},
	"kernel type": func(w *world) {
		change(&w.t.MachineConfig, func(m *verdict.MachineConfig) { m.KernelType = "realtime" })
	},
	"kernel type zero": func(w *world) { change(&w.t.MachineConfig, func(m *verdict.MachineConfig) { m.KernelType = "" }) },
	"extension": func(w *world) {
		change(&w.t.MachineConfig, func(m *verdict.MachineConfig) { m.Extensions = []string{"usbguard"} })
	},
	"fips wanted":       func(w *world) { change(&w.t.MachineConfig, func(m *verdict.MachineConfig) { m.FIPS = !m.FIPS }) },
	"fips booted":       func(w *world) { change(&w.b.FIPS, func(f *bool) { *f = !*f }) },
	"host architecture": func(w *world) { w.b.Architecture = verdict.Known("arm64") },
	"image architecture": func(w *world) {
		w.t.Identity.Architecture = verdict.Known("arm64")
		w.b.Identity.Architecture = verdict.Known("arm64")
	},
	"package removed": func(w *world) {
		change(&w.b.Deployment, func(d *verdict.Deployment) { d.RequestedRemovals = []string{"zincati"} })
	},
	"package removed from the commit": func(w *world) {
		change(&w.b.Deployment, func(d *verdict.Deployment) { d.RemovedPackages = []string{"zincati"} })
	},
	"package layered unasked": func(w *world) {
		change(&w.b.Deployment, func(d *verdict.Deployment) { d.LayeredPackages = []string{"vim"} })
	},
	"package requested": func(w *world) {
		change(&w.b.Deployment, func(d *verdict.Deployment) { d.RequestedPackages = []string{"vim"} })
	},
	"seen in part": func(w *world) {
		change(&w.b.Deployment, func(d *verdict.Deployment) { d.Unseen = "its state under /run" })
	},
	"client layer": func(w *world) {
		change(&w.b.Deployment, func(d *verdict.Deployment) { d.Kind = verdict.ClientLayered })
	},
	"divergence": func(w *world) {
		change(&w.b.Deployment, func(d *verdict.Deployment) { d.Divergences = []verdict.Divergence{{Kind: verdict.Staged}} })
	},
	"running kernel":  func(w *world) { w.b.RunningKernel = verdict.Known("6.1.0-other") },
	"no kernels":      func(w *world) { w.b.DeploymentKernels = verdict.Known([]string{}) },
	"no kubelet":      func(w *world) { w.b.NodePayload = verdict.Known(verdict.NodePayload{CRIO: true}) },
	"no crio":         func(w *world) { w.b.NodePayload = verdict.Known(verdict.NodePayload{Kubelet: true}) },
	"force file":      func(w *world) { w.b.ForceFile = verdict.Known(true) },
	"initrd network":  func(w *world) { w.b.NetworkState = verdict.Known(verdict.NetworkState{Leftover: "eth0"}) },
	"legacy kargs":    func(w *world) { w.b.LegacyKernelArguments = verdict.Known([]string{"ADD nosmt=force"}) },
	"legacy deletes":  func(w *world) { w.b.LegacyKernelArguments = verdict.Known([]string{"DELETE rw"}) },
	"legacy nonsense": func(w *world) { w.b.LegacyKernelArguments = verdict.Known([]string{"REPLACE rw"}) },
	"policy rejects": func(w *world) {
		w.t.SignaturePolicy = verdict.Known(verdict.SignaturePolicy{Requirement: verdict.SignatureReject})
	},
	"policy requires": func(w *world) {
		w.t.SignaturePolicy = verdict.Known(verdict.SignaturePolicy{Requirement: verdict.SignatureRequired})
	},
	"signature bad": func(w *world) {
		w.t.SignaturePolicy = verdict.Known(verdict.SignaturePolicy{Requirement: verdict.SignatureInvalid})
	},
	"policy zero": func(w *world) { w.t.SignaturePolicy = verdict.Known(verdict.SignaturePolicy{}) },
	"os content": func(w *world) {
		other := verdict.Digest("sha256:" + strings.Repeat("f", 64))
		csum := verdict.Checksum(strings.Repeat("e", 64))
		change(&w.t.MachineConfig, func(m *verdict.MachineConfig) { m.Digest = other })
		w.t.Identity.ManifestDigest, w.t.Identity.ConfigDigest = verdict.Known(other), verdict.Known(other)
		change(&w.t.Identity.DiffIDs, func(d *[]verdict.Digest) { *d = append([]verdict.Digest{other}, (*d)[1:]...) })
		change(&w.t.Identity.InnerCommit, func(c *verdict.InnerCommit) { c.Checksum, c.Root = csum, verdict.Root{DirTree: csum, DirMeta: csum} })
	},
}

func TestOneChangedFactProceeds(t *testing.T) {
	for name, edit := range changes {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				w := drawWorld(r, rapid.SampledFrom(proofs()).Draw(r, "proof"))
				edit(&w)
				if v := verdict.Decide(w.b, w.t, verdict.Policy{}); v.Action != verdict.Proceed || v.Reason == verdict.ReasonProven {
					r.Fatalf("still a skip: %s by %s", v.Reason, v.Proof)
				}
			})
		})
	}
}

// essential names the identity facts that each proof rests on; every other
// fact of the host and of the target is one that every skip rests on.
var essential = map[verdict.Proof][]string{
	verdict.ProofConfigDigest:    {"b.ConfigDigest", "t.ConfigDigest", "t.ManifestDigest", "b.Layers", "t.Layers", "b.DiffIDs"},
	verdict.ProofDiffIDs:         {"b.DiffIDs", "t.DiffIDs", "b.Layers", "t.Layers", "b.FinalDiffID", "t.FinalDiffID"},
	verdict.ProofOSTreeCommit:    {"t.DerivedLayers", "t.InnerCommit", "t.DiffIDs", "t.ConfigDigest"},
	verdict.ProofContentChecksum: {"t.DerivedLayers", "t.InnerCommit", "t.DiffIDs", "t.ConfigDigest"},
}

// forShow names facts that no check reads, and those of packages, which only a
// host with layered packages rests on.
var forShow = []string{"OriginReference", "ManifestLayers", "Blobs", "Packages", "BasePackages", "Extensions"}

// Every fact field is found by reflection, so that one added later is held to
// the law without a new line here.
func TestOneUnknownFactProceeds(t *testing.T) {
	for _, proof := range proofs() {
		for _, state := range []string{"unknown", "not gathered"} {
			t.Run(string(proof)+"/"+state, func(t *testing.T) {
				rapid.Check(t, func(r *rapid.T) {
					w := drawWorld(r, proof)
					fields := append(factsOf(reflect.ValueOf(&w.b).Elem(), ""), factsOf(reflect.ValueOf(&w.t).Elem(), "")...)
					fields = append(fields, pick(&w, essential[proof])...)
					f := rapid.SampledFrom(fields).Draw(r, "fact")
					if f.name == "CommandLine" || f.name == "BootEntryOptions" {
						change(&w.t.MachineConfig, func(m *verdict.MachineConfig) { m.KernelArguments = []string{"rw"} })
						if v := verdict.Decide(w.b, w.t, verdict.Policy{}); v.Action != verdict.Skip {
							r.Fatalf("not a skip to begin with: %s %+v", v.Reason, v.Checks)
						}
					}
					f.blank(state)
					if v := verdict.Decide(w.b, w.t, verdict.Policy{}); v.Action != verdict.Proceed {
						r.Fatalf("%s made %s: still a skip by %s", f.name, state, v.Proof)
					}
				})
			})
		}
	}
}

type factField struct {
	name  string
	value reflect.Value
}

// blank makes the fact unknown, by the package's own constructor, or zero.
func (f factField) blank(state string) {
	switch p := f.value.Addr().Interface().(type) {
	case *verdict.Fact[string]:
		forget(p, state)
	case *verdict.Fact[bool]:
		forget(p, state)
	case *verdict.Fact[int]:
		forget(p, state)
	case *verdict.Fact[[]string]:
		forget(p, state)
	case *verdict.Fact[verdict.Digest]:
		forget(p, state)
	case *verdict.Fact[[]verdict.Digest]:
		forget(p, state)
	case *verdict.Fact[verdict.InnerCommit]:
		forget(p, state)
	case *verdict.Fact[verdict.Deployment]:
		forget(p, state)
	case *verdict.Fact[verdict.NodePayload]:
		forget(p, state)
	case *verdict.Fact[verdict.NetworkState]:
		forget(p, state)
	case *verdict.Fact[verdict.MachineConfig]:
		forget(p, state)
	case *verdict.Fact[verdict.SignaturePolicy]:
		forget(p, state)
	default:
		panic("a new kind of fact: " + f.value.Type().String())
	}
}

func forget[T any](f *verdict.Fact[T], state string) {
	*f = verdict.Fact[T]{}
	if state == "unknown" {
		*f = verdict.Unknown[T]("a fault")
	}
}

// factsOf lists the Fact fields of a struct that every skip rests on.
func factsOf(v reflect.Value, prefix string) []factField {
	var out []factField
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if name == "Identity" || slices.Contains(forShow, name) || !strings.HasPrefix(v.Field(i).Type().Name(), "Fact[") {
			continue
		}
		out = append(out, factField{prefix + name, v.Field(i)})
	}
	return out
}

func pick(w *world, names []string) []factField {
	var out []factField
	for _, n := range names {
		side, field, _ := strings.Cut(n, ".")
		id := reflect.ValueOf(&w.b.Identity).Elem()
		if side == "t" {
			id = reflect.ValueOf(&w.t.Identity).Elem()
		}
		out = append(out, factField{n, id.FieldByName(field)})
	}
	return out
}

// A verdict asks only for what could still make it a skip.
func TestNeeds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := drawWorld(r, verdict.ProofOSTreeCommit)
		w.t.Identity = verdict.Identity{}
		v := verdict.Decide(w.b, w.t, verdict.Policy{})
		if !slices.Contains(v.Needs, verdict.NeedInstance) {
			r.Fatalf("needs %v, want the instance", v.Needs)
		}
		w.b.ForceFile = verdict.Known(true)
		if v := verdict.Decide(w.b, w.t, verdict.Policy{}); len(v.Needs) > 0 {
			r.Fatalf("a verdict that is final needs %v", v.Needs)
		}
		if v := verdict.Decide(w.b, w.t, verdict.Policy{Full: true}); len(v.Needs) == 0 {
			r.Fatal("full, but needs nothing")
		}
		w.b.ForceFile = verdict.Unknown[bool]("a fault")
		if v := verdict.Decide(w.b, w.t, verdict.Policy{}); len(v.Needs) > 0 {
			r.Fatalf("an unknown that stays needs %v", v.Needs)
		}
	})
}

// Left-out checks make the verdict hypothetical, never silently a skip.
func TestHypothetical(t *testing.T) {
	for name, p := range map[string]verdict.Policy{
		"skip-check": {SkipChecks: []verdict.CheckName{verdict.CheckFIPS}},
		"unbooted":   {Unbooted: true},
		"target":     {OtherTarget: true},
		"status":     {SavedStatus: true},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				w := drawWorld(r, rapid.SampledFrom(proofs()).Draw(r, "proof"))
				if v := verdict.Decide(w.b, w.t, p); v.Action != verdict.Skip || !v.Hypothetical {
					r.Fatalf("got %v, hypothetical %v", v.Action, v.Hypothetical)
				}
			})
		})
	}
}

// A layer that the config does not account for is imported all the same.
func TestSameConfigWithALayerMore(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := drawWorld(r, rapid.SampledFrom([]verdict.Proof{verdict.ProofConfigDigest, verdict.ProofDiffIDs}).Draw(r, "proof"))
		change(&w.t.Identity.Layers, func(n *int) { *n++ })
		w.t.Identity.DerivedLayers = verdict.Unknown[int]("layers and diff ids differ in number")
		if v := verdict.Decide(w.b, w.t, verdict.Policy{}); v.Action != verdict.Proceed {
			r.Fatalf("skip by %s", v.Proof)
		}
	})
}

// Everything is looked at for a person who asks for it, also what a proof needs
// no more.
func TestFullAsksForTheImage(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := drawWorld(r, verdict.ProofManifestDigest)
		w.b.Identity.ManifestDigest = verdict.Known(pinnedOf(w))
		w.t.Identity = verdict.Identity{}
		if v := verdict.Decide(w.b, w.t, verdict.Policy{}); v.Action != verdict.Skip || slices.Contains(v.Needs, verdict.NeedManifest) {
			r.Fatalf("%v, needs %v", v.Action, v.Needs)
		}
		v := verdict.Decide(w.b, w.t, verdict.Policy{Full: true})
		for _, n := range []verdict.Need{verdict.NeedInstance, verdict.NeedManifest, verdict.NeedConfig} {
			if !slices.Contains(v.Needs, n) {
				r.Fatalf("needs %v, want %s", v.Needs, n)
			}
		}
	})
}

func pinnedOf(w world) verdict.Digest {
	mc, _ := w.t.MachineConfig.Get()
	return mc.Digest
}
