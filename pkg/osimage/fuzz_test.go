package osimage

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"

	imgspecv1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/types"

	"github.com/oneboot/oneboot/pkg/ostree/format"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// A commit that is found in a layer has the checksum that it is named by, and
// a whole layer has no other one.
func FuzzCommitInLayer(f *testing.F) {
	commit := commitBytes(7)
	for _, how := range []string{plain, gz, zst} {
		f.Add(compress(f, how, nativeTar(f, commit)))
		f.Add(compress(f, how, makeTar(f, commitEntry(commit), commitEntry(commitBytes(9)))))
	}
	f.Add([]byte{0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, read := range []func(data []byte) (commitObject, error){
			func(data []byte) (commitObject, error) {
				r, done, err := decompress(bytes.NewReader(data))
				if err != nil {
					return commitObject{}, err
				}
				defer done()
				return firstCommit(t.Context(), r)
			},
			func(data []byte) (commitObject, error) {
				r, done, err := decompress(bytes.NewReader(data))
				if err != nil {
					return commitObject{}, err
				}
				defer done()
				return onlyCommit(t.Context(), &limitedReader{r: r, left: maxHeadBytes})
			},
		} {
			c, err := read(b)
			if err == nil && (format.SumMetadata(c.bytes) != c.checksum || !isChecksum(string(c.checksum))) {
				t.Errorf("commit %q does not have its checksum", c.checksum)
			}
		}
	})
}

// Facts of manifests and configs are well formed or unknown.
func FuzzManifestAndConfig(f *testing.F) {
	for _, docker := range []bool{false, true} {
		s := native(f, commitBytes(7))
		s.docker = docker
		b := s.build(f)
		f.Add(b.manifest, b.config)
	}
	f.Add([]byte(`{"schemaVersion":1}`), []byte(`{"rootfs":{"diff_ids":["sha256:"]}}`))
	f.Add([]byte(`{}`), []byte(`null`))
	f.Fuzz(func(t *testing.T, manifest, config []byte) {
		var m verdict.Fact[Manifest]
		if mediaType, err := mediaTypeOf(manifest, ""); err == nil {
			parsed, err := parseManifest(rawManifest{bytes: manifest, mediaType: mediaType})
			m = factOf(parsed, err)
			for _, l := range parsed.Layers {
				if _, err := checkDigest(string(l.Digest)); err != nil || l.Size < 0 {
					t.Errorf("layer %+v", l)
				}
			}
		}
		c, err := parseConfig(config)
		var id verdict.Identity
		configFacts(&id, c, err, m)
		if n, ok := id.DerivedLayers.Get(); ok && (n < 0 || n >= len(c.DiffIDs)) {
			t.Errorf("%d derived layers of %d", n, len(c.DiffIDs))
		}
		if ids, ok := id.DiffIDs.Get(); ok {
			for _, d := range ids {
				if _, err := checkDigest(string(d)); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// An instance that is chosen from a list is in it, and is a digest.
func FuzzChooseInstance(f *testing.F) {
	b := native(f, commitBytes(7)).build(f)
	f.Add(makeList(f, false, listEntry{b, platform("linux", "amd64", ""), nil}).manifest)
	f.Add(makeList(f, true, listEntry{b, platform("linux", "arm64", "v8"), nil}).manifest)
	f.Add(makeList(f, false, listEntry{b, &imgspecv1.Platform{}, map[string]string{"vnd.docker.reference.type": ""}}).manifest)
	f.Add([]byte(`{"manifests":[{"digest":"sha256:"}]}`))
	f.Fuzz(func(t *testing.T, list []byte) {
		d, err := chooseInstance(list, &types.SystemContext{OSChoice: "linux", ArchitectureChoice: "amd64"})
		if err != nil {
			return
		}
		if _, err := checkDigest(string(d)); err != nil {
			t.Error(err)
		}
	})
}

func FuzzEnvironmentFile(f *testing.F) {
	f.Add("HTTPS_PROXY=\"http://a:b@c:3128\"\n# no\nNO_PROXY='x'\\\n,y\n")
	f.Add("A=\"\\\n\\$\"'\n=1\n;\\\nB")
	f.Fuzz(func(t *testing.T, s string) {
		vars, err := parseEnvironmentFile([]byte(s))
		if err != nil {
			return
		}
		for k, v := range vars {
			if k == "" || strings.ContainsAny(k, "=\n") || len(k)+len(v) > len(s) {
				t.Errorf("%q = %q", k, v)
			}
		}
		if _, err := proxyFunc(vars); err != nil && strings.Contains(err.Error(), "@") {
			t.Errorf("the message quotes the value: %v", err)
		}
	})
}

func FuzzAuthFile(f *testing.F) {
	f.Add([]byte(authJSON("quay.io", "a:b")))
	f.Add([]byte("{\n\"auths\":null,\"credHelpers\":{\"a\":\"b\"}}"))
	f.Add([]byte("{\"auths\":[\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAuth(b)
		if (err == nil) != (a.Auths != nil) {
			t.Errorf("got %v, %v", a, err)
		}
	})
}

func FuzzReference(f *testing.F) {
	for _, s := range []string{"quay.io/os@sha256:" + sum(nil), "docker://a.b/c:d", "oci:/x:y", "oci-archive:x", "dir:/", "://dummy", "a.b/c@@unknown-digest@@"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := parseReference(s)
		if err != nil {
			return
		}
		d, err := pinnedDigest(ref)
		if err != nil || d == "" {
			return
		}
		if !strings.HasSuffix(s, "@"+string(d)) {
			t.Errorf("%q is not pinned by %s", s, d)
		}
	})
}

// Whatever a layer holds, the commit found in /srv/repo is the wanted one, or
// has the checksum that it is named by.
func FuzzLegacyLayer(f *testing.F) {
	commit, other := commitBytes(7), commitBytes(9)
	link := entry{"srv/repo", []byte("../x"), tar.TypeSymlink}
	for _, tarball := range [][]byte{
		makeTar(f, legacyEntry(other), file("srv/repo/refs/heads/a", []byte(sum(commit)+"\n")), legacyEntry(commit)),
		makeTar(f, file("srv/repo/objects/aa/.wh.b", nil), file("srv/.wh..wh..opq", nil)),
		makeTar(f, link, file("srv/x/../repo/config", nil)),
		{},
	} {
		f.Add(tarball, true)
		f.Add(tarball, false)
	}
	f.Fuzz(func(t *testing.T, b []byte, label bool) {
		s := &legacyScan{refs: map[string]string{}}
		if label {
			s.want = verdict.Checksum(sum(commit))
		}
		stop, err := s.read(t.Context(), &limitedReader{r: bytes.NewReader(b), left: maxHeadBytes})
		c := s.found
		if stop != (err == nil && label && c.checksum == s.want) {
			t.Errorf("stopped %v with %q: %v", stop, c.checksum, err)
		}
		if c.checksum != "" && (format.SumMetadata(c.bytes) != c.checksum || !s.commits[c.checksum] || !isChecksum(string(c.checksum))) {
			t.Errorf("commit %q does not have its checksum", c.checksum)
		}
		if err == nil && s.others() == "" {
			t.Error("nothing to say of the commits")
		}
	})
}

func FuzzMetadata(f *testing.F) {
	f.Add([]byte(`{"rpmdb.pkglist":[["bash","0","5.1","1.el9","x86_64"]]}`))
	f.Add([]byte(`{"rpmdb.pkglist":[[]]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		packages, err := parseMetadata(b)
		if err == nil && len(packages) == 0 {
			t.Error("neither packages nor an error")
		}
	})
}

func FuzzPackageList(f *testing.F) {
	f.Add([]byte("bash-5.1-1.el9.x86_64\ndbus-1:1.12-8.el9.x86_64\n"))
	f.Add([]byte("--\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		packages, err := parsePackageList(b)
		if err == nil && len(packages) == 0 {
			t.Error("neither packages nor an error")
		}
	})
}

func FuzzLayerOfPackages(f *testing.F) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeReg, Name: "sysroot/ostree/repo/objects/00/" + strings.Repeat("0", 62) + ".file"},
		{Typeflag: tar.TypeLink, Name: "usr/share/rpm/rpmdb.sqlite", Linkname: "sysroot/ostree/repo/objects/00/" + strings.Repeat("0", 62) + ".file"},
		{Typeflag: tar.TypeReg, Name: packagesFile},
		{Typeflag: tar.TypeReg, Name: "usr/share/.wh.rpm"},
	} {
		if err := w.WriteHeader(&h); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		if packages, err := scanMetadata(t.Context(), bytes.NewReader(b)); err == nil && packages == nil {
			t.Error("neither packages nor an error")
		}
		scan := newDatabaseScan()
		defer scan.close()
		if err := scan.read(t.Context(), bytes.NewReader(b)); err == nil {
			if packages, err := scan.packages(); err == nil && packages != nil && len(packages) == 0 {
				t.Error("an empty list")
			}
		}
	})
}
