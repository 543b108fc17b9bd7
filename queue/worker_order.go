package queue

import (
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/block"
)

// Which job a worker begins next. It serves its queues in turn, one job each. Within a queue it
// begins the most urgent job, and of those the oldest, across all its blocks: the blocks with
// ready jobs are a heap ordered by their first jobs.
//
// A block whose next jobs are still in the table may have an older one. So the others wait while
// such a block is read: right after it was taken, and when it has run out of read jobs and has
// more, which reading ahead mostly prevents. They wait at most for patience, so that a hanging
// read delays no other block.

// patience is how long a queue waits for blocks that are about to be read.
const patience = 250 * time.Millisecond

// Spot returns the block's position among those of its queue that have ready jobs.
func (b *tenure) Spot() *block.Spot { return &b.spot }

// unread reports whether a block without startable jobs is about to be read: its first jobs, or
// those after b.Reads.ReadTo.
func (b *tenure) unread() bool {
	return !b.spot.Listed && (b.Reads.Unseen || b.Reads.Full) && b.readable()
}

// readable reports whether the block is read as soon as there is reason to.
func (b *tenure) readable() bool {
	return b.Open() && b.failures == 0 && b.HasRoom() && !b.Crowded()
}

// list inserts a block into its queue's heap, or moves it there. mu is held.
func (q *workQueue) list(b *tenure) {
	h, ok := b.Head()
	if !ok {
		return
	}
	q.heap.Set(b, h)
	if !q.listed {
		q.listed = true
		q.w.runnable = append(q.w.runnable, q)
	}
}

// unlist takes the first block out of the heap. mu is held.
func (q *workQueue) unlist() {
	q.heap.Drop()
	q.known = false
}

// popReady takes the next job of one queue after the other. It marks the job as started: a
// worker whose lease is over starts none. mu is held.
func (w *Worker) popReady() *Delivery {
	if w.lone.only() {
		return w.popLone()
	}
	if len(w.runnable) == 0 {
		return nil
	}
	at := instant.Now()
	if at >= w.lease.deadline {
		return nil
	}
	for n := len(w.runnable); n > 0; n-- {
		q := w.runnable[0]
		copy(w.runnable, w.runnable[1:])
		w.runnable[len(w.runnable)-1] = q
		d, b := q.pop(at)
		if len(q.heap) == 0 {
			q.listed = false
			w.runnable = w.runnable[:len(w.runnable)-1]
		}
		if d == nil {
			continue
		}
		w.begins(b, d, at)
		if d.trial.why == accused {
			w.holdBack(d)
			return nil
		}
		return d
	}
	return nil
}

// pop takes the next job of a queue out of its block. mu is held.
func (q *workQueue) pop(at instant.Instant) (*Delivery, *tenure) {
	w := q.w
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
			w.limits.Wake()
			return nil, nil
		}
		if q.waitsFor(h, at) {
			return nil, nil
		}
		j := b.Pop()
		if b.HasRoom() || b.Lacks() {
			w.enlist(b)
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

// waitsFor reports whether a job whose turn has come waits for blocks that are about to be read,
// or taken, and may have an older one. mu is held.
func (q *workQueue) waitsFor(h block.Place, at instant.Instant) bool {
	if q.known || q.w.alone {
		return false
	}
	if !q.joining && !q.olderUnread(h) {
		q.waitsFrom = 0
		return false
	}
	if q.waitsFrom == 0 {
		q.waitsFrom = at
	}
	q.waits = at.Sub(q.waitsFrom) < q.w.patience
	return q.waits
}

// olderUnread reports whether a block that is about to be read may have an older job. It notes
// if there is none that is about to be read. mu is held.
func (q *workQueue) olderUnread(h block.Place) bool {
	q.known = true
	if len(q.heap) == len(q.blocks) {
		return false
	}
	older := false
	for _, b := range q.blocks {
		if b.unread() {
			q.known, older = false, older || b.Reads.Unseen || b.Reads.ReadTo.Before(h)
		}
	}
	return older
}

// neediest removes and returns the block that a flusher serves next: alternately the first one,
// and the one with the fewest jobs left among those that have more to read, since the others will
// wait for it. mu is held.
func (w *Worker) neediest() *tenure {
	at := 0
	if w.needs = !w.needs; w.needs {
		least := max(w.opt.Batch, w.reads.size) / 2
		for i, b := range w.serve {
			if b.Reads.Full && b.Count < least && b.readable() {
				at, least = i, b.Count
			}
		}
	}
	b := w.serve[at]
	if at == 0 {
		w.serve = w.serve[1:]
	} else {
		w.serve = slices.Delete(w.serve, at, at+1)
	}
	return b
}

// recheck releases jobs that wait for blocks of the queue to be read, unless they still have to.
// mu is held.
func (q *workQueue) recheck() {
	q.known = false
	if !q.waits {
		return
	}
	if q.w.unasked == nil && len(q.heap) > 0 && q.waitsFor(q.heap[0].spot.First, instant.Now()) {
		return
	}
	q.waits = false
	q.w.work.Broadcast()
}
