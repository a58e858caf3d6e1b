package daemon

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/ostree/format"
)

const testImage = "quay.io/os@sha256:" + "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

func TestNameImage(t *testing.T) {
	const commit = "1111111111111111111111111111111111111111111111111111111111111111"
	custom := "custom-url=pivot://" + testImage + "\ncustom-description=Managed by oneboot\n"
	tests := []struct{ name, in, want string }{
		{"container", "[origin]\ncontainer-image-reference=ostree-image-signed:oci-archive:/rhcos.ociarchive\n",
			"[origin]\ncontainer-image-reference=ostree-unverified-registry:" + testImage + "\n"},
		{"everything else stays", "# made by hand\n\n[libostree-transient]\npinned=true\n[origin]\r\n# the image\r\ncontainer-image-reference = a:b\r\nother=1\r\n\n[x-y]\nz=\\s1;2;\n# end",
			"# made by hand\n\n[libostree-transient]\npinned=true\n[origin]\r\n# the image\r\ncontainer-image-reference =ostree-unverified-registry:" + testImage + "\r\nother=1\r\n\n[x-y]\nz=\\s1;2;\n# end"},
		{"of a repeated key the last counts", "[origin]\ncontainer-image-reference=a:b\n[packages]\nrequested=vim;\n[origin]\ncontainer-image-reference=c:d\n",
			"[origin]\ncontainer-image-reference=a:b\n[packages]\nrequested=vim;\n[origin]\ncontainer-image-reference=ostree-unverified-registry:" + testImage + "\n"},
		{"the same key in another group", "[other]\ncontainer-image-reference=x\n[origin]\ncontainer-image-reference=a:b\n",
			"[other]\ncontainer-image-reference=x\n[origin]\ncontainer-image-reference=ostree-unverified-registry:" + testImage + "\n"},
		{"plain commit", "[origin]\nrefspec=" + commit + "\n", "[origin]\nrefspec=" + commit + "\n" + custom},
		{"no newline at the end", "[origin]\nrefspec=" + commit, "[origin]\nrefspec=" + commit + "\n" + custom},
		{"layered on a commit", "[origin]\nbaserefspec=" + commit + "\n\n[packages]\nrequested=usbguard;\n",
			"[origin]\nbaserefspec=" + commit + "\n" + custom + "\n[packages]\nrequested=usbguard;\n"},
		{"a custom origin of another image", "[origin]\ncustom-description=x y\nrefspec=" + commit + "\ncustom-url=pivot://quay.io/old\n",
			"[origin]\ncustom-description=Managed by oneboot\nrefspec=" + commit + "\ncustom-url=pivot://" + testImage + "\n"},
		{"the image already", "[origin]\ncontainer-image-reference=ostree-unverified-registry:" + testImage + "\n",
			"[origin]\ncontainer-image-reference=ostree-unverified-registry:" + testImage + "\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := nameImage([]byte(tt.in), testImage)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(got), tt.want); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestNameImageRefuses(t *testing.T) {
	tests := []struct{ name, in, image, want string }{
		{"two identities", "[origin]\nrefspec=a\ncontainer-image-reference=b:c\n", testImage, "names two identities"},
		{"none", "[origin]\n", testImage, "none of refspec"},
		{"empty", "", testImage, "none of refspec"},
		{"no key file", "[origin]\nrefspec\n", testImage, "line 2"},
		{"an image with a newline", "[origin]\nrefspec=a\n", "quay.io/os\nunlocked=hotfix", "cannot stand in a key file"},
		{"an image with an escape", "[origin]\nrefspec=a\n", `quay.io/os\s`, "cannot stand in a key file"},
		{"no image", "[origin]\nrefspec=a\n", "", "cannot stand in a key file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := nameImage([]byte(tt.in), tt.image)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// Whatever the file, an edit keeps every line but those of its keys.
func FuzzNameImage(f *testing.F) {
	f.Add([]byte("[origin]\ncontainer-image-reference=a:b\n"))
	f.Add([]byte("# c\n[origin]\r\nrefspec = x\n[origin]\n\n[packages]\nrequested=vim;\n"))
	f.Add([]byte("[origin] \n baserefspec=1\n[a]\ncustom-url=1"))
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := nameImage(in, testImage)
		if err != nil {
			return
		}
		again, err := nameImage(got, testImage)
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("a second edit differs: %q, %v", again, err)
		}
		o, err := format.ParseOrigin(got)
		if err != nil {
			t.Fatal(err)
		}
		if o.ContainerImageReference != unverifiedRegistry+testImage && o.CustomURL != customURLScheme+testImage {
			t.Errorf("names %q and %q", o.ContainerImageReference, o.CustomURL)
		}
		ours := func(line []byte) bool {
			return bytes.Contains(line, []byte(containerKey)) || bytes.Contains(line, []byte(customURLKey)) || bytes.Contains(line, []byte(customTextKey))
		}
		kept := func(text []byte) (out [][]byte) {
			for line := range bytes.Lines(text) {
				if !ours(line) {
					out = append(out, bytes.TrimRight(line, "\r\n"))
				}
			}
			return out
		}
		if d := cmp.Diff(kept(got), kept(in)); d != "" {
			t.Error(d)
		}
	})
}
