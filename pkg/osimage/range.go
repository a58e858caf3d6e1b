package osimage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"go.podman.io/image/v5/types"
)

// A part is a stretch of a blob.
type part struct {
	io.Reader
	// ranged says that the server sent this stretch and nothing else.
	ranged bool
	close  func()
}

// errNoRange says that a source, or the registry, sends no parts of blobs.
var errNoRange = errors.New("no parts of blobs can be had")

// blobPart asks a registry for length bytes of a blob, from offset on, by HTTP
// range, with the credentials, mirrors and certificates that the library uses.
//
// The library's sources have had the method for years (podman's partial pulls
// of zstd:chunked layers are built on it), but its parameter's type is in one
// of the library's internal packages, so Go code elsewhere can call it only by
// reflection. The shape is checked first; if it ever changes, this returns
// errNoRange and the caller reads the blob from its start and stops early.
func blobPart(ctx context.Context, src types.ImageSource, info types.BlobInfo, offset, length uint64) (*part, error) {
	if s, ok := src.(interface{ SupportsGetBlobAt() bool }); !ok || !s.SupportsGetBlobAt() {
		return nil, errNoRange
	}
	method := reflect.ValueOf(src).MethodByName("GetBlobAt")
	if !method.IsValid() {
		return nil, errNoRange
	}
	t := method.Type()
	if t.NumIn() != 3 || t.NumOut() != 3 || t.IsVariadic() ||
		t.In(0) != reflect.TypeFor[context.Context]() || t.In(1) != reflect.TypeFor[types.BlobInfo]() ||
		t.In(2).Kind() != reflect.Slice || t.In(2).Elem().Kind() != reflect.Struct || t.In(2).Elem().NumField() != 2 ||
		t.Out(0) != reflect.TypeFor[chan io.ReadCloser]() || t.Out(1) != reflect.TypeFor[chan error]() || t.Out(2) != reflect.TypeFor[error]() {
		return nil, errNoRange
	}
	chunk := reflect.New(t.In(2).Elem()).Elem()
	for name, v := range map[string]uint64{"Offset": offset, "Length": length} {
		f := chunk.FieldByName(name)
		if !f.IsValid() || f.Kind() != reflect.Uint64 {
			return nil, errNoRange
		}
		f.SetUint(v)
	}
	ctx, cancel := context.WithCancel(ctx)
	out := method.Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(info), reflect.Append(reflect.MakeSlice(t.In(2), 0, 1), chunk)})
	if err, ok := out[2].Interface().(error); ok {
		cancel()
		// The library's word, of an internal type too, for a 400.
		if strings.HasSuffix(fmt.Sprintf("%T", err), ".BadPartialRequestError") {
			return nil, errNoRange
		}
		return nil, err
	}
	streams, _ := out[0].Interface().(chan io.ReadCloser)
	errs, _ := out[1].Interface().(chan error)
	r, err := receive(ctx, streams, errs)
	if err != nil {
		cancel()
		return nil, err
	}
	return newPart(r, length, cancel), nil
}

// receive waits for the one stream that was asked for.
func receive(ctx context.Context, streams chan io.ReadCloser, errs chan error) (io.ReadCloser, error) {
	for streams != nil || errs != nil {
		select {
		case r, ok := <-streams:
			if ok {
				return r, nil
			}
			streams = nil
		case err, ok := <-errs:
			if ok && err != nil {
				return nil, err
			}
			errs = nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, errors.New("the registry sent no data")
}

func newPart(r io.ReadCloser, length uint64, cancel context.CancelFunc) *part {
	p := &part{Reader: io.LimitReader(r, int64(length))} //nolint:gosec // lengths are a few MiB
	// A plain HTTP body is an answer with this stretch alone. Anything else is
	// a stream that the library cuts out of a whole blob (a server without
	// ranges) or of a multipart answer, with a goroutine of its own behind it.
	if strings.HasPrefix(fmt.Sprintf("%T", r), "*http.") {
		p.ranged = true
		p.close = func() { r.Close(); cancel() }
		return p
	}
	p.close = func() {
		cancel()
		// That goroutine reads ahead and must have seen the cancelled request
		// before its buffers are closed: closed under it they make it panic.
		time.AfterFunc(time.Second, func() { r.Close() })
	}
	return p
}
