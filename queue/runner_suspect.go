package queue

import (
	"fmt"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/block"
)

// When a worker dies, one of its jobs may have been the cause, and would end the next worker,
// too. So jobs that it ran, or may have read, are put on trial by whoever takes them over. The
// row of such a job says so before the job begins, and whoever finds the row of a dead worker
// counts the death against that job.
//
//   - Jobs that the dead worker may have read and begun are checked out first, with that crash
//     counted. No more of them are on trial at a time than the worker can run: if it dies, too,
//     what was only waiting for its trial is not suspected for it.
//   - Jobs that it had checked out and trusted run again, as many at a time, in places of their
//     own. So do jobs that were handed over and have met a death before.
//   - A job that was on trial when its worker died runs alone: see runner_trial.go.
//
// Those for which others wait go first, in each of these: the head of a FIFO queue, and then the
// heads of keys.
//
// A job that has run for provenAfter is trusted. Its row then says running again, and its place
// goes to another job, however long it runs.
//
// A job becomes a dead letter only if a worker died while it ran alone, and that was at least
// the MaxCrashes-th death. Up to then its neighbors could have been the cause. A job that ends
// its worker later than provenAfter is always trusted, so it becomes a dead letter after
// maxCrashes times MaxCrashes deaths, whoever caused them.
//
// A worker whose jobs are isolated suspects none. Nor does one that removes jobs before they
// begin: such a job cannot come back.

const (
	// doubtful is the most suspected jobs that run at a time, and the most survivors: enough for
	// a commit to serve many, since all that a dead worker may have begun is checked out first.
	doubtful = 32

	// provenAfter is how long a job runs until it is trusted, unless a test is in haste.
	provenAfter = 5 * time.Second

	// maxCrashes times the queue's MaxCrashes is after how many deaths a job is a dead letter,
	// whether or not it ran alone.
	maxCrashes = 4
)

// trialPlaces counts the jobs that may end the process.
type trialPlaces struct {
	places  int          // how many of a kind may be on trial: no more than the worker can run
	onTrial [trials]int  // their number, by kind of trial
	refused [trials]bool // some were not taken over for lack of a place
	lone    loneTrials
}

// trialOf returns the trial that a checked out job needs when this worker takes it over. mu is held.
func (run *runner) trialOf(q *workQueue, r runningRow) trial {
	switch {
	case run.opt.Isolated || r.state == rowHanded && r.crashes == 0:
		return trusted
	case r.left && (r.state == rowRunning || run.past.knows(r.at(q), r.lockBy)): // its process lives
		return trusted
	case r.state == rowRunning, r.state == rowStuck, r.state == rowHanded: // a worker that hands a job over may not have begun its trial
		return survivor
	case r.left && r.state == rowSuspect:
		return survivor
	}
	return accused
}

// tryAs puts the job on trial, or ends its trial. mu is held.
func (d *Delivery) tryAs(why trial) { d.trial.why, d.state.Tried = why, why != trusted }

// admits reports whether a job may come on trial that does not have to run alone. While such a
// job waits none does, since it would be suspected again if that job ended the worker. mu is held.
func (t *trialPlaces) admits(why trial) bool {
	return why == trusted || t.lone.called == 0 && t.onTrial[why] < t.places
}

// suspect checks out jobs of a rank that are under suspicion, if there is room. mu is held.
func (run *runner) suspect(b *tenure, rank int) {
	for run.admits(suspected) && !b.Gone && !b.Leaving && !run.closing {
		j := b.Try(rank)
		if j == nil {
			return
		}
		d := deliveryOf(j)
		d.tryAs(suspected)
		run.onTrial[suspected]++
		run.checkOut(d, d.Crashes+1).charge = charge("", b.had)
	}
}

// suspectMore checks out jobs of all blocks, since there may be room. mu is held.
func (run *runner) suspectMore() {
	for rank := range block.Ranks {
		for _, q := range run.queues {
			for _, b := range q.blocks {
				if !run.admits(suspected) {
					return
				}
				run.suspect(b, rank)
			}
		}
	}
}

// parkAtLimit takes away the place of a job on trial that waits for a limit, since that may take
// any time, and has others come on trial. When it begins there may be more of them than
// otherwise. mu is held.
func (run *runner) parkAtLimit(j *block.Job) {
	if run.vacate(deliveryOf(j)) {
		run.admitMore()
	}
}

// vacate takes away the place of a job on trial, and reports whether it had one. mu is held.
func (t *trialPlaces) vacate(d *Delivery) bool {
	if d.trial.why == trusted || d.trial.atLimit {
		return false
	}
	d.trial.atLimit = true
	t.onTrial[d.trial.why]--
	return true
}

// acquit ends a job's trial, whatever the outcome. What waits for its place goes on. mu is
// held.
func (run *runner) acquit(d *Delivery) {
	if d.trial.why == trusted {
		return
	}
	run.vacate(d)
	d.tryAs(trusted)
	d.trial.atLimit = false
	if t := &run.lone; t.d == d && t.began && d.state.Phase == block.PhaseEnded {
		t.ended = instant.Now() // see written
	} else {
		run.doneAlone(d)
	}
	run.admitMore()
}

// admitMore has jobs come on trial, since there may be room. mu is held.
func (run *runner) admitMore() {
	run.suspectMore()
	for t := range trials {
		if run.refused[t] && run.admits(t) {
			run.refused[t] = false
			run.nudge()
		}
	}
}

// guilty reports whether a job that was found with a worker that has ended is to become a dead letter.
func (run *runner) guilty(q *workQueue, r runningRow) bool {
	most := q.set.MaxCrashes
	switch {
	case run.opt.Isolated || r.state == rowHanded:
		return false
	case r.losses >= maxLosses*most:
		return true
	case !r.died():
		return false
	case r.state == rowAlone:
		return r.crashes >= most
	}
	return r.crashes >= maxCrashes*most
}

// verdictText says why a job is a dead letter.
func (run *runner) verdictText(q *workQueue, r runningRow) string {
	if r.losses >= maxLosses*q.set.MaxCrashes {
		return fmt.Sprintf("lost its lease %d times: the workers that ran it lived, and did not reach the database in time", r.losses)
	}
	return fmt.Sprintf("%d workers died while it was running", r.crashes)
}

// checkOut gives a job a row of its own, whether it is running or about to run. mu is held.
func (box *outbox) checkOut(d *Delivery, crashes int) *move {
	d.state.Row = block.RowLeaving
	m := &move{d: d, out: true, attempts: d.Attempt, crashes: crashes, detail: d.trial.why.state()}
	if d.began != 0 {
		m.delay = -since(d.began)
	}
	d.b.Move(m)
	d.b.q.h.enlist(d.b)
	return m
}

// checkedOut records that a job has a row of its own, under a name of this worker: its block can leave
// without it. mu is held.
func (run *runner) checkedOut(m *move, node string) {
	d, b := m.d, m.d.b
	d.state.Row = block.RowFree
	b.Forget(d.ID)
	run.relieve(d)
	switch {
	case m.here:
		run.goOn(d, node)
	case d.state.Tx != block.TxNone: // deleted by its handler's transaction
	default: // deleted by somebody else
		d.ctx.end(fmt.Errorf("%w: its row is gone", ErrLost))
		if d.ending == nil && d.state.Phase == block.PhaseRead {
			b.Count--
			b.Unweigh(&d.state)
			run.forgo(d)
			b.ReleaseIfHeld(d.line(), d.ID)
		}
	}
	run.endNow(d)
	if b.Leaving && b.idle() {
		run.nudge()
	}
}

// freed records that nothing is under way any more with a job's row. mu is held.
func (run *runner) freed(d *Delivery) {
	d.state.Row = block.RowFree
	run.endNow(d)
}

// endNow ends a job whose outcome came while something was under way with its row, or lets its handler begin: see
// announced. mu is held.
func (run *runner) endNow(d *Delivery) {
	if d.UniqueUntil == UntilBegin {
		run.work.Broadcast()
	}
	if e := d.ending; e != nil {
		d.ending = nil
		run.end(d, e.err, e.detail)
	}
}

// goOn continues a job that now has a row of its own. If the lease was lost before that was known, the row has
// the name that is over: it is an orphan, which this worker may have taken over already. mu is held.
func (run *runner) goOn(d *Delivery, node string) {
	b := d.b
	b.Disengage(&d.state)
	d.state.From = tableRunning
	if node != run.lease.node {
		if d.state.Phase == block.PhaseRead {
			d.state.Phase = block.PhaseEnded
		}
		run.bereave(d, ErrLost)
		return
	}
	run.out[d.at()], run.rows[d.at()] = d, d
	switch {
	case d.state.Phase != block.PhaseRead:
	case b.Gone:
		run.forgo(d)
	default: // it was under suspicion, counts already, and may start now
		b.Readmit(&d.state)
		run.offer(b, 1)
	}
}

// undone takes back moves of a block that was lost. mu is held.
func (run *runner) undone(moves []*move) {
	for _, m := range moves {
		d := m.d
		d.state.Row = block.RowFree
		if m.out {
			if d.ending == nil && d.state.Phase == block.PhaseRead {
				run.forgo(d)
			}
			run.endNow(d)
			continue
		}
		if d.state.From == tableRunning { // which needs no block
			d.b.Moves = append(d.b.Moves, m)
			continue
		}
		run.conclude(d, run.c.clock.reading(), lost, ErrLost, 0)
	}
}

// slow is how long a job runs before it is checked out, unless a test is in haste.
const slow = time.Second
