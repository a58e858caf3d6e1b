package format_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/ostree/format"
)

func TestParseOrigin(t *testing.T) {
	tests := []struct {
		name, in string
		want     format.Origin
	}{
		{"plain commit", "[origin]\nrefspec=0123\n", format.Origin{Refspec: "0123"}},
		{"container", "[origin]\ncontainer-image-reference=ostree-image-signed:oci-archive:/rhcos.ociarchive\n",
			format.Origin{ContainerImageReference: "ostree-image-signed:oci-archive:/rhcos.ociarchive"}},
		{"pivot", "# made by hand\n\n[origin]\nrefspec = 0123\n custom-url=pivot://quay.io/x@sha256:1\ncustom-description=Managed by machine-config-operator\r\n",
			format.Origin{Refspec: "0123", CustomURL: "pivot://quay.io/x@sha256:1", CustomDescription: "Managed by machine-config-operator"}},
		{"everything", strings.Join([]string{
			"[origin]", "baserefspec=fedora:fedora/34", "override-commit=41af", "unconfigured-state=Register \\s first\\n", "unlocked=hotfix",
			"[rpmostree]", "regenerate-initramfs=true", "initramfs-args=-I;/etc/a.conf;", "initramfs-etc=/etc/b.conf;", "ex-cliwrap=1",
			"[packages]", "requested=libvirt;fish;", "requested-local=4ed7:foo-1.2-3.x86_64;", "requested-local-fileoverride=1:a;2:b",
			"[overrides]", "remove=docker;", "replace-local=0c70:a-1.x86_64;648a:b-2.x86_64;", "replace=repo=foobar,systemd;repo=bazboo,kernel,kernel-core;",
			"[modules]", "enable=a:1;b:2", "[libostree-transient]", "pinned=true", "[future]", "[origin]", "more=x=y",
		}, "\n"), format.Origin{
			BaseRefspec: "fedora:fedora/34", OverrideCommit: "41af", UnconfiguredState: "Register   first\n", Unlocked: "hotfix",
			RegenerateInitramfs: true, InitramfsArgs: []string{"-I", "/etc/a.conf"}, InitramfsEtc: []string{"/etc/b.conf"}, CLIWrap: true,
			Requested: []string{"libvirt", "fish"}, RequestedLocal: []string{"4ed7:foo-1.2-3.x86_64"}, RequestedLocalFileOverride: []string{"1:a", "2:b"},
			OverrideRemove: []string{"docker"}, OverrideReplaceLocal: []string{"0c70:a-1.x86_64", "648a:b-2.x86_64"},
			OverrideReplace: []string{"repo=foobar,systemd", "repo=bazboo,kernel,kernel-core"},
			Modules:         []string{"a:1", "b:2"}, Pinned: true,
			Other: []format.OriginKey{{Group: "origin", Key: "more", Value: "x=y"}, {Group: "future"}},
		}},
		{"groups merge and the last key counts", "[origin]\nrefspec=a\n[packages]\nrequested=x\n[origin]\nrefspec=b\n",
			format.Origin{Refspec: "b", Requested: []string{"x"}}},
		{"two identities", "[origin]\nrefspec=a\ncontainer-image-reference=b\n",
			format.Origin{Refspec: "a", ContainerImageReference: "b", Conflict: "[origin] refspec=a and container-image-reference=b"}},
		{"an empty second identity", "[origin]\nbaserefspec=\ncontainer-image-reference=b\n",
			format.Origin{ContainerImageReference: "b", Conflict: "[origin] baserefspec= and container-image-reference=b"}},
		{"list escapes", "[packages]\nrequested=a\\;b;;c\\\\;\n", format.Origin{Requested: []string{"a;b", "", "c\\"}}},
		{"empty", "", format.Origin{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := format.ParseOrigin([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseOriginMalformed(t *testing.T) {
	tests := []struct{ name, in string }{
		{"no group", "refspec=a\n"},
		{"a word", "[origin]\nrefspec\n"},
		{"no key", "[origin]\n=a\n"},
		{"open group", "[origin\nrefspec=a\n"},
		{"nested group", "[[origin]]\nrefspec=a\n"},
		{"empty group", "[]\nrefspec=a\n"},
		{"trailing text", "[origin] x\nrefspec=a\n"},
		{"bad escape", "[origin]\nrefspec=a\\x\n"},
		{"list escape outside a list", "[origin]\nrefspec=a\\;b\n"},
		{"backslash at the end", "[origin]\nrefspec=a\\\n"},
		{"not UTF-8", "[origin]\nrefspec=\xff\n"},
		{"NUL", "[origin]\nrefspec=\x00\n"},
		{"bad boolean", "[rpmostree]\nregenerate-initramfs=yes\n"},
		{"too large", "[origin]\nrefspec=" + strings.Repeat("x", format.MaxKeyFileSize)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := format.ParseOrigin([]byte(tt.in)); !errors.Is(err, format.ErrMalformed) {
				t.Errorf("got %+v, %v; want malformed", got, err)
			}
		})
	}
}

func TestParseImageReference(t *testing.T) {
	const digested = "quay.io/openshift/os@sha256:0123"
	insecure, signed, remote := format.ContainerPolicyAllowInsecure, format.ContainerPolicy, format.OstreeRemote
	tests := []struct {
		in, canonical string
		want          format.ImageReference
	}{
		{"ostree-unverified-registry:" + digested, "ostree-unverified-registry:" + digested,
			format.ImageReference{Signature: insecure, Transport: format.Registry, Name: digested}},
		{"ostree-unverified-image:registry:" + digested, "ostree-unverified-registry:" + digested,
			format.ImageReference{Signature: insecure, Transport: format.Registry, Name: digested}},
		{"ostree-unverified-image:docker://" + digested, "ostree-unverified-registry:" + digested,
			format.ImageReference{Signature: insecure, Transport: format.Registry, Name: digested}},
		{"ostree-image-signed:docker://" + digested, "ostree-image-signed:docker://" + digested,
			format.ImageReference{Signature: signed, Transport: format.Registry, Name: digested}},
		{"ostree-image-signed:registry:" + digested, "ostree-image-signed:docker://" + digested,
			format.ImageReference{Signature: signed, Transport: format.Registry, Name: digested}},
		{"ostree-remote-registry:fedora:" + digested, "ostree-remote-image:fedora:docker://" + digested,
			format.ImageReference{Signature: remote, Remote: "fedora", Transport: format.Registry, Name: digested}},
		{"ostree-remote-image:fedora:docker://quay.io/fedora/fedora-coreos:stable", "ostree-remote-image:fedora:docker://quay.io/fedora/fedora-coreos:stable",
			format.ImageReference{Signature: remote, Remote: "fedora", Transport: format.Registry, Name: "quay.io/fedora/fedora-coreos:stable"}},
		{"ostree-image-signed:oci-archive:/rhcos-418.ociarchive", "ostree-image-signed:oci-archive:/rhcos-418.ociarchive",
			format.ImageReference{Signature: signed, Transport: format.OCIArchive, Name: "/rhcos-418.ociarchive"}},
		{"ostree-unverified-image:containers-storage:localhost/os", "ostree-unverified-image:containers-storage:localhost/os",
			format.ImageReference{Signature: insecure, Transport: format.ContainersStorage, Name: "localhost/os"}},
		{"ostree-unverified-image:oci:/a:b", "ostree-unverified-image:oci:/a:b",
			format.ImageReference{Signature: insecure, Transport: format.OCIDir, Name: "/a:b"}},
		{"ostree-unverified-image:docker-archive:/a", "ostree-unverified-image:docker-archive:/a",
			format.ImageReference{Signature: insecure, Transport: format.DockerArchive, Name: "/a"}},
		{"ostree-unverified-image:dir:/a", "ostree-unverified-image:dir:/a",
			format.ImageReference{Signature: insecure, Transport: format.Dir, Name: "/a"}},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := format.ParseImageReference(tt.in)
			if err != nil || got != tt.want {
				t.Fatalf("got %+v, %v; want %+v", got, err, tt.want)
			}
			if s := got.String(); s != tt.canonical {
				t.Errorf("String: got %q, want %q", s, tt.canonical)
			}
			if got.PullSpec() != tt.want.Name {
				t.Errorf("PullSpec: got %q, want %q", got.PullSpec(), tt.want.Name)
			}
			if again, err := format.ParseImageReference(got.String()); err != nil || again != got {
				t.Errorf("canonical form: got %+v, %v; want %+v", again, err, got)
			}
		})
	}
	for _, s := range []string{
		"", ":", "quay.io/a", "docker://quay.io/a", "ostree-image-signed", "ostree-image-signed:", "ostree-image-signed:quay.io/a",
		"ostree-image-signed:docker:quay.io/a", "ostree-image-signed:docker://", "ostree-unverified-registry:", "ostree-remote-registry:fedora",
		"ostree-remote-registry::quay.io/a", "ostree-remote-image:fedora:", "ostree-remote-image:fedora:quay.io/a", "ostree-signed-image:docker://a",
		"ostree-unverified-registry:a b", "ostree-unverified-registry:a\n", "ostree-unverified-registry:\xff", "ostree-unverified-image:ftp:a",
		"ostree-unverified-registry:" + strings.Repeat("x", 5000),
	} {
		if got, err := format.ParseImageReference(s); !errors.Is(err, format.ErrMalformed) {
			t.Errorf("%.40q: got %+v, %v; want malformed", s, got, err)
		}
	}
}
