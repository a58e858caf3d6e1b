// Package verdict decides whether a booted CoreOS node already runs its target
// OS. It is pure: facts go in, a [Verdict] comes out. It has no I/O, no clock
// and no logger, and imports the standard library only.
//
// The one law: a skip is proven, never assumed. The zero value of every type
// in this package means proceed.
package verdict

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// A Fact is a value that a reader may or may not have learned. The zero Fact
// was never gathered: [Decide] may ask for it with a [Need]. A fact made by
// [Unknown] was asked for and could not be learned; asking again is useless.
type Fact[T any] struct {
	value T
	state factState
	why   string
}

type factState uint8

const (
	notGathered factState = iota
	unknown
	known
)

// Known returns a fact with a value.
func Known[T any](v T) Fact[T] { return Fact[T]{value: v, state: known} }

// Unknown returns a fact that could not be learned, and why, in words for a
// person: "reading /etc/machine-id: permission denied".
func Unknown[T any](why string) Fact[T] { return Fact[T]{state: unknown, why: why} }

// Get returns the value and whether it is known.
func (f Fact[T]) Get() (T, bool) { return f.value, f.state == known }

// IsKnown reports whether the fact has a value.
func (f Fact[T]) IsKnown() bool { return f.state == known }

// Gathered reports whether a reader has tried to learn the fact.
func (f Fact[T]) Gathered() bool { return f.state != notGathered }

// Why says why the fact is unknown; it is empty for a known one.
func (f Fact[T]) Why() string {
	switch f.state {
	case known:
		return ""
	case notGathered:
		return "not read"
	default:
		return f.why
	}
}

// factJSON is a Fact in a document: null for one not gathered.
type factJSON[T any] struct {
	Value *T      `json:"value,omitempty"`
	Why   *string `json:"unknown,omitempty"`
}

// MarshalJSON writes {"value": ...}, {"unknown": "why"} or null.
func (f Fact[T]) MarshalJSON() ([]byte, error) {
	switch f.state {
	case known:
		return json.Marshal(factJSON[T]{Value: &f.value})
	case unknown:
		return json.Marshal(factJSON[T]{Why: &f.why})
	default:
		return []byte("null"), nil
	}
}

// UnmarshalJSON reads what MarshalJSON writes.
func (f *Fact[T]) UnmarshalJSON(b []byte) error {
	*f = Fact[T]{}
	if string(b) == "null" {
		return nil
	}
	// A value may be null itself, such as an empty list: its key tells.
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(b, &keys); err != nil {
		return fmt.Errorf("reading fact: %w", err)
	}
	value, isKnown := keys["value"]
	why, isUnknown := keys["unknown"]
	switch {
	case len(keys) != 1 || isKnown == isUnknown:
		return fmt.Errorf("reading fact: want one of value and unknown")
	case isKnown:
		var v T
		// A field that this program does not know could matter.
		dec := json.NewDecoder(bytes.NewReader(value))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&v); err != nil {
			return fmt.Errorf("reading fact: %w", err)
		}
		*f = Known(v)
	default:
		var s string
		if err := json.Unmarshal(why, &s); err != nil {
			return fmt.Errorf("reading fact: %w", err)
		}
		*f = Unknown[T](s)
	}
	return nil
}
