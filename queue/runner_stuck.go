package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A handler cannot be ended from outside. One that ignores that its job's timeout is over keeps its slot, and
// its job keeps its row, and with it its key, its place in a FIFO queue, its unique key and its permits: what
// has to wait for the job waits until the handler returns, or until this process has ended. But it is not
// silent: the failure is recorded in the row, and logged.

// returnGrace is the time for a handler to return after its job's timeout, or Stall, is over.
const returnGrace = 10 * time.Second

// heedStuck notices a handler that has not returned in time. mu is held.
func (run *runner) heedStuck(d *Delivery, at instant.Instant) {
	switch {
	case d.stuck != nil || d.state.From == tableNone || d.late == 0 || at.Sub(d.late) < run.returns:
		return
	case !errors.Is(d.ctx.cause, ErrTimeout) && !errors.Is(d.ctx.cause, ErrStalled):
		return
	}
	d.stuck = fmt.Errorf("%w; its handler has not returned, and runs on", d.ctx.cause)
	run.unnoted = append(run.unnoted, d)
	run.log.Warn("a handler does not return though its job's time is over: its slot is taken, and what waits for the job waits, until it does",
		"queue", d.Queue, "kind", d.Kind, "id", d.ID, "attempt", d.Attempt, "for", at.Sub(d.began), "stuck", run.stuck(), "slots", len(run.slots))
}

// stuck returns how many slots are taken by handlers that do not return. mu is held.
func (slots *handlerSlots) stuck() (n int) {
	for _, unit := range slots.slots {
		if slices.ContainsFunc(unit, func(d *Delivery) bool { return d.stuck != nil }) {
			n++
		}
	}
	return n
}

// heedAllStuck gives the worker up when all its slots have been stuck for long enough. mu is held.
func (run *runner) heedAllStuck(at instant.Instant) {
	switch {
	case run.opt.EndStuck == 0 || run.closing || len(run.slots) == 0: // a Receiver has no slots
		return
	case run.stuck() < len(run.slots):
		run.allStuck = 0
		return
	case run.allStuck == 0:
		run.allStuck = at
	}
	if at.Sub(run.allStuck) >= run.opt.EndStuck {
		run.log.Error("the worker ends: its handlers do not return", "queues", run.opt.Queues, "slots", len(run.slots),
			"for", at.Sub(run.allStuck))
		run.closing = true
		close(run.hopeless)
	}
}

// noteStuck records in the rows of a queue's jobs that their attempts have failed, though they still run.
func (run *runner) noteStuck(ctx context.Context, q *workQueue, name string) (failed error) {
	var all, later []*Delivery
	run.mu.Lock()
	for _, d := range run.unnoted {
		switch {
		case d.hasEnded(): // it has returned
		case d.b.q != q || d.state.Row != block.RowFree || d.state.From != tableRunning && d.b.mayLeave(d, instant.Now()):
			later = append(later, d)
		case d.state.From == tableRunning && d.state.Tx == block.TxNone: // else its row may be locked by its own transaction
			d.state.Row = block.RowUpdating
			all = append(all, d)
		}
	}
	run.unnoted = later
	run.mu.Unlock()
	for _, d := range all {
		n, err := run.db.Exec(ctx, store.NoteStuck, sqlrun.Args{
			"queue": q.id, "divided": d.b.divided, "id": d.ID, "node": name, "attempt": d.Attempt,
			"error": limitText(d.stuck.Error(), 4000),
		})
		failed = errors.Join(failed, err)
		run.mu.Lock()
		ends := d.ending != nil
		if run.freed(d); !ends && (err != nil || n == 0 && !d.hasEnded()) { // somebody else holds the row: a later round comes back to it
			run.unnoted = append(run.unnoted, d)
		}
		run.mu.Unlock()
	}
	return failed
}

// tellReturned logs that a handler has returned after all. mu is held.
func (run *runner) tellReturned(d *Delivery) {
	if d.stuck != nil {
		run.log.Info("a handler that was stuck has returned", "queue", d.Queue, "kind", d.Kind, "id", d.ID, "after", since(d.began))
	}
}
