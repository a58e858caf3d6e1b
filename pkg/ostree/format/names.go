package format

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// Prefixes of the refs that ostree-ext writes for container images
// (ostree-ext store.rs).
const (
	BlobRefPrefix      = "ostree/container/blob/"
	ImageRefPrefix     = "ostree/container/image/"
	BaseImageRefPrefix = "ostree/container/baseimage/"
)

// EscapeRef renders s as a ref name the way ostree-ext does (refescape.rs):
// ASCII letters, digits and "-" stay, "/" stays after a letter or digit unless
// it is the last one, "_" is doubled, any other character becomes _XX_ with
// its code point in hexadecimal. An empty s, a NUL and bytes that are not
// UTF-8 have no escaped form.
func EscapeRef(s string) (string, error) {
	if s == "" || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return "", malformed("%q cannot be a ref", s)
	}
	var b strings.Builder
	previous := false
	for i, c := range s {
		current := alphanumeric(c)
		switch {
		case current || c == '-' || c == '/' && previous && i < len(s)-1:
			b.WriteRune(c)
		case c == '_':
			b.WriteString("__")
		default:
			fmt.Fprintf(&b, "_%02X_", c)
		}
		previous = current
	}
	return b.String(), nil
}

func alphanumeric(c rune) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// UnescapeRef undoes [EscapeRef]. A name that EscapeRef cannot have made is an
// error.
func UnescapeRef(ref string) (string, error) {
	var b strings.Builder
	for rest := ref; rest != ""; {
		c := rune(rest[0])
		switch {
		case alphanumeric(c) || c == '-' || c == '/':
			b.WriteRune(c)
			rest = rest[1:]
			continue
		case c != '_':
			return "", malformed("ref %q: unescaped %q", ref, c)
		}
		code, after, ok := strings.Cut(rest[1:], "_")
		if !ok {
			return "", malformed("ref %q: escape without an end", ref)
		}
		rest = after
		if code == "" {
			b.WriteByte('_')
			continue
		}
		n, err := strconv.ParseUint(code, 16, 21)
		if err != nil {
			return "", malformed("ref %q: bad escape", ref)
		}
		b.WriteRune(rune(n))
	}
	s := b.String()
	if again, err := EscapeRef(s); err != nil || again != ref {
		return "", malformed("ref %q is not in its one escaped form", ref)
	}
	return s, nil
}

// BlobRef is the ref under which the host's repository holds an image layer.
// An empty or malformed digest is an error.
func BlobRef(d verdict.Digest) (string, error) {
	if _, err := ParseDigest(string(d)); err != nil {
		return "", err
	}
	escaped, err := EscapeRef(string(d))
	return BlobRefPrefix + escaped, err
}

// ParseBlobRef returns the layer's digest of a blob ref; the ref is given
// with its prefix.
func ParseBlobRef(ref string) (verdict.Digest, error) {
	rest, ok := strings.CutPrefix(ref, BlobRefPrefix)
	if !ok {
		return "", malformed("ref %q is not below %s", ref, BlobRefPrefix)
	}
	s, err := UnescapeRef(rest)
	if err != nil {
		return "", err
	}
	return ParseDigest(s)
}

// ParseDigest checks that s is "sha256:" and 64 lower-case hexadecimal digits.
func ParseDigest(s string) (verdict.Digest, error) {
	hexadecimal, ok := strings.CutPrefix(s, "sha256:")
	if !ok {
		return "", malformed("digest that does not begin with sha256:")
	}
	if _, err := ParseChecksum(hexadecimal); err != nil {
		return "", err
	}
	return verdict.Digest(s), nil
}

// An ObjectType is the suffix of a loose object's file name.
type ObjectType string

// Object types that this program reads.
const (
	CommitObject  ObjectType = "commit"
	DirTreeObject ObjectType = "dirtree"
	DirMetaObject ObjectType = "dirmeta"
	FileObject    ObjectType = "file"  // content, in bare repositories
	FileZObject   ObjectType = "filez" // content, in archive repositories
)

// ObjectPath is the path of a loose object below the repository:
// objects/ab/cdef….commit.
func ObjectPath(c verdict.Checksum, t ObjectType) string {
	if len(c) < 2 {
		return "objects/" + string(c) + "." + string(t)
	}
	return "objects/" + string(c[:2]) + "/" + string(c[2:]) + "." + string(t)
}

// ParseDeploymentName splits the name of a deployment's folder,
// CHECKSUM.SERIAL.
func ParseDeploymentName(name string) (verdict.Checksum, int, error) {
	sum, serial, ok := strings.Cut(name, ".")
	if !ok {
		return "", 0, malformed("deployment name %q, want CHECKSUM.SERIAL", name)
	}
	c, err := ParseChecksum(sum)
	if err != nil {
		return "", 0, fmt.Errorf("deployment name %q: %w", name, err)
	}
	n, err := strconv.ParseUint(serial, 10, 31)
	if err != nil || n > math.MaxInt32 || strconv.FormatUint(n, 10) != serial {
		return "", 0, malformed("deployment name %q, want CHECKSUM.SERIAL", name)
	}
	return c, int(n), nil
}

// A BootLink is the value of the kernel argument ostree=, which names a
// deployment through a symbolic link.
type BootLink struct {
	// BootVersion is 0 or 1.
	BootVersion int
	Stateroot   string
	BootCsum    string
	// Index numbers the deployments that share BootCsum.
	Index int
}

// ParseBootLink decodes /ostree/boot.[01]/STATEROOT/BOOTCSUM/INDEX, the form
// of libostree's _ostree_sysroot_parse_bootlink.
func ParseBootLink(s string) (BootLink, error) {
	bad := func() (BootLink, error) {
		return BootLink{}, malformed("ostree=%s, want ostree=/ostree/boot.[01]/STATEROOT/BOOTCSUM/INDEX", s)
	}
	p := strings.Split(s, "/")
	if len(p) != 6 || p[0] != "" || p[1] != "ostree" {
		return bad()
	}
	var l BootLink
	switch p[2] {
	case "boot.0":
	case "boot.1":
		l.BootVersion = 1
	default:
		return bad()
	}
	l.Stateroot, l.BootCsum = p[3], p[4]
	if checkName(l.Stateroot) != nil || checkName(l.BootCsum) != nil {
		return bad()
	}
	n, err := strconv.ParseUint(p[5], 10, 31)
	if err != nil {
		return bad()
	}
	l.Index = int(n)
	return l, nil
}

// Path is the link's path below the physical root.
func (l BootLink) Path() string {
	return fmt.Sprintf("/ostree/boot.%d/%s/%s/%d", l.BootVersion, l.Stateroot, l.BootCsum, l.Index)
}
