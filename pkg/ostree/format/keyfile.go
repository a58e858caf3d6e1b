package format

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxKeyFileSize bounds a key file, in bytes.
const MaxKeyFileSize = 1 << 20

// A KeyFile is a file in GLib's GKeyFile format, read by its rules: a group
// may come several times and is one, of a repeated key the last value counts,
// lines that begin with # are comments.
type KeyFile struct {
	groups []string
	keys   map[string][]string
	values map[groupKey]string
}

type groupKey struct{ group, key string }

// ParseKeyFile decodes a key file. As in GLib, a line that is neither a group,
// a key nor a comment makes the whole file an error.
func ParseKeyFile(b []byte) (*KeyFile, error) {
	if len(b) > MaxKeyFileSize {
		return nil, malformed("key file of %d bytes, over the limit of %d", len(b), MaxKeyFileSize)
	}
	if !utf8.Valid(b) || strings.ContainsRune(string(b), 0) {
		return nil, malformed("key file is not UTF-8 text")
	}
	f := &KeyFile{keys: map[string][]string{}, values: map[groupKey]string{}}
	group := ""
	for i, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSuffix(line, "\r")
		line = strings.TrimLeft(line, asciiSpace)
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '[' {
			name, err := groupName(line)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			group = name
			if _, ok := f.keys[group]; !ok {
				f.groups = append(f.groups, group)
				f.keys[group] = nil
			}
			continue
		}
		key, val, ok := strings.Cut(line, "=")
		key = strings.TrimRight(key, asciiSpace)
		switch {
		case !ok || key == "" || strings.ContainsAny(key, "[]"):
			return nil, fmt.Errorf("line %d: %w", i+1, malformed("neither a group, a key nor a comment"))
		case group == "":
			return nil, fmt.Errorf("line %d: %w", i+1, malformed("key %q before any group", key))
		}
		id := groupKey{group, key}
		if _, seen := f.values[id]; !seen {
			f.keys[group] = append(f.keys[group], key)
		}
		f.values[id] = strings.TrimLeft(val, asciiSpace)
	}
	return f, nil
}

// asciiSpace is what g_ascii_isspace accepts.
const asciiSpace = " \t\r\n\f\v"

func groupName(line string) (string, error) {
	name, rest, ok := strings.Cut(line[1:], "]")
	if !ok || name == "" || strings.Trim(rest, " \t") != "" || strings.Contains(name, "[") {
		return "", malformed("bad group %q", line)
	}
	for _, c := range name {
		if c < ' ' || c == 0x7f {
			return "", malformed("bad group %q", line)
		}
	}
	return name, nil
}

// Groups returns the group names in order of appearance.
func (f *KeyFile) Groups() []string { return append([]string(nil), f.groups...) }

// Keys returns the keys of a group in order of appearance.
func (f *KeyFile) Keys(group string) []string { return append([]string(nil), f.keys[group]...) }

// Raw returns a value as it stands in the file.
func (f *KeyFile) Raw(group, key string) (string, bool) {
	v, ok := f.values[groupKey{group, key}]
	return v, ok
}

// String returns a value with \s \n \t \r and \\ replaced. An absent key is
// no error; any other backslash is one.
func (f *KeyFile) String(group, key string) (string, bool, error) {
	raw, ok := f.Raw(group, key)
	if !ok {
		return "", false, nil
	}
	parts, err := unescape(raw, false)
	if err != nil {
		return "", false, keyError(group, key, err)
	}
	return parts[0], true, nil
}

// Bool returns a value of true, false, 1 or 0.
func (f *KeyFile) Bool(group, key string) (value, ok bool, err error) {
	raw, ok := f.Raw(group, key)
	if !ok {
		return false, false, nil
	}
	switch strings.TrimRight(raw, asciiSpace) {
	case "true", "1":
		return true, true, nil
	case "false", "0":
		return false, true, nil
	}
	return false, false, keyError(group, key, malformed("%q is neither true nor false", raw))
}

// Strings returns a list whose elements are separated, and may be ended, by
// semicolons.
func (f *KeyFile) Strings(group, key string) ([]string, bool, error) {
	raw, ok := f.Raw(group, key)
	if !ok {
		return nil, false, nil
	}
	parts, err := unescape(raw, true)
	if err != nil {
		return nil, false, keyError(group, key, err)
	}
	if n := len(parts) - 1; parts[n] == "" {
		parts = parts[:n]
	}
	return parts, true, nil
}

func keyError(group, key string, err error) error {
	return fmt.Errorf("[%s] %s: %w", group, key, err)
}

// unescape replaces escapes and, for a list, splits at semicolons that are not
// escaped; it returns at least one part.
func unescape(raw string, list bool) ([]string, error) {
	var parts []string
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		switch {
		case list && raw[i] == ';':
			parts = append(parts, b.String())
			b.Reset()
		case raw[i] != '\\':
			b.WriteByte(raw[i])
		case i+1 == len(raw):
			return nil, malformed("backslash at the end")
		default:
			i++
			switch raw[i] {
			case 's':
				b.WriteByte(' ')
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case 'r':
				b.WriteByte('\r')
			case '\\':
				b.WriteByte('\\')
			case ';':
				if !list {
					return nil, malformed("unknown escape \\;")
				}
				b.WriteByte(';')
			default:
				return nil, malformed("unknown escape \\%c", raw[i])
			}
		}
	}
	return append(parts, b.String()), nil
}
