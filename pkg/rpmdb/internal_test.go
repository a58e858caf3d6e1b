package rpmdb

import "testing"

func FuzzParseHeader(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x03\xe8\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00\x01a\x00"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseHeader(b)
		if (err == nil) != (p.Name != "") {
			t.Errorf("got %+v, %v", p, err)
		}
	})
}
