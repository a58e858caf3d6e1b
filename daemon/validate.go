package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/machineconfig"
	"github.com/oneboot/oneboot/pkg/osimage"
	"github.com/oneboot/oneboot/pkg/payload"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// A FindingCode is a stable name for what is wrong with a MachineConfig.
type FindingCode string

// The findings.
const (
	FindingUnreadable       FindingCode = "unreadable"               // a file that is no YAML, or a MachineConfig that two readers could read in two ways
	FindingUnknownExtension FindingCode = "extension-unknown"        // no release knows the name
	FindingOtherRelease     FindingCode = "extension-other-release"  // another release knows it, this one does not
	FindingNotShipped       FindingCode = "extension-not-shipped"    // the image does not offer its packages
	FindingUnknownKernel    FindingCode = "kernel-type-unknown"      // no release knows the type
	FindingKernelNotShipped FindingCode = "kernel-type-not-shipped"  // the image does not offer its packages
	FindingKernelArch       FindingCode = "kernel-type-architecture" // not for the image's architecture
	FindingKernelDevel      FindingCode = "kernel-devel-kernel-type" // kernel-devel with another kernel than the default one
	FindingNotVerified      FindingCode = "not-verified"             // what the image offers is not known
	FindingNothing          FindingCode = "no-machineconfig"         // a file without a MachineConfig
)

// A Finding is something wrong in a file.
type Finding struct {
	File string `json:"file"`
	// Line counts from 1; 0 where the file as a whole is meant.
	Line int `json:"line,omitempty"`
	// Name is the MachineConfig's.
	Name    string      `json:"name,omitempty"`
	Field   string      `json:"field,omitempty"`
	Code    FindingCode `json:"code"`
	Message string      `json:"message"`
}

// A Validation is MachineConfigs against an image.
type Validation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Image      string `json:"image"`
	// Release is the release image's version, if it was one.
	Release string `json:"release,omitempty"`
	// MachineConfigs were looked at; Others are objects of other kinds.
	MachineConfigs int       `json:"machineConfigs"`
	Others         int       `json:"others"`
	Findings       []Finding `json:"findings"`
}

const (
	maxManifestFiles = 20_000
	maxManifestFile  = 2 << 20
)

// Validate compares the MachineConfigs in files and folders, or "-" for stdin,
// with what an image ships. The error is for an image or a path that cannot be
// read; what is wrong in a file is a finding.
func Validate(ctx context.Context, opts InspectOptions, paths []string, stdin io.Reader) (*Validation, error) {
	v := &Validation{APIVersion: ImageInspectionVersion, Kind: "MachineConfigValidation", Image: opts.Image, Findings: []Finding{}}
	var wants []fileWants
	for _, p := range paths {
		found, err := v.read(p, stdin)
		if err != nil {
			return nil, err
		}
		wants = append(wants, found...)
	}
	opts.Offer = slices.ContainsFunc(wants, func(w fileWants) bool { return len(w.Extensions) > 0 || w.KernelType.Text != "" })
	d, err := Inspect(ctx, opts)
	if err != nil {
		return nil, err
	}
	v.Release = d.Release
	c := &validator{image: d, out: v, arch: opts.Architecture}
	if d.OS != nil {
		c.arch = d.OS.Architecture
	}
	for i, w := range wants {
		c.check(w)
		c.merged(w, wants[:i], wants[i+1:])
	}
	v.MachineConfigs = len(wants)
	return v, nil
}

// fileWants is a MachineConfig and the file that it is in.
type fileWants struct {
	machineconfig.Wants
	file string
}

// read reads a file, a folder's YAML and JSON files, or stdin.
func (v *Validation) read(name string, stdin io.Reader) ([]fileWants, error) {
	if name == stdinName {
		return v.document("stdin", stdin, true), nil
	}
	fi, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, bare(err))
	}
	if !fi.IsDir() {
		return v.file(name, true), nil
	}
	var all []fileWants
	files := 0
	err = filepath.WalkDir(name, func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", p, bare(err))
		case e.IsDir() && strings.HasPrefix(e.Name(), ".") && p != name:
			return fs.SkipDir // of version control
		case e.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(p)):
			return nil
		}
		if files++; files > maxManifestFiles {
			return fmt.Errorf("%s: more than %d files", name, maxManifestFiles)
		}
		all = append(all, v.file(p, false)...)
		return nil
	})
	return all, err
}

func (v *Validation) file(name string, asked bool) []fileWants {
	// To open a pipe that nobody writes to takes for ever.
	if fi, err := os.Stat(name); err == nil && !fi.Mode().IsRegular() && !asked {
		v.find(Finding{File: name, Code: FindingUnreadable, Message: "not a regular file"})
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		v.find(Finding{File: name, Code: FindingUnreadable, Message: bare(err).Error()})
		return nil
	}
	defer f.Close()
	return v.document(name, f, asked)
}

// document reads one file. Where the caller asked for just that one, it is to have
// a MachineConfig.
func (v *Validation) document(name string, r io.Reader, asked bool) []fileWants {
	b, err := io.ReadAll(io.LimitReader(r, maxManifestFile+1))
	if err != nil {
		v.find(Finding{File: name, Code: FindingUnreadable, Message: bare(err).Error()})
		return nil
	}
	wants, others, err := machineconfig.ReadWants(b)
	if err != nil {
		v.find(Finding{File: name, Code: FindingUnreadable, Message: err.Error()})
		return nil
	}
	v.Others += others
	if asked && len(wants) == 0 {
		v.find(Finding{File: name, Code: FindingNothing, Message: "there is no MachineConfig in it"})
	}
	all := make([]fileWants, 0, len(wants))
	for _, w := range wants {
		all = append(all, fileWants{w, name})
	}
	return all
}

func (v *Validation) find(f Finding) { v.Findings = append(v.Findings, f) }

// A validator compares MachineConfigs with one image.
type validator struct {
	image *ImageInspection
	out   *Validation
	arch  string
}

func (c *validator) check(w fileWants) {
	for i, e := range w.Extensions {
		c.extension(w, i, e)
	}
	c.kernelType(w)
}

// merged looks for what is refused once MachineConfigs of one pool are merged.
func (c *validator) merged(w fileWants, others ...[]fileWants) {
	at := slices.IndexFunc(w.Extensions, func(e machineconfig.Word) bool { return e.Text == "kernel-devel" })
	if at < 0 {
		return
	}
	for _, o := range slices.Concat(others...) {
		if k := o.KernelType; k.Text != "" && k.Text != machineconfig.KernelTypeDefault && onePool(w.Role.Text, o.Role.Text) {
			c.out.find(Finding{File: w.file, Line: w.Extensions[at].Line, Name: w.Name.Text, Field: fmt.Sprintf("spec.extensions[%d]", at), Code: FindingKernelDevel,
				Message: fmt.Sprintf("kernel-devel is refused beside kernelType %s (%s, line %d)", k.Text, o.file, k.Line)})
			return
		}
	}
}

// onePool reports whether a pool takes the MachineConfigs of both roles: pools of
// their own take those of workers too.
func onePool(a, b string) bool {
	const worker, master = "worker", "master"
	return a == b || a == worker && b != master || b == worker && a != master
}

func (c *validator) extension(w fileWants, i int, e machineconfig.Word) {
	find := func(code FindingCode, format string, args ...any) {
		c.out.find(Finding{File: w.file, Line: e.Line, Name: w.Name.Text, Field: fmt.Sprintf("spec.extensions[%d]", i), Code: code, Message: fmt.Sprintf(format, args...)})
	}
	sets, known := machineconfig.PackageSets(e.Text)
	if !known {
		find(FindingUnknownExtension, "no release knows the extension %q%s", e.Text, nearest(e.Text, machineconfig.Extensions()))
		return
	}
	if e.Text == "kernel-devel" && w.KernelType.Text != "" && w.KernelType.Text != machineconfig.KernelTypeDefault {
		find(FindingKernelDevel, "kernel-devel is refused beside kernelType %s (line %d)", w.KernelType.Text, w.KernelType.Line)
	}
	if release := c.image.Release; release != "" && len(machineconfig.SetsOf(e.Text, release)) == 0 {
		var ranges []string
		for _, s := range sets {
			ranges = append(ranges, s.Releases.String())
		}
		find(FindingOtherRelease, "release %s does not know the extension %s: it is of %s", release, e.Text, strings.Join(ranges, " and "))
		return
	}
	x := c.image.Extensions
	if x.Shipped == nil {
		find(FindingNotVerified, "what the image offers is not known: %s", x.Unknown)
		return
	}
	if _, ok := x.Shipped[e.Text]; !ok {
		find(FindingNotShipped, "the image does not ship the extension %s", e.Text)
	}
}

func (c *validator) kernelType(w fileWants) {
	k := w.KernelType
	find := func(code FindingCode, format string, args ...any) {
		c.out.find(Finding{File: w.file, Line: k.Line, Name: w.Name.Text, Field: "spec.kernelType", Code: code, Message: fmt.Sprintf(format, args...)})
	}
	arches := map[string][]string{machineconfig.KernelTypeRealtime: {"amd64", "arm64"}, machineconfig.KernelType64kPages: {"arm64"}}
	all, known := machineconfig.KernelTypePackages(k.Text)
	sets := slices.DeleteFunc(slices.Clone(all), func(s verdict.KernelPackageSet) bool { return !s.Releases.Holds(c.image.Release) })
	switch {
	case k.Text == "" || k.Text == machineconfig.KernelTypeDefault:
		return
	case !known:
		find(FindingUnknownKernel, "no release knows the kernelType %q%s", k.Text, nearest(k.Text, []string{machineconfig.KernelTypeDefault, machineconfig.KernelTypeRealtime, machineconfig.KernelType64kPages}))
		return
	case c.arch != "" && !slices.Contains(arches[k.Text], c.arch):
		find(FindingKernelArch, "kernelType %s is for %s, and the image is for %s", k.Text, strings.Join(arches[k.Text], " and "), c.arch)
		return
	case c.image.OS != nil && c.image.OS.Facts[factOfKernel(k.Text)].Value != "":
		// switchKernel in pkg/daemon/update.go does not look at what is there.
		find(FindingNotVerified, "the image has that kernel itself, and the daemon would layer it again: leave kernelType out")
		return
	}
	missing, known := missingPackages(sets, c.image.Extensions)
	switch {
	case !known:
		find(FindingNotVerified, "what the image offers is not known: %s", c.image.Extensions.Unknown)
	case len(sets) == 0:
		find(FindingUnknownKernel, "release %s does not know the kernelType %s", c.image.Release, k.Text)
	case len(missing) > 0:
		find(FindingKernelNotShipped, "the image does not ship %s, which kernelType %s needs", strings.Join(missing, ", "), k.Text)
	}
}

// missingPackages are those that the nearest of the sets lacks of what an image
// offers; ok is false where that is not known.
func missingPackages(sets []verdict.KernelPackageSet, offers payload.Extensions) (missing []string, ok bool) {
	offered := map[string]bool{}
	for _, p := range offers.Packages {
		offered[p.Name] = true
	}
	for i, s := range sets {
		lacks := slices.DeleteFunc(slices.Clone(s.Installed), func(name string) bool { return offered[name] })
		if offers.Packages == nil {
			// Names alone: machine-os-content lists the kernel among them.
			name := strings.TrimSuffix(s.Installed[0], "-core")
			if _, ok := offers.Shipped[name]; ok {
				lacks = nil
			}
		}
		if i == 0 || len(lacks) < len(missing) {
			missing = lacks
		}
	}
	return missing, offers.Packages != nil || offers.Shipped != nil
}

func factOfKernel(kernelType string) osimage.FactName {
	if kernelType == machineconfig.KernelTypeRealtime {
		return osimage.FactKernelRT
	}
	return osimage.FactKernel64K
}

// nearest is a hint at the known name that was meant, or empty.
func nearest(name string, all []string) string {
	const far = 3
	best, least := "", far+1
	for _, k := range all {
		if d := distance(name, k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return "; the names are " + strings.Join(all, ", ")
	}
	return fmt.Sprintf(": is it %s?", best)
}

// distance is that of Levenshtein, of strings that are not longer than names.
func distance(a, b string) int {
	const longest = 64
	if len(a) > longest || len(b) > longest {
		return longest
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, corner+1)
		}
	}
	return row[len(b)]
}

var errNoImage = errors.New("--image is missing: name an OS image, an extensions image or a release image")

// CheckValidate is an error of usage.
func (o InspectOptions) CheckValidate() error {
	if o.Image == "" {
		return errNoImage
	}
	return nil
}
