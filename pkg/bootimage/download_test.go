package bootimage

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"golang.org/x/sys/unix"
)

// content is what the tests' server has: bytes that do not compress.
func content(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// A server has one file and counts what it sends.
type server struct {
	*httptest.Server
	mu    sync.Mutex
	file  []byte
	sent  int64
	asked []string
	// fault answers in its place where it says so; n counts the requests from 1.
	fault func(s *server, n int, w http.ResponseWriter, r *http.Request) bool
}

func newServer(t *testing.T, file []byte) *server {
	t.Helper()
	s := &server{file: file}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r.Header.Get("Range"))
		n, fault, file := len(s.asked), s.fault, s.file
		s.mu.Unlock()
		w = &counter{w, s}
		if fault != nil && fault(s, n, w, r) {
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file))
	}))
	t.Cleanup(s.Close)
	return s
}

type counter struct {
	http.ResponseWriter
	s *server
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.s.mu.Lock()
	c.s.sent += int64(n)
	c.s.mu.Unlock()
	return n, err
}

func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (s *server) part(name string) Part {
	return Part{Role: "disk", Name: name, Location: s.URL + "/" + name, SHA256: sum(s.file)}
}

func newDownloader(t *testing.T) *Downloader {
	t.Helper()
	client, err := NewClient(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Downloader{Client: client, Dir: t.TempDir(), pause: time.Millisecond}
}

// cut sends the first n bytes of what is asked and ends the connection.
func cut(n int64) func(*server, int, http.ResponseWriter, *http.Request) bool {
	return func(s *server, _ int, w http.ResponseWriter, r *http.Request) bool {
		from := int64(0)
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(s.file)-1, len(s.file)))
			w.Header().Set("Content-Length", fmt.Sprint(int64(len(s.file))-from))
			w.WriteHeader(http.StatusPartialContent)
		} else {
			w.Header().Set("Content-Length", fmt.Sprint(len(s.file)))
		}
		if int64(len(s.file))-from <= n {
			_, _ = w.Write(s.file[from:])
			return true
		}
		_, _ = w.Write(s.file[from : from+n])
		panic(http.ErrAbortHandler)
	}
}

func TestDownload(t *testing.T) {
	file := content(1 << 20)
	status := func(code int) func(*server, int, http.ResponseWriter, *http.Request) bool {
		return func(_ *server, _ int, w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(code)
			return true
		}
	}
	first := func(f func(*server, int, http.ResponseWriter, *http.Request) bool) func(*server, int, http.ResponseWriter, *http.Request) bool {
		return func(s *server, n int, w http.ResponseWriter, r *http.Request) bool { return n == 1 && f(s, n, w, r) }
	}
	tests := []struct {
		name  string
		fault func(*server, int, http.ResponseWriter, *http.Request) bool
		// there is what was fetched before.
		there []byte
		// err is a part of the error, most the bytes that may be sent; any where 0.
		err  string
		most int64
	}{
		{name: "plain", most: 1 << 20},
		{name: "cut off every 100,000 bytes", fault: cut(100_000), most: 1 << 20},
		{name: "the half is there", there: file[:1<<19], most: 1 << 19},
		{name: "all but the name is there", there: file, most: 1 << 10},
		{name: "more than all is there", there: append(bytes.Clone(file), 1, 2, 3)},
		{name: "the half is there and damaged", there: make([]byte, 1<<19)},
		{name: "a server without ranges", there: file[:1<<19], fault: func(s *server, _ int, w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write(s.file)
			return true
		}, most: 1 << 20},
		{name: "another range than was asked for", there: file[:1<<19], fault: first(func(s *server, _ int, w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(s.file)-1, len(s.file)))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(s.file)
			return true
		})},
		{name: "busy, then well", fault: func(_ *server, n int, w http.ResponseWriter, _ *http.Request) bool {
			if n > 3 {
				return false
			}
			w.WriteHeader([]int{http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusBadGateway}[n-1])
			return true
		}, most: 1 << 20},
		{name: "never well", fault: status(http.StatusServiceUnavailable), err: "503 Service Unavailable, after 6 tries"},
		{name: "not there", fault: status(http.StatusNotFound), err: "404 Not Found"},
		{name: "forbidden", fault: status(http.StatusForbidden), err: "403 Forbidden"},
		{name: "another file", fault: func(s *server, _ int, w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write(bytes.Repeat([]byte("x"), len(s.file)))
			return true
		}, err: "the server has another file"},
		{name: "longer than it says", fault: func(s *server, n int, w http.ResponseWriter, r *http.Request) bool {
			if n > 1 {
				return false
			}
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-9/%d", 10))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(s.file)
			return true
		}},
		{name: "a size beyond all limits", fault: func(_ *server, _ int, w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Length", "1000000000000000")
			w.WriteHeader(http.StatusOK)
			return true
		}, err: "over the limit"},
		{name: "an address without end", fault: func(s *server, _ int, w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, s.URL+"/x", http.StatusFound)
			return true
		}, err: "more than ten redirections"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, d := newServer(t, file), newDownloader(t)
			s.fault = tt.fault
			p := s.part("disk.raw")
			partial := filepath.Join(d.Dir, "."+p.Name+"."+p.SHA256[:12]+".part")
			if tt.there != nil {
				if err := os.WriteFile(partial, tt.there, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			f, err := d.Get(t.Context(), p)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				if _, err := os.Stat(filepath.Join(d.Dir, p.Name)); err == nil {
					t.Error("the file is there")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(f.Path)
			if err != nil || !bytes.Equal(got, file) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if tt.most > 0 && s.sent > tt.most {
				t.Errorf("%d bytes were sent; want at most %d (asked for %q)", s.sent, tt.most, s.asked)
			}
			if _, err := os.Stat(partial); err == nil {
				t.Error("the partial file is still there")
			}
			// What is there and good is not asked for again.
			asked := len(s.asked)
			if again, err := d.Get(t.Context(), p); err != nil || again.Fetched != 0 || len(s.asked) != asked {
				t.Errorf("once more: %+v, %v, %d requests", again, err, len(s.asked)-asked)
			}
		})
	}
}

func TestDecompress(t *testing.T) {
	plain := content(300_000)
	pack := map[string]func(io.Writer) (io.WriteCloser, error){
		"gz":  func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil },
		"xz":  func(w io.Writer) (io.WriteCloser, error) { return xz.NewWriter(w) },
		"zst": func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) },
	}
	for c, packer := range pack {
		t.Run(c, func(t *testing.T) {
			var b bytes.Buffer
			w, err := packer(&b)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(plain); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			s, d := newServer(t, b.Bytes()), newDownloader(t)
			d.Decompress = true
			p := s.part("disk.raw." + c)
			p.UncompressedSHA256 = sum([]byte("another"))
			var wrong *ChecksumError
			if _, err := d.Get(t.Context(), p); !errors.As(err, &wrong) {
				t.Errorf("got %v, want an error about the checksum", err)
			}
			p.UncompressedSHA256 = sum(plain)
			f, err := d.Get(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if f.Fetched != 0 {
				t.Errorf("%d bytes were fetched again", f.Fetched)
			}
			got, err := os.ReadFile(filepath.Join(d.Dir, "disk.raw"))
			if err != nil || !bytes.Equal(got, plain) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			left, err := os.ReadDir(d.Dir)
			if err != nil || len(left) != 1 {
				t.Errorf("%v are there, %v", left, err)
			}
		})
	}
}

// Two processes do not write one file.
// What another user could change after it was verified, or what never ends, is not
// taken for a file that was fetched before.
func TestForeign(t *testing.T) {
	file := content(1 << 10)
	tests := []struct {
		name string
		// make makes what is in the way.
		make func(partial, final string) error
		err  string
	}{
		{"another user's", func(partial, _ string) error {
			return errors.Join(os.WriteFile(partial, file[:100], 0o666), os.Chown(partial, 1234, 1234))
		}, "another user's"},
		{"with a second name", func(partial, _ string) error {
			return errors.Join(os.WriteFile(partial, file[:100], 0o644), os.Link(partial, partial+".too"))
		}, "another name"},
		{"a pipe", func(partial, _ string) error { return unix.Mkfifo(partial, 0o644) }, "not a regular file"},
		{"a link", func(partial, final string) error { return os.Symlink(final+".elsewhere", partial) }, "too many levels of symbolic links"},
		{"a pipe under its name", func(_, final string) error { return unix.Mkfifo(final, 0o644) }, "not a regular file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, d := newServer(t, file), newDownloader(t)
			p := s.part("disk.raw")
			final := filepath.Join(d.Dir, "disk.raw")
			if err := tt.make(filepath.Join(d.Dir, ".disk.raw."+p.SHA256[:12]+".part"), final); err != nil {
				t.Fatal(err)
			}
			_, err := d.Get(t.Context(), p)
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
			if info, err := os.Lstat(final); err == nil && info.Mode().IsRegular() {
				t.Error("the file has its name")
			}
		})
	}
}

func TestBusy(t *testing.T) {
	s, d := newServer(t, content(1<<20)), newDownloader(t)
	waiting, goOn := make(chan struct{}), make(chan struct{})
	s.fault = func(*server, int, http.ResponseWriter, *http.Request) bool {
		close(waiting)
		<-goOn
		return false
	}
	done := make(chan error)
	go func() {
		_, err := d.Get(t.Context(), s.part("disk"))
		done <- err
	}()
	<-waiting
	if _, err := d.Get(t.Context(), s.part("disk")); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, want %v", err, ErrBusy)
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// No secret of an address is in an error.
func TestNoSecrets(t *testing.T) {
	s, d := newServer(t, content(10)), newDownloader(t)
	s.Close()
	p := s.part("disk")
	p.Location += "?X-Amz-Signature=secret"
	if _, err := d.Get(t.Context(), p); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	// An address that a server sends its clients to, and that is none.
	moved := newServer(t, content(10))
	moved.fault = func(_ *server, _ int, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Location", "https://kim:secret@host:port/x?signature=secret")
		w.WriteHeader(http.StatusFound)
		return true
	}
	_, err := d.Get(t.Context(), moved.part("disk"))
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "failed to parse Location header") {
		t.Errorf("got %v", err)
	}
}

func FuzzContentRange(f *testing.F) {
	f.Add("bytes 5-9/10")
	f.Add("bytes 5-9/*")
	f.Fuzz(func(t *testing.T, s string) {
		if from, total, ok := contentRange(s); ok && (from < 0 || total < 0 || total > 0 && total <= from) {
			t.Errorf("%q is from %d of %d", s, from, total)
		}
	})
}
