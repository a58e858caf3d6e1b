package osimage

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/registry"
)

const frame = 16 << 20

// bomb is a small layer that unpacks to some files and one more of n times 16
// MiB: gzip and zstd take frames one after the other.
func bomb(t testing.TB, how string, n int, before ...entry) []byte {
	t.Helper()
	head := makeTar(t, before...)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "zeros", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(n) * frame}); err != nil {
		t.Fatal(err)
	}
	blob := compress(t, how, append(head[:len(head)-1024], b.Bytes()...))
	blob = append(blob, bytes.Repeat(compress(t, how, make([]byte, frame)), n)...)
	return append(blob, compress(t, how, make([]byte, 1024))...)
}

// A small layer that unpacks to 6 GiB costs no more time than there is, and a
// late answer is none.
func TestDeadlineWhileUnpacking(t *testing.T) {
	commit := commitBytes(7)
	nativeLabels := map[string]string{LabelFinalDiffID: "sha256:" + sum(nil)}
	// Whether all was read by then depends on the machine.
	const unpacking = "when the time was over; --timeout"
	list := listFile(`{"usbguard": "1.0.0-15.el9.x86_64"}`)
	inner := func(ctx context.Context, img *Image) error { _, err := img.InnerCommit(ctx, ""); return err }
	offers := func(ctx context.Context, img *Image) error { _, err := img.Extensions(ctx); return err }
	tests := []struct {
		name   string
		how    string
		labels map[string]string
		first  entry
		ask    func(context.Context, *Image) error
		want   string
	}{
		{"extensions, zstd", zst, nil, list, offers, unpacking},
		{"extensions, gzip", gz, nil, list, offers, unpacking},
		{"one commit, native", zst, nativeLabels, commitEntry(commit), inner, unpacking},
		{"one commit, legacy", gz, nil, legacyEntry(commit), inner, unpacking},
		{"a label, legacy", zst, legacyLabel(commitBytes(9)), legacyEntry(commit), inner, unpacking},
	}
	r := startRegistry(t, registry.Options{})
	c := configFor(t, r, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := spec{how: tt.how, tars: [][]byte{nil}, blobs: [][]byte{bomb(t, tt.how, 6<<30/frame, tt.first)}, labels: tt.labels}.build(t)
			img := openImage(t, push(t, r, b), c)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			start := time.Now()
			err := tt.ask(ctx, img)
			if CodeOf(err) != Timeout || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
			if d := time.Since(start); d > 6*time.Second {
				t.Errorf("200 ms took %v", d)
			}
		})
	}
}

// A list of packages can unpack to much, too.
func TestDeadlineWhileParsing(t *testing.T) {
	doc := `<metadata xmlns="http://linux.duke.edu/metadata/common">` + strings.Repeat("<a/>", (maxPrimaryBytes-200)/4) + "</metadata>"
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	p := primaryFile{name: "repodata/primary.xml.gz"}
	blob := compress(t, gz, []byte(doc))
	p.sha256 = sum(blob)
	if _, err := p.parse(ctx, blob); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 3*time.Second {
		t.Errorf("got %v after %v", err, time.Since(start))
	}
}

// An answer that came after the time is none, and stays so.
func TestLateAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var s step[int]
	late := func() (int, error) { cancel(); return 7, nil }
	for range 2 {
		if n, err := s.do(ctx, "image", late); n != 0 || CodeOf(err) != Timeout {
			t.Errorf("got %d, %v", n, err)
		}
	}
	kept := step[int]{done: true, value: 7}
	if n, err := kept.do(ctx, "image", nil); n != 7 || err != nil {
		t.Errorf("an answer in time: %d, %v", n, err)
	}
}

// stall sends n bytes of an answer and no more.
func stall(n int64) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		next.ServeHTTP(&staller{ResponseWriter: w, left: n, done: req.Context().Done()}, req)
	}
}

type staller struct {
	http.ResponseWriter
	left int64
	done <-chan struct{}
}

func (s *staller) Write(p []byte) (int, error) {
	n, err := s.ResponseWriter.Write(p[:min(int64(len(p)), s.left)])
	if s.left -= int64(n); s.left > 0 || err != nil {
		return n, err
	}
	err = http.NewResponseController(s.ResponseWriter).Flush()
	<-s.done
	return n, errors.Join(err, http.ErrHandlerTimeout)
}

// A time that ran out says how far a layer was read.
func TestProgress(t *testing.T) {
	t.Parallel()
	small, large := makeTar(t, file("x", noise(40_000))), makeTar(t, file("x", noise(12_000_000)))
	tests := []struct {
		name  string
		layer []byte
		skip  int
		do    func(http.ResponseWriter, *http.Request, http.Handler)
		want  string
	}{
		{"in the first part", large, 0, stall(6_200_000), "read 6 of 12 MB of layer 2 of 2 when the time was over; --timeout gives more"},
		{"in the second part", large, 1, stall(1_000_000), "read 9 of 12 MB of layer 2 of 2 when the time was over; --timeout gives more"},
		{"no ranges", large, 0, func(w http.ResponseWriter, req *http.Request, next http.Handler) {
			req.Header.Del("Range")
			stall(9_500_000)(w, req, next)
		}, "read 9 of 12 MB of layer 2 of 2 when"},
		{"at once", large, 0, func(_ http.ResponseWriter, req *http.Request, _ http.Handler) { <-req.Context().Done() }, "read 0 of 12 MB of layer 2 of 2 when"},
		{"a small layer", small, 0, stall(20_000), "read 20 of 41 kB of layer 2 of 2 when"},
	}
	r := startRegistry(t, registry.Options{})
	c := configFor(t, r, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := spec{tars: [][]byte{makeTar(t), tt.layer}}.build(t)
			img := openImage(t, push(t, r, b), c)
			r.AddFault(&registry.Fault{Path: regexp.MustCompile(sum(b.blobs[1])), Skip: tt.skip, Do: tt.do})
			defer r.ClearFaults()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if _, err := img.Extensions(ctx); CodeOf(err) != Timeout || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v; want %q", err, tt.want)
			}
		})
	}
}

// What is kept of an image stays small, however many layers it has.
func TestMemoryOfOffers(t *testing.T) {
	var s spec
	for i := range 10 {
		name := func(n int) string { return fmt.Sprintf("%s/repodata/%d-primary.xml", extensionsDir, n) }
		tarball := makeTar(t, file(name(2*i), make([]byte, maxOfferFile)), file(name(2*i+1), make([]byte, maxOfferFile-1024)))
		s.blobs, s.diffIDs, s.tars = append(s.blobs, compress(t, zst, tarball)), append(s.diffIDs, "sha256:"+sum(tarball)), append(s.tars, nil)
	}
	s.how = zst
	r := startRegistry(t, registry.Options{})
	img := openImage(t, push(t, r, s.build(t)), configFor(t, r, nil))
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	runtime.GC()
	before, peak := heap(), uint64(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				peak = max(peak, heap())
			}
		}
	}()
	_, err := img.Extensions(t.Context())
	close(stop)
	<-done
	if grown := int64(peak) - int64(before); grown > 48<<20 || CodeOf(err) != LayerInvalid {
		t.Errorf("10 layers made the heap grow by %d MiB: %v", grown>>20, err)
	}
}

// A layer cannot make the reader keep more than its bounds.
func TestOfferIsBounded(t *testing.T) {
	scan := func(o *offer, entries ...entry) (layerOffer, error) {
		return o.scan(t.Context(), bytes.NewReader(makeTar(t, entries...)))
	}
	var many, long []entry
	for i := range maxPackages + 2 {
		many = append(many, file(fmt.Sprintf("extensions/%d.rpm", i), nil))
	}
	for i := range maxOfferNames / 4000 {
		long = append(long, file(fmt.Sprintf("extensions/%s%d.rpm", strings.Repeat("x", 4000), i), nil))
	}
	for name, entries := range map[string][]entry{"entries": many, "long names": long} {
		if _, err := scan(newOffer(), entries...); !errors.Is(err, errTooManyEntries) {
			t.Errorf("%s: %v", name, err)
		}
	}
	large := bytes.Repeat([]byte{' '}, maxOfferFile)
	o := newOffer()
	for i, want := range []struct{ files, faults int }{{2, 1}, {0, 3}} {
		var entries []entry
		for j := range 3 {
			entries = append(entries, file(fmt.Sprintf("%s/repodata/%d_%d-primary.xml", extensionsDir, i, j), large))
		}
		l, err := scan(o, entries...)
		if err != nil || len(l.files) != want.files || len(l.faults) != want.faults || o.put(l) != nil {
			t.Errorf("layer %d: %v, %d files, %d faults", i, err, len(l.files), len(l.faults))
		}
	}
}

// The time for a name does not grow by the square of its length, whether it
// matters or not.
func TestDeepNames(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("a/", n) }
	hide := make([]entry, 0, 20)
	for i := range 20 {
		hide = append(hide, file(fmt.Sprintf("extensions/.wh.x%d", i), nil))
	}
	tests := []struct {
		name  string
		entry entry
		want  string
	}{
		{"over the limit", file(deep(150_000)+"b", nil), "has 300001 bytes, over the limit of 4096"},
		{"of a file that matters", file("extensions/"+deep(1000)+"b.rpm", nil), "nested deeper than 32 folders"},
		{"of a folder taken away", file("extensions/"+deep(1000)+".wh.b", nil), "nested deeper than 32 folders"},
		{"of a file that matters to nobody", file("usr/"+deep(1000)+"b", nil), "offers no extensions"},
		{"of a folder", entry{"extensions/" + deep(1000), nil, tar.TypeDir}, "offers no extensions"},
	}
	r := startRegistry(t, registry.Options{})
	c := configFor(t, r, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := spec{how: gz, tars: [][]byte{makeTar(t, tt.entry), makeTar(t, hide...)}}.build(t)
			start := time.Now()
			_, err := openImage(t, push(t, r, b), c).Extensions(t.Context())
			if d := time.Since(start); err == nil || !strings.Contains(err.Error(), tt.want) || d > 2*time.Second {
				t.Errorf("got %v after %v; want %q", err, d, tt.want)
			}
		})
	}
	img := openImage(t, push(t, r, spec{how: gz, tars: [][]byte{makeTar(t, file(deep(150_000)+"b", nil))}}.build(t)), c)
	if _, err := img.InnerCommit(t.Context(), ""); CodeOf(err) != LayerInvalid || !strings.Contains(err.Error(), "300001 bytes") {
		t.Errorf("commit: %v", err)
	}
}

// A large image that names another commit than the booted one is not read,
// unless that is wanted.
func TestLegacyOtherCommit(t *testing.T) {
	commit, other := commitBytes(7), verdict.Checksum(sum(commitBytes(9)))
	r := startRegistry(t, registry.Options{})
	c := configFor(t, r, nil)
	store := func(filler int, labels map[string]string) string {
		tarball := makeTar(t, legacyEntry(commit), file("extensions/a.rpm", make([]byte, filler)))
		return push(t, r, spec{tars: [][]byte{tarball}, labels: labels}.build(t))
	}
	large, small := store(maxForRebuild, legacyLabel(commit)), store(maxForRebuild/64, legacyLabel(commit))
	found := wantCommit(commit, verdict.CommitFromLegacyRepo)
	tests := []struct {
		name, ref string
		booted    verdict.Checksum
		read      bool
	}{
		{"another is booted", large, other, false},
		{"it is booted", large, found.Checksum, true},
		{"any is wanted", large, "", true},
		{"a small image", small, other, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			img := openImage(t, tt.ref, c)
			got, err := img.InnerCommit(t.Context(), tt.booted)
			cost := img.Transfer()
			if tt.read {
				if err != nil || got != found || cost.Requests != 4 {
					t.Errorf("got %v, %v, %+v", got, err, cost)
				}
				return
			}
			if CodeOf(err) != CommitNotRead || cost.Requests != 3 || cost.Bytes > 2048 {
				t.Errorf("got %v, %v, %+v; want 3 requests and a manifest and a config", got, err, cost)
			}
			for _, want := range []string{string(other) + " is booted", sum(commit), "67 MB of layers", "--full"} {
				if !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
			if f := img.Identity().InnerCommit; f.IsKnown() || !f.Gathered() {
				t.Error("the fact is not unknown")
			}
			if _, again := img.InnerCommit(t.Context(), ""); !errors.Is(again, err) {
				t.Errorf("asked again: %v", again)
			}
		})
	}
}
