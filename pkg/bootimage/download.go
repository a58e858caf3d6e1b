package bootimage

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxFile bounds a file, compressed or not: the largest disk images have some
	// 16 GiB.
	maxFile = 256 << 30
	// maxTries are the tries, one after the other, that together do not bring
	// leastProgress bytes.
	maxTries      = 6
	leastProgress = 64 << 10

	firstPause = 500 * time.Millisecond
	maxPause   = 30 * time.Second
	// copyBlock is how much is read at a time.
	copyBlock = 256 << 10
	// stallTime is how long a server may send nothing.
	stallTime = time.Minute
	// maxWindow bounds the memory for unpacking; xz -9 needs 64 MiB.
	maxWindow = 128 << 20
)

// A Downloader fetches files into a folder. A file appears under its name only once
// its checksum is right; until then it is beside it, hidden, and a later call goes
// on where this one has stopped.
type Downloader struct {
	Client *http.Client
	// Dir is made where it is not there.
	Dir string
	// Decompress unpacks what is compressed, and checks that too.
	Decompress bool
	// Progress, where not nil, is told the bytes that are there and those of the
	// whole file, 0 where that is not known.
	Progress func(name string, done, total int64)
	// pause is the first wait between two tries; firstPause where zero.
	pause time.Duration
}

// A File is a file that was fetched, or was there.
type File struct {
	Part
	// Path is where it is.
	Path string
	// Fetched is what was asked of the server, in bytes of bodies; 0 where the
	// file was there and good.
	Fetched int64
}

// A ChecksumError says that what a server has is not what the stream says.
type ChecksumError struct {
	Name, Want, Got string
}

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("%s: its SHA-256 is %s, the stream says %s: the server has another file", e.Name, e.Got, e.Want)
}

// ErrBusy is wrapped where another process fetches the same file.
var ErrBusy = errors.New("another process is fetching it")

// Get fetches one file. The error names the file and the host, never the query of
// an address.
func (d *Downloader) Get(ctx context.Context, p Part) (File, error) {
	f := File{Part: p}
	name, sum := d.nameOf(p), p.SHA256
	if name != p.Name {
		sum = p.UncompressedSHA256
	}
	f.Path = filepath.Join(d.Dir, name)
	if err := os.MkdirAll(d.Dir, 0o755); err != nil {
		return f, err
	}
	if sum != "" {
		switch got, err := sumOf(ctx, f.Path); {
		case err == nil && got == sum:
			return f, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return f, err
		}
	}
	t, err := d.open(ctx, p)
	if err != nil {
		return f, err
	}
	defer t.file.Close()
	err = t.fetch(ctx)
	f.Fetched = t.fetched
	if err != nil {
		return f, fmt.Errorf("%s: %w", p.Name, err)
	}
	partial := t.file.Name()
	if f.Path == filepath.Join(d.Dir, p.Name) {
		return f, t.settle(partial, f.Path)
	}
	unpacked := filepath.Join(d.Dir, "."+name+"."+p.SHA256[:12]+".unpacked")
	if err := t.unpack(ctx, unpacked); err != nil {
		return f, errors.Join(fmt.Errorf("%s: unpacking: %w", p.Name, err), ignoreMissing(os.Remove(unpacked)))
	}
	if err := os.Rename(unpacked, f.Path); err != nil {
		return f, err
	}
	return f, errors.Join(os.Remove(partial), syncDir(d.Dir))
}

// GetAll fetches files that have different names.
func (d *Downloader) GetAll(ctx context.Context, parts []Part) ([]File, error) {
	sums := map[string]string{}
	for _, p := range parts {
		name := d.nameOf(p)
		if sum, taken := sums[name]; taken && sum != p.SHA256 {
			return nil, fmt.Errorf("%s: two files would have this name", name)
		}
		sums[name] = p.SHA256
	}
	var files []File
	for _, p := range parts {
		f, err := d.Get(ctx, p)
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	return files, nil
}

// nameOf is the name that a part gets.
func (d *Downloader) nameOf(p Part) string {
	if c := p.Compression(); d.Decompress && c != "" {
		return strings.TrimSuffix(p.Name, "."+c)
	}
	return p.Name
}

// A transfer is a file that is being fetched.
type transfer struct {
	d    *Downloader
	part Part
	file *os.File
	// hash is over the size bytes that the file has.
	hash hash.Hash
	size int64
	// total is the whole file's size, 0 where no server has said it.
	total int64
	// resumed says that some bytes are not of this call.
	resumed bool
	fetched int64
}

// open opens the partial file, which only one process may have, and reads what is
// there.
func (d *Downloader) open(ctx context.Context, p Part) (*transfer, error) {
	name := filepath.Join(d.Dir, "."+p.Name+"."+p.SHA256[:12]+".part")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, err
	}
	t := &transfer{d: d, part: p, file: f, hash: sha256.New()}
	if err := lock(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	if err := ownFile(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w: remove it", name, err)
	}
	t.size, err = io.Copy(t.hash, contextReader{ctx, f})
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: reading what was fetched before: %w", p.Name, err)
	}
	t.resumed = t.size > 0
	return t, nil
}

// fetch goes on until the file is whole and right.
func (t *transfer) fetch(ctx context.Context) error {
	pause, tries, had := t.d.pause, 0, t.size
	if pause == 0 {
		pause = firstPause
	}
	for {
		err := t.try(ctx)
		if err == nil {
			if err = t.check(); err == nil {
				return nil
			}
			// What was there before may be of another file, or damaged.
			if !t.resumed {
				return errors.Join(err, t.reset(), ignoreMissing(os.Remove(t.file.Name())))
			}
			t.resumed, had = false, 0
			if err := t.reset(); err != nil {
				return err
			}
			continue
		}
		var passing *passingError
		if ctx.Err() != nil || !errors.As(err, &passing) {
			return err
		}
		// What was there before and had to be asked for again is no progress, and a
		// few bytes a try are none either.
		if tries++; t.size >= had+leastProgress {
			tries, had = 1, t.size
		}
		if tries >= maxTries {
			return fmt.Errorf("%w, after %d tries; the next call goes on from %d bytes", err, tries, t.size)
		}
		wait := max(min(pause<<(tries-1), maxPause), min(passing.after, maxPause))
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// A passingError may be gone at the next try.
type passingError struct {
	err error
	// after is what the server asks to wait.
	after time.Duration
}

func (e *passingError) Error() string { return e.err.Error() }
func (e *passingError) Unwrap() error { return e.err }

// reset begins anew.
func (t *transfer) reset() error {
	t.hash.Reset()
	t.size, t.total = 0, 0
	if _, err := t.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return t.file.Truncate(0)
}

// try asks once for what is missing.
func (t *transfer) try(ctx context.Context) error {
	if t.total > 0 && t.size >= t.total {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.part.Location, http.NoBody)
	if err != nil {
		return errors.New("its address cannot be used")
	}
	req.Header.Set("User-Agent", "oneboot")
	if t.size > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", t.size))
	}
	stalled := time.AfterFunc(stallTime, func() { cancel(fmt.Errorf("nothing came for %s", stallTime)) })
	defer stalled.Stop()
	resp, err := t.d.Client.Do(req)
	if err != nil {
		return &passingError{err: hostError(ctx, req, err)}
	}
	defer resp.Body.Close()
	if done, err := t.answer(resp); err != nil || done {
		return err
	}
	return t.read(ctx, req, resp.Body, stalled)
}

// answer looks at an answer's head; done says that there is nothing to read.
func (t *transfer) answer(resp *http.Response) (done bool, err error) {
	switch resp.StatusCode {
	case http.StatusOK:
		// It knows no ranges, or there was nothing to go on from.
		if err := t.reset(); err != nil {
			return false, err
		}
		t.resumed = false
		t.total = max(resp.ContentLength, 0)
	case http.StatusPartialContent:
		from, total, ok := contentRange(resp.Header.Get("Content-Range"))
		if !ok || from != t.size {
			// Another part than was asked for: it is asked for all of it.
			return false, errors.Join(t.reset(), &passingError{err: fmt.Errorf("%s answers with another range than was asked for", resp.Request.URL.Host)})
		}
		t.total = total
	case http.StatusRequestedRangeNotSatisfiable:
		// There is nothing behind what is there: the checksum tells.
		if t.size > 0 {
			return true, nil
		}
		return false, statusError(resp)
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return false, &passingError{err: statusError(resp), after: time.Duration(max(seconds, 0)) * time.Second}
	default:
		return false, statusError(resp)
	}
	if t.total > maxFile {
		return false, fmt.Errorf("it has %d bytes, over the limit of %d", t.total, int64(maxFile))
	}
	return false, nil
}

func statusError(resp *http.Response) error {
	return fmt.Errorf("%s answers with %s", resp.Request.URL.Host, resp.Status)
}

// hostError is a transport's error without the address, which may hold secrets.
func hostError(ctx context.Context, req *http.Request, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fmt.Errorf("%s: %w", req.URL.Host, withoutAddress(err))
}

// contentRange reads "bytes FROM-TO/TOTAL" (RFC 9110, section 14.4); a total of
// "*" is 0.
func contentRange(s string) (from, total int64, ok bool) {
	s, ok = strings.CutPrefix(s, "bytes ")
	if !ok {
		return 0, 0, false
	}
	span, all, ok := strings.Cut(s, "/")
	first, _, found := strings.Cut(span, "-")
	from, err := strconv.ParseInt(first, 10, 64)
	if !ok || !found || err != nil || from < 0 {
		return 0, 0, false
	}
	if all == "*" {
		return from, 0, true
	}
	total, err = strconv.ParseInt(all, 10, 64)
	return from, total, err == nil && total > from
}

// read appends a body to the file.
func (t *transfer) read(ctx context.Context, req *http.Request, body io.Reader, stalled *time.Timer) error {
	b := make([]byte, copyBlock)
	for {
		n, err := body.Read(b)
		t.fetched += int64(n)
		if n > 0 {
			stalled.Reset(stallTime)
			if t.total > 0 && t.size+int64(n) > t.total {
				return errors.Join(t.reset(), &passingError{err: fmt.Errorf("%s sends more than it said", req.URL.Host)})
			}
			if t.size+int64(n) > maxFile {
				return fmt.Errorf("it has more than %d bytes", int64(maxFile))
			}
			if _, err := t.file.Write(b[:n]); err != nil {
				return fmt.Errorf("writing: %w", err)
			}
			t.hash.Write(b[:n])
			t.size += int64(n)
			if t.d.Progress != nil {
				t.d.Progress(t.part.Name, t.size, t.total)
			}
		}
		switch {
		case errors.Is(err, io.EOF) && t.size < t.total:
			return &passingError{err: fmt.Errorf("%s: the connection ended at %d of %d bytes", req.URL.Host, t.size, t.total)}
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return &passingError{err: hostError(ctx, req, err)}
		}
	}
}
