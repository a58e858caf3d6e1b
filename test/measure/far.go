// Package measure tells what programs cost beside a registry that is far away.
package measure

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// RoundTrip is how long an answer of a far registry takes at least.
	RoundTrip = 100 * time.Millisecond
	// flightChunk and flightChunks bound what is under way in one direction: 2 MiB,
	// which is 40 MB a second for each connection.
	flightChunk  = 32 << 10
	flightChunks = 64
)

// A Relay stands before a registry and makes it as slow as a far one. Kernels that
// run tests may have no netem.
type Relay struct {
	// Addr is where it listens, as HOST:PORT.
	Addr string
	// Received are the bytes that clients were sent, with those of TLS.
	Received atomic.Int64
	to       string
	listener net.Listener
	open     sync.WaitGroup
	closing  chan struct{}
}

// Far starts a relay to a registry.
func Far(t testing.TB, to string) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{Addr: l.Addr().String(), to: to, listener: l, closing: make(chan struct{})}
	r.open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.open.Go(func() { r.serve(c) })
		}
	})
	t.Cleanup(func() {
		close(r.closing)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		r.open.Wait()
	})
	return r
}

// serve carries one connection. Its first bytes wait a round trip longer, since the
// far end would have had to accept it.
func (r *Relay) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer server.Close()
	ended := make(chan struct{})
	var ways sync.WaitGroup
	ways.Go(func() { carry(server, client, RoundTrip, nil) })
	ways.Go(func() { carry(client, server, 0, &r.Received) })
	go func() { ways.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-r.closing:
		client.Close()
		server.Close()
		<-ended
	}
}

// A parcel is under way until it is due.
type parcel struct {
	bytes []byte
	due   time.Time
}

// carry copies with half a round trip of delay, the first bytes with more. When one
// side ends so does the other.
func carry(to, from net.Conn, first time.Duration, count *atomic.Int64) {
	flight := make(chan parcel, flightChunks)
	go func() {
		defer close(flight)
		for extra := first; ; extra = 0 {
			b := make([]byte, flightChunk)
			n, err := from.Read(b)
			if n > 0 {
				flight <- parcel{b[:n], time.Now().Add(extra + RoundTrip/2)}
			}
			if err != nil {
				return
			}
			if extra > 0 {
				// What follows must not overtake it.
				time.Sleep(extra)
			}
		}
	}()
	var failed error
	for p := range flight {
		if failed != nil {
			continue // the reader must not wait for room
		}
		time.Sleep(time.Until(p.due))
		if count != nil {
			// Before, so that who has received them finds them counted.
			count.Add(int64(len(p.bytes)))
		}
		if _, failed = to.Write(p.bytes); failed != nil {
			from.Close()
		}
	}
	to.Close()
}
