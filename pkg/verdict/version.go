package verdict

import (
	"cmp"
	"strings"
)

// compareVersions orders two versions of RPM packages, without epoch and
// release, as rpm does (rpmvercmp, lib/rpmvercmp.c): -1, 0 or 1. A version is
// runs of digits and runs of letters; what else is in it only separates them,
// but "~" sorts before the end and "^" right behind it. A number is newer than
// letters, and what goes on is newer than what ends.
func compareVersions(a, b string) int {
	for {
		a, b = strings.TrimLeftFunc(a, separates), strings.TrimLeftFunc(b, separates)
		switch {
		case strings.HasPrefix(a, "~") || strings.HasPrefix(b, "~"):
			if c := cmp.Compare(mark(b, "~"), mark(a, "~")); c != 0 {
				return c
			}
			a, b = a[1:], b[1:]
			continue
		case strings.HasPrefix(a, "^") || strings.HasPrefix(b, "^"):
			if a == "" || b == "" {
				return cmp.Compare(len(a), len(b))
			}
			if c := cmp.Compare(mark(b, "^"), mark(a, "^")); c != 0 {
				return c
			}
			a, b = a[1:], b[1:]
			continue
		case a == "" || b == "":
			return cmp.Compare(min(len(a), 1), min(len(b), 1))
		}
		kind := isLetter
		number := isDigit(rune(a[0]))
		if number {
			kind = isDigit
		}
		var x, y string
		x, a = cutRun(a, kind)
		y, b = cutRun(b, kind)
		switch {
		case y == "" && number:
			return 1
		case y == "":
			return -1
		case number:
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			if c := cmp.Compare(len(x), len(y)); c != 0 {
				return c
			}
		}
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
	}
}

// mark is 1 where a version goes on with the sign.
func mark(version, sign string) int {
	if strings.HasPrefix(version, sign) {
		return 1
	}
	return 0
}

// cutRun takes the longest start of one kind off.
func cutRun(version string, kind func(rune) bool) (run, rest string) {
	end := strings.IndexFunc(version, func(r rune) bool { return !kind(r) })
	if end < 0 {
		return version, ""
	}
	return version[:end], version[end:]
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

func isLetter(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }

func separates(r rune) bool { return !isDigit(r) && !isLetter(r) && r != '~' && r != '^' }

// upstreamVersion is the version within [epoch:]version-release.arch.
func upstreamVersion(evra string) string {
	version, _, _ := strings.Cut(withoutEpoch(evra), "-")
	return version
}

// numericParts reports whether a version starts with n numbers with dots
// between them, so that it can be what its upstream prints, and nothing but a
// pre-release mark or, where more is set, another part follows.
func numericParts(version string, n int, more bool) bool {
	number, _, _ := strings.Cut(version, "~")
	parts := strings.Split(number, ".")
	if len(parts) < n || len(parts) > n && !more {
		return false
	}
	for _, p := range parts[:n] {
		if p == "" || len(p) > 9 || strings.TrimFunc(p, isDigit) != "" {
			return false
		}
	}
	return true
}
