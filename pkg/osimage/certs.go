package osimage

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/hostfs"
)

// stageCerts copies certs.d: a registry's directory below /etc/containers
// hides the one of the same name below /etc/docker, as in
// containers-certs.d(5).
func (c *Config) stageCerts(root *hostfs.Root) error {
	if err := os.MkdirAll(c.staged(containersCertsD), 0o700); err != nil {
		return fail(CertsInvalid, c.hostPath(containersCertsD), err)
	}
	seen := map[string]bool{}
	for _, dir := range []string{containersCertsD, dockerCertsD} {
		hosts, err := listOptional(root, c.hostPath(dir))
		if err != nil {
			return fail(CertsInvalid, c.hostPath(dir), fmt.Errorf("listing: %w", bare(err)))
		}
		for _, h := range hosts {
			name := c.hostPath(path.Join(dir, h.Name()))
			fi, err := root.Stat(name)
			if err != nil {
				return fail(CertsInvalid, name, fmt.Errorf("reading: %w", bare(err)))
			}
			if !fi.IsDir() || seen[h.Name()] {
				continue
			}
			seen[h.Name()] = true
			if err := c.stageHostCerts(root, name, h.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Config) stageHostCerts(root *hostfs.Root, dir, host string) error {
	target := filepath.Join(c.staged(containersCertsD), host)
	if err := os.Mkdir(target, 0o700); err != nil {
		return fail(CertsInvalid, dir, bare(err))
	}
	files, err := root.ReadDir(dir, maxConfigEntries)
	if err != nil {
		return fail(CertsInvalid, dir, fmt.Errorf("listing: %w", bare(err)))
	}
	for _, f := range files {
		ext := path.Ext(f.Name())
		if ext != ".crt" && ext != ".cert" && ext != ".key" {
			continue
		}
		name := path.Join(dir, f.Name())
		b, err := root.ReadFile(name, maxConfigFile)
		if errors.Is(err, hostfs.ErrDangling) && ext == ".crt" {
			// Packages ship such links; the library passes over them. Trusting
			// less is safe.
			continue
		}
		if err != nil {
			return fail(CertsInvalid, name, fmt.Errorf("reading: %w", bare(err)))
		}
		copied := filepath.Join(target, f.Name())
		if ext == ".key" {
			// A private key stays in memory.
			p, err := c.inMemory(b)
			if err == nil {
				err = os.Symlink(p, copied)
			}
			if err != nil {
				return fail(CertsInvalid, name, bare(err))
			}
			continue
		}
		if err := os.WriteFile(copied, b, 0o600); err != nil {
			return fail(CertsInvalid, name, bare(err))
		}
		if ext == ".crt" {
			c.addHostCA(host, b)
		}
	}
	return nil
}

// addHostCA trusts CAs for one registry, beside the system's.
func (c *Config) addHostCA(host string, pems []byte) {
	if host == "docker.io" {
		host = "registry-1.docker.io" // where the library connects to
	}
	if c.hostPools == nil {
		c.hostPools = map[string]*x509.CertPool{}
	}
	if c.hostPools[host] == nil {
		c.hostPools[host] = c.pool.Clone()
	}
	c.hostPools[host].AppendCertsFromPEM(pems)
}

// caBundles are the places where distributions keep the system's CAs: the
// first one that is there counts, as for Go programs on the host
// (crypto/x509, root_linux.go).
var caBundles = [...]string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/pki/tls/cacert.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// anchorsD holds CAs that an administrator (or the machine-config-operator)
// added; early in a first boot the bundle may not have been made anew yet.
const anchorsD = "/etc/pki/ca-trust/source/anchors"

// caDirectories hold single CAs, which Go programs trust beside the bundle
// (crypto/x509, root_linux.go). Links in them, and a directory that is itself
// a link, are made by tools from the bundle's own CAs, hundreds of them.
var caDirectories = [...]string{"/etc/ssl/certs", "/etc/pki/tls/certs"}

const maxCABundle = 16 << 20

// loadCAs reads the system's CAs below the root. Without any, no registry is
// trusted but those with a CA in certs.d.
func (c *Config) loadCAs(root *hostfs.Root) error {
	c.pool = x509.NewCertPool()
	for _, name := range caBundles {
		name = c.hostPath(name)
		b, err := root.ReadFile(name, maxCABundle)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, hostfs.ErrDangling) {
			// Dangling: a link from a deployment into an /etc that is elsewhere.
			continue
		}
		if err != nil {
			return fail(CertsInvalid, name, fmt.Errorf("reading: %w", bare(err)))
		}
		if !c.pool.AppendCertsFromPEM(b) {
			return failText(CertsInvalid, name, "holds no certificate")
		}
		break
	}
	for _, dir := range caDirectories {
		if _, err := root.Readlink(c.hostPath(dir)); err == nil {
			continue
		}
		if err := c.addCAs(root, c.hostPath(dir), fs.FileMode.IsRegular); err != nil {
			return err
		}
	}
	return c.addCAs(root, c.hostPath(anchorsD), func(m fs.FileMode) bool { return !m.IsDir() })
}

// addCAs trusts the CAs that lie in a directory, in files of the kinds wanted.
func (c *Config) addCAs(root *hostfs.Root, dir string, wanted func(fs.FileMode) bool) error {
	entries, err := listOptional(root, dir)
	if err != nil {
		return fail(CertsInvalid, dir, fmt.Errorf("listing: %w", bare(err)))
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if !wanted(e.Type()) || strings.HasPrefix(e.Name(), ".") || slices.Contains(caBundles[:], path.Join(strings.TrimPrefix(dir, c.prefix), e.Name())) {
			continue
		}
		b, err := root.ReadFile(name, maxConfigFile)
		if errors.Is(err, hostfs.ErrDangling) {
			continue // trusting less is safe
		}
		if err != nil {
			return fail(CertsInvalid, name, fmt.Errorf("reading: %w", bare(err)))
		}
		// Other formats than PEM and DER are for other tools: trusting less is
		// safe.
		if cert, err := x509.ParseCertificate(b); err == nil {
			c.pool.AddCert(cert)
		} else {
			c.pool.AppendCertsFromPEM(b)
		}
	}
	return nil
}

// loadProxy reads proxy.env and this process's environment.
func (c *Config) loadProxy(root *hostfs.Root) error {
	name := c.hostPath(proxyEnvPath)
	b, _, err := readOptional(root, name, maxProxyEnv)
	if err != nil {
		return fail(ProxyInvalid, name, fmt.Errorf("reading: %w", bare(err)))
	}
	vars, err := parseEnvironmentFile(b)
	if err != nil {
		return fail(ProxyInvalid, name, fmt.Errorf("parsing: %w", err))
	}
	c.proxy, err = proxyFunc(vars)
	if err != nil {
		return fail(ProxyInvalid, name+" and the environment", err)
	}
	return nil
}
