package osimage

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oneboot/oneboot/pkg/verdict"
	"github.com/oneboot/oneboot/test/signing"
)

// gnupg is a home of GnuPG with keys.
type gnupg struct{ home string }

func newGnuPG(t *testing.T) gnupg {
	t.Helper()
	// Its agent's socket must have a short path.
	home, err := os.MkdirTemp("", "gpg")
	if err != nil {
		t.Fatal(err)
	}
	g := gnupg{home}
	t.Cleanup(func() {
		kill := exec.Command("gpgconf", "--kill", "all")
		kill.Env = append(os.Environ(), "GNUPGHOME="+home)
		_ = kill.Run() // the agent also ends by itself once its home is gone
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	return g
}

func (g gnupg) run(t *testing.T, input []byte, args ...string) []byte {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.Command("gpg", append([]string{"--homedir", g.home, "--batch", "--quiet", "--no-tty", "--pinentry-mode", "loopback", "--passphrase", ""}, args...)...)
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(input)), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("gpg %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return out
}

// revoke revokes a key by the certificate that was made with it.
func (g gnupg) revoke(t *testing.T, name string) {
	t.Helper()
	for _, line := range strings.Split(string(g.run(t, nil, "--with-colons", "--list-keys", name)), "\n") {
		if fields := strings.Split(line, ":"); fields[0] == "fpr" {
			b := must(os.ReadFile(filepath.Join(g.home, "openpgp-revocs.d", fields[9]+".rev")))
			g.run(t, []byte(strings.Replace(string(b), ":-----BEGIN", "-----BEGIN", 1)), "--import", "-")
			return
		}
	}
	t.Fatalf("no key %s", name)
}

// addSubkey adds a key to sign with.
func (g gnupg) addSubkey(t *testing.T, name, expire string, at time.Time) {
	t.Helper()
	for _, line := range strings.Split(string(g.run(t, nil, "--with-colons", "--list-keys", name)), "\n") {
		if fields := strings.Split(line, ":"); fields[0] == "fpr" {
			g.run(t, nil, "--faked-system-time", at.UTC().Format("20060102T150405"), "--quick-add-key", fields[9], "rsa2048", "sign", expire)
			return
		}
	}
	t.Fatalf("no key %s", name)
}

// newKey makes a key at a time; expire is in GnuPG's terms.
func (g gnupg) newKey(t *testing.T, name, algorithm, expire string, at time.Time) {
	t.Helper()
	g.run(t, nil, "--faked-system-time", at.UTC().Format("20060102T150405"), "--quick-generate-key", name, algorithm, "sign", expire)
}

func (g gnupg) sign(t *testing.T, name string, at time.Time, text []byte) []byte {
	t.Helper()
	return g.run(t, text, "--faked-system-time", at.UTC().Format("20060102T150405"), "--local-user", name, "--output", "-", "--sign", "-")
}

func (g gnupg) export(t *testing.T, names ...string) (text string) {
	t.Helper()
	for _, n := range names {
		text += string(g.run(t, nil, "--armor", "--export", n)) + "\n"
	}
	return text
}

// What GnuPG signed is judged as skopeo judges it, which uses GnuPG itself.
func TestSignaturesBesideSkopeo(t *testing.T) {
	t.Parallel()
	keys := newKeyring()
	s := newSigned(t, keys)
	g := newGnuPG(t)
	old, now := time.Now().Add(-30*24*time.Hour), time.Now().Add(-time.Hour)
	for _, name := range []string{"first@example.com", "second@example.com"} {
		g.newKey(t, name, "rsa2048", "never", old)
	}
	g.newKey(t, "curve@example.com", "ed25519", "never", old)
	g.newKey(t, "expired@example.com", "rsa2048", "5d", old)
	g.newKey(t, "lasting@example.com", "rsa2048", "5y", old)
	for _, name := range []string{"revoked@example.com", "subkey@example.com", "oldsubkey@example.com"} {
		g.newKey(t, name, "rsa2048", "never", old)
	}
	g.addSubkey(t, "subkey@example.com", "never", old)
	g.addSubkey(t, "oldsubkey@example.com", "5d", old)
	digest, host := s.amd64.digest, s.r.Host
	text := must(signing.SimplePayload(digest, s.identity()))
	by := func(name string, at time.Time) []byte { return g.sign(t, name, at, text) }
	first := g.export(t, "first@example.com")
	signWith := func(args ...string) []byte {
		return g.run(t, text, append(args, "--local-user", "first@example.com", "--output", "-", "--sign", "-")...)
	}
	revoked := by("revoked@example.com", now)
	g.revoke(t, "revoked@example.com")
	tests := []struct {
		name     string
		keys     string
		files    [][]byte
		identity string
		want     bool
		skopeo   bool
	}{
		{"by the key", first, [][]byte{by("first@example.com", now)}, "", true, true},
		{"by another", g.export(t, "second@example.com"), [][]byte{by("first@example.com", now)}, "", false, false},
		{"by the second in the file", g.export(t, "second@example.com", "first@example.com"), [][]byte{by("first@example.com", now)}, "", true, true},
		{"second of two", first, [][]byte{by("second@example.com", now), by("first@example.com", now)}, "", true, true},
		{"elliptic", g.export(t, "curve@example.com"), [][]byte{by("curve@example.com", now)}, "", true, true},
		{"by a key that expired since", g.export(t, "expired@example.com"), [][]byte{by("expired@example.com", old.Add(time.Hour))}, "", false, false},
		{"by a key that will expire", g.export(t, "lasting@example.com"), [][]byte{by("lasting@example.com", now)}, "", true, true},
		{"none", first, nil, "", false, false},
		{"uncompressed", first, [][]byte{signWith("--compress-algo", "none")}, "", true, true},
		{"long hash", first, [][]byte{signWith("--digest-algo", "SHA512")}, "", true, true},
		{"bzip2", first, [][]byte{signWith("--compress-algo", "bzip2")}, "", true, true},
		{"for a day, long ago", first, [][]byte{signWith("--faked-system-time", old.UTC().Format("20060102T150405"), "--default-sig-expire", "1d")}, "", false, false},
		{"by two, one of them known", first, [][]byte{signWith("--local-user", "second@example.com")}, "", false, false},
		{"by two, the other known", g.export(t, "second@example.com"), [][]byte{signWith("--local-user", "second@example.com")}, "", false, false},
		{"by two, both known", g.export(t, "first@example.com", "second@example.com"), [][]byte{signWith("--local-user", "second@example.com")}, "", false, false},
		{"by a key that was revoked", g.export(t, "revoked@example.com"), [][]byte{revoked}, "", false, false},
		// Newer releases of skopeo take these, too.
		{"by a subkey", g.export(t, "subkey@example.com"), [][]byte{by("subkey@example.com", now)}, "", true, false},
		{"by a subkey that expired", g.export(t, "oldsubkey@example.com"), [][]byte{by("oldsubkey@example.com", old.Add(time.Hour))}, "", false, false},
		{"with bytes behind", first, [][]byte{append(by("first@example.com", now), "more"...)}, "", true, true},
		{"twice", first, [][]byte{append(by("first@example.com", now), by("first@example.com", now)...)}, "", true, true},
		{"weak hash", first, [][]byte{signWith("--digest-algo", "SHA1")}, "", true, true},
		{"exactly this", first, [][]byte{by("first@example.com", now)}, `{"type":"matchExact"}`, false, false},
		{"the repository", first, [][]byte{by("first@example.com", now)}, `{"type":"matchRepository"}`, true, true},
		{"mapped", first, [][]byte{by("first@example.com", now)}, `{"type":"remapIdentity","prefix":"` + host + `/os","signedPrefix":"quay.io/os"}`, false, false},
		{"mapped to itself", first, [][]byte{by("first@example.com", now)}, `{"type":"remapIdentity","prefix":"` + host + `","signedPrefix":"` + host + `"}`, true, true},
		{"exactly that", first, [][]byte{by("first@example.com", now)}, `{"type":"exactReference","dockerReference":"` + host + `/os:4.20"}`, true, true},
	}
	base := maps.Clone(s.files)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.t, s.files = t, maps.Clone(base)
			s.files[pgpPath] = tt.keys
			for i, b := range tt.files {
				s.lookaside(digest, i+1, b)
			}
			req := wantPGP
			if tt.identity != "" {
				req = strings.TrimSuffix(req, "}") + `,"signedIdentity":` + tt.identity + "}"
			}
			s.policy(req)
			got, err := s.image(digest).VerifySignature(t.Context())
			// What only one side refuses may be unknown.
			if (got.Requirement == verdict.SignatureVerified) != tt.want || err != nil && CodeOf(err) != SignatureMalformed {
				t.Errorf("got %+v, %v; want verified %v", got, err, tt.want)
			}
			if out, ok := skopeoAccepts(t, s, digest); ok != tt.skopeo {
				t.Errorf("skopeo accepts %v: %s", ok, out)
			}
		})
	}
}

// skopeoAccepts copies an image by the host's policy and signatures.
func skopeoAccepts(t *testing.T, s *signed, digest string) (string, bool) {
	t.Helper()
	files := maps.Clone(s.files)
	dir := writeRoot(t, files)
	for name, content := range map[string]string{
		"policy.json":     strings.ReplaceAll(files[policyPath], `"`+pgpPath+`"`, `"`+filepath.Join(dir, pgpPath)+`"`),
		"stores/own.yaml": "default-docker:\n  lookaside: file://" + filepath.Join(dir, defaultLookaside) + "\n",
	} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("skopeo", "--policy", filepath.Join(dir, "policy.json"), "--registries.d", filepath.Join(dir, "stores"),
		"copy", "-q", "--remove-signatures", "--src-tls-verify=false", "docker://"+s.r.Reference("os", digest), "dir:"+t.TempDir())
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}
