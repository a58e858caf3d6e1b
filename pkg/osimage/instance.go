package osimage

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	imgspecv1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// errNoInstance says that a list has nothing for the architecture.
var errNoInstance = errors.New("no image in the manifest list")

const maxInstances = 1000

// chooseInstance picks the manifest for sys' architecture from an OCI index or
// a Docker manifest list, by the library's rules (variants, zstd, first one
// wins), after entries that are no images were left out: attestations as
// BuildKit attaches them (annotation vnd.docker.reference.type, platform
// unknown/unknown), and artifacts.
func chooseInstance(list []byte, sys *types.SystemContext) (verdict.Digest, error) {
	// Docker's list has the fields of an OCI index that count here.
	var index imgspecv1.Index
	if err := json.Unmarshal(list, &index); err != nil {
		return "", fmt.Errorf("parsing JSON%s: %w", jsonPosition(list, err), err)
	}
	if len(index.Manifests) > maxInstances {
		return "", fmt.Errorf("more than %d entries", maxInstances)
	}
	var images []imgspecv1.Descriptor
	for i, d := range index.Manifests {
		if _, err := checkDigest(d.Digest.String()); err != nil {
			return "", fmt.Errorf("entry %d: %w", i, err)
		}
		if isImage(d) {
			images = append(images, d)
		}
	}
	if len(images) == 0 {
		return "", errNoInstance
	}
	chosen, err := manifest.OCI1IndexFromComponents(images, nil).ChooseInstance(sys)
	if err != nil {
		return "", fmt.Errorf("%w for linux/%s; it has %s", errNoInstance, sys.ArchitectureChoice, platforms(images))
	}
	if err := onlyChoice(index.Manifests, chosen, sys); err != nil {
		return "", err
	}
	return checkDigest(chosen.String())
}

// onlyChoice refuses a list in which another entry, image or not, would do as well: which one
// the host takes depends on its library's version and on the list's own type.
func onlyChoice(entries []imgspecv1.Descriptor, chosen digest.Digest, sys *types.SystemContext) error {
	others := slices.DeleteFunc(slices.Clone(entries), func(d imgspecv1.Descriptor) bool { return d.Digest == chosen })
	for _, d := range others {
		p := d.Platform
		if p == nil || p.OS != "linux" || p.Architecture != sys.ArchitectureChoice {
			continue
		}
		if _, err := manifest.OCI1IndexFromComponents([]imgspecv1.Descriptor{d}, nil).ChooseInstance(sys); err == nil {
			return fmt.Errorf("%w: both %s and %s fit linux/%s", errNoInstance, chosen, d.Digest, sys.ArchitectureChoice)
		}
	}
	return nil
}

// platforms names what a list has, for a person: the first few, each cut short,
// since the names come from outside.
func platforms(images []imgspecv1.Descriptor) string {
	const most, longest = 16, 40
	var names []string
	for _, d := range images {
		name := "no platform"
		if p := d.Platform; p != nil {
			name = strings.TrimSuffix(p.OS+"/"+p.Architecture+"/"+p.Variant, "/")
		}
		name = fmt.Sprintf("%.*q", longest, name)
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("%d more", len(names)-most))
	}
	return strings.Join(names, ", ")
}

func isImage(d imgspecv1.Descriptor) bool {
	if _, ok := d.Annotations["vnd.docker.reference.type"]; ok || d.ArtifactType != "" {
		return false
	}
	if p := d.Platform; p != nil && (p.OS == "unknown" || p.Architecture == "unknown") {
		return false
	}
	switch d.MediaType {
	case imgspecv1.MediaTypeImageManifest, manifest.DockerV2Schema2MediaType, "":
		return true
	default:
		return false
	}
}
