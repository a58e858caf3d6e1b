package osimage

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpproxy"
)

const (
	proxyEnvPath  = "/etc/mco/proxy.env"
	maxProxyEnv   = 64 << 10
	maxProxyLines = 1000
)

// proxyFunc returns which proxy serves a URL. Variables of /etc/mco/proxy.env
// (written by the machine-config-operator for rpm-ostreed and others) stand
// before those of this process's environment, as in a systemd unit with that
// EnvironmentFile.
func proxyFunc(file map[string]string) (func(*url.URL) (*url.URL, error), error) {
	get := func(names ...string) (string, string) {
		for _, n := range names {
			v, ok := file[n]
			if !ok {
				v = os.Getenv(n)
			}
			if v != "" {
				return n, v
			}
		}
		return "", ""
	}
	var cfg httpproxy.Config
	for _, p := range []struct {
		dst   *string
		names []string
	}{
		{&cfg.HTTPProxy, []string{"HTTP_PROXY", "http_proxy"}},
		{&cfg.HTTPSProxy, []string{"HTTPS_PROXY", "https_proxy"}},
	} {
		name, v := get(p.names...)
		// httpproxy takes a malformed address for no proxy.
		if v != "" && !validProxy(v) {
			return nil, fmt.Errorf("%s is not the address of an HTTP or SOCKS proxy", name)
		}
		*p.dst = v
	}
	_, cfg.NoProxy = get("NO_PROXY", "no_proxy")
	return cfg.ProxyFunc(), nil
}

// validProxy accepts what httpproxy uses: a URL, or host:port without scheme.
func validProxy(s string) bool {
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && knownProxyScheme(u.Scheme)
}

func knownProxyScheme(scheme string) bool {
	switch scheme {
	case "http", "https", "socks5", "socks5h":
		return true
	default:
		return false
	}
}

// parseEnvironmentFile reads the syntax of systemd's EnvironmentFile=
// (systemd.exec(5)): quotes, escapes, continued lines, comments with # and ;.
// Lines without "=" are ignored there, and here.
func parseEnvironmentFile(b []byte) (map[string]string, error) {
	if !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
		return nil, errors.New("not a text file")
	}
	if bytes.Count(b, []byte("\n")) > maxProxyLines {
		return nil, fmt.Errorf("more than %d lines", maxProxyLines)
	}
	p := envParser{vars: map[string]string{}}
	for _, c := range b {
		p.state = p.step(c)
	}
	p.finish()
	return p.vars, nil
}

type envState func(p *envParser, c byte) envState

type envParser struct {
	vars       map[string]string
	key, value []byte
	// keep is the length of value that must survive trimming.
	keep  int
	state envState
}

func (p *envParser) step(c byte) envState {
	if p.state == nil {
		p.state = envBeforeKey
	}
	return p.state(p, c)
}

// finish ends the last assignment as a line's end would.
func (p *envParser) finish() {
	if len(p.key) > 0 {
		p.assign()
	}
}

func (p *envParser) assign() {
	v := p.value
	for len(v) > p.keep && isBlank(v[len(v)-1]) {
		v = v[:len(v)-1]
	}
	p.vars[string(p.key)] = string(v)
	p.key, p.value, p.keep = nil, nil, 0
}

func (p *envParser) add(c ...byte) {
	p.value = append(p.value, c...)
	p.keep = len(p.value)
}

func isNewline(c byte) bool { return c == '\n' || c == '\r' }
func isBlank(c byte) bool   { return c == ' ' || c == '\t' || isNewline(c) }

func envBeforeKey(p *envParser, c byte) envState {
	switch {
	case c == '#', c == ';':
		return envComment
	case isBlank(c):
		return envBeforeKey
	case c == '=':
		return envIgnoredLine
	}
	return envKey([]byte{c})
}

// envIgnoredLine skips an assignment without a name.
func envIgnoredLine(_ *envParser, c byte) envState {
	if isNewline(c) {
		return envBeforeKey
	}
	return envIgnoredLine
}

func envKey(key []byte) envState {
	return func(p *envParser, c byte) envState {
		switch {
		case isNewline(c):
			return envBeforeKey
		case c == '=':
			p.key = []byte(strings.TrimRight(string(key), " \t"))
			return envBeforeValue
		}
		return envKey(append(key, c))
	}
}

func envBeforeValue(p *envParser, c byte) envState {
	switch {
	case isNewline(c):
		p.assign()
		return envBeforeKey
	case c == '\'':
		return envSingleQuoted
	case c == '"':
		return envDoubleQuoted
	case c == '\\':
		return envEscaped
	case isBlank(c):
		return envBeforeValue
	}
	p.add(c)
	return envValue
}

func envValue(p *envParser, c byte) envState {
	switch {
	case isNewline(c):
		p.assign()
		return envBeforeKey
	case c == '\\':
		p.keep = len(p.value)
		return envEscaped
	case isBlank(c):
		p.value = append(p.value, c)
		return envValue
	}
	p.add(c)
	return envValue
}

func envEscaped(p *envParser, c byte) envState {
	if !isNewline(c) {
		p.add(c)
	}
	return envValue
}

func envSingleQuoted(p *envParser, c byte) envState {
	if c == '\'' {
		return envBeforeValue
	}
	p.add(c)
	return envSingleQuoted
}

func envDoubleQuoted(p *envParser, c byte) envState {
	switch c {
	case '"':
		return envBeforeValue
	case '\\':
		return envDoubleEscaped
	}
	p.add(c)
	return envDoubleQuoted
}

func envDoubleEscaped(p *envParser, c byte) envState {
	switch {
	case strings.IndexByte("\"\\`$", c) >= 0:
		p.add(c)
	case c != '\n':
		p.add('\\', c)
	}
	return envDoubleQuoted
}

func envComment(_ *envParser, c byte) envState {
	switch {
	case c == '\\':
		return envCommentEscaped
	case isNewline(c):
		return envBeforeKey
	}
	return envComment
}

func envCommentEscaped(_ *envParser, c byte) envState {
	if isNewline(c) {
		return envBeforeKey
	}
	return envComment
}
