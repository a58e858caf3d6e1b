package registry

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// tokenPath is where the registry's own token server answers, as quay.io's
// does.
const tokenPath = "/v2/auth"

// tokenService is what the challenge names the registry.
const tokenService = "test-registry"

// challenge asks for a token for the repository.
func (r *Registry) challenge(w http.ResponseWriter, req *http.Request) {
	scheme := "http"
	if r.opts.TLS {
		scheme = "https"
	}
	text := `Bearer realm="` + scheme + "://" + req.Host + tokenPath + `",service="` + tokenService + `"`
	if scope := pullScope(req.URL.Path); scope != "" {
		text += `,scope="` + scope + `"`
	}
	w.Header().Set("WWW-Authenticate", text)
	writeError(w, http.StatusUnauthorized, "UNAUTHORIZED")
}

// pullScope is what a token must allow for a path: "" for the ping.
func pullScope(path string) string {
	name := strings.TrimPrefix(path, "/v2/")
	for _, kind := range []string{"/manifests/", "/blobs/", "/referrers/", "/tags/"} {
		if i := strings.LastIndex(name, kind); i > 0 {
			return "repository:" + name[:i] + ":pull"
		}
	}
	return ""
}

// giveToken answers at the token server: to a client with the right password
// (GET, basic authentication) or the right refresh token (POST, OAuth 2), for
// one scope.
func (r *Registry) giveToken(w http.ResponseWriter, req *http.Request) {
	if err := req.ParseForm(); err != nil {
		writeError(w, http.StatusBadRequest, "UNSUPPORTED")
		return
	}
	known := r.knows(req)
	if req.Method == http.MethodPost {
		known = r.opts.IdentityToken != "" && req.PostForm.Get("refresh_token") == r.opts.IdentityToken
	}
	if !known || req.Form.Get("service") != tokenService {
		writeError(w, http.StatusUnauthorized, "UNAUTHORIZED")
		return
	}
	token := rand.Text()
	r.mu.Lock()
	if r.tokens == nil {
		r.tokens = map[string]string{}
	}
	r.tokens[token] = req.Form.Get("scope")
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	// A client that hangs up needs no token.
	_ = json.NewEncoder(w).Encode(map[string]any{
		"token": token, "access_token": token, "expires_in": 300, "issued_at": time.Now().UTC(),
	})
}

// allows reports whether the request has a token for what it asks.
func (r *Registry) allows(req *http.Request) bool {
	token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	scope, ok := r.tokens[token]
	return ok && scope == pullScope(req.URL.Path)
}
