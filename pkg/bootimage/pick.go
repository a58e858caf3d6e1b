package bootimage

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/stream-metadata-go/stream"
)

// A Query chooses files in a stream.
type Query struct {
	// Architecture by RPM's or Go's name; may be empty where the stream has one.
	Architecture string
	// Platform is a name that [PlatformOf] takes.
	Platform string
	// Format is the name in the stream (raw.gz), or what it is called without
	// its compression (raw); may be empty where there is one.
	Format string
}

// A Set is what belongs together: one disk image, or the parts of a network boot.
type Set struct {
	// Stream is the stream's name.
	Stream string
	// Architecture, Platform and Format are the keys in the stream.
	Architecture, Platform, Format string
	// Version is that of the OS.
	Version string
	// Parts are checked: see [Part].
	Parts []Part
}

// A Part is one file.
type Part struct {
	// Role is disk, kernel, initramfs or rootfs.
	Role string
	// Name is the last element of the location's path, a plain file name.
	Name string
	// Location is an http or https address without credentials.
	Location string
	// Signature is the address of a detached signature; may be empty.
	Signature string
	// SHA256 is the checksum of the file, 64 lower-case hexadecimal digits.
	SHA256 string
	// UncompressedSHA256 is that of what is in it; empty where the stream has none.
	UncompressedSHA256 string
}

// Compression is gz, xz or zst, by the file's name; empty for other files.
func (p Part) Compression() string { return compression(p.Name) }

// compression finds the suffix of a file or format. What a cloud itself takes
// compressed, tar.gz, is not meant to be unpacked.
func compression(name string) string {
	if strings.HasSuffix(name, "tar.gz") {
		return ""
	}
	for _, c := range []string{"gz", "xz", "zst"} {
		if strings.HasSuffix(name, "."+c) {
			return c
		}
	}
	return ""
}

// Select chooses the files that a query names. An error about a name that is not
// in the stream lists those that are; one that leaves a choice lists it.
func (s *Stream) Select(q Query) (Set, error) {
	name, a, err := s.architecture(q.Architecture)
	if err != nil {
		return Set{}, err
	}
	platform := PlatformOf(q.Platform)
	artifacts, ok := a.Artifacts[platform.Artifact]
	if !ok {
		return Set{}, fmt.Errorf("%s: %w", name, lacking("platform", q.Platform, slices.Sorted(maps.Keys(a.Artifacts))))
	}
	format, err := chooseFormat(artifacts.Formats, q.Format)
	if err != nil {
		return Set{}, fmt.Errorf("%s %s: %w", name, platform.Artifact, err)
	}
	set := Set{Stream: s.Name, Architecture: name, Platform: platform.Artifact, Format: format, Version: artifacts.Release}
	set.Parts, err = partsOf(artifacts.Formats[format])
	if err != nil {
		return Set{}, fmt.Errorf("%s %s %s: %w", name, platform.Artifact, format, err)
	}
	return set, nil
}

func (s *Stream) architecture(name string) (string, stream.Arch, error) {
	there := slices.Sorted(maps.Keys(s.Metadata.Architectures))
	if name == "" {
		if len(there) > 1 {
			return "", stream.Arch{}, fmt.Errorf("there are several architectures, choose one: %s", strings.Join(there, ", "))
		}
		name = there[0]
	}
	a, ok := s.Metadata.Architectures[Architecture(name)]
	if !ok {
		return "", stream.Arch{}, lacking("architecture", name, there)
	}
	return Architecture(name), a, nil
}

// chooseFormat finds a format by its name, else by its name without compression:
// RHCOS compresses by gzip what Fedora CoreOS compresses by xz.
func chooseFormat(formats map[string]stream.ImageFormat, want string) (string, error) {
	there := slices.Sorted(maps.Keys(formats))
	if _, ok := formats[want]; ok {
		return want, nil
	}
	var fit []string
	for _, f := range there {
		if want == "" || strings.TrimSuffix(f, "."+compression(f)) == want {
			fit = append(fit, f)
		}
	}
	switch len(fit) {
	case 1:
		return fit[0], nil
	case 0:
		return "", lacking("format", want, there)
	}
	return "", fmt.Errorf("there are several formats, choose one: %s", strings.Join(fit, ", "))
}

// partsOf checks the files of a format.
func partsOf(f stream.ImageFormat) ([]Part, error) {
	var parts []Part
	names := map[string]bool{}
	for _, p := range []struct {
		role string
		file *stream.Artifact
	}{{"disk", f.Disk}, {"kernel", f.Kernel}, {"initramfs", f.Initramfs}, {"rootfs", f.Rootfs}} {
		if p.file == nil {
			continue
		}
		part, err := newPart(p.role, p.file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.role, err)
		}
		if names[part.Name] {
			return nil, fmt.Errorf("%s: another part is called %s too", p.role, part.Name)
		}
		names[part.Name] = true
		parts = append(parts, part)
	}
	switch {
	case len(parts) == 0:
		return nil, errors.New("it has no file")
	case f.Disk == nil && (f.Kernel == nil || f.Initramfs == nil):
		return nil, errors.New("a network boot needs a kernel and an initramfs, and one is not there")
	}
	return parts, nil
}

func newPart(role string, a *stream.Artifact) (Part, error) {
	u, err := url.Parse(a.Location)
	switch {
	case err != nil:
		return Part{}, errors.New("its location is not an address")
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return Part{}, fmt.Errorf("its location is not an http address: %.200q", u.Redacted())
	case u.User != nil:
		return Part{}, errors.New("its location holds credentials")
	}
	name := path.Base(u.Path)
	if !plainName(name) {
		return Part{}, fmt.Errorf("its location names no file: %.200q", u.Redacted())
	}
	for field, sum := range map[string]string{"sha256": a.Sha256, "uncompressed-sha256": a.UncompressedSha256} {
		if !isSHA256(sum) && (sum != "" || field == "sha256") {
			return Part{}, fmt.Errorf("%s: its %d characters are not a SHA-256 checksum", field, len(sum))
		}
	}
	return Part{
		Role: role, Name: name, Location: a.Location, Signature: a.Signature,
		SHA256: a.Sha256, UncompressedSHA256: a.UncompressedSha256,
	}, nil
}

// plainName reports whether a name can be that of a file in any folder, and be
// printed.
func plainName(name string) bool {
	return !strings.HasPrefix(name, ".") && !strings.ContainsFunc(name, func(r rune) bool {
		return r == '/' || r == '\\' || r == utf8.RuneError || !unicode.IsPrint(r)
	})
}

// isSHA256 reports whether s is 64 lower-case hexadecimal digits.
func isSHA256(s string) bool {
	if len(s) != 64 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
