package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oneboot/oneboot/test/measure"
	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/sysroot"
)

// times is how often each program of a row runs.
const times = 5

// BenchmarkTable prints the table: what oneboot takes, what something else takes for
// the same question, and how many times longer that is.
func BenchmarkTable(b *testing.B) {
	l := newLab(b)
	for b.Loop() {
		fmt.Print("\n", measure.Head) // a log would be cut
		row := func(what, far, other string, ours, theirs measure.Cost) {
			fmt.Print(measure.Row(what, far, other, ours, theirs))
		}
		l.sysroots(b, row)
		l.proofs(b, row)
		l.sizes(b, row)
	}
}

type addRow func(what, far, other string, ours, theirs measure.Cost)

// A proof is a host and what it is to prove.
type proof struct {
	name, code string
	image      *nativeimage.Image
	// booted is what the host has deployed: an image, or a commit.
	booted *nativeimage.Image
	commit string
}

func (l *lab) proofCases(t testing.TB, mib int64) []proof {
	t.Helper()
	commit := l.commit(t, mib)
	image := l.native(t, commit)
	recompressed, err := nativeimage.Recompress(t.TempDir(), image, nativeimage.Zstd)
	if err != nil {
		t.Fatal(err)
	}
	legacy, err := nativeimage.BuildLegacy(t.TempDir(), l.build.Repo(), []string{commit}, nativeimage.LegacyOptions{Label: commit})
	if err != nil {
		t.Fatal(err)
	}
	return []proof{
		{name: "analyze by manifest digest", code: "manifest-digest", image: image, booted: image},
		{name: "analyze by config digest", code: "config-digest", image: recompressed, booted: image},
		{name: "analyze by inner commit", code: "ostree-commit", image: image, commit: commit},
		{name: "analyze machine-os-content", code: "ostree-commit", image: legacy, commit: commit},
	}
}

// proofs are runs of analyze beside skopeo, near and far.
func (l *lab) proofs(b *testing.B, row addRow) {
	b.Helper()
	for n, p := range l.proofCases(b, 64) {
		near, far := l.push(b, fmt.Sprintf("proof%d", n), p.image)
		for _, where := range []struct{ name, url string }{{"0", near}, {"100 ms", far}} {
			root := l.node(b, p.booted, p.commit, where.url)
			name := strings.SplitN(where.url, "@", 2)[0]
			for _, other := range []struct {
				name string
				args []string
			}{
				{"skopeo inspect --no-tags", []string{"inspect", "--no-tags", "--tls-verify=false", "docker://" + where.url}},
				{"skopeo inspect", []string{"inspect", "--tls-verify=false", "docker://" + name + ":latest"}},
				{"skopeo copy", nil},
			} {
				theirs := l.skopeo(b, other.args...)
				if other.args == nil {
					theirs = l.copy(b, where.url)
				}
				ours, its := measure.Beside(times, l.analyze(b, root.Dir, p.code), theirs)
				row(p.name, where.name, other.name, ours, its)
			}
		}
	}
}

// copy is a pull of the whole image.
func (l *lab) copy(b *testing.B, url string) func() measure.Cost {
	return func() measure.Cost {
		to := filepath.Join(l.dir, "copy")
		defer os.RemoveAll(to)
		return l.once(b, nil, "skopeo", "copy", "--src-tls-verify=false", "docker://"+url, "dir:"+to)
	}
}

// sizes are images of 50 MiB to 1 GiB beside the smallest one.
func (l *lab) sizes(b *testing.B, row addRow) {
	b.Helper()
	var first func() measure.Cost
	for _, mib := range []int64{50, 200, 1024} {
		commit := l.commit(b, mib)
		near, _ := l.push(b, fmt.Sprintf("size%d", mib), l.native(b, commit))
		run := l.analyze(b, l.node(b, nil, commit, near).Dir, "ostree-commit")
		inspect := func() measure.Cost { return l.once(b, nil, program, "inspect", "--root", l.insecure(b), near) }
		if first == nil {
			first = run
			l.firstInspect = inspect
			continue
		}
		ours, its := measure.Beside(times, run, first)
		row(fmt.Sprintf("analyze by inner commit, %d MiB", mib), "0", "the same, 50 MiB", ours, its)
		ours, its = measure.Beside(times, inspect, l.firstInspect)
		row(fmt.Sprintf("inspect, %d MiB", mib), "0", "the same, 50 MiB", ours, its)
	}
}

// insecure is a root whose configuration allows the registry without TLS.
func (l *lab) insecure(b *testing.B) string {
	b.Helper()
	root := filepath.Join(l.dir, "insecure")
	name := filepath.Join(root, "etc/containers/registries.conf")
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(name, fmt.Appendf(nil, "[[registry]]\nlocation = %q\ninsecure = true\n", l.reg.Host), 0o644); err != nil {
		b.Fatal(err)
	}
	return root
}

// sysroots are hosts with many deployments, and with many objects, beside one with
// neither.
func (l *lab) sysroots(b *testing.B, row addRow) {
	b.Helper()
	image := l.native(b, l.commit(b, 2))
	url, _ := l.push(b, "sysroot", image)
	plain := l.analyze(b, l.node(b, image, "", url).Dir, "manifest-digest")
	many := l.node(b, image, "", url)
	commit := l.commit(b, 1)
	if _, err := sysroot.Ostree("pull-local", "--repo="+many.Sysroot.Repo(), "--disable-fsync", l.build.Repo(), commit); err != nil {
		b.Fatal(err)
	}
	for have := 1; have < 200; {
		for _, want := range []int{50, 200} {
			for ; have < want; have++ {
				if _, err := many.Sysroot.Deploy(commit, sysroot.DeployOptions{NotAsDefault: true}); err != nil {
					b.Fatal(err)
				}
			}
			many.boots(b)
			ours, its := measure.Beside(times, l.analyze(b, many.Dir, "manifest-digest"), plain)
			row(fmt.Sprintf("analyze, %d deployments", want), "0", "the same, 1 deployment", ours, its)
		}
	}
	full := l.node(b, image, "", url)
	const objects = 500_000
	for n := range objects {
		dir := filepath.Join(full.Sysroot.Repo(), "objects", fmt.Sprintf("%02x", n%256))
		if n < 256 {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				b.Fatal(err)
			}
		}
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%062x.file", n)))
		if err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
	ours, its := measure.Beside(times, l.analyze(b, full.Dir, "manifest-digest"), plain)
	row(fmt.Sprintf("analyze, %d objects", objects), "0", "the same, some hundred", ours, its)
}

// TestSpeed is no benchmark, and fails upon a tenfold loss alone: it holds the
// requests exactly, and the ratios to a tenth of what the table had.
func TestSpeed(t *testing.T) {
	l := newLab(t)
	// Ratios beside skopeo inspect --no-tags with a far registry, as measured.
	tests := map[string]struct {
		ratio    float64
		requests int
	}{
		"analyze by manifest digest": {30, 0},
		"analyze by config digest":   {1.5, 2},
		"analyze by inner commit":    {1, 4},
		"analyze machine-os-content": {1, 4},
	}
	for n, p := range l.proofCases(t, 2) {
		want, ok := tests[p.name]
		if !ok {
			t.Fatalf("nothing is known of %s", p.name)
		}
		_, far := l.push(t, fmt.Sprintf("proof%d", n), p.image)
		root := l.node(t, p.booted, p.commit, far)
		ours, theirs := measure.Beside(3, l.analyze(t, root.Dir, p.code), l.skopeo(t, "inspect", "--no-tags", "--tls-verify=false", "docker://"+far))
		t.Logf("%s: %s; skopeo inspect: %s; %.1f times as long", p.name, ours, theirs, measure.Ratio(ours, theirs))
		if ours.Requests > want.requests {
			t.Errorf("%s: %d requests, want at most %d", p.name, ours.Requests, want.requests)
		}
		if measure.Ratio(ours, theirs) < want.ratio/10 {
			t.Errorf("%s took %s and skopeo inspect %s: a tenth of the speed that it had", p.name, ours.Wall.Round(time.Millisecond), theirs.Wall.Round(time.Millisecond))
		}
	}
}
