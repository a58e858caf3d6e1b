package osimage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// readKeys are the keys of manifests, indexes and configs that decide what an
// image is, as the specifications spell them.
func readKeys() []string {
	return []string{"architecture", "annotations", "artifactType", "config", "diff_ids", "digest", "Labels", "layers",
		"manifests", "mediaType", "os", "platform", "rootfs", "schemaVersion", "size", "variant"}
}

const maxJSONDepth = 64

// unambiguous refuses a document that two decoders could read in two ways: Go's
// takes keys in any letter case and the last of equal ones, while the host's
// importer takes them as spelled. It refuses keys of one object that are equal
// but for case, and keys that are not spelled as the specification does. Labels
// and annotations may differ in case, but not repeat.
func unambiguous(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := walkValue(dec, "", 0); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("JSON: something follows the document")
	}
	return nil
}

func walkValue(dec *json.Decoder, key string, depth int) error {
	if depth > maxJSONDepth {
		return fmt.Errorf("JSON: nested deeper than %d", maxJSONDepth)
	}
	token, err := dec.Token()
	if err != nil {
		return fmt.Errorf("JSON: %w", err)
	}
	switch token {
	case json.Delim('{'):
		err = walkObject(dec, strings.EqualFold(key, "labels") || strings.EqualFold(key, "annotations"), depth)
	case json.Delim('['):
		for dec.More() && err == nil {
			err = walkValue(dec, key, depth+1)
		}
	default:
		return nil
	}
	if err != nil {
		return err
	}
	if _, err = dec.Token(); err != nil { // the closing bracket
		return fmt.Errorf("JSON: %w", err)
	}
	return nil
}

// walkObject checks the keys of an object; free ones are a user's own.
func walkObject(dec *json.Decoder, free bool, depth int) error {
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return fmt.Errorf("JSON: %w", err)
		}
		key, ok := token.(string)
		if !ok {
			return errors.New("JSON: a key that is no string")
		}
		name := key
		if !free {
			name = strings.ToLower(key)
			for _, want := range readKeys() {
				if strings.EqualFold(key, want) && key != want {
					return fmt.Errorf("JSON: the key %.80q is spelled %q", key, want)
				}
			}
		}
		if seen[name] {
			return fmt.Errorf("JSON: the key %.80q is there twice", key)
		}
		seen[name] = true
		if err := walkValue(dec, key, depth+1); err != nil {
			return err
		}
	}
	return nil
}
