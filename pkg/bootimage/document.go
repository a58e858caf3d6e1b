package bootimage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Bounds of what is read. A stream of RHCOS with all regions and architectures has
// some 50 KiB; a ConfigMap has 1 MiB at most, without the escapes of JSON. YAML of
// the worst kind takes 170 times its size in memory.
const (
	// MaxDocument is the most bytes that a stream or ConfigMap may have.
	MaxDocument = 2 << 20
	maxDepth    = 32
	maxValues   = 1 << 18
	maxStreams  = 64
	maxName     = 80
)

// checkJSON accepts one JSON object with nothing behind it and no key twice in
// one object, in whatever letter case: two decoders could read that in two ways.
func checkJSON(b []byte) error {
	switch trimmed := bytes.TrimSpace(b); {
	case len(b) > MaxDocument:
		return fmt.Errorf("it has %d bytes, more than %d", len(b), MaxDocument)
	case len(trimmed) == 0:
		return errors.New("it is empty")
	case trimmed[0] != '{':
		return errors.New("it is not a JSON object")
	case !utf8.Valid(b):
		return errors.New("it is not UTF-8 text")
	}
	w := walker{dec: json.NewDecoder(bytes.NewReader(b))}
	if err := w.value(0); err != nil {
		return err
	}
	if _, err := w.dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON document")
	}
	return nil
}

// A walker goes through a JSON document once and counts.
type walker struct {
	dec    *json.Decoder
	values int
}

func (w *walker) token() (json.Token, error) {
	if w.values++; w.values > maxValues {
		return nil, fmt.Errorf("it has more than %d values", maxValues)
	}
	t, err := w.dec.Token()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errors.New("it ends too early: it was cut off")
	}
	if err != nil {
		return nil, fmt.Errorf("malformed JSON: %w", err)
	}
	return t, nil
}

func (w *walker) value(depth int) error {
	t, err := w.token()
	if err != nil {
		return err
	}
	open, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	if depth == maxDepth {
		return fmt.Errorf("it is nested deeper than %d levels", maxDepth)
	}
	seen := map[string]bool{}
	for w.dec.More() {
		if open == '{' {
			t, err := w.token()
			if err != nil {
				return err
			}
			key, _ := t.(string)
			key = strings.ToLower(key)
			if seen[key] {
				return fmt.Errorf("the key %.80q is twice in one object", key)
			}
			seen[key] = true
		}
		if err := w.value(depth + 1); err != nil {
			return err
		}
	}
	_, err = w.token()
	return err
}
