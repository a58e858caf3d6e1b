package osimage

import (
	"context"
	"io"
	"net/http/httptrace"
	"sync/atomic"
)

// A Transfer says what an image has cost so far.
type Transfer struct {
	// Requests counts the HTTP requests that were sent: pings, tokens,
	// redirects, mirrors and retries too.
	Requests int
	// Bytes counts the body bytes of manifests, configs and layers that were
	// read; error bodies and tokens are not seen.
	Bytes int64
}

// Plus adds what another image has cost.
func (t Transfer) Plus(o Transfer) Transfer {
	return Transfer{Requests: t.Requests + o.Requests, Bytes: t.Bytes + o.Bytes}
}

type meter struct {
	requests atomic.Int64
	bytes    atomic.Int64
	// answered says whether the last request sent has had an answer: if time
	// runs out then, the library was waiting out a 429.
	answered atomic.Bool
}

func (m *meter) transfer() Transfer {
	return Transfer{Requests: int(m.requests.Load()), Bytes: m.bytes.Load()}
}

// watch returns a context that counts the requests made with it, and shows
// their connections to gate.
func (m *meter) watch(ctx context.Context, gate *floodGate) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { gate.add(info.Conn) },
		WroteRequest: func(httptrace.WroteRequestInfo) {
			m.requests.Add(1)
			m.answered.Store(false)
		},
		GotFirstResponseByte: func() { m.answered.Store(true) },
	})
}

// countingReader adds what is read through it to a meter.
type countingReader struct {
	r io.Reader
	m *meter
}

func (c countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.m.bytes.Add(int64(n))
	return n, err
}
