// Package rpmostree reads what rpm-ostree says of a system: the standard output
// of rpm-ostree status --json, saved or fresh. It runs nothing.
package rpmostree

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// A Status is the deployments of a system in rpm-ostree's order: a staged one
// first, then as they would boot. Exactly one is booted.
//
// The format is that of rpm-ostree's src/app/rpmostree-builtin-status.cxx,
// src/daemon/rpmostreed-deployment-utils.cxx and rust/src/daemon.rs.
type Status struct {
	Deployments []Deployment
	// Transaction says that rpm-ostree was at work when it was asked.
	Transaction bool
}

// A Deployment is one deployment of a status. Fields that the status lacks are
// empty; Missing names those of them that every rpm-ostree writes.
type Deployment struct {
	Stateroot string
	Checksum  verdict.Checksum
	Serial    int
	Booted    bool
	Staged    bool
	// Unlocked is "none", "development", "hotfix" or "transient".
	Unlocked string
	// LiveInProgress and LiveReplaced are commits of rpm-ostree apply-live.
	LiveInProgress, LiveReplaced string

	// Version is for show.
	Version string
	// Timestamp is the deployed commit's, in seconds since the epoch.
	Timestamp uint64

	// Origin is the refspec or commit of a deployment that no image made; it
	// may be empty.
	Origin string
	// CustomURL and CustomDescription are the two strings of custom-origin.
	CustomURL, CustomDescription string
	// ContainerImageReference is verbatim: see [format.ParseImageReference].
	ContainerImageReference string
	// ContainerImageDigest is container-image-reference-digest, read by
	// rpm-ostree from the commit.
	ContainerImageDigest verdict.Digest

	// BaseChecksum is the commit below packages that were layered on this
	// host; empty where there are none.
	BaseChecksum verdict.Checksum
	// Layered says that the deployed commit was assembled on this host.
	Layered bool
	Base    BaseMetadata

	// RequestedPackages are what the origin asks to layer, by name, and of
	// local packages by their full name.
	RequestedPackages     []string
	RequestedLocal        []string
	RequestedFileOverride []string
	// RequestedRemovals are the names of base packages that the origin asks to
	// remove, Removals those that are removed in fact.
	RequestedRemovals, Removals []string
	// Packages are the packages that are layered in fact.
	Packages []string
	// Replacements are the requested and the effective replacements of base
	// packages, each as KEY: NAMES with rpm-ostree's key.
	Replacements []string

	RegenerateInitramfs bool
	InitramfsArgs       []string
	InitramfsEtc        []string
	CLIWrap             bool
	// Modules are requested or enabled modules (2021 to 2024).
	Modules []string

	// Missing are keys that rpm-ostree always writes and this status lacks.
	Missing []string
}

// ID is the deployment's name as rpm-ostree writes it: STATEROOT-CHECKSUM.SERIAL.
func (d *Deployment) ID() string {
	return fmt.Sprintf("%s-%s.%d", d.Stateroot, d.Checksum, d.Serial)
}

// BaseMetadata is what base-commit-meta says of the commit below layered
// packages, or of the deployed one where none are layered.
type BaseMetadata struct {
	// Version and KernelRelease are for show.
	Version, KernelRelease string
	// BaseArch is coreos-assembler.basearch, in RPM's naming; plain commits of
	// CoreOS have it.
	BaseArch string
	// ManifestDigest is ostree.manifest-digest, empty for a plain commit.
	ManifestDigest verdict.Digest
	// Manifest and Config are the JSON documents of ostree.manifest and
	// ostree.container.image-config, nil for a plain commit: see
	// [format.ParseStoredManifest] and [format.ParseImageConfig].
	Manifest, Config []byte
}

func (m *BaseMetadata) ofImage() bool {
	return m.ManifestDigest != "" || m.Manifest != nil || m.Config != nil
}

// keyBaseMetadata has the metadata of the commit below layered packages.
const keyBaseMetadata = "base-commit-meta"

// Parse decodes the standard output of rpm-ostree status --json. What is not
// one JSON object, has no deployment, none that is booted or more than one, or
// a field of another form than rpm-ostree writes, is an error that names the
// field. A document inside base-commit-meta is only taken out here, not read.
func Parse(b []byte) (*Status, error) {
	s, err := parse(b)
	if err != nil {
		return nil, fmt.Errorf("parsing rpm-ostree status: %w", err)
	}
	return s, nil
}

func parse(b []byte) (*Status, error) {
	if err := checkDocument(b); err != nil {
		return nil, err
	}
	var err error
	top := newObject("", b, &err)
	list := top.list("deployments")
	switch {
	case err != nil:
		return nil, err
	case !top.has("deployments"):
		return nil, errors.New("deployments: is missing or null: rpm-ostree saw no ostree system")
	case len(list) == 0:
		return nil, errors.New("deployments: is empty: no deployment is booted")
	case len(list) > maxDeployments:
		return nil, fmt.Errorf("deployments: has %d entries, more than %d", len(list), maxDeployments)
	}
	s := &Status{Transaction: top.has("transaction")}
	booted := 0
	for i, raw := range list {
		path := fmt.Sprintf("deployments[%d]", i)
		if isNull(raw) {
			return nil, fmt.Errorf("%s: is null", path)
		}
		d := parseDeployment(newObject(path, raw, &err))
		if err != nil {
			return nil, err
		}
		if d.Booted {
			booted++
		}
		s.Deployments = append(s.Deployments, d)
	}
	if booted != 1 {
		return nil, fmt.Errorf("deployments: %d of %d say booted, want 1", booted, len(list))
	}
	return s, nil
}

// Booted returns the booted deployment.
func (s *Status) Booted() *Deployment {
	for i := range s.Deployments {
		if s.Deployments[i].Booted {
			return &s.Deployments[i]
		}
	}
	return &Deployment{} // only in a Status that Parse has not made
}

func parseDeployment(o object) Deployment {
	o.require("osname", "checksum", "serial", "booted")
	d := Deployment{
		Stateroot:               o.text("osname"),
		Checksum:                o.checksum("checksum"),
		Serial:                  int(o.number("serial", math.MaxInt32)),
		Booted:                  o.flag("booted"),
		Staged:                  o.flag("staged"),
		Unlocked:                o.text("unlocked"),
		LiveInProgress:          o.text("live-inprogress"),
		LiveReplaced:            o.text("live-replaced"),
		Version:                 o.text("version"),
		Timestamp:               o.number("timestamp", maxTime),
		Origin:                  o.text("origin"),
		ContainerImageReference: o.text("container-image-reference"),
		ContainerImageDigest:    o.digest("container-image-reference-digest"),
		BaseChecksum:            o.checksum("base-checksum"),
		Base:                    parseBase(newObject(o.name(keyBaseMetadata), o.members[keyBaseMetadata], o.err)),
		RequestedPackages:       o.texts("requested-packages"),
		RequestedLocal:          o.texts("requested-local-packages"),
		RequestedFileOverride:   o.texts("requested-local-fileoverride-packages"),
		RequestedRemovals:       o.texts("requested-base-removals"),
		Removals:                o.removals("base-removals"),
		Packages:                o.texts("packages"),
		RegenerateInitramfs:     o.flag("regenerate-initramfs"),
		InitramfsArgs:           o.texts("initramfs-args"),
		InitramfsEtc:            o.texts("initramfs-etc"),
		CLIWrap:                 o.flag("cliwrap"),
		Modules:                 append(o.texts("requested-modules"), o.texts("modules")...),
	}
	d.CustomURL, d.CustomDescription = o.customOrigin()
	d.Layered = d.BaseChecksum != "" || o.has("layered-commit-meta") || len(d.Packages)+len(d.Removals) > 0
	for _, key := range [...]string{
		"requested-base-local-replacements", "requested-base-remote-replacements",
		"base-local-replacements", "base-remote-replacements",
	} {
		if names := o.entries(key); len(names) > 0 {
			d.Replacements = append(d.Replacements, key+": "+strings.Join(names, " "))
		}
	}
	for _, key := range [...]string{
		"staged", "unlocked", keyBaseMetadata, "packages", "regenerate-initramfs",
		"requested-packages", "requested-local-packages", "requested-base-removals", "requested-base-local-replacements",
		"base-removals", "base-local-replacements",
	} {
		if !o.has(key) {
			d.Missing = append(d.Missing, key)
		}
	}
	// An empty origin is seen on disk images that were never pivoted.
	if _, ok := o.members["origin"]; !ok && !o.has("container-image-reference") {
		d.Missing = append(d.Missing, "origin")
	}
	if id := o.text("id"); id != "" && *o.err == nil && id != d.ID() {
		*o.err = fmt.Errorf("%s: is %q, but osname, checksum and serial make %q", o.name("id"), short(id), short(d.ID()))
	}
	return d
}

func parseBase(o object) BaseMetadata {
	return BaseMetadata{
		Version:        o.text("version"),
		KernelRelease:  o.text("ostree.linux"),
		BaseArch:       o.text("coreos-assembler.basearch"),
		ManifestDigest: o.digest("ostree.manifest-digest"),
		Manifest:       o.document("ostree.manifest"),
		Config:         o.document("ostree.container.image-config"),
	}
}

// checksum returns an ostree checksum; a missing, null or empty one is empty.
func (o object) checksum(key string) verdict.Checksum {
	s := o.text(key)
	if s == "" {
		if o.has(key) && *o.err == nil {
			*o.err = fmt.Errorf("%s: is empty", o.name(key))
		}
		return ""
	}
	c, err := format.ParseChecksum(s)
	if err != nil && *o.err == nil {
		*o.err = fmt.Errorf("%s: %w", o.name(key), err)
	}
	return c
}

// digest returns an image digest; a missing, null or empty one is empty.
func (o object) digest(key string) verdict.Digest {
	s := o.text(key)
	if s == "" {
		return ""
	}
	d, err := format.ParseDigest(s)
	if err != nil && *o.err == nil {
		*o.err = fmt.Errorf("%s: %w", o.name(key), err)
	}
	return d
}

// removals returns the names in a list of removed packages. Each is a tuple of
// name-epoch:version-release.arch, name, epoch, version, release and arch
// (rpmostree-core.cxx, "sstsss").
func (o object) removals(key string) []string {
	var out []string
	for i, raw := range o.list(key) {
		var tuple []json.RawMessage
		var name string
		if json.Unmarshal(raw, &tuple) != nil || len(tuple) < 2 || json.Unmarshal(tuple[1], &name) != nil || name == "" {
			if *o.err == nil {
				*o.err = fmt.Errorf("%s[%d]: want a list of a package's full name, its name and more", o.name(key), i)
			}
			return nil
		}
		out = append(out, name)
	}
	return out
}

// customOrigin reads custom-origin, a list of URL and description.
func (o object) customOrigin() (url, description string) {
	list := o.list("custom-origin")
	if len(list) == 0 {
		return "", ""
	}
	words := o.texts("custom-origin")
	if *o.err == nil && len(words) != 2 {
		*o.err = fmt.Errorf("%s: has %d strings, want a URL and a description", o.name("custom-origin"), len(words))
	}
	if *o.err != nil {
		return "", ""
	}
	return words[0], words[1]
}
