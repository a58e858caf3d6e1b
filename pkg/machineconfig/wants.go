package machineconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// A Word is a string of a document and the line that it is on, from 1.
type Word struct {
	Text string
	Line int
}

// Wants are what a MachineConfig of an admin wants of the OS.
type Wants struct {
	// Name is metadata.name.
	Name Word
	// Role is the label of the pool that it is for; empty where there is none.
	Role Word
	// KernelType is spec.kernelType; empty where there is none.
	KernelType Word
	Extensions []Word
}

// labelRole is MachineConfigRoleLabelKey in pkg/controller/common/constants.go of the
// machine-config-operator.
const labelRole = "machineconfiguration.openshift.io/role"

// maxDocuments bounds the documents of a file, those in lists included.
const maxDocuments = 20_000

// ReadWants reads the MachineConfigs of a YAML or JSON file: one, several in
// documents of their own, or in a List. Other kinds are passed over; others says
// how many. An error names the line.
func ReadWants(b []byte) (wants []Wants, others int, err error) {
	if err := checkBytes(b); err != nil {
		return nil, 0, err
	}
	r := &wantsReader{}
	d := yaml.NewDecoder(bytes.NewReader(b))
	for {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return r.wants, r.others, nil
		}
		if err != nil {
			return nil, 0, err
		}
		if doc.Kind == yaml.DocumentNode && len(doc.Content) == 1 {
			if err := r.object(doc.Content[0], ""); err != nil {
				return nil, 0, err
			}
		}
	}
}

type wantsReader struct {
	wants  []Wants
	others int
}

// object reads an object; list is the kind of the List that it is in.
func (r *wantsReader) object(n *yaml.Node, list string) error {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil // an empty document
	}
	kind, err := scalar(n, "kind")
	if err != nil {
		return err
	}
	if len(r.wants)+r.others >= maxDocuments {
		return fmt.Errorf("line %d: more than %d documents", n.Line, maxDocuments)
	}
	if kind.Text == "" && list == "MachineConfigList" {
		kind.Text = "MachineConfig"
	}
	switch kind.Text {
	case "MachineConfig":
		w, err := readSpec(n)
		if err != nil {
			return err
		}
		r.wants = append(r.wants, w)
		return nil
	case "List", "MachineConfigList":
		if list != "" {
			return fmt.Errorf("line %d: a List in a List", n.Line)
		}
		items, err := member(n, "items")
		if err != nil || items == nil {
			return err
		}
		if items.Kind != yaml.SequenceNode {
			return fmt.Errorf("line %d: items is not a list", items.Line)
		}
		for _, item := range items.Content {
			if err := r.object(item, kind.Text); err != nil {
				return err
			}
		}
		return nil
	}
	r.others++
	return nil
}

func readSpec(n *yaml.Node) (w Wants, err error) {
	meta, err := member(n, "metadata")
	if err != nil {
		return w, err
	}
	if meta != nil {
		if w.Name, err = scalar(meta, "name"); err != nil {
			return w, err
		}
		labels, err := member(meta, "labels")
		if err != nil {
			return w, err
		}
		if labels != nil && labels.Tag != "!!null" {
			if w.Role, err = scalar(labels, labelRole); err != nil {
				return w, err
			}
		}
	}
	spec, err := member(n, "spec")
	if err != nil || spec == nil {
		return w, err
	}
	if w.KernelType, err = scalar(spec, "kernelType"); err != nil {
		return w, err
	}
	list, err := member(spec, "extensions")
	if err != nil || list == nil || list.Tag == "!!null" {
		return w, err
	}
	if list.Kind != yaml.SequenceNode {
		return w, fmt.Errorf("line %d: spec.extensions is not a list", list.Line)
	}
	for i, e := range list.Content {
		if e.Kind != yaml.ScalarNode || e.Tag != "!!str" {
			return w, fmt.Errorf("line %d: spec.extensions[%d] is not a string", e.Line, i)
		}
		w.Extensions = append(w.Extensions, Word{e.Value, e.Line})
	}
	return w, nil
}

// member is the value of a key; nil where there is none. A key that stands twice is
// an error: the API server and others read different ones. So is a reference to an
// anchor, which GitOps tools and the API server treat differently too.
func member(n *yaml.Node, key string) (*yaml.Node, error) {
	if n.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: not an object with a %s", n.Line, key)
	}
	var found *yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch k := n.Content[i]; {
		case k.Tag == "!!merge":
			return nil, fmt.Errorf("line %d: merged keys (<<) are not read: write them out", k.Line)
		case k.Value != key:
		case found != nil:
			return nil, fmt.Errorf("line %d: the key %s appears twice: keep one", k.Line, key)
		default:
			found = n.Content[i+1]
		}
	}
	if found != nil && found.Kind == yaml.AliasNode {
		return nil, fmt.Errorf("line %d: %s is a reference to an anchor: write the value out", found.Line, key)
	}
	return found, nil
}

// scalar is the string of a key; the zero Word where there is none.
func scalar(n *yaml.Node, key string) (Word, error) {
	v, err := member(n, key)
	if err != nil || v == nil || v.Tag == "!!null" {
		return Word{}, err
	}
	if v.Kind != yaml.ScalarNode || v.Tag != "!!str" {
		return Word{}, fmt.Errorf("line %d: %s is not a string", v.Line, key)
	}
	return Word{v.Value, v.Line}, nil
}
