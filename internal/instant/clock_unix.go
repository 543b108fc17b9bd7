//go:build unix

package instant

import "golang.org/x/sys/unix"

// system reads the host's clock.
func system() Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		panic("instant: clock_gettime: " + err.Error()) // a kernel older than Go supports
	}
	return Instant(ts.Nano())
}
