// Package pattern has regular expressions that are compiled when they are first used: compiling all of a program's when it
// starts takes a millisecond of every command.
package pattern

import (
	"regexp"
	"sync"
)

// Lazy returns a function that returns the compiled expression. It compiles it at its first call, and panics if it cannot.
func Lazy(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
