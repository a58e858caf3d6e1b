package format

import (
	"strings"
)

// maxReference bounds a reference, in bytes.
const maxReference = 4096

// A SignatureSource says how ostree-ext checks an image before it deploys it.
type SignatureSource string

const (
	// ContainerPolicy obeys policy.json and refuses a default of
	// insecureAcceptAnything: ostree-image-signed.
	ContainerPolicy SignatureSource = "ostree-image-signed"
	// ContainerPolicyAllowInsecure obeys policy.json whatever it says:
	// ostree-unverified-image and ostree-unverified-registry.
	ContainerPolicyAllowInsecure SignatureSource = "ostree-unverified-image"
	// OstreeRemote checks the commit's signature with the key of a named
	// ostree remote: ostree-remote-image and ostree-remote-registry.
	OstreeRemote SignatureSource = "ostree-remote-image"
)

// A Transport is where an image comes from, in the spelling of
// containers-transports(5), except that docker is called registry.
type Transport string

// The transports that containers-image-proxy knows.
const (
	Registry          Transport = "registry"
	ContainersStorage Transport = "containers-storage"
	OCIDir            Transport = "oci"
	OCIArchive        Transport = "oci-archive"
	DockerArchive     Transport = "docker-archive"
	DockerDaemon      Transport = "docker-daemon"
	Dir               Transport = "dir"
)

// An ImageReference is the reference of an OS image together with the way to
// verify it, as the origin's container-image-reference holds it
// (ostree-ext's OstreeImageReference).
type ImageReference struct {
	Signature SignatureSource
	// Remote is the ostree remote, for [OstreeRemote] only.
	Remote    string
	Transport Transport
	// Name is what follows the transport: a pull spec or a path.
	Name string
}

// ParseImageReference decodes every spelling that ostree-ext accepts. Like
// ostree-ext it does not look inside the name, except that it is neither
// empty nor holds white space or control characters.
func ParseImageReference(s string) (ImageReference, error) {
	if len(s) > maxReference {
		return ImageReference{}, malformed("image reference longer than %d bytes", maxReference)
	}
	for _, c := range s {
		if c <= ' ' || c == 0x7f || c == '\uFFFD' {
			return ImageReference{}, malformed("image reference %q: white space or control character", s)
		}
	}
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok {
		return ImageReference{}, malformed("image reference %q: no scheme, want ostree-unverified-registry: or the like", s)
	}
	var r ImageReference
	registry := false
	switch scheme {
	case "ostree-image-signed":
		r.Signature = ContainerPolicy
	case "ostree-unverified-image":
		r.Signature = ContainerPolicyAllowInsecure
	case "ostree-unverified-registry":
		r.Signature, registry = ContainerPolicyAllowInsecure, true
	case "ostree-remote-image", "ostree-remote-registry":
		r.Signature, registry = OstreeRemote, scheme == "ostree-remote-registry"
		if r.Remote, rest, ok = strings.Cut(rest, ":"); !ok || r.Remote == "" {
			return ImageReference{}, malformed("image reference %q: no remote", s)
		}
	default:
		return ImageReference{}, malformed("image reference %q: unknown scheme %q", s, scheme)
	}
	if registry {
		r.Transport, r.Name = Registry, rest
	} else if r.Transport, r.Name, ok = cutTransport(rest); !ok {
		return ImageReference{}, malformed("image reference %q: unknown transport", s)
	}
	if r.Name == "" {
		return ImageReference{}, malformed("image reference %q: no image", s)
	}
	return r, nil
}

func cutTransport(s string) (Transport, string, bool) {
	transport, name, ok := strings.Cut(s, ":")
	if !ok {
		return "", "", false
	}
	switch t := Transport(transport); t {
	case "docker":
		name, ok = strings.CutPrefix(name, "//")
		return Registry, name, ok
	case Registry, ContainersStorage, OCIDir, OCIArchive, DockerArchive, DockerDaemon, Dir:
		return t, name, true
	}
	return "", "", false
}

// String returns the canonical form, that of ostree-ext.
func (r ImageReference) String() string {
	if r.Signature == ContainerPolicyAllowInsecure && r.Transport == Registry {
		return "ostree-unverified-registry:" + r.Name
	}
	var b strings.Builder
	b.WriteString(string(r.Signature) + ":")
	if r.Signature == OstreeRemote {
		b.WriteString(r.Remote + ":")
	}
	if r.Transport == Registry {
		b.WriteString("docker://")
	} else {
		b.WriteString(string(r.Transport) + ":")
	}
	return b.String() + r.Name
}

// PullSpec is what the machine-config-daemon compares with osImageURL:
// everything behind the transport, verbatim (imgref.Parse of
// rpmostree-client-go). For transports other than the registry it is a path.
func (r ImageReference) PullSpec() string { return r.Name }
