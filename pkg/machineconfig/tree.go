package machineconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Bounds of a document. A rendered MachineConfig is at most 1.5 MiB upstream
// (MaxMachineConfigSize); the encapsulated one is a few hundred bytes.
const (
	maxSize  = 2 << 20
	maxDepth = 64
	maxNodes = 1 << 17
)

type kind uint8

const (
	null kind = iota
	boolean
	number
	text
	list
	object
)

func (k kind) String() string {
	switch k {
	case null:
		return "null"
	case boolean:
		return "true or false"
	case number:
		return "a number"
	case text:
		return "a string"
	case list:
		return "a list"
	case object:
		return "an object"
	}
	return "something else"
}

// A node is a value of a JSON or YAML document. Unlike a decode into structs
// it keeps the order and spelling of keys, so that a document which two
// decoders could read in two ways is noticed.
type node struct {
	kind    kind
	bool    bool
	text    string // of a string or a number
	items   []node // of a list, or the values of an object
	keys    []string
	members map[string]int // of an object: index into items
}

// empty reports whether the value says nothing: null, "", false, 0, or a list
// or an object of nothing. A list of empty things is not empty: the daemon
// compares lists by their length too.
func (n *node) empty() bool {
	switch n.kind {
	case null:
		return true
	case boolean:
		return !n.bool
	case number:
		return n.text == "0"
	case text:
		return n.text == ""
	case list:
		return len(n.items) == 0
	case object:
		for i := range n.items {
			if !n.items[i].empty() {
				return false
			}
		}
		return true
	}
	return false
}

func (n *node) add(key string, v node) error {
	if _, dup := n.members[key]; dup {
		return errDuplicate
	}
	if n.members == nil {
		n.members = make(map[string]int)
	}
	n.members[key] = len(n.items)
	n.keys = append(n.keys, key)
	n.items = append(n.items, v)
	return nil
}

var (
	errDuplicate = errors.New("the key appears twice: keep one")
	errDeep      = fmt.Errorf("is nested deeper than %d levels", maxDepth)
	errMany      = fmt.Errorf("the document has more than %d values", maxNodes)
)

func checkBytes(b []byte) error {
	switch {
	case len(b) > maxSize:
		return fmt.Errorf("the document has %d bytes, more than %d", len(b), maxSize)
	case len(bytes.TrimSpace(b)) == 0:
		return errors.New("the document is empty")
	case !utf8.Valid(b):
		return errors.New("the document is not UTF-8 text")
	}
	return nil
}

// parseJSON reads one JSON value and nothing behind it.
func parseJSON(b []byte) (node, error) {
	if err := checkBytes(b); err != nil {
		return node{}, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	p := jsonParser{d: d}
	n, err := p.value("", 0)
	if err != nil {
		return node{}, err
	}
	end := d.InputOffset()
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return node{}, fmt.Errorf("there is something behind the JSON document, which ends at byte %d: remove it", end)
	}
	return n, nil
}

type jsonParser struct {
	d     *json.Decoder
	nodes int
}

func (p *jsonParser) value(path string, depth int) (node, error) {
	if depth > maxDepth {
		return node{}, at(path, errDeep)
	}
	if p.nodes++; p.nodes > maxNodes {
		return node{}, errMany
	}
	tok, err := p.d.Token()
	if err != nil {
		return node{}, at(path, p.syntaxError(err))
	}
	switch t := tok.(type) {
	case nil:
		return node{}, nil
	case bool:
		return node{kind: boolean, bool: t}, nil
	case json.Number:
		return node{kind: number, text: t.String()}, nil
	case string:
		return node{kind: text, text: t}, nil
	case json.Delim:
		if t == '[' {
			return p.list(path, depth)
		}
		return p.object(path, depth)
	}
	return node{}, at(path, errors.New("is not a JSON value"))
}

func (p *jsonParser) list(path string, depth int) (node, error) {
	n := node{kind: list}
	for p.d.More() {
		v, err := p.value(index(path, len(n.items)), depth+1)
		if err != nil {
			return node{}, err
		}
		n.items = append(n.items, v)
	}
	if _, err := p.d.Token(); err != nil {
		return node{}, at(path, p.syntaxError(err))
	}
	return n, nil
}

func (p *jsonParser) object(path string, depth int) (node, error) {
	n := node{kind: object}
	for p.d.More() {
		tok, err := p.d.Token()
		if err != nil {
			return node{}, at(path, p.syntaxError(err))
		}
		key, ok := tok.(string)
		if !ok {
			return node{}, at(path, errors.New("a key is not a string"))
		}
		v, err := p.value(join(path, key), depth+1)
		if err != nil {
			return node{}, err
		}
		if err := n.add(key, v); err != nil {
			return node{}, at(join(path, key), err)
		}
	}
	if _, err := p.d.Token(); err != nil {
		return node{}, at(path, p.syntaxError(err))
	}
	return n, nil
}

// syntaxError says where the decoder stood: behind the last token it could read.
func (p *jsonParser) syntaxError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the JSON ends too early: the file is cut off")
	}
	return fmt.Errorf("the JSON is malformed behind byte %d: %w", p.d.InputOffset(), err)
}

// parseYAML reads one YAML document without anchors, aliases, merge keys and
// tags of its own: nothing in it can stand for more than its own bytes.
func parseYAML(b []byte) (node, error) {
	if err := checkBytes(b); err != nil {
		return node{}, err
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	var doc, rest yaml.Node
	if err := d.Decode(&doc); err != nil {
		return node{}, fmt.Errorf("the YAML is malformed: %w", err)
	}
	if err := d.Decode(&rest); !errors.Is(err, io.EOF) {
		return node{}, errors.New("there is more than one YAML document: keep the MachineConfig alone")
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return node{}, errors.New("the document is empty")
	}
	var c yamlConverter
	return c.value("", doc.Content[0], 0)
}

type yamlConverter struct{ nodes int }

func (c *yamlConverter) value(path string, y *yaml.Node, depth int) (node, error) {
	if depth > maxDepth {
		return node{}, at(path, errDeep)
	}
	if c.nodes++; c.nodes > maxNodes {
		return node{}, errMany
	}
	if y.Anchor != "" || y.Kind == yaml.AliasNode {
		return node{}, at(path, errors.New("YAML anchors and aliases are not read: write the value out"))
	}
	switch y.Kind {
	case yaml.ScalarNode:
		return yamlScalar(path, y)
	case yaml.SequenceNode:
		n := node{kind: list}
		for i, item := range y.Content {
			v, err := c.value(index(path, i), item, depth+1)
			if err != nil {
				return node{}, err
			}
			n.items = append(n.items, v)
		}
		return n, nil
	case yaml.MappingNode:
		return c.mapping(path, y, depth)
	case yaml.DocumentNode, yaml.AliasNode:
	}
	return node{}, at(path, errors.New("is not a YAML value"))
}

func (c *yamlConverter) mapping(path string, y *yaml.Node, depth int) (node, error) {
	n := node{kind: object}
	for i := 0; i+1 < len(y.Content); i += 2 {
		k := y.Content[i]
		if k.Kind != yaml.ScalarNode || k.Anchor != "" || k.ShortTag() == "!!merge" {
			return node{}, at(path, errors.New("a key is not plain text"))
		}
		v, err := c.value(join(path, k.Value), y.Content[i+1], depth+1)
		if err != nil {
			return node{}, err
		}
		if err := n.add(k.Value, v); err != nil {
			return node{}, at(join(path, k.Value), err)
		}
	}
	return n, nil
}

func yamlScalar(path string, y *yaml.Node) (node, error) {
	switch y.ShortTag() {
	case "!!null":
		return node{}, nil
	case "!!bool":
		var v bool
		if err := y.Decode(&v); err != nil {
			return node{}, at(path, errors.New("is not true or false"))
		}
		return node{kind: boolean, bool: v}, nil
	case "!!int", "!!float":
		return node{kind: number, text: y.Value}, nil
	case "!!str", "!!timestamp":
		return node{kind: text, text: y.Value}, nil
	}
	return node{}, at(path, errors.New("has a YAML tag that is not read: write plain text"))
}
