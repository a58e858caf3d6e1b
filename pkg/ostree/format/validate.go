package format

// validate checks that the value is in normal form, all of it.
func (v value) validate() error {
	work := maxWork
	return v.check(0, &work)
}

func (v value) check(depth int, work *int) error {
	if depth > maxDepth {
		return malformed("nested deeper than %d", maxDepth)
	}
	// Taking a type apart costs up to the square of its length.
	if *work -= 1 + len(v.typ)*len(v.typ)/8; *work < 0 {
		return malformed("too many values to check")
	}
	switch v.typ[0] {
	case 'b':
		if len(v.b) != 1 || v.b[0] > 1 {
			return malformed("boolean that is not 0 or 1")
		}
		return nil
	case 's':
		_, err := v.text()
		return err
	case 'o', 'g':
		_, err := v.text()
		return err
	case 'v':
		inner, err := v.unbox()
		if err != nil {
			return err
		}
		return inner.check(depth+1, work)
	case 'm':
		return v.checkMaybe(depth, work)
	case 'a':
		if _, size := layout(v.typ[1:]); size == 1 && v.typ[1] == 'y' {
			return nil
		}
		return v.each(func(e value) error { return e.check(depth+1, work) })
	case '(', '{':
		fs, err := v.fields()
		if err != nil {
			return err
		}
		for _, f := range fs {
			if err := f.check(depth+1, work); err != nil {
				return err
			}
		}
		return nil
	default:
		if _, size := layout(v.typ); len(v.b) != size {
			return malformed("%s has %d bytes", v.typ, len(v.b))
		}
		return nil
	}
}

func (v value) checkMaybe(depth int, work *int) error {
	if len(v.b) == 0 {
		return nil
	}
	inner := value{v.typ[1:], v.b}
	if _, size := layout(inner.typ); size == 0 {
		if v.b[len(v.b)-1] != 0 {
			return malformed("maybe without its end byte")
		}
		inner.b = v.b[:len(v.b)-1]
	}
	return inner.check(depth+1, work)
}
