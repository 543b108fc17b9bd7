package queue

import (
	"fmt"

	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/block"
)

// lose gives up everything that this process held: others may have it by now. A worker that leaves has
// given up everything already: a renewal that was under way then finds no lease, which is no loss.
func (w *Worker) lose(why string) {
	if !w.forfeit(why) || w.c.opt.LeaseLost == nil {
		return
	}
	barrier.Tell(w.log, "LeaseLost", func() { w.c.opt.LeaseLost(why) })
}

// forfeit is lose without calling the program. It reports whether there was a lease.
func (w *Worker) forfeit(why string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lease.node == "" || w.lease.over {
		return false
	}
	w.log.Warn("the lease was lost; running jobs are cancelled, and done again by others", "node", w.lease.node, "reason", why)
	w.past.lost(w.lease.node)
	w.lease.ended = append(w.lease.ended, w.lease.node)
	w.lease.node, w.lease.last = "", w.lease.node
	w.lease.lasts(0)
	cause := fmt.Errorf("%w: %s", ErrLost, why)
	for _, q := range w.queues {
		for _, b := range q.blocks {
			w.drop(b, cause)
		}
	}
	for id, d := range w.out {
		delete(w.out, id)
		w.bereave(d, cause)
	}
	w.heedLone()
	w.adjourn(instant.Now())
	clear(w.rows)
	w.limits.Lose()
	w.work.Broadcast() // handlers that have a job and wait for the lease: see stillMine
	return true
}

// bereave ends a checked out job whose row has a name of this worker that is over. What ran for long enough did
// not end the process. mu is held.
func (w *Worker) bereave(d *Delivery, cause error) {
	d.ctx.end(cause)
	if w.lone.d == d && !w.lone.began {
		return // see heedLone
	}
	if d.began != 0 && since(d.began) >= w.proven {
		w.past.clear(d)
	}
	w.acquit(d)
}

// forgo gives up a checked-out job that has not started. mu is held.
func (w *Worker) forgo(d *Delivery) {
	d.state.Phase = block.PhaseEnded
	w.disregard(d)
	w.acquit(d)
}

// drop forgets a block that no longer belongs to this worker. mu is held.
func (w *Worker) drop(b *tenure, cause error) {
	if b.Gone {
		return
	}
	b.Gone = true
	delete(b.q.blocks, b.divided)
	w.forsake(b)
	for j := range b.Unstarted() { // checked out and not started: whoever finds the row begins it
		if j.From == tableRunning {
			w.forgo(deliveryOf(j))
		}
	}
	for j := range b.AllSeen() {
		if j.From == tableRunning || j.HasEnded() {
			continue
		}
		d := deliveryOf(j)
		d.ctx.end(cause)
		if j.Phase == block.PhaseRead && j.Row == block.RowFree {
			w.acquit(d)
		}
	}
	moves := b.Moves
	b.Moves = nil
	w.undone(movesOf(moves)) // which keeps those of jobs with rows of their own
	b.Drop()
	b.q.recheck()
	w.enlistGone(b)
}
