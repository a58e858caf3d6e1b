package hostconfig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/oneboot/oneboot/test/registry"
)

// TestDropIns: registries.conf.d after registries.conf, by name, the later one
// replaces the whole table of a prefix.
func TestDropIns(t *testing.T) {
	l := newLab(t)
	mirror, empty := l.start(t, registry.Options{}, "ocp/os"), l.start(t, registry.Options{})
	registries := map[string]*registry.Registry{"mirror": mirror, "empty": empty}
	const release = "release.test/ocp/os"
	table := func(r *registry.Registry) string {
		return fmt.Sprintf("[[registry]]\nprefix = %q\nlocation = %q\nblocked = true\n[[registry.mirror]]\nlocation = \"%s/ocp/os\"\ninsecure = true\n", release, release, r.Host)
	}
	good, bad := table(mirror), table(empty)
	fifo := func(name string) func(*testing.T) {
		return func(t *testing.T) {
			if err := os.MkdirAll(filepath.Dir(l.root.Path(name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mkfifo(l.root.Path(name), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	link := func(name, target string) func(*testing.T) {
		return func(t *testing.T) {
			if err := os.MkdirAll(filepath.Dir(l.root.Path(name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, l.root.Path(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []struct {
		name  string
		files files
		edit  func(*testing.T)
		want  want
		// unlike says why skopeo answers otherwise, or was not asked.
		unlike string
	}{
		{"alone", files{confDir + "10-a.conf": good}, nil, skip(), ""},
		{"after the file", files{confFile: bad, confDir + "10-a.conf": good}, nil, skip(), ""},
		{"whatever the file says", files{confFile: good, confDir + "10-a.conf": bad}, nil, fails("registry-blocked", empty.Host), ""},
		{"by name", files{confDir + "10-a.conf": bad, confDir + "20-b.conf": good}, nil, skip(), ""},
		{"by name, not by number", files{confDir + "9.conf": good, confDir + "10.conf": bad}, nil, skip(), ""},
		{"the later one alone", files{confDir + "10-a.conf": good, confDir + "20-b.conf": "[[registry]]\nlocation = \"" + release + "\"\nblocked = true\n"}, nil, fails("registry-blocked"), ""},
		{"other prefixes stay", files{confDir + "10-a.conf": good, confDir + "20-b.conf": "[[registry]]\nlocation = \"release.test/other\"\nblocked = true\n"}, nil, skip(), ""},
		{"other names", files{confFile: good, confDir + "20-b.conf.bak": bad, confDir + "README": "?", confDir + "20-b.toml": bad}, nil, skip(), ""},
		{"folders in it", files{confFile: good, confDir + "sub/20-b.conf": bad, confDir + "30.conf/20-b.conf": bad}, nil, skip(), ""},
		{"hidden", files{confFile: bad, confDir + ".10-a.conf": good}, nil, skip(), ""},
		{"links below the root", files{confFile: bad, "usr/share/good.conf": good}, link(confDir+"10-a.conf", "/usr/share/good.conf"), skip(), "its /usr is the machine's"},
		{"empty file", files{confFile: good, confDir + "10-a.conf": ""}, nil, skip(), ""},
		{"malformed", files{confFile: good, confDir + "10-a.conf": "\n\nlocation = a\n"}, nil, fails("registries-conf-invalid", "/etc/containers/registries.conf.d/10-a.conf: ", "line 3"), ""},
		{"malformed mirror of another registry", files{confFile: good, confDir + "10-a.conf": "[[registry]]\nlocation = \"x.test\"\n[[registry.mirror]]\ninsecure = \"yes\"\n"}, nil,
			fails("registries-conf-invalid", "10-a.conf", "line 4"), ""},
		{"of version 1", files{confFile: good, confDir + "10-a.conf": "[registries.block]\nregistries = ['x.test']\n"}, nil, fails("registries-conf-invalid", "10-a.conf", "v1"), ""},
		{"dangling link", files{confFile: good}, link(confDir+"10-a.conf", "/no/such/file"), fails("registries-conf-invalid", "/etc/containers/registries.conf.d/10-a.conf", "dangling"), ""},
		{"dangling link for the file", files{confDir + "10-a.conf": good}, link(confFile, "/no/such/file"), fails("registries-conf-invalid", "/etc/containers/registries.conf", "dangling"),
			"it takes the file for missing; someone meant one to be there"},
		{"folder for the file", files{confFile + "/x": "", confDir + "10-a.conf": good}, nil, fails("registries-conf-invalid", "/etc/containers/registries.conf", "not a regular file"), ""},
		{"file for the folder", files{confFile: good, strings.TrimSuffix(confDir, "/"): ""}, nil, fails("registries-conf-invalid", "/etc/containers/registries.conf.d", "not a directory"),
			"it lists none"},
		{"pipe", files{confFile: good}, fifo(confDir + "10-a.conf"), fails("registries-conf-invalid", "10-a.conf", "not a regular file"), "it would wait"},
		{"too large", files{confFile: good + strings.Repeat("#\n", 1<<19)}, nil, fails("registries-conf-invalid", "registries.conf", "limit"), "it has no limit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := release + "@" + l.image.Digest
			l.host(t, url, tt.files)
			if tt.edit != nil {
				tt.edit(t)
			}
			reset(registries)
			tt.want.check(t, l.analyze(t))
			if tt.want.code == "registries-conf-invalid" && len(counts(registries)) != 0 {
				t.Errorf("asked %v", counts(registries))
			}
			if tt.name == "pipe" {
				return
			}
			if err := l.skopeo(t, url); ((err != nil) == tt.want.failed) == (tt.unlike != "") {
				t.Errorf("skopeo: %v", err)
			}
		})
	}
}
