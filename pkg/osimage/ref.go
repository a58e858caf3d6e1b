package osimage

import (
	"errors"
	"fmt"
	"strings"

	"go.podman.io/image/v5/directory"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	ociarchive "go.podman.io/image/v5/oci/archive"
	ocilayout "go.podman.io/image/v5/oci/layout"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"

	"github.com/oneboot/oneboot/pkg/verdict"
)

const dockerPrefix = "docker://"

// parseReference parses "docker://X", a bare X, "oci:X", "oci-archive:X" and
// "dir:X". A registry reference must name its registry: short names mean
// something else on every host.
func parseReference(ref string) (types.ImageReference, error) {
	var parsed types.ImageReference
	var err error
	transport, rest, _ := strings.Cut(ref, ":")
	switch {
	case strings.HasPrefix(ref, dockerPrefix):
		parsed, err = parseDocker(strings.TrimPrefix(ref, dockerPrefix))
	case transport == "oci":
		parsed, err = ocilayout.ParseReference(rest)
	case transport == "oci-archive":
		parsed, err = ociarchive.ParseReference(rest)
	case transport == "dir":
		parsed, err = directory.NewReference(rest)
	default:
		parsed, err = parseDocker(ref)
	}
	if err != nil {
		return nil, fail(ReferenceInvalid, displayName(ref), fmt.Errorf("parsing image reference: %w", err))
	}
	return parsed, nil
}

func parseDocker(name string) (types.ImageReference, error) {
	host, _, found := strings.Cut(name, "/")
	if strings.HasPrefix(host, "[") {
		return nil, errNoIPv6
	}
	if !found || host != "localhost" && !strings.ContainsAny(host, ".:") {
		return nil, errors.New("short name: write the registry's host name in front")
	}
	if strings.HasSuffix(name, "@@unknown-digest@@") {
		return nil, errors.New("names no image: a tag or a digest is needed")
	}
	if strings.Contains(name, "://") {
		return nil, errors.New("unknown transport; oneboot knows docker://, oci:, oci-archive: and dir")
	}
	return docker.ParseReference("//" + name)
}

// errNoIPv6 is for registries named by an IPv6 address, which have no place in
// the references of containers/image (docker/reference/regexp.go).
var errNoIPv6 = errors.New("the registry is named by an IPv6 address, which podman, skopeo and rpm-ostree do not take either: give it a host name")

// badLocations names the locations in registries.conf that make no reference.
func (img *Image) badLocations() string {
	reg, err := sysregistriesv2.FindRegistry(img.sys, img.ref.DockerReference().Name())
	if err != nil || reg == nil {
		return ""
	}
	var text strings.Builder
	for _, place := range append(reg.Mirrors, reg.Endpoint) {
		if _, err := reference.ParseNormalizedNamed(place.Location + "/x"); err == nil {
			continue
		}
		fmt.Fprintf(&text, "; location %.200q", place.Location)
		if strings.HasPrefix(place.Location, "[") {
			text.WriteString(": " + errNoIPv6.Error())
		}
	}
	return text.String()
}

// displayName is the reference as it may stand in messages.
func displayName(ref string) string {
	if ref == "" {
		return "image reference"
	}
	const longest = 512
	if len(ref) > longest {
		ref = ref[:longest] + "..."
	}
	return redact(ref)
}

// pinnedDigest returns the digest that pins a registry reference, or "".
func pinnedDigest(ref types.ImageReference) (verdict.Digest, error) {
	named, ok := ref.DockerReference().(reference.Canonical)
	if !ok || ref.Transport().Name() != docker.Transport.Name() {
		return "", nil
	}
	return checkDigest(named.Digest().String())
}

// checkDigest accepts "sha256:" and 64 lower-case hexadecimal digits, the only
// digests that OS images have.
func checkDigest(s string) (verdict.Digest, error) {
	hex, ok := strings.CutPrefix(s, "sha256:")
	if !ok || !isChecksum(hex) {
		// Its text may be anything, a secret too.
		return "", fmt.Errorf("its %d characters are not a SHA-256 digest", len(s))
	}
	return verdict.Digest(s), nil
}

// isChecksum reports whether s is 64 lower-case hexadecimal digits.
func isChecksum(s string) bool {
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
