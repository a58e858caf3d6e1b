package bootimage

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/coreos/stream-metadata-go/stream"
)

// A Stream is one stream document.
type Stream struct {
	// Name is the key that the document has beside others in a ConfigMap:
	// rhel-9, rhel-10, and empty in OKD. Of a document that stands alone it
	// is the one that it gives itself.
	Name string
	// Metadata is the document in the types of its own library. Its field
	// Stream names no OpenShift release and no OS: builds of RHEL 10 have said
	// rhcos-4.22.
	Metadata *stream.Stream
	// Raw is the document as it was, with whatever else is in it.
	Raw json.RawMessage
}

// ParseStream reads a stream document. It must name an architecture; what each
// of them has is checked when it is chosen.
func ParseStream(b []byte) (*Stream, error) {
	if err := checkJSON(b); err != nil {
		return nil, fmt.Errorf("parsing stream: %w", err)
	}
	var s stream.Stream
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("parsing stream: %w", err)
	}
	if len(s.Architectures) == 0 {
		return nil, errors.New("parsing stream: it has no architectures: it is not a stream document")
	}
	for arch, a := range s.Architectures {
		names := append(slices.Collect(maps.Keys(a.Artifacts)), arch)
		for _, p := range a.Artifacts {
			names = slices.AppendSeq(names, maps.Keys(p.Formats))
		}
		for _, name := range names {
			if name == "" || len(name) > maxName || !plainName(name) {
				return nil, fmt.Errorf("parsing stream: %.80q is no name of an architecture, platform or format", name)
			}
		}
	}
	return &Stream{Name: s.Stream, Metadata: &s, Raw: b}, nil
}
