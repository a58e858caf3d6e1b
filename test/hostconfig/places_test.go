package hostconfig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/sysroot"
)

// nobody is a user who may read nothing that is not everyone's.
const nobody = 65534

// TestPermissionDenied: a file that is not oneboot's to read is an error that
// names it, never a missing one. A process of another user tries.
func TestPermissionDenied(t *testing.T) {
	l := newLab(t)
	r := l.start(t, registry.Options{}, "os")
	url := r.Reference("os", l.image.Digest)
	plain := files{
		confFile: insecure(r), confDir + "10-a.conf": "", runFile: "{}", kubeletFile: "{}", etcFile: "{}",
		proxyFile: "", certsDir + "quay.io/ca.crt": "x", "etc/pki/tls/certs/ca-bundle.crt": string(l.start(t, registry.Options{TLS: true}).CA),
	}
	tests := []struct {
		path, code string
	}{
		{"", ""},
		{confFile, "registries-conf-invalid"},
		{confDir + "10-a.conf", "registries-conf-invalid"},
		{confDir, "registries-conf-invalid"},
		{"etc/containers", "registries-conf-invalid"},
		{runFile, "auth-unreadable"},
		{"run/ostree", "auth-unreadable"},
		{kubeletFile, "auth-unreadable"},
		{"var/lib/kubelet", "auth-unreadable"},
		{etcFile, "auth-unreadable"},
		{proxyFile, "proxy-invalid"},
		{certsDir + "quay.io/ca.crt", "certs-invalid"},
		{certsDir + "quay.io", "certs-invalid"},
		{"etc/pki/tls/certs/ca-bundle.crt", "certs-invalid"},
		{sysroot.PolicyPath, "policy-invalid"},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			l.host(t, url, plain)
			if tt.path != "" {
				if err := os.Chmod(l.root.Path(tt.path), 0); err != nil {
					t.Fatal(err)
				}
			}
			w := want{failed: tt.code != "", code: tt.code, texts: []string{"permission denied", "/" + strings.TrimSuffix(tt.path, "/")}}
			w.check(t, child{Root: l.root.Dir, User: nobody}.verdict(t))
		})
	}
}

// TestSameAnswerEverywhere: the same configuration on a root that is looked
// at, on one that is booted into, and on the disk before its first boot.
func TestSameAnswerEverywhere(t *testing.T) {
	l := newLab(t)
	mirror := l.start(t, registry.Options{TLS: true, Username: "puller", Password: secret}, "mirror/ocp/os")
	ca, auth := string(mirror.CA), basic(mirror.Host+"/mirror", "puller:"+secret)
	conf := fmt.Sprintf("[[registry]]\nlocation = \"release.test/ocp/os\"\nblocked = true\n[[registry.mirror]]\nlocation = \"%s/mirror/ocp/os\"\n", mirror.Host)
	caFile := certsDir + mirror.Host + "/ca.crt"
	tests := []struct {
		name  string
		files files
		want  want
	}{
		{"good", files{confDir + "10-mirror.conf": conf, kubeletFile: auth, caFile: ca}, skip()},
		{"other places", files{confFile: conf, etcFile: auth, "etc/pki/ca-trust/source/anchors/own.crt": ca}, skip()},
		{"no CA", files{confFile: conf, kubeletFile: auth}, fails("registry-blocked", "unknown authority")},
		{"no password", files{confFile: conf, caFile: ca}, fails("registry-blocked", "unauthorized")},
		{"no mirror", files{confFile: strings.Split(conf, "[[registry.mirror]]")[0], kubeletFile: auth, caFile: ca}, fails("registry-blocked", "blocked in")},
		{"malformed drop-in", files{confFile: conf, confDir + "10.conf": "?", kubeletFile: auth, caFile: ca}, fails("registries-conf-invalid", confDir+"10.conf", "line 1")},
		{"malformed auth file", files{confFile: conf, kubeletFile: "{", caFile: ca}, fails("auth-unreadable", kubeletFile, "line 1")},
		{"malformed proxy", files{confFile: conf, proxyFile: "HTTPS_PROXY=ftp://x", kubeletFile: auth, caFile: ca}, fails("proxy-invalid", proxyFile)},
		{"broken key", files{confFile: conf, certsDir + mirror.Host + "/x.cert": "x", kubeletFile: auth, caFile: ca}, fails("registry-blocked", "x.key")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := "release.test/ocp/os@" + l.image.Digest
			l.host(t, url, tt.files)
			looked := l.analyze(t)
			tt.want.check(t, looked)
			l.writeDeployment(t, url, tt.files)
			disk := l.analyze(t, func(o *daemon.Options) { o.Root, o.Unbooted = l.root.Sysroot.Dir, true })
			if !disk.Hypothetical {
				t.Error("the disk's answer is not hypothetical")
			}
			tt.want.check(t, disk)
			live := l.live(t).verdict(t)
			tt.want.check(t, live)
			if diff := cmp.Diff(answer(looked), answer(live)); diff != "" {
				t.Errorf("live (-looked at +live):\n%s", diff)
			}
		})
	}
}

// An answerText is what must be the same everywhere.
type answerText struct {
	Action verdict.Action
	Proof  verdict.Proof
	Reason verdict.Reason
	Errors []verdict.Error
}

func answer(v verdict.Verdict) answerText {
	return answerText{v.Action, v.Proof, v.Reason, v.Errors}
}

// writeDeployment writes the host's files into the deployment, where they are
// on a disk, until the test ends.
func (l *lab) writeDeployment(t *testing.T, url string, fs files) {
	t.Helper()
	text, err := sysroot.MachineConfig{OSImageURL: url}.JSON()
	if err != nil {
		t.Fatal(err)
	}
	all := files{sysroot.MachineConfigPath: text, sysroot.PolicyPath: acceptAnything}
	for name, content := range fs {
		all[name] = content
	}
	for name, content := range all {
		if !strings.HasPrefix(name, "etc/") {
			continue // /var is shared by all, /run nobody's
		}
		file := filepath.Join(l.deployment.Dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, name := range []string{"containers", "ostree", "pki", "mco", filepath.Base(sysroot.MachineConfigPath)} {
			if err := os.RemoveAll(filepath.Join(l.deployment.Dir, "etc", name)); err != nil {
				t.Error(err)
			}
		}
	})
}

// live is the host once it has booted into the deployment.
func (l *lab) live(t *testing.T) child {
	t.Helper()
	commandLine, err := os.ReadFile(l.root.Path(sysroot.CommandLinePath))
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := l.deployment.Kernel()
	if err != nil {
		t.Fatal(err)
	}
	return child{
		Live: true, Root: l.deployment.Dir, Physical: l.root.Sysroot.Dir, CommandLine: string(commandLine), Kernel: kernel,
		RunFiles: files{sysroot.BootedPath: ""},
	}
}
