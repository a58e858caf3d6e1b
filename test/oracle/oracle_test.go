package oracle_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ostreedev/ostree-go/pkg/otbuiltin"

	"github.com/oneboot/oneboot/pkg/hostfs"
	"github.com/oneboot/oneboot/pkg/ostree"
	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/oracle"
)

// On repositories in every mode, our reader says what libostree says: every
// ref, every commit, every metadata key.
func TestAgainstLibostree(t *testing.T) {
	for _, mode := range []string{"bare", "bare-user", "archive-z2"} {
		t.Run(mode, func(t *testing.T) {
			dir := t.TempDir()
			repo := filepath.Join(dir, "repo")
			if err := os.Mkdir(repo, 0o755); err != nil {
				t.Fatal(err)
			}
			options := otbuiltin.NewInitOptions()
			options.Mode = mode
			if ok, err := otbuiltin.Init(repo, options); !ok || err != nil {
				t.Fatal(ok, err)
			}
			fill(t, repo)
			root, err := hostfs.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			ours, err := ostree.OpenRepo(root, "repo")
			if err != nil {
				t.Fatal(err)
			}
			compareRefs(t, repo, ours)
			commits, err := oracle.Commits(repo)
			if err != nil || len(commits) < 20 {
				t.Fatal(len(commits), err)
			}
			for _, c := range commits {
				compareCommit(t, repo, ours, c)
			}
		})
	}
}

// fill makes commits with metadata of many kinds and sizes, around those where
// the width of GVariant's offsets changes.
func fill(t *testing.T, repo string) {
	t.Helper()
	tree := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 12 {
		name := filepath.Join(tree, fmt.Sprintf("d%d/file%d", i%3, i))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
		args := []string{
			"--add-metadata-string=version=9.6." + fmt.Sprint(i), "--add-metadata-string=pad=" + strings.Repeat("p", []int{0, 1, 40, 90, 100, 110, 200, 300, 65_000, 65_300, 65_500, 100_000}[i]),
			"--add-metadata=rpmostree.clientlayer=true", "--add-metadata=rpmostree.clientlayer_version=uint32 6",
			"--add-metadata=empty=@as []", "--add-metadata=none=@a{sv} {}", "--add-metadata=bytes=@ay []", "--add-metadata=pair=(uint64 1, uint64 " + fmt.Sprint(random.Uint64()) + ")",
			"--add-metadata=rpmostree.rpmdb.pkglist=" + packages(random, i*7), "--add-metadata=list=" + texts(random, i),
			"--add-metadata=deep=<{'a': <[(1, <'x'>), (2, <@ms nothing>)]>}>", "--add-metadata-string=ostree.manifest={\"layers\": [\"é\"]}",
		}
		run(t, repo, append([]string{"commit", "-b", fmt.Sprintf("branch/%d", i%4), "-s", "subject é", "-m", strings.Repeat("body\n", i), "--tree=dir=" + tree}, args...)...)
		r, err := otbuiltin.OpenRepo(repo)
		if err != nil {
			t.Fatal(err)
		}
		options := otbuiltin.NewCommitOptions()
		options.Subject = "by ostree-go"
		options.AddMetadataString = []string{"key=value"}
		if _, err := r.PrepareTransaction(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Commit(tree, fmt.Sprintf("other/%d", i), options); err != nil {
			t.Fatal(err)
		}
		if _, err := r.CommitTransaction(); err != nil {
			t.Fatal(err)
		}
	}
	ref, err := format.BlobRef(verdict.Digest("sha256:" + strings.Repeat("0", 64)))
	if err != nil {
		t.Fatal(err)
	}
	run(t, repo, "refs", "--create="+ref, "branch/1")
	run(t, repo, "refs", "--create=remote:some/branch", "branch/1")
	run(t, repo, "refs", "--alias", "--create=alias", "branch/2")
}

func packages(random *rand.Rand, n int) string {
	if n == 0 {
		return "@a(sssss) []"
	}
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("('package-%d', '%d', '%d', '1.el9', 'x86_64')", i, random.IntN(3), random.Uint64()))
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func texts(random *rand.Rand, n int) string {
	out := []string{"''"}
	for range n {
		out = append(out, "'"+strings.Repeat("t", random.IntN(60))+"'")
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func run(t *testing.T, repo string, args ...string) {
	t.Helper()
	cmd := exec.Command("ostree", append([]string{"--repo=" + repo}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args[:1], err, out)
	}
}

func compareRefs(t *testing.T, repo string, ours *ostree.Repo) {
	t.Helper()
	want, err := oracle.Refs(repo)
	if err != nil || len(want) < 18 {
		t.Fatal(want, err)
	}
	local := 0
	for ref, checksum := range want {
		if got, err := ours.ResolveRef(ref); err != nil || string(got) != checksum {
			t.Errorf("%s: got %s, %v; want %s", ref, got, err, checksum)
		}
		if !strings.Contains(ref, ":") {
			local++
		}
	}
	list, err := ours.ListRefs("")
	if err != nil {
		t.Fatal(err)
	}
	for ref, got := range list {
		if checksum, ok := want[ref]; ok && string(got) != checksum {
			t.Errorf("%s: got %s, want %s", ref, got, checksum)
		} else if !ok && ref != "alias" { // libostree lists aliases apart
			t.Errorf("%s is no ref to libostree", ref)
		}
	}
	if len(list) < local {
		t.Errorf("got %d local refs, want %d", len(list), local)
	}
}

func compareCommit(t *testing.T, repo string, ours *ostree.Repo, checksum string) {
	t.Helper()
	want, err := oracle.ReadCommit(repo, checksum)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ours.Commit(verdict.Checksum(checksum))
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Parent) != want.Parent || string(got.ContentChecksum()) != want.ContentChecksum || fmt.Sprint(got.Timestamp) != want.Timestamp {
		t.Errorf("%s: got %s %s %d, want %+v", checksum, got.Parent, got.ContentChecksum(), got.Timestamp, want)
	}
	// The log begins with the oldest commit.
	log, err := otbuiltin.Log(repo, checksum, otbuiltin.NewLogOptions())
	if err != nil || len(log) == 0 {
		t.Fatal(log, err)
	}
	if e := log[len(log)-1]; e.Subject != got.Subject || e.Body != got.Body || e.Timestamp.Unix() != int64(got.Timestamp) {
		t.Errorf("%s: got %q %q %d, want %+v", checksum, got.Subject, got.Body, got.Timestamp, e)
	}
	keys := got.Metadata.Keys()
	if len(keys) != len(want.Metadata) {
		t.Fatalf("%s: got keys %q, want %d", checksum, keys, len(want.Metadata))
	}
	for i, w := range want.Metadata {
		if keys[i] != w.Key || got.Metadata.Type(w.Key) != w.Type {
			t.Errorf("%s: got key %s of type %s, want %s of %s", checksum, keys[i], got.Metadata.Type(w.Key), w.Key, w.Type)
		}
		data, ok, err := serialize(got.Metadata, w.Key)
		if err != nil || ok && !bytes.Equal(data, w.Data) {
			t.Errorf("%s: key %s: got %.40q, %v; want %.40q", checksum, w.Key, data, err, w.Data)
		}
	}
}

// serialize turns a value that we decoded into its data again; false for a
// type that the reader leaves alone.
func serialize(d *format.Dict, key string) (data []byte, ok bool, err error) {
	switch d.Type(key) {
	case "s":
		s, _, err := d.String(key)
		return append([]byte(s), 0), true, err
	case "b":
		b, _, err := d.Bool(key)
		if b {
			return []byte{1}, true, err
		}
		return []byte{0}, true, err
	case "u":
		n, _, err := d.Uint32(key)
		return binary.LittleEndian.AppendUint32(nil, n), true, err
	case "(tt)":
		p, _, err := d.Uint64Pair(key)
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, p[0]), p[1]), true, err
	case "ay":
		b, _, err := d.Bytes(key)
		return b, true, err
	case "as":
		list, _, err := d.Strings(key)
		return array(list, nil), true, err
	case "a(sssss)":
		list, _, err := d.Packages(key)
		var elements []string
		for _, p := range list {
			elements = append(elements, string(tuple(p.Name, p.Epoch, p.Version, p.Release, p.Arch)))
		}
		return array(nil, elements), true, err
	case "a{sv}":
		inner, _, err := d.Dict(key)
		return nil, len(inner.Keys()) == 0, err
	}
	return nil, false, nil
}

// array serializes strings, or elements that are serialized already.
func array(list, elements []string) []byte {
	for _, s := range list {
		elements = append(elements, s+"\x00")
	}
	var b []byte
	var ends []int
	for _, e := range elements {
		b = append(b, e...)
		ends = append(ends, len(b))
	}
	return offsets(b, ends)
}

func tuple(texts ...string) []byte {
	var b []byte
	var ends []int
	for i, s := range texts {
		b = append(append(b, s...), 0)
		if i < len(texts)-1 {
			ends = append([]int{len(b)}, ends...)
		}
	}
	return offsets(b, ends)
}

func offsets(b []byte, ends []int) []byte {
	if len(ends) == 0 {
		return b
	}
	size := 1
	for _, next := range []int{2, 4} {
		if len(b)+size*len(ends) >= 1<<(8*size) {
			size = next
		}
	}
	for _, end := range ends {
		b = append(b, binary.LittleEndian.AppendUint64(nil, uint64(end))[:size]...)
	}
	return b
}
