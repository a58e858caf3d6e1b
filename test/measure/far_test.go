package measure

import (
	"io"
	"net"
	"testing"
	"time"
)

func TestRelay(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		c, err := echo.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(c, c)
		c.Close()
	}()
	r := Far(t, echo.Addr().String())
	c, err := net.Dial("tcp", r.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i, least := range []time.Duration{2 * RoundTrip, RoundTrip} {
		began := time.Now()
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < least || took > least+RoundTrip {
			t.Errorf("answer %d took %s, want about %s", i, took, least)
		}
	}
	if n := r.Received.Load(); n != 10 {
		t.Errorf("%d bytes were counted, want 10", n)
	}
}
