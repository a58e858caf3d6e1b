package e2e

import (
	"os/exec"
	"testing"
	"time"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// BenchmarkByDigest is a whole run that needs no registry, side by side with
// skopeo inspect --no-tags of the same image on loopback.
func BenchmarkByDigest(b *testing.B) {
	l := newLab(b)
	url := l.push(b, "os/base", l.native)
	n := l.bootNode(b, nodeOptions{image: l.native, mc: sysroot.MachineConfig{OSImageURL: url}})
	var ours, theirs time.Duration
	for b.Loop() {
		l.reg.ResetRequests()
		p := execute(b, n)
		if p.verdict.Action != verdict.Skip || len(l.reg.Requests()) != 0 {
			b.Fatalf("%s, %d requests", p.verdict.Reason, len(l.reg.Requests()))
		}
		ours += p.wall
		cmd := exec.Command("skopeo", "inspect", "--no-tags", "--tls-verify=false", "docker://"+url)
		start := time.Now()
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
		theirs += time.Since(start)
	}
	b.ReportMetric(float64(ours.Microseconds())/float64(b.N)/1000, "ms/run")
	b.ReportMetric(float64(theirs.Microseconds())/float64(b.N)/1000, "ms/skopeo")
	b.ReportMetric(float64(theirs)/float64(ours), "skopeo/run")
}

// BenchmarkInnerCommitOfLargeImage reads the commit inside an image of over
// 500 MiB: what it costs does not grow with the image.
func BenchmarkInnerCommitOfLargeImage(b *testing.B) {
	l := newLab(b)
	tree := sysroot.Tree{FillerBytes: 512 << 20}
	must := must[string](b)
	commit := must(l.build.CommitTree(tree, sysroot.CommitOptions{Packages: sysroot.Packages(500, tree.Kernel())}))
	image, err := l.image(commit, nativeimage.Options{})
	if err != nil {
		b.Fatal(err)
	}
	url := l.push(b, "os/large", image)
	n := l.bootNode(b, nodeOptions{commit: commit, mc: sysroot.MachineConfig{OSImageURL: url}})
	var wall time.Duration
	var requests int
	var bytes int64
	for b.Loop() {
		l.reg.ResetRequests()
		p := execute(b, n)
		if p.verdict.Action != verdict.Skip || p.verdict.Proof != verdict.ProofOSTreeCommit {
			b.Fatalf("%s by %s", p.verdict.Reason, p.verdict.Proof)
		}
		wall += p.wall
		requests, bytes = len(l.reg.Requests()), l.reg.Bytes()
	}
	b.ReportMetric(float64(image.Size())/(1<<20), "MiB-image")
	b.ReportMetric(float64(requests), "requests/run")
	b.ReportMetric(float64(bytes)/1024, "KiB-served/run")
	b.ReportMetric(float64(wall.Microseconds())/float64(b.N)/1000, "ms/run")
}
