package queue

import (
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/block"
)

// Which blocks of a queue have the oldest jobs, and whether these wait for blocks that are about to be read: see holder_order.go.

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

// waitsFor reports whether a job whose turn has come waits for blocks that are about to be read,
// or taken, and may have an older one. mu is held.
func (q *workQueue) waitsFor(h block.Place, at instant.Instant) bool {
	if q.known || q.h.alone || q.turns != nil { // a turn does not go by age
		return false
	}
	if !q.joining && !q.olderUnread(h) {
		q.waitsFrom = 0
		return false
	}
	if q.waitsFrom == 0 {
		q.waitsFrom = at
	}
	q.waits = at.Sub(q.waitsFrom) < q.h.patience
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

// recheck releases jobs that wait for blocks of the queue to be read, unless they still have to.
// mu is held.
func (q *workQueue) recheck() {
	q.known = false
	if !q.waits {
		return
	}
	if q.h.unasked == nil && len(q.heap) > 0 && q.waitsFor(q.heap[0].spot.First, instant.Now()) {
		return
	}
	q.waits = false
	q.h.occupants.wake()
}

// patience is how long a queue waits for blocks that are about to be read.
const patience = 250 * time.Millisecond
