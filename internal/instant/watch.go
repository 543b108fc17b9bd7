package instant

import "time"

// A Watch counts for how long a mark of progress has stayed the same. Its zero value is not ready:
// call Begin. It is for one goroutine.
type Watch[M comparable] struct {
	seen M
	at   Instant // of the last look
	idle time.Duration
}

// Begin starts to count at an instant.
func (w *Watch[M]) Begin(now Instant, mark M) { w.seen, w.at, w.idle = mark, now, 0 }

// Over reports, at each tick, whether the mark has stayed the same for the limit. Time in which this
// process did not run does not count: the work may not have run either. Busy work makes progress.
func (w *Watch[M]) Over(now Instant, tick, limit time.Duration, mark M, busy bool) bool {
	passed := min(now.Sub(w.at), 2*tick)
	w.at = now
	if mark != w.seen || busy {
		w.seen, w.idle = mark, 0
		return false
	}
	w.idle += passed
	return w.idle >= limit
}
