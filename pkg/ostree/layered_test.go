package ostree_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/ostree"
	"github.com/oneboot/oneboot/pkg/verdict"
)

// The metadata of a client-layered commit, in the types that rpm-ostree writes.
const (
	clientLayer = "--add-metadata=rpmostree.clientlayer=true"
	noPackages  = "--add-metadata=rpmostree.packages=@as []"
	noRemoved   = "--add-metadata=rpmostree.removed-base-packages=@av []"
	noReplaced  = "--add-metadata=rpmostree.replaced-base-packages=@a(vv) []"
	noRemote    = "--add-metadata=rpmostree.replaced-base-remote-packages=@a{sv} {}"
)

// layer commits a tree with one more file and deploys it.
func (s *system) layer(origin string, args ...string) ostree.Facts {
	s.t.Helper()
	tree := newTree(s.t)
	write(s.t, filepath.Join(tree, "usr/bin/usbguard"), "x")
	sum := s.repo(append([]string{"commit", "-b", "rpmostree/x", "--tree=dir=" + tree}, args...)...)
	s.deploy(sum, "--os="+stateroot)
	replaceFile(s.t, s.deploymentFile(".origin"), []byte("[origin]\ncontainer-image-reference=ostree-unverified-registry:quay.io/x:1\n"+origin))
	return s.facts()
}

func TestClientLayered(t *testing.T) {
	s := newSystem(t)
	base, merge := s.deployImage(newImage())
	tests := []struct {
		name   string
		origin string
		args   []string
		want   verdict.Deployment
		// source is that of the inner commit.
		source verdict.CommitSource
	}{
		{
			name:   "packages on an image",
			origin: "[packages]\nrequested=usbguard;strongswan;\nrequested-local=12:local-1;\n",
			args:   []string{"--parent=" + merge, clientLayer, "--add-metadata=rpmostree.packages=['usbguard','strongswan']", noRemoved, noReplaced, noRemote},
			want: verdict.Deployment{
				RequestedPackages: []string{"12:local-1", "strongswan", "usbguard"}, LayeredPackages: []string{"strongswan", "usbguard"},
				Base: verdict.Base{Checksum: verdict.Checksum(merge), Kind: verdict.ContainerImage},
			},
			source: verdict.CommitFromBlobRef,
		},
		{
			name:   "another kernel on a plain commit",
			origin: "[packages]\nrequested=kernel-rt-core;\n[overrides]\nremove=kernel-modules;kernel;kernel-core;\n",
			args: []string{"--parent=" + base, clientLayer, "--add-metadata=rpmostree.packages=['kernel-rt-core']", noReplaced,
				"--add-metadata=rpmostree.removed-base-packages=[<('kernel-core-1:5-1.x86_64','kernel-core',uint64 1,'5','1','x86_64')>,<('kernel-5-1.x86_64','kernel',uint64 0,'5','1','x86_64')>]"},
			want: verdict.Deployment{
				RequestedPackages: []string{"kernel-rt-core"}, RequestedRemovals: []string{"kernel", "kernel-core", "kernel-modules"},
				LayeredPackages: []string{"kernel-rt-core"}, RemovedPackages: []string{"kernel", "kernel-core"},
				Base: verdict.Base{Checksum: verdict.Checksum(base), Kind: verdict.PlainCommit},
			},
			source: verdict.CommitFromParent,
		},
		{
			name: "replaced packages",
			args: []string{"--parent=" + base, clientLayer, noPackages, noRemoved,
				"--add-metadata=rpmostree.replaced-base-packages=[(<('a-1-1.x86_64','a',uint64 0,'1','1','x86_64')>,<('a-2-1.x86_64','a',uint64 0,'2','1','x86_64')>)]",
				"--add-metadata=rpmostree.replaced-base-remote-packages={'repo': <@a(vv) []>}"},
			want: verdict.Deployment{
				Base: verdict.Base{Checksum: verdict.Checksum(base), Kind: verdict.PlainCommit},
				Divergences: []verdict.Divergence{
					{Kind: verdict.PackageOverride, Detail: "the commit's rpmostree.replaced-base-packages has 1 entries"},
					{Kind: verdict.PackageOverride, Detail: "the commit's rpmostree.replaced-base-remote-packages has 1 entries"},
				},
			},
			source: verdict.CommitFromParent,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.t = t
			f := s.layer(tt.origin, tt.args...)
			got := known(t, "deployment", f.Booted.Deployment)
			inner := known(t, "inner commit", f.Booted.Identity.InnerCommit)
			if string(inner.Checksum) != base || inner.Source != tt.source || inner.Root == got.Root || inner.Root != got.Base.Root {
				t.Errorf("inner commit: got %+v, want %s from %s", inner, base, tt.source)
			}
			want := tt.want
			want.Checksum, want.Stateroot, want.Timestamp, want.Root = got.Checksum, stateroot, got.Timestamp, got.Root
			want.Kind, want.Base.Root = verdict.ClientLayered, inner.Root
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("deployment (-want +got):\n%s", diff)
			}
		})
	}
}

// What a client-layered commit does not say in full makes it unknown.
func TestClientLayeredUnreadable(t *testing.T) {
	s := newSystem(t)
	base := s.deployTest()
	parent := "--parent=" + base
	tests := []struct {
		name string
		args []string
		why  string
		// identity says that the base is known all the same.
		identity bool
	}{
		{"no parent", []string{clientLayer, noPackages, noRemoved, noReplaced}, "below the layered packages", false},
		{"parent is gone", []string{"--parent=" + strings.Repeat("1", 64), clientLayer, noPackages, noRemoved, noReplaced}, "below the layered packages", false},
		{"mark of another type", []string{parent, "--add-metadata=rpmostree.clientlayer='yes'"}, "rpmostree.clientlayer", false},
		{"no packages", []string{parent, clientLayer, noRemoved, noReplaced}, "rpmostree.packages", true},
		{"packages of another type", []string{parent, clientLayer, "--add-metadata=rpmostree.packages='usbguard'", noRemoved, noReplaced}, "rpmostree.packages", true},
		{"no removed packages", []string{parent, clientLayer, noPackages, noReplaced}, "rpmostree.removed-base-packages", true},
		{"removed packages of another type", []string{parent, clientLayer, noPackages, noReplaced, "--add-metadata=rpmostree.removed-base-packages=['kernel']"}, "rpmostree.removed-base-packages", true},
		{"a removed package of another type", []string{parent, clientLayer, noPackages, noReplaced, "--add-metadata=rpmostree.removed-base-packages=[<'kernel'>]"}, "rpmostree.removed-base-packages", true},
		{"no replaced packages", []string{parent, clientLayer, noPackages, noRemoved}, "rpmostree.replaced-base-packages", true},
		{"replaced packages are no list", []string{parent, clientLayer, noPackages, noRemoved, "--add-metadata=rpmostree.replaced-base-packages='x'"}, "rpmostree.replaced-base-packages", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.t = t
			f := s.layer("", tt.args...)
			unknown(t, "deployment", f.Booted.Deployment, tt.why)
			if f.Booted.Identity.InnerCommit.IsKnown() != tt.identity {
				t.Errorf("inner commit: got %v", f.Booted.Identity.InnerCommit)
			}
			if len(f.Unreadable) == 0 {
				t.Error("no error kept")
			}
		})
	}
}
