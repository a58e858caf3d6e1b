package bootimage

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A server that gives a little each time, or the same again and again, is not asked
// for ever.
func TestTriesEnd(t *testing.T) {
	file := content(1 << 20)
	again := func(s *server, n int, w http.ResponseWriter, r *http.Request) bool {
		if n%2 == 1 {
			return cut(200_000)(s, n, w, r)
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes 5-%d/%d", len(s.file)-1, len(s.file)))
		w.WriteHeader(http.StatusPartialContent)
		return true
	}
	for name, fault := range map[string]func(*server, int, http.ResponseWriter, *http.Request) bool{"a little each time": cut(5000), "the same again": again} {
		t.Run(name, func(t *testing.T) {
			s, d := newServer(t, file), newDownloader(t)
			s.fault = func(s *server, n int, w http.ResponseWriter, r *http.Request) bool {
				if n > 100 {
					// Without an end the test would have none.
					w.WriteHeader(http.StatusNotFound)
					return true
				}
				return fault(s, n, w, r)
			}
			if _, err := d.Get(t.Context(), s.part("disk")); err == nil || len(s.asked) > 20 {
				t.Errorf("%d requests, %v", len(s.asked), err)
			}
		})
	}
}

// A partial file that has got its name while it was opened is let alone.
func TestLockOfNamedFile(t *testing.T) {
	dir := t.TempDir()
	part, final := filepath.Join(dir, ".disk.part"), filepath.Join(dir, "disk")
	if err := os.WriteFile(part, []byte("whole"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(part, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Rename(part, final); err != nil {
		t.Fatal(err)
	}
	if err := lock(f); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, want %v", err, ErrBusy)
	}
	// And where another call has made a new one since.
	if err := os.WriteFile(part, []byte("w"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := lock(f); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, want %v", err, ErrBusy)
	}
}

// No two files get one name.
func TestOneName(t *testing.T) {
	s, d := newServer(t, content(10)), newDownloader(t)
	d.Decompress = true
	other := s.part("disk")
	other.SHA256 = sum([]byte("other"))
	if _, err := d.GetAll(t.Context(), []Part{s.part("disk.gz"), other}); err == nil || !strings.Contains(err.Error(), "two files would have this name") || len(s.asked) > 0 {
		t.Errorf("got %v, %d requests", err, len(s.asked))
	}
	stream := func(kind string) string {
		return fmt.Sprintf(`{"disk":{"location":"%s/%s/disk.img","sha256":%q}}`, s.URL, kind, sum([]byte(kind)))
	}
	src, err := Parse([]byte(fmt.Sprintf(`{"stream":"x","metadata":{},"architectures":{"x86_64":{"artifacts":{"metal":{"release":"1","formats":{"raw":%s,"iso":%s}}}}}}`, stream("a"), stream("b"))))
	if err != nil {
		t.Fatal(err)
	}
	m := &Mirror{Downloader: d, To: d.Dir, BaseURL: "https://mirror.example.com", OpenShiftVersion: "4.19"}
	_, err = m.Run(t.Context(), src, src.Streams, []Query{{Platform: "metal", Format: "raw"}, {Platform: "metal", Format: "iso"}})
	if err == nil || !strings.Contains(err.Error(), "two files would be x/1/x86_64/disk.img") || len(s.asked) > 0 {
		t.Errorf("got %v, %d requests", err, len(s.asked))
	}
}

// Nothing is written outside of the mirror's folder.
func TestMirrorFolderIsALink(t *testing.T) {
	s, d := newServer(t, content(10)), newDownloader(t)
	src, err := Parse([]byte(streamOf(s, "9.6")))
	if err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	if err := os.Mkdir(filepath.Join(d.Dir, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(d.Dir, "x/9.6")); err != nil {
		t.Fatal(err)
	}
	m := &Mirror{Downloader: d, To: d.Dir, BaseURL: "https://mirror.example.com", OpenShiftVersion: "4.19"}
	if _, err := m.Run(t.Context(), src, src.Streams, []Query{{Platform: "metal", Architecture: "x86_64", Format: "iso"}}); err == nil || !strings.Contains(err.Error(), "no folder, or a link") {
		t.Errorf("got %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(outside, "*/*")); err != nil || len(left) > 0 {
		t.Errorf("%v are outside, %v", left, err)
	}
}

// Calls at once for one file from a server without ranges: whoever looks at the name
// sees the whole file.
func TestManyCallsAtOnce(t *testing.T) {
	s, d := newServer(t, content(200_000)), newDownloader(t)
	s.fault = func(s *server, _ int, w http.ResponseWriter, _ *http.Request) bool {
		_, _ = w.Write(s.file)
		return true
	}
	final := filepath.Join(d.Dir, "disk")
	stop := time.Now().Add(time.Second)
	done := make(chan error)
	for range 4 {
		go func() {
			for time.Now().Before(stop) {
				if _, err := d.Get(t.Context(), s.part("disk")); err != nil && !errors.Is(err, ErrBusy) {
					done <- err
					return
				}
				// The next round fetches it again.
				_ = os.Remove(final)
			}
			done <- nil
		}()
	}
	go func() {
		for time.Now().Before(stop) {
			if b, err := os.ReadFile(final); err == nil && sum(b) != sum(s.file) {
				done <- fmt.Errorf("%d bytes are under its name", len(b))
				return
			}
		}
		done <- nil
	}()
	for range 5 {
		if err := <-done; err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
}
