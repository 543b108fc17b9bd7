package queue

import (
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// How many jobs a worker reads at once that was not told so: as many as it begins in readFor, over
// all of its blocks. So a fast worker reads much with each round trip, and one whose jobs take long
// reads ahead no more than it can begin soon.
//
// A block's row says how many jobs its worker reads at once, since so many may have ended the worker
// (see worker_suspect.go). So the row is written before a read that is larger.

const (
	leastBatch = 100
	mostBatch  = 1000

	readFor    = 100 * time.Millisecond
	adaptEvery = 50 * time.Millisecond

	// slowFor is how long a worker is slower before it reads less: a pause has no row written.
	slowFor = 5 * time.Second
)

// A batchSize is how many jobs of a block to read at once.
type batchSize struct {
	adapts bool
	size   int             // if it is more than opt.Batch
	begun  int             // jobs that had begun when it was chosen last
	at     instant.Instant // when that was
	fast   instant.Instant // when the worker was fast enough for it last
}

// adapt chooses anew how many jobs to read at once. mu is held.
func (w *Worker) adapt(at instant.Instant) {
	if !w.reads.adapts || at.Sub(w.reads.at) < adaptEvery {
		return
	}
	blocks := 0
	for _, q := range w.queues {
		for _, b := range q.blocks {
			if b.reads.Full || b.count > 0 {
				blocks++
			}
		}
	}
	w.reads.choose(at, w.begun, blocks)
}

// choose takes in how many jobs have begun so far, of so many blocks.
func (r *batchSize) choose(at instant.Instant, begun, blocks int) {
	took, n := at.Sub(r.at), begun-r.begun
	first := r.at == 0
	r.at, r.begun = at, begun
	if first {
		return
	}
	wanted := int(float64(n) * float64(readFor) / float64(took) / float64(max(1, blocks)))
	wanted = min(max(wanted, leastBatch), mostBatch)
	switch has := max(r.size, leastBatch); {
	case wanted >= has*3/2, wanted == mostBatch:
		r.size, r.fast = wanted, at
	case wanted >= has/2:
		r.fast = at
	case at.Sub(r.fast) >= slowFor:
		r.size, r.fast = wanted, at
	}
}

// atOnce is how many jobs of a block to read at once, as its row says.
func (b *block) atOnce() int { return max(b.batch, b.q.w.opt.Batch) }

// rebatch tells what the row of a block is to say next; 0: it says so already. A read is larger
// after the row was written, and smaller before that, when what larger ones have read is done. mu is
// held.
func (w *Worker) rebatch(b *block) int {
	size := w.reads.size
	if size < b.batch {
		if len(b.seen) > size {
			return 0
		}
		b.batch = size
	}
	if b.says == size {
		return 0
	}
	return size
}

// batchStep has a block's row say how many jobs are read at once.
func batchStep(t *round) *sqlrun.Step {
	return &sqlrun.Step{Stmt: store.NoteBatch, Args: sqlrun.Args{
		"queue": t.b.q.id, "divided": t.b.divided, "fence": t.b.fence, "node": t.node, "batch": t.batch,
	}}
}
