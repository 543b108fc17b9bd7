package queue

import (
	"slices"
	"time"
)

// What a worker does next follows from what it has: a block with ready jobs is listed, one
// that there is something to read or write of is queued, and whoever waits wakes when there
// is work. Signals say so at once. The audit derives the same from the state, so that a signal
// that was lost, or was never sent, costs a second and no more.

// auditEvery is how often a worker looks whether its lists and those who wait agree with
// what it has.
const auditEvery = time.Second

// audit puts right what a lost signal has left behind. mu is held.
func (w *Worker) audit() {
	listed, queued := map[*block]bool{}, map[*block]bool{}
	for _, q := range w.queues {
		for _, b := range q.heap {
			listed[b] = true
		}
		q.listed = slices.Contains(w.runnable, q)
	}
	for _, b := range w.serve {
		queued[b] = true
	}
	for _, q := range w.queues {
		for _, b := range q.blocks {
			if b.still() && !b.spot.Listed && !listed[b] {
				continue
			}
			w.recount(b)
			b.spot.Listed, b.queued = listed[b], queued[b]
			w.offer(b, 0)
			w.enlist(b)
		}
	}
	for b := range w.remnants {
		b.queued = queued[b]
		w.enlist(b)
	}
	if len(w.serve) > 0 {
		w.chores.Broadcast()
	}
	if len(w.runnable) > 0 || w.closing {
		w.work.Broadcast()
	}
}

// recount counts what has been read of a block and not started: a count that is too high
// would keep the worker from reading more. mu is held.
func (w *Worker) recount(b *block) {
	if b.serving { // what is being checked out is in no list
		return
	}
	n := b.ready.Len() + len(b.bare) + len(b.doubted)
	for _, m := range b.moves {
		if m.out && m.d.began == 0 && !m.d.ended {
			n++
		}
	}
	for _, r := range b.refusals {
		if r.out() && !r.d.ended {
			n++
		}
	}
	if n == b.count {
		return
	}
	w.log.Error("the count of ready jobs was wrong, and is put right; please report this", "queue", b.q.name,
		"block", b.divided, "was", b.count, "is", n)
	w.miscounted(b.count, n)
	b.count = n
}

// miscounted is what a new worker's miscounted is: nothing, but in tests.
var miscounted = func(int, int) {}
