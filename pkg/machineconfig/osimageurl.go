package machineconfig

import (
	"strings"

	"github.com/distribution/reference"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// maxPullSpec is more than any registry accepts: a repository name has at most
// 255 characters, a tag 128, a digest 71.
const maxPullSpec = 1024

// ParseOSImageURL returns the digest that pins an osImageURL, or "" where it
// names a tag or neither. It accepts what the daemon can hand to skopeo and
// rpm-ostree without a search: REGISTRY/REPOSITORY[:TAG][@sha256:DIGEST], with
// no transport. Anything else is an [*OSImageURLError].
func ParseOSImageURL(s string) (verdict.Digest, error) {
	fail := func(problem string) (verdict.Digest, error) { return "", &OSImageURLError{Problem: problem} }
	switch {
	case s == "":
		return fail("is empty: it names no OS image; the release's controller fills it in, so look at the pool's rendered MachineConfig")
	case s == "://dummy":
		// The value of MachineConfigs in the operator's own tests and in
		// renders made before the release image is known.
		return fail("is the placeholder ://dummy: it names no OS image")
	case len(s) > maxPullSpec:
		return fail("is longer than any pull spec")
	case strings.TrimSpace(s) != s:
		return fail("has blanks around it: remove them")
	case hasTransport(s):
		return fail("starts with a transport: write REGISTRY/REPOSITORY@sha256:DIGEST alone")
	}
	var pin verdict.Digest
	if _, digest, pinned := strings.Cut(s, "@"); pinned {
		d, err := format.ParseDigest(digest)
		if err != nil {
			return fail("has a malformed digest: want @sha256: and 64 lower-case hexadecimal digits")
		}
		pin = d
	}
	named, err := reference.ParseNormalizedNamed(s)
	if err != nil {
		return fail("is not a pull spec: want REGISTRY/REPOSITORY@sha256:DIGEST")
	}
	// The library reads a short name as one of Docker Hub; podman and skopeo
	// on the node would search or refuse.
	if registry, _, _ := strings.Cut(s, "/"); registry == s || !strings.ContainsAny(registry, ".:") && registry != "localhost" {
		return fail("is a short name: put the registry in front, as in quay.io/" + shown(reference.FamiliarName(named)))
	}
	return pin, nil
}

// hasTransport recognises URLs and the transports of skopeo and rpm-ostree.
func hasTransport(s string) bool {
	if strings.Contains(s, "://") {
		return true
	}
	word, rest, found := strings.Cut(s, ":")
	if !found {
		return false
	}
	if port, _, _ := strings.Cut(rest, "/"); port != "" && strings.Trim(port, "0123456789") == "" {
		return false // a host and its port, or a tag of digits
	}
	switch word {
	case "docker", "registry", "oci", "oci-archive", "docker-archive", "docker-daemon", "dir", "containers-storage", "pivot":
		return true
	}
	return strings.HasPrefix(word, "ostree-")
}
