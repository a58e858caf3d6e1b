package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/machineconfig"
	"github.com/oneboot/oneboot/pkg/record"
)

// A RefusedError says why an act is not undone.
type RefusedError struct {
	// Why is for a person.
	Why string
	// Late: the node has joined, or is about to, so that undoing the act does
	// not bring back the boot that it has saved.
	Late bool
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Why }

// A Reverted says what a revert has done.
type Reverted struct {
	// Undone are the files that are as before the act again, paths below the
	// root; none where there was nothing to undo.
	Undone []string
	// Left are those that something else has changed since.
	Left []string
}

// Revert undoes the last act below the root, while the node has not joined, and
// notes it in the record. With force it does so also after the join, and where
// something else has changed a file since: that one is left alone. Else the
// error is a [RefusedError], and nothing was changed.
func Revert(dir string, force bool) (Reverted, error) {
	return onOwnThread(func() (Reverted, error) {
		w, err := openWriter(dir)
		if err != nil {
			return Reverted{}, err
		}
		defer w.close()
		// Without its folder there is no act, and nothing is to be made.
		if d, err := w.openFolder(stateDir); errors.Is(err, fs.ErrNotExist) {
			return Reverted{}, nil
		} else if err == nil {
			d.Close()
		}
		lock, err := w.lock()
		if err != nil {
			return Reverted{}, err
		}
		defer lock.Close()
		return w.revert(force)
	})
}

func (w *hostWriter) revert(force bool) (Reverted, error) {
	j, err := w.readJournal()
	if err != nil || j == nil || j.State == actUndone {
		return Reverted{}, err
	}
	root, err := hostfs.Open(w.dir)
	if err != nil {
		return Reverted{}, err
	}
	defer root.Close()
	late := tooLate(root, j)
	if late != "" && !force {
		return Reverted{}, &RefusedError{Why: late, Late: true}
	}
	if !force {
		if err := w.checkForeign(j); err != nil {
			return Reverted{}, err
		}
	}
	paths := changedPaths(j.Changes)
	j.State = actIntended
	if err := w.writeJournal(j); err != nil {
		return Reverted{}, err
	}
	foreign, err := w.undo(j)
	if err != nil {
		return Reverted{}, fmt.Errorf("undoing the act, which the next try goes on with: %w", err)
	}
	out := Reverted{Left: foreign}
	for _, name := range paths {
		if !slices.Contains(foreign, name) {
			out.Undone = append(out.Undone, name)
		}
	}
	// The record first: with the journal ended there is nothing left that
	// could bring it up to date.
	if err := w.noteRevert(out, late != "" && force); err != nil {
		return out, err
	}
	return out, w.end(j, actUndone)
}

// tooLate says why undoing an act would not bring back a first boot: the node
// has joined, or the machine-config-daemon has finished the first boot upon the
// act, so that after an undo it would pivot once the node has joined, without a
// drain. Empty where there is time.
func tooLate(root *hostfs.Root, j *journal) string {
	if why := joined(root); why != "" {
		return why
	}
	found, err := root.Exists(machineconfig.EncapsulatedPath)
	if err == nil && !found && j.Mode == ModeComplete {
		// Where the act has finished the first boot, that comes back with it.
		found, err = root.Exists(machineconfig.EncapsulatedBakPath)
	}
	switch {
	case err != nil:
		return "whether the first boot is over is not known: looking for " + err.Error()
	case !found:
		return "the machine-config-daemon has finished the first boot: " + machineconfig.EncapsulatedPath + " is gone"
	}
	return ""
}

// checkForeign refuses where something else has changed a file of the act.
func (w *hostWriter) checkForeign(j *journal) error {
	var foreign []string
	for _, c := range j.Changes {
		state, err := w.state(c)
		if err != nil {
			return err
		}
		if state == stateForeign {
			foreign = append(foreign, c.Path)
		}
	}
	if len(foreign) > 0 {
		return &RefusedError{Why: "something else has changed since: " + strings.Join(foreign, ", ")}
	}
	return nil
}

// noteRevert brings the record up to date, where there is one.
func (w *hostWriter) noteRevert(r Reverted, forced bool) error {
	st, err := w.read(record.Path, record.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading record: %w", err)
	}
	rec, err := record.Parse(st.Content)
	if err != nil {
		return nil // it says nothing, and nothing that is wrong by now
	}
	if rec.Act == nil {
		rec.Act = &record.Act{}
	}
	rec.Act.State, rec.Act.Forced, rec.Act.MCO = record.ActUndone, forced, nil
	rec.Act.Reason = "by oneboot revert"
	if len(r.Left) > 0 {
		rec.Act.Reason += "; left alone since something else has changed it: " + strings.Join(r.Left, ", ")
	}
	if rec.Act.Changed == nil {
		rec.Act.Changed = []string{}
	}
	b, err := rec.Marshal()
	if err != nil {
		return err
	}
	return w.writeOwn(record.Path, b, 0o644)
}
