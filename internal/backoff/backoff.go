// Package backoff says how long to wait before something that failed is tried
// again.
package backoff

import "time"

// Delay returns how long to wait before the attempt that follows so many that
// failed: exponential from first to most, with "equal jitter" (half of it, and a
// random part of the other half), so that it is never short and many that failed
// together do not come back together. random is in [0, 1).
func Delay(first, most time.Duration, failures int, random float64) time.Duration {
	delay := first
	for doublings := failures - 1; doublings > 0 && delay < most; doublings-- {
		delay = min(2*delay, most) // both are at most a hundred years
	}
	return delay/2 + time.Duration(random*float64(delay/2))
}
