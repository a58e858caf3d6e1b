// Package fleet reads objects of a cluster or of a GitOps repository into what
// package forecast compares: sources of new nodes, and what their pools want. It
// reads documents, not files: the caller says where each is from.
package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of a document. etcd keeps no object beyond 1.5 MiB.
const (
	// MaxFile bounds a file, in bytes: a List of all objects of a large cluster.
	MaxFile      = 64 << 20
	maxDocument  = 4 << 20
	maxDepth     = 64
	maxValues    = 100_000
	maxDocuments = 100_000
	// maxParts bounds the documents of a file and the items of a List, whatever they
	// are; maxProblems those that are told.
	maxParts    = 500_000
	maxProblems = 10_000
)

// A Problem is a document that could not be read.
type Problem struct {
	File string `json:"file"`
	// Line counts from 1; 0 for the file as a whole.
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// A document is one object and where it is from.
type document struct {
	file string
	line int
	body map[string]any
}

var kindLine = regexp.MustCompile(`(?m)^["']?kind["']?:[ \t]*["']?([A-Za-z]+)["']?[ \t\r]*(?:#.*)?$`)

// Add reads a file of YAML or JSON: one object, several documents, Lists. Kinds that
// do not matter are passed over; what cannot be read is a Problem, and the rest is
// read.
func (f *Fleet) Add(file string, b []byte) {
	if len(b) > MaxFile {
		f.problem(file, 0, fmt.Errorf("it has %d bytes, over the limit of %d", len(b), MaxFile))
		return
	}
	trimmed := bytes.TrimSpace(b)
	if len(trimmed) > 0 && trimmed[0] == '{' {
		f.addJSON(file, trimmed)
		return
	}
	line := 1
	for _, d := range splitDocuments(b) {
		f.addYAML(file, line, d, "")
		line += bytes.Count(d, []byte("\n"))
	}
}

// AddObject adds one object as it was decoded; from says where it is from.
func (f *Fleet) AddObject(from string, body map[string]any) { f.addObject(from, 0, body, "") }

// splitDocuments cuts a YAML stream before each line that begins a document and
// behind each that ends one.
func splitDocuments(b []byte) [][]byte {
	var all [][]byte
	start := 0
	for at := 0; at < len(b) && len(all) < maxParts; {
		end := bytes.IndexByte(b[at:], '\n')
		next := len(b)
		if end >= 0 {
			next = at + end + 1
		}
		if l := bytes.TrimRight(b[at:next], " \t\r\n"); at > start && (bytes.Equal(l, []byte("---")) || bytes.HasPrefix(l, []byte("--- "))) {
			all = append(all, b[start:at])
			start = at
		} else if bytes.Equal(l, []byte("...")) {
			all = append(all, b[start:next])
			start = next
		}
		at = next
	}
	return append(all, b[start:])
}

// addYAML adds a document, or an item of a List of the kind of.
func (f *Fleet) addYAML(file string, line int, b []byte, of string) {
	switch string(bytes.TrimSpace(b)) {
	case "", "---", "...":
		return
	}
	kind := ""
	switch all := kindLine.FindAllSubmatch(b, 2); {
	case len(all) != 1:
		// One without a kind, or with two: that is seen where it is decoded.
	case strings.HasSuffix(string(all[0][1]), "List"):
		kind = string(all[0][1])
	case !matters(string(all[0][1])):
		f.passed++
		return
	}
	if kind != "" && of == "" {
		if items, ok := cutList(b); ok {
			for _, i := range items {
				f.addYAML(file, line+i.line, i.text(), kind)
			}
			return
		}
	}
	body, err := decodeYAML(b)
	if err != nil {
		f.problem(file, line, err)
		return
	}
	f.addObject(file, line, body, of)
}

// decodeYAML decodes one document, of bounded size and without what makes a small
// one large.
func decodeYAML(b []byte) (any, error) {
	if len(b) > maxDocument {
		return nil, fmt.Errorf("the document has %d bytes, over the limit of %d", len(b), maxDocument)
	}
	var n, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&n); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the document")
	}
	values := 0
	if err := checkNode(&n, 0, &values); err != nil {
		return nil, err
	}
	var body any
	if err := n.Decode(&body); err != nil {
		return nil, err
	}
	return body, nil
}

func checkNode(n *yaml.Node, depth int, values *int) error {
	*values++
	switch {
	case n.Kind == yaml.AliasNode:
		return fmt.Errorf("line %d: a reference to an anchor: write the value out", n.Line)
	case depth > maxDepth:
		return fmt.Errorf("line %d: nested deeper than %d levels", n.Line, maxDepth)
	case *values > maxValues:
		return fmt.Errorf("line %d: more than %d values", n.Line, maxValues)
	}
	if n.Kind == yaml.MappingNode {
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			switch {
			case k.Tag == "!!merge":
				return fmt.Errorf("line %d: merged keys (<<) are not read: write them out", k.Line)
			case k.Kind != yaml.ScalarNode:
				return fmt.Errorf("line %d: a key is not a string", k.Line)
			case seen[k.Value]:
				return fmt.Errorf("line %d: the key %.80q appears twice", k.Line, k.Value)
			}
			// As the API server has it, whose objects have no other keys.
			seen[k.Value], k.Tag = true, "!!str"
		}
	}
	for _, c := range n.Content {
		if err := checkNode(c, depth+1, values); err != nil {
			return err
		}
	}
	return nil
}

// addObject keeps an object, or those of a List; of is the kind of the List that it
// is in.
func (f *Fleet) addObject(file string, line int, body any, of string) {
	object, ok := body.(map[string]any)
	if !ok {
		if body != nil {
			f.problem(file, line, errors.New("the document is not an object"))
		}
		return
	}
	kind := text(object, "kind")
	if kind == "" && of != "" {
		// The API server leaves it out in its own Lists.
		kind = strings.TrimSuffix(of, "List")
		object["kind"] = kind
	}
	if strings.HasSuffix(kind, "List") {
		items, ok := object["items"].([]any)
		switch {
		case of != "":
			f.problem(file, line, errors.New("a List in a List"))
			return
		case !ok && object["items"] != nil:
			f.problem(file, line, errors.New("items is not a list"))
		}
		for _, item := range items {
			f.addObject(file, line, item, kind)
		}
		return
	}
	if !matters(kind) {
		f.passed++
		return
	}
	if len(f.documents) >= maxDocuments {
		f.problem(file, line, fmt.Errorf("more than %d objects", maxDocuments))
		return
	}
	f.documents = append(f.documents, document{file, line, object})
}

func (f *Fleet) problem(file string, line int, err error) {
	switch n := len(f.problems); {
	case n < maxProblems:
		f.problems = append(f.problems, Problem{File: file, Line: line, Message: err.Error()})
	case n == maxProblems:
		f.problems = append(f.problems, Problem{File: file, Message: "more problems follow, which are not told"})
	}
}

// at walks to a value; nil where it is not there.
func at(body any, path ...string) any {
	for _, key := range path {
		object, ok := body.(map[string]any)
		if !ok {
			return nil
		}
		body = object[key]
	}
	return body
}

// text is a string in an object; empty where there is none.
func text(body any, path ...string) string {
	s, _ := at(body, path...).(string)
	return s
}

// texts is a list of strings.
func texts(body any, path ...string) []string {
	list, _ := at(body, path...).([]any)
	var all []string
	for _, v := range list {
		if s, ok := v.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

// yes is a boolean.
func yes(body any, path ...string) bool {
	b, _ := at(body, path...).(bool)
	return b
}
