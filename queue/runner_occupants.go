package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// What happens to the jobs of a block when its holder gives it up, and what the worker does with the jobs of others in each round.

// checkOutAll checks out the jobs that run in a block. mu is held.
func (run *runner) checkOutAll(b *tenure, at instant.Instant) {
	for j := range b.AllSeen() {
		if d := deliveryOf(j); j.InPlace() && !run.opt.AtMostOnce && b.mayLeave(d, at) {
			run.checkOut(d, d.Crashes)
		}
	}
}

// moveOut ends what an idle block still has here, and returns the checked out jobs that have not started. mu is held.
func (run *runner) moveOut(b *tenure) (unstarted []int64) {
	run.forsake(b)
	for j := range b.Unstarted() {
		if j.From == tableRunning {
			run.forgo(deliveryOf(j))
			unstarted = append(unstarted, j.ID)
		}
	}
	return unstarted
}

// wake makes handlers look for jobs. mu is held.
func (run *runner) wake() { run.work.Broadcast() }

func (run *runner) areBusy() (long, starved bool) { return run.findBusy(), run.starved.is }

func (run *runner) begunAndReady() (begun int, ready bool) { return run.begun, len(run.runnable) > 0 }

func (run *runner) isOut(id store.JobID) bool { return run.out[id] != nil }

func (run *runner) queuesOut() map[*workQueue]bool {
	mine := map[*workQueue]bool{}
	for _, d := range run.out {
		mine[d.b.q] = true
	}
	return mine
}

func (run *runner) shed(j *block.Job) {
	d := deliveryOf(j)
	d.Payload, d.saved = nil, nil
}

func (run *runner) died() { signal(run.ends.died) }

// orphansOf finds checked out jobs of the blocks in some queues whose workers have ended, and takes them over.
func (run *runner) orphansOf(due []*workQueue) adopter {
	g := run.takeSnapshot(due)
	return func(ctx context.Context, shared []*workQueue, s *view, name string) (failed error) {
		var found orphanSearch
		for _, q := range shared {
			failed = errors.Join(failed, run.noteTrusted(ctx, q, name), run.noteStuck(ctx, q, name), run.findOrphans(ctx, q, s, g, name, &found))
		}
		return errors.Join(failed, run.adoptAll(ctx, &found, name), run.trust(ctx, found.cleared, name))
	}
}

// bereave ends a checked out job whose row has a name of this worker that is over. What ran for long enough did
// not end the process. mu is held.
func (run *runner) bereave(d *Delivery, cause error) {
	d.ctx.end(cause)
	if run.lone.d == d && !run.lone.began {
		return // see heedLone
	}
	if d.began != 0 && since(d.began) >= run.proven {
		run.past.clear(d)
	}
	run.acquit(d)
}

// forgo gives up a checked-out job that has not started. mu is held.
func (run *runner) forgo(d *Delivery) {
	d.state.Phase = block.PhaseEnded
	run.disregard(d)
	run.acquit(d)
}

// drop forgets a block that no longer belongs to this worker. mu is held.
func (run *runner) drop(b *tenure, cause error) {
	if b.Gone {
		return
	}
	b.Gone = true
	delete(b.q.blocks, b.divided)
	run.forsake(b)
	for j := range b.Unstarted() { // checked out and not started: whoever finds the row begins it
		if j.From == tableRunning {
			run.forgo(deliveryOf(j))
		}
	}
	for j := range b.AllSeen() {
		if j.From == tableRunning || j.HasEnded() {
			continue
		}
		d := deliveryOf(j)
		d.ctx.end(cause)
		if j.Phase == block.PhaseRead && j.Row == block.RowFree {
			run.acquit(d)
		}
	}
	moves := b.Moves
	b.Moves = nil
	run.undone(movesOf(moves)) // which keeps those of jobs with rows of their own
	b.Drop()
	b.q.recheck()
	run.enlistGone(b)
}

// giveUpLost ends a received job that no longer belongs to this worker: nobody will return from
// it, and others may wait for its key. mu is held.
func (run *runner) giveUpLost(d *Delivery) {
	if run.taken[d] && d.ctx.over && errors.Is(d.ctx.cause, ErrLost) {
		delete(run.taken, d)
		run.end(d, d.ctx.cause, "")
	}
}

// supersede ends a received job that has come back: another process has reported its failure,
// which this worker had not noticed yet. mu is held.
func (run *runner) supersede(d *Delivery) {
	if was := run.out[d.at()]; was != nil && was != d && run.taken[was] {
		was.ctx.end(fmt.Errorf("%w: it has failed elsewhere", ErrLost))
		run.giveUpLost(was)
	}
}

// forgetLost forgets a job that no longer belongs to this worker. What waits for its key goes
// on when it is known whether the job still runs, or waits for its retry, elsewhere: see
// letGo. mu is held.
func forgetLost(d *Delivery) {
	switch d.b.Seen(d.ID) {
	case &d.state:
		d.b.ForgetSoon(d.ID)
	case nil:
	default:
		return // it has come back
	}
	if d.line() != "" {
		d.b.Part(d.line(), d.ID)
	}
}

// offer adds a block to those with ready jobs, if it has any, and wakes as many handlers as it
// has jobs. mu is held.
func (slots *handlerSlots) offer(b *tenure, jobs int) {
	if b.Startable() {
		slots.list(b)
	}
	for range min(jobs, slots.idle) {
		slots.work.Signal()
	}
}

// findBusy reports whether the worker is busy with long jobs. mu is held.
func (run *runner) findBusy() bool {
	if run.unasked != nil {
		return run.unasked()
	}
	long := 0
	for _, unit := range run.slots {
		if len(unit) > 0 && unit[0].state.From == tableRunning {
			long++
		}
	}
	if run.longs++; long < len(run.slots) || long == 0 {
		run.longs = 0
	}
	return run.longs >= longTicks
}

// longTicks is the number of consecutive checks that must find all slots taken by long jobs for
// a worker to count as busy: if the jobs end soon, the change is not worth it.
const longTicks = 3
