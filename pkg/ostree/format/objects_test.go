package format_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// The files in testdata were written by ostree 2022.7.
func testdata(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseCommit(t *testing.T) {
	c, err := format.ParseCommit(testdata(t, "metadata.commit"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Subject != "subject" || c.Body != "body\n" && c.Body != "body" || c.Timestamp != 1700000000 || c.Parent != "" {
		t.Errorf("got %+v", c)
	}
	if diff := cmp.Diff([]string{"version", "flag", "rpmostree.rpmdb.pkglist", "odd", "ostree.ref-binding"}, c.Metadata.Keys()); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	if got := c.Metadata.Type("odd"); got != "(qa{sv}msaa{sv})" {
		t.Errorf("type: got %s", got)
	}
	if l, ok, err := c.Metadata.Strings("ostree.ref-binding"); !ok || err != nil || !cmp.Equal(l, []string{"x"}) {
		t.Errorf("ref binding: got %v, %v, %v", l, ok, err)
	}
	child, err := format.ParseCommit(testdata(t, "parent.commit"))
	if err != nil || child.Parent != format.SumMetadata(testdata(t, "metadata.commit")) || child.Timestamp != 1700000001 {
		t.Errorf("got %+v, %v", child, err)
	}
}

func TestParseDirMeta(t *testing.T) {
	m, err := format.ParseDirMeta(testdata(t, "0.dirmeta"))
	if err != nil || m.UID != 0 || m.GID != 0 || m.Mode != 0o040755 || len(m.Xattrs) != 0 {
		t.Errorf("got %+v, %v", m, err)
	}
	m, err = format.ParseDirMeta(testdata(t, "xattrs.dirmeta"))
	if err != nil || len(m.Xattrs) != 2 || m.Xattrs[1].Name != "user.x" || string(m.Xattrs[1].Value) != "hello" || len(m.Xattrs[0].Value) != 100 {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestParseArchiveFileHeader(t *testing.T) {
	h, err := format.ParseArchiveFileHeader(testdata(t, "link.header"))
	if err != nil || h.Target != "usr/lib" || h.Mode != 0o120777 || h.Size != 0 {
		t.Errorf("got %+v, %v", h, err)
	}
	h, err = format.ParseArchiveFileHeader(testdata(t, "file.header"))
	if err != nil || h.Target != "" || h.Mode != 0o100644 || h.Size != 43 {
		t.Errorf("got %+v, %v", h, err)
	}
}

// Every proper prefix is malformed, and so is an object of another type.
func TestTruncatedObjects(t *testing.T) {
	parsers := map[string]func([]byte) error{
		".commit":  func(b []byte) error { _, err := format.ParseCommit(b); return err },
		".dirtree": func(b []byte) error { _, err := format.ParseDirTree(b); return err },
		".dirmeta": func(b []byte) error { _, err := format.ParseDirMeta(b); return err },
		".header":  func(b []byte) error { _, err := format.ParseArchiveFileHeader(b); return err },
	}
	files, err := filepath.Glob("testdata/*.*")
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		b := testdata(t, filepath.Base(file))
		for kind, parse := range parsers {
			if err := parse(b); (err == nil) != (kind == filepath.Ext(file)) {
				t.Errorf("%s read as %s: got %v", file, kind, err)
			}
		}
		parse := parsers[filepath.Ext(file)]
		for i := range b {
			// An empty tuple of empty arrays may be a prefix of another.
			if err := parse(b[:i]); err != nil && !errors.Is(err, format.ErrMalformed) {
				t.Errorf("%s cut at %d: got %v, want malformed", file, i, err)
			}
			if filepath.Ext(file) == ".commit" && parse(b[:i]) == nil {
				t.Errorf("%s cut at %d is read", file, i)
			}
		}
	}
}

func TestParseDirTreeNames(t *testing.T) {
	good := testdata(t, "0.dirtree")
	tree, err := format.ParseDirTree(good)
	if err != nil || len(tree.Files)+len(tree.Dirs) < 2 {
		t.Fatalf("got %+v, %v", tree, err)
	}
	var name string
	if len(tree.Files) > 0 {
		name = tree.Files[0].Name
	} else {
		name = tree.Dirs[0].Name
	}
	for _, bad := range []string{strings.Repeat("/", len(name)), "." + strings.Repeat("/", len(name)-1), strings.Repeat("\xff", len(name)), strings.Repeat("~", len(name))} {
		b := replace(good, []byte(name+"\x00"), []byte(bad+"\x00"))
		if got, err := format.ParseDirTree(b); !errors.Is(err, format.ErrMalformed) {
			t.Errorf("%q for %q: got %+v, %v; want malformed", bad, name, got, err)
		}
	}
}

func TestSumMetadata(t *testing.T) {
	if got := format.SumMetadata(nil); got != "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" {
		t.Errorf("got %s", got)
	}
	if got := format.ObjectPath("abcd", format.CommitObject); got != "objects/ab/cd.commit" {
		t.Errorf("got %s", got)
	}
}

func FuzzParseCommit(f *testing.F) {
	f.Add(testdata(f, "metadata.commit"))
	f.Add(testdata(f, "parent.commit"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := format.ParseCommit(b)
		if err != nil {
			if !errors.Is(err, format.ErrMalformed) {
				t.Errorf("got %v, want malformed", err)
			}
			return
		}
		if _, err := format.ParseChecksum(string(c.Root.DirTree)); err != nil {
			t.Error(err)
		}
		readAll(t, c.Metadata)
	})
}

// readAll reads every key of a validated table as its own type: that never
// fails, except for what was there twice.
func readAll(t *testing.T, d *format.Dict) {
	t.Helper()
	for _, key := range d.Keys() {
		var err error
		switch d.Type(key) {
		case "s":
			_, _, err = d.String(key)
		case "b":
			_, _, err = d.Bool(key)
		case "u":
			_, _, err = d.Uint32(key)
		case "as":
			_, _, err = d.Strings(key)
		case "ay":
			_, _, err = d.Bytes(key)
		case "(tt)":
			_, _, err = d.Uint64Pair(key)
		case "a(sssss)":
			_, _, err = d.Packages(key)
		case "av":
			// Of any elements: those of another type are an error, no more.
			_, _, _ = d.RemovedPackages(key)
		case "a{sv}":
			var inner *format.Dict
			if inner, _, err = d.Dict(key); err == nil {
				readAll(t, inner)
			}
		}
		if err != nil && !strings.Contains(err.Error(), "more than once") {
			t.Errorf("key %q of type %s: %v", key, d.Type(key), err)
		}
	}
}

func FuzzParseDict(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("k\x00\x00\x00\x00\x00\x00\x00v\x00\x00s\x02\x0d"))
	f.Add(testdata(f, "metadata.commit"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := format.ParseDict(b); err == nil {
			readAll(t, d)
		}
	})
}

func FuzzParseDirTree(f *testing.F) {
	for _, name := range []string{"0.dirtree", "1.dirtree", "2.dirtree", "3.dirtree"} {
		f.Add(testdata(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		tree, err := format.ParseDirTree(b)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, e := range tree.Files {
			seen[e.Name] = true
		}
		for _, e := range tree.Dirs {
			if seen[e.Name] || strings.Contains(e.Name, "/") {
				t.Errorf("name %q", e.Name)
			}
		}
	})
}

func FuzzParseDirMeta(f *testing.F) {
	f.Add(testdata(f, "0.dirmeta"))
	f.Add(testdata(f, "xattrs.dirmeta"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := format.ParseDirMeta(b); err == nil && m.Mode&0o170000 != 0o040000 {
			t.Errorf("mode %o", m.Mode)
		}
	})
}

func FuzzParseUserMeta(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x81\xa4"))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x81\xa4user.a\x00first\x07\x0d"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := format.ParseUserMeta(b)
		if err == nil && len(h.Bytes()) < len(b) {
			t.Errorf("%d bytes of header from %d", len(h.Bytes()), len(b))
		}
	})
}

func FuzzParseArchiveFileHeader(f *testing.F) {
	f.Add(testdata(f, "link.header"))
	f.Add(testdata(f, "file.header"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := format.ParseArchiveFileHeader(b); err == nil && strings.Contains(h.Target, "\x00") {
			t.Errorf("target %q", h.Target)
		}
	})
}

func FuzzParseOrigin(f *testing.F) {
	f.Add([]byte("[origin]\nrefspec=a:b\ncontainer-image-reference=x\n[packages]\nrequested=a;b\\;c;\n"))
	f.Add([]byte("# c\n [rpmostree] \nregenerate-initramfs = true \n[modules]\nx=1\n[future]\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := format.ParseOrigin(b)
		if err != nil && !errors.Is(err, format.ErrMalformed) {
			t.Errorf("got %v, want malformed", err)
		}
		if err == nil && o.Refspec != "" && o.ContainerImageReference != "" && o.Conflict == "" {
			t.Error("two identities go unreported")
		}
	})
}

func FuzzParseImageReference(f *testing.F) {
	for _, s := range []string{
		"ostree-unverified-registry:quay.io/a@sha256:0", "ostree-remote-registry:fedora:quay.io/a", "ostree-image-signed:docker://a",
		"ostree-remote-image:r:oci-archive:/a", "ostree-unverified-image:registry:a", "", ":",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := format.ParseImageReference(s)
		if err != nil {
			return
		}
		again, err := format.ParseImageReference(r.String())
		if err != nil || again != r {
			t.Errorf("%q: %+v becomes %q, which is %+v, %v", s, r, r.String(), again, err)
		}
		if !strings.HasSuffix(s, r.PullSpec()) {
			t.Errorf("%q: pull spec %q", s, r.PullSpec())
		}
	})
}

func FuzzRefEscape(f *testing.F) {
	for _, s := range []string{"sha256:0", "docker://quay.io/x_y", "a//b/", "sha256_3A_0", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if escaped, err := format.EscapeRef(s); err == nil {
			if back, err := format.UnescapeRef(escaped); err != nil || back != s {
				t.Errorf("%q becomes %q, which is %q, %v", s, escaped, back, err)
			}
		}
		if plain, err := format.UnescapeRef(s); err == nil {
			if again, err := format.EscapeRef(plain); err != nil || again != s {
				t.Errorf("%q is %q, which becomes %q, %v", s, plain, again, err)
			}
		}
	})
}

func FuzzNames(f *testing.F) {
	sum := strings.Repeat("0a", 32)
	for _, s := range []string{"/ostree/boot.1/rhcos/" + sum + "/0", sum + ".0", "ostree/container/blob/sha256_3A_" + sum, "sha256:" + sum} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if l, err := format.ParseBootLink(s); err == nil {
			if again, err := format.ParseBootLink(l.Path()); err != nil || again != l {
				t.Errorf("%q: %+v becomes %+v, %v", s, l, again, err)
			}
		}
		if c, _, err := format.ParseDeploymentName(s); err == nil && len(c) != 64 {
			t.Errorf("%q: checksum %q", s, c)
		}
		if d, err := format.ParseBlobRef(s); err == nil {
			if ref, err := format.BlobRef(d); err != nil || ref != s {
				t.Errorf("%q: %s becomes %q, %v", s, d, ref, err)
			}
		}
		if d, err := format.ParseDigest(s); err == nil && d != verdict.Digest(s) {
			t.Errorf("%q: digest %q", s, d)
		}
	})
}
