package queue

import (
	"slices"

	"github.com/dbcron/dbcron/queue/internal/block"
)

// To begin a job costs no statement, so nobody else can tell whether a job of a block has begun. A job that has its unique key
// until it begins has to say so: it is checked out before its handler runs, and the same transaction frees its key. So whoever
// finds the key in use knows that the job has yet to look at what it is about. Jobs of a block that begin together share a
// transaction. When such a job has begun, its end costs as much as that of a job without a key.
//
// The key's row is locked before the job's, as by whoever enqueues.

// announces reports whether a job is to be checked out before its handler runs. Those of a worker that removes rows before
// jobs begin have lost their keys by that.
func (run *runner) announces(d *Delivery) bool {
	return d.UniqueUntil == UntilBegin && d.Attempt == 1 && d.state.From != tableRunning && d.state.From != tableNone && !run.opt.AtMostOnce
}

// announced waits until the jobs of a unit that have begun are checked out, if they have to be, and returns those that are.
func (run *runner) announced(unit []*Delivery) []*Delivery {
	if !slices.ContainsFunc(unit, func(d *Delivery) bool { return d.UniqueUntil == UntilBegin }) {
		return unit
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	return run.awaitAnnounced(unit)
}

// awaitAnnounced is announced with mu held, which it releases while it waits. One whose check-out is refused is tried again
// later: while its handler ran, changes would be missed.
func (run *runner) awaitAnnounced(unit []*Delivery) (begun []*Delivery) {
	leaves := func(d *Delivery) bool { return run.announces(d) && d.state.Row == block.RowLeaving }
	for !run.stopped && slices.ContainsFunc(unit, leaves) {
		run.work.Wait()
	}
	for _, d := range unit {
		switch {
		case !run.announces(d):
			begun = append(begun, d)
			continue
		case d.ctx.over:
			run.end(d, d.ctx.cause, "")
		case run.stopped:
			run.end(d, ErrLost, "")
		default:
			run.end(d, Snooze(firstRefused), "")
		}
		delete(run.taken, d)
	}
	return begun
}
