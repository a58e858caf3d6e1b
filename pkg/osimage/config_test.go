package osimage

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/test/registry"
)

func authJSON(host, userPassword string) string {
	return fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, base64.StdEncoding.EncodeToString([]byte(userPassword)))
}

// pullSpec stores a native image in r and returns a reference to it.
func pullSpec(t testing.TB, r *registry.Registry) (ref, digest string) {
	t.Helper()
	b := native(t, commitBytes(7)).build(t)
	return push(t, r, b), b.digest
}

// A broken file is an error that names it, never a missing one.
func TestConfigErrors(t *testing.T) {
	tests := []struct {
		name, file, content string
		want                Code
		text                string
	}{
		{"registries.conf", registriesConf, "[[registry]\n", RegistriesConfInvalid, "toml: line"},
		{"registries.conf of version 1", registriesConf, "[registries.search]\nregistries = ['quay.io']\n", RegistriesConfInvalid, "v1"},
		{"registry without location", registriesConf, "[[registry]]\ninsecure = true\n", RegistriesConfInvalid, "location"},
		{"drop-in", registriesConfD + "/10-x.conf", "a = \n", RegistriesConfInvalid, registriesConfD + "/10-x.conf"},
		{"auth file", "/var/lib/kubelet/config.json", "{\n\"auths\": {\"quay.io\": {\"auth\": \"c2VjcmV0\" \"", AuthUnreadable, "line 2"},
		{"auth file of another shape", "/run/ostree/auth.json", `{"auths":{"quay.io":"c2VjcmV0"}}`, AuthUnreadable, "line 1"},
		{"empty auth file", "/etc/ostree/auth.json", "", AuthUnreadable, "JSON"},
		{"CA bundle", "/etc/pki/tls/certs/ca-bundle.crt", "nothing\n", CertsInvalid, "no certificate"},
		{"proxy.env", proxyEnvPath, "HTTPS_PROXY=\xff", ProxyInvalid, "text"},
		{"proxy", proxyEnvPath, "HTTPS_PROXY=ftp://user:c2VjcmV0@proxy", ProxyInvalid, "HTTPS_PROXY"},
		{"large registries.conf", registriesConf, strings.Repeat("#\n", maxConfigFile), RegistriesConfInvalid, "limit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := writeRoot(t, map[string]string{tt.file: tt.content})
			c, err := LoadConfig(openRoot(t, dir), ConfigOptions{})
			if err == nil {
				c.Close()
				t.Fatal("no error")
			}
			text := err.Error()
			if CodeOf(err) != tt.want || !strings.Contains(text, tt.text) || !strings.Contains(text, filepath.Base(tt.file)) && !strings.Contains(text, "registries.conf") {
				t.Errorf("got %q: %v; want %s with %q", CodeOf(err), err, tt.want, tt.text)
			}
			for _, not := range []string{"c2VjcmV0", "secret", dir, os.TempDir()} {
				if strings.Contains(text, not) {
					t.Errorf("the message holds %q: %s", not, text)
				}
			}
		})
	}
}

// What cannot be read is an error too.
func TestConfigUnreadable(t *testing.T) {
	for name, want := range map[string]Code{
		registriesConf: RegistriesConfInvalid, registriesConfD: RegistriesConfInvalid, registriesD + "/a.yaml": RegistriesConfInvalid,
		"/run/ostree/auth.json": AuthUnreadable, "/etc/pki/tls/certs/ca-bundle.crt": CertsInvalid,
		proxyEnvPath: ProxyInvalid, containersCertsD + "/quay.io/ca.crt": CertsInvalid,
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeRoot(t, nil)
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mkfifo(filepath.Join(dir, name), 0o644); err != nil {
				t.Fatal(err)
			}
			c, err := LoadConfig(openRoot(t, dir), ConfigOptions{})
			if err == nil {
				c.Close()
			}
			if CodeOf(err) != want || !strings.Contains(fmt.Sprint(err), name) {
				t.Errorf("got %q: %v; want %s", CodeOf(err), err, want)
			}
		})
	}
}

// A broken signature storage configuration shows when an image is opened.
func TestSignatureStorageInvalid(t *testing.T) {
	r := startRegistry(t, registry.Options{})
	ref, _ := pullSpec(t, r)
	for _, content := range []string{"docker: [", "docker:\n  quay.io: 5\n"} {
		c := configFor(t, r, map[string]string{registriesD + "/a.yaml": content})
		_, err := openImage(t, ref, c).Instance(t.Context())
		if CodeOf(err) != RegistriesConfInvalid || !strings.Contains(fmt.Sprint(err), registriesD+"/a.yaml") || strings.Contains(fmt.Sprint(err), c.dir) {
			t.Errorf("got %q: %v", CodeOf(err), err)
		}
	}
}

// Nothing outside the root is read, whatever links say; links inside are.
func TestConfigLinks(t *testing.T) {
	r := startRegistry(t, registry.Options{})
	ref, _ := pullSpec(t, r)
	outside := writeRoot(t, map[string]string{"registries.conf": insecure(r), "10-x.conf": insecure(r), "auth.json": "{", "certs/ca.crt": "x"})
	link := func(dir, name, target string) {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, p); err != nil {
			t.Fatal(err)
		}
	}
	climb := strings.Repeat("../", 20)
	for _, tt := range []struct {
		name, target string
		want         Code
	}{
		{registriesConf, outside + "/registries.conf", RegistriesConfInvalid},
		{registriesConf, climb + outside + "/registries.conf", RegistriesConfInvalid},
		{registriesConfD + "/10-x.conf", outside + "/10-x.conf", RegistriesConfInvalid},
		{"/var/lib/kubelet/config.json", outside + "/auth.json", AuthUnreadable},
		{containersCertsD + "/quay.io", outside + "/certs", CertsInvalid},
	} {
		dir := writeRoot(t, nil)
		link(dir, tt.name, tt.target)
		c, err := LoadConfig(openRoot(t, dir), ConfigOptions{})
		if err == nil {
			c.Close()
		}
		if CodeOf(err) != tt.want {
			t.Errorf("%s -> %s: got %q: %v; want %s", tt.name, tt.target, CodeOf(err), err, tt.want)
		}
	}
	dir := writeRoot(t, map[string]string{"usr/share/registries.conf": insecure(r)})
	link(dir, registriesConf, "/usr/share/registries.conf")
	c, err := LoadConfig(openRoot(t, dir), ConfigOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := openImage(t, ref, c).Instance(t.Context()); err != nil {
		t.Error(err)
	}
}

// Mirrors are used as registries.conf says.
func TestMirrors(t *testing.T) {
	r := startRegistry(t, registry.Options{})
	_, digest := pullSpec(t, r)
	tests := []struct {
		name, conf, ref string
		want            Code
	}{
		{"digest mirror, source never asked", "blocked = true\n[[registry.mirror]]\nlocation = %q\ninsecure = true\npull-from-mirror = \"digest-only\"\n", "release.test/ocp/os@" + digest, ""},
		{"tag of a digest mirror", "blocked = true\n[[registry.mirror]]\nlocation = %q\ninsecure = true\npull-from-mirror = \"digest-only\"\n", "release.test/ocp/os:4.16", RegistryBlocked},
		{"blocked", "blocked = true\n", "release.test/ocp/os@" + digest, RegistryBlocked},
		{"first mirror lacks it", "[[registry.mirror]]\nlocation = \"127.0.0.1:1/none\"\n[[registry.mirror]]\nlocation = %q\ninsecure = true\n", "release.test/ocp/os@" + digest, ""},
	}
	for _, tt := range tests {
		for _, file := range []string{registriesConf, registriesConfD + "/99-mirror.conf"} {
			t.Run(tt.name+" in "+filepath.Base(file), func(t *testing.T) {
				conf := "[[registry]]\nprefix = \"release.test/ocp/os\"\nlocation = \"release.test/ocp/os\"\n" + strings.ReplaceAll(tt.conf, "%q", `"`+r.Host+`/os"`)
				c := loadConfig(t, map[string]string{file: conf}, ConfigOptions{})
				got, err := openImage(t, tt.ref, c).Instance(t.Context())
				if CodeOf(err) != tt.want || tt.want == "" && (err != nil || string(got) != digest) {
					t.Errorf("got %s, %q: %v; want %q", got, CodeOf(err), err, tt.want)
				}
			})
		}
	}
}

// On a disk that was never booted, the deployment's /etc counts.
func TestPrefix(t *testing.T) {
	r := startRegistry(t, registry.Options{})
	ref, _ := pullSpec(t, r)
	const deployment = "/ostree/deploy/rhcos/deploy/0.0"
	c := loadConfig(t, map[string]string{deployment + registriesConf: insecure(r), registriesConf: "[[", deployment + policyPath: "{"}, ConfigOptions{Prefix: deployment})
	if _, err := openImage(t, ref, c).Instance(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := c.SignaturePolicy(ref); !strings.Contains(fmt.Sprint(err), deployment+policyPath) {
		t.Errorf("got %v", err)
	}
}

// Credentials are used where they belong, and are nowhere on the disk.
func TestAuth(t *testing.T) {
	const user = "puller:sw0rdfish-and-more"
	r := startRegistry(t, registry.Options{Username: "puller", Password: "sw0rdfish-and-more"})
	ref, _ := pullSpec(t, r)
	good, bad := authJSON(r.Host, user), authJSON(r.Host, "puller:wrong")
	kubelet, run, etc := "/var/lib/kubelet/config.json", "/run/ostree/auth.json", "/etc/ostree/auth.json"
	tests := []struct {
		name  string
		files map[string]string
		want  Code
	}{
		{"none", nil, RegistryUnauthorized},
		{"kubelet's", map[string]string{kubelet: good}, ""},
		{"rpm-ostree's", map[string]string{run: good}, ""},
		{"bootc's", map[string]string{etc: good}, ""},
		{"in /usr", map[string]string{"/usr/lib/ostree/auth.json": good}, ""},
		{"/run before /etc", map[string]string{run: good, etc: bad, kubelet: bad}, ""},
		{"the kubelet's before /etc", map[string]string{etc: bad, kubelet: good}, ""},
		{"/run before the kubelet's", map[string]string{run: bad, kubelet: good}, RegistryUnauthorized},
		{"others have entries for others", map[string]string{run: authJSON("quay.io", "a:b"), kubelet: good}, ""},
		{"wrong", map[string]string{kubelet: bad}, RegistryUnauthorized},
		{"of the repository", map[string]string{kubelet: authJSON(r.Host+"/os", user)}, ""},
		{"malformed entry for another registry", map[string]string{run: `{"auths":{"quay.io":{"auth":"***"}}}`, kubelet: good}, ""},
		{"malformed entry", map[string]string{kubelet: `{"auths":{"` + r.Host + `":{"auth":"***"}}}`}, AuthUnreadable},
		{"docker's other keys", map[string]string{kubelet: `{"credsStore":"desktop","HttpHeaders":{},` + good[1:]}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{registriesConf: insecure(r)}
			maps.Copy(files, tt.files)
			c := loadConfig(t, files, ConfigOptions{})
			err := ask(t.Context(), openImage(t, ref, c))
			if CodeOf(err) != tt.want || tt.want == "" && err != nil {
				t.Errorf("got %q: %v; want %q", CodeOf(err), err, tt.want)
			}
			if text := fmt.Sprint(err); strings.Contains(text, "sw0rdfish") || strings.Contains(text, "cHVsbGVy") {
				t.Errorf("the message holds credentials: %s", text)
			}
			noSecrets(t, c.dir, "cHVsbGVy")
		})
	}
	t.Run("caller's file alone", func(t *testing.T) {
		dir := writeRoot(t, map[string]string{"auth.json": good})
		c := loadConfig(t, map[string]string{registriesConf: insecure(r), run: bad}, ConfigOptions{AuthFile: dir + "/auth.json"})
		if err := ask(t.Context(), openImage(t, ref, c)); err != nil {
			t.Error(err)
		}
		if _, err := LoadConfig(openRoot(t, dir), ConfigOptions{AuthFile: dir + "/missing.json"}); CodeOf(err) != AuthUnreadable {
			t.Errorf("missing: got %v", err)
		}
	})
}

// noSecrets fails if a file below dir holds the text, or can be read by others.
func noSecrets(t *testing.T, dir, secret string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := os.Lstat(p)
		if err != nil {
			return err
		}
		if e.Type() != fs.ModeSymlink && fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", p, fi.Mode())
		}
		if !fi.Mode().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(p)
		if strings.Contains(string(b), secret) {
			t.Errorf("%s holds a secret", p)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Programs that the configuration names are never run.
func TestHelpersNotRun(t *testing.T) {
	r := startRegistry(t, registry.Options{Username: "a", Password: "b"})
	ref, _ := pullSpec(t, r)
	bin := t.TempDir()
	mark := filepath.Join(bin, "was-run")
	for _, name := range []string{"docker-credential-evil", "helper"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\ntouch "+mark+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	good := authJSON(r.Host, "a:b")
	tests := []struct {
		name, conf, auth string
		want             Code
	}{
		{"auth file", "", `{"auths":{},"credHelpers":{"` + r.Host + `":"evil"}}`, RegistryUnauthorized},
		{"registries.conf", "credential-helpers = [\"evil\"]\n", `{}`, RegistryUnauthorized},
		{"registries.conf, spelled otherwise", "Credential-Helpers = [\"evil\"]\n", `{}`, RegistryUnauthorized},
		{"with an auth file too", "credential-helpers = [\"evil\", \"containers-auth.json\"]\n", good, ""},
		{"additional layer store", "additional-layer-store-auth-helper = \"" + bin + "/helper\"\n", good, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := loadConfig(t, map[string]string{registriesConf: tt.conf + insecure(r), "/run/ostree/auth.json": tt.auth}, ConfigOptions{})
			err := ask(t.Context(), openImage(t, ref, c))
			if CodeOf(err) != tt.want || tt.want == "" && err != nil {
				t.Errorf("got %q: %v; want %q", CodeOf(err), err, tt.want)
			}
			if err != nil && !strings.Contains(err.Error(), "helpers") {
				t.Errorf("the message does not name the reason: %v", err)
			}
			if _, err := os.Stat(mark); err == nil {
				t.Error("a helper was run")
			}
		})
	}
}

// The private copies are gone after Close.
func TestClose(t *testing.T) {
	c, err := LoadConfig(openRoot(t, writeRoot(t, map[string]string{registriesConf: ""})), ConfigOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(c.dir); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}

// A cluster's mirrors come before what the host's own files say.
func TestClusterMirrors(t *testing.T) {
	r := startRegistry(t, registry.Options{TLS: true})
	_, digest := pullSpec(t, r)
	files := map[string]string{containersCertsD + "/" + r.Host + "/ca.crt": string(r.CA),
		registriesConfD + "/99-mirror.conf": "[[registry]]\nprefix = \"release.test/ocp\"\nlocation = \"release.test/ocp\"\nblocked = true\n"}
	mirrors := func(m ...Mirror) []Mirror { return m }
	tests := []struct {
		name    string
		mirrors []Mirror
		ref     string
		want    Code
	}{
		{"a mirror", mirrors(Mirror{Source: "release.test/ocp", Mirrors: []string{r.Host}, Only: true}), "release.test/ocp/os@" + digest, ""},
		{"the second one has it", mirrors(Mirror{Source: "release.test/ocp", Mirrors: []string{"127.0.0.1:1/none", r.Host}, Only: true}), "release.test/ocp/os@" + digest, ""},
		{"of any host of a domain", mirrors(Mirror{Source: "*.test", Mirrors: []string{r.Host}, Only: true}), "quay.test/os@" + digest, ""},
		{"by tag they are not asked", mirrors(Mirror{Source: "release.test/ocp", Mirrors: []string{r.Host}, Only: true}), "release.test/ocp/os:latest", RegistryBlocked},
		{"none", nil, "release.test/ocp/os@" + digest, RegistryBlocked},
		{"a source that is no name", mirrors(Mirror{Source: "https://release.test", Mirrors: []string{r.Host}}), "", RegistriesConfInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.ref == "" {
				if _, err := LoadConfig(openRoot(t, writeRoot(t, files)), ConfigOptions{Mirrors: tt.mirrors}); CodeOf(err) != tt.want || !strings.Contains(fmt.Sprint(err), "mirrors") {
					t.Errorf("got %v", err)
				}
				return
			}
			got, err := openImage(t, tt.ref, loadConfig(t, files, ConfigOptions{Mirrors: tt.mirrors})).Instance(t.Context())
			if CodeOf(err) != tt.want || tt.want == "" && (err != nil || string(got) != digest) {
				t.Errorf("got %s, %q: %v; want %q", got, CodeOf(err), err, tt.want)
			}
		})
	}
}
