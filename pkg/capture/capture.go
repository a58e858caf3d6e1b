// Package capture holds an analysis in one archive: the facts that its verdict
// rests on, without secrets, so that the same verdict can be reached again on
// another machine, with no network. Captures are what users send with a report
// of a wrong verdict.
//
// The archive is a gzip-compressed tar with capture.json, which is all that is
// needed, verdict.json, and under evidence/ host files that a person may want
// to look at.
package capture

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// APIVersion and Kind head every capture. A reader refuses others.
const (
	APIVersion = "oneboot.dev/v1"
	Kind       = "Capture"
)

// Limits of what is read, in bytes and files.
const (
	maxArchive = 64 << 20
	maxEntry   = 32 << 20
	maxEntries = 64
)

const (
	captureFile = "capture.json"
	verdictFile = "verdict.json"
	evidenceDir = "evidence/"
)

// A Capture is one analysis.
type Capture struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Version is the program that wrote it.
	Version string `json:"version"`
	// Booted, Target and Policy are what was decided upon, the registry's
	// answers among them.
	Booted verdict.Booted `json:"booted"`
	Target verdict.Target `json:"target"`
	Policy verdict.Policy `json:"policy"`
	// Warnings and Errors were met on the way to the facts.
	Warnings []string        `json:"warnings"`
	Errors   []verdict.Error `json:"errors"`
}

// New makes a capture of an analysis that came to the verdict v. It takes the
// secrets out, and makes sure that what is left still gives that verdict.
func New(version string, b verdict.Booted, t verdict.Target, p verdict.Policy, v verdict.Verdict) (*Capture, error) {
	var redactor verdict.Redactor
	c := &Capture{APIVersion: APIVersion, Kind: Kind, Version: version, Policy: p, Errors: v.Errors}
	c.Booted, c.Target = redactor.Facts(b, t)
	// The warnings of the decision itself, which come first, are made again.
	c.Warnings = v.Warnings[min(len(verdict.Decide(b, t, p).Warnings), len(v.Warnings)):]
	want, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("writing capture: %w", err)
	}
	// As it will be read: a document cannot hold every byte that a file can.
	written, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("writing capture: %w", err)
	}
	again, err := parse(written)
	if err != nil {
		return nil, fmt.Errorf("writing capture: %w", err)
	}
	got, err := json.Marshal(again.Verdict())
	if err != nil {
		return nil, fmt.Errorf("writing capture: %w", err)
	}
	if !bytes.Equal(want, got) {
		return nil, errors.New("writing capture: without its secrets it gives another verdict; please report this")
	}
	return c, nil
}

// Verdict decides again upon the captured facts.
func (c *Capture) Verdict() verdict.Verdict {
	v := verdict.Decide(c.Booted, c.Target, c.Policy)
	v.Warnings, v.Errors = append(v.Warnings, c.Warnings...), append(v.Errors, c.Errors...)
	return v
}

// Evidence are files for a person to look at, by their paths on the host.
type Evidence map[string][]byte

// Write writes the archive. Equal captures give equal bytes.
func (c *Capture) Write(w io.Writer, evidence Evidence) error {
	if err := c.write(w, evidence); err != nil {
		return fmt.Errorf("writing capture: %w", err)
	}
	return nil
}

func (c *Capture) write(w io.Writer, evidence Evidence) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	add := func(name string, content []byte) error {
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Format: tar.FormatPAX}); err != nil {
			return err
		}
		_, err := t.Write(content)
		return err
	}
	for _, doc := range []struct {
		name  string
		value any
	}{{captureFile, c}, {verdictFile, c.Verdict()}} {
		b, err := json.MarshalIndent(doc.value, "", "  ")
		if err != nil {
			return err
		}
		if err := add(doc.name, append(b, '\n')); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(evidence)) {
		if err := add(evidenceDir+strings.TrimPrefix(name, "/"), verdict.RedactText(evidence[name])); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return z.Close()
}

// Read reads an archive that [Capture.Write] wrote. Unknown fields are an
// error: a fact that this program does not know could change the verdict.
func Read(r io.Reader) (*Capture, error) {
	c, err := read(r)
	if err != nil {
		return nil, fmt.Errorf("reading capture: %w", err)
	}
	return c, nil
}

func read(r io.Reader) (*Capture, error) {
	z, err := gzip.NewReader(io.LimitReader(r, maxArchive))
	if err != nil {
		return nil, fmt.Errorf("it is no archive that oneboot collect wrote: %w", err)
	}
	t := tar.NewReader(io.LimitReader(z, 2*maxArchive))
	for range maxEntries {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if h.Name != captureFile {
			continue
		}
		b, err := io.ReadAll(io.LimitReader(t, maxEntry+1))
		if err != nil {
			return nil, err
		}
		if len(b) > maxEntry {
			return nil, fmt.Errorf("%s is larger than the limit of %d bytes", captureFile, maxEntry)
		}
		return parse(b)
	}
	return nil, fmt.Errorf("no %s in it: it is no archive that oneboot collect wrote", captureFile)
}

func parse(b []byte) (*Capture, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("%s: %w", captureFile, err)
	}
	if head.APIVersion != APIVersion || head.Kind != Kind {
		return nil, fmt.Errorf("%s: apiVersion %q, kind %q: not a capture that this program knows", captureFile, head.APIVersion, head.Kind)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var c Capture
	if err := dec.Decode(&c); err != nil {
		return nil, fmt.Errorf("%s: %w", captureFile, err)
	}
	return &c, nil
}
