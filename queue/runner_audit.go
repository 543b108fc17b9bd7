package queue

import (
	"slices"
	"time"
)

// What a worker has to do follows from its state: a block with ready jobs is listed, a block
// with something to read or write is queued, and waiters wake when there is work. Signals
// trigger that at once. The audit derives it again from the state, so that a signal that was
// lost, or never sent, costs no more than a second.

// auditEvery is the interval between checks that a worker's lists and waiters match its state.
const auditEvery = time.Second

// audit repairs what a lost signal has left behind. mu is held.
func (run *runner) audit() {
	listed, queued := map[*tenure]bool{}, map[*tenure]bool{}
	for _, q := range run.queues {
		for _, b := range q.heap {
			listed[b] = true
		}
		q.listed = slices.Contains(run.runnable, q)
	}
	for _, b := range run.serve {
		queued[b] = true
	}
	for _, q := range run.queues {
		for _, b := range q.blocks {
			if b.still() && !b.spot.Listed && !listed[b] {
				continue
			}
			run.recount(b)
			b.spot.Listed, b.queued = listed[b], queued[b]
			run.offer(b, 0)
			run.enlist(b)
		}
	}
	for b := range run.remnants {
		b.queued = queued[b]
		run.enlist(b)
	}
	if len(run.serve) > 0 {
		run.chores.Broadcast()
	}
	if len(run.runnable) > 0 || run.closing {
		run.work.Broadcast()
	}
}

// recount counts the jobs of a block that were read and not started: a count that is too high
// would keep the worker from reading more. mu is held.
func (run *runner) recount(b *tenure) {
	if was, is := b.Recount(); was != is {
		run.log.Error("the count of ready jobs was wrong, and is put right; please report this", "queue", b.q.name,
			"block", b.divided, "was", was, "is", is)
		run.miscounted(was, is)
	}
}

// miscounted initializes a new worker's miscounted: it does nothing, except in tests.
var miscounted = func(int, int) {}
