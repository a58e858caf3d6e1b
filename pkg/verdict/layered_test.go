package verdict_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/oneboot/oneboot/pkg/verdict"
)

var (
	baseKernel     = []string{"kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"}
	realtimeKernel = []string{"kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"}
	pagesKernel    = []string{"kernel-64k-core", "kernel-64k-modules", "kernel-64k-modules-core", "kernel-64k-modules-extra"}
)

// extensionSets are two extensions, one of which two releases know otherwise.
var extensionSets = map[string][]verdict.PackageSet{
	"usbguard": {{Packages: []string{"usbguard"}, Releases: allReleases}},
	"ipsec": {
		{Packages: []string{"NetworkManager-libreswan", "libreswan", "openvswitch3.5-ipsec"}, Releases: verdict.ReleaseRange{Since: "4.23", Before: "5.3"}},
		{Packages: []string{"NetworkManager-libreswan", "libreswan"}, Releases: verdict.ReleaseRange{Since: "4.14", Before: "4.23"}},
	},
}

var allReleases = verdict.ReleaseRange{Since: "4.12", Before: "5.3"}

// A layering says what a layered world has over its base.
type layering struct {
	extensions []string
	kernelType string
	// old takes the older of an extension's package sets.
	old bool
}

// drawLayering draws one that is not empty.
func drawLayering(r *rapid.T) layering {
	l := layering{
		extensions: rapid.SliceOfDistinct(rapid.SampledFrom([]string{"usbguard", "ipsec"}), rapid.ID).Draw(r, "extensions"),
		kernelType: rapid.SampledFrom([]string{"default", "realtime", "64k-pages"}).Draw(r, "kernel type"),
		old:        rapid.Bool().Draw(r, "old"),
	}
	if len(l.extensions) == 0 && l.kernelType == "default" {
		l.extensions = []string{"usbguard"}
	}
	return l
}

// drawLayeredWorld is a world whose host has just the wanted extensions and
// kernel type layered on the OS that proof proves.
func drawLayeredWorld(r *rapid.T, proof verdict.Proof, l layering) world {
	w := drawWorld(r, proof)
	version := fmt.Sprintf("%d-1.el9.x86_64", rapid.IntRange(1, 9).Draw(r, "version"))
	base := []verdict.Package{{Name: "bash", EVRA: "5.1.8-9.el9.x86_64"}, {Name: "gpg-pubkey", EVRA: "1-1.x86_64"}, {Name: "gpg-pubkey", EVRA: "2-1.x86_64"}}
	for _, name := range baseKernel {
		base = append(base, verdict.Package{Name: name, EVRA: "5.14.0-427.13.1.el9_4.x86_64"})
	}
	requested := []string{}
	for _, e := range l.extensions {
		sets := extensionSets[e]
		set := sets[0]
		if l.old {
			set = sets[len(sets)-1]
		}
		requested = append(requested, set.Packages...)
	}
	removed := []string{}
	running := kernel
	switch l.kernelType {
	case "realtime":
		requested, removed = append(requested, realtimeKernel...), baseKernel
		running = version + "+rt"
		if rapid.Bool().Draw(r, "marked version") {
			version = "5.14.0-284.11.1.rt14.296.el9_2.x86_64"
			running = version
		}
	case "64k-pages":
		requested, removed = append(requested, pagesKernel...), baseKernel
		running = version + "+64k"
	}
	var added []verdict.Package
	for _, name := range append(slices.Clone(requested), "a-dependency") {
		added = append(added, verdict.Package{Name: name, EVRA: version})
	}
	deployed := slices.DeleteFunc(slices.Clone(base), func(p verdict.Package) bool { return slices.Contains(removed, p.Name) })
	w.b.Packages, w.b.BasePackages = verdict.Known(slices.Concat(deployed, added)), verdict.Known(base)
	w.b.RunningKernel, w.b.DeploymentKernels = verdict.Known(running), verdict.Known([]string{running})
	slices.Sort(requested)
	change(&w.b.Deployment, func(d *verdict.Deployment) {
		d.Base = verdict.Base{Checksum: d.Checksum, Kind: d.Kind, Root: d.Root}
		d.Kind, d.Checksum, d.Root = verdict.ClientLayered, verdict.Checksum(hexOf(r, "layered")), rootOf(r, "layered-root")
		d.RequestedPackages, d.LayeredPackages = requested, slices.Clone(requested)
		d.RequestedRemovals, d.RemovedPackages = removed, slices.Clone(removed)
		if d.Base.Kind == verdict.PlainCommit {
			change(&w.b.Identity.InnerCommit, func(c *verdict.InnerCommit) { c.Source = verdict.CommitFromParent })
		}
	})
	change(&w.t.MachineConfig, func(m *verdict.MachineConfig) {
		m.Extensions, m.ExtensionSets, m.KernelType = l.extensions, extensionSets, l.kernelType
		m.Release = "5.0.1"
		if l.old {
			m.Release = "4.16.3"
		}
		m.KernelTypePackages = slices.Concat(realtimeKernel, []string{"kernel-rt-kvm"}, pagesKernel)
		switch l.kernelType {
		case "realtime":
			m.KernelTypeSets = []verdict.KernelPackageSet{
				{Removed: baseKernel, Installed: realtimeKernel, Releases: allReleases},
				{Removed: baseKernel, Installed: append([]string{"kernel-rt-kvm"}, realtimeKernel...), Releases: allReleases},
			}
		case "64k-pages":
			m.KernelTypeSets = []verdict.KernelPackageSet{{Removed: baseKernel, Installed: pagesKernel, Releases: allReleases}}
		}
	})
	offered := append(slices.Clone(added), verdict.Package{Name: "not-wanted", EVRA: version}, verdict.Package{Name: "usbguard", EVRA: "0-1.el9.i686"})
	w.t.Extensions = verdict.Known(offered)
	return w
}

func TestWantedPackagesLayeredSkips(t *testing.T) {
	for _, proof := range proofs() {
		t.Run(string(proof), func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				w := drawLayeredWorld(r, proof, drawLayering(r))
				v := verdict.Decide(w.b, w.t, verdict.Policy{})
				if v.Action != verdict.Skip || v.Proof != proof || !v.Conclusive || len(v.Needs) > 0 {
					r.Fatalf("got %v by %q: %s, needs %v\n%+v", v.Action, v.Proof, v.Reason, v.Needs, v.Checks)
				}
			})
		})
	}
}

// layeredChanges are single facts of layered packages that a skip cannot
// survive.
var layeredChanges = map[string]func(r *rapid.T, w *world){
	"a package less requested": func(_ *rapid.T, w *world) {
		change(&w.b.Deployment, func(d *verdict.Deployment) { d.RequestedPackages = d.RequestedPackages[1:] })
	},
	"a package more requested": func(_ *rapid.T, w *world) {
		change(&w.b.Deployment, func(d *verdict.Deployment) {
			d.RequestedPackages = append(slices.Clone(d.RequestedPackages), "zsh")
		})
	},
	"requested and layered, one more": func(_ *rapid.T, w *world) {
		change(&w.b.Deployment, func(d *verdict.Deployment) {
			d.RequestedPackages = append(slices.Clone(d.RequestedPackages), "zsh")
			d.LayeredPackages = append(slices.Clone(d.LayeredPackages), "zsh")
		})
	},
	"requested but inactive": func(_ *rapid.T, w *world) {
		change(&w.b.Deployment, func(d *verdict.Deployment) { d.LayeredPackages = d.LayeredPackages[1:] })
	},
	"layered but not requested": func(_ *rapid.T, w *world) {
		change(&w.b.Deployment, func(d *verdict.Deployment) { d.LayeredPackages = append(slices.Clone(d.LayeredPackages), "zsh") })
	},
	"a removal more": func(_ *rapid.T, w *world) {
		change(&w.b.Deployment, func(d *verdict.Deployment) {
			d.RequestedRemovals = append(slices.Clone(d.RequestedRemovals), "zincati")
		})
	},
	"removed in the commit alone": func(_ *rapid.T, w *world) {
		change(&w.b.Deployment, func(d *verdict.Deployment) { d.RemovedPackages = append(slices.Clone(d.RemovedPackages), "bash") })
	},
	"another version than offered": func(r *rapid.T, w *world) {
		change(&w.b.Packages, func(p *[]verdict.Package) {
			*p = slices.Clone(*p)
			(*p)[len(*p)-rapid.IntRange(1, 2).Draw(r, "which")].EVRA = "99-1.el9.x86_64"
		})
	},
	"another epoch than offered": func(_ *rapid.T, w *world) {
		change(&w.b.Packages, func(p *[]verdict.Package) { *p = slices.Clone(*p); (*p)[len(*p)-1].EVRA = "1:" + (*p)[len(*p)-1].EVRA })
	},
	"not offered": func(r *rapid.T, w *world) {
		layered, _ := w.b.Deployment.Get()
		name := rapid.SampledFrom(append([]string{"a-dependency"}, layered.LayeredPackages...)).Draw(r, "package")
		change(&w.t.Extensions, func(p *[]verdict.Package) {
			*p = slices.DeleteFunc(slices.Clone(*p), func(p verdict.Package) bool { return p.Name == name })
		})
	},
	"offered twice": func(_ *rapid.T, w *world) {
		change(&w.t.Extensions, func(p *[]verdict.Package) {
			*p = append(slices.Clone(*p), verdict.Package{Name: "a-dependency", EVRA: "99-1.el9.x86_64"})
		})
	},
	"a base package of another version": func(_ *rapid.T, w *world) {
		change(&w.b.Packages, func(p *[]verdict.Package) { *p = slices.Clone(*p); (*p)[0].EVRA = "6.0-1.el9.x86_64" })
	},
	"a base package gone": func(_ *rapid.T, w *world) {
		change(&w.b.Packages, func(p *[]verdict.Package) { *p = slices.Clone(*p)[1:] })
	},
	"one of two like-named base packages gone": func(_ *rapid.T, w *world) {
		change(&w.b.Packages, func(p *[]verdict.Package) { *p = slices.Delete(slices.Clone(*p), 1, 2) })
	},
	"a package more that nobody asked for": func(_ *rapid.T, w *world) {
		change(&w.b.Packages, func(p *[]verdict.Package) {
			*p = append(slices.Clone(*p), verdict.Package{Name: "stowaway", EVRA: "1-1.el9.x86_64"})
		})
	},
	"an extension more wanted": func(_ *rapid.T, w *world) {
		change(&w.t.MachineConfig, func(m *verdict.MachineConfig) {
			m.Extensions = append(slices.Clone(m.Extensions), "kerberos")
			m.ExtensionSets = map[string][]verdict.PackageSet{"kerberos": {{Packages: []string{"krb5-workstation", "libkadm5"}, Releases: allReleases}},
				"usbguard": extensionSets["usbguard"], "ipsec": extensionSets["ipsec"]}
		})
	},
	"an unknown extension wanted": func(_ *rapid.T, w *world) {
		change(&w.t.MachineConfig, func(m *verdict.MachineConfig) { m.Extensions = append(slices.Clone(m.Extensions), "tailscale") })
	},
	"no extension wanted, default kernel": func(_ *rapid.T, w *world) {
		change(&w.t.MachineConfig, func(m *verdict.MachineConfig) { m.Extensions, m.KernelType, m.KernelTypeSets = nil, "default", nil })
	},
	"an unknown kernel type": func(_ *rapid.T, w *world) {
		change(&w.t.MachineConfig, func(m *verdict.MachineConfig) { m.KernelType, m.KernelTypeSets = "debug", nil })
	},
	"of a release that is not known": func(r *rapid.T, w *world) {
		change(&w.t.MachineConfig, func(m *verdict.MachineConfig) {
			m.Release = rapid.SampledFrom([]string{"", "next", "4.11.9", "9.9.0", "5.3.0"}).Draw(r, "release")
		})
	},
	"on another base": func(r *rapid.T, w *world) {
		w.b.Identity = verdict.UnknownIdentity("not read")
		change(&w.b.Deployment, func(d *verdict.Deployment) { d.Base.Checksum, d.Base.Root = "", rootOf(r, "other base") })
	},
	"layered twice": func(_ *rapid.T, w *world) {
		w.b.Identity = verdict.UnknownIdentity("not read")
		change(&w.b.Deployment, func(d *verdict.Deployment) { d.Base = verdict.Base{Kind: verdict.ClientLayered} })
	},
	"a replaced package": func(_ *rapid.T, w *world) {
		change(&w.b.Deployment, func(d *verdict.Deployment) {
			d.Divergences = []verdict.Divergence{{Kind: verdict.PackageOverride}}
		})
	},
}

func TestOneChangedPackageProceeds(t *testing.T) {
	for name, edit := range layeredChanges {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				w := drawLayeredWorld(r, rapid.SampledFrom(proofs()).Draw(r, "proof"), drawLayering(r))
				edit(r, &w)
				if v := verdict.Decide(w.b, w.t, verdict.Policy{}); v.Action != verdict.Proceed || v.Reason == verdict.ReasonProven {
					r.Fatalf("still a skip: %s by %s", v.Reason, v.Proof)
				}
			})
		})
	}
}

func TestOneUnknownPackageFactProceeds(t *testing.T) {
	for _, state := range []string{"unknown", "not gathered"} {
		t.Run(state, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				w := drawLayeredWorld(r, rapid.SampledFrom(proofs()).Draw(r, "proof"), drawLayering(r))
				fact := rapid.SampledFrom([]*verdict.Fact[[]verdict.Package]{&w.b.Packages, &w.b.BasePackages, &w.t.Extensions}).Draw(r, "fact")
				forget(fact, state)
				v := verdict.Decide(w.b, w.t, verdict.Policy{})
				if v.Action != verdict.Proceed || v.Conclusive {
					r.Fatalf("%v, conclusive %v", v.Action, v.Conclusive)
				}
				if asked := len(v.Needs) > 0; asked != (state == "not gathered") {
					r.Fatalf("needs %v where the fact is %s", v.Needs, state)
				}
			})
		})
	}
}

// The realtime kernel may be layered and another one run: the one before, or
// the base's, which the realtime deployment does not have.
func TestLayeredKernelMustRun(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		l := drawLayering(r)
		l.kernelType = rapid.SampledFrom([]string{"realtime", "64k-pages"}).Draw(r, "type")
		w := drawLayeredWorld(r, verdict.ProofManifestDigest, l)
		w.b.RunningKernel, w.b.DeploymentKernels = verdict.Known(kernel), verdict.Known([]string{kernel})
		if v := verdict.Decide(w.b, w.t, verdict.Policy{}); v.Action != verdict.Proceed || v.Reason != "kernel-type-differs" {
			r.Fatalf("got %v: %s", v.Action, v.Reason)
		}
	})
}

// The older package set is no proof where the target offers what the newer one
// has beyond it.
func TestLaterPackageSetOffered(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := drawLayeredWorld(r, verdict.ProofManifestDigest, layering{extensions: []string{"ipsec"}, kernelType: "default", old: true})
		change(&w.t.Extensions, func(p *[]verdict.Package) {
			*p = append(*p, verdict.Package{Name: "openvswitch3.5-ipsec", EVRA: "3.5-1.el9.x86_64"})
		})
		if v := verdict.Decide(w.b, w.t, verdict.Policy{}); v.Action != verdict.Proceed || v.Conclusive || v.Reason != "extensions-unknown" {
			r.Fatalf("got %v: %s", v.Action, v.Reason)
		}
	})
}

// One release's replacement of the kernel is no proof where another's could
// have been made: the target offers what that one layers beyond it
// (kernel-rt-kvm, until 4.21 on RHEL 9), or the base has what it removes too.
func TestOtherKernelReplacementPossible(t *testing.T) {
	withKVM := append([]string{"kernel-rt-kvm"}, realtimeKernel...)
	kvm := verdict.Package{Name: "kernel-rt-kvm", EVRA: "1-1.el9.x86_64"}
	base8 := slices.DeleteFunc(slices.Clone(baseKernel), func(name string) bool { return name == "kernel-modules-core" })
	tests := []struct {
		name string
		edit func(*world)
		want verdict.Reason
	}{
		{"offered, not layered", func(w *world) {
			change(&w.t.Extensions, func(p *[]verdict.Package) { *p = append(slices.Clone(*p), kvm) })
		}, "extensions-unknown"},
		{"in the base, not removed", func(w *world) {
			change(&w.b.Deployment, func(d *verdict.Deployment) { d.RequestedRemovals, d.RemovedPackages = base8, base8 })
			change(&w.b.Packages, func(p *[]verdict.Package) {
				*p = append(slices.Clone(*p), verdict.Package{Name: "kernel-modules-core", EVRA: "5.14.0-427.13.1.el9_4.x86_64"})
			})
			change(&w.t.MachineConfig, func(m *verdict.MachineConfig) {
				m.KernelTypeSets = append(slices.Clone(m.KernelTypeSets), verdict.KernelPackageSet{Removed: base8, Installed: realtimeKernel, Releases: allReleases})
			})
		}, "extensions-unknown"},
		{"nowhere in the base", func(w *world) {
			change(&w.b.Deployment, func(d *verdict.Deployment) { d.RequestedRemovals, d.RemovedPackages = base8, base8 })
			change(&w.b.BasePackages, func(p *[]verdict.Package) {
				*p = slices.DeleteFunc(slices.Clone(*p), func(p verdict.Package) bool { return p.Name == "kernel-modules-core" })
			})
			change(&w.t.MachineConfig, func(m *verdict.MachineConfig) {
				m.KernelTypeSets = append(slices.Clone(m.KernelTypeSets), verdict.KernelPackageSet{Removed: base8, Installed: realtimeKernel, Releases: allReleases})
			})
		}, verdict.ReasonProven},
		{"offered and layered", func(w *world) {
			change(&w.b.Deployment, func(d *verdict.Deployment) { d.RequestedPackages, d.LayeredPackages = withKVM, withKVM })
			change(&w.b.Packages, func(p *[]verdict.Package) { *p = append(slices.Clone(*p), kvm) })
			change(&w.t.Extensions, func(p *[]verdict.Package) { *p = append(slices.Clone(*p), kvm) })
		}, verdict.ReasonProven},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				w := drawLayeredWorld(r, verdict.ProofManifestDigest, layering{kernelType: "realtime"})
				tt.edit(&w)
				if v := verdict.Decide(w.b, w.t, verdict.Policy{}); v.Reason != tt.want || (v.Action == verdict.Skip) != (tt.want == verdict.ReasonProven) {
					r.Fatalf("got %v: %s, want %s\n%+v", v.Action, v.Reason, tt.want, v.Checks)
				}
			})
		})
	}
}

// A package that is part of the base answers no request for it: rpm-ostree
// would note the request in the origin, which is then another deployment.
func TestExtensionInTheBase(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := drawWorld(r, rapid.SampledFrom(proofs()).Draw(r, "proof"))
		w.b.Packages = verdict.Known([]verdict.Package{{Name: "usbguard", EVRA: "1-1.el9.x86_64"}})
		w.t.Extensions = w.b.Packages
		change(&w.t.MachineConfig, func(m *verdict.MachineConfig) {
			m.Extensions, m.ExtensionSets = []string{"usbguard"}, extensionSets
		})
		requested := rapid.Bool().Draw(r, "requested")
		if requested {
			change(&w.b.Deployment, func(d *verdict.Deployment) { d.RequestedPackages = []string{"usbguard"} })
		}
		if v := verdict.Decide(w.b, w.t, verdict.Policy{}); v.Action != verdict.Proceed || v.Reason != "extensions-differs" {
			r.Fatalf("got %v: %s", v.Action, v.Reason)
		}
	})
}
