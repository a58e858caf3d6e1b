package hostconfig

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/test/registry"
)

// TestMirrors: {empty} is a registry that lacks the image, {down} none at all,
// {mirror} has it in mirror/ocp/os, {source} in ocp/os, each without TLS.
func TestMirrors(t *testing.T) {
	l := newLab(t)
	registries := map[string]*registry.Registry{
		"empty":  l.start(t, registry.Options{}),
		"mirror": l.start(t, registry.Options{}, "mirror/ocp/os"),
		"source": l.start(t, registry.Options{}, "ocp/os"),
		"six":    l.start(t, registry.Options{Address: "::1"}, "mirror/ocp/os"),
		"tls":    l.start(t, registry.Options{TLS: true}, "mirror/ocp/os"),
	}
	names := []string{"{digest}", l.image.Digest, "{down}", downAddress(t)}
	for name, r := range registries {
		names = append(names, "{"+name+"}", r.Host)
	}
	fill := strings.NewReplacer(names...)
	const (
		release  = "release.test/ocp/os@{digest}"
		good     = "[[registry.mirror]]\nlocation = \"{mirror}/mirror/ocp/os\"\ninsecure = true\n"
		lacking  = "[[registry.mirror]]\nlocation = \"{empty}/ocp/os\"\ninsecure = true\n"
		down     = "[[registry.mirror]]\nlocation = \"{down}/ocp/os\"\ninsecure = true\n"
		os       = "[[registry]]\nprefix = \"release.test/ocp/os\"\nlocation = \"release.test/ocp/os\"\n"
		toSource = "[[registry]]\nprefix = \"release.test\"\nlocation = \"{source}\"\ninsecure = true\n"
	)
	type asks map[string]int // requests by registry
	onlyMirror := asks{"mirror": wholeAnswer}
	tests := []struct {
		name, conf string
		url        string // release where empty
		want       want
		asks       asks
		// unlike says why Debian's skopeo 1.9 answers otherwise.
		unlike string
	}{
		{"mirror by digest only", os + "mirror-by-digest-only = true\n" + good, "", skip(), onlyMirror, ""},
		{"mirror of every kind", os + good, "", skip(), onlyMirror, ""},
		{"mirror's own restriction to digests", os + good + "pull-from-mirror = \"digest-only\"\n", "", skip(), onlyMirror, ""},
		{"mirror for all", os + good + "pull-from-mirror = \"all\"\n", "", skip(), onlyMirror, ""},
		{"mirror for tags alone", os + "blocked = true\n" + good + "pull-from-mirror = \"tag-only\"\n", "", fails("registry-blocked", "release.test/ocp/os"), nil, ""},
		{"both restrictions", os + "mirror-by-digest-only = true\n" + good + "pull-from-mirror = \"digest-only\"\n", "",
			fails("registries-conf-invalid", "/etc/containers/registries.conf", "pull-from-mirror"), nil, ""},
		{"restriction of an unknown kind", os + good + "pull-from-mirror = \"sometimes\"\n", "", fails("registries-conf-invalid", "pull-from-mirror"), nil, ""},
		{"blocked source, mirror has it", os + "blocked = true\n" + good, "", skip(), onlyMirror, ""},
		{"blocked source, no mirror", "[[registry]]\nlocation = \"{source}\"\ninsecure = true\nblocked = true\n", "{source}/ocp/os@{digest}", fails("registry-blocked", "{source}"), nil, ""},
		{"blocked source, mirror lacks it", "[[registry]]\nlocation = \"{source}\"\nblocked = true\ninsecure = true\n" + lacking, "{source}/ocp/os@{digest}",
			fails("registry-blocked", "{empty}", "blocked"), asks{"empty": 2}, ""},
		{"blocked source, mirror down", "[[registry]]\nlocation = \"{source}\"\nblocked = true\ninsecure = true\n" + down, "{source}/ocp/os@{digest}",
			fails("registry-blocked", "{down}", "refused"), nil, ""},
		{"mirrors in order", os + lacking + down + good, "", skip(), asks{"empty": 2, "mirror": wholeAnswer}, ""},
		{"the first that has it", os + good + lacking, "", skip(), onlyMirror, ""},
		{"the source last", toSource + lacking + down, "", skip(), asks{"empty": 2, "source": wholeAnswer}, ""},
		{"mirror that is not told to be insecure", os + "blocked = true\n" + strings.Replace(good, "insecure = true\n", "", 1), "",
			fails("registry-blocked", "{mirror}", "HTTP response to HTTPS client"), nil, ""},
		{"insecure is about certificates too", os + strings.ReplaceAll(good, "{mirror}", "{tls}"), "", skip(), asks{"tls": wholeAnswer}, ""},
		{"another repository's name", "[[registry]]\nprefix = \"release.test/ocp\"\nlocation = \"{mirror}/mirror/ocp\"\ninsecure = true\n", "", skip(), onlyMirror, ""},
		{"empty prefix", "[[registry]]\nprefix = \"\"\nlocation = \"{source}\"\ninsecure = true\n", "{source}/ocp/os@{digest}", skip(), asks{"source": wholeAnswer}, ""},
		{"empty short-name-mode", "short-name-mode = \"\"\n" + os + good, "", skip(), onlyMirror, ""},
		{"longest prefix", "[[registry]]\nprefix = \"release.test\"\nlocation = \"{empty}\"\ninsecure = true\n" + os + good, "", skip(), onlyMirror, ""},
		{"prefix ends with a part of the name", "[[registry]]\nprefix = \"release.test/oc\"\nlocation = \"{mirror}/mirror/oc\"\ninsecure = true\n" +
			"[[registry]]\nlocation = \"release.test\"\nblocked = true\n", "", fails("registry-blocked"), nil, ""},
		{"wildcard", "[[registry]]\nprefix = \"*.apps.test\"\n" + strings.Replace(good, "/mirror/ocp/os", "/mirror", 1), "registry.apps.test/ocp/os@{digest}", skip(), onlyMirror, ""},
		{"wildcard over two names", "[[registry]]\nprefix = \"*.test\"\n" + strings.Replace(good, "/mirror/ocp/os", "/mirror", 1), "registry.apps.test/ocp/os@{digest}", skip(), onlyMirror, ""},
		{"wildcard, blocked", "[[registry]]\nprefix = \"*.apps.test\"\nblocked = true\n", "registry.apps.test/ocp/os@{digest}", fails("registry-blocked", "*.apps.test"), nil, ""},
		{"wildcard is not the domain itself", "[[registry]]\nprefix = \"*.release.test\"\nlocation = \"{mirror}/mirror\"\ninsecure = true\n[[registry]]\nlocation = \"release.test\"\nblocked = true\n", "",
			fails("registry-blocked"), nil, ""},
		{"wildcard with a path", "[[registry]]\nprefix = \"*.test/ocp\"\nlocation = \"{mirror}\"\n", "", fails("registries-conf-invalid", "*.test/ocp"), nil, ""},
		{"IPv6 mirror, before a good one", os + "[[registry.mirror]]\nlocation = \"{six}/mirror/ocp/os\"\ninsecure = true\n" + good, "", fails("registries-conf-invalid", "{six}/mirror/ocp/os", "IPv6"), nil, ""},
		{"IPv6 target", "[[registry]]\nlocation = \"{six}\"\ninsecure = true\n", "{six}/mirror/ocp/os@{digest}", fails("reference-invalid", "IPv6"), nil, ""},
		{"one location, two meanings", "[[registry]]\nlocation = \"{source}\"\ninsecure = true\n[[registry]]\nprefix = \"x.test\"\nlocation = \"{source}\"\n", "{source}/ocp/os@{digest}",
			fails("registries-conf-invalid", "insecure"), nil, ""},
		{"short name", "unqualified-search-registries = [\"{source}\"]\n[[registry]]\nlocation = \"{source}\"\ninsecure = true\n", "ocp/os@{digest}", fails("machineconfig-invalid", "osImageURL", "short name"), nil, ""},
		{"version 1", "[registries.insecure]\nregistries = ['{source}']\n", "{source}/ocp/os@{digest}", fails("registries-conf-invalid", "v1", "/etc/containers/registries.conf"), nil,
			"versions before 2025 read it; a host that has it pivots"},
		{"not quoted", "unqualified-search-registries = []\n\n[[registry]]\nprefix = \"\"\n[[registry.mirror]]\nlocation = 192.168.1.1:5000\n", "", fails("registries-conf-invalid", "/etc/containers/registries.conf", "line 6"), nil, ""},
		{"garbage", "?\n", "", fails("registries-conf-invalid", "line 1"), nil, ""},
		{"registry without location", "[[registry]]\ninsecure = true\n", "", fails("registries-conf-invalid", "location"), nil, ""},
		{"location with a scheme", "[[registry]]\nlocation = \"https://{source}\"\n", "", fails("registries-conf-invalid", "URI schemes"), nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := tt.url
			if url == "" {
				url = release
			}
			url = fill.Replace(url)
			for i := range tt.want.texts {
				tt.want.texts[i] = fill.Replace(tt.want.texts[i])
			}
			l.host(t, url, files{confFile: fill.Replace(tt.conf)})
			reset(registries)
			tt.want.check(t, l.analyze(t))
			if diff := cmp.Diff(tt.asks, asks(counts(registries)), equalIfEmpty[asks]()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			reset(registries)
			err := l.skopeo(t, url)
			if same := (err != nil) == tt.want.failed; same == (tt.unlike != "") {
				t.Errorf("skopeo: %v", err)
			}
			// It asks the same registries.
			got := counts(registries)
			for name := range registries {
				if tt.unlike == "" && (got[name] == 0) != (tt.asks[name] == 0) {
					t.Errorf("skopeo sent %d requests to %s, oneboot %d", got[name], name, tt.asks[name])
				}
			}
		})
	}
}

func equalIfEmpty[M ~map[string]int]() cmp.Option {
	return cmp.Comparer(func(a, b M) bool { return maps.Equal(a, b) })
}

func reset(registries map[string]*registry.Registry) {
	for _, r := range registries {
		r.ResetRequests()
	}
}

// counts are the requests that were answered, by registry.
func counts(registries map[string]*registry.Registry) map[string]int {
	n := map[string]int{}
	for name, r := range registries {
		if c := asked(r); c > 0 {
			n[name] = c
		}
	}
	return n
}

// TestTagMirrors: a tag pins nothing, so its answer is proceed; only --full
// asks for it.
func TestTagMirrors(t *testing.T) {
	l := newLab(t)
	registries := map[string]*registry.Registry{"mirror": l.start(t, registry.Options{}, "ocp/os"), "source": l.start(t, registry.Options{}, "ocp/os")}
	mirror, source := registries["mirror"], registries["source"]
	for name, tt := range map[string]struct {
		conf string
		from string
	}{
		"by digest only":        {"mirror-by-digest-only = true\n[[registry.mirror]]\nlocation = %q\ninsecure = true\n", "source"},
		"mirror's digests only": {"[[registry.mirror]]\nlocation = %q\ninsecure = true\npull-from-mirror = \"digest-only\"\n", "source"},
		"tags only":             {"[[registry.mirror]]\nlocation = %q\ninsecure = true\npull-from-mirror = \"tag-only\"\n", "mirror"},
		"all":                   {"[[registry.mirror]]\nlocation = %q\ninsecure = true\n", "mirror"},
	} {
		t.Run(name, func(t *testing.T) {
			url := source.Reference("ocp/os", "latest")
			l.host(t, url, files{confFile: fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n"+tt.conf, source.Host, mirror.Host)})
			for _, ask := range []func() error{
				func() error { return l.skopeo(t, url) },
				func() error {
					if v := l.analyze(t, full); v.Reason != "pinned-differs" {
						return fmt.Errorf("got %s: %+v", v.Reason, v.Errors)
					}
					return nil
				},
			} {
				reset(registries)
				if err := ask(); err != nil {
					t.Error(err)
				}
				if got := counts(registries); len(got) != 1 || got[tt.from] == 0 {
					t.Errorf("asked %v, want %s", got, tt.from)
				}
			}
			reset(registries)
			if v := l.analyze(t); v.Reason != "pinned-differs" || len(counts(registries)) != 0 {
				t.Errorf("got %s, asked %v", v.Reason, counts(registries))
			}
		})
	}
}
