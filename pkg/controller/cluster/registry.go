package cluster

import (
	"context"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/osimage"
	"github.com/oneboot/oneboot/pkg/payload"
)

// A Registry reads images.
type Registry struct {
	// Root is where the registry configuration lies below, AuthFile has the
	// credentials, and Architecture, in Go's naming, is taken of a manifest list.
	Root, AuthFile, Architecture string

	mirrors []osimage.Mirror
}

// with opens an image for as long as it is used.
func (r *Registry) with(ctx context.Context, image string, use func(context.Context, *osimage.Image) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	root, err := hostfs.Open(r.Root)
	if err != nil {
		return err
	}
	defer root.Close()
	config, err := osimage.LoadConfig(root, osimage.ConfigOptions{AuthFile: r.AuthFile, Mirrors: r.mirrors})
	if err != nil {
		return err
	}
	defer config.Close()
	img, err := osimage.Open(image, config, r.Architecture)
	if err != nil {
		return err
	}
	defer img.Close()
	return use(ctx, img)
}

// inspect reads an OS image, or its extensions image.
func (r *Registry) inspect(ctx context.Context, image string, extensions bool) (found *osimage.Inspection, err error) {
	err = r.with(ctx, image, func(ctx context.Context, img *osimage.Image) error {
		found, err = img.Inspect(ctx, osimage.InspectOptions{Extensions: extensions})
		return err
	})
	return found, err
}

// release reads which images a release image names; a release may have several OS
// images.
func (r *Registry) release(ctx context.Context, release string) (all []image, err error) {
	err = r.with(ctx, release, func(ctx context.Context, img *osimage.Image) error {
		refs, err := img.References(ctx)
		for _, name := range osimage.OSComponents() {
			if refs[name] != "" {
				all = append(all, image{os: refs[name], extensions: refs[payload.ExtensionsComponent(name)], toolkit: refs[payload.ToolkitComponent], release: release})
			}
		}
		return err
	})
	return all, err
}

// toolkitKernel reads the kernel that a driver-toolkit is of.
func (r *Registry) toolkitKernel(ctx context.Context, image string) (kernel string, err error) {
	err = r.with(ctx, image, func(ctx context.Context, img *osimage.Image) error {
		kernel, err = payload.ToolkitKernel(ctx, img)
		return err
	})
	return kernel, err
}
