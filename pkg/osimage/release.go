package osimage

import (
	"context"
	"encoding/json"
	"fmt"

	"go.podman.io/image/v5/docker"
)

// References are the images that a release image names, by component.
func (img *Image) References(ctx context.Context) (map[string]string, error) {
	const name = "release-manifests/image-references"
	files, err := img.Files(ctx, name)
	if err != nil {
		return nil, err
	}
	b, ok := files[name]
	if !ok {
		return nil, failText(ManifestInvalid, img.name, "a release image without /"+name)
	}
	// An ImageStream of OpenShift's image API.
	var stream struct {
		Spec struct {
			Tags []struct {
				Name string `json:"name"`
				From struct {
					Kind string `json:"kind"`
					Name string `json:"name"`
				} `json:"from"`
			} `json:"tags"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(b, &stream); err != nil {
		return nil, fail(ManifestInvalid, img.name, fmt.Errorf("/%s: %w", name, err))
	}
	refs := map[string]string{}
	for _, t := range stream.Spec.Tags {
		if t.From.Kind != "DockerImage" || t.From.Name == "" {
			continue
		}
		// An image from afar must not lead to files of this machine.
		if ref, err := parseReference(t.From.Name); err != nil || ref.Transport().Name() != docker.Transport.Name() {
			return nil, failText(ManifestInvalid, img.name, fmt.Sprintf("/%s: %.100q is %.200q, which names no image in a registry", name, t.Name, redact(t.From.Name)))
		}
		refs[t.Name] = t.From.Name
	}
	if len(refs) == 0 {
		return nil, failText(ManifestInvalid, img.name, "/"+name+" names no images")
	}
	return refs, nil
}

// OSComponents are the names of OS images in a release, the current ones first
// (OpenShift 4.19 and later, 4.12 and later, before, OKD).
func OSComponents() []string {
	return []string{"rhel-coreos", "rhel-coreos-10", "rhel-coreos-9", "rhel-coreos-8", "stream-coreos", "centos-stream-coreos-10", "centos-stream-coreos-9", "fedora-coreos", "machine-os-content"}
}

// OSComponent is the OS image among the images of a release; empty where there is
// none.
func OSComponent(refs map[string]string) string {
	for _, name := range OSComponents() {
		if refs[name] != "" {
			return refs[name]
		}
	}
	return ""
}
