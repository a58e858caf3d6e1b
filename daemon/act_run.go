package daemon

import (
	"fmt"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/record"
)

// carryOut makes the changes of a journal, in order: first its intent is on the
// disk, last that it is done. After an error everything is as before, and the
// journal says undone; where even that fails the intent stays, for the next run
// to undo.
func (w *hostWriter) carryOut(j *journal) (warnings []string, err error) {
	j.State = actIntended
	if err := w.writeJournal(j); err != nil {
		return nil, err
	}
	var done []change
	for _, c := range j.Changes {
		err := w.applyFrom(c)
		if err != nil && c.Optional {
			if state, stateErr := w.state(c); stateErr == nil && state == stateOld {
				warnings = append(warnings, "left as it is: "+err.Error())
				continue
			}
		}
		if err != nil {
			return warnings, w.giveUp(j, err)
		}
		done = append(done, c)
	}
	all := j.Changes
	j.Changes = done
	if err := w.end(j, actDone); err != nil {
		j.Changes = all
		if committed, stateErr := w.committed(j); committed && stateErr == nil {
			// Past the commit point there is no way back: the next run that
			// sees this journal takes it for done.
			return append(warnings, "the journal could not be ended: "+err.Error()), nil
		}
		return warnings, w.giveUp(j, err)
	}
	return warnings, nil
}

// applyFrom makes one change, if the file is still what the plan saw.
func (w *hostWriter) applyFrom(c change) error {
	state, err := w.state(c)
	if err != nil {
		return err
	}
	if state != stateOld {
		return fmt.Errorf("%s: has changed meanwhile", c.Path)
	}
	return w.apply(c)
}

// giveUp undoes what was done before the error.
func (w *hostWriter) giveUp(j *journal, cause error) error {
	foreign, err := w.undo(j)
	if err != nil {
		return fmt.Errorf("%w; undoing it failed too, the next run tries again: %w", cause, err)
	}
	if len(foreign) > 0 {
		cause = fmt.Errorf("%w; left alone since something else has changed it: %s", cause, strings.Join(foreign, ", "))
	}
	// Where this cannot be written the next run finds nothing left to undo.
	if err := w.end(j, actUndone); err != nil {
		return fmt.Errorf("%w; %w", cause, err)
	}
	return cause
}

// committed: an act in mode complete is past its last change, after which the
// first boot is over.
func (w *hostWriter) committed(j *journal) (bool, error) {
	if len(j.Changes) == 0 {
		return false, nil
	}
	last := j.Changes[len(j.Changes)-1]
	if last.Kind != changeName {
		return false, nil
	}
	state, err := w.state(last)
	return state == stateNew, err
}

// recoverAct ends what a run that was cut off has begun. One that was past its
// commit point is done, and one that the node has joined upon stays as it is:
// undoing it now would have the node pivot. Any other is undone, from the copies
// in the journal; if the verdict is a skip again the run then acts anew, on files
// as they were. It returns what it did, in words, or empty where there was
// nothing to do.
func (w *hostWriter) recoverAct(root *hostfs.Root) (string, error) {
	j, err := w.readJournal()
	if err != nil || j == nil || j.State != actIntended {
		return "", err
	}
	committed, err := w.committed(j)
	if err != nil {
		return "", err
	}
	late := tooLate(root, j)
	if committed || late != "" {
		for _, c := range j.Changes {
			if err := w.cleanTemp(c); err != nil {
				return "", err
			}
		}
		what := "an act that was cut off after its last change counts as done"
		if !committed {
			what = "an act that was cut off stays as it is: " + late
		}
		return what, w.end(j, actDone)
	}
	foreign, err := w.undo(j)
	if err != nil {
		return "", err
	}
	what := "an act that was cut off was undone"
	if len(foreign) > 0 {
		what += "; left alone since something else has changed it: " + strings.Join(foreign, ", ")
	}
	return what, w.end(j, actUndone)
}

// undoDone undoes an act that was done, before another one takes its place in
// the journal, and returns the paths.
func (w *hostWriter) undoDone(j *journal) ([]string, error) {
	j.State = actIntended
	if err := w.writeJournal(j); err != nil {
		return nil, err
	}
	paths := changedPaths(j.Changes)
	if _, err := w.undo(j); err != nil {
		return nil, err
	}
	return paths, w.end(j, actUndone)
}

// changedPaths are those of a plan or journal, for the record.
func changedPaths(changes []change) []string {
	out := []string{}
	for _, c := range changes {
		if !slices.Contains(out, c.Path) {
			out = append(out, c.Path)
		}
	}
	return out
}

// failedAct is the record of an act that did not come about.
func failedAct(mode Mode, err error) record.Act {
	return record.Act{State: record.ActFailed, Mode: string(mode), Reason: err.Error(), Changed: []string{}}
}
