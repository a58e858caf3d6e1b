package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/oneboot/oneboot/pkg/machineconfig"
	"github.com/oneboot/oneboot/pkg/osimage"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// withTarget puts another image in the place of osImageURL.
func withTarget(mc verdict.MachineConfig, target string) (verdict.MachineConfig, error) {
	name := strings.TrimPrefix(target, "docker://")
	if transport, _, _ := strings.Cut(name, ":"); transport == "oci" || transport == "oci-archive" || transport == "dir" {
		mc.OSImageURL, mc.Digest = target, ""
		return mc, nil
	}
	digest, err := machineconfig.ParseOSImageURL(name)
	var bad *machineconfig.OSImageURLError
	switch {
	case errors.As(err, &bad) && strings.HasPrefix(bad.Problem, "starts with a transport"):
		return mc, errors.New("--target is of a transport that is not supported: write docker://REGISTRY/REPOSITORY@sha256:DIGEST, oci:DIR, oci-archive:FILE or dir:DIR")
	case bad != nil:
		return mc, errors.New("--target " + bad.Problem)
	case err != nil:
		return mc, fmt.Errorf("--target: %w", err)
	}
	mc.OSImageURL, mc.Digest = name, digest
	return mc, nil
}

// openTarget reads the host's registry configuration and what its policy asks
// of the target. No registry is asked yet.
func (r *run) openTarget(ctx context.Context) {
	mc, ok := r.target.MachineConfig.Get()
	if !ok {
		return
	}
	config, err := osimage.LoadConfig(r.root, osimage.ConfigOptions{AuthFile: r.opts.AuthFile, Prefix: r.etc, Retry: r.opts.RetryTransport})
	if err != nil {
		r.failImage(err)
		r.target.SignaturePolicy = verdict.Unknown[verdict.SignaturePolicy]("no signature can be looked up: " + err.Error())
		r.target.Identity = verdict.UnknownIdentity(err.Error())
		r.imageErr = err
		return
	}
	r.config = config
	policy, err := config.SignaturePolicy(mc.OSImageURL)
	if err != nil {
		r.failImage(err)
		r.target.SignaturePolicy = verdict.Unknown[verdict.SignaturePolicy]("the signature policy is not known: " + err.Error())
	} else {
		r.target.SignaturePolicy = verdict.Known(policy)
	}
	arch, ok := r.booted.Architecture.Get()
	if !ok {
		r.imageErr = errors.New("the host's architecture is not known: " + r.booted.Architecture.Why())
		return
	}
	r.image, r.imageErr = osimage.Open(mc.OSImageURL, config, arch)
	if r.imageErr == nil && r.image.Local() {
		// A local image is what its bytes are now: they pin themselves.
		mc.Digest, r.imageErr = r.image.Instance(ctx)
		r.target.MachineConfig = verdict.Known(mc)
		r.target.Identity = r.image.Identity()
	}
	if r.imageErr != nil {
		r.failImage(r.imageErr)
		if r.image == nil {
			r.target.Identity = verdict.UnknownIdentity(r.imageErr.Error())
		}
	}
}

// NotAsked is why nothing is known that a registry would have to be asked for,
// when it may not be.
const NotAsked = "not asked: --offline"

var errOffline = errors.New(NotAsked)

// gather asks for one fact and records the answer, or why there is none.
func (r *run) gather(ctx context.Context, need verdict.Need) {
	switch need {
	case verdict.NeedPackages:
		r.gatherPackages()
	case verdict.NeedExtensions:
		r.gatherExtensions(ctx)
	case verdict.NeedSignature:
		r.gatherSignature(ctx)
	default:
		r.gatherIdentity(ctx, need)
	}
}

// gatherIdentity asks the target what it is. A fact that cannot be had makes
// those behind it unknown too.
func (r *run) gatherIdentity(ctx context.Context, need verdict.Need) {
	err := r.imageErr
	if err == nil && r.opts.Offline && !r.image.Local() {
		err = errOffline
	}
	if err == nil {
		err = r.ask(ctx, need)
		if err != nil {
			r.failImage(err)
			r.imageErr = err
		}
	}
	id := r.imageIdentity()
	if err != nil {
		markUnknown(&id, need, err.Error())
	}
	r.target.Identity = id
}

// gatherSignature has the signature verified that the host's policy asks for.
// Where that cannot be done, nothing is known of the signature, and no less of
// the content.
func (r *run) gatherSignature(ctx context.Context) {
	err := r.imageErr
	if err == nil && r.opts.Offline && !r.image.Local() {
		err = errOffline
	}
	var policy verdict.SignaturePolicy
	if err == nil {
		if policy, err = r.image.VerifySignature(ctx); err != nil {
			r.failImage(err)
		}
	}
	if err != nil {
		r.target.SignaturePolicy = verdict.Unknown[verdict.SignaturePolicy]("the signature is not verified: " + err.Error())
		return
	}
	r.target.SignaturePolicy = verdict.Known(policy)
}

func (r *run) ask(ctx context.Context, need verdict.Need) error {
	var err error
	switch need {
	case verdict.NeedInstance:
		_, err = r.image.Instance(ctx)
	case verdict.NeedManifest:
		var m osimage.Manifest
		if m, err = r.image.Manifest(ctx); err == nil {
			r.target.ManifestLayers = verdict.Known(m.Layers)
		}
	case verdict.NeedConfig:
		if _, err = r.image.Config(ctx); err == nil {
			err = r.image.CheckOS(ctx)
		}
	case verdict.NeedInnerCommit:
		_, err = r.image.InnerCommit(ctx, r.hopedFor())
	default:
		err = fmt.Errorf("%s cannot be gathered", need)
	}
	return err
}

// hopedFor is the ostree commit that would prove the target equal. With --full a
// commit is worth reading whatever it is.
func (r *run) hopedFor() verdict.Checksum {
	if r.opts.Full {
		return ""
	}
	inner, _ := r.booted.Identity.InnerCommit.Get()
	return inner.Checksum
}

// imageIdentity is what the image has shown so far.
func (r *run) imageIdentity() verdict.Identity {
	if r.image == nil {
		return r.target.Identity
	}
	return r.image.Identity()
}

// markUnknown makes the facts behind a need that failed unknown for good.
func markUnknown(id *verdict.Identity, need verdict.Need, why string) {
	switch need {
	case verdict.NeedInstance:
		forget(&id.ManifestDigest, why)
		fallthrough
	case verdict.NeedManifest:
		forget(&id.ConfigDigest, why)
		forget(&id.Layers, why)
		fallthrough
	case verdict.NeedConfig:
		forget(&id.Architecture, why)
		forget(&id.DiffIDs, why)
		forget(&id.FinalDiffID, why)
		forget(&id.DerivedLayers, why)
		fallthrough
	default:
		forget(&id.InnerCommit, why)
	}
}

func forget[T any](f *verdict.Fact[T], why string) {
	if !f.Gathered() {
		*f = verdict.Unknown[T](why)
	}
}

// failImage reports an error of the target with osimage's code.
func (r *run) failImage(err error) {
	code, source := codeTargetUnreadable, ""
	var ie *osimage.Error
	if errors.As(err, &ie) {
		code, source = string(ie.Code), ie.Source
	}
	r.fail(code, source, err)
}

// readBounded reads to the end, or fails at the limit.
func readBounded(f io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("larger than the limit of %d bytes", limit)
	}
	return b, nil
}
