package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/oneboot/oneboot/pkg/fleet"
	"github.com/oneboot/oneboot/pkg/forecast"
	"github.com/oneboot/oneboot/pkg/osimage"
	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// PlanOptions say what is read for a plan.
type PlanOptions struct {
	// Paths are files, folders and "-" for stdin.
	Paths []string
	// Bootimages are files that say what is in disk images: tables, records of
	// nodes, meta.json files of builds.
	Bootimages []string
	// Offline asks no registry; else the OS images of the pools are asked for.
	Offline bool
	// Image says how they are; its Image is not used.
	Image InspectOptions
}

// A Plan is what the next node of each source will do.
type Plan struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Forecasts  []forecast.Forecast `json:"forecasts"`
	// Problems are objects and images that could not be read.
	Problems []fleet.Problem `json:"problems"`
	// Passed is how many objects do not matter.
	Passed int `json:"passed"`
}

const maxPlanFiles = 100_000

// MakePlan reads the objects and forecasts. The error is for a path that cannot be
// read at all; what is in files is a Problem.
func MakePlan(ctx context.Context, opts PlanOptions, stdin io.Reader) (*Plan, error) {
	f := &fleet.Fleet{Bootimages: fleet.Table{}}
	p := &Plan{APIVersion: ImageInspectionVersion, Kind: "Plan", Forecasts: []forecast.Forecast{}, Problems: []fleet.Problem{}}
	for _, name := range opts.Bootimages {
		if err := readTable(f.Bootimages, name); err != nil {
			return nil, err
		}
	}
	for _, name := range opts.Paths {
		if err := p.read(f, name, stdin); err != nil {
			return nil, err
		}
	}
	sources, targets := f.Sources()
	images := imageAsker{plan: p, opts: opts.Image, asked: map[string]*askedImage{}}
	for _, s := range sources {
		t := targets[s.Pool]
		if t != nil && t.OSImage != "" && !opts.Offline {
			t = images.ask(ctx, *t, s.Bootimage.Architecture)
		}
		p.Forecasts = append(p.Forecasts, forecast.Of(s, t))
	}
	p.Problems = append(p.Problems, f.Problems()...)
	slices.SortStableFunc(p.Problems, func(a, b fleet.Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	p.Passed = f.Passed()
	return p, nil
}

// read gives a file, a folder's files or stdin to the fleet.
func (p *Plan) read(f *fleet.Fleet, name string, stdin io.Reader) error {
	if name == stdinName {
		b, err := io.ReadAll(io.LimitReader(stdin, fleet.MaxFile+1))
		if err != nil {
			return fmt.Errorf("standard input: %w", bare(err))
		}
		f.Add("stdin", b)
		return nil
	}
	if _, err := os.Stat(name); err != nil {
		return fmt.Errorf("%s: %w", name, bare(err))
	}
	files := 0
	return filepath.WalkDir(name, func(at string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			p.problem(at, bare(err))
			return nil
		case e.IsDir() && strings.HasPrefix(e.Name(), ".") && at != name:
			return fs.SkipDir
		case e.IsDir(), at != name && !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(at)):
			return nil
		case !e.Type().IsRegular() && at != name:
			p.problem(at, errors.New("a link or a special file, which is not followed: name it by itself"))
			return nil
		}
		if files++; files > maxPlanFiles {
			return fmt.Errorf("%s: more than %d files", name, maxPlanFiles)
		}
		shown := at
		if rel, err := filepath.Rel(name, at); err == nil && rel != "." {
			shown = rel
		}
		b, err := readPlanFile(at, fleet.MaxFile)
		if err != nil {
			p.problem(shown, err)
			return nil
		}
		f.Add(shown, b)
		return nil
	})
}

func (p *Plan) problem(file string, err error) {
	p.Problems = append(p.Problems, fleet.Problem{File: file, Message: err.Error()})
}

func readPlanFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, bare(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return nil, bare(err)
	case int64(len(b)) > limit:
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	}
	return b, nil
}

// readTable reads what is in disk images.
func readTable(t fleet.Table, name string) error {
	b, err := readPlanFile(name, 4<<20)
	if err != nil {
		return fmt.Errorf("--bootimages %s: %w", name, err)
	}
	for _, read := range []func(fleet.Table, []byte) (bool, error){readRecord, readBuild, readContents} {
		if ok, err := read(t, b); err != nil {
			return fmt.Errorf("--bootimages %s: %w", name, err)
		} else if ok {
			return nil
		}
	}
	return fmt.Errorf("--bootimages %s: neither a table nor a node's record nor a build's meta.json", name)
}

// readRecord takes what a node's first boot found on the disk that made it.
func readRecord(t fleet.Table, b []byte) (bool, error) {
	r, err := record.Parse(b)
	if err != nil {
		return false, nil
	}
	v := r.Verdict.Booted
	switch {
	case v.Version == "":
		return true, errors.New("the record names no version of the booted OS")
	case v.DerivedLayers == nil:
		return true, errors.New("the record does not say whether layers follow the booted commit: without that its version does not tell what a disk image has")
	case *v.DerivedLayers > 0:
		// Layers inherit the version of what they are laid upon.
		return true, fmt.Errorf("%d layers follow the booted commit, and other disk images have its version too: write a table by the disk image's own name", *v.DerivedLayers)
	}
	c := forecast.Content{ManifestDigest: string(v.ManifestDigest), ConfigDigest: string(v.ConfigDigest)}
	if verdict.CommitSource(v.InnerCommitFrom).Proving() {
		c.Commit = v.InnerCommit
	}
	return true, put(t, versionKey(v.Version, v.Architecture), c)
}

func versionKey(version, arch string) string {
	if arch == "" {
		return version
	}
	return version + "/" + arch
}

// put adds what is in a disk image. Of two files that differ on that neither is to be
// believed.
func put(t fleet.Table, key string, c forecast.Content) error {
	if before, ok := t[key]; ok && before != c {
		return fmt.Errorf("%s: another file says that something else is in it", strconv.Quote(key))
	}
	t[key] = c
	return nil
}

// readBuild takes coreos-assembler's meta.json. Its ostree-commit may be a commit that
// the build's machine made, and is not taken.
func readBuild(t fleet.Table, b []byte) (bool, error) {
	var meta struct {
		BuildID  string `json:"buildid"`
		BaseArch string `json:"coreos-assembler.basearch"`
		Image    struct {
			Digest string `json:"digest"`
		} `json:"base-oscontainer"`
	}
	if json.Unmarshal(b, &meta) != nil || meta.BuildID == "" {
		return false, nil
	}
	if meta.Image.Digest == "" {
		return true, errors.New("meta.json has no base-oscontainer.digest")
	}
	arch := map[string]string{"x86_64": "amd64", "aarch64": "arm64"}[meta.BaseArch]
	return true, put(t, versionKey(meta.BuildID, cmp.Or(arch, meta.BaseArch)), forecast.Content{ManifestDigest: meta.Image.Digest})
}

// readContents takes a table: contents by a disk image's own name, or by its version.
func readContents(t fleet.Table, b []byte) (bool, error) {
	var table struct {
		Bootimages map[string]forecast.Content `yaml:"bootimages"`
	}
	d := yaml.NewDecoder(strings.NewReader(string(b)))
	d.KnownFields(true)
	if err := d.Decode(&table); err != nil {
		return false, err
	}
	for key, c := range table.Bootimages {
		if c == (forecast.Content{}) {
			return true, errors.New("bootimages: " + strconv.Quote(key) + " says nothing")
		}
		if err := put(t, key, c); err != nil {
			return true, err
		}
	}
	return len(table.Bootimages) > 0, nil
}

// An imageAsker asks for what the pools' OS images are, each once for each
// architecture.
type imageAsker struct {
	plan  *Plan
	opts  InspectOptions
	asked map[string]*askedImage
}

type askedImage struct {
	image   *forecast.Image
	version string
}

// ask is the target with what a registry says of its image for that architecture.
func (a *imageAsker) ask(ctx context.Context, t forecast.Target, arch string) *forecast.Target {
	key := t.OSImage + " " + arch
	found, done := a.asked[key]
	if !done {
		found = &askedImage{}
		a.asked[key] = found
		opts := a.opts
		opts.Image, opts.Architecture = t.OSImage, cmp.Or(arch, opts.Architecture)
		d, err := Inspect(ctx, opts)
		switch {
		case err != nil:
			a.plan.problem(t.OSImage, err)
		case d.OS == nil:
			a.plan.problem(t.OSImage, errors.New("it is no OS image"))
		default:
			found.image, found.version = imageOf(d.OS), d.OS.Facts[osimage.FactOSVersion].Value
		}
	}
	t.Image, t.Version = found.image, cmp.Or(t.Version, found.version)
	return &t
}

// imageOf is an inspected image as a forecast needs it.
func imageOf(i *osimage.Inspection) *forecast.Image {
	out := &forecast.Image{Bytes: i.Bytes, Layers: len(i.Layers), RHEL: i.Facts[osimage.FactRHELVersion].Value, List: i.List, Architecture: i.Architecture,
		Content: forecast.Content{ManifestDigest: string(i.Digest), ConfigDigest: string(i.ConfigDigest), Kernel: i.Facts[osimage.FactKernel].Value}}
	// Whether layers follow is not known: nothing is compared by the commit.
	if f := i.Facts[osimage.FactInnerCommit]; f.Source == osimage.SourceCommit && i.Facts[osimage.FactDerived].Value != "" {
		out.Commit = f.Value
	}
	for _, l := range i.Layers {
		if l.Derived {
			out.Derived = true
			out.DerivedLayers++
			out.DerivedBytes += l.Bytes
		}
	}
	return out
}

// Outcome is what the plan comes to, for an exit status: same where every node will
// skip, unknown where something could not be told or read.
func (p *Plan) Outcome() verdict.Outcome {
	out := verdict.OutcomeSame
	for _, f := range p.Forecasts {
		switch f.Outcome {
		case forecast.Skip:
		case forecast.Unknown:
			if out == verdict.OutcomeSame {
				out = verdict.OutcomeUnknown
			}
		default:
			out = verdict.OutcomeDiffers
		}
	}
	if out == verdict.OutcomeSame && (len(p.Problems) > 0 || len(p.Forecasts) == 0) {
		out = verdict.OutcomeUnknown
	}
	return out
}
