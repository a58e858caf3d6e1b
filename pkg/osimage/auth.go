package osimage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"

	"github.com/oneboot/oneboot/pkg/hostfs"
)

// authPaths are the host's auth files, the first one that has an entry for a
// key wins. rpm-ostree and bootc (ostree-ext) look at /run/ostree before
// /etc/ostree before /usr/lib/ostree and use one file; the
// machine-config-daemon makes /run/ostree/auth.json (for rpm-ostree) or
// /etc/ostree/auth.json (for bootc) a link to the kubelet's file only when it
// pulls, which is after this program ran on a first boot, and gives the
// kubelet's file to podman. So the kubelet's file stands last, for what the
// others do not have.
func (c *Config) authPaths() []string {
	return []string{
		"/run/ostree/auth.json",
		c.hostPath("/etc/ostree/auth.json"),
		c.prefix + "/usr/lib/ostree/auth.json",
		"/var/lib/kubelet/config.json",
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

// loadAuth merges the auth files into one that is kept in memory only.
func (c *Config) loadAuth(root *hostfs.Root, callers string) error {
	merged := authFile{Auths: map[string]authEntry{}}
	add := func(name string, b []byte) error {
		f, err := parseAuth(b)
		if err != nil {
			return fail(AuthUnreadable, name, err)
		}
		c.helpers = c.helpers || len(f.CredHelpers) > 0
		maps.Copy(f.Auths, merged.Auths)
		merged.Auths = f.Auths
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
	b, err := json.Marshal(merged)
	if err != nil {
		return fail(AuthUnreadable, "auth files", err)
	}
	c.auth, err = c.inMemory(b)
	if err != nil {
		return fail(AuthUnreadable, "auth files", err)
	}
	return nil
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
