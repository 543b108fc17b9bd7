package queue

import (
	"github.com/dbcron/dbcron/internal/instant"
)

// Which job a worker begins next. It serves its queues in turn, one job each. Within a queue it
// begins the most urgent job, and of those the oldest, across all its blocks: the blocks with
// ready jobs are a heap ordered by their first jobs.
//
// A block whose next jobs are still in the table may have an older one. So the others wait while
// such a block is read: right after it was taken, and when it has run out of read jobs and has
// more, which reading ahead mostly prevents. They wait at most for patience, so that a hanging
// read delays no other block.

// list inserts a block into its queue's heap, or moves it there. mu is held.
func (slots *handlerSlots) list(b *tenure) {
	q := b.q
	h, ok := b.Head()
	if !ok {
		return
	}
	q.heap.Set(b, h)
	if !q.listed {
		q.listed = true
		slots.runnable = append(slots.runnable, q)
	}
}

// unlist takes the first block out of the heap. mu is held.
func (q *workQueue) unlist() {
	q.heap.Drop()
	q.known = false
}

// popReady takes the next job of one queue after the other. It marks the job as started: a
// worker whose lease is over starts none. mu is held.
func (run *runner) popReady() *Delivery {
	if run.lone.only() {
		return run.popLone()
	}
	if len(run.runnable) == 0 {
		return nil
	}
	at := instant.Now()
	if at >= run.lease.deadline {
		return nil
	}
	for n := len(run.runnable); n > 0; n-- {
		q := run.runnable[0]
		copy(run.runnable, run.runnable[1:])
		run.runnable[len(run.runnable)-1] = q
		d, b := q.pop(at)
		if len(q.heap) == 0 {
			q.listed = false
			run.runnable = run.runnable[:len(run.runnable)-1]
		}
		if d == nil {
			continue
		}
		run.begins(b, d, at)
		if d.trial.why == accused {
			run.holdBack(d)
			return nil
		}
		return d
	}
	return nil
}

// pop takes the next job of a queue out of its block. mu is held.
func (q *workQueue) pop(at instant.Instant) (*Delivery, *tenure) {
	for len(q.heap) > 0 {
		b := q.heap[0]
		h, ok := b.Head()
		switch {
		case !ok || !b.Startable():
			q.unlist()
			continue
		case b.spot.First.Before(h): // its first job is gone
			q.heap.Set(b, h)
			continue
		}
		if !q.opens(q.limits.Own()) {
			q.h.limits.Wake()
			return nil, nil
		}
		if q.waitsFor(h, at) {
			return nil, nil
		}
		j := b.Pop()
		if b.HasRoom() || b.Lacks() {
			q.h.enlist(b)
		}
		if next, ok := b.Head(); ok {
			q.heap.Set(b, next)
		} else {
			q.unlist()
		}
		if j != nil {
			return deliveryOf(j), b
		}
	}
	return nil, nil
}
