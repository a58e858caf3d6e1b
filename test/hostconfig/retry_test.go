package hostconfig

import (
	"fmt"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/oneboot/oneboot/daemon"
	"github.com/oneboot/oneboot/test/registry"
)

// TestMirrorComesBack: on a first boot a mirror that fails for a while is
// asked again, though the source behind it is blocked for good; one that has
// answered is not.
func TestMirrorComesBack(t *testing.T) {
	l := newLab(t)
	mirror, source := l.start(t, registry.Options{}, "ocp/os"), l.start(t, registry.Options{}, "ocp/os")
	retry := func(o *daemon.Options) { o.RetryTransport, o.Timeout = true, 15*time.Second }
	status := func(code int) func(http.ResponseWriter, *http.Request, http.Handler) {
		return registry.Status(code, nil)
	}
	noBlob := func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"errors":[{"code":"BLOB_UNKNOWN","message":"made by a test"}]}`)
	}
	manifest := regexp.MustCompile("/manifests/")
	blocked := fails("registry-blocked", mirror.Host)
	tests := []struct {
		name    string
		fault   registry.Fault
		retry   bool
		blocked bool
		want    want
	}{
		{"dropped", registry.Fault{Do: registry.Drop, Times: 2}, true, true, skip()},
		{"503 at first", registry.Fault{Do: status(503), Times: 2}, true, true, skip()},
		{"500 for the manifest", registry.Fault{Do: status(500), Path: manifest, Times: 2}, true, true, skip()},
		{"503, no second try", registry.Fault{Do: status(503), Times: 1}, false, true, blocked},
		{"404", registry.Fault{Do: status(404), Path: manifest, Times: 1}, true, true, blocked},
		{"401", registry.Fault{Do: status(401), Times: 2}, true, true, blocked},
		{"503, source not blocked", registry.Fault{Do: status(503)}, false, false, skip()},
		{"404, source not blocked", registry.Fault{Do: status(404), Path: manifest}, false, false, skip()},
		{"layers missing, source not blocked", registry.Fault{Do: noBlob, Path: regexp.MustCompile("/blobs/")}, false, false, skip()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conf := fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\nblocked = %v\n[[registry.mirror]]\nlocation = %q\ninsecure = true\n", source.Host, tt.blocked, mirror.Host)
			l.host(t, source.Reference("ocp/os", l.image.Digest), files{confFile: conf})
			mirror.ClearFaults()
			mirror.AddFault(&tt.fault)
			source.ResetRequests()
			start := time.Now()
			if tt.retry {
				tt.want.check(t, l.analyze(t, retry))
			} else {
				tt.want.check(t, l.analyze(t))
			}
			if took := time.Since(start); tt.want.failed && took > 5*time.Second {
				t.Errorf("took %v", took)
			}
			if tt.blocked && asked(source) > 0 {
				t.Errorf("the blocked source was asked: %v", source.Requests())
			}
		})
	}
}
