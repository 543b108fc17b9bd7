// Package instant measures how long something took, for leases: time that a
// host spends suspended has to count, and clocks that are set must not.
package instant

import "time"

// An Instant is a reading of a clock that all processes of a host share and
// that nobody sets. On Linux and Windows it also counts the time a host is
// suspended.
//
// Whoever asks for a lease takes Now before it sends the request, and holds
// the lease until that plus its length, less a margin.
type Instant int64

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// A Mark is a moment by two clocks: that of Now, and the host's wall clock.
type Mark struct {
	At   Instant
	wall time.Time
}

// MarkNow returns the present moment.
func MarkNow() Mark {
	return Mark{Now(), time.Now().Round(0)} //nolint:forbidigo // only compared with itself, to measure a jump
}

// Jump returns how much further the wall clock has come since m than the clock
// of Now: the time that a virtual machine was paused, if something has set its
// clock right since, or what somebody has set the clock forward by.
func (m Mark) Jump() time.Duration {
	now := MarkNow()
	return now.wall.Sub(m.wall) - now.At.Sub(m.At)
}

// Back returns a moment that is earlier by so much on each clock, for tests.
func (m Mark) Back(at, wall time.Duration) Mark { return Mark{m.At.Add(-at), m.wall.Add(-wall)} }
