package daemon

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/oneboot/oneboot/pkg/bootimage"
	"github.com/oneboot/oneboot/pkg/capture"
	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// evidencePaths are host files that a person may want to look at beside the
// facts; they hold no secrets where the host is in order, and what looks like
// one is taken out all the same.
var evidencePaths = [...]string{"/etc/os-release", "/usr/lib/os-release", "/proc/version"}

// Collect analyzes and writes a capture of it to w: all that the verdict rests
// on, without secrets. A verdict that cannot be captured is still returned
// beside the error.
func Collect(ctx context.Context, opts Options, version string, w io.Writer) (*Result, error) {
	res, err := Analyze(ctx, opts)
	if err != nil {
		return nil, err
	}
	if res.Interrupted {
		return res, errInterrupted
	}
	c, err := capture.New(version, res.Booted, res.Target, res.Policy, res.Verdict)
	if err != nil {
		return res, err
	}
	return res, c.Write(w, evidence(opts.Root, res.Booted))
}

// CollectFile is [Collect] into a new file of the caller, readable by its owner
// only, and returns its size. An existing file is left alone: it may be the
// capture of a rarer fault.
func CollectFile(ctx context.Context, opts Options, version, name string) (*Result, int64, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, 0, fmt.Errorf("%s is there already: name another with --file", name)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("creating %s: %w: name another with --file", name, bare(err))
	}
	res, err := Collect(ctx, opts, version, f)
	if err == nil {
		err = f.Sync()
	}
	size, seekErr := f.Seek(0, io.SeekCurrent)
	if err == nil {
		err = seekErr
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		// Half an archive helps nobody.
		_ = os.Remove(name)
	}
	return res, size, err
}

// evidence reads what is there; what cannot be read is left out.
func evidence(dir string, b verdict.Booted) capture.Evidence {
	root, err := hostfs.Open(dir)
	if err != nil {
		return nil
	}
	defer root.Close()
	names := append(evidencePaths[:], bootimage.AlephPaths()...)
	if d, ok := b.Deployment.Get(); ok {
		names = append(names, fmt.Sprintf("/ostree/deploy/%s/deploy/%s.%d.origin", d.Stateroot, d.Checksum, d.Serial))
	}
	out := capture.Evidence{}
	for _, name := range names {
		if raw, err := root.ReadFile(name, maxSmallFile); err == nil {
			out[strings.TrimPrefix(name, "/")] = raw
		}
	}
	return out
}

// Replay decides again on the capture in a file of the caller, "-" for its
// standard input.
func Replay(name string) (verdict.Verdict, error) {
	f := os.Stdin
	if name == stdinName {
		name = "standard input"
	} else {
		var err error
		if f, err = os.Open(name); err != nil {
			return verdict.Verdict{}, fmt.Errorf("--capture %s: %w", name, bare(err))
		}
		defer f.Close()
	}
	c, err := capture.Read(f)
	switch {
	case errors.Is(err, io.EOF):
		return verdict.Verdict{}, fmt.Errorf("%s: the archive is empty: copy it again", name)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, gzip.ErrChecksum):
		return verdict.Verdict{}, fmt.Errorf("%s: the archive is cut short or damaged: copy it again", name)
	case err != nil:
		return verdict.Verdict{}, fmt.Errorf("%s: %w", name, err)
	}
	return c.Verdict(), nil
}
