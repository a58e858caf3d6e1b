package osimage

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/docker/config"
	"go.podman.io/image/v5/types"
	"pgregory.net/rapid"
)

// One merged file gives the library what it finds in the files one after the
// other: the credentials of the first that has some, and an entry that cannot
// be decoded where it comes to that first.
func TestMergedAuth(t *testing.T) {
	dir := t.TempDir()
	hosts := rapid.SampledFrom([]string{"a.test", "a.test:5000", "docker.io", "index.docker.io", "b.test"})
	parts := rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y", "xx"}), 0, 3)
	name := rapid.Custom(func(t *rapid.T) string {
		s := hosts.Draw(t, "host")
		for _, p := range parts.Draw(t, "parts") {
			s += "/" + p
		}
		return s
	})
	key := rapid.Custom(func(t *rapid.T) string {
		if rapid.IntRange(0, 5).Draw(t, "kind") == 0 {
			return rapid.SampledFrom([]string{"https://", "http://"}).Draw(t, "scheme") + hosts.Draw(t, "host") + rapid.SampledFrom([]string{"", "/", "/v1/"}).Draw(t, "path")
		}
		return name.Draw(t, "key")
	})
	entry := rapid.Custom(func(t *rapid.T) authEntry {
		text := rapid.SampledFrom([]string{"", "u", ":", "u:1", "u:2", "u:3\n", ":\x00", "u:"}).Draw(t, "text")
		e := authEntry{Auth: base64.StdEncoding.EncodeToString([]byte(text))}
		if rapid.IntRange(0, 9).Draw(t, "broken") == 0 {
			e.Auth += "*"
		}
		if rapid.IntRange(0, 9).Draw(t, "token") == 0 {
			e.IdentityToken = "t"
		}
		return e
	})
	lookup := func(t *rapid.T, file authFile, ref reference.Named) (types.DockerAuthConfig, bool) {
		b, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		p := filepath.Join(dir, "auth.json")
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := config.GetCredentialsForRef(&types.SystemContext{AuthFilePath: p, SystemRegistriesConfPath: os.DevNull, SystemRegistriesConfDirPath: dir}, ref)
		return got, err == nil
	}
	rapid.Check(t, func(t *rapid.T) {
		var raw, parsed []authFile
		for _, auths := range rapid.SliceOfN(rapid.MapOfN(key, entry, 0, 4), 1, 3).Draw(t, "files") {
			// Which of several addresses of one host counts is chance there.
			if twoAddresses(auths) {
				t.Skip("two addresses of one host")
			}
			f := authFile{Auths: auths}
			b, err := json.Marshal(f)
			if err != nil {
				t.Fatal(err)
			}
			p, err := parseAuth(b)
			if err != nil {
				t.Fatal(err)
			}
			raw, parsed = append(raw, f), append(parsed, p)
		}
		ref, err := reference.ParseNormalizedNamed(name.Draw(t, "image") + "/os")
		if err != nil {
			t.Skip(err)
		}
		got, ok := lookup(t, mergeAuth(parsed), ref)
		var want types.DockerAuthConfig
		wantOK := true
		for _, f := range raw {
			if want, wantOK = lookup(t, f, ref); !wantOK || want != (types.DockerAuthConfig{}) {
				break
			}
		}
		if ok != wantOK || ok && got != want {
			t.Errorf("%v: got %+v, %v; want %+v, %v", ref, got, ok, want, wantOK)
		}
	})
}

// twoAddresses reports whether two keys that are no plain names mean one host.
func twoAddresses(auths map[string]authEntry) bool {
	seen := map[string]bool{}
	for key := range auths {
		host := hostOfKey(key)
		if host == key {
			continue
		}
		if seen[host] {
			return true
		}
		seen[host] = true
	}
	return false
}
