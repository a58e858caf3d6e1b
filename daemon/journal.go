package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/oneboot/oneboot/pkg/machineconfig"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// journalPath is where the intent of an act lies before the first change, with
// what it takes to undo it. Only root may read it: it holds copies of files that
// may hold secrets.
const journalPath = stateDir + "/act.json"

const (
	journalVersion = "oneboot.dev/v1"
	journalKind    = "FirstbootAct"
	// maxJournal bounds the file, in bytes.
	maxJournal = 32 << 20
	// maxChanges bounds the files of one act.
	maxChanges = 256
)

// A journalState says how far an act came.
type journalState string

const (
	actIntended journalState = "intended" // and perhaps begun
	actDone     journalState = "done"
	actUndone   journalState = "undone"
)

// A journal is one act: what it was to change, and how to undo it.
type journal struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	State      journalState `json:"state"`
	Mode       Mode         `json:"mode"`
	Version    string       `json:"version"`
	Time       time.Time    `json:"time"`
	BootID     string       `json:"bootID"`
	// OSImageURL and Deployment are what was proven to be equal.
	OSImageURL string           `json:"osImageURL"`
	Deployment verdict.Checksum `json:"deployment"`
	Changes    []change         `json:"changes"`
}

// A changeKind is a kind of change.
type changeKind string

const (
	changeContent changeKind = "content"
	changeMode    changeKind = "mode"
	changeName    changeKind = "name"
)

// A change is one file that an act changes.
type change struct {
	Kind changeKind `json:"kind"`
	// Path is below the root.
	Path string `json:"path"`
	// To is the new name; of a change of name only.
	To string `json:"to,omitempty"`
	// Old is the file before. A change of name keeps its content here too, to
	// be known again by.
	Old fileState `json:"old"`
	// New is the content after; of a change of content only.
	New []byte `json:"new,omitempty"`
	// NewMode is of a change of mode only.
	NewMode uint32 `json:"newMode,omitempty"`
	// Touch is a folder whose modification time tells another program that the
	// file has changed.
	Touch string `json:"touch,omitempty"`
	// Optional: the act goes on without this change.
	Optional bool `json:"optional,omitempty"`
}

func parseJournal(raw []byte) (*journal, error) {
	var j journal
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, errors.New("something follows the document")
	}
	if j.APIVersion != journalVersion || j.Kind != journalKind {
		return nil, fmt.Errorf("apiVersion %q, kind %q: is not a journal of this version", j.APIVersion, j.Kind)
	}
	if !slices.Contains([]journalState{actIntended, actDone, actUndone}, j.State) {
		return nil, fmt.Errorf("state %q is not known", j.State)
	}
	if len(j.Changes) > maxChanges {
		return nil, fmt.Errorf("%d changes, over the limit of %d", len(j.Changes), maxChanges)
	}
	for i, c := range j.Changes {
		if err := c.check(); err != nil {
			return nil, fmt.Errorf("changes[%d]: %w", i, err)
		}
	}
	return &j, nil
}

// check holds that it is a change such as an act makes. Undoing a change writes
// what the journal says: whoever can write in /var, and not in the OS, must not be
// able to have it write anywhere else.
func (c change) check() error {
	name := c.Path
	if !path.IsAbs(name) || path.Clean(name) != name {
		return fmt.Errorf("path %q is not a clean absolute path", name)
	}
	touch, to, ok := "", "", false
	switch c.Kind {
	case changeContent:
		repo := path.Dir(name) == reposDir && isRepo(path.Base(name))
		origin := isOrigin(name)
		if origin {
			touch = deployDir(name)
		}
		ok = repo || origin || name == machineconfig.NodeAnnotationsPath
	case changeMode:
		ok = name == machineconfig.BootstrapKubeconfigPath
	case changeName:
		ok, to = name == machineconfig.EncapsulatedPath, machineconfig.EncapsulatedBakPath
	default:
		return fmt.Errorf("kind %q is not known", c.Kind)
	}
	if !ok || c.To != to || c.Touch != touch {
		return fmt.Errorf("%s: no act changes its %s, to %q and touch %q", name, c.Kind, c.To, c.Touch)
	}
	return nil
}

// isOrigin reports whether a clean path is that of a deployment's origin.
func isOrigin(name string) bool {
	for _, sysroot := range []string{"/ostree", physicalRoot + "/ostree"} {
		if ok, err := path.Match(sysroot+"/deploy/*/deploy/*.origin", name); ok && err == nil {
			return true
		}
	}
	return false
}

// deployDir is <sysroot>/ostree/deploy of the origin at
// <sysroot>/ostree/deploy/<stateroot>/deploy/<deployment>.origin.
func deployDir(origin string) string { return path.Dir(path.Dir(path.Dir(origin))) }

// readJournal returns nil where there is none.
func (w *hostWriter) readJournal() (*journal, error) {
	st, err := w.read(journalPath, maxJournal)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading journal %w", err)
	}
	j, err := parseJournal(st.Content)
	if err != nil {
		return nil, fmt.Errorf("reading journal %s: %w", journalPath, err)
	}
	return j, nil
}

func (w *hostWriter) writeJournal(j *journal) error {
	raw, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("writing journal: %w", err)
	}
	if len(raw) > maxJournal {
		return fmt.Errorf("writing journal: %d bytes, over the limit of %d", len(raw), maxJournal)
	}
	return w.writeOwn(journalPath, append(raw, '\n'), 0o600)
}

// end writes how the act ended. What was undone needs no copies any more.
func (w *hostWriter) end(j *journal, state journalState) error {
	j.State = state
	if state == actUndone {
		j.Changes = nil
	}
	return w.writeJournal(j)
}

// A changeState is where a file stands between before and after.
type changeState uint8

const (
	stateForeign changeState = iota // neither: something else has changed it
	stateOld
	stateNew
)

// state looks where a change stands. The error is for a file that cannot be
// looked at.
func (w *hostWriter) state(c change) (changeState, error) {
	switch c.Kind {
	case changeContent, changeMode:
		st, err := w.read(c.Path, maxChangedFile)
		if errors.Is(err, fs.ErrNotExist) {
			return stateForeign, nil
		}
		if err != nil {
			return stateForeign, err
		}
		return c.compare(st), nil
	case changeName:
		return w.nameState(c)
	}
	return stateForeign, nil
}

func (c change) compare(st fileState) changeState {
	switch {
	case c.Kind == changeContent && bytes.Equal(st.Content, c.Old.Content), c.Kind == changeMode && st.Mode == c.Old.Mode:
		return stateOld
	case c.Kind == changeContent && bytes.Equal(st.Content, c.New), c.Kind == changeMode && st.Mode == c.NewMode:
		return stateNew
	}
	return stateForeign
}

func (w *hostWriter) nameState(c change) (changeState, error) {
	var at [2]bool
	for i, name := range []string{c.Path, c.To} {
		st, err := w.read(name, maxMachineConfig)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return stateForeign, err
		}
		if !bytes.Equal(st.Content, c.Old.Content) {
			return stateForeign, nil
		}
		at[i] = true
	}
	switch at {
	case [2]bool{true, false}:
		return stateOld, nil
	case [2]bool{false, true}:
		return stateNew, nil
	}
	return stateForeign, nil
}

// apply makes a change that stands at old.
func (w *hostWriter) apply(c change) error {
	if err := w.makeWritable(c.Path); err != nil {
		return err
	}
	var err error
	switch c.Kind {
	case changeContent:
		st := c.Old
		st.Content = c.New
		err = w.replace(c.Path, st, false)
	case changeMode:
		err = w.setMode(c.Path, c.NewMode)
	case changeName:
		err = w.rename(c.Path, c.To)
	}
	return w.touched(c, err)
}

// unapply undoes a change that stands at new.
func (w *hostWriter) unapply(c change) error {
	if err := w.makeWritable(c.Path); err != nil {
		return err
	}
	var err error
	switch c.Kind {
	case changeContent:
		err = w.replace(c.Path, c.Old, true)
	case changeMode:
		err = w.setMode(c.Path, c.Old.Mode)
	case changeName:
		err = w.rename(c.To, c.Path)
	}
	return w.touched(c, err)
}

func (w *hostWriter) touched(c change, err error) error {
	if err == nil && c.Touch != "" {
		err = w.touchFolder(c.Touch)
	}
	return err
}

// undo brings every file of the journal back to what it was, the last change
// first, and returns the paths of those that something else has changed since:
// they are left alone. It goes on after an error, so that as much as possible is
// as before, but not after one at the commit point: while the first boot is over,
// the origin has to name the target.
func (w *hostWriter) undo(j *journal) (foreign []string, err error) {
	var errs []error
	for _, c := range slices.Backward(j.Changes) {
		state, err := w.state(c)
		if err == nil {
			err = w.cleanTemp(c)
		}
		if err == nil && state == stateNew {
			err = w.unapply(c)
		}
		if err != nil {
			errs = append(errs, err)
			if c.Kind == changeName {
				break
			}
		} else if state == stateForeign {
			foreign = append(foreign, c.Path)
		}
	}
	return foreign, errors.Join(errs...)
}

// cleanTemp removes what a killed run may have left beside a file.
func (w *hostWriter) cleanTemp(c change) error {
	if c.Kind != changeContent {
		return nil
	}
	if err := w.makeWritable(c.Path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return w.removeTemp(c.Path)
}
