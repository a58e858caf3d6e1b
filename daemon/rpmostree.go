package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/oneboot/oneboot/pkg/ostree"
	"github.com/oneboot/oneboot/pkg/rpmostree"
	"github.com/oneboot/oneboot/pkg/verdict"
)

const (
	rpmOSTreePath = "/usr/bin/rpm-ostree"
	// statusTime bounds rpm-ostree: it starts its daemon, and that reads the
	// sysroot.
	statusTime = 10 * time.Second
	// statusGrace is what is left, once rpm-ostree has ended or was killed, to
	// processes that it started and that keep its output open.
	statusGrace = time.Second
	maxStatus   = 16 << 20
	maxStderr   = 4 << 10
)

// stdinName stands for the standard input of the caller.
const stdinName = "-"

// NoSysroot is why nothing is known of a root of which only --status-json says
// that it has to do with the node.
const NoSysroot = "no ostree repository is below --root, so it may be another machine"

// strangeRoot reports whether a saved status must speak for itself, since there
// is no sysroot to compare it with.
func (r *run) strangeRoot() bool {
	if r.opts.StatusFile == "" || r.opts.Unbooted {
		return false
	}
	_, err := ostree.OpenSysroot(r.root)
	return errors.Is(err, ostree.ErrNotOSTree)
}

// strangeHost has every fact of the host unknown, those that a status may tell
// for the reason given.
func strangeHost(why string) verdict.Booted {
	b := unknownHost(why)
	b.LegacyKernelArguments = verdict.Unknown[[]string](NoSysroot)
	b.CommandLine = verdict.Unknown[string](NoSysroot)
	b.RunningKernel = verdict.Unknown[string](NoSysroot)
	b.FIPS = verdict.Unknown[bool](NoSysroot)
	b.ForceFile = verdict.Unknown[bool](NoSysroot)
	b.NetworkState = verdict.Unknown[verdict.NetworkState](NoSysroot)
	b.Packages = verdict.Unknown[[]verdict.Package](NoSysroot)
	b.BasePackages = verdict.Unknown[[]verdict.Package](NoSysroot)
	return b
}

// gatherStatus asks the second source: what the caller has saved of
// rpm-ostree, or on the running host rpm-ostree itself, there only for what
// the sysroot has left open.
func (r *run) gatherStatus(ctx context.Context) {
	switch {
	case r.opts.StatusFile != "":
		r.savedStatus(ctx)
	case !r.opts.Unbooted && filepath.Clean(r.opts.Root) == "/" && r.root.Live() && statusCouldAnswer(r.booted):
		r.freshStatus(ctx, rpmOSTreePath)
	}
}

// statusCouldAnswer reports whether the sysroot left something unknown that
// rpm-ostree may know. That a plain commit has no digests is nothing unknown.
func statusCouldAnswer(b verdict.Booted) bool {
	d, ok := b.Deployment.Get()
	if !ok || !b.OriginReference.IsKnown() {
		return true
	}
	kind, id := d.Kind, b.Identity
	if kind == verdict.ClientLayered {
		kind = d.Base.Kind
	}
	if kind == verdict.PlainCommit {
		return !id.InnerCommit.IsKnown()
	}
	return !id.ManifestDigest.IsKnown() || !id.ConfigDigest.IsKnown() || !id.DiffIDs.IsKnown() || !id.Layers.IsKnown()
}

// savedStatus compares the host with what the caller has saved. A comparison
// that was asked for and cannot be made leaves the deployment not seen whole.
func (r *run) savedStatus(ctx context.Context) {
	source := r.opts.StatusFile
	raw, err := readCallerStatus(ctx, source)
	var status *rpmostree.Status
	if err == nil {
		status, err = rpmostree.Parse(raw)
	}
	if err != nil {
		if source == stdinName {
			source = "standard input"
		}
		err = fmt.Errorf("reading %s: %w", source, err)
		r.fail(codeStatus, source, err)
		if r.stranger {
			r.booted = strangeHost(err.Error())
		} else if d, ok := r.booted.Deployment.Get(); ok {
			d.Unseen = strings.TrimPrefix(d.Unseen+"; what rpm-ostree says: "+err.Error(), "; ")
			r.booted.Deployment = verdict.Known(d)
		}
		return
	}
	facts := status.Facts()
	r.booted = verdict.Reconcile(r.booted, facts)
	if r.stranger {
		r.booted.Architecture = facts.Architecture
	}
}

// readCallerStatus reads a file, or the standard input, which may never end.
func readCallerStatus(ctx context.Context, name string) ([]byte, error) {
	type answer struct {
		raw []byte
		err error
	}
	done := make(chan answer, 1)
	go func() {
		var a answer
		if name == stdinName {
			a.raw, a.err = readBounded(os.Stdin, maxStatus)
		} else {
			a.raw, a.err = readCallerFile(name, maxStatus)
		}
		done <- a
	}()
	select {
	case a := <-done:
		return a.raw, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("it did not end: %w", ctx.Err())
	}
}

// freshStatus asks rpm-ostree. Without an answer the sysroot's facts stay what
// they are. A system without rpm-ostree has no second source.
func (r *run) freshStatus(ctx context.Context, program string) {
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		return
	}
	raw, said, err := runStatus(ctx, program)
	if err != nil {
		r.fail(codeRPMOSTree, program, fmt.Errorf("running %s status --json: %w%s", program, err, said))
		return
	}
	status, err := rpmostree.Parse(raw)
	if err != nil {
		r.fail(codeStatus, program, fmt.Errorf("%w%s", err, said))
		return
	}
	r.booted = verdict.Reconcile(r.booted, status.Facts())
}

// runStatus returns the standard output of rpm-ostree, and its standard error
// in one line to end a sentence with. Nothing that rpm-ostree does makes it
// take more than the time and the memory that it may.
func runStatus(ctx context.Context, program string) (stdout []byte, said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	out := capped{limit: maxStatus, full: cancel}
	text := capped{limit: maxStderr, full: func() {}}
	cmd := exec.CommandContext(ctx, program, "status", "--json")
	// It calls systemctl to start its daemon.
	cmd.Env = []string{"LC_ALL=C", "PATH=/usr/sbin:/usr/bin"}
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader("")
	cmd.Stdout, cmd.Stderr = &out, &text
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	killGroup := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = killGroup
	cmd.WaitDelay = statusGrace
	err = cmd.Run()
	switch {
	case err == nil:
	case out.over:
		err = fmt.Errorf("it wrote more than %d bytes", maxStatus)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("it did not end in time: %w", ctx.Err())
	case errors.Is(err, exec.ErrWaitDelay):
		// Its process group lives on, so that its number is no other's.
		_ = killGroup()
		err = errors.New("a process that it started kept its output open")
	}
	return out.kept, oneLine(text.kept), err
}

// capped keeps what is written up to a limit and passes over the rest.
type capped struct {
	kept  []byte
	limit int
	over  bool
	// full is called once, when there is more.
	full func()
}

func (c *capped) Write(b []byte) (int, error) {
	keep := min(len(b), c.limit-len(c.kept))
	c.kept = append(c.kept, b[:keep]...)
	if keep < len(b) && !c.over {
		c.over = true
		c.full()
	}
	return len(b), nil
}

// oneLine puts what was said in one line that can be shown, with a colon before
// it; nothing where nothing was said.
func oneLine(b []byte) string {
	const most = 300
	text := strings.Join(strings.FieldsFunc(strings.ToValidUTF8(string(verdict.RedactText(b)), "?"), func(c rune) bool {
		return unicode.IsSpace(c) || !unicode.IsPrint(c)
	}), " ")
	if text == "" {
		return ""
	}
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return ": " + text
}
