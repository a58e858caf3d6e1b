package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/sysroot"
)

// Everything that the program reads below --root is read there, whatever links
// stand in the way. What it reads is learned from a run, so that a file that
// the program reads one day is covered from that day on.
func TestContainment(t *testing.T) {
	t.Run("nothing asked", func(t *testing.T) {
		t.Parallel()
		l := newLab(t)
		n := l.bootNode(t, nodeOptions{image: l.native,
			mc: sysroot.MachineConfig{OSImageURL: l.reg.Reference("os/base", l.native.Digest), KernelArguments: []string{"rw"}}})
		furnish(t, n, "registry.invalid", nil, "", "")
		// The inner commit is another proof's; this one holds without.
		inner := regexp.MustCompile(`/repo/refs(?:/|$)|/objects/` + l.base[:2] + `(?:/` + l.base[2:] + `\.commit)?$|` + machineFacts)
		contain(t, n, verdict.ProofManifestDigest, inner, func(string) bool { return true })
	})
	// What a registry is reached by: a mirror, its CA, its password. Without
	// any one of them there is no answer.
	t.Run("mirror with CA and password", func(t *testing.T) {
		t.Parallel()
		l := newLab(t)
		reg := must[*registry.Registry](t)(registry.Start(registry.Options{TLS: true, Username: "core", Password: "secret"}))
		t.Cleanup(func() { reg.Close() })
		must[string](t)(reg.Push("mirrored/os", l.native))
		n := l.bootNode(t, nodeOptions{commit: l.base,
			mc: sysroot.MachineConfig{OSImageURL: "registry.invalid/os@" + l.native.Digest, KernelArguments: []string{"rw"}}})
		furnish(t, n, reg.Host, reg.CA, "core", "secret")
		contain(t, n, verdict.ProofOSTreeCommit, regexp.MustCompile(machineFacts), func(p string) bool {
			return slices.ContainsFunc([]string{"etc", "run", "usr", "sysroot/ostree/deploy/rhcos/var"}, func(dir string) bool {
				return p == dir || strings.HasPrefix(p, dir+"/")
			})
		})
	})
}

// machineFacts are what only the fast reboot depends on: it is refused where one of
// them cannot be read, and the verdict stays.
const machineFacts = `(?:^|/)etc/oneboot(?:/.*)?$|(?:^|/)proc/cpuinfo$|(?:^|/)kexec_load_disabled$|(?:^|/)sys(?:/class|/kernel(?:/.*)?)?$|(?:^|/)usr/lib(?:64|/x86_64-linux-gnu|/systemd|64/systemd|/x86_64-linux-gnu/systemd)$|(?:^|/)sys/class/dmi(?:/.*)?$|(?:^|/)sys/hypervisor(?:/.*)?$|(?:^|/)dev(?:/.*)?$`

// furnish gives a node one of each of the files that matter for a registry,
// and those of a network that is none of the initrd's.
func furnish(t *testing.T, n *node, host string, ca []byte, user, password string) {
	t.Helper()
	auth := func(host, text string) string {
		return fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, host, base64.StdEncoding.EncodeToString([]byte(text)))
	}
	files := map[string]string{
		"etc/containers/registries.conf.d/50-mirror.conf": fmt.Sprintf("[[registry]]\nlocation = \"registry.invalid/os\"\nblocked = true\nmirror-by-digest-only = true\n\n[[registry.mirror]]\nlocation = %q\n", host+"/mirrored/os"),
		"etc/containers/registries.d/sigstore.yaml":       "docker:\n  registry.invalid:\n    use-sigstore-attachments: true\n",
		"etc/containers/certs.d/elsewhere.invalid/ca.crt": "",
		"etc/docker/certs.d/other.invalid/client.cert":    "",
		"etc/ostree/auth.json":                            auth("elsewhere.invalid", "a:b"),
		"run/ostree/auth.json":                            auth("other.invalid", "c:d"),
		"usr/lib/ostree/auth.json":                        auth("third.invalid", "e:f"),
		"var/lib/kubelet/config.json":                     auth(host, user+":"+password),
		"etc/mco/proxy.env":                               "NO_PROXY=127.0.0.1\n",
		"etc/pivot/kernel-args":                           "# nothing\n",

		"var/lib/mco/nm-clean-initrd-state":                          "",
		"run/NetworkManager/devices/2":                               "[device]\nconnection-uuid=2\n",
		"run/NetworkManager/system-connections/default.nmconnection": "[connection]\nuuid=1\n",
		"etc/NetworkManager/system-connections/enp1s0.nmconnection":  "[connection]\nuuid=2\ninterface-name=enp1s0\n",
		"sys/class/net/enp1s0/ifindex":                               "2\n",
	}
	if ca != nil {
		files["etc/containers/certs.d/"+host+"/ca.crt"] = string(ca)
		files["etc/pki/ca-trust/source/anchors/own.pem"] = string(ca)
	}
	for name, text := range files {
		if err := n.WriteFile(name, text); err != nil {
			t.Fatal(err)
		}
	}
}

// contain puts a link in the place of each thing that the program reads on the
// node, one after the other. What is optional may be missing from a skip.
func contain(t *testing.T, n *node, proof verdict.Proof, optional *regexp.Regexp, covered func(string) bool) {
	t.Helper()
	if err := sysroot.Unlock(n.Dir); err != nil {
		t.Fatal(err)
	}
	c := &container{node: n, optional: optional, outside: filepath.Join(filepath.Dir(n.Dir), "outside"), home: decoyHome(t)}
	if err := os.Mkdir(c.outside, 0o755); err != nil {
		t.Fatal(err)
	}
	base, trace := c.runTraced(t)
	if base.Action != verdict.Skip || base.Proof != proof {
		t.Fatalf("no skip to begin with:\n%s", checksText(base))
	}
	places := c.places(t, trace)
	// A trace that was misread would cover nothing.
	for _, want := range []string{"proc/cmdline", "etc/containers/policy.json", "sysroot/ostree/repo/config", "sysroot/boot/loader.1/entries",
		"etc/ignition-machine-config-encapsulated.json", "run/machine-config-daemon-force", "run/ostree/staged-deployment",
		"sysroot/ostree/deploy/rhcos/var/lib/kubelet/config.json", "sysroot/boot/loader", "etc"} {
		if !slices.ContainsFunc(places, func(p place) bool { return p.path == want }) {
			t.Errorf("%s is not among what was read: %v", want, places)
		}
	}
	tested := 0
	for _, p := range places {
		if covered(p.path) {
			tested++
			c.check(t, p, documentOf(t, base))
		}
	}
	t.Logf("%d of %d places", tested, len(places))
}

// A container is a root with what lies outside of it.
type container struct {
	*node
	optional      *regexp.Regexp
	outside, home string
}

// A place is something below the root that the program looks at.
type place struct {
	path string
	mode fs.FileMode
	// missing: the program looks for it in vain.
	missing bool
}

func (p place) String() string { return p.path }

// check compares what the program says with a link in the place.
func (c *container) check(t *testing.T, p place, base string) {
	t.Helper()
	at := c.Path(p.path)
	if p.missing {
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	kinds := []fs.FileMode{p.mode}
	if p.missing {
		kinds = []fs.FileMode{0, fs.ModeDir}
	}
	for _, kind := range kinds {
		p.mode = kind
		// Some links are judged by the name that they lead to.
		name := "moved"
		if p.mode&fs.ModeSymlink != 0 {
			name = filepath.Base(must[string](t)(os.Readlink(at)))
		}
		outside := filepath.Join(c.outside, name)
		dangling := c.moved(t, p, outside, "/no/such/"+name, func() string { return c.answer(t) })
		if strings.Contains(dangling, `"action": "skip"`) && !authority.MatchString(p.path) &&
			(c.optional == nil || !c.optional.MatchString(p.path)) {
			t.Errorf("%s as a dangling link: skip, though nobody knows what was meant to be there", p)
		}
		if !p.missing && p.mode&fs.ModeSymlink == 0 {
			for _, target := range c.insideTargets(t, p) {
				got := c.moved(t, p, c.Path(target.moved), target.link, func() string { return c.answer(t) })
				if content.MatchString(p.path) {
					if strings.Contains(got, `"action": "skip"`) {
						t.Errorf("%s as a link: skip, though the object is another", p)
					}
				} else if got != base {
					t.Errorf("%s as a link to %s, inside: the answer is another:\n%s", p, target.link, got)
				}
			}
		}
		rel, err := filepath.Rel(filepath.Dir(at), outside)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range []string{outside, rel} {
			var accesses []access
			got := c.moved(t, p, outside, link, func() string {
				v, trace := c.runTraced(t)
				accesses = trace
				return documentOf(t, v)
			})
			if got != dangling {
				t.Errorf("%s as a link to %s, outside: not as if it led nowhere:\n%s\nwant\n%s", p, link, got, dangling)
			}
			c.checkTrace(t, p.path+" as a link to "+link, accesses)
		}
	}
}

// answer is what the analysis says; the empty verdict where it cannot start.
func (c *container) answer(t *testing.T) string {
	t.Helper()
	res, err := daemon.Analyze(context.Background(), daemon.Options{Root: c.Dir, Timeout: 20 * time.Second})
	if err != nil {
		if !strings.Contains(err.Error(), "/proc/cmdline is not there") {
			t.Fatal(err)
		}
		return documentOf(t, verdict.Verdict{})
	}
	return documentOf(t, res.Verdict)
}

// authority matches what only tells whom to trust: with less of it, less can be
// read. The deployment's programs tell the architecture: one will do. An aleph file
// is shown, and nothing is ever decided by it.
var authority = regexp.MustCompile(`\.crt$|aleph(?:-version)?\.json$|^etc/(?:ssl|pki)(?:/|$)|\.[0-9]/usr/(?:bin|lib/systemd)/[a-z]+$`)

// content matches the objects of a bare repository: a link there is an object
// of another kind.
var content = regexp.MustCompile(`/objects/../[0-9a-f]{62}\.file$`)

// moved moves what is in a place elsewhere (where nothing is, it makes
// something there) and links to it, for as long as do runs.
func (c *container) moved(t *testing.T, p place, to, link string, do func() string) string {
	t.Helper()
	at := c.Path(p.path)
	try := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
	}
	switch {
	case !p.missing && p.mode&fs.ModeSymlink != 0:
		// What the link leads to stays; a copy of it is elsewhere.
		old := must[string](t)(os.Readlink(at))
		run(t, "cp", "-a", filepath.Join(filepath.Dir(at), old), to)
		try(os.Remove(at))
		defer func() { try(os.Remove(at)); try(os.Symlink(old, at)); try(os.RemoveAll(to)) }()
	case !p.missing:
		try(os.MkdirAll(filepath.Dir(to), 0o755))
		try(os.Rename(at, to))
		defer func() { try(os.Remove(at)); try(os.Rename(to, at)) }()
	case p.mode.IsDir():
		try(os.MkdirAll(filepath.Join(to, "folder"), 0o755))
		defer func() { try(os.Remove(at)); try(os.RemoveAll(to)) }()
	default:
		try(os.WriteFile(to, []byte("1\n"), 0o644))
		defer func() { try(os.Remove(at)); try(os.RemoveAll(to)) }()
	}
	try(os.Symlink(link, at))
	return do()
}

// A linkTarget is a place inside the root to move something to.
type linkTarget struct{ moved, link string }

// insideTargets are an absolute link, and one that climbs above the root first.
func (c *container) insideTargets(t *testing.T, p place) []linkTarget {
	t.Helper()
	moved := "moved/it"
	if p.mode.IsDir() && leavesItself(t, c.Path(p.path)) {
		// Its own links lead out of it: it must stay on the same level.
		moved = p.path + ".moved"
	}
	return []linkTarget{{moved, "/" + moved}, {moved, strings.Repeat("../", 30) + moved}}
}

// leavesItself reports whether a folder has links that lead out of it.
func leavesItself(t *testing.T, dir string) bool {
	t.Helper()
	found := false
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.Type() != fs.ModeSymlink {
			return err
		}
		link, err := os.Readlink(name)
		if target := filepath.Join(filepath.Dir(name), link); target != dir && !strings.HasPrefix(target, dir+"/") {
			found = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// targetInMessage is where a message shows a link's target.
var targetInMessage = regexp.MustCompile(`leads to (?:\\")?(?:/no/such|[^"]*?outside)/[a-z0-9.]+(?:\\")?`)

func documentOf(t testing.TB, v verdict.Verdict) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return targetInMessage.ReplaceAllString(string(b), "leads to nothing")
}

// places are what a run looked at below the root, and the folders above.
func (c *container) places(t *testing.T, trace []access) []place {
	t.Helper()
	found := map[string]place{}
	add := func(p string, missing bool) {
		if _, ok := found[p]; ok || p == "." || p == "" {
			return
		}
		fi, err := os.Lstat(c.Path(p))
		switch {
		case err != nil && !missing:
			t.Fatal(err)
		case err != nil:
			found[p] = place{path: p, missing: true}
		default:
			found[p] = place{path: p, mode: fi.Mode()}
		}
	}
	for _, a := range trace {
		if a.dir != c.Dir && !strings.HasPrefix(a.dir, c.Dir+"/") {
			continue
		}
		switch {
		case strings.HasPrefix(a.call, "readlink") && a.name != "" && !a.failed:
			add(strings.TrimPrefix(path.Join(a.dir, a.name), c.Dir+"/"), false)
		case a.result != "" && strings.HasPrefix(a.result, c.Dir+"/"):
			for p := strings.TrimPrefix(a.result, c.Dir+"/"); p != "."; p = path.Dir(p) {
				add(p, false)
			}
		case a.failed && strings.Contains(a.line, "ENOENT") && a.call == "openat2":
			add(c.real(t, strings.TrimPrefix(path.Clean(a.name), "/")), true)
		}
	}
	var list []place
	for _, p := range found {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b place) int { return strings.Compare(a.path, b.path) })
	return list
}

// real resolves the links in the existing folders above a missing file. All
// links of the node are relative ones.
func (c *container) real(t *testing.T, name string) string {
	t.Helper()
	dir, rest := path.Dir(name), path.Base(name)
	for {
		full, err := filepath.EvalSymlinks(c.Path(dir))
		if err == nil {
			return strings.TrimPrefix(filepath.Join(full, rest), c.Dir+"/")
		}
		rest = path.Join(path.Base(dir), rest)
		if dir = path.Dir(dir); dir == "." {
			return name
		}
	}
}

func run(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}
