package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// addJSON adds objects that follow each other, and those of Lists.
func (f *Fleet) addJSON(file string, b []byte) {
	d := json.NewDecoder(bytes.NewReader(b))
	for {
		var whole json.RawMessage
		err := d.Decode(&whole)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			f.problem(file, 0, err)
			return
		}
		f.addJSONObject(file, whole, "")
	}
}

// addJSONObject adds one object; of is the kind of the List that it is in.
func (f *Fleet) addJSONObject(file string, b []byte, of string) {
	members, err := membersOf(b)
	if err != nil {
		f.problem(file, 0, err)
		return
	}
	var kind string
	if json.Unmarshal(members["kind"], &kind) != nil {
		kind = ""
	}
	switch isList := strings.HasSuffix(kind, "List"); {
	case isList && of == "":
		var items []json.RawMessage
		if raw, ok := members["items"]; ok {
			if err := json.Unmarshal(raw, &items); err != nil {
				f.problem(file, 0, errors.New("items is not a list"))
			}
		}
		for _, item := range items {
			f.addJSONObject(file, item, kind)
		}
		return
	case kind != "" && !isList && !matters(kind):
		f.passed++
		return
	case len(b) > maxDocument:
		f.problem(file, 0, fmt.Errorf("an object of %d bytes, over the limit of %d", len(b), maxDocument))
		return
	}
	w := walker{d: json.NewDecoder(bytes.NewReader(b))}
	if err := w.value(0); err != nil {
		f.problem(file, 0, err)
		return
	}
	var body any
	if err := json.Unmarshal(b, &body); err != nil {
		f.problem(file, 0, err)
		return
	}
	f.addObject(file, 0, body, of)
}

// membersOf are the members of an object, by their very names.
func membersOf(b []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil {
		return nil, err
	} else if t != json.Delim('{') {
		return nil, errors.New("the document is not an object")
	}
	all := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, _ := t.(string)
		if _, ok := all[key]; ok {
			return nil, fmt.Errorf("the key %.80q appears twice", key)
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		all[key] = v
	}
	return all, nil
}

// A walker goes through an object once: no key twice, and the bounds of YAML.
type walker struct {
	d      *json.Decoder
	values int
}

func (w *walker) value(depth int) error {
	t, err := w.d.Token()
	if err != nil {
		return err
	}
	if w.values++; w.values > maxValues {
		return fmt.Errorf("more than %d values", maxValues)
	}
	open, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	if depth > maxDepth {
		return fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	seen := map[string]bool{}
	for w.d.More() {
		if open == '{' {
			t, err := w.d.Token()
			if err != nil {
				return err
			}
			key, _ := t.(string)
			if seen[key] {
				return fmt.Errorf("the key %.80q appears twice", key)
			}
			seen[key] = true
		}
		if err := w.value(depth + 1); err != nil {
			return err
		}
	}
	_, err = w.d.Token()
	return err
}
