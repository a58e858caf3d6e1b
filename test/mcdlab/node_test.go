//go:build mcd

package mcdlab

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/record"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// The files of a node that the tests look at.
const (
	encapsulatedPath = sysroot.MachineConfigPath
	kubeconfigPath   = "etc/kubernetes/kubeconfig"
	forcePath        = "run/machine-config-daemon-force"
	bootIDPath       = "proc/sys/kernel/random/boot_id"
)

// releaseAnnotation names the release that a MachineConfig is of.
const releaseAnnotation = "machineconfiguration.openshift.io/release-image-version"

// A nodeOptions says what a node has booted and what it is to become. The zero
// one has booted the wanted OS as a plain commit.
type nodeOptions struct {
	// container: booted from the image and not from a plain commit.
	container bool
	// layered: the package of the extension usbguard is layered on it.
	layered bool
	// older: booted the other OS.
	older bool
	// origin makes the origin file's text; "%" stands for the wanted image.
	origin string
	// kargs are in the boot entry.
	kargs []string
	// mc is what is wanted; the wanted image is filled in.
	mc sysroot.MachineConfig
	// tag: the wanted image is named by tag.
	tag bool
	// noRelease: the MachineConfig names no release.
	noRelease bool
	// foreign replaces the empty Ignition config of the MachineConfig.
	foreign string
	fips    bool
	// rpmOSTree is the version of that package.
	rpmOSTree string
	// files are written into the running system.
	files map[string]string
}

// A node is a host of one scenario.
type node struct {
	*sysroot.Root
	lab        *lab
	deployment sysroot.Deployment
	url        string
	// daemon is the one that its release has.
	daemon daemonBuild
}

// bootimageOrigin is what a disk image of RHCOS has.
const bootimageOrigin = "container-image-reference=ostree-image-signed:oci-archive:/rhcos.ociarchive\n"

// pulledRef is where a node's repository has the commit of an image that the
// stand-in for rpm-ostree may be asked for.
func pulledRef(reference string) string {
	return "pulled/" + nativeimage.EscapeRef(reference)
}

// bootNode makes a node of the daemon's release that has booted what the options
// say.
func (l *lab) bootNode(t testing.TB, d daemonBuild, o nodeOptions) *node {
	t.Helper()
	root := must[*sysroot.Root](t)(sysroot.NewRoot(filepath.Join(sysroot.TempDir(t), "root")))
	n := &node{Root: root, lab: l, url: l.base.url, daemon: d}
	if o.tag {
		n.url = l.base.tag
	}
	// What rpm-ostree rebase would pull is there already.
	n.pull(t, l.base.merge)
	must[string](t)(sysroot.Ostree("refs", "--repo="+root.Sysroot.Repo(), "--create="+pulledRef("ostree-unverified-registry:"+n.url), l.base.merge))
	build := l.base
	if o.older {
		build = l.older
	}
	commit := n.commit(t, build, o)
	origin := ""
	if o.origin != "" {
		origin = "[origin]\n" + strings.ReplaceAll(o.origin, "%", n.url)
		if !o.container {
			origin = strings.Replace(origin, "[origin]\n", "[origin]\nrefspec="+commit+"\n", 1)
		}
	}
	if o.layered {
		layer := sysroot.ClientLayer{Base: commit, BasePackages: basePackages(rpmOSTreeVersion), Requested: []string{usbguard.Name}, Added: []sysroot.Package{usbguard}}
		commit = must[string](t)(root.Sysroot.CommitLayer(layer))
		origin += "[packages]\n" + requestedKey + usbguard.Name + ";\n"
	}
	kargs := append([]string{"root=UUID=6f0e", "rw", "$ignition_firstboot"}, o.kargs...)
	n.deployment = must[sysroot.Deployment](t)(root.Sysroot.Deploy(commit, sysroot.DeployOptions{KernelArguments: kargs, Origin: origin}))
	n.boot(t, n.deployment, o)
	return n
}

// pull copies a commit into the node's repository.
func (n *node) pull(t testing.TB, commit string) {
	t.Helper()
	must[string](t)(sysroot.Ostree("pull-local", "--repo="+n.Sysroot.Repo(), "--disable-fsync", n.lab.build.Repo(), commit))
}

// commit is what the node deploys.
func (n *node) commit(t testing.TB, b osBuild, o nodeOptions) string {
	t.Helper()
	if o.rpmOSTree != "" {
		var tree sysroot.Tree
		withRPMOSTree(&tree, o.rpmOSTree)
		return must[string](t)(n.Sysroot.CommitTree(tree, sysroot.CommitOptions{Packages: tree.Packages}))
	}
	// A pulled image leaves its inner commit too.
	n.pull(t, b.commit)
	if !o.container {
		return b.commit
	}
	n.pull(t, b.merge)
	return b.merge
}

// boot boots a deployment and writes what Ignition and the kernel leave.
func (n *node) boot(t testing.TB, d sysroot.Deployment, o nodeOptions) {
	t.Helper()
	mc := o.mc
	mc.OSImageURL = n.url
	if len(mc.Extensions) > 0 {
		mc.ExtensionsImage = n.lab.extensions
	}
	mc.Annotations = maps.Clone(mc.Annotations)
	if !o.noRelease {
		if mc.Annotations == nil {
			mc.Annotations = map[string]string{}
		}
		mc.Annotations[releaseAnnotation] = n.daemon.release
	}
	if err := n.Root.Boot(d, sysroot.BootOptions{MachineConfig: &mc, FIPS: o.fips, InsecureRegistries: []string{n.lab.reg.Host}}); err != nil {
		t.Fatal(err)
	}
	if o.foreign != "" {
		text := strings.Replace(n.read(encapsulatedPath), `"version": "3.4.0"`+"\n      }", `"version": "3.4.0"`+"\n      }, "+o.foreign, 1)
		n.write(t, encapsulatedPath, text)
	}
	n.write(t, kubeconfigPath, "apiVersion: v1\nkind: Config\n")
	n.write(t, bootIDPath, "6f0e7a52-1c0b-4f0e-9d55-0a1b2c3d4e5f\n")
	for name, text := range o.files {
		n.write(t, name, text)
	}
}

func (n *node) write(t testing.TB, name, text string) {
	t.Helper()
	if err := n.WriteFile(name, text); err != nil {
		t.Fatal(err)
	}
}

// read is empty where there is no such file.
func (n *node) read(name string) string {
	b, _ := os.ReadFile(n.Path(name))
	return string(b)
}

func (n *node) exists(name string) bool {
	_, err := os.Lstat(n.Path(name))
	return err == nil
}

// origin is the origin file's text of the booted deployment.
func (n *node) origin(t testing.TB) string {
	t.Helper()
	return string(must[[]byte](t)(os.ReadFile(n.deployment.OriginFile())))
}

// analyze is what oneboot analyze comes to.
func (n *node) analyze(t testing.TB) verdict.Verdict {
	t.Helper()
	res, err := daemon.Analyze(context.Background(), daemon.Options{Root: n.Dir, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return res.Verdict
}

// firstboot runs oneboot firstboot as its unit does, and returns what the record
// says of the act.
func (n *node) firstboot(t testing.TB, mode string) record.Act {
	t.Helper()
	n.run(t, "firstboot", "--mode", mode)
	r := must[*record.Record](t)(record.Parse([]byte(n.read(record.Path))))
	if r.Act == nil {
		t.Fatal("the record has no act")
	}
	if r.Act.State == record.ActFailed {
		t.Fatalf("the act failed: %s", r.Act.Reason)
	}
	return *r.Act
}

// run runs oneboot on the node's files.
func (n *node) run(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command(n.lab.oneboot, append(args, "--root", n.Dir)...).CombinedOutput(); err != nil {
		t.Fatalf("oneboot %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// must fails the test on an error.
func must[V any](t testing.TB) func(V, error) V {
	return func(v V, err error) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
