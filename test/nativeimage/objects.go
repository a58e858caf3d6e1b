package nativeimage

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/test/sysroot"
)

// An entry is a path in a commit, as `ostree ls` shows it.
type entry struct {
	path     string // absolute
	kind     byte   // d, l or -
	mode     int64
	uid, gid int
	size     int64
	checksum string // of the content object, or of the dirtree
	dirmeta  string // of a folder
	target   string // of a symbolic link
}

var listLine = regexp.MustCompile(`^([dl-])([0-7]{5}) (\d+) (\d+) +(\d+) ([0-9a-f]{64})(?: ([0-9a-f]{64}))? (/.*)$`)

// listCommit lists all paths of a commit, each folder before what it holds.
func listCommit(repo, commit string) ([]entry, error) {
	out, err := sysroot.Ostree("ls", "--repo="+repo, "-RC", commit)
	if err != nil {
		return nil, err
	}
	var all []entry
	for line := range strings.Lines(out) {
		m := listLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			return nil, fmt.Errorf("listing %s: line %q", commit, line)
		}
		e := entry{kind: m[1][0], checksum: m[6], dirmeta: m[7], path: m[8]}
		// The expression lets digits only through.
		e.mode, _ = strconv.ParseInt(m[2], 8, 64)
		e.uid, _ = strconv.Atoi(m[3])
		e.gid, _ = strconv.Atoi(m[4])
		e.size, _ = strconv.ParseInt(m[5], 10, 64)
		if e.kind == 'l' {
			e.path, e.target, _ = strings.Cut(e.path, " -> ")
		}
		all = append(all, e)
	}
	return all, nil
}

// objectFile is the path of a loose object below a repository.
func objectFile(checksum, kind string) string {
	return "objects/" + checksum[:2] + "/" + checksum[2:] + "." + kind
}

// xattrsOf returns the extended attributes of a content object of a bare
// repository, as ostree serializes them: the GVariant a(ayay), sorted by name.
func xattrsOf(repo, checksum string) ([]byte, error) {
	file := filepath.Join(repo, objectFile(checksum, "file"))
	list := make([]byte, 64<<10)
	n, err := unix.Llistxattr(file, list)
	if err != nil {
		return nil, fmt.Errorf("listing the attributes of %s: %w", file, err)
	}
	names := strings.FieldsFunc(string(list[:n]), func(r rune) bool { return r == 0 })
	slices.Sort(names)
	var pairs [][]byte
	for _, name := range names {
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(file, name, value)
		if err != nil {
			return nil, fmt.Errorf("reading attribute %s of %s: %w", name, file, err)
		}
		pairs = append(pairs, variantPair([]byte(name+"\x00"), value[:n]))
	}
	return variantArray(pairs), nil
}

// variantPair serializes (ayay): both members, then where the first one ends.
func variantPair(a, b []byte) []byte {
	data := append(slices.Clone(a), b...)
	return appendOffsets(data, []int{len(a)})
}

// variantArray serializes an array of elements without a fixed size: the
// elements, then where each one ends.
func variantArray(elements [][]byte) []byte {
	var data []byte
	var ends []int
	for _, e := range elements {
		data = append(data, e...)
		ends = append(ends, len(data))
	}
	return appendOffsets(data, ends)
}

// appendOffsets appends little-endian framing offsets, as wide as the size of
// the whole asks for.
func appendOffsets(data []byte, offsets []int) []byte {
	width := 1
	for len(data)+width*len(offsets) >= 1<<(8*width) {
		width *= 2
	}
	for _, o := range offsets {
		for i := range width {
			data = append(data, byte(o>>(8*i)))
		}
	}
	return data
}

// metadataString reads a string or boolean of the commit's metadata as text;
// it is empty where the commit has no such key.
func metadataString(repo, commit, key string) string {
	out, err := sysroot.Ostree("show", "--repo="+repo, "--print-metadata-key="+key, commit)
	if err != nil {
		return ""
	}
	return strings.Trim(out, "'")
}

// commitTime reads the commit's own time in seconds since the epoch from the
// raw form: ({metadata}, parent, related, subject, body, uint64 TIME, ...).
func commitTime(repo, commit string) (int64, error) {
	out, err := sysroot.Ostree("show", "--repo="+repo, "--raw", commit)
	if err != nil {
		return 0, err
	}
	i := strings.LastIndex(out, "uint64 ")
	if i < 0 {
		return 0, fmt.Errorf("reading the time of %s: none shown", commit)
	}
	digits, _, _ := strings.Cut(out[i+len("uint64 "):], ",")
	return strconv.ParseInt(digits, 10, 64)
}

// hasObject reports whether a repository has a loose object.
func hasObject(repo, checksum, kind string) bool {
	_, err := os.Stat(filepath.Join(repo, objectFile(checksum, kind)))
	return err == nil
}
