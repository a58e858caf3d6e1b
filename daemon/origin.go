package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/oneboot/oneboot/pkg/ostree/format"
)

// The group and keys of an origin file that name an image (ostree-ext's
// ORIGIN_CONTAINER and rpm-ostree's origin.rs).
const (
	originGroup        = "origin"
	containerKey       = "container-image-reference"
	customURLKey       = "custom-url"
	customTextKey      = "custom-description"
	customURLScheme    = "pivot://" // GetBootedOSImageURL of the machine-config-daemon
	unverifiedRegistry = "ostree-unverified-registry:"
	customText         = "Managed by oneboot"
)

// nameImage returns an origin file that names the image, in the way in which
// the machine-config-daemon looks for it: as the container image where the
// origin has one, else beside the commit as a custom origin. Everything else
// keeps its bytes.
func nameImage(origin []byte, image string) ([]byte, error) {
	before, err := format.ParseKeyFile(origin)
	if err != nil {
		return nil, err
	}
	if o, err := format.ParseOrigin(origin); err != nil {
		return nil, err
	} else if o.Conflict != "" {
		return nil, fmt.Errorf("it names two identities: %s", o.Conflict)
	}
	if image == "" || strings.ContainsFunc(image, func(r rune) bool { return r <= ' ' || r == '\\' || r == ';' || r >= 0x7f }) {
		return nil, fmt.Errorf("%q cannot stand in a key file", image)
	}
	want := [][2]string{{customURLKey, customURLScheme + image}, {customTextKey, customText}}
	if _, ok := before.Raw(originGroup, containerKey); ok {
		want = [][2]string{{containerKey, unverifiedRegistry + image}}
	} else if !hasAny(before, "refspec", "baserefspec") {
		return nil, errors.New("[origin] has none of refspec, baserefspec and " + containerKey)
	}
	text := origin
	for _, kv := range want {
		text = setKey(text, originGroup, kv[0], kv[1])
	}
	return text, sameButKeys(before, text, want)
}

func hasAny(f *format.KeyFile, keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool {
		_, ok := f.Raw(originGroup, key)
		return ok
	})
}

// setKey sets a key in a key file's text, in the place that counts: of a
// repeated key the last value does. A new key goes behind the last one of its
// group.
func setKey(text []byte, group, key, value string) []byte {
	lines := bytes.SplitAfter(text, []byte("\n"))
	in, at, after := false, -1, -1
	for i, line := range lines {
		trimmed := strings.TrimSpace(string(line))
		switch {
		case strings.HasPrefix(trimmed, "["):
			in = trimmed == "["+group+"]"
			if in {
				after = i
			}
		case in && trimmed != "" && trimmed[0] != '#':
			after = i
			if name, _, _ := strings.Cut(trimmed, "="); strings.TrimRight(name, " \t\f\v") == key {
				at = i
			}
		}
	}
	if at >= 0 {
		name, old, _ := strings.Cut(string(lines[at]), "=")
		_, end, _ := cutLineEnd(old)
		lines[at] = []byte(name + "=" + value + end)
		return bytes.Join(lines, nil)
	}
	if after < 0 {
		return append(slices.Clone(text), "["+group+"]\n"+key+"="+value+"\n"...)
	}
	rest, end, ok := cutLineEnd(string(lines[after]))
	if !ok {
		end = "\n"
	}
	lines[after] = []byte(rest + end + key + "=" + value + end)
	return bytes.Join(lines, nil)
}

// cutLineEnd cuts off what ends a line.
func cutLineEnd(line string) (rest, end string, ok bool) {
	for _, end := range []string{"\r\n", "\n"} {
		if rest, ok := strings.CutSuffix(line, end); ok {
			return rest, end, true
		}
	}
	return line, "", false
}

// sameButKeys holds that an edited key file says what it is meant to, and
// nothing else that is new.
func sameButKeys(before *format.KeyFile, text []byte, want [][2]string) error {
	after, err := format.ParseKeyFile(text)
	if err != nil {
		return fmt.Errorf("after the change: %w", err)
	}
	for _, kv := range want {
		if got, _ := after.Raw(originGroup, kv[0]); got != kv[1] {
			return fmt.Errorf("after the change [%s] %s is %q", originGroup, kv[0], got)
		}
	}
	all := func(f *format.KeyFile) map[string]string {
		out := map[string]string{}
		for _, group := range f.Groups() {
			out[group+"]"] = ""
			for _, key := range f.Keys(group) {
				out[group+"]"+key], _ = f.Raw(group, key)
			}
		}
		for _, kv := range want {
			delete(out, originGroup+"]"+kv[0])
		}
		return out
	}
	old, now := all(before), all(after)
	if len(old) != len(now) {
		return errors.New("after the change it has other keys")
	}
	for name, value := range old {
		if other, ok := now[name]; !ok || other != value {
			return fmt.Errorf("after the change [%s differs", name)
		}
	}
	return nil
}
