package instant

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// virtual makes Now follow Go's clock.
var virtual atomic.Bool

// Virtual makes Now follow Go's clock until restore is called, so that time passes in a bubble of
// testing/synctest as it does for timers. It is for simulations. Their process must measure nothing else
// meanwhile: instants of the two clocks do not compare. It panics in a program that is not a test.
func Virtual() (restore func()) {
	if !strings.HasSuffix(strings.TrimSuffix(os.Args[0], ".exe"), ".test") {
		panic("instant: a program's leases must count the time that the host is suspended: only tests may do without")
	}
	virtual.Store(true)
	return func() { virtual.Store(false) }
}

// A Host is a simulated host, which has a wall clock of its own. The zero value's clock is right.
type Host struct{ ahead atomic.Int64 } // of virtual time, in ns

// StepWall sets the wall clock that Marks read forward or back, as an administrator does.
func (h *Host) StepWall(by time.Duration) { h.ahead.Add(int64(by)) }

func (h *Host) wallAhead() time.Duration {
	if h == nil {
		return 0
	}
	return time.Duration(h.ahead.Load())
}

type hostKey struct{}

// On returns a context of what happens on a simulated host. It has an effect during Virtual only.
func On(ctx context.Context, h *Host) context.Context { return context.WithValue(ctx, hostKey{}, h) }

func hostOf(ctx context.Context) *Host {
	if !virtual.Load() {
		return nil
	}
	h, _ := ctx.Value(hostKey{}).(*Host)
	return h
}

// Now returns the present instant.
func Now() Instant {
	if virtual.Load() {
		return Instant(time.Now().UnixNano()) //nolint:forbidigo // only compared with itself
	}
	return system()
}
