// Package machineconfig reads the MachineConfig that the machine-config-operator
// encapsulates for a node's first boot, and knows which packages stand for the
// extensions and kernel types that a MachineConfig asks for.
//
// It decodes nothing twice and believes nothing silently: a document that two
// decoders could read in two ways is an error.
package machineconfig

import (
	"errors"
	"fmt"
	"strings"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// The identity of the kind, from github.com/openshift/api machineconfiguration/v1.
const (
	kindName = "MachineConfig"
	group    = "machineconfiguration.openshift.io/"
)

// An OSImageURLError says what is wrong with spec.osImageURL.
type OSImageURLError struct {
	// Problem is for a person: what is wrong and what to do.
	Problem string
}

// Error implements error.
func (e *OSImageURLError) Error() string { return "spec.osImageURL: " + e.Problem }

// Parse reads an encapsulated MachineConfig as the machine-config-server
// writes it: one JSON object (appendEncapsulated in pkg/server/server.go of
// the machine-config-operator). kind and apiVersion may be missing, and any
// field may be empty or null.
//
// Errors name the field by its path in the document. Where spec.osImageURL
// alone is at fault the error wraps an [*OSImageURLError] and the rest of the
// MachineConfig is returned beside it, with OSImageURL and Digest empty, for
// a caller that has another target to put there. A target that is a tag is no
// error: its Digest is empty.
func Parse(b []byte) (verdict.MachineConfig, error) {
	n, err := parseJSON(b)
	if err != nil {
		return verdict.MachineConfig{}, fmt.Errorf("parsing MachineConfig: %w", err)
	}
	return wrap(decode(&n))
}

// ParseManifest is Parse for a file from an admin's desk: JSON, or YAML in one
// document without anchors, aliases and tags. The daemon itself reads JSON only.
func ParseManifest(b []byte) (verdict.MachineConfig, error) {
	if t := strings.TrimLeft(string(b[:min(len(b), 64)]), " \t\r\n"); strings.HasPrefix(t, "{") {
		return Parse(b)
	}
	n, err := parseYAML(b)
	if err != nil {
		return verdict.MachineConfig{}, fmt.Errorf("parsing MachineConfig: %w", err)
	}
	return wrap(decode(&n))
}

func wrap(mc verdict.MachineConfig, err error) (verdict.MachineConfig, error) {
	if err != nil {
		return mc, fmt.Errorf("parsing MachineConfig: %w", err)
	}
	return mc, nil
}

func decode(n *node) (verdict.MachineConfig, error) {
	if n.kind != object {
		return verdict.MachineConfig{}, fmt.Errorf("the document is %s, not an object", n.kind)
	}
	top := fields{n: n}
	if err := checkType(&top); err != nil {
		return verdict.MachineConfig{}, err
	}
	meta, spec := top.object("metadata"), top.object("spec")
	if top.err != nil {
		return verdict.MachineConfig{}, top.err
	}
	if spec.n.kind == null {
		return verdict.MachineConfig{}, errors.New("spec: is missing: this is not a MachineConfig")
	}
	mc, err := decodeSpec(&spec)
	if err != nil {
		return verdict.MachineConfig{}, err
	}
	mc.Name = meta.text("name")
	if err := decodeAnnotations(&meta, &mc); err != nil {
		return verdict.MachineConfig{}, err
	}
	digest, err := ParseOSImageURL(mc.OSImageURL)
	if err != nil {
		mc.OSImageURL = ""
		return mc, err
	}
	mc.Digest = digest
	return mc, nil
}

// checkType refuses an object of another kind. The server marshals from a
// lister, where both fields are often lost, so missing ones are accepted.
func checkType(top *fields) error {
	kind, version := top.text("kind"), top.text("apiVersion")
	if top.err != nil {
		return top.err
	}
	if kind != "" && kind != kindName {
		return fmt.Errorf("kind: is %s, want %s", shown(kind), kindName)
	}
	if version != "" && !strings.HasPrefix(version, group) {
		return fmt.Errorf("apiVersion: is %s, want %sv1", shown(version), group)
	}
	return nil
}

// specKeys are the fields of MachineConfigSpec (machineconfiguration/v1/types.go
// of github.com/openshift/api) that decodeSpec reads.
func specKeys(key string) bool {
	switch key {
	case "osImageURL", "baseOSExtensionsContainerImage", "config", "kernelArguments", "extensions", "fips", "kernelType":
		return true
	}
	return false
}

func decodeSpec(spec *fields) (verdict.MachineConfig, error) {
	mc := verdict.MachineConfig{
		OSImageURL:      spec.text("osImageURL"),
		KernelArguments: spec.texts("kernelArguments"),
		KernelType:      CanonicalKernelType(spec.text("kernelType")),
		Extensions:      spec.texts("extensions"),
		FIPS:            spec.bool("fips"),
		ExtensionsImage: spec.text("baseOSExtensionsContainerImage"),
	}
	config := spec.object("config")
	if spec.err != nil {
		return mc, spec.err
	}
	foreign, err := foreignIgnition(&config)
	if err != nil {
		return mc, err
	}
	// A field that this program does not know may ask for anything.
	for i, key := range spec.n.keys {
		if !specKeys(key) && !spec.n.items[i].empty() {
			foreign = append(foreign, join(spec.path, key))
		}
	}
	mc.Foreign = foreign
	addPackageSets(&mc)
	return mc, nil
}

// decodeAnnotations notes the release and the annotations of on-cluster
// layering: as marks only where the layered image that they name is not the one
// that osImageURL asks for.
func decodeAnnotations(meta *fields, mc *verdict.MachineConfig) error {
	annotations := meta.object("annotations")
	original := annotations.text(originalOSImageURLAnnotation)
	layered := annotations.text(layeredOSImageURLAnnotation)
	preBuilt := annotations.text(preBuiltImageAnnotation)
	mc.Release = annotations.text(releaseImageVersionAnnotation)
	if err := errors.Join(meta.err, annotations.err); err != nil {
		return err
	}
	mc.LayeredImage = layered
	if layered != mc.OSImageURL {
		// The original image is only ever noted beside the layered one.
		if original != "" {
			mc.LayeringMarks = append(mc.LayeringMarks, originalOSImageURLAnnotation)
		}
		if layered != "" {
			mc.LayeringMarks = append(mc.LayeringMarks, layeredOSImageURLAnnotation)
		}
	}
	if preBuilt != "" && preBuilt != mc.OSImageURL {
		mc.LayeringMarks = append(mc.LayeringMarks, preBuiltImageAnnotation)
	}
	return nil
}
