package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/pkg/osimage"
	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// legacyImage builds a machine-os-content image of the base commit.
func (l *lab) legacyImage(t testing.TB, commits []string, opts nativeimage.LegacyOptions) *nativeimage.Image {
	t.Helper()
	return must[*nativeimage.Image](t)(nativeimage.BuildLegacy(t.TempDir(), l.build.Repo(), commits, opts))
}

func TestLegacyImage(t *testing.T) {
	l := newLab(t)
	base, other := []string{l.base}, []string{l.other}
	both := []string{l.base, l.other}
	pivoted := func(image string) string {
		return "[origin]\nrefspec=" + l.base + "\ncustom-url=pivot://" + image + "\ncustom-description=Managed by machine-config-operator\n"
	}
	layeredOrigin := func(image string) string {
		return "[origin]\nbaserefspec=" + l.base + "\ncustom-url=pivot://" + image + "\ncustom-description=Managed by machine-config-operator\n"
	}
	tests := []struct {
		name    string
		commits []string
		opts    nativeimage.LegacyOptions
		// origin makes the origin of the host, layered says that it has
		// usbguard layered and wanted.
		origin  func(image string) string
		layered bool
		want    answer
	}{
		{"labelled, v2s2", base, nativeimage.LegacyOptions{Format: nativeimage.DockerV2S2, Label: l.base}, nil, false, skip(verdict.ProofOSTreeCommit, -1)},
		{"labelled, OCI, uncompressed", base, nativeimage.LegacyOptions{Compression: nativeimage.Uncompressed, Label: l.base}, nil, false, skip(verdict.ProofOSTreeCommit, -1)},
		{"labelled, the repository first", base, nativeimage.LegacyOptions{Label: l.base, RepoFirst: true, PackageList: "bash-5.1\n"}, nil, false, skip(verdict.ProofOSTreeCommit, -1)},
		{"labelled among several commits", both, nativeimage.LegacyOptions{Label: l.base}, nil, false, skip(verdict.ProofOSTreeCommit, -1)},
		{"labelled, another commit", other, nativeimage.LegacyOptions{Label: l.other}, nil, false, proceed("os-content-differs", -1)},
		{"labelled, a rebuild", []string{l.rebuilt}, nativeimage.LegacyOptions{Label: l.rebuilt}, nil, false, skip(verdict.ProofContentChecksum, -1)},
		{"a stale label", other, nativeimage.LegacyOptions{Label: l.base}, nil, false, proceed("os-content-unknown", -1)},
		{"no label, one commit", base, nativeimage.LegacyOptions{WithoutBase: true, Refs: map[string]string{"origin-ci-dev": l.base}}, nil, false, skip(verdict.ProofOSTreeCommit, -1)},
		{"no label, one commit, no ref", base, nativeimage.LegacyOptions{WithoutBase: true}, nil, false, skip(verdict.ProofOSTreeCommit, -1)},
		{"no label, another commit", other, nativeimage.LegacyOptions{WithoutBase: true}, nil, false, proceed("os-content-differs", -1)},
		{"no label, several commits", both, nativeimage.LegacyOptions{WithoutBase: true, Refs: map[string]string{"coreos": l.base}}, nil, false, proceed("os-content-unknown", -1)},
		{"labelled, and the labels of a native image", base, nativeimage.LegacyOptions{Label: l.base, Labels: map[string]string{"ostree.bootable": "true"}}, nil, false, proceed("os-content-unknown", -1)},
		{"pivoted by the daemon of those days", base, nativeimage.LegacyOptions{Label: l.base}, pivoted, false, skip(verdict.ProofOSTreeCommit, -1)},
		{"pivoted, packages layered", base, nativeimage.LegacyOptions{Label: l.base}, layeredOrigin, true, skip(verdict.ProofOSTreeCommit, -1)},
	}
	extensions := filepath.Join(t.TempDir(), "extensions")
	if err := nativeimage.WriteLegacyExtensions(extensions, nativeimage.FlatExtensions, map[string][]nativeimage.RPM{"usbguard": rpms(usbguard), "": rpms(protobuf)}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			node := nodeOptions{commit: l.base}
			if tt.layered {
				tt.opts.Extensions = extensions
				node.layer, node.mc.Extensions, node.mc.Annotations = layered(), []string{"usbguard"}, ofRelease("4.12.30")
			}
			node.mc.OSImageURL = l.push(t, "os/machine-os-content", l.legacyImage(t, tt.commits, tt.opts))
			if tt.origin != nil {
				node.origin = tt.origin(node.mc.OSImageURL)
			}
			n := l.bootNode(t, node)
			l.reg.ResetRequests()
			res := n.analyze(t)
			l.expect(t, res, tt.want)
			if reasons := res.Verdict.MCO.Why; tt.origin != nil && !tt.layered {
				for _, r := range reasons {
					if r.Code == "os-image-url" {
						t.Errorf("the origin names the image, but: %s", r.Detail)
					}
				}
			}
			t.Logf("%d requests, %d bytes, %.1f ms", res.Transfer.Requests, res.Transfer.Bytes, res.Seconds*1000)
		})
	}
}

// A deployment that a container image made is not proven by the commit of an
// image of the old form unless it is that very commit's content.
func TestLegacyImageOnContainerDeployment(t *testing.T) {
	l := newLab(t)
	url := l.push(t, "os/machine-os-content", l.legacyImage(t, []string{l.base}, nativeimage.LegacyOptions{Label: l.base}))
	for _, tt := range []struct {
		name  string
		image *nativeimage.Image
		want  answer
	}{
		{"of that commit", l.native, skip(verdict.ProofOSTreeCommit, -1)},
		{"with a layer on it", l.derived, proceed("os-content-differs", -1)},
		{"of another", l.otherImage, proceed("os-content-differs", -1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := l.bootNode(t, nodeOptions{image: tt.image, mc: sysroot.MachineConfig{OSImageURL: url}})
			l.reg.ResetRequests()
			l.expect(t, n.analyze(t), tt.want)
		})
	}
}

// The layers of a large image that names another commit are read only where
// somebody wants the whole picture.
func TestLegacyImageOfAnotherCommit(t *testing.T) {
	l := newLab(t)
	filler := filepath.Join(t.TempDir(), "filler")
	if err := os.WriteFile(filler, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	const size = 65 << 20
	if err := os.Truncate(filler, size); err != nil {
		t.Fatal(err)
	}
	url := l.push(t, "os/machine-os-content", l.legacyImage(t, []string{l.other}, nativeimage.LegacyOptions{
		Label: l.other, Compression: nativeimage.Uncompressed, Directories: map[string]string{"opt/filler": filler},
	}))
	n := l.bootNode(t, nodeOptions{commit: l.base, mc: sysroot.MachineConfig{OSImageURL: url}})
	for _, tt := range []struct {
		name        string
		full        bool
		reason      verdict.Reason
		conclusive  bool
		least, most int64 // bytes
		errors      int
	}{
		{"not read", false, "os-content-unknown", false, 0, 16 << 10, 1},
		{"full", true, "os-content-differs", true, size, size + 8<<20, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l.reg.ResetRequests()
			res := n.analyze(t, func(o *daemon.Options) { o.Full = tt.full })
			l.expect(t, res, proceed(tt.reason, -1))
			v, cost := res.Verdict, res.Transfer
			if v.Conclusive != tt.conclusive || cost.Bytes < tt.least || cost.Bytes > tt.most || len(v.Errors) != tt.errors {
				t.Errorf("conclusive %t, %+v, errors %v", v.Conclusive, cost, v.Errors)
			}
			if !tt.full && (cost.Requests != 3 || v.Errors[0].Code != string(osimage.CommitNotRead) || !strings.Contains(detailOf(v, verdict.CheckOSContent).Detail, "--full reads them")) {
				t.Errorf("%+v, %v\n%s", cost, v.Errors, checksText(v))
			}
			t.Logf("%d requests, %d bytes", cost.Requests, cost.Bytes)
		})
	}
}
