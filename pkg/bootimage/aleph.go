package bootimage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/oneboot/oneboot/pkg/hostfs"
)

// maxAleph bounds an aleph file; those with an image's labels have some 4 KiB.
const maxAleph = 1 << 20

// An AlephForm is a generation of the aleph file.
type AlephForm string

// The forms of aleph files.
const (
	// AlephCosa is that of coreos-assembler's create_disk.sh, 2019 to 2024.
	AlephCosa AlephForm = "cosa"
	// AlephOSBuild is that of osbuild's stage org.osbuild.ostree.aleph.
	AlephOSBuild AlephForm = "osbuild"
	// AlephBootc is that of bootc install (crates/lib/src/install/aleph.rs);
	// with an image's digest and labels since 2026.
	AlephBootc AlephForm = "bootc"
)

// An Aleph says what was installed on a disk. After the first update something
// else is booted: it proves nothing.
type Aleph struct {
	Form AlephForm
	// Version is that of the OS that was installed; empty where the file has none.
	Version string
	// Ref is the ostree ref or the image that was installed, as it is written,
	// without osbuild's misplaced docker://; empty where the file names none but
	// a temporary file of the build.
	Ref string
	// Commit is the ostree commit, of an image the one in it.
	Commit string
	// ConfigDigest is the digest of the image's config, which osbuild writes;
	// ManifestDigest is that of its manifest, which bootc does.
	ConfigDigest, ManifestDigest string
	// Stream is the stream that the image's labels name.
	Stream string
	// Kernel is the release of the kernel, which bootc writes.
	Kernel string
}

// alephFile has the keys of all forms.
type alephFile struct {
	Build     string `json:"build"`
	ImageID   string `json:"imgid"`
	Ref       string `json:"ref"`
	Version   string `json:"version"`
	Commit    string `json:"ostree-commit"`
	OSBuild   string `json:"osbuild-version"`
	Container *struct {
		Name   string            `json:"image-name"`
		Digest string            `json:"image-digest"`
		Labels map[string]string `json:"image-labels"`
	} `json:"container-image"`
	Image       string            `json:"image"`
	TargetImage string            `json:"target-image"`
	Digest      string            `json:"digest"`
	Labels      map[string]string `json:"labels"`
	Kernel      string            `json:"kernel"`
	SELinux     *string           `json:"selinux"`
}

// ParseAleph reads an aleph file of any form. Values that are not what they
// should be, such as a digest that is none, are left out.
func ParseAleph(b []byte) (*Aleph, error) {
	if len(b) > maxAleph {
		return nil, fmt.Errorf("parsing aleph file: it has %d bytes, more than %d", len(b), maxAleph)
	}
	if err := checkJSON(b); err != nil {
		return nil, fmt.Errorf("parsing aleph file: %w", err)
	}
	var f alephFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("parsing aleph file: %w", err)
	}
	a := &Aleph{Version: f.Version, Kernel: f.Kernel, Ref: ref(f.Ref), Stream: streamLabel(f.Labels)}
	if isSHA256(f.Commit) {
		a.Commit = f.Commit
	}
	switch {
	case f.SELinux != nil, f.Digest != "", f.TargetImage != "":
		a.Form = AlephBootc
		a.Ref = ref(f.TargetImage)
		if a.Ref == "" {
			a.Ref = ref(f.Image)
		}
		a.ManifestDigest = digest(f.Digest)
	case f.Build != "", f.ImageID != "":
		a.Form = AlephCosa
		if a.Version == "" {
			a.Version = f.Build
		}
	case f.OSBuild != "", f.Container != nil, f.Version != "", f.Ref != "":
		a.Form = AlephOSBuild
		if c := f.Container; c != nil {
			a.ConfigDigest, a.Stream = digest(c.Digest), streamLabel(c.Labels)
		}
	default:
		return nil, errors.New("parsing aleph file: it has none of the keys of an aleph file")
	}
	return a, nil
}

// ref is what an installation was made from; a path is a file that is gone.
func ref(s string) string {
	s = strings.TrimPrefix(s, "docker://")
	if s == "None" || strings.HasPrefix(s, "/") {
		return ""
	}
	return s
}

func digest(s string) string {
	if hex, ok := strings.CutPrefix(s, "sha256:"); ok && isSHA256(hex) {
		return s
	}
	return ""
}

// streamLabel is the stream in an image's labels: Fedora CoreOS has moved it.
func streamLabel(labels map[string]string) string {
	if s := labels["com.coreos.stream"]; s != "" {
		return s
	}
	return labels["fedora-coreos.stream"]
}

// AlephPaths are where an aleph file lies, the usual name first; others may be
// links to it. A disk that is not running has its physical root at /.
func AlephPaths() []string {
	var out []string
	for _, dir := range []string{"/sysroot/", "/"} {
		for _, name := range []string{".coreos-aleph-version.json", ".aleph-version.json", ".bootc-aleph.json"} {
			out = append(out, dir+name)
		}
	}
	return out
}

// ReadAleph reads a host's aleph file and says where it is. Without one, and
// where there is only a link to nothing, the answer is nil.
func ReadAleph(root *hostfs.Root) (*Aleph, string, error) {
	for _, name := range AlephPaths() {
		b, err := root.ReadFile(name, maxAleph)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, hostfs.ErrDangling) {
			continue
		}
		if err != nil {
			return nil, name, fmt.Errorf("reading aleph file: %w", err)
		}
		a, err := ParseAleph(b)
		if err != nil {
			return nil, name, fmt.Errorf("%s: %w", name, err)
		}
		return a, name, nil
	}
	return nil, "", nil
}
