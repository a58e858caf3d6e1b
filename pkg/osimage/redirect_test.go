package osimage

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/registry"
)

// Many registries want a token, and send their clients elsewhere for blobs.
// Each such request is counted, ranges work, and addresses that carry a
// signature are not shown.
func TestTokensAndRedirects(t *testing.T) {
	commit := commitBytes(7)
	tarball := nativeTar(t, commit, file("x", noise(1<<20)))
	b := spec{how: gz, tars: [][]byte{tarball}, labels: labelsFor(tarball, commit)}.build(t)
	r := startRegistry(t, registry.Options{})
	ref := push(t, r, b)
	gone := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.URL.Path == "/token":
			fmt.Fprint(w, `{"token":"t0ken"}`)
		case gone, req.URL.Query().Get("signature") != "s1gned":
			http.Error(w, "no", http.StatusForbidden)
		default:
			http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(b.blobs[0]))
		}
	}))
	defer elsewhere.Close()
	r.AddFault(&registry.Fault{Path: regexp.MustCompile(sum(b.blobs[0])), Do: func(w http.ResponseWriter, req *http.Request, _ http.Handler) {
		http.Redirect(w, req, elsewhere.URL+"/blob?signature=s1gned", http.StatusTemporaryRedirect)
	}})
	r.AddFault(&registry.Fault{Path: regexp.MustCompile("^/v2/"), Do: func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		if req.Header.Get("Authorization") != "Bearer t0ken" {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+elsewhere.URL+`/token",service="os"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, req)
	}})
	c := configFor(t, r, nil)
	img := openImage(t, ref, c)
	got, err := img.InnerCommit(t.Context(), "")
	if err != nil || got != wantCommit(commit, verdict.CommitFromLayerHead) {
		t.Fatalf("got %v, %v", got, err)
	}
	// Ping, token, manifest, config, layer, and where it was sent to.
	if cost := img.Transfer(); cost.Requests != 6 || cost.Bytes > 140<<10 {
		t.Errorf("got %+v", cost)
	}
	gone = true
	err = ask(t.Context(), openImage(t, ref, c))
	if CodeOf(err) != RegistryUnauthorized || strings.Contains(err.Error(), "s1gned") || strings.Contains(err.Error(), "t0ken") {
		t.Errorf("got %q: %v", CodeOf(err), err)
	}
	elsewhere.Close()
	err = ask(t.Context(), openImage(t, ref, c))
	if CodeOf(err) != RegistryUnreachable || strings.Contains(err.Error(), "s1gned") {
		t.Errorf("got %q: %v", CodeOf(err), err)
	}
}
