package nativeimage

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const repoPath = "sysroot/ostree/repo"

// repoConfig is what the exporter writes as the repository's config.
const repoConfig = "[core]\nrepo_version=1\nmode=bare-split-xattrs\n"

// A layerWriter writes the tar stream of an ostree layer.
type layerWriter struct {
	*tar.Writer
	repo           string
	hardlinkXattrs bool
	wrote          map[string]bool // objects by path
}

func newLayerWriter(w io.Writer, repo string, hardlinkXattrs bool) *layerWriter {
	return &layerWriter{tar.NewWriter(w), repo, hardlinkXattrs, map[string]bool{}}
}

func (w *layerWriter) header(h tar.Header) error {
	// Every entry of the format has the time zero.
	h.ModTime = time.Unix(0, 0)
	h.Format = tar.FormatGNU
	return w.WriteHeader(&h)
}

func (w *layerWriter) dir(name string, mode int64, uid, gid int) error {
	return w.header(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode & 0o7777, Uid: uid, Gid: gid})
}

func (w *layerWriter) file(name string, mode int64, data []byte) error {
	if err := w.header(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// structure writes the empty repository that every ostree layer starts with.
func (w *layerWriter) structure() error {
	dirs := []string{".", "sysroot", "sysroot/ostree", repoPath, repoPath + "/objects"}
	for i := range 256 {
		dirs = append(dirs, fmt.Sprintf("%s/objects/%02x", repoPath, i))
	}
	for _, d := range []string{"extensions", "refs", "refs/heads", "refs/mirrors", "refs/remotes", "state", "tmp", "tmp/cache"} {
		dirs = append(dirs, repoPath+"/"+d)
	}
	for _, d := range dirs {
		if err := w.dir(d, 0o755, 0, 0); err != nil {
			return err
		}
	}
	return w.file(repoPath+"/config", 0o644, []byte(repoConfig))
}

// metadata writes a commit, dirtree or dirmeta object once.
func (w *layerWriter) metadata(checksum, kind string) error {
	name := repoPath + "/" + objectFile(checksum, kind)
	if w.wrote[name] {
		return nil
	}
	w.wrote[name] = true
	data, err := os.ReadFile(filepath.Join(w.repo, objectFile(checksum, kind)))
	if err != nil {
		return err
	}
	return w.file(name, 0o644, data)
}

// content writes a content object once, after its extended attributes.
func (w *layerWriter) content(e entry) error {
	name := repoPath + "/" + objectFile(e.checksum, "file")
	if w.wrote[name] {
		return nil
	}
	w.wrote[name] = true
	if err := w.xattrs(e.checksum); err != nil {
		return err
	}
	h := tar.Header{Name: name, Mode: e.mode & 0o7777, Uid: e.uid, Gid: e.gid}
	if e.kind == 'l' {
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.target
		return w.header(h)
	}
	h.Typeflag, h.Size = tar.TypeReg, e.size
	if err := w.header(h); err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(w.repo, objectFile(e.checksum, "file")))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// xattrs writes what must precede a content object: its extended attributes,
// as a file or as a hard link to an object shared by all that have the same.
func (w *layerWriter) xattrs(checksum string) error {
	data, err := xattrsOf(w.repo, checksum)
	if err != nil {
		return err
	}
	link := repoPath + "/" + objectFile(checksum, "file-xattrs-link")
	if !w.hardlinkXattrs {
		return w.file(link, 0o644, data)
	}
	shared := repoPath + "/" + objectFile(digestOf(data)[len("sha256:"):], "file-xattrs")
	if !w.wrote[shared] {
		w.wrote[shared] = true
		if err := w.file(shared, 0o644, data); err != nil {
			return err
		}
	}
	return w.header(tar.Header{Typeflag: tar.TypeLink, Name: link, Linkname: shared, Mode: 0o644})
}

// path writes the working tree's name of a content object: a hard link to it,
// or a plain file where it is empty.
func (w *layerWriter) path(e entry) error {
	h := tar.Header{Name: workingPath(e.path), Mode: e.mode & 0o7777, Uid: e.uid, Gid: e.gid, Typeflag: tar.TypeReg}
	if e.size > 0 || e.kind == 'l' {
		h.Typeflag, h.Linkname = tar.TypeLink, repoPath+"/"+objectFile(e.checksum, "file")
	}
	return w.header(h)
}

// workingPath is where a path of the commit is in the image's own tree.
func workingPath(path string) string {
	path = strings.TrimPrefix(path, "/")
	if path == "usr/etc" || strings.HasPrefix(path, "usr/etc/") {
		path = strings.TrimPrefix(path, "usr/")
	}
	return "./" + path
}

// commitLayer writes the first layer: the commit, all its metadata, the folders
// of the working tree, and the content that is in no chunk.
func (w *layerWriter) commitLayer(commit string, entries []entry, inChunk map[string]bool) error {
	if err := w.structure(); err != nil {
		return err
	}
	if err := w.metadata(commit, "commit"); err != nil {
		return err
	}
	if hasObject(w.repo, commit, "commitmeta") {
		if err := w.metadata(commit, "commitmeta"); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if e.kind != 'd' {
			if inChunk[e.checksum] {
				continue
			}
			if err := w.content(e); err != nil {
				return err
			}
			if err := w.path(e); err != nil {
				return err
			}
			continue
		}
		if err := w.metadata(e.dirmeta, "dirmeta"); err != nil {
			return err
		}
		if err := w.metadata(e.checksum, "dirtree"); err != nil {
			return err
		}
		if e.path == "/" || e.path == "/sysroot" {
			continue // the structure has them
		}
		if err := w.dir(workingPath(e.path), e.mode, e.uid, e.gid); err != nil {
			return err
		}
	}
	return w.Close()
}

// chunkLayer writes a later layer: content objects and their names, and no
// metadata.
func (w *layerWriter) chunkLayer(entries []entry, chunk map[string]bool) error {
	if err := w.structure(); err != nil {
		return err
	}
	for _, e := range entries {
		if e.kind == 'd' || !chunk[e.checksum] {
			continue
		}
		if err := w.content(e); err != nil {
			return err
		}
		if err := w.path(e); err != nil {
			return err
		}
	}
	return w.Close()
}

// writeFiles writes a plain layer of files, symbolic links and whiteouts.
func writeFiles(w io.Writer, d DerivedLayer) error {
	t := &layerWriter{Writer: tar.NewWriter(w), wrote: map[string]bool{}}
	for _, name := range d.paths() {
		if err := t.parents(name); err != nil {
			return err
		}
		f := d.Files[name]
		mode := int64(f.Mode.Perm())
		if mode == 0 {
			mode = 0o644
		}
		if f.Link != "" {
			if err := t.header(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: f.Link, Mode: 0o777}); err != nil {
				return err
			}
			continue
		}
		if err := t.header(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(f.Content))}); err != nil {
			return err
		}
		if _, err := io.Copy(t, bytes.NewReader([]byte(f.Content))); err != nil {
			return err
		}
	}
	return t.Close()
}

// parents writes the folders above a path once.
func (w *layerWriter) parents(name string) error {
	parts := strings.Split(filepath.Dir(name), "/")
	for i := range parts {
		dir := strings.Join(parts[:i+1], "/")
		if dir == "." || w.wrote[dir] {
			continue
		}
		w.wrote[dir] = true
		if err := w.dir(dir, 0o755, 0, 0); err != nil {
			return err
		}
	}
	return nil
}
