package instant

import (
	"os"
	"strings"
	"sync/atomic"
	"time"
)

var (
	virtual atomic.Bool  // Now follows Go's clock
	ahead   atomic.Int64 // of the wall clock, in ns: see StepWall
)

// Virtual makes Now follow Go's clock until restore is called, so that time passes in a bubble of
// testing/synctest as it does for timers. It is for simulations. Their process must measure nothing else
// meanwhile: instants of the two clocks do not compare. It panics in a program that is not a test.
func Virtual() (restore func()) {
	if !strings.HasSuffix(strings.TrimSuffix(os.Args[0], ".exe"), ".test") {
		panic("instant: a program's leases must count the time that the host is suspended: only tests may do without")
	}
	ahead.Store(0)
	virtual.Store(true)
	return func() { virtual.Store(false); ahead.Store(0) }
}

// StepWall sets the wall clock that Marks read forward or back, as an administrator does, during Virtual. It
// panics otherwise.
func StepWall(by time.Duration) {
	if !virtual.Load() {
		panic("instant: only a virtual wall clock can be set")
	}
	ahead.Add(int64(by))
}

// Now returns the present instant.
func Now() Instant {
	if virtual.Load() {
		return Instant(time.Now().UnixNano()) //nolint:forbidigo // only compared with itself
	}
	return system()
}
