package sysroot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// DefaultKernel is the kernel release of a [Tree] that names none.
const DefaultKernel = "5.14.0-427.35.1.el9_4.x86_64"

// DefaultVersion is the OS version of a [Tree] that names none.
const DefaultVersion = "416.94.202410160352-0"

// FillerDir holds the filler of a tree, below its root. A live root gets no
// copy of it.
const FillerDir = "usr/share/filler"

// A Tree describes a small but realistic OS tree. The zero value is a tree
// with a kernel, an initramfs, a kubelet, CRI-O and a shell. Two equal values
// make identical trees.
type Tree struct {
	// Kernels are the kernel releases in usr/lib/modules; [DefaultKernel]
	// alone where there are none. Only the first has a kernel image: ostree
	// does not deploy a tree with two.
	Kernels []string
	// Version goes into os-release; [DefaultVersion] where empty.
	Version string
	// Packages are those in the rpm database at [RPMDatabasePath]; no
	// database where nil.
	Packages []Package
	// Files are further files by path below the root; they replace those
	// that the tree has anyway. "etc" lives in usr/etc.
	Files map[string]File
	// Without lists paths to leave out, such as "usr/bin/kubelet".
	Without []string
	// FillerBytes is the size of incompressible content to add, in bytes.
	FillerBytes int64
	// FillerSeed makes another filler of the same size.
	FillerSeed uint64
}

// A File is a regular file or a symbolic link of a [Tree].
type File struct {
	Content string
	// Mode holds the permission bits; 0644 where zero.
	Mode fs.FileMode
	// Link makes the file a symbolic link to this target.
	Link string
	// Xattrs are extended attributes by name, such as "user.test".
	Xattrs map[string]string
}

// Kernel is the release of the kernel that a deployment of the tree boots.
func (t Tree) Kernel() string {
	if len(t.Kernels) == 0 {
		return DefaultKernel
	}
	return t.Kernels[0]
}

func (t Tree) version() string {
	if t.Version == "" {
		return DefaultVersion
	}
	return t.Version
}

// Write makes the tree in dir, which it creates. Programs in it are copies of
// /bin/true, so they are small executables of the host's architecture.
func (t Tree) Write(dir string) error {
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		return fmt.Errorf("reading a program to copy: %w", err)
	}
	for _, d := range []string{
		"boot", "dev", "proc", "run", "sys", "sysroot", "tmp", "var",
		"usr/bin", "usr/etc", "usr/lib/modules", "usr/share",
	} {
		if err := makeDirs(dir, d); err != nil {
			return err
		}
	}
	// Of a folder made for a test, only its owner may read.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	files := t.standardFiles(string(program))
	if t.Packages != nil {
		database, err := rpmDatabaseFiles(t.Packages)
		if err != nil {
			return err
		}
		maps.Copy(files, database)
	}
	for p, f := range t.Files {
		files[p] = f
	}
	for _, p := range t.Without {
		delete(files, p)
	}
	for p, f := range files {
		if err := writeFile(dir, p, f); err != nil {
			return err
		}
	}
	return t.writeFiller(dir)
}

func (t Tree) standardFiles(program string) map[string]File {
	kernels := t.Kernels
	if len(kernels) == 0 {
		kernels = []string{DefaultKernel}
	}
	files := map[string]File{
		// What follows an executable's sections is not loaded: it makes
		// the three differ, as real ones do.
		"usr/bin/bash":    {Content: program + "bash", Mode: 0o755},
		"usr/bin/kubelet": {Content: program + "kubelet", Mode: 0o755},
		"usr/bin/crio":    {Content: program + "crio", Mode: 0o755},
		"usr/bin/sh":      {Link: "bash"},
		"bin":             {Link: "usr/bin"},
		"lib":             {Link: "usr/lib"},
		"home":            {Link: "var/home"},
		"root":            {Link: "var/roothome"},
		"ostree":          {Link: "sysroot/ostree"},

		"usr/etc/os-release": {Link: "../usr/lib/os-release"},
		"usr/etc/passwd":     {Content: "root:x:0:0:root:/root:/bin/bash\n"},
		"usr/etc/shadow":     {Content: "root:!locked::0:99999:7:::\n", Mode: 0o600},
		"usr/etc/motd":       {},
		"usr/lib/os-release": {Content: osRelease(t.version())},
		"usr/share/empty":    {},
	}
	for i, k := range kernels {
		for name, f := range kernelFiles(k) {
			if i == 0 || path.Base(name) == "modules.dep" {
				files[name] = f
			}
		}
	}
	return files
}

// kernelFiles are the files of a kernel release.
func kernelFiles(release string) map[string]File {
	dir := "usr/lib/modules/" + release
	return map[string]File{
		dir + "/modules.dep":   {Content: "kernel/fs/ext4/ext4.ko.xz:\n"},
		dir + "/vmlinuz":       {Content: "kernel " + release + "\n", Mode: 0o755},
		dir + "/initramfs.img": {Content: "initramfs of " + release + "\n", Mode: 0o600},
	}
}

// osRelease is the text of a RHCOS os-release file, as far as programs read it.
func osRelease(version string) string {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return fmt.Sprintf(`NAME="Red Hat Enterprise Linux CoreOS"
ID="rhcos"
ID_LIKE="rhel fedora"
VERSION="%[1]s"
VERSION_ID="4.16"
VARIANT="CoreOS"
VARIANT_ID=coreos
PLATFORM_ID="platform:el9"
PRETTY_NAME="Red Hat Enterprise Linux CoreOS %[1]s"
RHEL_VERSION=9.4
OSTREE_VERSION="%[1]s"
BUILD_STREAM=%[2]s.%[3]s
`, version, major, minor)
}

// writeFiller writes FillerBytes of content that no compression makes smaller.
func (t Tree) writeFiller(dir string) error {
	const most = 4 << 20
	if t.FillerBytes == 0 {
		return nil
	}
	if err := makeDirs(dir, FillerDir); err != nil {
		return err
	}
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], t.FillerSeed)
	random := rand.NewChaCha8(seed)
	for i, left := 0, t.FillerBytes; left > 0; i++ {
		size := min(left, most)
		left -= size
		name := filepath.Join(dir, FillerDir, fmt.Sprintf("%05d", i))
		if err := writeFrom(name, io.LimitReader(random, size)); err != nil {
			return err
		}
	}
	return nil
}

func writeFrom(name string, r io.Reader) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, r); err != nil {
		return err
	}
	return f.Chmod(0o644)
}

// makeDirs makes path below dir with mode 0755 whatever the umask.
func makeDirs(dir, path string) error {
	at := dir
	parts := append([]string{""}, strings.Split(filepath.Clean(path), "/")...)
	for _, p := range parts {
		at = filepath.Join(at, p)
		err := os.Mkdir(at, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.Chmod(at, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(dir, path string, f File) error {
	if err := makeDirs(dir, filepath.Dir(path)); err != nil {
		return err
	}
	name := filepath.Join(dir, path)
	if f.Link != "" {
		return os.Symlink(f.Link, name)
	}
	mode := f.Mode
	if mode == 0 {
		mode = 0o644
	}
	if err := os.WriteFile(name, []byte(f.Content), mode); err != nil {
		return err
	}
	if err := os.Chmod(name, mode); err != nil {
		return err
	}
	return setXattrs(name, f.Xattrs)
}

// sortedKeys returns a map's keys in order.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
