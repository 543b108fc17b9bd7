package queue

import (
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

// How many jobs a worker reads at once if its options do not say: as many as it begins in
// readFor, across all of its blocks. So a fast worker reads many with each round trip, and one
// with slow jobs reads no more than it can begin soon.
//
// A block's row says how many jobs its worker reads at once, since so many may have crashed the
// worker (see runner_suspect.go). So the row is written before a larger read.

const (
	leastBatch = 100
	maxBatch   = 1000

	readFor    = 100 * time.Millisecond
	adaptEvery = 50 * time.Millisecond

	// slowFor is how long a worker must be slower before it reads less, so that a short pause
	// writes no row.
	slowFor = 5 * time.Second
)

// adapt recomputes how many jobs to read at once. mu is held.
func (run *runner) adapt(at instant.Instant) {
	if !run.reads.adapts || at.Sub(run.reads.at) < adaptEvery {
		return
	}
	blocks := 0
	for _, q := range run.queues {
		for _, b := range q.blocks {
			if b.Reads.Full || b.Count > 0 {
				blocks++
			}
		}
	}
	run.reads.choose(at, run.begun, blocks)
}

// choose updates the size from the number of jobs begun so far and the number of blocks.
func (r *batchSize) choose(at instant.Instant, begun, blocks int) {
	took, n := at.Sub(r.at), begun-r.begun
	first := r.at == 0
	r.at, r.begun = at, begun
	if first {
		return
	}
	wanted := int(float64(n) * float64(readFor) / float64(took) / float64(max(1, blocks)))
	wanted = min(max(wanted, leastBatch), maxBatch)
	switch has := max(r.size, leastBatch); {
	case wanted >= has*3/2, wanted == maxBatch:
		r.size, r.fast = wanted, at
	case wanted >= has/2:
		r.fast = at
	case at.Sub(r.fast) >= slowFor:
		r.size, r.fast = wanted, at
	}
}
