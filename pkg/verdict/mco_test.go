package verdict_test

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/oneboot/oneboot/pkg/verdict"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	osImage  = "quay.io/openshift/os@sha256:aaaa"
	osDigest = verdict.Digest("sha256:aaaa")
)

func newTools() []verdict.Package {
	return []verdict.Package{
		{Name: "rpm-ostree", EVRA: "2025.6-3.el9_6.x86_64"},
		{Name: "skopeo", EVRA: "2:1.22.2-1.el9_6.x86_64"},
	}
}

// An mcoWorld is a host that the daemon leaves alone, before it is edited.
type mcoWorld struct {
	b  verdict.Booted
	mc verdict.MachineConfig
	t  verdict.Target
}

func quietWorld() *mcoWorld {
	return &mcoWorld{
		b: verdict.Booted{
			OriginReference: verdict.Known(osImage), LegacyOriginReference: osImage,
			ForceFile: verdict.Known(false), FIPS: verdict.Known(false),
			BootEntryOptions: verdict.Known("rw nosmt a=1"),
			Deployment:       verdict.Known(verdict.Deployment{Kind: verdict.ContainerImage}),
			Packages:         verdict.Known(newTools()),
			Identity:         verdict.Identity{ManifestDigest: verdict.Known(osDigest)},
		},
		mc: verdict.MachineConfig{OSImageURL: osImage, Digest: osDigest, KernelType: "default"},
	}
}

func (w *mcoWorld) tools(rpmOSTree, skopeo string) {
	var packages []verdict.Package
	if rpmOSTree != "" {
		packages = append(packages, verdict.Package{Name: "rpm-ostree", EVRA: rpmOSTree})
	}
	if skopeo != "" {
		packages = append(packages, verdict.Package{Name: "skopeo", EVRA: skopeo})
	}
	w.b.Packages = verdict.Known(packages)
}

func (w *mcoWorld) list() { w.b.Identity.ManifestDigest = verdict.Known(verdict.Digest("sha256:bbbb")) }

func (w *mcoWorld) diverges(kind verdict.DivergenceKind) {
	w.b.Deployment = verdict.Known(verdict.Deployment{Divergences: []verdict.Divergence{{Kind: kind}}})
}

// Rows with "seen" are what a real machine-config-daemon was seen to decide on
// such a host (builds of October 2023 and August 2026): "skipping reboot since
// no changes were detected", or "Starting update from mco-empty-mc" with what
// differs. The others follow from its source.
var mcoTests = []struct {
	name string
	edit func(*mcoWorld)
	want string // the reasons, with the releases that they hold for
}{
	{"nothing differs (seen: skips)", func(*mcoWorld) {}, ""},
	{"a plain commit with pivot:// in its origin (seen: skips)", func(w *mcoWorld) {
		w.b.Deployment = verdict.Known(verdict.Deployment{Kind: verdict.PlainCommit})
		w.b.Identity.ManifestDigest = verdict.Unknown[verdict.Digest]("a plain commit")
		w.t.Identity.ManifestDigest = verdict.Known(osDigest)
	}, ""},
	{"another repository (seen: osUpdate:true)", func(w *mcoWorld) {
		w.b.OriginReference, w.b.LegacyOriginReference = verdict.Known("mirror/os@sha256:aaaa"), "mirror/os@sha256:aaaa"
	}, "os-image-url all"},
	{"an origin that names no image", func(w *mcoWorld) { w.b.OriginReference, w.b.LegacyOriginReference = verdict.Known(""), "" }, "os-image-url all"},
	{"a signed registry reference", func(w *mcoWorld) { w.b.LegacyOriginReference = "docker://" + osImage }, "os-image-url-spelling before 4.15"},
	{"origin unreadable", func(w *mcoWorld) {
		w.b.OriginReference, w.b.LegacyOriginReference = verdict.Unknown[string]("no such file"), ""
	}, "os-image-url-unknown all"},
	{"origin of a saved status", func(w *mcoWorld) { w.b.LegacyOriginReference = "" }, "os-image-url-unknown before 4.15"},
	{"forced", func(w *mcoWorld) { w.b.ForceFile = verdict.Known(true) }, "force-file 4.14+"},
	{"force file unreadable", func(w *mcoWorld) { w.b.ForceFile = verdict.Unknown[bool]("no access") }, "force-file-unknown 4.14+"},

	{"arguments in order", func(w *mcoWorld) { w.mc.KernelArguments = []string{"nosmt", "a=1"} }, "kernel-arguments-not-read before 4.15"},
	{"an argument missing (seen: kargs:true)", func(w *mcoWorld) { w.mc.KernelArguments = []string{"psi=1"} }, "kernel-arguments-not-read before 4.15, kernel-arguments 4.15+"},
	{"arguments in another order", func(w *mcoWorld) { w.mc.KernelArguments = []string{"a=1", "nosmt"} }, "kernel-arguments-not-read before 4.15, kernel-arguments 4.15+"},
	{"two arguments in one entry", func(w *mcoWorld) { w.mc.KernelArguments = []string{"nosmt a=1"} }, "kernel-arguments-not-read before 4.15, kernel-arguments 4.15+"},
	{"an empty entry", func(w *mcoWorld) { w.mc.KernelArguments = []string{""} }, "kernel-arguments-not-read before 4.15, kernel-arguments 4.15+"},
	{"an entry wanted twice, there once", func(w *mcoWorld) { w.mc.KernelArguments = []string{"nosmt", "nosmt"} }, "kernel-arguments-not-read before 4.15, kernel-arguments 4.15+"},
	{"an entry wanted once, there twice", func(w *mcoWorld) {
		w.b.BootEntryOptions, w.mc.KernelArguments = verdict.Known("a=1 rw a=1"), []string{"a=1"}
	}, "kernel-arguments-not-read before 4.15, kernel-arguments 4.15+"},
	{"quotes as in the boot entry", func(w *mcoWorld) {
		w.b.BootEntryOptions, w.mc.KernelArguments = verdict.Known(`rw a="b c" psi=1`), []string{`a="b c"`, "psi=1"}
	}, "kernel-arguments-not-read before 4.15"},
	{"quotes that the boot entry lacks", func(w *mcoWorld) {
		w.b.BootEntryOptions, w.mc.KernelArguments = verdict.Known(`rw a=b`), []string{`a="b"`}
	}, "kernel-arguments-not-read before 4.15, kernel-arguments 4.15+"},
	{"boot entry unreadable", func(w *mcoWorld) {
		w.b.BootEntryOptions, w.mc.KernelArguments = verdict.Unknown[string]("gone"), []string{"nosmt"}
	}, "kernel-arguments-not-read before 4.15, kernel-arguments-unknown 4.15+"},
	{"boot entry with a no-break space", func(w *mcoWorld) {
		w.b.BootEntryOptions, w.mc.KernelArguments = verdict.Known("rw\xa0nosmt"), []string{"nosmt"}
	}, "kernel-arguments-not-read before 4.15, kernel-arguments-unknown 4.15+"},
	{"arguments, and a deployment staged", func(w *mcoWorld) { w.diverges(verdict.Staged); w.mc.KernelArguments = []string{"nosmt"} },
		"kernel-arguments-not-read before 4.15, kernel-arguments-unknown 4.15+"},
	{"arguments, and another deployment boots next", func(w *mcoWorld) { w.diverges(verdict.NotDefault); w.mc.KernelArguments = []string{"nosmt"} },
		"kernel-arguments-not-read before 4.15, kernel-arguments-unknown 4.15+"},
	{"arguments, and deployments unknown", func(w *mcoWorld) {
		w.b.Deployment, w.mc.KernelArguments = verdict.Unknown[verdict.Deployment]("gone"), []string{"nosmt"}
	}, "kernel-arguments-not-read before 4.15, kernel-arguments-unknown 4.15+"},
	{"no arguments, and a deployment staged", func(w *mcoWorld) { w.diverges(verdict.Staged) }, ""},

	{"FIPS on and wanted", func(w *mcoWorld) { w.b.FIPS, w.mc.FIPS = verdict.Known(true), true }, "fips-not-read before 4.15"},
	{"FIPS wanted, off", func(w *mcoWorld) { w.mc.FIPS = true }, "fips all"},
	{"FIPS on, not wanted", func(w *mcoWorld) { w.b.FIPS = verdict.Known(true) }, "fips 4.15+"},
	{"FIPS unreadable", func(w *mcoWorld) { w.b.FIPS = verdict.Unknown[bool]("no access") }, "fips-unknown 4.15+"},
	{"FIPS unreadable, wanted", func(w *mcoWorld) { w.b.FIPS, w.mc.FIPS = verdict.Unknown[bool]("no access"), true }, "fips-not-read before 4.15, fips-unknown 4.15+"},

	{"realtime kernel", func(w *mcoWorld) { w.mc.KernelType = "realtime" }, "kernel-type all"},
	{"64k kernel", func(w *mcoWorld) { w.mc.KernelType = "64k-pages" }, "kernel-type 4.15+"},
	{"kernel type of a later release", func(w *mcoWorld) { w.mc.KernelType = "tiny" }, "kernel-type all"},
	{"extension", func(w *mcoWorld) { w.mc.Extensions = []string{"usbguard"} }, "extensions all"},
	{"files", func(w *mcoWorld) { w.mc.Foreign = []string{"storage.files"} }, "ignition-content all"},
	{"layered image that is the wanted one", func(w *mcoWorld) { w.mc.LayeredImage = osImage }, "on-cluster-layering 4.20+"},
	{"original-osimageurl alone", func(w *mcoWorld) { w.mc.LayeringMarks = []string{"original-osimageurl"} }, ""},

	{"rpm-ostree too old", func(w *mcoWorld) { w.tools("2022.12-1.el9.x86_64", "2:1.22.2-1.el9.x86_64") }, "rpm-ostree-gate all"},
	{"rpm-ostree just new enough", func(w *mcoWorld) { w.tools("2022.13-1.el9.x86_64", "2:1.22.2-1.el9.x86_64") }, ""},
	{"rpm-ostree of EL 8", func(w *mcoWorld) { w.tools("2022.10.112.g3d0ac35b-3.el8.x86_64", "2:1.22.2-1.el8.x86_64") }, ""},
	{"rpm-ostree of EL 8 before", func(w *mcoWorld) { w.tools("2022.10.90.g4abaf4b4-3.el8.x86_64", "2:1.22.2-1.el8.x86_64") }, "rpm-ostree-gate all"},
	{"such a snapshot elsewhere", func(w *mcoWorld) { w.tools("2022.10.112.g3d0ac35b-3.el9.x86_64", "2:1.22.2-1.el9.x86_64") }, "rpm-ostree-gate all"},
	{"rpm-ostree with a version that is none", func(w *mcoWorld) { w.tools("git2025-1.x86_64", "2:1.22.2-1.el9.x86_64") }, "rpm-ostree-gate all"},
	{"no rpm-ostree", func(w *mcoWorld) { w.tools("", "2:1.22.2-1.el9.x86_64") }, "rpm-ostree-gate all"},
	{"two of rpm-ostree", func(w *mcoWorld) {
		w.b.Packages = verdict.Known(append(newTools(), verdict.Package{Name: "rpm-ostree", EVRA: "2020.1-1.el8.x86_64"}))
	}, "rpm-ostree-gate all"},

	{"manifest list, skopeo of 9.6", func(w *mcoWorld) { w.list(); w.tools("2025.6-1.el9.x86_64", "2:1.18.1-2.el9_6.x86_64") }, "skopeo-gate 4.22+"},
	{"manifest list, skopeo of 10.2", func(w *mcoWorld) { w.list(); w.tools("2025.6-1.el10.x86_64", "2:1.22.0-1.el10.x86_64") }, "skopeo-gate 4.22+"},
	{"manifest list, skopeo new enough", func(w *mcoWorld) { w.list() }, ""},
	{"manifest list, pre-release", func(w *mcoWorld) { w.list(); w.tools("2025.6-1.el9.x86_64", "2:1.22.2~rc1-1.el9.x86_64") }, "skopeo-gate 4.22+"},
	{"manifest list, pre-release of a later one", func(w *mcoWorld) { w.list(); w.tools("2025.6-1.el9.x86_64", "2:1.23.0~rc1-1.el9.x86_64") }, ""},
	{"manifest list, no semantic version", func(w *mcoWorld) { w.list(); w.tools("2025.6-1.el9.x86_64", "2:1.23-1.el9.x86_64") }, "skopeo-gate 4.22+"},
	{"manifest list, four numbers", func(w *mcoWorld) { w.list(); w.tools("2025.6-1.el9.x86_64", "2:1.23.0.1-1.el9.x86_64") }, "skopeo-gate 4.22+"},
	{"manifest, old skopeo, registry not asked", func(w *mcoWorld) { w.tools("2025.6-1.el9.x86_64", "2:1.18.1-2.el9_6.x86_64") }, "skopeo-gate-unknown 4.22+"},
	{"manifest, old skopeo", func(w *mcoWorld) {
		w.tools("2025.6-1.el9.x86_64", "2:1.18.1-2.el9_6.x86_64")
		w.t.Identity.ManifestDigest = verdict.Known(osDigest)
	}, ""},
	{"a tag, old skopeo", func(w *mcoWorld) { w.mc.Digest = ""; w.tools("2025.6-1.el9.x86_64", "2:1.18.1-2.el9_6.x86_64") }, "skopeo-gate 4.22+"},
	{"manifest, no skopeo", func(w *mcoWorld) { w.tools("2025.6-1.el9.x86_64", "") }, "skopeo-gate 4.22+"},

	{"packages not looked for", func(w *mcoWorld) { w.b.Packages = verdict.Fact[[]verdict.Package]{} }, "rpm-ostree-gate-unknown all"},
	{"packages not looked for, manifest list", func(w *mcoWorld) { w.list(); w.b.Packages = verdict.Fact[[]verdict.Package]{} },
		"rpm-ostree-gate-unknown all, skopeo-gate-unknown 4.22+"},
	{"packages not looked for, and forced", func(w *mcoWorld) {
		w.b.ForceFile, w.b.Packages = verdict.Known(true), verdict.Fact[[]verdict.Package]{}
	}, "force-file 4.14+"},
	{"packages unreadable, and forced", func(w *mcoWorld) {
		w.b.ForceFile, w.b.Packages = verdict.Known(true), verdict.Unknown[[]verdict.Package]("no database")
	}, "force-file 4.14+, rpm-ostree-gate-unknown all"},
}

func (w *mcoWorld) predict(release string) verdict.MCO {
	w.mc.Release = release
	w.t.MachineConfig = verdict.Known(w.mc)
	return verdict.Decide(w.b, w.t, verdict.Policy{}).MCO
}

func reasons(m verdict.MCO) string {
	list := []string{}
	for _, r := range m.Why {
		list = append(list, r.Code+" "+r.Versions)
	}
	return strings.Join(list, ", ")
}

// holding keeps the reasons that hold for a minor release of OpenShift 4.
func holding(list string, minor int) string {
	var kept []string
	for r := range strings.SplitSeq(list, ", ") {
		_, versions, _ := strings.Cut(r, " ")
		if slices.Contains(map[string][]int{
			"all": {12, 13, 14, 15, 19, 20, 21, 22, 23}, "before 4.15": {12, 13, 14}, "4.14+": {14, 15, 19, 20, 21, 22, 23},
			"4.15+": {15, 19, 20, 21, 22, 23}, "4.20+": {20, 21, 22, 23}, "4.22+": {22, 23},
		}[versions], minor) {
			kept = append(kept, r)
		}
	}
	return strings.Join(kept, ", ")
}

// Each reason alone: without a release, and for each that differs from the one
// before it.
func TestPredictMCO(t *testing.T) {
	releases := map[string]int{
		"": 0, "4.11.9": 0, "0.0.1-snapshot": 0, "garbage": 0, "4": 0, "4.x": 0, "-4.15.0": 0, "4.999": 0,
		"4.12.0": 12, "4.13.5": 13, "4.14.62": 14, "4.15.0-rc.1": 15, "4.19": 19, "4.20.0-okd-scos.12": 20, "4.21.0": 21,
		"4.22.1": 22, "4.23.0": 23, "5.0.0-ec.1": 23, "5.2.0": 23,
	}
	for _, tt := range mcoTests {
		t.Run(tt.name, func(t *testing.T) {
			for release, minor := range releases {
				w := quietWorld()
				tt.edit(w)
				want, named := tt.want, ""
				if minor > 0 {
					want, named = holding(tt.want, minor), release
				}
				// What nothing else speaks for is looked for after all.
				if w.b.ForceFile.IsKnown() && !w.b.Packages.Gathered() && want == "" {
					want = "rpm-ostree-gate-unknown all"
				}
				got := w.predict(release)
				if reasons(got) != want || got.WouldSkip != (want == "") || got.Release != named {
					t.Errorf("release %q: got %v because of %q, release %q; want %q", release, got.WouldSkip, reasons(got), got.Release, want)
				}
			}
		})
	}
}

func TestPredictMCOWithoutMachineConfig(t *testing.T) {
	w := quietWorld()
	w.t.MachineConfig = verdict.Unknown[verdict.MachineConfig]("no such file")
	want := verdict.MCO{Why: []verdict.MCOReason{{Code: "machineconfig-unknown", Detail: "no such file", Versions: "all"}}}
	if diff := cmp.Diff(want, verdict.Decide(w.b, w.t, verdict.Policy{}).MCO); diff != "" {
		t.Errorf("prediction (-want +got):\n%s", diff)
	}
}

// The document, for one row with each reason.
func TestPredictMCODocument(t *testing.T) {
	const golden = "testdata/mco.json"
	document := map[string]verdict.MCO{}
	for _, tt := range mcoTests {
		w := quietWorld()
		tt.edit(w)
		document[tt.name] = w.predict("")
	}
	named := quietWorld()
	document["release 4.16"] = named.predict("4.16.3")
	got, err := json.MarshalIndent(document, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil { //nolint:gosec // not a secret
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", golden, diff)
	}
}

// The packages are asked for where they alone are missing for the prediction
// of a skip, and change nothing of the verdict.
func TestPredictionNeeds(t *testing.T) {
	asks := func(w world, p verdict.Policy) bool {
		return slices.Contains(verdict.Decide(w.b, w.t, p).Needs, verdict.NeedPackages)
	}
	rapid.Check(t, func(r *rapid.T) {
		w := drawWorld(r, rapid.SampledFrom(proofs()).Draw(r, "proof"))
		mc, _ := w.t.MachineConfig.Get()
		if asks(w, verdict.Policy{}) {
			r.Fatal("asks for packages where the origin is not known")
		}
		if !asks(w, verdict.Policy{Full: true}) {
			r.Fatal("full, but does not ask for packages")
		}
		w.b.OriginReference = verdict.Known(mc.OSImageURL)
		change(&w.t.MachineConfig, func(m *verdict.MachineConfig) { m.KernelArguments, m.Release = nil, "4.16.3" })
		if !asks(w, verdict.Policy{}) {
			r.Fatalf("does not ask for packages: %+v", verdict.Decide(w.b, w.t, verdict.Policy{}).MCO)
		}
		before := verdict.Decide(w.b, w.t, verdict.Policy{})
		for _, packages := range []verdict.Fact[[]verdict.Package]{verdict.Known(newTools()), verdict.Known([]verdict.Package(nil)), verdict.Unknown[[]verdict.Package]("no database")} {
			w.b.Packages = packages
			after := verdict.Decide(w.b, w.t, verdict.Policy{Full: true})
			if slices.Contains(after.Needs, verdict.NeedPackages) {
				r.Fatal("asks again")
			}
			before.MCO, before.Needs, after.MCO, after.Needs = verdict.MCO{}, nil, verdict.MCO{}, nil
			if diff := cmp.Diff(before, after); diff != "" {
				r.Fatalf("the packages change the verdict (-without +with):\n%s", diff)
			}
		}
		w.b.Packages, w.b.ForceFile = verdict.Fact[[]verdict.Package]{}, verdict.Known(true)
		if asks(w, verdict.Policy{}) {
			r.Fatal("asks for packages where it does not skip")
		}
	})
}
