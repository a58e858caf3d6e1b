package hostconfig

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/test/registry"
)

func insecure(r *registry.Registry) string {
	return fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", r.Host)
}

// TestAuthFiles: which entry of which file is used, at a registry that asks
// for a password and at one whose token server does.
func TestAuthFiles(t *testing.T) {
	l := newLab(t)
	const user = "puller:" + secret
	for _, token := range []bool{false, true} {
		r := l.start(t, registry.Options{Username: "puller", Password: secret, Token: token, IdentityToken: secret + "-identity"}, "org/os", "org2/os")
		url := r.Reference("org/os", l.image.Digest)
		good, bad := basic(r.Host, user), basic(r.Host, "puller:wrong")
		encoded := base64.StdEncoding.EncodeToString([]byte(user))
		wrong := base64.StdEncoding.EncodeToString([]byte("puller:wrong"))
		entries := func(text string) string {
			return `{"auths":{` + strings.NewReplacer("{host}", r.Host, "{good}", `{"auth":"`+encoded+`"}`, "{bad}", `{"auth":"`+wrong+`"}`).Replace(text) + `}}`
		}
		refused := fails("registry-unauthorized", r.Host)
		tests := []struct {
			name  string
			files files
			want  want
			// skopeo is asked with the file at this path, where there is one.
			skopeo string
		}{
			{"none", nil, refused, ""},
			{"the kubelet's", files{kubeletFile: good}, skip(), kubeletFile},
			{"in /run", files{runFile: good}, skip(), runFile},
			{"in /etc", files{etcFile: good}, skip(), etcFile},
			{"in /usr", files{"usr/lib/ostree/auth.json": good}, skip(), "usr/lib/ostree/auth.json"},
			{"/run first", files{runFile: good, kubeletFile: bad, etcFile: bad}, skip(), ""},
			{"/run first, refused", files{runFile: bad, kubeletFile: good}, refused, ""},
			{"the kubelet's next: the daemon links it to /run", files{kubeletFile: good, etcFile: bad}, skip(), ""},
			{"a file for others", files{runFile: basic("quay.io", user), kubeletFile: good}, skip(), ""},
			{"a later file's narrower key", files{runFile: good, kubeletFile: entries(`"{host}/org":{bad}`)}, skip(), ""},
			{"an entry without credentials", files{runFile: entries(`"{host}":{}`), kubeletFile: good}, skip(), ""},
			{"wrong", files{kubeletFile: bad}, refused, kubeletFile},
			{"of the repository", files{kubeletFile: entries(`"{host}/org/os":{good},"{host}":{bad}`)}, skip(), kubeletFile},
			{"of the organisation", files{kubeletFile: entries(`"{host}/org":{good},"{host}":{bad}`)}, skip(), kubeletFile},
			{"narrower and wrong", files{kubeletFile: entries(`"{host}/org":{bad},"{host}":{good}`)}, refused, kubeletFile},
			{"narrower and empty", files{kubeletFile: entries(`"{host}/org":{},"{host}":{good}`)}, refused, kubeletFile},
			{"not by a part of a name", files{kubeletFile: entries(`"{host}/or":{bad},"{host}/org/o":{bad},"{host}":{good}`)}, skip(), kubeletFile},
			{"of another organisation", files{kubeletFile: entries(`"{host}/org2":{good}`)}, refused, kubeletFile},
			{"key with a tag is none", files{kubeletFile: entries(`"{host}/org/os:latest":{good}`)}, refused, kubeletFile},
			{"address as key", files{kubeletFile: entries(`"https://{host}/v1/":{good}`)}, skip(), kubeletFile},
			{"without the port", files{kubeletFile: entries(`"127.0.0.1":{good}`)}, refused, kubeletFile},
			{"malformed entry of another registry", files{kubeletFile: entries(`"fake":{"auth":"bar"},"quay.io":{"auth":"***"},"registry.test":null,"{host}":{good}`)}, skip(), kubeletFile},
			{"malformed entry alone", files{kubeletFile: entries(`"fake":{"auth":"bar"}`)}, refused, kubeletFile},
			{"malformed entry", files{kubeletFile: entries(`"{host}":{"auth":"` + secret + `*"}`)}, fails("auth-unreadable", `"`+r.Host+`" in /var/lib/kubelet/config.json`), kubeletFile},
			{"malformed entry in the first file", files{runFile: entries(`"{host}/org":{"auth":"` + secret + `*"}`), kubeletFile: good}, fails("auth-unreadable", r.Host+`/org" in /run/ostree/auth.json`), ""},
			{"user alone", files{kubeletFile: entries(`"{host}":{"auth":"` + base64.StdEncoding.EncodeToString([]byte(secret)) + `"}`)}, refused, kubeletFile},
			{"NULs around the password", files{kubeletFile: basic(r.Host, user+"\x00\x00")}, skip(), kubeletFile},
			{"newline after the password is part of it", files{kubeletFile: basic(r.Host, user+"\n")}, refused, kubeletFile},
			{"newline in the encoded text is not", files{kubeletFile: entries(`"{host}":{"auth":"` + encoded[:8] + `\n` + encoded[8:] + `\n"}`)}, skip(), kubeletFile},
			{"blank in the encoded text", files{kubeletFile: entries(`"{host}":{"auth":"` + encoded + ` "}`)}, fails("auth-unreadable", r.Host), kubeletFile},
			{"newlines around the file's text", files{kubeletFile: "\n" + good + "\n\n"}, skip(), kubeletFile},
			{"docker's other keys", files{kubeletFile: `{"credsStore":"desktop","HttpHeaders":{"X":"y"},` + good[1:]}, skip(), kubeletFile},
			{"empty file", files{kubeletFile: "", runFile: good}, fails("auth-unreadable", "/var/lib/kubelet/config.json"), ""},
			{"cut", files{kubeletFile: "{\n\"auths\": {\"quay.io\": {\"auth\": \"" + secret}, fails("auth-unreadable", "/var/lib/kubelet/config.json", "line 2"), kubeletFile},
			{"another shape", files{kubeletFile: `{"auths":{"quay.io":"` + secret + `"}}`}, fails("auth-unreadable", "/var/lib/kubelet/config.json", "line 1"), kubeletFile},
			{"folder", files{kubeletFile + "/x": ""}, fails("auth-unreadable", "/var/lib/kubelet/config.json", "not a regular file"), kubeletFile},
			{"file for its folder", files{"run/ostree": "", kubeletFile: good}, fails("auth-unreadable", "/run/ostree/auth.json", "not a directory"), ""},
			{"identity token", files{kubeletFile: entries(`"{host}":{"auth":"` + base64.StdEncoding.EncodeToString([]byte("0:0")) + `","identitytoken":"` + secret + `-identity"}`)},
				map[bool]want{false: refused, true: skip()}[token], kubeletFile},
		}
		for _, tt := range tests {
			t.Run(fmt.Sprintf("token %v/%s", token, tt.name), func(t *testing.T) {
				fs := files{confFile: insecure(r)}
				for name, text := range tt.files {
					fs[name] = text
				}
				l.host(t, url, fs)
				tt.want.check(t, l.analyze(t))
				if tt.skopeo == "" {
					return
				}
				if err := l.skopeo(t, url, "--authfile="+l.root.Path(tt.skopeo)); (err != nil) != tt.want.failed {
					t.Errorf("skopeo: %v", err)
				}
			})
		}
	}
}

// TestNewlineInPassword: what the file says is sent as it is.
func TestNewlineInPassword(t *testing.T) {
	l := newLab(t)
	r := l.start(t, registry.Options{Username: "id", Password: "pass\n"}, "os")
	l.host(t, r.Reference("os", l.image.Digest), files{confFile: insecure(r), kubeletFile: `{"auths":{"` + r.Host + `":{"auth":"aWQ6cGFzcwo="}}}` + "\n"})
	skip().check(t, l.analyze(t))
}

// TestMirrorAuth: a mirror is asked with its own credentials, and one that
// refuses them does not end the search.
func TestMirrorAuth(t *testing.T) {
	l := newLab(t)
	strict := l.start(t, registry.Options{Username: "puller", Password: secret}, "org/os")
	open := l.start(t, registry.Options{}, "org/os")
	conf := fmt.Sprintf("[[registry]]\nlocation = \"release.test/org/os\"\nblocked = true\n[[registry.mirror]]\nlocation = \"%s/org/os\"\ninsecure = true\n", strict.Host)
	second := fmt.Sprintf("[[registry.mirror]]\nlocation = \"%s/org/os\"\ninsecure = true\n", open.Host)
	url := "release.test/org/os@" + l.image.Digest
	for name, tt := range map[string]struct {
		conf, auth string
		want       want
	}{
		"its own":              {conf, basic(strict.Host+"/org", "puller:"+secret), skip()},
		"the source's":         {conf, basic("release.test", "puller:"+secret), fails("registry-blocked", strict.Host, "unauthorized")},
		"refused, then open":   {conf + second, basic(strict.Host, "puller:wrong"), skip()},
		"malformed, then open": {conf + second, `{"auths":{"` + strict.Host + `":{"auth":"*"}}}`, skip()},
	} {
		t.Run(name, func(t *testing.T) {
			l.host(t, url, files{confFile: tt.conf, kubeletFile: tt.auth})
			tt.want.check(t, l.analyze(t))
			if err := l.skopeo(t, url, "--authfile="+l.root.Path(kubeletFile)); (err != nil) != tt.want.failed {
				t.Errorf("skopeo: %v", err)
			}
		})
	}
}

// TestCallersAuthFile: --authfile is the only one, and a path of the caller's.
func TestCallersAuthFile(t *testing.T) {
	l := newLab(t)
	r := l.start(t, registry.Options{Username: "puller", Password: secret}, "os")
	good, bad := basic(r.Host, "puller:"+secret), basic(r.Host, "puller:wrong")
	callers := filepath.Join(t.TempDir(), "auth.json")
	for name, tt := range map[string]struct {
		text string
		want want
	}{
		"alone":        {good, skip()},
		"wrong":        {bad, fails("registry-unauthorized")},
		"for others":   {basic("quay.io", "a:b"), fails("registry-unauthorized")},
		"malformed":    {"{", fails("auth-unreadable", callers)},
		"not there":    {"", fails("auth-unreadable", callers, "no such file")},
		"is a folder ": {"folder", fails("auth-unreadable", callers)},
	} {
		t.Run(name, func(t *testing.T) {
			host := bad
			if tt.want.code != "" {
				host = good
			}
			l.host(t, r.Reference("os", l.image.Digest), files{confFile: insecure(r), kubeletFile: host, runFile: host})
			if err := os.RemoveAll(callers); err != nil {
				t.Fatal(err)
			}
			var err error
			switch tt.text {
			case "":
			case "folder":
				err = os.Mkdir(callers, 0o755)
			default:
				err = os.WriteFile(callers, []byte(tt.text), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			tt.want.check(t, l.analyze(t, func(o *daemon.Options) { o.AuthFile = callers }))
		})
	}
}

// TestHelpersAreNotRun, though the host's tools run them: oneboot does without.
func TestHelpersAreNotRun(t *testing.T) {
	l := newLab(t)
	r := l.start(t, registry.Options{Username: "puller", Password: secret}, "os")
	bin := t.TempDir()
	mark := filepath.Join(bin, "was-run")
	script := "#!/bin/sh\necho run >>" + mark + "\necho '{\"Username\":\"puller\",\"Secret\":\"" + secret + "\"}'\n"
	if err := os.WriteFile(filepath.Join(bin, "docker-credential-test"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	helper := `{"auths":{},"credHelpers":{"` + r.Host + `":"test"}}`
	url := r.Reference("os", l.image.Digest)
	for name, tt := range map[string]struct {
		files files
		want  want
	}{
		"auth file":                 {files{confFile: insecure(r), kubeletFile: helper}, fails("registry-unauthorized", "credential helpers")},
		"registries.conf":           {files{confFile: "credential-helpers = [\"test\"]\n" + insecure(r), kubeletFile: "{}"}, fails("registry-unauthorized", "credential helpers")},
		"drop-in":                   {files{confFile: insecure(r), confDir + "10.conf": "credential-helpers = [\"test\"]\n"}, fails("registry-unauthorized", "credential helpers")},
		"entry beside it":           {files{confFile: "credential-helpers = [\"test\"]\n" + insecure(r), kubeletFile: basic(r.Host, "puller:"+secret)}, skip()},
		"helper of another":         {files{confFile: insecure(r), kubeletFile: `{"auths":` + strings.TrimSuffix(strings.TrimPrefix(basic(r.Host, "puller:"+secret), `{"auths":`), "}") + `,"credHelpers":{"quay.io":"test"}}`}, skip()},
		"additional store's helper": {files{confFile: "additional-layer-store-auth-helper = \"" + bin + "/docker-credential-test\"\n" + insecure(r), kubeletFile: basic(r.Host, "puller:"+secret)}, skip()},
	} {
		t.Run(name, func(t *testing.T) {
			l.host(t, url, tt.files)
			tt.want.check(t, l.analyze(t))
			if _, err := os.Stat(mark); err == nil {
				t.Error("a helper was run")
			}
		})
	}
	// It would have answered.
	l.host(t, url, files{confFile: insecure(r), kubeletFile: helper})
	if err := l.skopeo(t, url, "--authfile="+l.root.Path(kubeletFile)); err != nil {
		t.Error(err)
	}
}
