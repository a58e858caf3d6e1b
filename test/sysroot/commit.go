package sysroot

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// DefaultTimestamp is the time of a commit that names none.
const DefaultTimestamp = 1729051200 // 2024-10-16 04:00 UTC

// A CommitOptions says what a commit holds besides its tree.
type CommitOptions struct {
	// Repo is the repository; the sysroot's own where empty.
	Repo string
	// Ref is a branch to write; none where empty, as RHCOS has it.
	Ref string
	// Version is the metadata key version; absent where empty.
	Version string
	// Kernel is the metadata key ostree.linux; absent where empty.
	Kernel string
	// Timestamp is the commit's time in seconds since the epoch;
	// [DefaultTimestamp] where zero. Another one makes another commit of
	// the same tree: a rebuild.
	Timestamp int64
	// Parent is the parent commit; none where empty.
	Parent string
	// Packages become rpmostree.rpmdb.pkglist; absent where nil.
	Packages []Package
	// Metadata are further keys, each with a value in GVariant text form,
	// such as "'text'" or "true".
	Metadata map[string]string
}

// A Package is an installed package, as rpm-ostree stores it in a commit.
type Package struct {
	Name, Epoch, Version, Release, Arch string
	// Weight adds so many bytes to its header in an rpm database. Real headers
	// have some 50 KB, the most of it for file names.
	Weight int
}

// Packages makes a package list of realistic size and names: the kernel's,
// those that a node needs and n more. The kernel is a release such as
// [DefaultKernel].
func Packages(n int, kernel string) []Package {
	version, release, arch := splitKernel(kernel)
	var list []Package
	for _, name := range []string{"kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"} {
		list = append(list, Package{Name: name, Epoch: "0", Version: version, Release: release, Arch: arch})
	}
	list = append(list,
		Package{Name: "openshift-kubelet", Epoch: "0", Version: "4.16.0", Release: "202410152036.p0.g2d0e3f5.assembly.stream.el9", Arch: arch},
		Package{Name: "cri-o", Epoch: "0", Version: "1.29.9", Release: "5.rhaos4.16.git34690b4.el9", Arch: arch},
		Package{Name: "rpm-ostree", Epoch: "0", Version: "2024.3", Release: "3.el9_4", Arch: arch},
		Package{Name: "skopeo", Epoch: "2", Version: "1.14.5", Release: "3.rhaos4.16.el9", Arch: arch},
		Package{Name: "bash", Epoch: "0", Version: "5.1.8", Release: "9.el9", Arch: arch},
	)
	for i := range n {
		list = append(list, Package{
			Name: fmt.Sprintf("lib%s%d", string(rune('a'+i%26)), i), Epoch: strconv.Itoa(i % 3),
			Version: fmt.Sprintf("%d.%d.%d", i%7, i%13, i%17), Release: fmt.Sprintf("%d.el9_%d", i%23+1, i%5), Arch: arch,
		})
	}
	return list
}

// splitKernel splits "5.14.0-427.el9_4.x86_64" as rpm names it.
func splitKernel(kernel string) (version, release, arch string) {
	version, rest, _ := strings.Cut(kernel, "-")
	if i := strings.LastIndexByte(rest, '.'); i >= 0 {
		return version, rest[:i], rest[i+1:]
	}
	return version, rest, "noarch"
}

// Commit commits the folder dir and returns the commit's checksum. The owner
// of everything is root. A commit of equal folders and options is the same.
func (s *Sysroot) Commit(dir string, opts CommitOptions) (string, error) {
	if opts.Repo == "" {
		opts.Repo = s.Repo()
	}
	return Commit(dir, opts)
}

// CommitTree writes a tree below the sysroot's repository and commits it with
// the version and kernel of the tree, unless the options have others.
func (s *Sysroot) CommitTree(tree Tree, opts CommitOptions) (string, error) {
	dir, err := s.scratch("tree-")
	if err != nil {
		return "", err
	}
	defer Remove(dir)
	if err := tree.Write(dir); err != nil {
		return "", fmt.Errorf("writing the tree: %w", err)
	}
	if opts.Version == "" {
		opts.Version = tree.version()
	}
	if opts.Kernel == "" {
		opts.Kernel = tree.Kernel()
	}
	return s.Commit(dir, opts)
}

// Commit commits the folder dir to the repository that the options name.
func Commit(dir string, opts CommitOptions) (string, error) {
	args := []string{
		"commit", "--repo=" + opts.Repo, "--no-bindings", "--owner-uid=0", "--owner-gid=0",
		"--tree=dir=" + dir, "--add-metadata=ostree.bootable=true",
	}
	if opts.Ref == "" {
		args = append(args, "--orphan")
	} else {
		args = append(args, "--branch="+opts.Ref)
	}
	stamp := opts.Timestamp
	if stamp == 0 {
		stamp = DefaultTimestamp
	}
	// The tool parses this form whatever the time zone.
	args = append(args, "--timestamp="+time.Unix(stamp, 0).UTC().Format(time.RFC3339))
	if opts.Parent != "" {
		args = append(args, "--parent="+opts.Parent)
	}
	if opts.Version != "" {
		args = append(args, "--add-metadata-string=version="+opts.Version)
	}
	if opts.Kernel != "" {
		args = append(args, "--add-metadata-string=ostree.linux="+opts.Kernel)
	}
	if opts.Packages != nil {
		args = append(args, "--add-metadata=rpmostree.rpmdb.pkglist="+packageList(opts.Packages))
	}
	for _, k := range sortedKeys(opts.Metadata) {
		args = append(args, "--add-metadata="+k+"="+opts.Metadata[k])
	}
	return Ostree(args...)
}

// packageList is the text form of a(sssss).
func packageList(packages []Package) string {
	if len(packages) == 0 {
		return "@a(sssss) []"
	}
	items := make([]string, len(packages))
	for i, p := range packages {
		items[i] = fmt.Sprintf("('%s','%s','%s','%s','%s')", p.Name, p.Epoch, p.Version, p.Release, p.Arch)
	}
	return "[" + strings.Join(items, ",") + "]"
}
