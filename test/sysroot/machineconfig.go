package sysroot

import (
	"encoding/json"
	"fmt"
)

// A MachineConfig is what the machine-config-server hands to a new node in the
// encapsulated file, as far as it differs between nodes.
type MachineConfig struct {
	// Name is rendered-worker-0 where empty.
	Name            string
	OSImageURL      string
	KernelArguments []string
	// KernelType is "default" where empty.
	KernelType string
	Extensions []string
	FIPS       bool
	// ExtensionsImage is baseOSExtensionsContainerImage.
	ExtensionsImage string
	Annotations     map[string]string
}

// JSON is the text of the encapsulated file, with the keys that the
// machine-config-operator writes.
func (m MachineConfig) JSON() (string, error) {
	name, kernelType := m.Name, m.KernelType
	if name == "" {
		name = "rendered-worker-0"
	}
	if kernelType == "" {
		kernelType = "default"
	}
	metadata := map[string]any{"name": name, "creationTimestamp": nil}
	if len(m.Annotations) > 0 {
		metadata["annotations"] = m.Annotations
	}
	doc := map[string]any{
		"kind":       "MachineConfig",
		"apiVersion": "machineconfiguration.openshift.io/v1",
		"metadata":   metadata,
		"spec": map[string]any{
			"config":                         map[string]any{"ignition": map[string]any{"version": "3.4.0"}},
			"osImageURL":                     m.OSImageURL,
			"baseOSExtensionsContainerImage": m.ExtensionsImage,
			"kernelArguments":                m.KernelArguments,
			"kernelType":                     kernelType,
			"extensions":                     m.Extensions,
			"fips":                           m.FIPS,
		},
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding the MachineConfig: %w", err)
	}
	return string(text) + "\n", nil
}
