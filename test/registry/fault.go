package registry

import (
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// A Fault is a way in which the registry fails for some requests. Requests that
// match several meet the one that was added first.
type Fault struct {
	// Method is the request's; any where empty.
	Method string
	// Path is an expression that matches a part of the request's path, such
	// as "/manifests/"; any path where nil.
	Path *regexp.Regexp
	// Skip is how many matching requests are answered well at first.
	Skip int
	// Times is how often the fault happens; always where zero.
	Times int
	// Do answers in the registry's place. Next is the registry.
	Do func(w http.ResponseWriter, r *http.Request, next http.Handler)

	seen int
}

// AddFault makes the registry fail. The fault must not be used again.
func (r *Registry) AddFault(f *Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, f)
}

// ClearFaults ends all faults.
func (r *Registry) ClearFaults() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = nil
}

// faultFor finds the fault that a request meets, and counts it.
func (r *Registry) faultFor(req *http.Request) *Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.faults {
		if f.Method != "" && f.Method != req.Method || f.Path != nil && !f.Path.MatchString(req.URL.Path) {
			continue
		}
		f.seen++
		if f.seen > f.Skip && (f.Times == 0 || f.seen <= f.Skip+f.Times) {
			return f
		}
	}
	return nil
}

// Drop closes the connection without an answer.
func Drop(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		// With no time to linger, the client sees a reset.
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// Hang never answers: it waits until the client hangs up or the registry is
// closed.
func (r *Registry) Hang(_ http.ResponseWriter, req *http.Request, _ http.Handler) {
	select {
	case <-req.Context().Done():
	case <-r.closing:
	}
}

// Delay answers well after some time.
func (r *Registry) Delay(d time.Duration) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		select {
		case <-req.Context().Done():
		case <-r.closing:
		case <-time.After(d):
			next.ServeHTTP(w, req)
		}
	}
}

// Status answers with a status and an error document. The header, which may be
// nil, is added: Retry-After, WWW-Authenticate, Location.
func Status(status int, header map[string]string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		for k, v := range header {
			w.Header().Set(k, v)
		}
		writeError(w, status, errorCode(status))
	}
}

func errorCode(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "UNAUTHORIZED"
	case http.StatusForbidden:
		return "DENIED"
	case http.StatusNotFound:
		return "MANIFEST_UNKNOWN"
	case http.StatusTooManyRequests:
		return "TOOMANYREQUESTS"
	}
	return "UNKNOWN"
}

// Answer replaces the body and keeps the headers of the true answer, all but
// the length: wrong bytes under a right name. It does not honour ranges.
func Answer(body []byte) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		req.Header.Del("Range")
		next.ServeHTTP(&bodyReplacer{ResponseWriter: w, length: int64(len(body))}, req)
		if req.Method != http.MethodHead {
			_, _ = w.Write(body) // the client may be gone
		}
	}
}

// Endless is [Answer] with size bytes that nobody has to keep: spaces, so that
// JSON stays well formed for as long as one reads.
func Endless(size int64) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		req.Header.Del("Range")
		next.ServeHTTP(&bodyReplacer{ResponseWriter: w, length: size}, req)
		if req.Method != http.MethodHead {
			_, _ = io.CopyN(w, spaces{}, size)
		}
	}
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// Truncate promises the whole body and closes the connection after n bytes.
func Truncate(n int64) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		cut := &cutter{ResponseWriter: w, left: n}
		next.ServeHTTP(cut, req)
		if cut.left <= 0 {
			panic(http.ErrAbortHandler) // the documented way to drop a connection
		}
	}
}

// A bodyReplacer passes on status and headers and drops the body.
type bodyReplacer struct {
	http.ResponseWriter
	length int64
	wrote  bool
}

func (b *bodyReplacer) WriteHeader(status int) {
	b.wrote = true
	b.Header().Set("Content-Length", strconv.FormatInt(b.length, 10))
	b.ResponseWriter.WriteHeader(status)
}

func (b *bodyReplacer) Write(p []byte) (int, error) {
	if !b.wrote {
		b.WriteHeader(http.StatusOK)
	}
	return len(p), nil
}

// A cutter ends the body early.
type cutter struct {
	http.ResponseWriter
	left int64
}

func (c *cutter) Write(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, io.ErrShortWrite
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.ResponseWriter.Write(p)
	c.left -= int64(n)
	if err == nil && c.left <= 0 {
		err = http.NewResponseController(c.ResponseWriter).Flush()
	}
	return n, err
}
