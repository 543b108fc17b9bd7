package queue

import (
	"fmt"

	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/instant"
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
