package format

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/oneboot/oneboot/pkg/verdict"
)

// GVariant types of the metadata objects, from libostree's ostree-core.h.
const (
	commitType  = "(a{sv}aya(say)sstayay)"
	dirTreeType = "(a(say)a(sayay))"
	dirMetaType = "(uuua(ayay))"
)

// SumMetadata returns the checksum that names a metadata object (commit,
// dirtree, dirmeta): the SHA-256 of its bytes.
func SumMetadata(b []byte) verdict.Checksum {
	sum := sha256.Sum256(b)
	return verdict.Checksum(hex.EncodeToString(sum[:]))
}

// ParseChecksum checks that s is 64 lower-case hexadecimal digits.
func ParseChecksum(s string) (verdict.Checksum, error) {
	if len(s) != 2*sha256.Size {
		return "", malformed("checksum of %d characters, want %d", len(s), 2*sha256.Size)
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", malformed("checksum with a character other than 0-9 and a-f")
		}
	}
	return verdict.Checksum(s), nil
}

// A Commit is an ostree commit object.
type Commit struct {
	Metadata *Dict
	// Parent is the parent commit, "" where there is none.
	Parent        verdict.Checksum
	Subject, Body string
	// Timestamp is in seconds since the epoch.
	Timestamp uint64
	Root      verdict.Root
}

// ParseCommit decodes a commit object. It does not compare the checksum: see
// [SumMetadata].
func ParseCommit(b []byte) (*Commit, error) {
	fs, err := parseObject(commitType, b)
	if err != nil {
		return nil, err
	}
	c := &Commit{Timestamp: fs[5].uint64BE()}
	if c.Metadata, err = newDict(fs[0]); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	if len(fs[1].b) > 0 {
		if c.Parent, err = binaryChecksum("parent", fs[1].b); err != nil {
			return nil, err
		}
	}
	if c.Subject, err = fs[3].text(); err != nil {
		return nil, fmt.Errorf("subject: %w", err)
	}
	if c.Body, err = fs[4].text(); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	if c.Root.DirTree, err = binaryChecksum("root dirtree", fs[6].b); err != nil {
		return nil, err
	}
	if c.Root.DirMeta, err = binaryChecksum("root dirmeta", fs[7].b); err != nil {
		return nil, err
	}
	return c, nil
}

// ContentChecksum is what `ostree show` calls ContentChecksum: it depends on
// the root alone, not on metadata, parent or time
// (ostree_commit_get_content_checksum).
func (c *Commit) ContentChecksum() verdict.Checksum {
	h := sha256.New()
	for _, s := range []verdict.Checksum{c.Root.DirTree, c.Root.DirMeta} {
		b, err := hex.DecodeString(string(s))
		if err != nil {
			return ""
		}
		h.Write(b)
	}
	return verdict.Checksum(hex.EncodeToString(h.Sum(nil)))
}

// A DirTree is the listing of one directory, both lists sorted by name.
type DirTree struct {
	Files []FileEntry
	Dirs  []DirEntry
}

// A FileEntry is a file or symbolic link of a directory and the checksum of
// its content object.
type FileEntry struct {
	Name     string
	Checksum verdict.Checksum
}

// A DirEntry is a directory and the checksums of its own objects.
type DirEntry struct {
	Name string
	Root verdict.Root
}

// ParseDirTree decodes a dirtree object. Names that are not a single path
// element, not in order or not unique are errors.
func ParseDirTree(b []byte) (*DirTree, error) {
	top, err := parseObject(dirTreeType, b)
	if err != nil {
		return nil, err
	}
	t := &DirTree{}
	err = top[0].each(func(e value) error {
		fs, err := e.fields()
		if err != nil {
			return err
		}
		var f FileEntry
		if f.Name, err = fs[0].text(); err != nil {
			return err
		}
		if f.Checksum, err = binaryChecksum("file", fs[1].b); err != nil {
			return err
		}
		if n := len(t.Files); n >= maxElements || n > 0 && t.Files[n-1].Name >= f.Name {
			return malformed("file names out of order or too many")
		}
		t.Files = append(t.Files, f)
		return checkName(f.Name)
	})
	if err != nil {
		return nil, err
	}
	err = top[1].each(func(e value) error {
		fs, err := e.fields()
		if err != nil {
			return err
		}
		var d DirEntry
		if d.Name, err = fs[0].text(); err != nil {
			return err
		}
		if d.Root.DirTree, err = binaryChecksum("dirtree", fs[1].b); err != nil {
			return err
		}
		if d.Root.DirMeta, err = binaryChecksum("dirmeta", fs[2].b); err != nil {
			return err
		}
		if n := len(t.Dirs); n >= maxElements || n > 0 && t.Dirs[n-1].Name >= d.Name {
			return malformed("directory names out of order or too many")
		}
		t.Dirs = append(t.Dirs, d)
		return checkName(d.Name)
	})
	if err != nil {
		return nil, err
	}
	return t, t.checkOverlap()
}

// checkOverlap refuses a name that is both a file and a directory.
func (t *DirTree) checkOverlap() error {
	for i, j := 0, 0; i < len(t.Files) && j < len(t.Dirs); {
		switch strings.Compare(t.Files[i].Name, t.Dirs[j].Name) {
		case -1:
			i++
		case 1:
			j++
		default:
			return malformed("a name is both a file and a directory")
		}
	}
	return nil
}

func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, '/') {
		return malformed("%q is not a file name", name)
	}
	return nil
}

// A DirMeta holds owner, mode and extended attributes of a directory.
type DirMeta struct {
	UID, GID, Mode uint32
	Xattrs         []Xattr
}

// ParseDirMeta decodes a dirmeta object.
func ParseDirMeta(b []byte) (*DirMeta, error) {
	fs, err := parseObject(dirMetaType, b)
	if err != nil {
		return nil, err
	}
	m := &DirMeta{UID: fs[0].uint32BE(), GID: fs[1].uint32BE(), Mode: fs[2].uint32BE()}
	if m.Xattrs, err = parseXattrs(fs[3]); err != nil {
		return nil, err
	}
	const typeMask, directory = 0o170000, 0o040000
	if m.Mode&typeMask != directory || m.Mode&^(typeMask|0o7777) != 0 {
		return nil, malformed("mode %o is not that of a directory", m.Mode)
	}
	return m, nil
}

// parseObject checks size and normal form and splits the object's tuple.
func parseObject(typ string, b []byte) ([]value, error) {
	if len(b) > MaxObjectSize {
		return nil, malformed("%d bytes, over the limit of %d", len(b), MaxObjectSize)
	}
	v := value{typ, b}
	if err := v.validate(); err != nil {
		return nil, err
	}
	return v.fields()
}

func binaryChecksum(field string, b []byte) (verdict.Checksum, error) {
	if len(b) != sha256.Size {
		return "", malformed("%s: checksum of %d bytes, want %d", field, len(b), sha256.Size)
	}
	return verdict.Checksum(hex.EncodeToString(b)), nil
}
