// Package pace says when work is tried again: after failures ([Delay]), and after it may have stopped its own
// process ([Judge]). It waits, too: once ([Sleep]), and again and again ([Ticks]).
package pace

import "time"

// Delay returns the delay before the next attempt after the given number of failures. It grows
// exponentially from first to most, with "equal jitter": half of it, plus a random part of the other
// half. So it is never short, and what failed together does not retry together. random is in [0, 1).
func Delay(first, most time.Duration, failures int, random float64) time.Duration {
	delay := first
	for doublings := failures - 1; doublings > 0 && delay < most; doublings-- {
		delay = min(2*delay, most) // both are at most a hundred years
	}
	return delay/2 + time.Duration(random*float64(delay/2))
}
