package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/oneboot/oneboot/pkg/machineconfig"
	"github.com/oneboot/oneboot/pkg/osimage"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// gatherPackages reads the rpm databases of the booted deployment.
func (r *run) gatherPackages() {
	packages, base := verdict.Unknown[[]verdict.Package]("the sysroot could not be read"), verdict.Unknown[[]verdict.Package]("the sysroot could not be read")
	if r.sysroot != nil {
		packages, base = r.sysroot.Packages(r.deployment)
	}
	keep(&r.booted.Packages, packages)
	keep(&r.booted.BasePackages, base)
}

// keep takes a fact where there is none yet.
func keep[T any](have *verdict.Fact[T], got verdict.Fact[T]) {
	if !have.Gathered() {
		*have = got
	}
}

// gatherExtensions asks the target's extensions image, or the target itself
// where it is of the old form that carries its extensions, what it offers.
func (r *run) gatherExtensions(ctx context.Context) {
	offered, err := r.offered(ctx)
	if err != nil {
		r.failImage(err)
		r.target.Extensions = verdict.Unknown[[]verdict.Package](err.Error())
		return
	}
	r.target.Extensions = verdict.Known(offered)
}

func (r *run) offered(ctx context.Context) ([]verdict.Package, error) {
	mc, ok := r.target.MachineConfig.Get()
	arch, ok2 := r.booted.Architecture.Get()
	switch {
	case !ok || !ok2 || r.config == nil:
		return nil, errors.New("the target could not be opened")
	case mc.ExtensionsImage == "" && (r.image == nil || r.imageErr != nil):
		return nil, errors.New("baseOSExtensionsContainerImage is empty, and the target could not be opened")
	case mc.ExtensionsImage == "":
		// Only images of the old form have them; another has none to read.
		if r.opts.Offline && !r.image.Local() {
			return nil, errOffline
		}
		return r.image.Extensions(ctx)
	}
	digest, err := machineconfig.ParseOSImageURL(mc.ExtensionsImage)
	if err == nil && digest == "" {
		err = errors.New("it is not pinned by digest: a tag may name another image tomorrow")
	}
	if err != nil {
		return nil, fmt.Errorf("baseOSExtensionsContainerImage: %w", err)
	}
	if r.opts.Offline {
		return nil, errOffline
	}
	if r.extensions, err = osimage.Open(mc.ExtensionsImage, r.config, arch); err != nil {
		return nil, fmt.Errorf("baseOSExtensionsContainerImage: %w", err)
	}
	if err := r.acceptable(ctx, r.extensions, mc.ExtensionsImage); err != nil {
		return nil, fmt.Errorf("baseOSExtensionsContainerImage: %w", err)
	}
	return r.extensions.Extensions(ctx)
}

// acceptable: the daemon pulls the extensions image by the same policy as the
// OS image; what that refuses is no evidence.
func (r *run) acceptable(ctx context.Context, image *osimage.Image, ref string) error {
	policy, err := r.config.SignaturePolicy(ref)
	if err == nil && policy.Requirement == verdict.SignatureRequired {
		policy, err = image.VerifySignature(ctx)
	}
	switch {
	case err != nil:
		return err
	case policy.Requirement == verdict.SignatureNone, policy.Requirement == verdict.SignatureVerified:
		return nil
	}
	return fmt.Errorf("the signature policy (%s) refuses it: %s", policy.Scope, policy.Detail)
}
