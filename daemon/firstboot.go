package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// A FirstbootResult is a verdict and what was done upon it.
type FirstbootResult struct {
	*Result
	Act record.Act
	// OneBoot says that this boot, of the running kernel, is expected to be the
	// node's only one before it joins: the act is done, and nothing is known
	// that would have the machine-config-daemon reboot.
	OneBoot bool
}

// Firstboot decides, acts as far as the mode allows and writes the record below
// the root. Only one instance runs at a time; another one does nothing and is an
// error. An act that an earlier run has left half done is undone first.
//
// An act that fails is no error: the host is as before, Act and the verdict's
// errors say why, and the node goes on as if oneboot were not there. An error
// means that no record could be written, and then nothing was done either, or
// it was undone; the result is returned beside it where there is a verdict.
func Firstboot(ctx context.Context, opts Options, mode Mode, version string) (*FirstbootResult, error) {
	// Before anything is written into what may be no host.
	root, err := hostfs.Open(opts.Root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := checkBooted(root, opts.Root); err != nil {
		return nil, err
	}
	return onOwnThread(func() (*FirstbootResult, error) {
		w, err := openWriter(opts.Root)
		if err != nil {
			return nil, err
		}
		defer w.close()
		lock, lockErr := w.lock()
		if errors.Is(lockErr, errBusy) {
			return nil, lockErr
		}
		if lockErr == nil {
			defer lock.Close()
		}
		return w.firstboot(ctx, root, opts, mode, version, lockErr)
	})
}

func (w *hostWriter) firstboot(ctx context.Context, root *hostfs.Root, opts Options, mode Mode, version string, lockErr error) (*FirstbootResult, error) {
	var (
		recovered  string
		recoverErr error
	)
	if lockErr == nil {
		recovered, recoverErr = w.recoverAct(root)
	}
	opts.predictAct = mode != ModeReport
	res, err := Analyze(ctx, opts)
	if err != nil {
		return nil, err
	}
	out := &FirstbootResult{Result: res, Act: record.Act{State: record.ActNone, Changed: []string{}}}
	if recovered != "" {
		res.Verdict.Warnings = append(res.Verdict.Warnings, recovered)
	}
	if lockErr != nil {
		return out, fmt.Errorf("writing record: %w", lockErr)
	}
	f := &firstbootRun{w: w, root: root, out: out, mode: mode, record: record.Record{
		Version: version, Mode: string(mode), BootID: bootID(opts.Root), FastReboot: opts.FastReboot, Seconds: res.Seconds,
		Registry: record.Registry{Requests: res.Transfer.Requests, Bytes: res.Transfer.Bytes},
	}}
	if recoverErr != nil {
		err := fmt.Errorf("an act that was cut off could not be undone: %w", recoverErr)
		f.failed(codeUnfinished, mode, err)
	} else if mode != ModeReport {
		if err := f.act(); err != nil {
			return out, err
		}
	}
	f.noteEarlier()
	if why := f.keptRecord(); why != "" {
		res.Verdict.Warnings = append(res.Verdict.Warnings, "the record of the first boot stays as it is: "+why)
		return out, nil
	}
	err = f.write()
	if err != nil && f.out.Act.State == record.ActDone && len(f.out.Act.Changed) > 0 {
		// The record of the start stays, and proves as much.
		res.Verdict.Warnings = append(res.Verdict.Warnings, "the act is done, but the record does not say so: "+err.Error())
		err = nil
	}
	return out, err
}

// A firstbootRun is what follows upon a verdict.
type firstbootRun struct {
	w      *hostWriter
	root   *hostfs.Root
	out    *FirstbootResult
	mode   Mode
	record record.Record
}

// write writes the record as things stand.
func (f *firstbootRun) write() error {
	f.record.Time, f.record.Verdict = time.Now().UTC(), f.out.Verdict
	act := f.out.Act
	f.record.Act = &act
	b, err := f.record.Marshal()
	if err != nil {
		return err
	}
	if err := f.w.writeOwn(record.Path, b, 0o644); err != nil {
		return fmt.Errorf("writing record: %w", err)
	}
	return nil
}

// keptRecord says why the record that is there is not replaced: once the node
// has joined it is the account of how that came about, and what [record.Record.Proves]
// goes by. A record that cannot be read is no account, and one of an act that
// was cut off says less than this run knows.
func (f *firstbootRun) keptRecord() string {
	why := joined(f.root)
	if why == "" || f.out.Act.State == record.ActFailed {
		return ""
	}
	raw, err := f.root.ReadFile(record.Path, record.MaxSize)
	if err != nil {
		return ""
	}
	earlier, err := record.Parse(raw)
	if err != nil || earlier.Act != nil && earlier.Act.State == record.ActStarted {
		return ""
	}
	return why
}

// failed notes that nothing came of the act.
func (f *firstbootRun) failed(code string, mode Mode, err error) {
	f.out.Act = failedAct(mode, err)
	f.out.Verdict.Errors = append(f.out.Verdict.Errors, verdict.Error{Code: code, Message: err.Error(), Source: "--mode " + string(f.mode)})
}

// act does what the mode allows. The error is for a record that could not be
// written: without one nothing is done.
func (f *firstbootRun) act() error {
	res := f.out.Result
	if why := whyNoAct(res, f.root); why != "" {
		f.out.Act.Reason = why
		return f.takeBack()
	}
	mc, _ := res.Target.MachineConfig.Get()
	mode, why := chooseMode(f.mode, res, mc)
	if why != "" {
		f.out.Act.Reason = why
		return nil
	}
	p, err := f.w.makePlan(f.root, res, mode, mc, nil)
	if err == nil && p.refusal == "" && len(p.changes) > 0 {
		if err = changedSince(f.root, f.w.dir, res); err == nil {
			p, err = f.again(mode, mc, p)
		}
	}
	switch {
	case err != nil:
		f.failed(actCode(err), mode, err)
	case p.refusal != "":
		f.out.Act = record.Act{State: record.ActNone, Mode: string(mode), Reason: p.refusal, Changed: []string{}}
	case len(p.changes) == 0:
		f.out.Act = record.Act{State: record.ActDone, Mode: string(mode), Reason: "everything is so already", Changed: []string{}}
		f.predicted(mode)
	default:
		return f.carryOut(mode, mc, p)
	}
	f.out.Verdict.Warnings = append(f.out.Verdict.Warnings, p.warnings...)
	return nil
}

// takeBack undoes what an earlier run did where this one knows that something
// differs now: the machine-config-daemon, which does not look at all of it, would
// skip upon that act. Where this run only knows less than the earlier one, what
// that one has proven of this deployment stands.
func (f *firstbootRun) takeBack() error {
	v := f.out.Verdict
	j, err := f.w.readJournal()
	if v.Action == verdict.Skip || !v.Conclusive || err != nil || j == nil || j.State != actDone || tooLate(f.root, j) != "" {
		return nil
	}
	f.out.Act = record.Act{State: record.ActStarted, Mode: string(j.Mode), Changed: changedPaths(j.Changes)}
	if err := f.write(); err != nil {
		return err
	}
	mode := j.Mode
	undone, err := f.w.undoDone(j)
	if err != nil {
		f.failed(codeUnfinished, mode, fmt.Errorf("what an earlier run did could not be undone: %w", err))
		return nil
	}
	f.out.Act = record.Act{State: record.ActUndone, Mode: string(mode), Changed: undone, Reason: "what an earlier run did, since the verdict is proceed now"}
	return nil
}

// noteEarlier says where nothing was done that an act of an earlier run stays.
func (f *firstbootRun) noteEarlier() {
	if f.out.Act.State != record.ActNone {
		return
	}
	j, err := f.w.readJournal()
	if err != nil || j == nil || j.State != actDone {
		return
	}
	f.out.Act.Mode, f.out.Act.Changed = string(j.Mode), changedPaths(j.Changes)
	f.out.Act.Reason = strings.TrimPrefix(f.out.Act.Reason+"; what an earlier run did stays", "; ")
}

// again undoes an earlier act that is done, so that a revert brings back what
// was there before it, and plans anew on the files as they were. The record of
// the earlier act, which says done, goes first.
func (f *firstbootRun) again(mode Mode, mc verdict.MachineConfig, p plan) (plan, error) {
	j, err := f.w.readJournal()
	if err != nil || j == nil || j.State != actDone {
		return p, err
	}
	f.out.Act = record.Act{State: record.ActStarted, Mode: string(mode), Changed: changedPaths(p.changes)}
	if err := f.write(); err != nil {
		return p, err
	}
	undone, err := f.w.undoDone(j)
	if err != nil || len(undone) == 0 {
		return p, err
	}
	return f.w.makePlan(f.root, f.out.Result, mode, mc, undone)
}

func (f *firstbootRun) carryOut(mode Mode, mc verdict.MachineConfig, p plan) error {
	f.out.Verdict.Warnings = append(f.out.Verdict.Warnings, p.warnings...)
	f.out.Act = record.Act{State: record.ActStarted, Mode: string(mode), Changed: changedPaths(p.changes)}
	if err := f.write(); err != nil {
		f.failed(actCode(err), mode, err)
		return err
	}
	j := &journal{
		APIVersion: journalVersion, Kind: journalKind, Mode: mode, Version: f.record.Version, Time: f.record.Time, BootID: f.record.BootID,
		OSImageURL: mc.OSImageURL, Deployment: f.out.Verdict.Booted.Checksum, Changes: p.changes,
	}
	warnings, err := f.w.carryOut(j)
	f.out.Verdict.Warnings = append(f.out.Verdict.Warnings, warnings...)
	if err != nil {
		f.failed(actCode(err), mode, err)
		return nil
	}
	f.out.Act.State, f.out.Act.Changed = record.ActDone, changedPaths(j.Changes)
	f.predicted(mode)
	return nil
}

// predicted adds what the machine-config-daemon does next: after a complete its
// units do not run.
func (f *firstbootRun) predicted(mode Mode) {
	f.out.OneBoot = runsHere(f.root) && (mode == ModeComplete || f.out.after.WouldSkip)
	if mode == ModeAssert {
		after := f.out.after
		f.out.Act.MCO = &after
	}
}

// bootID is empty where it cannot be read; the join then counts as another
// boot's.
func bootID(dir string) string {
	root, err := hostfs.Open(dir)
	if err != nil {
		return ""
	}
	defer root.Close()
	raw, err := root.ReadFile(bootIDPath, maxSmallFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}
