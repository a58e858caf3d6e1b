package osimage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/image"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// VerifySignature answers whether the host's policy.json accepts the image. A
// policy that needs no signature is answered as by [Config.SignaturePolicy],
// without a request. Else the signatures are fetched as registries.d says, and
// judged by the library that the host's own tools use: SignatureVerified, or
// SignatureInvalid where they were fetched, or are certainly absent, and the
// policy refuses. Of a manifest list, the list or the image for the
// architecture may be the signed one; Detail says which.
//
// Whatever keeps the signatures from being fetched or read is an [*Error], and
// says nothing about the image.
func (img *Image) VerifySignature(ctx context.Context) (verdict.SignaturePolicy, error) {
	img.mu.Lock()
	defer img.mu.Unlock()
	return img.signed.do(ctx, img.name, func() (verdict.SignaturePolicy, error) {
		policy, err := img.cfg.signaturePolicy(img.ref)
		if err != nil || policy.Requirement != verdict.SignatureRequired {
			return policy, err
		}
		policy.Requirement, policy.Detail, err = img.verify(ctx, policy.Detail)
		if err != nil {
			return verdict.SignaturePolicy{}, err
		}
		return policy, nil
	})
}

func (img *Image) verify(ctx context.Context, detail string) (verdict.SignatureRequirement, string, error) {
	top, err := img.topLevel(ctx)
	if err != nil {
		return "", "", err
	}
	what := "manifest"
	if manifest.MIMETypeIsMultiImage(top.mediaType) {
		what = "manifest list"
	}
	refusal, err := img.judge(ctx, top, nil)
	if err != nil {
		return "", "", err
	}
	if refusal == "" {
		return verdict.SignatureVerified, fmt.Sprintf("%s: the signature of the %s %s is accepted", detail, what, top.digest), nil
	}
	refusals := fmt.Sprintf("%s: %s %s: %s", detail, what, top.digest, refusal)
	if !manifest.MIMETypeIsMultiImage(top.mediaType) {
		return verdict.SignatureInvalid, refusals, nil
	}
	raw, err := img.instanceManifest(ctx)
	if err != nil {
		return "", "", err
	}
	instance := digest.Digest(raw.digest)
	refusal, err = img.judge(ctx, raw, &instance)
	switch {
	case err != nil:
		return "", "", err
	case refusal == "":
		return verdict.SignatureVerified, fmt.Sprintf("%s: the signature of the manifest %s for %s is accepted", detail, raw.digest, img.arch), nil
	}
	return verdict.SignatureInvalid, fmt.Sprintf("%s; manifest %s for %s: %s", refusals, raw.digest, img.arch, refusal), nil
}

// judge fetches the signatures of a manifest and evaluates the policy. It
// returns why the policy refuses them, or "" where it accepts one.
func (img *Image) judge(ctx context.Context, m rawManifest, instance *digest.Digest) (string, error) {
	if err := img.stageSignatures(m.digest); err != nil {
		return "", err
	}
	var held types.UnparsedImage
	err := img.fetch(ctx, "fetching the signatures of "+string(m.digest), maxSignatureBytes, func(ctx context.Context) error {
		src, err := img.source(ctx)
		if err != nil {
			return err
		}
		u := image.UnparsedInstance(src, instance)
		all, err := u.UntrustedSignatures(ctx)
		if err != nil {
			return img.signatureError(err)
		}
		var simple [][]byte
		if len(all) > 0 { // none would be fetched again
			if simple, err = u.Signatures(ctx); err != nil {
				return img.signatureError(err)
			}
		}
		held, err = hold(img, m, all, simple)
		return err
	})
	if err != nil {
		return "", err
	}
	// From here on nothing is fetched, and the keys were seen to be fit: what
	// fails now is a refusal.
	pc, err := signature.NewPolicyContext(img.cfg.policy.policy)
	if err != nil {
		return "", fail(PolicyInvalid, img.cfg.hostPath(policyPath), err)
	}
	defer func() { _ = pc.Destroy() }() // it holds nothing
	pc.RequireSignatureVerification(true)
	allowed, err := pc.IsRunningImageAllowed(ctx, held)
	switch {
	case allowed && err == nil:
		return "", nil
	case err == nil:
		return "refused", nil
	}
	return shorten(img.cfg.clean(err.Error())), nil
}

// shorten keeps a refusal, which may quote what was served, readable.
func shorten(s string) string {
	const longest = 500
	if len(s) > longest {
		s = s[:longest] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

// signatureError gives errors a code that speak of bytes which were served, and
// not of the registry. The library has no types for them.
func (img *Image) signatureError(err error) error {
	text := err.Error()
	code := Code("")
	for part, c := range map[string]Code{
		"parsing signature ": SignatureMalformed, "exceeded maximum allowed size": SignatureMalformed,
		"assuming that's unreasonable": SignatureMalformed, "sigstore attachment manifest": SignatureMalformed,
		"parsing manifest ": SignatureMalformed, "decoding signature list": SignatureMalformed,
		"invalid digest ": SignatureMalformed, "digest mismatch, expected": DigestMismatch,
		"Unsupported scheme when reading signature": RegistriesConfInvalid,
	} {
		if strings.Contains(text, part) {
			code = c
		}
	}
	if code == "" {
		return err
	}
	return &Error{Code: code, Source: img.name, Message: img.cfg.clean("fetching signatures: " + shorten(text)), Err: err}
}

// A heldImage shows the library a manifest and signatures that were fetched
// before, so that judging them asks nothing of the network. S is the library's
// type of a signature, which has no public name.
type heldImage[S any] struct {
	ref      types.ImageReference
	manifest rawManifest
	all      []S
	simple   [][]byte
}

// Reference is the image as it was asked for, whatever mirror served it.
func (h *heldImage[S]) Reference() types.ImageReference { return h.ref }

func (h *heldImage[S]) Manifest(context.Context) ([]byte, string, error) {
	return h.manifest.bytes, h.manifest.mediaType, nil
}

// Signatures returns those of simple signing.
func (h *heldImage[S]) Signatures(context.Context) ([][]byte, error) { return h.simple, nil }

// UntrustedSignatures returns all signatures. The library looks for this method
// behind the public interface.
func (h *heldImage[S]) UntrustedSignatures(context.Context) ([]S, error) { return h.all, nil }

// hold counts signatures that were fetched and refuses too much.
func hold[S any](img *Image, m rawManifest, all []S, simple [][]byte) (*heldImage[S], error) {
	total := 0
	for _, b := range simple {
		total += len(b)
	}
	for _, s := range all {
		if attached, ok := any(s).(interface{ UntrustedPayload() []byte }); ok {
			total += len(attached.UntrustedPayload())
		}
	}
	img.meter.bytes.Add(int64(total))
	if len(all) > maxSignatures || total > maxSignatureBytes {
		return nil, failText(SignatureMalformed, img.name, fmt.Sprintf("%d signatures of %d bytes, where %d and %d are the most", len(all), total, maxSignatures, maxSignatureBytes))
	}
	for _, b := range simple {
		if err := checkMessage(b); err != nil {
			return nil, fail(SignatureMalformed, img.name, fmt.Errorf("reading a signature: %w", err))
		}
	}
	return &heldImage[S]{ref: img.ref, manifest: m, all: all, simple: simple}, nil
}

// maxSignedText bounds what simple signatures hold, compressed or not: a small
// JSON document.
const maxSignedText = 1 << 20

// checkMessage refuses an OpenPGP message that decompresses to more than
// maxSignedText, or twice, which the library would read whole into memory; and
// one with several signatures, which GnuPG on the host refuses and the library's
// stand-in for it takes if one is good. Anything else that is wrong with it is
// left for the library to say.
func checkMessage(b []byte) error {
	var m messageScan
	return m.scan(b, false)
}

type messageScan struct {
	signatures int
}

func (m *messageScan) scan(b []byte, compressed bool) error {
	packets := packet.NewReader(bytes.NewReader(b))
	for {
		p, err := packets.Next()
		if err != nil {
			return nil //nolint:nilerr // the end, or where the library stops too
		}
		switch p := p.(type) {
		case *packet.Signature:
			if m.signatures++; m.signatures > 1 {
				return errors.New("signed more than once")
			}
		case *packet.Compressed:
			if compressed {
				return errors.New("compressed twice")
			}
			text, err := io.ReadAll(io.LimitReader(p.Body, maxSignedText+1))
			if len(text) > maxSignedText {
				return fmt.Errorf("holds more than %d bytes", maxSignedText)
			}
			if err != nil {
				return nil //nolint:nilerr // the library stops here too
			}
			if err := m.scan(text, true); err != nil {
				return err
			}
		case *packet.LiteralData:
			// Packets follow behind the text.
			if _, err := io.Copy(io.Discard, p.Body); err != nil {
				return nil //nolint:nilerr // the library stops here too
			}
		}
	}
}
