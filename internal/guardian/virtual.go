package guardian

import (
	"os"
	"strings"
	"sync/atomic"
)

// virtual is what runs commands instead of guardians; nil: nothing does.
var virtual atomic.Pointer[func(Command) Result]

// Virtual has run decide how commands end, at once and without a process, until restore is called. It is for
// simulations, in whose virtual time a real command would end whenever real time has it. It panics in a program that
// is not a test.
func Virtual(run func(Command) Result) (restore func()) {
	if !strings.HasSuffix(strings.TrimSuffix(os.Args[0], ".exe"), ".test") {
		panic("guardian: only tests may do without commands")
	}
	virtual.Store(&run)
	return func() { virtual.Store(nil) }
}
