//go:build kube

package kube

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// A relay carries connections to the API server, and can lose them.
type relay struct {
	address, to string
	mu          sync.Mutex
	cut         bool
	open        map[net.Conn]bool
}

func startRelay(t testing.TB, server string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{address: "https://" + l.Addr().String(), to: strings.TrimRight(strings.TrimPrefix(server, "https://"), "/"), open: map[net.Conn]bool{}}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go r.carry(conn)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		r.lose(true)
	})
	return r
}

func (r *relay) carry(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer server.Close()
	if !r.keep(client, server) {
		return
	}
	go func() {
		_, _ = io.Copy(server, client)
		server.Close()
	}()
	_, _ = io.Copy(client, server)
}

func (r *relay) keep(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		r.open[c] = true
	}
	return !r.cut
}

// lose ends all connections; cut says that no new one is carried either.
func (r *relay) lose(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
	for c := range r.open {
		c.Close()
	}
	clear(r.open)
}

// mend carries connections again.
func (r *relay) mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = false
}
