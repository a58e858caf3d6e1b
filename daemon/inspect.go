package daemon

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/osimage"
	"github.com/oneboot/oneboot/pkg/payload"
)

// InspectOptions say which image is looked at, and how.
type InspectOptions struct {
	// Image is an OS image, an extensions image or a release image.
	Image string
	// Root is where the registry configuration is read below.
	Root string
	// AuthFile holds credentials for the registry; the host's own where empty.
	AuthFile string
	// Architecture is chosen from a manifest list, in Go's naming; this
	// program's own where empty.
	Architecture string
	// Full also reads what costs a layer or the whole image.
	Full bool
	// Offer reads what can be layered, whatever that costs.
	Offer bool
	// Progress is called now and then with the bytes read so far; may be nil.
	Progress func(image string, bytes int64)
}

// ImageInspectionKind and ImageInspectionVersion head the document.
const (
	ImageInspectionVersion = "oneboot.dev/v1"
	ImageInspectionKind    = "ImageInspection"
)

// An ImageInspection is what is known of an image, or of those that a release
// image names, without pulling them.
type ImageInspection struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Release is the release image's version; empty where no release was asked for.
	Release string `json:"release,omitempty"`
	// OS is the OS image; null where an extensions image was asked for.
	OS *osimage.Inspection `json:"os"`
	// Extensions are what can be layered on it.
	Extensions payload.Extensions `json:"extensions"`
	// DriverToolkit is null unless a release was asked for.
	DriverToolkit *payload.DriverToolkit `json:"driverToolkit"`
	// Requests and Bytes are what was asked of registries.
	Requests int   `json:"requests"`
	Bytes    int64 `json:"bytes"`
}

// Inspect looks at an image. The error is for what could not be read at all.
func Inspect(ctx context.Context, opts InspectOptions) (*ImageInspection, error) {
	root, err := hostfs.Open(opts.Root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	config, err := osimage.LoadConfig(root, osimage.ConfigOptions{AuthFile: opts.AuthFile, Retry: true})
	if err != nil {
		return nil, err
	}
	defer config.Close()
	if opts.Architecture == "" {
		opts.Architecture = runtime.GOARCH
	}
	in := &inspector{opts: opts, config: config, out: &ImageInspection{APIVersion: ImageInspectionVersion, Kind: ImageInspectionKind}}
	return in.out, in.run(ctx)
}

// An inspector looks at one image after the other.
type inspector struct {
	opts   InspectOptions
	config *osimage.Config
	out    *ImageInspection
}

func (in *inspector) run(ctx context.Context) error {
	first, err := in.image(ctx, in.opts.Image, func(ctx context.Context, img *osimage.Image) (*osimage.Inspection, error) {
		i, err := img.Inspect(ctx, osimage.InspectOptions{Full: in.opts.Full, Offer: in.opts.Offer})
		if err != nil || i.Kind != osimage.KindRelease {
			return i, err
		}
		in.out.Release = i.Labels["io.openshift.release"]
		refs, err := img.References(ctx)
		if err != nil {
			return nil, err
		}
		return nil, in.release(ctx, refs)
	})
	if err != nil || first == nil {
		return err
	}
	switch first.Kind {
	case osimage.KindOS:
		in.out.OS = first
		in.out.Extensions = payload.Extensions{Unknown: "they are in an image of their own: ask for that one, or for the release image"}
		if first.Offer != nil {
			in.out.Extensions = payload.ExtensionsOf(first)
		}
	case osimage.KindExtensions:
		in.out.Extensions = payload.ExtensionsOf(first)
	case osimage.KindUntold:
		return fmt.Errorf("%s: its labels do not say what it is; --full looks for an OS in it", first.Image)
	default:
		return fmt.Errorf("%s: neither an OS image nor an extensions image nor a release image: none of their labels is there", first.Image)
	}
	return nil
}

// image opens an image and counts what is read.
func (in *inspector) image(ctx context.Context, ref string, look func(context.Context, *osimage.Image) (*osimage.Inspection, error)) (*osimage.Inspection, error) {
	img, err := osimage.Open(ref, in.config, in.opts.Architecture)
	if err != nil {
		return nil, err
	}
	defer img.Close()
	done := in.watch(img, ref)
	i, err := look(ctx, img)
	done()
	t := img.Transfer()
	in.out.Requests += t.Requests
	in.out.Bytes += t.Bytes
	return i, err
}

// progressEvery is how often progress is told.
const progressEvery = 500 * time.Millisecond

// watch tells the progress until the function that it returns is called.
func (in *inspector) watch(img *osimage.Image, ref string) func() {
	if in.opts.Progress == nil {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				in.opts.Progress(ref, img.Transfer().Bytes)
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// release looks at the images of a release.
func (in *inspector) release(ctx context.Context, refs map[string]string) error {
	inspect := func(extensions bool) func(context.Context, *osimage.Image) (*osimage.Inspection, error) {
		return func(ctx context.Context, img *osimage.Image) (*osimage.Inspection, error) {
			return img.Inspect(ctx, osimage.InspectOptions{Full: in.opts.Full, Offer: in.opts.Offer, Extensions: extensions})
		}
	}
	ref := firstOf(refs, osimage.OSComponents())
	if ref == "" {
		return fmt.Errorf("%s: the release names no OS image: none of %s", in.opts.Image, strings.Join(osimage.OSComponents(), ", "))
	}
	var err error
	if in.out.OS, err = in.image(ctx, ref, inspect(false)); err != nil {
		return err
	}
	switch ref := firstOf(refs, payload.ExtensionsComponents()); {
	case in.out.OS.Offer != nil:
		in.out.Extensions = payload.ExtensionsOf(in.out.OS)
	case ref == "":
		in.out.Extensions = payload.Extensions{Unknown: "the release names no extensions image"}
	default:
		e, err := in.image(ctx, ref, inspect(true))
		if err != nil {
			in.out.Extensions = payload.Extensions{Image: ref, Unknown: err.Error()}
			break
		}
		in.out.Extensions = payload.ExtensionsOf(e)
	}
	if ref := refs[payload.ToolkitComponent]; ref != "" {
		in.out.DriverToolkit = in.driverToolkit(ctx, ref)
	}
	return ctx.Err()
}

func firstOf(refs map[string]string, components []string) string {
	for _, c := range components {
		if refs[c] != "" {
			return refs[c]
		}
	}
	return ""
}

// driverToolkit reads the label of its build; the file in it says the same at the
// cost of the image.
func (in *inspector) driverToolkit(ctx context.Context, ref string) *payload.DriverToolkit {
	kernel := ""
	_, err := in.image(ctx, ref, func(ctx context.Context, img *osimage.Image) (*osimage.Inspection, error) {
		var err error
		kernel, err = payload.ToolkitKernel(ctx, img)
		return nil, err
	})
	return payload.CompareToolkit(ref, kernel, err, in.out.OS.Facts[osimage.FactKernel].Value)
}

// Field is the value of one fact, for a script; ok is false for a name that there
// is not. The error says why the value is not known.
func (d *ImageInspection) Field(name string) (value string, ok bool, err error) {
	if d.OS == nil {
		return "", slices.Contains(osimage.FactNames(), osimage.FactName(name)), errors.New("no OS image was asked for")
	}
	switch name {
	case "architecture":
		return d.OS.Architecture, true, nil
	case "digest":
		return string(d.OS.Digest), true, nil
	}
	if !slices.Contains(osimage.FactNames(), osimage.FactName(name)) {
		return "", false, nil
	}
	f := d.OS.Facts[osimage.FactName(name)]
	switch {
	case f.Absent:
		return "", true, fmt.Errorf("%s: the image does not have it", name)
	case f.Value == "":
		return "", true, fmt.Errorf("%s is not known: %s", name, f.Unknown)
	}
	return f.Value, true, nil
}

// Fields are the names that Field knows.
func Fields() []string {
	all := []string{"architecture", "digest"}
	for _, n := range osimage.FactNames() {
		all = append(all, string(n))
	}
	return all
}
