package osimage

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/hostfs"
)

// authPaths are the host's auth files, the most important first. The
// machine-config-daemon makes /run/ostree/auth.json a link to the kubelet's
// file before rpm-ostree pulls (pkg/daemon/image_manager_helper.go; early
// versions keep a file that is there), and gives the kubelet's file to podman.
// So on a first boot, where that link is not there yet, the kubelet's file
// stands in its place. rpm-ostree and bootc (ostree-ext) by themselves look at
// /run/ostree, then /etc/ostree, then /usr/lib/ostree.
func (c *Config) authPaths() []string {
	return []string{
		"/run/ostree/auth.json",
		c.varPath("/lib/kubelet/config.json"),
		c.hostPath("/etc/ostree/auth.json"),
		c.hostPath("/usr/lib/ostree/auth.json"),
	}
}

// authFile is the part of containers-auth.json(5) that is used here.
type authFile struct {
	Auths       map[string]authEntry `json:"auths"`
	CredHelpers map[string]string    `json:"credHelpers,omitempty"`
}

// authEntry is checked by the library, and only when it is used: a malformed
// one for another registry breaks nothing.
type authEntry struct {
	Auth          string `json:"auth,omitempty"`
	IdentityToken string `json:"identitytoken,omitempty"`
}

// malformed reports whether the library will refuse the entry.
func (e authEntry) malformed() bool {
	_, err := base64.StdEncoding.DecodeString(e.Auth)
	return err != nil
}

// empty reports whether the library takes the entry for none at all, as those
// are that mark a credential helper's registry.
func (e authEntry) empty() bool {
	decoded, err := base64.StdEncoding.DecodeString(e.Auth)
	if err != nil {
		return false
	}
	user, password, found := strings.Cut(string(decoded), ":")
	return !found || user == "" && strings.Trim(password, "\x00") == "" && e.IdentityToken == ""
}

// loadAuth merges the auth files into one that is kept in memory only.
func (c *Config) loadAuth(root *hostfs.Root, callers string) error {
	var files []authFile
	add := func(name string, b []byte) error {
		f, err := parseAuth(b)
		if err != nil {
			return fail(AuthUnreadable, name, err)
		}
		c.helpers = c.helpers || len(f.CredHelpers) > 0
		for _, key := range slices.Sorted(maps.Keys(f.Auths)) {
			if f.Auths[key].malformed() {
				c.badAuth = append(c.badAuth, fmt.Sprintf("%.100q in %s", key, name))
			}
		}
		files = append(files, f)
		return nil
	}
	if callers != "" {
		b, err := readCallersFile(callers)
		if err != nil {
			return fail(AuthUnreadable, callers, fmt.Errorf("reading: %w", bare(err)))
		}
		if err := add(callers, b); err != nil {
			return err
		}
	} else {
		for _, name := range c.authPaths() {
			b, ok, err := readOptional(root, name, maxConfigFile)
			if err != nil {
				return fail(AuthUnreadable, name, fmt.Errorf("reading: %w", bare(err)))
			}
			if !ok {
				continue
			}
			if err := add(name, b); err != nil {
				return err
			}
		}
	}
	b, err := json.Marshal(mergeAuth(files))
	if err != nil {
		return fail(AuthUnreadable, "auth files", err)
	}
	c.auth, err = c.inMemory(b)
	if err != nil {
		return fail(AuthUnreadable, "auth files", err)
	}
	return nil
}

// mergeAuth makes one file that answers as the files do one after the other:
// the first that has credentials for an image gives them, from its most
// specific key, even where a later file has a more specific one. For any image
// the most specific of all keys finds the same entries in each file as the
// image's own name, so it is enough to ask for every key.
func mergeAuth(files []authFile) authFile {
	merged := authFile{Auths: map[string]authEntry{}}
	for _, f := range files {
		for key := range f.Auths {
			merged.Auths[key] = findAuth(files, key)
		}
	}
	return merged
}

func findAuth(files []authFile, key string) authEntry {
	for _, f := range files {
		if e := f.find(key); !e.empty() {
			return e
		}
	}
	return authEntry{}
}

// find returns the entry of the key or of the nearest key above it.
func (f authFile) find(key string) authEntry {
	for {
		if e, ok := f.Auths[key]; ok {
			return e
		}
		i := strings.LastIndexByte(key, '/')
		if i < 0 {
			return authEntry{}
		}
		key = key[:i]
	}
}

// addHosts adds the hosts of keys that are addresses, as old versions of
// docker wrote them; a key that is the host itself stands before.
func (f authFile) addHosts() {
	for _, key := range slices.Sorted(maps.Keys(f.Auths)) {
		host := hostOfKey(key)
		if _, ok := f.Auths[host]; !ok {
			f.Auths[host] = f.Auths[key]
		}
	}
}

// hostOfKey is the registry that an address names, and any other key itself.
func hostOfKey(key string) string {
	host := strings.TrimPrefix(strings.TrimPrefix(key, "http://"), "https://")
	if host != key {
		host, _, _ = strings.Cut(host, "/")
	}
	switch host {
	case "index.docker.io", "registry-1.docker.io":
		return "docker.io"
	}
	return host
}

func readCallersFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxConfigFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxConfigFile {
		return nil, fmt.Errorf("larger than %d bytes", maxConfigFile)
	}
	return b, nil
}

// parseAuth parses an auth file. Its errors quote nothing of it.
func parseAuth(b []byte) (authFile, error) {
	var f authFile
	if err := json.Unmarshal(b, &f); err != nil {
		return authFile{}, fmt.Errorf("parsing JSON%s: not in the containers-auth.json format", jsonPosition(b, err))
	}
	if f.Auths == nil {
		f.Auths = map[string]authEntry{}
	}
	f.addHosts()
	return f, nil
}

// jsonPosition says where a JSON error is: " at line 3, column 7", or "".
func jsonPosition(b []byte, err error) string {
	var offset int64
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = e.Offset
	} else if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		offset = e.Offset
	} else {
		return ""
	}
	before := b[:min(max(offset, 0), int64(len(b)))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n') - 1
	return fmt.Sprintf(" at line %d, column %d", line, column)
}
