package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// annotationPrefix begins every annotation that oneboot adds to the node.
const annotationPrefix = "oneboot.dev/"

// maxAnnotations bounds what oneboot adds to the node's annotations, in bytes of
// keys and values.
const maxAnnotations = 1 << 10

// An annotation is a key and its value.
type annotation struct{ key, value string }

// answerAnnotations are the answer in the node's annotations, which the
// machine-config-daemon applies when the node joins (loadNodeAnnotations in its
// pkg/daemon/node.go). The same answer gives the same bytes.
func answerAnnotations(v verdict.Verdict, mode Mode, target verdict.Digest) []annotation {
	return []annotation{
		{annotationPrefix + "action", "skip"},
		{annotationPrefix + "proof", string(v.Proof)},
		{annotationPrefix + "mode", string(mode)},
		{annotationPrefix + "deployment", string(v.Booted.Checksum)},
		{annotationPrefix + "target", string(target)},
	}
}

// annotate adds annotations to the JSON object of the node's first annotations.
// Only a flat object of strings in which every key stands once is touched; the
// bytes of all other keys stay.
func annotate(file []byte, add []annotation) ([]byte, error) {
	members, err := flatObject(file)
	if err != nil {
		return nil, err
	}
	size := 0
	for _, m := range members {
		if strings.HasPrefix(m.key, annotationPrefix) && !hasKey(add, m.key) {
			size += len(m.key) + len(m.value)
		}
	}
	var more bytes.Buffer
	text := bytes.Clone(file)
	// From the end, so that the places of the others stay right.
	for i := len(members) - 1; i >= 0; i-- {
		for _, a := range add {
			if m := members[i]; m.key == a.key && m.value != a.value {
				text = splice(text, m.start, m.end, quote(a.value))
			}
		}
	}
	for _, a := range add {
		size += len(a.key) + len(a.value)
		if !hasMember(members, a.key) {
			more.WriteString("," + quote(a.key) + ":" + quote(a.value))
		}
	}
	if size > maxAnnotations {
		return nil, fmt.Errorf("%d bytes of annotations under %s, over the limit of %d", size, annotationPrefix, maxAnnotations)
	}
	if more.Len() == 0 {
		return text, nil
	}
	// Behind the last value, or right after the brace of an empty object.
	at := bytes.LastIndexByte(text, '}')
	if len(members) == 0 {
		return splice(text, at, at, strings.TrimPrefix(more.String(), ",")), nil
	}
	at = len(bytes.TrimRight(text[:at], " \t\r\n"))
	return splice(text, at, at, more.String()), nil
}

func splice(text []byte, start, end int, with string) []byte {
	return append(append(bytes.Clone(text[:start]), with...), text[end:]...)
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""` // never: every string can be written
	}
	return string(b)
}

func hasKey(list []annotation, key string) bool {
	for _, a := range list {
		if a.key == key {
			return true
		}
	}
	return false
}

func hasMember(list []member, key string) bool {
	for _, m := range list {
		if m.key == key {
			return true
		}
	}
	return false
}

// A member is a key of an object with its value, and where the value stands.
type member struct {
	key, value string
	start, end int
}

// flatObject reads an object of strings.
func flatObject(text []byte) ([]member, error) {
	if !utf8.Valid(text) || !json.Valid(text) {
		return nil, errors.New("it is not a JSON document")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("it is not a JSON object")
	}
	var members []member
	for dec.More() {
		t, err := dec.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return nil, errors.New("it is not a JSON object")
		}
		from := int(dec.InputOffset())
		t, err = dec.Token()
		value, ok := t.(string)
		if err != nil || !ok {
			return nil, fmt.Errorf("the value of %q is not a string", key)
		}
		if hasMember(members, key) {
			return nil, fmt.Errorf("the key %q stands there twice", key)
		}
		end := int(dec.InputOffset())
		start := from + bytes.IndexByte(text[from:end], '"')
		members = append(members, member{key: key, value: value, start: start, end: end})
	}
	return members, nil
}
