// Package record holds the account of one firstboot run: what was decided, by
// which proof and at what cost. It lies on the host as
// /var/lib/oneboot/firstboot.json.
package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// Path is where the record lies below the root.
const Path = "/var/lib/oneboot/firstboot.json"

// APIVersion and Kind head every record. A reader refuses others.
const (
	APIVersion = "oneboot.dev/v1"
	Kind       = "FirstbootRecord"
)

// MaxSize bounds a record file, in bytes.
const MaxSize = 1 << 20

// ErrNotRecord is wrapped by errors about files that are no record or one of
// another version.
var ErrNotRecord = errors.New("not a oneboot record")

// A Record is one run.
type Record struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Version is the program that wrote it.
	Version string `json:"version"`
	// Time is when the run ended, in UTC.
	Time time.Time `json:"time"`
	// BootID is /proc/sys/kernel/random/boot_id of the boot that decided; empty
	// where it could not be read. A skip decided in one boot and a join in
	// another are not a skipped pivot.
	BootID string `json:"bootID"`
	// Mode is what the run was allowed to do: "report" changes nothing,
	// "assert", "complete" and "auto" act upon a skip.
	Mode string `json:"mode"`
	// FastReboot is "kexec" where the run was asked for a reboot that leaves out the
	// firmware; the verdict says whether that is possible.
	FastReboot string `json:"fastReboot,omitempty"`
	// Seconds is how long the run took.
	Seconds float64 `json:"seconds"`
	// Registry is what the run asked of registries.
	Registry Registry `json:"registry"`
	// Verdict is what was decided.
	Verdict verdict.Verdict `json:"verdict"`
	// Act is what was done upon it; absent in records of before there were
	// acts.
	Act *Act `json:"act,omitempty"`
}

// An ActState says what became of an act.
type ActState string

const (
	// ActNone: nothing was to be done, or nothing may be; Reason says why.
	ActNone ActState = "none"
	// ActStarted: the run was cut off, or could not write how it ended. The
	// next one undoes the act, or takes it for done where it was past its last
	// change.
	ActStarted ActState = "started"
	// ActDone: the host is as the mode wants it.
	ActDone ActState = "done"
	// ActUndone: oneboot revert has undone it, or a later run that found a
	// difference.
	ActUndone ActState = "undone"
	// ActFailed: Reason says why; the host is as before, unless Reason says
	// that this failed too.
	ActFailed ActState = "failed"
)

// An Act is what a run changed on the host beside the record.
type Act struct {
	State ActState `json:"state"`
	// Mode is what was done: "assert" or "complete", whatever of them "auto"
	// chose; empty where nothing was to be.
	Mode string `json:"mode,omitempty"`
	// Reason says why the state is none, failed or undone.
	Reason string `json:"reason,omitempty"`
	// Changed are the files that were changed, paths below the root.
	Changed []string `json:"changed"`
	// Forced says that it was undone although the node had joined.
	Forced bool `json:"forced,omitempty"`
	// MCO predicts the machine-config-daemon after an assert, as the verdict's
	// own does before it.
	MCO *verdict.MCO `json:"mco,omitempty"`
}

// Registry is traffic with registries: HTTP requests of every kind, and bytes
// of bodies read.
type Registry struct {
	Requests int   `json:"requests"`
	Bytes    int64 `json:"bytes"`
}

// Marshal writes the record as indented JSON with a final newline.
func (r Record) Marshal() ([]byte, error) {
	r.APIVersion, r.Kind = APIVersion, Kind
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing record: %w", err)
	}
	return append(b, '\n'), nil
}

// Parse reads a record. Unknown fields are ignored, so that an older program
// reads a newer record of the same version; anything else unexpected is an
// error.
func Parse(b []byte) (*Record, error) {
	if len(b) > MaxSize {
		return nil, fmt.Errorf("reading record: %d bytes, over the limit of %d", len(b), MaxSize)
	}
	var r Record
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(&r); err != nil {
		return nil, fmt.Errorf("reading record: %w", err)
	}
	if dec.More() {
		return nil, errors.New("reading record: something follows the document")
	}
	if r.APIVersion != APIVersion || r.Kind != Kind {
		return nil, fmt.Errorf("reading record: %w: apiVersion %q, kind %q", ErrNotRecord, r.APIVersion, r.Kind)
	}
	return &r, nil
}

// Proves reports whether the record proves, offline, that the deployment with
// this checksum holds the content of osImageURL: a skip that is not
// hypothetical, for exactly this pull spec, pinned by digest, decided on
// exactly this deployment. The booted checksum is the caller's own reading of
// the host now, which is what makes an old record safe to ask. Once somebody has
// undone the act it proves nothing: he wants the pivot.
func (r *Record) Proves(osImageURL string, booted verdict.Checksum) bool {
	v := r.Verdict
	return v.Action == verdict.Skip && v.Conclusive && !v.Hypothetical && !(r.Act != nil && r.Act.State == ActUndone) && v.Reason == verdict.ReasonProven && v.Proof != "" &&
		osImageURL != "" && v.Target.OSImageURL == osImageURL &&
		booted != "" && v.Booted.Checksum == booted
}
