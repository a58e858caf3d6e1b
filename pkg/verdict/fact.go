// Package verdict decides whether a booted CoreOS node already runs its target
// OS. It is pure: facts go in, a [Verdict] comes out. It has no I/O, no clock
// and no logger, and imports the standard library only.
//
// The one law: a skip is proven, never assumed. The zero value of every type
// in this package means proceed.
package verdict

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
