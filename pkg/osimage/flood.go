package osimage

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errFlood says that a registry sent far more than was asked for.
var errFlood = errors.New("the registry sends more than was asked for")

const (
	// floodSlack is what answers may have beyond their expected size: error
	// documents, tokens, what the kernel and the library read ahead.
	floodSlack = 8 << 20
	floodPoll  = 2 * time.Millisecond
)

// A floodGate ends a step whose connections have received more than a limit.
// The library bounds the bodies of manifests, tokens and signatures, but reads
// that of an error answer whole, whatever its size, and offers no place to put
// a bound. So the kernel is asked how much came in.
type floodGate struct {
	mu    sync.Mutex
	conns map[net.Conn]*watched
}

// watched is a connection, what it had received before, and when last asked.
type watched struct {
	raw          syscall.RawConn
	before, seen uint64
}

// add watches a connection that is about to be used.
func (g *floodGate) add(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	s, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conns == nil {
		g.conns = map[net.Conn]*watched{}
	}
	if _, ok := g.conns[conn]; !ok {
		g.conns[conn] = &watched{raw: raw, before: received(raw)}
	}
}

// total is what came in since the connections were added. Of a closed one that
// is known which it had received when it was last asked.
func (g *floodGate) total() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	var n uint64
	for _, w := range g.conns {
		w.seen = max(w.seen, received(w.raw))
		if w.seen > w.before {
			n += w.seen - w.before
		}
	}
	return n
}

// watch cancels the context it returns once more than limit bytes came in.
func (g *floodGate) watch(ctx context.Context, limit int64) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(floodPoll)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if g.total() > uint64(limit)+floodSlack { //nolint:gosec // limits are not negative
					cancel(errFlood)
					return
				}
			}
		}
	}()
	return ctx, func() { cancel(nil); <-stopped }
}

func received(raw syscall.RawConn) uint64 {
	var n uint64
	err := raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Bytes_received
		}
	})
	if err != nil {
		return 0 // closed
	}
	return n
}
