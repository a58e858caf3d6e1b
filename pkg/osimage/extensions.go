package osimage

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// maxExtensionBytes bounds the compressed layers that are read for the
// packages on offer. Extensions images and machine-os-content have about 1 GiB.
const maxExtensionBytes = 4 << 30

// Extensions returns the packages that the image offers for layering, sorted by
// name and version; a name may stand there at several versions. The image is an
// extensions image, which MachineConfigs name since OpenShift 4.12, or a
// machine-os-content image with its own /extensions. The places looked at,
// the first one found answers:
//
//   - the repodata in usr/share/rpm-ostree/extensions, which is what rpm-ostree
//     reads, or usr/share/rpm-ostree/extensions.json in a layer above it, which
//     openshift/os extensions/Containerfile makes from it (4.19 and later);
//   - the repodata in /extensions (4.6 to 4.12);
//   - without any repodata, the headers of the RPM files in /extensions and at
//     the image's root (kernel-rt*.rpm in 4.4 and 4.5).
//
// The layers are read from the last one down to the one that answers, whiteouts
// heeded. Each is read whole and must match its digest and its diff id, since
// a layer may hold a name twice.
//
// An image that was read to its base and offers nothing, and an OS image with
// the labels of an ostree-native one, is an error with the code NoExtensions.
func (img *Image) Extensions(ctx context.Context) ([]verdict.Package, error) {
	img.mu.Lock()
	defer img.mu.Unlock()
	return img.extensions.do(ctx, img.name, func() ([]verdict.Package, error) {
		m, err := img.getParsedManifest(ctx)
		if err != nil {
			return nil, err
		}
		c, err := img.getConfig(ctx)
		if err != nil {
			return nil, err
		}
		if len(m.Layers) != len(c.DiffIDs) {
			return nil, failText(ManifestInvalid, img.name, fmt.Sprintf("the manifest has %d layers, the config %d diff ids", len(m.Layers), len(c.DiffIDs)))
		}
		// An OS image of that kind offers nothing, and is large.
		if key := nativeKey(c.Labels); key != "" {
			return nil, failText(NoExtensions, img.name, "an OS image with the label "+key+" offers no extensions: they are in an image of their own")
		}
		return img.offered(ctx, m, c)
	})
}

// offered reads layers from the last one down until they answer.
func (img *Image) offered(ctx context.Context, m Manifest, c format.ImageConfig) ([]verdict.Package, error) {
	o := newOffer()
	left := int64(maxExtensionBytes)
	for i := len(m.Layers) - 1; i >= 0; i-- {
		if left -= m.Layers[i].Size; left < 0 {
			return nil, failText(LayerInvalid, img.name, fmt.Sprintf("no extensions in the last %d layers, and the one before them goes beyond %d bytes", len(m.Layers)-1-i, int64(maxExtensionBytes)))
		}
		var found layerOffer
		err := img.readLayer(ctx, m, c, i, layerScan{part: largeLayerPart, limit: maxLayerBytes, read: func(ctx context.Context, r io.Reader) (stop bool, err error) {
			found, err = o.scan(ctx, r)
			return false, err
		}})
		if err != nil {
			return nil, err
		}
		if err := o.put(found); err != nil {
			return nil, fail(LayerInvalid, img.name, fmt.Errorf("%s: %w", layerName(m, i), err))
		}
		packages, err := o.packages(ctx, i == 0)
		switch {
		case ctx.Err() != nil:
			return nil, fail(Timeout, img.name, fmt.Errorf("the time was over while the list of packages was read: %w", context.Cause(ctx)))
		case errors.Is(err, errNoExtensions):
			return nil, fail(NoExtensions, img.name, err)
		case err != nil:
			return nil, fail(LayerInvalid, img.name, err)
		case packages != nil:
			return packages, nil
		}
	}
	return nil, fail(NoExtensions, img.name, errNoExtensions)
}
