package e2e

import (
	"strings"
	"testing"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// must unwraps a builder's result.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Whole metadata reads: ping, manifest, config, layer head.
const fourRequests = 4

func TestNativeImageOnPlainCommit(t *testing.T) {
	l := newLab(t)
	url := l.push(t, "os/base", l.native)
	n := l.bootNode(t, nodeOptions{commit: l.base, mc: sysroot.MachineConfig{OSImageURL: url}})
	l.reg.ResetRequests()
	res := n.analyze(t)
	l.expect(t, res, skip(verdict.ProofOSTreeCommit, fourRequests))
	if res.Transfer.Bytes > 256<<10 {
		t.Errorf("%d bytes read", res.Transfer.Bytes)
	}
}

func TestContainerDeploymentByDigest(t *testing.T) {
	l := newLab(t)
	url := l.push(t, "os/base", l.native)
	elsewhere := "mirror.example.com:5000/another/name@" + l.native.Digest
	tests := []struct {
		name, url string
		image     *nativeimage.Image
	}{
		{"the same image", url, l.native},
		{"under another registry and repository", elsewhere, l.native},
		{"a derived image, that very one", l.reg.Reference("os/derived", l.derived.Digest), l.derived},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := l.bootNode(t, nodeOptions{image: tt.image, mc: sysroot.MachineConfig{OSImageURL: tt.url}})
			l.reg.ResetRequests()
			l.expect(t, n.analyze(t), skip(verdict.ProofManifestDigest, 0))
		})
	}
}

func TestManifestList(t *testing.T) {
	l := newLab(t)
	l.push(t, "os/base", l.native)
	l.push(t, "os/base", l.otherImage)
	other := "arm64"
	if l.native.Config.Architecture == other {
		other = "amd64"
	}
	list := func(t *testing.T, native, foreign string) string {
		images := map[string]*nativeimage.Image{"base": l.native, "other": l.otherImage}
		li := must[*nativeimage.List](t)(nativeimage.NewList(nativeimage.OCI,
			nativeimage.Instance{Image: images[foreign], Platform: nativeimage.Platform{Architecture: other, OS: "linux"}},
			nativeimage.Instance{Image: images[native], Platform: nativeimage.Platform{Architecture: l.native.Config.Architecture, OS: "linux"}}))
		return l.reg.Reference("os/base", must[string](t)(l.reg.PushList("os/base", li)))
	}
	t.Run("holds the booted manifest", func(t *testing.T) {
		n := l.bootNode(t, nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: list(t, "base", "other")}})
		l.reg.ResetRequests()
		l.expect(t, n.analyze(t), skip(verdict.ProofManifestDigest, 2))
	})
	t.Run("holds it under another architecture", func(t *testing.T) {
		n := l.bootNode(t, nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: list(t, "other", "base")}})
		l.reg.ResetRequests()
		l.expect(t, n.analyze(t), proceed("os-content-differs", fourRequests+1))
	})
}

func TestCopies(t *testing.T) {
	l := newLab(t)
	v2s2 := must[*nativeimage.Image](t)(nativeimage.ConvertToV2S2(l.native))
	tests := []struct {
		name          string
		booted, image *nativeimage.Image
		want          answer
	}{
		{"recompressed", l.native, must[*nativeimage.Image](t)(nativeimage.Recompress(t.TempDir(), l.native, nativeimage.Zstd)),
			skip(verdict.ProofConfigDigest, 2)},
		{"uncompressed", l.native, must[*nativeimage.Image](t)(nativeimage.Recompress(t.TempDir(), l.native, nativeimage.Uncompressed)),
			skip(verdict.ProofConfigDigest, 2)},
		{"converted with the config written again", l.native, must[*nativeimage.Image](t)(nativeimage.ConvertToOCI(v2s2)),
			skip(verdict.ProofDiffIDs, 3)},
		{"config written again, another final diff id", l.native, must[*nativeimage.Image](t)(l.native.Edit(func(c *nativeimage.Config) {
			c.Labels["ostree.final-diffid"] = c.DiffIDs[1]
		})), proceed("os-content-differs", 3)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := l.push(t, "os/copy", tt.image)
			n := l.bootNode(t, nodeOptions{image: tt.booted, mc: sysroot.MachineConfig{OSImageURL: url}})
			l.reg.ResetRequests()
			l.expect(t, n.analyze(t), tt.want)
		})
	}
}

func TestDerivedTarget(t *testing.T) {
	l := newLab(t)
	url := l.push(t, "os/derived", l.derived)
	top := l.derived.Layers[len(l.derived.Layers)-1]
	t.Run("plain commit equal to the label", func(t *testing.T) {
		n := l.bootNode(t, nodeOptions{commit: l.base, mc: sysroot.MachineConfig{OSImageURL: url}})
		l.reg.ResetRequests()
		res := n.analyze(t)
		l.expect(t, res, proceed("os-content-differs", 3))
		var whole int64
		for _, layer := range l.derived.Layers {
			whole += layer.Size
		}
		if c := res.Verdict.Cost; c == nil || c.Layers != len(l.derived.Layers) || c.Bytes != whole {
			t.Errorf("cost %+v, want the whole image: %d layers, %d bytes", c, len(l.derived.Layers), whole)
		}
	})
	t.Run("container deployment of the base", func(t *testing.T) {
		n := l.bootNode(t, nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: url}})
		l.reg.ResetRequests()
		res := n.analyze(t)
		l.expect(t, res, proceed("os-content-differs", 3))
		c := res.Verdict.Cost
		if c == nil || c.Layers != 1 || c.Bytes != top.Size || c.SameBase == nil || !*c.SameBase || c.Kernel != "same" {
			t.Errorf("cost %+v, want one layer of %d bytes on the same base", c, top.Size)
		}
	})
}

func TestRebuilt(t *testing.T) {
	l := newLab(t)
	derivedRebuilt := must[*nativeimage.Image](t)(l.derive(l.rebuiltImage))
	same, derived := l.push(t, "os/rebuilt", l.rebuiltImage), l.push(t, "os/rebuilt", derivedRebuilt)
	tests := []struct {
		name string
		node nodeOptions
		want answer
	}{
		{"earlier plain commit", nodeOptions{commit: l.base, mc: sysroot.MachineConfig{OSImageURL: same}}, skip(verdict.ProofContentChecksum, fourRequests)},
		{"earlier image", nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: same}}, skip(verdict.ProofContentChecksum, fourRequests)},
		{"target has a layer more", nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: derived}}, proceed("os-content-differs", 3)},
		{"target has a layer more, plain", nodeOptions{commit: l.base, mc: sysroot.MachineConfig{OSImageURL: derived}}, proceed("os-content-differs", 3)},
		{"booted has a layer more", nodeOptions{image: l.derived, mc: sysroot.MachineConfig{OSImageURL: same}}, proceed("os-content-differs", fourRequests)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := l.bootNode(t, tt.node)
			l.reg.ResetRequests()
			l.expect(t, n.analyze(t), tt.want)
		})
	}
}

func TestLyingLabelsAndLayers(t *testing.T) {
	l := newLab(t)
	without := must[*nativeimage.Image](t)(l.image(l.base, nativeimage.Options{WithoutLabels: []string{"ostree.commit"}}))
	otherWithout := must[*nativeimage.Image](t)(l.image(l.other, nativeimage.Options{WithoutLabels: []string{"ostree.commit"}}))
	tests := []struct {
		name  string
		image *nativeimage.Image
		want  answer
	}{
		{"label says the booted commit, the layer holds another",
			must[*nativeimage.Image](t)(l.image(l.other, nativeimage.Options{Labels: map[string]string{"ostree.commit": l.base}})),
			proceed("os-content-unknown", fourRequests)},
		{"label says another, the layer holds the booted commit",
			must[*nativeimage.Image](t)(l.image(l.base, nativeimage.Options{Labels: map[string]string{"ostree.commit": l.other}})),
			proceed("os-content-unknown", fourRequests)},
		{"no label, one commit in the layer", without, skip(verdict.ProofOSTreeCommit, fourRequests+1)},
		{"no label, layer swapped for one with the booted commit",
			must[*nativeimage.Image](t)(nativeimage.ReplaceLayer0(otherWithout, without.Layers[0], true)),
			proceed("os-content-unknown", fourRequests+1)},
		{"label and layer agree, but the diff id does not",
			must[*nativeimage.Image](t)(nativeimage.ReplaceLayer0(l.otherImage, l.native.Layers[0], true)),
			proceed("os-content-unknown", fourRequests)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := l.push(t, "os/lies", tt.image)
			n := l.bootNode(t, nodeOptions{commit: l.base, mc: sysroot.MachineConfig{OSImageURL: url}})
			l.reg.ResetRequests()
			l.expect(t, n.analyze(t), tt.want)
		})
	}
}

func TestAnotherCommit(t *testing.T) {
	l := newLab(t)
	url := l.push(t, "os/other", l.otherImage)
	for name, o := range map[string]nodeOptions{"plain": {commit: l.base}, "container": {image: l.native}} {
		t.Run(name, func(t *testing.T) {
			o.mc.OSImageURL = url
			n := l.bootNode(t, o)
			l.reg.ResetRequests()
			res := n.analyze(t)
			l.expect(t, res, proceed("os-content-differs", fourRequests))
			if c := res.Verdict.Cost; c == nil || c.Bytes == 0 || c.SameBase == nil || *c.SameBase {
				t.Errorf("cost %+v, want bytes on another base", c)
			}
		})
	}
}

// An image of the wrong architecture in its config never passes.
func TestForeignArchitecture(t *testing.T) {
	l := newLab(t)
	foreign := "arm64"
	if l.native.Config.Architecture == foreign {
		foreign = "amd64"
	}
	image := must[*nativeimage.Image](t)(l.image(l.base, nativeimage.Options{Architecture: foreign}))
	url := l.push(t, "os/foreign", image)
	for name, o := range map[string]nodeOptions{"plain": {commit: l.base}, "container": {image: image}} {
		t.Run(name, func(t *testing.T) {
			o.mc.OSImageURL = url
			n := l.bootNode(t, o)
			l.reg.ResetRequests()
			res := n.analyze(t)
			if res.Verdict.Action != verdict.Proceed || !strings.HasPrefix(string(res.Verdict.Reason), "architecture-") {
				t.Errorf("got %s\n%s", res.Verdict.Reason, checksText(res.Verdict))
			}
		})
	}
}
