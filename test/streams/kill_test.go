// Package streams kills oneboot while it fetches a disk image, and starts it again.
package streams

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// A slowServer serves one file slowly and remembers what it sent.
type slowServer struct {
	mu   sync.Mutex
	file []byte
	// from and sent are the first byte and the number of bytes of each answer.
	from, sent []int64
}

func (s *slowServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from := int64(0)
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil {
		if from >= int64(len(s.file)) {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(s.file)-1, len(s.file)))
		w.Header().Set("Content-Length", fmt.Sprint(int64(len(s.file))-from))
		w.WriteHeader(http.StatusPartialContent)
	}
	s.mu.Lock()
	i := len(s.from)
	s.from, s.sent = append(s.from, from), append(s.sent, 0)
	s.mu.Unlock()
	for at := from; at < int64(len(s.file)); {
		end := min(at+32<<10, int64(len(s.file)))
		n, err := w.Write(s.file[at:end])
		s.mu.Lock()
		s.sent[i] += int64(n)
		s.mu.Unlock()
		if err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		at = end
		time.Sleep(time.Millisecond)
	}
}

func TestKill(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "oneboot")
	if out, err := exec.Command("go", "build", "-tags", "containers_image_openpgp,exclude_graphdriver_btrfs", "-o", program, "../../cmd/oneboot").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := &slowServer{file: make([]byte, 12<<20)}
	random := rand.New(rand.NewPCG(7, 9))
	for i := range s.file {
		s.file[i] = byte(random.Uint32())
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	sum := sha256.Sum256(s.file)
	stream := filepath.Join(dir, "stream.json")
	text := fmt.Sprintf(`{"stream":"x","metadata":{"last-modified":"2026-01-01T00:00:00Z"},"architectures":{"x86_64":{"artifacts":{"metal":{"release":"1",
		"formats":{"raw":{"disk":{"location":"%s/disk.raw","sha256":%q}}}}}}}}`, server.URL, hex.EncodeToString(sum[:]))
	if err := os.WriteFile(stream, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, "to")
	kills := 0
	// stored is what is on the disk after each kill.
	var stored []int64
	for {
		cmd := exec.Command(program, "stream", "download", "--from", stream, "-p", "metal", "--dir", to)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("after %d kills: %v", kills, err)
			}
		case <-time.After(time.Duration(20+random.IntN(150)) * time.Millisecond):
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-done
			stored = append(stored, partialSize(t, to))
			if kills++; kills > 500 {
				t.Fatal("it never ends")
			}
			continue
		}
		break
	}
	got, err := os.ReadFile(filepath.Join(to, "disk.raw"))
	if err != nil || sha256.Sum256(got) != sum {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if kills < 5 {
		t.Errorf("only %d kills: the server is not slow", kills)
	}
	// Nothing that was stored is asked for again: what is fetched twice was at most
	// in the program's hand, which is one block of it, or on its way.
	for i, from := range s.from {
		if i > 0 && !slices.Contains(stored, from) {
			t.Errorf("answer %d is from %d on, which is not what was there after a kill", i, from)
		}
		if i > 0 && from < s.from[i-1] {
			t.Errorf("answer %d is from %d on, the one before from %d", i, from, s.from[i-1])
		}
	}
	sent := int64(0)
	for _, n := range s.sent {
		sent += n
	}
	t.Logf("%d kills, %d answers, %d of %d bytes sent twice", kills, len(s.from), sent-int64(len(s.file)), len(s.file))
}

// partialSize is what is there of the file, 0 where nothing is.
func partialSize(t *testing.T, dir string) int64 {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "disk.raw")); err == nil {
		return -1 // it was killed after all was done
	}
	names, err := filepath.Glob(filepath.Join(dir, ".disk.raw.*.part"))
	if err != nil || len(names) > 1 {
		t.Fatalf("%v, %v", names, err)
	}
	if len(names) == 0 {
		return 0
	}
	fi, err := os.Stat(names[0])
	if err != nil {
		t.Fatal(err)
	}
	return fi.Size()
}
