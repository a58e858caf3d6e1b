package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"github.com/oneboot/oneboot/pkg/bootimage"
	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/osimage"
)

// Where OpenShift's images have the ConfigMap with the streams: a release image
// in the manifests that the cluster-version operator applies, an installer
// image in those that it brings.
const (
	releaseStreams   = "release-manifests/0000_50_installer_coreos-bootimages.yaml"
	installerStreams = "manifests/coreos-bootimages.yaml"
	// labelRelease is what `oc adm release new` puts on a release image.
	labelRelease = "io.openshift.release"

	maxCallersFile = 4 << 20
)

// StreamOptions say where streams come from.
type StreamOptions struct {
	// From is a file of the caller, "-" for its standard input, an https
	// address, or a release or installer image.
	From string
	// Root is where the configuration for an image's registry is read below.
	Root string
	// AuthFile holds credentials for an image's registry; a path of the caller,
	// the host's own where empty.
	AuthFile string
	// CAs, in PEM form, are trusted for an https address beside the system's.
	CAs []byte
}

// ReadStreams reads streams from wherever they are. Of an image, only the layer
// with the ConfigMap is read, and checked against its digest.
func ReadStreams(ctx context.Context, opts StreamOptions, stdin io.Reader) (*bootimage.Source, error) {
	switch {
	case opts.From == stdinName:
		src, err := parseStreams(stdin)
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return src, nil
	case strings.HasPrefix(opts.From, "http:"):
		return nil, errors.New("http: nothing would vouch for what is read: write https://, or save it and name the file")
	case strings.HasPrefix(opts.From, "https:"):
		client, err := bootimage.NewClient(opts.CAs)
		if err != nil {
			return nil, err
		}
		return bootimage.Fetch(ctx, client, opts.From)
	}
	f, err := os.Open(opts.From)
	if err == nil {
		defer f.Close()
		src, err := parseStreams(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", opts.From, err)
		}
		return src, nil
	}
	if !namesImage(opts.From) {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: there is no such file, and it names no image: write REGISTRY/REPOSITORY:TAG or @sha256:DIGEST", opts.From)
		}
		return nil, fmt.Errorf("%s: %w", opts.From, bare(err))
	}
	return imageStreams(ctx, opts)
}

func parseStreams(r io.Reader) (*bootimage.Source, error) {
	b, err := io.ReadAll(io.LimitReader(r, bootimage.MaxDocument+1))
	if err != nil {
		return nil, bare(err)
	}
	return bootimage.Parse(b)
}

// namesImage reports whether a text that is not the name of a file may be that
// of an image.
func namesImage(s string) bool {
	for _, transport := range []string{"docker://", "oci:", "oci-archive:", "dir:"} {
		if strings.HasPrefix(s, transport) {
			return true
		}
	}
	host, _, found := strings.Cut(s, "/")
	return found && (host == "localhost" || len(host) > 1 && !strings.HasPrefix(host, ".") && strings.ContainsAny(host, ".:"))
}

// imageStreams reads the ConfigMap out of a release or installer image. Those of
// several architectures have the same in each.
func imageStreams(ctx context.Context, opts StreamOptions) (*bootimage.Source, error) {
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
	src, err := instanceStreams(ctx, opts.From, config, runtime.GOARCH)
	if osimage.CodeOf(err) == osimage.NoInstance && runtime.GOARCH != commonArch {
		src, err = instanceStreams(ctx, opts.From, config, commonArch)
	}
	return src, err
}

// commonArch is an architecture that every release of several has.
const commonArch = "amd64"

func instanceStreams(ctx context.Context, from string, config *osimage.Config, arch string) (*bootimage.Source, error) {
	img, err := osimage.Open(from, config, arch)
	if err != nil {
		return nil, err
	}
	defer img.Close()
	c, err := img.Config(ctx)
	if err != nil {
		return nil, err
	}
	name, kind := installerStreams, "an installer image has (a release image has the label "+labelRelease+")"
	if c.Labels[labelRelease] != "" {
		name, kind = releaseStreams, "release images since OpenShift 4.8 have"
	}
	files, err := img.Files(ctx, name)
	if err != nil {
		return nil, err
	}
	b, ok := files[name]
	if !ok {
		return nil, fmt.Errorf("%s: it has no /%s, which %s", from, name, kind)
	}
	src, err := bootimage.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: /%s: %w", from, name, err)
	}
	return src, nil
}

// ReadCallersFile reads a small file that the caller names.
func ReadCallersFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, bare(err))
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCallersFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, bare(err))
	case len(b) > maxCallersFile:
		return nil, fmt.Errorf("%s: it has more than %d bytes", name, maxCallersFile)
	}
	return b, nil
}
