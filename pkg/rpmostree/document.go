package rpmostree

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"
	"strconv"
	"unicode/utf8"
)

// Bounds of a status. A node keeps two or three deployments, each with a
// manifest and an image config of some 20 KiB.
const (
	maxSize        = 16 << 20
	maxDepth       = 64
	maxTokens      = 1 << 20
	maxDeployments = 64
	maxList        = 4096
)

// checkDocument reads the whole text once and accepts one JSON object with
// nothing around it, no key twice, and no more of anything than the bounds.
func checkDocument(b []byte) error {
	switch trimmed := bytes.TrimSpace(b); {
	case len(b) > maxSize:
		return fmt.Errorf("it has %d bytes, more than %d", len(b), maxSize)
	case len(trimmed) == 0:
		return errors.New("it is empty: rpm-ostree wrote nothing to its standard output")
	case trimmed[0] != '{':
		return errors.New("it does not start with a JSON object: save the standard output of rpm-ostree status --json alone")
	case !utf8.Valid(b):
		return errors.New("it is not UTF-8 text")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	tokens := 0
	if err := checkValue(d, &tokens, 0); err != nil {
		return err
	}
	end := d.InputOffset()
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("there is something behind the JSON document, which ends at byte %d", end)
	}
	return nil
}

func checkValue(d *json.Decoder, tokens *int, depth int) error {
	tok, err := token(d, tokens)
	if err != nil {
		return err
	}
	delim, ok := tok.(json.Delim)
	if !ok {
		return nil
	}
	if depth == maxDepth {
		return fmt.Errorf("it is nested deeper than %d levels", maxDepth)
	}
	seen := map[string]bool{}
	for d.More() {
		if delim == '{' {
			tok, err := token(d, tokens)
			if err != nil {
				return err
			}
			key, _ := tok.(string)
			if seen[key] {
				return fmt.Errorf("the key %q appears twice in one object, before byte %d", short(key), d.InputOffset())
			}
			seen[key] = true
		}
		if err := checkValue(d, tokens, depth+1); err != nil {
			return err
		}
	}
	_, err = token(d, tokens)
	return err
}

func token(d *json.Decoder, tokens *int) (json.Token, error) {
	if *tokens++; *tokens > maxTokens {
		return nil, fmt.Errorf("it has more than %d values", maxTokens)
	}
	tok, err := d.Token()
	switch {
	case err == nil:
		return tok, nil
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("it ends too early: the output is cut off")
	}
	return nil, fmt.Errorf("the JSON is malformed behind byte %d: %w", d.InputOffset(), err)
}

// short cuts a word of the document to a length fit for a message.
func short(s string) string {
	if len(s) > 80 {
		return s[:80] + "..."
	}
	return s
}

// An object reads the members of one JSON object and keeps the first error.
// Keys match exactly, as they do for rpm-ostree's own clients.
type object struct {
	path    string
	members map[string]json.RawMessage
	err     *error
}

// newObject decodes an object whose errors go to err.
func newObject(path string, raw json.RawMessage, err *error) object {
	o := object{path: path, err: err}
	if *err != nil || isNull(raw) {
		return o
	}
	if e := json.Unmarshal(raw, &o.members); e != nil {
		o.members = nil
		*err = fmt.Errorf("%s: want an object, found %s", path, kindOf(raw))
	}
	return o
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func kindOf(raw json.RawMessage) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}

func (o object) name(key string) string {
	if o.path == "" {
		return key
	}
	return o.path + "." + key
}

func (o object) fail(key, want string) {
	if *o.err == nil {
		*o.err = fmt.Errorf("%s: want %s, found %s", o.name(key), want, kindOf(o.members[key]))
	}
}

// has reports whether a key is there and not null.
func (o object) has(key string) bool { return !isNull(o.members[key]) }

// require makes a missing key an error.
func (o object) require(keys ...string) {
	for _, key := range keys {
		if !o.has(key) && *o.err == nil {
			*o.err = fmt.Errorf("%s: is missing", o.name(key))
		}
	}
}

// text returns a string; a missing or null one is empty.
func (o object) text(key string) string {
	var s string
	if o.has(key) && json.Unmarshal(o.members[key], &s) != nil {
		o.fail(key, "a string")
		return ""
	}
	return s
}

// flag returns a boolean; a missing or null one is false.
func (o object) flag(key string) bool {
	var v bool
	if o.has(key) && json.Unmarshal(o.members[key], &v) != nil {
		o.fail(key, "true or false")
		return false
	}
	return v
}

// number returns a whole number from 0 to limit; a missing or null one is 0.
func (o object) number(key string, limit uint64) uint64 {
	if !o.has(key) {
		return 0
	}
	raw := o.members[key]
	v, err := strconv.ParseUint(string(raw), 10, 64)
	switch {
	case err == nil && v <= limit:
		return v
	case raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9':
		if *o.err == nil {
			*o.err = fmt.Errorf("%s: is %s, want a whole number from 0 to %d", o.name(key), short(string(raw)), limit)
		}
	default:
		o.fail(key, "a number")
	}
	return 0
}

// list returns the elements of a list; a missing or null one has none.
func (o object) list(key string) []json.RawMessage {
	var l []json.RawMessage
	if !o.has(key) {
		return nil
	}
	if json.Unmarshal(o.members[key], &l) != nil {
		o.fail(key, "a list")
		return nil
	}
	if len(l) > maxList && *o.err == nil {
		*o.err = fmt.Errorf("%s: has %d entries, more than %d", o.name(key), len(l), maxList)
		return nil
	}
	return l
}

// texts returns a list of strings.
func (o object) texts(key string) []string {
	var out []string
	for i, raw := range o.list(key) {
		var s string
		if isNull(raw) || json.Unmarshal(raw, &s) != nil {
			if *o.err == nil {
				*o.err = fmt.Errorf("%s[%d]: want a string, found %s", o.name(key), i, kindOf(raw))
			}
			return nil
		}
		out = append(out, s)
	}
	return out
}

// entries names what a list or an object holds, whatever the form of its
// elements: rpm-ostree writes package lists as strings, as tuples, as pairs
// of tuples, and as maps from a source to packages. The first string in an
// element is its name.
func (o object) entries(key string) []string {
	if !o.has(key) {
		return nil
	}
	raw := o.members[key]
	if raw[0] == '{' {
		m := newObject(o.name(key), raw, o.err).members
		var out []string
		for k := range m {
			out = append(out, short(k))
		}
		sort.Strings(out)
		return out
	}
	var out []string
	for _, e := range o.list(key) {
		out = append(out, short(firstText(e)))
	}
	return out
}

// firstText returns the first string of nested lists, or "?".
func firstText(raw json.RawMessage) string {
	for range maxDepth {
		var s string
		if json.Unmarshal(raw, &s) == nil && !isNull(raw) {
			return s
		}
		var l []json.RawMessage
		if json.Unmarshal(raw, &l) != nil || len(l) == 0 {
			break
		}
		raw = l[0]
	}
	return "?"
}

// document returns a JSON document that is a member of the object: a string
// that holds it, or the object itself. A missing or null one is nil.
func (o object) document(key string) []byte {
	if !o.has(key) {
		return nil
	}
	switch raw := o.members[key]; raw[0] {
	case '"':
		return []byte(o.text(key))
	case '{':
		return bytes.Clone(raw)
	}
	o.fail(key, "a string or an object")
	return nil
}

// maxTime is the latest time that JSON writers with signed 64-bit numbers can
// write, rpm-ostree's among them.
const maxTime = math.MaxInt64
