package osimage

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/docker/distribution/registry/api/errcode"
	"go.podman.io/image/v5/docker"
)

// A Code is a stable name for a kind of failure, as printed in the verdict's
// errors[].code.
type Code string

// Codes of this package's errors.
const (
	RegistryUnreachable   Code = "registry-unreachable"    // no connection, no TLS, no answer that could be read
	RegistryUntrusted     Code = "registry-untrusted"      // a certificate that is not trusted, or not yet, or no more
	RegistryUnauthorized  Code = "registry-unauthorized"   // 401, 403, a refused token request
	RegistryThrottled     Code = "registry-throttled"      // 429
	RegistryServerError   Code = "registry-server-error"   // 5xx and other statuses without meaning
	RegistryBlocked       Code = "registry-blocked"        // blocked by registries.conf
	ImageNotFound         Code = "image-not-found"         // no such repository, manifest, blob or local image
	Timeout               Code = "timeout"                 // the caller's time ran out
	DigestMismatch        Code = "digest-mismatch"         // bytes that are not those which the digest names
	ReferenceInvalid      Code = "reference-invalid"       // the image's name cannot be used
	ManifestInvalid       Code = "manifest-invalid"        // malformed, over a limit or of an unsupported type; the config too
	NoInstance            Code = "no-instance"             // a manifest list without an image for the architecture
	LayerTruncated        Code = "layer-truncated"         // a layer ended early
	LayerInvalid          Code = "layer-invalid"           // a layer that is not what an OS image has
	CommitLabelMismatch   Code = "commit-label-mismatch"   // the image holds another commit than the label says, or none
	CommitAmbiguous       Code = "commit-ambiguous"        // several commits or refs, and no label
	CommitNotRead         Code = "commit-not-read"         // left unread: large, and almost certainly another commit
	NotAnOSImage          Code = "not-an-os-image"         // no ostree-encapsulated image
	NoExtensions          Code = "no-extensions"           // an image that offers no packages for layering
	RegistriesConfInvalid Code = "registries-conf-invalid" // registries.conf, registries.conf.d, registries.d
	PolicyInvalid         Code = "policy-invalid"          // policy.json missing, unreadable or malformed
	SignatureMalformed    Code = "signature-malformed"     // a signature that is none, or over a limit
	SignatureUnreadable   Code = "signature-unreadable"    // a file with a signature cannot be read
	AuthUnreadable        Code = "auth-unreadable"         // an auth file unreadable or malformed
	CertsInvalid          Code = "certs-invalid"           // certs.d or the CA bundle
	ProxyInvalid          Code = "proxy-invalid"           // proxy.env or a proxy's address
)

// An Error is any failure of this package. Its text never holds credentials,
// query strings or network addresses.
type Error struct {
	Code Code
	// Source is what was read: a file's path below the root, or the image.
	Source string
	// Message says what went wrong, for a person.
	Message string
	// Err is the cause, for errors.Is and errors.As; its own text is not
	// redacted.
	Err error
}

func (e *Error) Error() string { return e.Source + ": " + e.Message }

func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of an error of this package, or "" for any other.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// fail makes an Error of err, which may come from a library.
func fail(code Code, source string, err error) *Error {
	return &Error{Code: code, Source: source, Message: redact(err.Error()), Err: err}
}

// failf makes an Error from a text of this package's own.
func failText(code Code, source, message string) *Error {
	return &Error{Code: code, Source: source, Message: message}
}

var (
	userInfo    = regexp.MustCompile(`(://)[^/@\s"]*@`)
	queryString = regexp.MustCompile(`(https?://[^\s"?]+)\?[^\s"]*`)
	peer        = regexp.MustCompile(`\b((?:dial|read|write) (?:tcp|udp)[46]?) \S+: `)
	// What crypto/x509 says of a certificate that is not valid at this time.
	wallClock  = regexp.MustCompile(`\bcurrent time \S+ is (before|after)\b`)
	nameServer = regexp.MustCompile(`\b(lookup \S+) on \S+: `)
	// What the library says of a registry's folder in certs.d.
	badClientCert = regexp.MustCompile(`^missing (client certificate|key) |\.key for client certificate|^tls: (failed to |private key )|/certs\.d/`)
	httpStatus    = regexp.MustCompile(`StatusCode: ([0-9]{3})\b`)
)

// redact removes what may be secret from a library's message (credentials in
// addresses, signatures in query strings) and what differs from run to run.
func redact(s string) string {
	s = userInfo.ReplaceAllString(s, "$1")
	s = queryString.ReplaceAllString(s, "$1?...")
	s = wallClock.ReplaceAllString(s, "the current time is $1")
	s = nameServer.ReplaceAllString(s, "$1: ")
	return peer.ReplaceAllString(s, "$1: ")
}

// classify finds the code for an error of the registry library. The library
// has few public error types: statuses are found where it keeps them.
func classify(ctx context.Context, err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	// Where mirrors failed too, the code is that of the source. Where that is
	// out of reach, as it is for good in a disconnected network, a mirror that
	// is not trusted is what to mend.
	mirrors, err := splitMirrors(err)
	text := err.Error()
	switch {
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Timeout
	case errors.Is(err, fs.ErrNotExist):
		return ImageNotFound
	case errors.Is(err, docker.ErrTooManyRequests):
		return RegistryThrottled
	case strings.Contains(text, "getting username and password"):
		return AuthUnreadable
	case strings.Contains(text, "signature storage"), strings.Contains(text, registriesD+"/"), strings.Contains(text, "loading registries"):
		return RegistriesConfInvalid
	case strings.Contains(text, " is blocked in "):
		return RegistryBlocked
	case strings.HasPrefix(text, rewritingReference):
		return RegistriesConfInvalid
	case badClientCert.MatchString(text):
		return CertsInvalid
	case strings.Contains(text, "exceeded maximum allowed size"):
		return ManifestInvalid
	}
	if _, ok := errors.AsType[docker.ErrUnauthorizedForCredentials](err); ok {
		return RegistryUnauthorized
	}
	if e, ok := errors.AsType[docker.UnexpectedHTTPStatusError](err); ok {
		return statusCode(e.StatusCode)
	}
	var ec errcode.ErrorCoder
	if errors.As(err, &ec) {
		if ec.ErrorCode() == errcode.ErrorCodeUnknown && strings.Contains(strings.ToLower(text), "not found") {
			return ImageNotFound // several registries answer a 404 so
		}
		return statusCode(ec.ErrorCode().Descriptor().HTTPStatusCode)
	}
	if m := httpStatus.FindStringSubmatch(text); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return statusCode(n)
		}
	}
	if untrusted.MatchString(text) || untrusted.MatchString(mirrors) {
		return RegistryUntrusted
	}
	return RegistryUnreachable
}

// untrusted finds what crypto/tls and crypto/x509 say of a server's certificate,
// and the registry that sent it.
var untrusted = regexp.MustCompile(`"https://([^/"]+)/[^"]*": (?:tls: failed to verify certificate: )?x509: ([^\])]*)`)

// trustHint says what to do about a certificate that is not trusted; empty where
// the message tells of none. dir is where the host looks for a registry's CAs.
func trustHint(message, dir string) string {
	m := untrusted.FindStringSubmatch(message)
	switch {
	case m == nil:
		return ""
	case strings.Contains(m[2], "not yet valid"):
		return "; the certificate of " + m[1] + " is not valid at this time: is the node's clock right?"
	case strings.Contains(m[2], "unknown authority"):
		return "; the certificate of " + m[1] + " is not trusted: put its CA into " + dir + "/" + m[1] + "/ or the node's CA bundle"
	}
	return "; the certificate of " + m[1] + " is not trusted"
}

func statusCode(status int) Code {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return RegistryUnauthorized
	case http.StatusNotFound:
		return ImageNotFound
	case http.StatusTooManyRequests:
		return RegistryThrottled
	default:
		return RegistryServerError
	}
}

// rewritingReference begins the library's error about a location in
// registries.conf that no image can have. It ends the search, whatever other
// mirrors there are.
const rewritingReference = "rewriting reference: "

// mirrorsFailed begins the library's error where it tried mirrors.
const mirrorsFailed = "(Mirrors also failed: "

// splitMirrors separates the error of the last place that was tried, the source
// itself, from the text about the mirrors before it.
func splitMirrors(err error) (mirrors string, source error) {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if text := e.Error(); strings.HasPrefix(text, mirrorsFailed) {
			if source = errors.Unwrap(e); source != nil {
				return strings.TrimSuffix(text, source.Error()), source
			}
		}
	}
	return "", err
}

// passing finds failures in the library's text about mirrors that may pass.
var passing = regexp.MustCompile(`(?i)\b(dial|read|write) tcp|no such host|timeout|deadline exceeded|connection re(fused|set)|\bEOF\b|too ?many ?requests|StatusCode: 5\d\d|status( code)?( [^ :]+)*: 5\d\d|\b50[0-4] `)

// transient reports whether the same request may succeed a little later.
func transient(code Code) bool {
	switch code {
	case RegistryUnreachable, RegistryUntrusted, RegistryThrottled, RegistryServerError, LayerTruncated, Timeout:
		return true
	default:
		return false
	}
}
