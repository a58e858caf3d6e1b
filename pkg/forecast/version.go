package forecast

import (
	"regexp"
	"strconv"
	"strings"
)

// A version is the first two numbers of one.
type version struct{ major, minor int }

func (v version) before(o version) bool {
	return v.major < o.major || v.major == o.major && v.minor < o.minor
}

func (v version) String() string { return strconv.Itoa(v.major) + "." + strconv.Itoa(v.minor) }

func parseVersion(s string) (version, bool) {
	parts := strings.SplitN(s, ".", 3)
	if len(parts) < 2 {
		return version{}, false
	}
	major, err := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(strings.TrimRight(parts[1], "-abcdefghijklmnopqrstuvwxyz"))
	return version{major, minor}, err == nil && err2 == nil && major >= 0 && minor >= 0
}

// atLeast reports whether a release is known to be that one or later.
func atLeast(release string, least version) bool {
	v, ok := parseVersion(release)
	return ok && !v.before(least)
}

var (
	// rhelVersioned is an OS version since 4.19, such as 9.6.20251212-1.
	rhelVersioned = regexp.MustCompile(`^([0-9]{1,2}\.[0-9]{1,2})\.[0-9]{8}-[0-9]+$`)
	// openShiftVersioned is one before, such as 416.94.202410160352-0: of OpenShift
	// 4.16 and RHEL 9.4 (the grammar is that of pkg/operator/status.go in the
	// machine-config-operator).
	openShiftVersioned = regexp.MustCompile(`^4[0-9]{1,2}\.([0-9])([0-9]{1,2})\.[0-9]{12}-[0-9]+$`)
)

// rhelOf is the version of RHEL that an OS version names.
func rhelOf(osVersion string) (version, bool) {
	if m := rhelVersioned.FindStringSubmatch(osVersion); m != nil {
		return parseVersion(m[1])
	}
	if m := openShiftVersioned.FindStringSubmatch(osVersion); m != nil {
		return parseVersion(m[1] + "." + m[2])
	}
	return version{}, false
}
