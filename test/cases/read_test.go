package cases

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/bootimage"
)

// A readSpec is a question about a file alone, to pkg/bootimage.
type readSpec struct {
	// File is a stream document, a ConfigMap or, where Aleph is set, an aleph
	// file.
	File  string `yaml:"file"`
	Aleph bool   `yaml:"aleph"`
	// Stream is the one to take; where it is not written, the only one.
	Stream *string `yaml:"stream"`
	// Select chooses files: architecture, platform, format.
	Select []string `yaml:"select"`
	// Says is the answer: a line for each offer, for each chosen file, or for
	// each field of an aleph file. Error is part of an error.
	Says  []string `yaml:"says"`
	Error string   `yaml:"error"`
}

func TestReads(t *testing.T) {
	asked := 0
	for _, c := range readCases(t) {
		for i, r := range c.Reads {
			asked++
			t.Run(fmt.Sprintf("%s/%d", c.name, i), func(t *testing.T) {
				text, ok := c.files[r.File]
				if !ok {
					t.Fatalf("the case has no file %s", r.File)
				}
				got, err := answerTo(r, []byte(text))
				if (err == nil) != (r.Error == "") || err != nil && !strings.Contains(err.Error(), r.Error) {
					t.Errorf("got %v, want %q", err, r.Error)
				}
				if diff := cmp.Diff(r.Says, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
	if asked < 12 {
		t.Errorf("%d questions asked, of four cases at least", asked)
	}
}

func answerTo(r readSpec, text []byte) ([]string, error) {
	if r.Aleph {
		a, err := bootimage.ParseAleph(text)
		if err != nil {
			return nil, err
		}
		return fieldLines(*a), nil
	}
	src, err := bootimage.Parse(text)
	if err != nil {
		return nil, err
	}
	choose := src.Only
	if r.Stream != nil {
		choose = func() (*bootimage.Stream, error) { return src.Stream(*r.Stream) }
	}
	s, err := choose()
	if err != nil {
		return nil, err
	}
	if len(r.Select) == 3 {
		set, err := s.Select(bootimage.Query{Architecture: r.Select[0], Platform: r.Select[1], Format: r.Select[2]})
		if err != nil {
			return nil, err
		}
		var lines []string
		for _, p := range set.Parts {
			lines = append(lines, fmt.Sprintf("%s %s %s", set.Version, p.Role, p.Name))
		}
		return lines, nil
	}
	var lines []string
	for _, o := range s.Offers() {
		line := fmt.Sprintf("%s %s %s %s: %s", o.Architecture, o.Platform, o.Version, o.Kind, strings.Join(o.Formats, ", "))
		for _, i := range o.Images {
			line += strings.TrimLeft(i.Region+" ", " ") + i.Image
		}
		lines = append(lines, strings.TrimSuffix(line, ": "))
	}
	return lines, nil
}

// fieldLines are the fields that have a value, a line each.
func fieldLines(a bootimage.Aleph) []string {
	lines := []string{
		"form " + string(a.Form), "version " + a.Version, "ref " + a.Ref, "commit " + a.Commit, "config " + a.ConfigDigest,
		"manifest " + a.ManifestDigest, "stream " + a.Stream, "kernel " + a.Kernel,
	}
	return slices.DeleteFunc(lines, func(s string) bool { return strings.HasSuffix(s, " ") })
}
