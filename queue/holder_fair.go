package queue

import "github.com/dbcron/dbcron/queue/internal/block"

// In a fair queue the tenants that have jobs take turns: see queue/internal/block/turns.go.

// shareOut applies whether a queue is fair, and the shares of its tenants. mu is held.
func (q *workQueue) shareOut(shares map[string]int) {
	was := q.turns
	switch {
	case !q.set.Fair:
		q.turns = nil
	case q.turns == nil:
		q.turns = &block.Turns{}
	}
	if q.turns != nil {
		q.turns.Weights = shares
	}
	if q.turns == was {
		return
	}
	for _, b := range q.blocks {
		b.share()
		q.h.occupants.offer(b, b.Count)
		q.h.enlist(b)
	}
}

// share tells a block whether its queue is fair. Jobs that run one after the other have no turns.
func (b *tenure) share() {
	turns := b.q.turns
	if b.fifo {
		turns = nil
	}
	b.Share(turns)
}
