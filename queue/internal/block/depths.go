package block

import (
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

// An Ago returns the least id of the time that is so long past. No process draws an id from before
// Ago(0) any more.
type Ago func(time.Duration) int64

// deepest is the number of depths: the greatest is about a minute.
const deepest = 5

// Depths plans looks back beyond Window, for jobs of transactions that took longer: one goes back by
// twice, four times, … Window, each half as often as the one before. A look of depth D comes every
// D/2. So it finds what was committed up to D/2 after its id was drawn, and a job of a transaction
// that took a time T (of Window or more) is found less than 2T after its commit. All looks together
// pass a few times as many entries as there were jobs, however long transactions may take; always
// going back by a minute would pass thirty times as many.
//
// The zero value has not looked yet.
type Depths struct {
	looked [deepest + 1]instant.Instant // the last look of at least Window<<level
	rests  instant.Instant              // no look until then
}

// Due returns how far to look back; 0: not beyond Window. Jobs were last read at an instant: a look
// that does not go back beyond that finds nothing that a look at the cursor does not.
func (d *Depths) Due(at, read instant.Instant) time.Duration {
	if at < d.rests {
		return 0
	}
	for level := deepest; level > 0; level-- {
		if depth := Window << level; at.Sub(d.looked[level]) >= depth/2 && at.Sub(read) <= depth+LookEvery {
			return depth
		}
	}
	return 0
}

// Look records a look of a depth.
func (d *Depths) Look(at instant.Instant, depth time.Duration) {
	for level := 1; level <= deepest && Window<<level <= depth; level++ {
		d.looked[level] = at
	}
}

// Rest delays the next looks after one that took long.
func (d *Depths) Rest(until instant.Instant) { d.rests = max(d.rests, until) }
