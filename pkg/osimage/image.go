package osimage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// An Image is an OS image in a registry or a local directory or archive. It
// fetches nothing until it is asked, and each part once: an answer, a failure
// too, is kept. It is safe for concurrent use; calls wait for each other.
type Image struct {
	cfg    *Config
	ref    types.ImageReference
	name   string
	pinned verdict.Digest
	arch   string
	sys    *types.SystemContext
	meter  meter

	mu       sync.Mutex
	src      types.ImageSource
	top      step[rawManifest]
	instance step[rawManifest]
	manifest step[Manifest]
	config   step[format.ImageConfig]
	commit   step[verdict.InnerCommit]
	// listed are the packages that the commit lists; without a list listErr says
	// why.
	listed  []verdict.Package
	listErr error
	signed  step[verdict.SignaturePolicy]
	// extensions are the packages on offer.
	extensions step[[]verdict.Package]
}

// step is a part of the image that is fetched once.
type step[T any] struct {
	done  bool
	value T
	err   error
}

// do answers once. An answer that came after the context's time is none: it is
// a failure with the code Timeout, and source names the image.
func (s *step[T]) do(ctx context.Context, source string, f func() (T, error)) (T, error) {
	if !s.done {
		s.value, s.err = f()
		if s.err == nil && ctx.Err() != nil {
			var none T
			s.value, s.err = none, fail(Timeout, source, fmt.Errorf("the answer came too late: %w", context.Cause(ctx)))
		}
		s.done = true
	}
	return s.value, s.err
}

// Open names an image: "docker://X" or a bare X in a registry (never a short
// name), "oci:", "oci-archive:" or "dir:" on this machine. arch is the
// architecture to choose from a manifest list, in Go's naming. Nothing is read
// yet; the only error is a reference that cannot be used. Close the image
// before cfg.
func Open(ref string, cfg *Config, arch string) (*Image, error) {
	parsed, err := parseReference(ref)
	if err != nil {
		return nil, err
	}
	pinned, err := pinnedDigest(parsed)
	if err != nil {
		return nil, fail(ReferenceInvalid, displayName(ref), err)
	}
	return &Image{
		cfg: cfg, ref: parsed, name: displayName(strings.TrimPrefix(ref, dockerPrefix)),
		pinned: pinned, arch: arch, sys: cfg.systemContext(arch),
	}, nil
}

// Close ends connections and removes what a local archive was unpacked to.
func (img *Image) Close() error {
	img.mu.Lock()
	defer img.mu.Unlock()
	if img.src == nil {
		return nil
	}
	src := img.src
	img.src = nil
	if err := src.Close(); err != nil {
		return fail(RegistryUnreachable, img.name, fmt.Errorf("closing: %w", err))
	}
	return nil
}

// Transfer says what was asked of the network (or of local files) so far.
func (img *Image) Transfer() Transfer { return img.meter.transfer() }

const (
	// retryReserve is kept from the deadline for acting on the answer.
	retryReserve = 5 * time.Second
	// attemptTime is the longest that one try may take when there may be
	// another; endpointTime where there are mirrors, for each place: the
	// library gives up a connection after 30 seconds and goes to the next.
	attemptTime  = 20 * time.Second
	endpointTime = 35 * time.Second
	firstPause   = 500 * time.Millisecond
	longestStep  = 10 * time.Minute
)

// fetch runs one step of network access, which reads about size bytes at most.
// Failures that may pass are tried again until near the deadline where the
// configuration says so.
func (img *Image) fetch(ctx context.Context, doing string, size int64, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, longestStep)
	defer cancel()
	pause := firstPause
	for {
		err := img.try(ctx, doing, size, f)
		if err == nil || !img.cfg.retry || !transient(CodeOf(err)) && !mirrorsMayAnswer(err) {
			return err
		}
		deadline, ok := ctx.Deadline()
		if !ok || time.Until(deadline) < retryReserve+pause {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
		pause = min(2*pause, 8*time.Second)
	}
}

// try makes one attempt, and gives its error a code.
func (img *Image) try(ctx context.Context, doing string, size int64, f func(context.Context) error) error {
	if img.cfg.retry {
		limit := img.attemptTime()
		if deadline, ok := ctx.Deadline(); ok {
			limit = min(limit, max(time.Until(deadline)-retryReserve, time.Second))
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	var gate floodGate
	ctx, stop := gate.watch(ctx, size)
	defer stop()
	err := f(img.meter.watch(ctx, &gate))
	if err == nil {
		return nil
	}
	if errors.Is(context.Cause(ctx), errFlood) {
		return fail(RegistryServerError, img.name, fmt.Errorf("%s: %w", doing, errFlood))
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	code := classify(ctx, err)
	message := img.cfg.clean(fmt.Sprintf("%s: %v", doing, err))
	switch {
	case code == Timeout && img.throttled(err):
		code = RegistryThrottled
		message += " (the registry asks to slow down)"
	case code == RegistriesConfInvalid && strings.HasPrefix(err.Error(), rewritingReference):
		message += img.badLocations()
	case code == AuthUnreadable && len(img.cfg.badAuth) > 0:
		message += fmt.Sprintf(" (not base64: %s)", strings.Join(img.cfg.badAuth[:min(len(img.cfg.badAuth), 5)], ", "))
	case code == RegistryUnauthorized && img.cfg.helpers:
		message += " (credential helpers are configured; they are never run)"
	}
	message += trustHint(message, img.cfg.hostPath(containersCertsD))
	return &Error{Code: code, Source: img.name, Message: message, Err: err}
}

// mirrorsMayAnswer reports whether a mirror failed for a passing reason. The
// code is that of the source, which may be blocked for good.
func mirrorsMayAnswer(err error) bool {
	mirrors, _ := splitMirrors(errors.Unwrap(err))
	return passing.MatchString(mirrors)
}

// attemptTime is the longest that one try may take when there may be another.
func (img *Image) attemptTime() time.Duration {
	named := img.ref.DockerReference()
	if !img.isRegistry() || named == nil {
		return attemptTime
	}
	reg, err := sysregistriesv2.FindRegistry(img.sys, named.Name())
	if err != nil || reg == nil {
		return attemptTime
	}
	places, err := reg.PullSourcesFromReference(named)
	if err != nil || len(places) < 2 {
		return attemptTime
	}
	return time.Duration(len(places)) * endpointTime
}

// throttled tells a time that ran out while the library waited out a 429 from
// one that ran out on an unanswered request: the first has had its answer and
// is no error of an HTTP request. It chooses a word for a person, no more.
func (img *Image) throttled(err error) bool {
	if !img.isRegistry() || !img.meter.answered.Load() {
		return false
	}
	text := err.Error()
	return !strings.Contains(text, `Get "`) && !strings.Contains(text, "reading manifest body") && !errors.Is(err, errBody) && !errors.Is(err, errUnpacking)
}

// errBody marks errors of reading a body, as opposed to asking for it.
var errBody = errors.New("reading the answer")

// Local reports whether the image lies in a file or folder rather than in a
// registry.
func (img *Image) Local() bool { return !img.isRegistry() }

func (img *Image) isRegistry() bool {
	return img.ref.Transport().Name() == docker.Transport.Name()
}

// source opens the image. In a registry that fetches the manifest.
func (img *Image) source(ctx context.Context) (types.ImageSource, error) {
	if img.src == nil {
		src, err := img.ref.NewImageSource(ctx, img.sys)
		if err != nil {
			return nil, err
		}
		img.src = src
	}
	return img.src, nil
}

// readBody reads at most limit bytes and counts them.
func (img *Image) readBody(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(countingReader{r, &img.meter}, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	if int64(len(b)) > limit {
		return nil, failText(ManifestInvalid, img.name, fmt.Sprintf("more than %d bytes", limit))
	}
	return b, nil
}
