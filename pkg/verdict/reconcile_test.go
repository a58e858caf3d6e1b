package verdict_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// seenInPart is what a status shows of a host: identity, deployment without
// roots, origin reference.
func seenInPart(b verdict.Booted) verdict.Booted {
	s := verdict.Booted{Identity: b.Identity, Deployment: b.Deployment, OriginReference: b.OriginReference}
	change(&s.Deployment, func(d *verdict.Deployment) {
		d.Root, d.Base.Root, d.Unseen = verdict.Root{}, verdict.Root{}, "what no status shows"
		d.Divergences = slices.Clone(d.Divergences)
	})
	if _, ok := s.Identity.InnerCommit.Get(); ok {
		change(&s.Identity.InnerCommit, func(c *verdict.InnerCommit) {
			c.Root = verdict.Root{}
			if c.Source != verdict.CommitFromDeployment {
				c.Source = verdict.CommitFromLabel
			}
		})
	}
	return s
}

// sharedFacts are those that both sources may know.
func sharedFacts(b *verdict.Booted) []factField {
	var out []factField
	id := reflect.ValueOf(&b.Identity).Elem()
	for i := range id.NumField() {
		if name := id.Type().Field(i).Name; strings.HasPrefix(id.Field(i).Type().Name(), "Fact[") {
			out = append(out, factField{name, id.Field(i)})
		}
	}
	all := reflect.ValueOf(b).Elem()
	return append(out, factField{"Deployment", all.FieldByName("Deployment")}, factField{"OriginReference", all.FieldByName("OriginReference")})
}

// forgetSome makes some of the facts unknown, or not gathered.
func forgetSome(r *rapid.T, label string, fields []factField) {
	for _, f := range fields {
		if state := rapid.SampledFrom([]string{"", "", "unknown", "not gathered"}).Draw(r, label+" "+f.name); state != "" {
			f.blank(state)
		}
	}
}

// A second source that knows a part of the same truth changes nothing.
func TestReconcileWithTheSameTruth(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := drawWorld(r, rapid.SampledFrom(proofs()).Draw(r, "proof"))
		w.b.OriginReference = verdict.Known("quay.io/os:1")
		if rapid.Bool().Draw(r, "local package") {
			change(&w.b.Deployment, func(d *verdict.Deployment) {
				d.RequestedPackages = []string{strings.Repeat("a", 64) + ":foo-1:2-3.noarch", "bar", "bar"}
			})
		}
		status := seenInPart(w.b)
		change(&status.Deployment, func(d *verdict.Deployment) {
			if len(d.RequestedPackages) > 0 {
				d.RequestedPackages = []string{"bar", "foo-1:2-3.noarch"}
			}
		})
		forgetSome(r, "status", sharedFacts(&status))
		want := verdict.Decide(w.b, w.t, verdict.Policy{})
		if got := verdict.Decide(verdict.Reconcile(w.b, status), w.t, verdict.Policy{}); !reflect.DeepEqual(got, want) {
			r.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

// What the sysroot could not read of the identity, the status may say.
func TestReconcileFillsTheIdentity(t *testing.T) {
	for _, proof := range []verdict.Proof{verdict.ProofManifestDigest, verdict.ProofConfigDigest, verdict.ProofDiffIDs} {
		t.Run(string(proof), func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				w := drawWorld(r, proof)
				status := seenInPart(w.b)
				forgetSome(r, "sysroot", pick(&w, []string{"b.Architecture", "b.ManifestDigest", "b.ConfigDigest", "b.DiffIDs", "b.Layers", "b.FinalDiffID"}))
				if v := verdict.Decide(verdict.Reconcile(w.b, status), w.t, verdict.Policy{}); v.Action != verdict.Skip || v.Proof != proof {
					r.Fatalf("got %s by %q: %+v", v.Reason, v.Proof, v.Checks)
				}
			})
		})
	}
}

// disagreements are single fields of a status that say something else, with
// the words that name them.
var disagreements = map[string]func(s *verdict.Booted){
	"stateroot: the sysroot says rhcos, rpm-ostree other": told(func(d *verdict.Deployment) { d.Stateroot = "other" }),
	"checksum: ": told(func(d *verdict.Deployment) { d.Checksum = verdict.Checksum(strings.Repeat("9", 64)) }),
	"serial: the sysroot says 0, rpm-ostree 7": told(func(d *verdict.Deployment) { d.Serial = 7 }),
	"kind: ": told(func(d *verdict.Deployment) { d.Kind = verdict.ClientLayered }),
	"base checksum: the sysroot says nothing": told(func(d *verdict.Deployment) { d.Base.Checksum = verdict.Checksum(strings.Repeat("9", 64)) }),
	"base kind: ":                                told(func(d *verdict.Deployment) { d.Base.Kind = verdict.PlainCommit }),
	"requested packages: ":                       told(func(d *verdict.Deployment) { d.RequestedPackages = []string{"vim"} }),
	"requested removals: ":                       told(func(d *verdict.Deployment) { d.RequestedRemovals = []string{"vim"} }),
	"layered packages: ":                         told(func(d *verdict.Deployment) { d.LayeredPackages = []string{"a", "b"} }),
	"removed packages: the sysroot says nothing": told(func(d *verdict.Deployment) { d.RemovedPackages = []string{"vim"} }),
	"staged: the sysroot says nothing, rpm-ostree \"rhcos-1.0\"": told(func(d *verdict.Deployment) {
		d.Divergences = append(d.Divergences, verdict.Divergence{Kind: verdict.Staged, Detail: "rhcos-1.0"})
	}),
	"architecture: ":     func(s *verdict.Booted) { s.Identity.Architecture = verdict.Known("s390x") },
	"manifest digest: ":  func(s *verdict.Booted) { s.Identity.ManifestDigest = verdict.Known(otherDigest) },
	"config digest: ":    func(s *verdict.Booted) { s.Identity.ConfigDigest = verdict.Known(otherDigest) },
	"layers: ":           func(s *verdict.Booted) { s.Identity.Layers = verdict.Known(99) },
	"final diff id: ":    func(s *verdict.Booted) { s.Identity.FinalDiffID = verdict.Known(verdict.Digest("")) },
	"derived layers: ":   func(s *verdict.Booted) { s.Identity.DerivedLayers = verdict.Known(99) },
	"origin reference: ": func(s *verdict.Booted) { s.OriginReference = verdict.Known("quay.io/os:2") },
	"diff id 1: ": func(s *verdict.Booted) {
		change(&s.Identity.DiffIDs, func(d *[]verdict.Digest) { *d = append([]verdict.Digest{(*d)[0], otherDigest}, (*d)[2:]...) })
	},
	"diff ids: ": func(s *verdict.Booted) {
		change(&s.Identity.DiffIDs, func(d *[]verdict.Digest) { *d = append(slices.Clone(*d), otherDigest) })
	},
	"inner commit: ": func(s *verdict.Booted) {
		s.Identity.InnerCommit = verdict.Known(verdict.InnerCommit{Checksum: verdict.Checksum(strings.Repeat("9", 64)), Source: verdict.CommitFromParent})
	},
}

var otherDigest = verdict.Digest("sha256:" + strings.Repeat("9", 64))

func told(edit func(*verdict.Deployment)) func(*verdict.Booted) {
	return func(s *verdict.Booted) { change(&s.Deployment, edit) }
}

func TestReconcileDisagreement(t *testing.T) {
	for words, edit := range disagreements {
		t.Run(words, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				w := drawWorld(r, verdict.ProofManifestDigest)
				w.b.OriginReference = verdict.Known("quay.io/os:1")
				status := seenInPart(w.b)
				edit(&status)
				before, _ := w.b.Deployment.Get()
				v := verdict.Decide(verdict.Reconcile(w.b, status), w.t, verdict.Policy{})
				if v.Action != verdict.Proceed || v.Reason != "deployment-differs" || !v.Conclusive {
					r.Fatalf("got %s, conclusive %t", v.Reason, v.Conclusive)
				}
				for _, c := range v.Checks {
					if c.Name == verdict.CheckDeployment && !strings.Contains(c.Detail, "sources-disagree ("+words) {
						r.Fatalf("got %q", c.Detail)
					}
				}
				if after, _ := w.b.Deployment.Get(); !reflect.DeepEqual(before, after) {
					r.Fatal("the sysroot's own facts were changed")
				}
				// A deployment that the status alone knows is disputed no less.
				w.b.Deployment = verdict.Unknown[verdict.Deployment]("a fault")
				if v := verdict.Decide(verdict.Reconcile(w.b, status), w.t, verdict.Policy{}); v.Action != verdict.Proceed {
					r.Fatal("a skip from a status alone")
				}
			})
		})
	}
}

// drawPair makes two sources of which nothing is known: each fact is right,
// wrong, unknown or not gathered, and each may show divergences.
func drawPair(r *rapid.T, w world) (sysroot, status verdict.Booted) {
	wrong := drawWorld(r, rapid.SampledFrom(proofs()).Draw(r, "wrong proof")).b
	draw := func(label string) verdict.Booted {
		b := w.b
		b.OriginReference, wrong.OriginReference = verdict.Known("quay.io/os:1"), verdict.Known("quay.io/os:2")
		from := sharedFacts(&wrong)
		for i, f := range sharedFacts(&b) {
			switch state := rapid.SampledFrom([]string{"right", "right", "right", "right", "wrong", "unknown", "not gathered"}).Draw(r, label+" "+f.name); state {
			case "right":
			case "wrong":
				f.value.Set(from[i].value)
			default:
				f.blank(state)
			}
		}
		if _, ok := b.Deployment.Get(); ok {
			change(&b.Deployment, func(d *verdict.Deployment) {
				kinds := []verdict.DivergenceKind{verdict.Staged, verdict.Unlocked, verdict.NotDefault, verdict.CommitPartial}
				if rapid.IntRange(0, 3).Draw(r, label+" diverges") == 0 {
					d.Divergences = []verdict.Divergence{{Kind: rapid.SampledFrom(kinds).Draw(r, label+" kind")}}
				}
				if rapid.IntRange(0, 3).Draw(r, label+" in part") == 0 {
					d.Unseen = label + " was seen in part"
				}
			})
		}
		return b
	}
	return draw("sysroot"), draw("status")
}

// Whatever a second source says, it makes no skip of what the first knows to
// be otherwise, or has not seen whole.
func TestReconcileNeverHides(t *testing.T) {
	skips, proceeds := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		w := drawWorld(r, rapid.SampledFrom(proofs()).Draw(r, "proof"))
		sysroot, status := drawPair(r, w)
		merged := verdict.Reconcile(sysroot, status)
		alone, both := verdict.Decide(sysroot, w.t, verdict.Policy{}), verdict.Decide(merged, w.t, verdict.Policy{})
		own := sharedFacts(&sysroot)
		for i, f := range sharedFacts(&merged) {
			if f.name != "Deployment" && known(own[i]) && !reflect.DeepEqual(f.value.Interface(), own[i].value.Interface()) {
				r.Fatalf("%s is no longer the sysroot's", f.name)
			}
		}
		for i, c := range both.Checks {
			was := alone.Checks[i]
			if c.Outcome != verdict.OutcomeSame || was.Outcome == verdict.OutcomeSame || c.Name == verdict.CheckOSContent {
				continue
			}
			if was.Outcome == verdict.OutcomeDiffers || sysroot.Deployment.IsKnown() && c.Name != verdict.CheckArchitecture {
				r.Fatalf("%s was %s (%s)", c.Name, was.Outcome, was.Detail)
			}
		}
		if both.Action != verdict.Skip {
			proceeds++
			return
		}
		skips++
		d, ok := sysroot.Deployment.Get()
		if !ok || d.Unseen != "" || len(d.Divergences) > 0 {
			r.Fatalf("a skip on a deployment that the sysroot does not vouch for: %+v", d)
		}
		if s, ok := status.Deployment.Get(); ok && (s.Checksum != d.Checksum || s.Kind != d.Kind || len(s.Divergences) > 0) {
			r.Fatalf("a skip although the status says %+v", s)
		}
		// Only a fact that the sysroot has no value of can come from the status.
		theirs := sharedFacts(&status)
		for i, f := range theirs {
			if f.name != "Deployment" && f.name != "InnerCommit" && known(f) && known(own[i]) && !reflect.DeepEqual(f.value.Interface(), own[i].value.Interface()) {
				r.Fatalf("a skip although both know %s and disagree", f.name)
			}
		}
	})
	if skips == 0 || proceeds == 0 {
		t.Errorf("%d skips and %d proceeds: the property is hollow", skips, proceeds)
	}
}

// known asks a fact of whatever type.
func known(f factField) bool {
	return f.value.Addr().MethodByName("IsKnown").Call(nil)[0].Bool()
}

// A deployment that only the status knows is never seen whole.
func TestReconcileWithoutASysroot(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := drawWorld(r, rapid.SampledFrom(proofs()).Draw(r, "proof"))
		status := seenInPart(w.b)
		change(&status.Deployment, func(d *verdict.Deployment) {
			d.Unseen = rapid.SampledFrom([]string{"", "what no status shows"}).Draw(r, "unseen")
		})
		w.b.Deployment, w.b.Identity = verdict.Unknown[verdict.Deployment]("no repository"), verdict.UnknownIdentity("no repository")
		merged := verdict.Reconcile(w.b, status)
		if d, ok := merged.Deployment.Get(); !ok || !strings.HasSuffix(d.Unseen, "the sysroot's own: no repository") {
			r.Fatalf("got %+v", d)
		}
		v := verdict.Decide(merged, w.t, verdict.Policy{})
		if v.Action != verdict.Proceed || v.Conclusive {
			r.Fatalf("got %v, %s, conclusive %t", v.Action, v.Reason, v.Conclusive)
		}
	})
	if v := verdict.Reconcile(verdict.Booted{}, verdict.Booted{}); !reflect.DeepEqual(v, verdict.Booted{}) {
		t.Errorf("from nothing: %+v", v)
	}
}
