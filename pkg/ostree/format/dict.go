package format

import "fmt"

// A Dict is a lookup table from a key to a typed value, the GVariant type
// a{sv}: commit metadata, detached metadata, the files below /run/ostree. The
// nil Dict is empty.
type Dict struct {
	entries map[string]dictEntry
	keys    []string
}

type dictEntry struct {
	value
	duplicate bool
}

// ParseDict decodes a serialized a{sv}. The whole of it must be in normal
// form; empty input is an empty table.
func ParseDict(b []byte) (*Dict, error) {
	if len(b) > MaxObjectSize {
		return nil, malformed("%d bytes, over the limit of %d", len(b), MaxObjectSize)
	}
	v := value{"a{sv}", b}
	if err := v.validate(); err != nil {
		return nil, err
	}
	return newDict(v)
}

// newDict indexes a validated a{sv}.
func newDict(v value) (*Dict, error) {
	d := &Dict{entries: map[string]dictEntry{}}
	err := v.each(func(e value) error {
		fs, err := e.fields()
		if err != nil {
			return err
		}
		key, err := fs[0].text()
		if err != nil {
			return err
		}
		inner, err := fs[1].unbox()
		if err != nil {
			return fmt.Errorf("key %q: %w", key, err)
		}
		if old, ok := d.entries[key]; ok {
			// GLib's readers disagree on which one counts.
			old.duplicate = true
			d.entries[key] = old
			return nil
		}
		if len(d.keys) >= maxElements {
			return malformed("more than %d keys", maxElements)
		}
		d.keys = append(d.keys, key)
		d.entries[key] = dictEntry{value: inner}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Keys returns the keys in the order in which they are stored.
func (d *Dict) Keys() []string {
	if d == nil {
		return nil
	}
	return append([]string(nil), d.keys...)
}

// Has reports whether the key is there, with whatever type.
func (d *Dict) Has(key string) bool {
	if d == nil {
		return false
	}
	_, ok := d.entries[key]
	return ok
}

// Type returns the GVariant type string of the key's value, "" where the key
// is absent.
func (d *Dict) Type(key string) string {
	if d == nil {
		return ""
	}
	return d.entries[key].typ
}

func (d *Dict) lookup(key, typ string) (value, bool, error) {
	if d == nil {
		return value{}, false, nil
	}
	e, ok := d.entries[key]
	switch {
	case !ok:
		return value{}, false, nil
	case e.duplicate:
		return value{}, false, malformed("key %q is there more than once", key)
	case e.typ != typ:
		return value{}, false, malformed("key %q has type %s, want %s", key, e.typ, typ)
	}
	return e.value, true, nil
}

// String returns a value of type s. An absent key is no error; a key that is
// there twice or has another type is one. The same holds for the methods
// below.
func (d *Dict) String(key string) (string, bool, error) {
	v, ok, err := d.lookup(key, "s")
	if !ok {
		return "", false, err
	}
	s, err := v.text()
	return s, err == nil, err
}

// Bool returns a value of type b.
func (d *Dict) Bool(key string) (value, ok bool, err error) {
	v, ok, err := d.lookup(key, "b")
	if !ok {
		return false, false, err
	}
	return v.b[0] == 1, true, nil
}

// Uint32 returns a value of type u in the host's (little-endian) order.
func (d *Dict) Uint32(key string) (uint32, bool, error) {
	v, ok, err := d.lookup(key, "u")
	if !ok {
		return 0, false, err
	}
	return v.uint32LE(), true, nil
}

// Uint64Pair returns a value of type (tt), as a device and an inode number
// are stored.
func (d *Dict) Uint64Pair(key string) (pair [2]uint64, ok bool, err error) {
	v, ok, err := d.lookup(key, "(tt)")
	if !ok {
		return pair, false, err
	}
	fs, err := v.fields()
	if err != nil {
		return pair, false, fmt.Errorf("key %q: %w", key, err)
	}
	return [2]uint64{fs[0].uint64LE(), fs[1].uint64LE()}, true, nil
}

// Strings returns a value of type as.
func (d *Dict) Strings(key string) ([]string, bool, error) {
	v, ok, err := d.lookup(key, "as")
	if !ok {
		return nil, false, err
	}
	s, err := v.texts()
	return s, err == nil, err
}

// Bytes returns a value of type ay.
func (d *Dict) Bytes(key string) ([]byte, bool, error) {
	v, ok, err := d.lookup(key, "ay")
	if !ok {
		return nil, false, err
	}
	return append([]byte(nil), v.b...), true, nil
}

// Dict returns a value of type a{sv}.
func (d *Dict) Dict(key string) (*Dict, bool, error) {
	v, ok, err := d.lookup(key, "a{sv}")
	if !ok {
		return nil, false, err
	}
	sub, err := newDict(v)
	return sub, err == nil, err
}

// Len returns the number of elements of an array of any type.
func (d *Dict) Len(key string) (n int, ok bool, err error) {
	if !d.Has(key) {
		return 0, false, nil
	}
	v, ok, err := d.lookup(key, d.Type(key))
	if !ok {
		return 0, false, err
	}
	if v.typ[0] != 'a' {
		return 0, false, malformed("key %q has type %s, want an array", key, v.typ)
	}
	err = v.each(func(value) error { n++; return nil })
	return n, err == nil, err
}

// A Package is an entry of the package list that rpm-ostree stores in a
// commit, the key rpmostree.rpmdb.pkglist of type a(sssss).
type Package struct {
	Name string
	// Epoch is "0" where the package has none.
	Epoch, Version, Release, Arch string
}

// EVRA is [epoch:]version-release.arch; an epoch of 0 is left out.
func (p Package) EVRA() string {
	evra := p.Version + "-" + p.Release + "." + p.Arch
	if p.Epoch == "" || p.Epoch == "0" {
		return evra
	}
	return p.Epoch + ":" + evra
}

// Packages returns a package list, in stored order.
func (d *Dict) Packages(key string) ([]Package, bool, error) {
	v, ok, err := d.lookup(key, "a(sssss)")
	if !ok {
		return nil, false, err
	}
	out := []Package{}
	err = v.each(func(e value) error {
		if len(out) >= maxElements {
			return malformed("more than %d packages", maxElements)
		}
		fs, err := e.fields()
		if err != nil {
			return err
		}
		var s [5]string
		for i := range s {
			if s[i], err = fs[i].text(); err != nil {
				return err
			}
		}
		out = append(out, Package{s[0], s[1], s[2], s[3], s[4]})
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("key %q: %w", key, err)
	}
	return out, true, nil
}

// removedPackage is a base package that rpm-ostree left out: NEVRA, name,
// epoch, version, release and architecture (gv_nevra_from_pkg in
// rpmostree-core.cxx).
const removedPackage = "(sstsss)"

// RemovedPackages returns the names in a list of removed packages, of type av
// with elements (sstsss), in stored order.
func (d *Dict) RemovedPackages(key string) ([]string, bool, error) {
	v, ok, err := d.lookup(key, "av")
	if !ok {
		return nil, false, err
	}
	out := []string{}
	err = v.each(func(e value) error {
		if len(out) >= maxElements {
			return malformed("more than %d packages", maxElements)
		}
		p, err := e.unbox()
		if err != nil {
			return err
		}
		if p.typ != removedPackage {
			return malformed("element of type %s, want %s", p.typ, removedPackage)
		}
		fs, err := p.fields()
		if err != nil {
			return err
		}
		name, err := fs[1].text()
		out = append(out, name)
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("key %q: %w", key, err)
	}
	return out, true, nil
}
