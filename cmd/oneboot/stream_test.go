package main

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/oneboot/oneboot/test/nativeimage"
	"github.com/oneboot/oneboot/test/registry"
	"github.com/oneboot/oneboot/test/sysroot"
)

// scriptServe is "serve DIR": it serves the files of a folder over TLS, sets
// $URL and writes the server's CA to ca.pem. Below /moved/ it redirects to the
// same file, below /plain/ to http, and /endless has no end.
func scriptServe(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serve DIR")
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(ts.MkAbs(args[0]))))
	mux.HandleFunc("/moved/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.TrimPrefix(r.URL.Path, "/moved"), http.StatusFound)
	})
	mux.HandleFunc("/plain/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+r.Host+strings.TrimPrefix(r.URL.Path, "/plain"), http.StatusFound)
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		for blanks := []byte(strings.Repeat(" ", 1<<16)); ; {
			if _, err := w.Write(blanks); err != nil {
				return
			}
		}
	})
	s := httptest.NewUnstartedServer(mux)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that are meant to fail
	s.StartTLS()
	ts.Defer(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	ts.Check(os.WriteFile(ts.MkAbs("ca.pem"), ca, 0o644))
	ts.Setenv("URL", s.URL)
}

// scriptRelease is "release FILE": it pushes a release image and an installer
// image with the ConfigMap in FILE to a registry with TLS and a password, and
// one with neither. It sets $RELEASE, $INSTALLER and $OTHER, and makes a root
// that trusts the registry in root, with the password in auth.json.
func scriptRelease(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: release FILE")
	}
	r, err := registry.Start(registry.Options{TLS: true, Username: "kim", Password: "secret"})
	ts.Check(err)
	ts.Defer(func() { ts.Check(r.Close()) })
	dir := ts.MkAbs(".images")
	ts.Check(os.MkdirAll(dir, 0o755))
	base, err := nativeimage.BuildExtensions(dir, nativeimage.ExtensionsOptions{})
	ts.Check(err)
	text := ts.ReadFile(args[0])
	for _, image := range []struct{ variable, file, label string }{
		{"RELEASE", "release-manifests/0000_50_installer_coreos-bootimages.yaml", "4.22.3"},
		{"INSTALLER", "manifests/coreos-bootimages.yaml", ""},
		{"OTHER", "etc/motd", ""},
	} {
		labels := map[string]string{}
		if image.label != "" {
			labels["io.openshift.release"] = image.label
		}
		m, err := nativeimage.Derive(dir, base, labels, nativeimage.DerivedLayer{Files: map[string]sysroot.File{image.file: {Content: text}}})
		ts.Check(err)
		digest, err := r.Push("ocp/"+strings.ToLower(image.variable), m)
		ts.Check(err)
		ts.Setenv(image.variable, r.Reference("ocp/"+strings.ToLower(image.variable), digest))
	}
	certs := filepath.Join(ts.MkAbs("root"), "etc/containers/certs.d", r.Host)
	ts.Check(os.MkdirAll(certs, 0o755))
	ts.Check(os.WriteFile(filepath.Join(certs, "ca.crt"), r.CA, 0o644))
	ts.Check(os.WriteFile(ts.MkAbs("auth.json"), []byte(`{"auths":{"`+r.Host+`":{"auth":"a2ltOnNlY3JldA=="}}}`), 0o600))
}
