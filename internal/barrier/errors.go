package barrier

import (
	"fmt"
	"reflect"
)

// Text returns the text of a user's error. If its Error method panics, bad is an error that says so, and
// text is that error's.
func Text(err error) (text, stack string, bad error) {
	stack, bad = Do(func() { text = err.Error() })
	if bad != nil {
		bad = about(err, bad)
		text = bad.Error()
	}
	return text, stack, bad
}

// about says whose method has panicked.
func about(err, bad error) error {
	is := reflect.ValueOf(err)
	if is.Kind() == reflect.Pointer && is.IsNil() {
		return panicked(fmt.Sprintf("%v, in a method of the returned error, a nil %T: return a plain nil for success", bad, err))
	}
	return panicked(fmt.Sprintf("%v, in a method of the returned error %T", bad, err))
}

// Find is [errors.As] for users' errors: it returns the first T in err's tree. Where a method of an error
// panics it goes on with the others; bad is the first such panic.
func Find[T error](err error) (found T, ok bool, bad error) {
	bad = walk(err, func(e error) bool {
		if found, ok = e.(T); !ok { //nolint:errorlint // walk unwraps it
			if x, can := e.(interface{ As(target any) bool }); can {
				ok = x.As(&found)
			}
		}
		return ok
	})
	return found, ok, bad
}

// Is is [errors.Is] for users' errors, with a target of ours. bad is as in [Find].
func Is(err, target error) (ok bool, bad error) {
	bad = walk(err, func(e error) bool {
		if ok = e == target; !ok { //nolint:errorlint // walk unwraps it
			if x, can := e.(interface{ Is(target error) bool }); can {
				ok = x.Is(target)
			}
		}
		return ok
	})
	return ok, bad
}

// deepest bounds a tree of errors: one that wraps itself has no end.
const deepest = 100

// walk calls visit for the errors of err's tree, depth first, until it returns true. It returns the first
// panic of a method.
func walk(err error, visit func(error) bool) (bad error) {
	var descend func(e error, depth int) bool
	note := func(e, err error) {
		if err != nil && bad == nil {
			bad = about(e, err)
		}
	}
	descend = func(e error, depth int) (found bool) {
		if e == nil {
			return false
		}
		if depth > deepest {
			note(e, panicked("Unwrap finds no end"))
			return false
		}
		var inner []error
		_, err := Do(func() { found = visit(e) })
		note(e, err)
		if found {
			return true
		}
		_, err = Do(func() {
			switch x := e.(type) { //nolint:errorlint // this is what unwraps
			case interface{ Unwrap() error }:
				inner = []error{x.Unwrap()}
			case interface{ Unwrap() []error }:
				inner = x.Unwrap()
			}
		})
		note(e, err)
		for _, i := range inner {
			if descend(i, depth+1) {
				return true
			}
		}
		return false
	}
	descend(err, 0)
	return bad
}
