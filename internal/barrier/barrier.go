// Package barrier calls users' code where a panic must not spread: functions that a program has
// registered, and methods of its values, such as Error and Unwrap of its errors. A panic becomes an
// error of whatever the code was called for. The end of the goroutine ([runtime.Goexit]) passes
// through.
//
// Call it without a mutex: users' code may call whatever it likes, and may take its time.
package barrier

import (
	"fmt"
	"runtime/debug"
)

// Call calls f. If f panics, it returns an error with the panic's text, and the stack.
func Call(f func() error) (stack string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err, stack = Panic(p), string(debug.Stack())
		}
	}()
	return "", f()
}

// Do is [Call] for a function that returns nothing.
func Do(f func()) (stack string, err error) {
	return Call(func() error {
		f()
		return nil
	})
}

// Panic returns an error about a recovered value, even if the value's own methods panic.
func Panic(p any) error { return panicked("panic: " + textOf(p)) }

// A panicked is an error whose text is known: the value itself is not kept.
type panicked string

func (p panicked) Error() string { return string(p) }

// textOf formats a value. Package fmt survives a method that panics, unless what that panics with has
// such a method, too.
func textOf(v any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T, whose text panics, too", v)
		}
	}()
	return fmt.Sprint(v)
}
