package osimage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/pkg/hostfs"
)

// stageRegistries copies and checks registries.conf, its drop-ins and
// registries.d.
func (c *Config) stageRegistries(root *hostfs.Root, mirrors []Mirror) error {
	conf, _, err := readOptional(root, c.hostPath(registriesConf), maxConfigFile)
	if err != nil {
		return fail(RegistriesConfInvalid, c.hostPath(registriesConf), fmt.Errorf("reading: %w", bare(err)))
	}
	// The library wants the file that it is pointed at to exist.
	if err := c.stage(registriesConf, conf); err != nil {
		return err
	}
	dropIns, err := c.stageDropIns(root, registriesConfD, ".conf")
	if err != nil {
		return err
	}
	if len(mirrors) > 0 {
		if err := c.stageMirrors(mirrors); err != nil {
			return err
		}
		dropIns = append(dropIns, mirrorsConf)
	}
	if err := c.stageStores(root); err != nil {
		return err
	}
	sys := c.systemContext("")
	parsed, err := sysregistriesv2.TryUpdatingCache(sys)
	if err != nil {
		return c.confError(err, dropIns)
	}
	if slices.Equal(parsed.CredentialHelpers, []string{sysregistriesv2.AuthenticationFileHelper}) && parsed.AdditionalLayerStoreAuthHelper == "" {
		return nil
	}
	// The library would run the programs named there, from this system.
	c.helpers = true
	for _, name := range append(dropIns, registriesConf) {
		if err := c.dropHelpers(name); err != nil {
			return fail(RegistriesConfInvalid, c.hostPath(name), fmt.Errorf("removing credential helpers: %w", err))
		}
	}
	if _, err := sysregistriesv2.TryUpdatingCache(sys); err != nil {
		return c.confError(err, dropIns)
	}
	return nil
}

// mirrorsConf is what the caller's mirrors are called beside the copies: the library
// reads drop-ins by their names, and the last one wins.
const mirrorsConf = registriesConfD + "/zzz-mirrors.conf"

// stageMirrors writes mirrors in the form of containers-registries.conf(5).
func (c *Config) stageMirrors(mirrors []Mirror) error {
	var conf struct {
		Registry []sysregistriesv2.Registry `toml:"registry"`
	}
	for _, m := range mirrors {
		r := sysregistriesv2.Registry{Prefix: m.Source, Blocked: m.Only}
		if !strings.HasPrefix(m.Source, "*.") {
			r.Location = m.Source
		}
		for _, location := range m.Mirrors {
			r.Mirrors = append(r.Mirrors, sysregistriesv2.Endpoint{Location: location, PullFromMirror: sysregistriesv2.MirrorByDigestOnly})
		}
		conf.Registry = append(conf.Registry, r)
	}
	var out bytes.Buffer
	if err := toml.NewEncoder(&out).Encode(conf); err != nil {
		return fail(RegistriesConfInvalid, "mirrors", err)
	}
	return c.stage(mirrorsConf, out.Bytes())
}

// confError is the library's error about one of the copied files.
func (c *Config) confError(err error, dropIns []string) *Error {
	source := registriesConf
	for _, name := range dropIns {
		if strings.Contains(err.Error(), strconv.Quote(c.staged(name))) {
			source = name
		}
	}
	return &Error{Code: RegistriesConfInvalid, Source: c.hostPath(source), Message: c.clean(err.Error()), Err: err}
}

// dropHelpers takes the keys that name programs to run out of a copied file.
func (c *Config) dropHelpers(name string) error {
	b, err := os.ReadFile(c.staged(name))
	if err != nil {
		return err
	}
	var doc map[string]any
	if _, err := toml.Decode(string(b), &doc); err != nil {
		return err
	}
	for key := range doc {
		// Keys match whatever their case.
		if strings.EqualFold(key, "credential-helpers") || strings.EqualFold(key, "additional-layer-store-auth-helper") {
			delete(doc, key)
		}
	}
	var out bytes.Buffer
	if err := toml.NewEncoder(&out).Encode(doc); err != nil {
		return err
	}
	return os.WriteFile(c.staged(name), out.Bytes(), 0o600)
}

// stageDropIns copies the files of a directory that end in suffix, and returns
// their paths. The directory is made even where the host has none.
func (c *Config) stageDropIns(root *hostfs.Root, dir, suffix string) ([]string, error) {
	if err := os.MkdirAll(c.staged(dir), 0o700); err != nil {
		return nil, fail(RegistriesConfInvalid, c.hostPath(dir), err)
	}
	entries, err := listOptional(root, c.hostPath(dir))
	if err != nil {
		return nil, fail(RegistriesConfInvalid, c.hostPath(dir), fmt.Errorf("listing: %w", bare(err)))
	}
	var staged []string
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		name := path.Join(dir, e.Name())
		b, err := root.ReadFile(c.hostPath(name), maxConfigFile)
		if err != nil {
			return nil, fail(RegistriesConfInvalid, c.hostPath(name), fmt.Errorf("reading: %w", bare(err)))
		}
		if err := c.stage(name, b); err != nil {
			return nil, err
		}
		staged = append(staged, name)
	}
	return staged, nil
}

// stage writes a copy.
func (c *Config) stage(name string, b []byte) error {
	p := c.staged(name)
	err := os.MkdirAll(filepath.Dir(p), 0o700)
	if err == nil {
		err = os.WriteFile(p, b, 0o600)
	}
	if err != nil {
		return fail(RegistriesConfInvalid, c.hostPath(name), fmt.Errorf("making a private copy: %w", bare(err)))
	}
	return nil
}

// inMemory keeps secret bytes in a file without a name, and returns a path
// that the library can open it by as often as it likes.
func (c *Config) inMemory(b []byte) (string, error) {
	fd, err := unix.MemfdCreate("oneboot", unix.MFD_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("making a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	c.memory = append(c.memory, f)
	if _, err := f.Write(b); err != nil {
		return "", fmt.Errorf("writing a file in memory: %w", err)
	}
	p := fmt.Sprintf("/proc/self/fd/%d", fd)
	// Without /proc the library would take the file for missing: no credentials.
	got, err := os.ReadFile(p)
	if err != nil {
		return "", fmt.Errorf("reading a file in memory: %w", err)
	}
	if !bytes.Equal(got, b) {
		return "", errors.New("a file in memory does not read as written")
	}
	return p, nil
}

// bare strips the path from a file error; the caller names it.
func bare(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
