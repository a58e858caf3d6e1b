package bootimage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ConfigMapName is the ConfigMap, in the namespace of the
// machine-config-operator, that has a release's streams; hack/build-coreos-manifest.go
// in openshift/installer makes it.
const ConfigMapName = "coreos-bootimages"

// A Source is a document with one stream or more.
type Source struct {
	// Release is the OpenShift release that a ConfigMap says it is of; empty
	// where it says none.
	Release string
	// Streams are sorted by name.
	Streams []*Stream
}

// Parse reads a stream document, or the ConfigMap coreos-bootimages as JSON or
// YAML. Where the ConfigMap has `streams`, its older key `stream`, one of them,
// is not read.
func Parse(b []byte) (*Source, error) {
	if len(b) > MaxDocument {
		return nil, fmt.Errorf("parsing boot images: it has %d bytes, more than %d", len(b), MaxDocument)
	}
	trimmed := bytes.TrimSpace(b)
	if len(trimmed) == 0 {
		return nil, errors.New("parsing boot images: it is empty")
	}
	var cm *configMap
	var err error
	if trimmed[0] == '{' {
		cm, err = jsonConfigMap(b)
	} else {
		cm, err = yamlConfigMap(b)
	}
	if err != nil {
		return nil, err
	}
	if cm == nil {
		s, err := ParseStream(b)
		if err != nil {
			return nil, err
		}
		return &Source{Streams: []*Stream{s}}, nil
	}
	return cm.source()
}

// Stream returns the stream of that name. What is not there is an error that
// lists those that are: another one is never taken in its place.
func (s *Source) Stream(name string) (*Stream, error) {
	for _, st := range s.Streams {
		if st.Name == name {
			return st, nil
		}
	}
	return nil, fmt.Errorf("there is no stream %q here: there is %s", name, s.names())
}

// Only returns the stream where there is just one; else the error lists them.
func (s *Source) Only() (*Stream, error) {
	if len(s.Streams) == 1 {
		return s.Streams[0], nil
	}
	return nil, fmt.Errorf("there are several streams, choose one: %s", s.names())
}

func (s *Source) names() string {
	var names []string
	for _, st := range s.Streams {
		name := st.Name
		if name == "" {
			name = `""`
		}
		names = append(names, fmt.Sprintf("%.80s", name))
	}
	return strings.Join(names, ", ")
}

// A configMap is the part of a ConfigMap that matters.
type configMap struct {
	APIVersion string `json:"apiVersion" yaml:"apiVersion"`
	Kind       string `json:"kind"       yaml:"kind"`
	Metadata   struct {
		Name string `json:"name" yaml:"name"`
	} `json:"metadata" yaml:"metadata"`
	Data map[string]string `json:"data" yaml:"data"`
}

// jsonConfigMap reads a ConfigMap; nil where the document is none.
func jsonConfigMap(b []byte) (*configMap, error) {
	if err := checkJSON(b); err != nil {
		return nil, fmt.Errorf("parsing boot images: %w", err)
	}
	var kind struct {
		Kind string `json:"kind"`
	}
	if json.Unmarshal(b, &kind) != nil || kind.Kind == "" {
		return nil, nil
	}
	var cm configMap
	if kind.Kind == "ConfigMap" {
		if err := json.Unmarshal(b, &cm); err != nil {
			return nil, fmt.Errorf("parsing ConfigMap: %w", err)
		}
	}
	cm.Kind = kind.Kind
	return &cm, nil
}

func yamlConfigMap(b []byte) (*configMap, error) {
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(&doc); err != nil {
		return nil, fmt.Errorf("parsing boot images: neither a stream nor a ConfigMap: %w", err)
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("parsing ConfigMap: there is more than one YAML document: save the ConfigMap alone")
	}
	nodes := 0
	if err := checkYAML(&doc, 0, &nodes); err != nil {
		return nil, fmt.Errorf("parsing ConfigMap: %w", err)
	}
	var cm configMap
	if err := doc.Decode(&cm); err != nil {
		return nil, fmt.Errorf("parsing ConfigMap: %w", err)
	}
	return &cm, nil
}

// checkYAML refuses what makes a small document a large one.
func checkYAML(n *yaml.Node, depth int, nodes *int) error {
	*nodes++
	switch {
	case n.Kind == yaml.AliasNode:
		return errors.New("it has an alias, which no such ConfigMap has")
	case depth > maxDepth:
		return fmt.Errorf("it is nested deeper than %d levels", maxDepth)
	case *nodes > maxValues:
		return fmt.Errorf("it has more than %d values", maxValues)
	}
	for _, c := range n.Content {
		if err := checkYAML(c, depth+1, nodes); err != nil {
			return err
		}
	}
	return nil
}

// source reads the streams in a ConfigMap, which are JSON in its values.
func (cm *configMap) source() (*Source, error) {
	if cm.Kind != "ConfigMap" {
		return nil, fmt.Errorf("parsing boot images: its kind is %.80q, neither a stream nor a ConfigMap", cm.Kind)
	}
	src := &Source{Release: cm.Data["releaseVersion"]}
	all, several := cm.Data["streams"]
	one, single := cm.Data["stream"]
	switch {
	case several:
		parsed, err := parseStreams([]byte(all))
		if err != nil {
			return nil, fmt.Errorf("parsing ConfigMap: data.streams: %w", err)
		}
		src.Streams = parsed
	case single:
		s, err := ParseStream([]byte(one))
		if err != nil {
			return nil, fmt.Errorf("parsing ConfigMap: data.stream: %w", err)
		}
		src.Streams = []*Stream{s}
	default:
		return nil, fmt.Errorf("parsing ConfigMap: %.80q has neither data.stream nor data.streams: it is not %s", cm.Metadata.Name, ConfigMapName)
	}
	return src, nil
}

// parseStreams reads an object of streams.
func parseStreams(b []byte) ([]*Stream, error) {
	if err := checkJSON(b); err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	if len(all) == 0 || len(all) > maxStreams {
		return nil, fmt.Errorf("it has %d streams, where 1 to %d are expected", len(all), maxStreams)
	}
	var out []*Stream
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s, err := ParseStream(all[name])
		if err != nil {
			return nil, fmt.Errorf("%.80q: %w", name, err)
		}
		s.Name = name
		out = append(out, s)
	}
	return out, nil
}
