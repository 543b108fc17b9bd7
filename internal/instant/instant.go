// Package instant measures elapsed time for leases: time during which the host is suspended counts, and
// setting the clock has no effect.
package instant

import (
	"context"
	"time"
)

// An Instant is a reading of a clock that all processes of a host share and that nobody sets. On Linux
// and Windows it also counts the time that a host is suspended.
//
// To request a lease, take Now before sending the request. The lease lasts until that plus its length,
// minus a margin.
type Instant int64

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// A Mark is a moment on two clocks: that of Now, and the host's wall clock.
type Mark struct {
	At   Instant
	wall time.Time
	host *Host // nil: the one that this process is on
}

// MarkNow returns the present moment. The context matters in simulations only: see On.
func MarkNow(ctx context.Context) Mark { return hostOf(ctx).mark() }

func (h *Host) mark() Mark {
	return Mark{Now(), time.Now().Round(0).Add(h.wallAhead()), h} //nolint:forbidigo // only compared with itself, to measure a jump
}

// Jump returns how much further the wall clock has advanced since m than the clock of Now: the time that
// a virtual machine was paused, if its clock was corrected since, or by how much somebody set the clock
// forward.
func (m Mark) Jump() time.Duration {
	now := m.host.mark()
	return now.wall.Sub(m.wall) - now.At.Sub(m.At)
}

// Back returns a moment that is earlier by the given times on each clock, for tests.
func (m Mark) Back(at, wall time.Duration) Mark {
	return Mark{m.At.Add(-at), m.wall.Add(-wall), m.host}
}
