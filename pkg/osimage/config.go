package osimage

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"strings"

	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"

	"github.com/oneboot/oneboot/pkg/hostfs"
)

// Limits on the host's configuration files.
const (
	maxConfigFile    = 1 << 20
	maxConfigEntries = 1000
)

// ConfigOptions say where the configuration comes from beyond the root.
type ConfigOptions struct {
	// AuthFile, when not empty, is a file of the caller's (not below the
	// root) in the containers-auth.json(5) format, and then the only one.
	AuthFile string
	// Prefix is a directory below the root that /etc is read under, for a
	// disk that was never booted: its deployment. Empty for a booted system.
	Prefix string
	// Retry repeats requests that failed for a passing reason (no connection,
	// 429, 5xx, a broken transfer) until the context's deadline is near.
	// Without it each request is tried once, as far as the library does.
	Retry bool
	// Mirrors come beside registries.conf, and before what that says of the same
	// source: those of a cluster.
	Mirrors []Mirror
}

// A Mirror is where images of a source are asked for first, by digest (the
// repositories of an ImageDigestMirrorSet).
type Mirror struct {
	// Source is a repository or a prefix of such, or *.DOMAIN.
	Source string
	// Mirrors are the repositories, in the order in which they are asked.
	Mirrors []string
	// Only says that the source itself is never asked.
	Only bool
}

// A Config is the host's registry configuration, read once. Close it when the
// images opened with it are closed.
type Config struct {
	// root is asked later only for the signatures of an image.
	root *hostfs.Root
	// dir is a private directory with copies of the configuration, in the
	// same layout, for the library to read.
	dir    string
	prefix string
	memory []*os.File
	auth   string
	pool   *x509.CertPool
	// hostPools are the CAs for registries with CAs of their own.
	hostPools map[string]*x509.CertPool
	proxy     func(*url.URL) (*url.URL, error)
	policy    policyFile
	// helpers is set where the host fetches credentials by a program, which
	// this package never runs.
	helpers bool
	// badAuth names the entries of auth files that cannot be decoded.
	badAuth []string
	retry   bool
}

// LoadConfig reads the registry configuration below root: registries.conf,
// registries.conf.d, registries.d, policy.json and certs.d below
// /etc/containers, the keys that policy.json names, /etc/docker/certs.d, auth
// files (see loadAuth for their order), the system's CA bundle and the proxy's
// settings. The root must stay open until the Config is closed. The files are
// copied to a private temporary directory, credentials and keys to memory
// only. A file that is missing counts as the library counts it; one that
// cannot be read or parsed is an [*Error] that names it, never "no mirrors"
// or "no credentials". A policy.json that is missing or malformed is reported
// by [Config.SignaturePolicy].
func LoadConfig(root *hostfs.Root, opts ConfigOptions) (*Config, error) {
	dir, err := privateDir()
	if err != nil {
		return nil, fail(RegistriesConfInvalid, "temporary directory", fmt.Errorf("making a private copy of the registry configuration: %w", err))
	}
	c := &Config{root: root, dir: dir, prefix: strings.TrimSuffix(path.Clean("/"+opts.Prefix), "/"), retry: opts.Retry}
	for _, load := range []func(*hostfs.Root) error{
		c.loadCAs, func(root *hostfs.Root) error { return c.stageRegistries(root, opts.Mirrors) }, c.stageCerts, c.loadProxy, c.loadPolicy,
		func(root *hostfs.Root) error { return c.loadAuth(root, opts.AuthFile) },
	} {
		if err := load(root); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// sharedMemory is memory that looks like a folder on every Linux system.
const sharedMemory = "/dev/shm"

// privateDir makes a directory for the copies: where the caller says, else in
// memory, which is there on a full or read-only disk too, else where temporary
// files go.
func privateDir() (string, error) {
	if os.Getenv("TMPDIR") == "" {
		if dir, err := os.MkdirTemp(sharedMemory, "oneboot-"); err == nil {
			return dir, nil
		}
	}
	return os.MkdirTemp("", "oneboot-")
}

// Close removes the private copies.
func (c *Config) Close() error {
	for _, f := range c.memory {
		f.Close()
	}
	c.memory = nil
	// The library caches by path; this one will not come again.
	sysregistriesv2.InvalidateCache()
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("removing the copy of the registry configuration: %w", err)
	}
	return nil
}

const (
	registriesConf   = "/etc/containers/registries.conf"
	registriesConfD  = "/etc/containers/registries.conf.d"
	registriesD      = "/etc/containers/registries.d"
	containersCertsD = "/etc/containers/certs.d"
	dockerCertsD     = "/etc/docker/certs.d"
)

// systemContext points the library at the copies. RootForImplicitAbsolutePaths
// keeps it from this process's own /etc for anything that is not set.
func (c *Config) systemContext(arch string) *types.SystemContext {
	// The library adds a registry's own CAs to the pool that it is given.
	tlsConfig := &tls.Config{RootCAs: c.pool.Clone(), MinVersion: tls.VersionTLS12}
	proxy := c.proxy
	if len(c.hostPools) > 0 {
		trust := &hostTrust{proxy: c.proxy, system: c.pool, registries: c.hostPools}
		proxy, tlsConfig.VerifyConnection = trust.proxyFor, trust.verify
	}
	sys := &types.SystemContext{
		RootForImplicitAbsolutePaths: c.dir,
		SystemRegistriesConfPath:     c.staged(registriesConf),
		SystemRegistriesConfDirPath:  c.staged(registriesConfD),
		RegistriesDirPath:            c.staged(registriesD),
		DockerPerHostCertDirPath:     c.staged(containersCertsD),
		SignaturePolicyPath:          c.staged(policyPath),
		AuthFilePath:                 c.auth,
		BaseTLSConfig:                tlsConfig,
		DockerProxy:                  proxy,
		DockerRegistryUserAgent:      "oneboot",
		OSChoice:                     "linux",
		ArchitectureChoice:           arch,
	}
	if arch == "arm64" {
		// On such a host the library detects this variant, and prefers it; with
		// an architecture that was set it would not.
		sys.VariantChoice = "v8"
	}
	return sys
}

// staged is where the copy of a file is.
func (c *Config) staged(name string) string { return c.dir + name }

// hostPath is a file of /etc below the root.
func (c *Config) hostPath(name string) string { return c.prefix + name }

// varPath is a file of /var below the root. That of a disk that was never
// booted lies beside its deployments: the prefix is
// ostree/deploy/STATEROOT/deploy/DEPLOYMENT.
func (c *Config) varPath(name string) string {
	if c.prefix == "" {
		return "/var" + name
	}
	return path.Join(c.prefix, "../../var", name)
}

// clean turns the copies' paths in a message into those below the root.
func (c *Config) clean(message string) string {
	for _, dir := range []string{c.dir + keysDir, c.dir + lookasideDir} {
		message = strings.ReplaceAll(message, dir, "")
	}
	return redact(strings.ReplaceAll(message, c.dir, c.prefix))
}

// readOptional reads a file that may be missing. A dangling link is not
// missing: someone meant a file to be there.
func readOptional(root *hostfs.Root, name string, limit int64) ([]byte, bool, error) {
	b, err := root.ReadFile(name, limit)
	if err == nil {
		return b, true, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return nil, false, err
}

// listOptional lists a directory that may be missing.
func listOptional(root *hostfs.Root, name string) ([]fs.DirEntry, error) {
	entries, err := root.ReadDir(name, maxConfigEntries)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}
