package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Lone trials. A job whose worker died while the job was on trial runs alone: nothing else begins
// in this worker until the job has ended or is trusted, and it begins only when everything else
// that runs is trusted. So if the worker then dies, the job is the cause. Its row says that it
// runs alone just before it begins, and no sooner: otherwise, a worker that another job crashes
// while this one waits would convict it.
//
// Everything that runs has to be waited for before such a trial, and not again before the next
// one. So lone trials are held in sessions. Rounds list the jobs that are to run alone, and a
// goroutine tries one after the other, without a round in between: those first for which others
// wait. Trials begin for up to provenAfter. So a session holds other jobs back for at most three
// times provenAfter: until what runs is trusted, until no more trials begin, and while the last
// one lasts. Then others have as much time before the next session. A trial lasts until its end is written, or for
// provenAfter more: if another job ended the worker before that, its row would still say that it runs alone.
//
// A job that waits for its trial stays where its dead worker has left it, so another death
// charges it with nothing. One that waits for a limit is taken over first, since limits count
// only such jobs: it is parked. When the limit lets it pass, it is tried in a session as others are, whatever
// turn it has in its queue; or it opens one, when its turn comes. Each for itself would wait for all that runs, and
// in a fair queue for the turns of all tenants: hundreds of one tenant for minutes. A session waits for a moment
// when their limit is used up, since a limit lets pass only as many at once as it was asked for.

// loneTrials are the sessions of lone trials.
type loneTrials struct {
	docket []orphan             // jobs to be tried, in this order, according to the last rounds
	parked []*Delivery          // taken over, and waiting for limits, in the order in which they are to be tried
	past   map[store.JobID]bool // tried since the last round, which may list them once more
	wake   chan struct{}        // signals that there is something to do

	called instant.Instant // since when a session lasts, or waits for others on trial; 0: there is none
	holds  bool            // nothing else begins
	since  instant.Instant // when it began to hold
	costs  instant.Instant // since when others could have begun but for the session; 0: not yet
	first  instant.Instant // when its first trial began; 0: not yet
	last   instant.Instant // when a trial ended
	recess instant.Instant // no session before then

	d      *Delivery // the job that is tried, or about to be; nil: none
	marked bool      // its row says that it runs alone
	began  bool
	ended  instant.Instant // since when its end is to be written; 0: it has not ended
}

func newLoneTrials() loneTrials {
	return loneTrials{past: map[store.JobID]bool{}, wake: make(chan struct{}, 1)}
}

// loneEvery is the interval between checks whether a job may run alone by now.
const loneEvery = 25 * time.Millisecond

// list replaces what rounds of some queues have found, and calls a session. mu is held.
func (t *loneTrials) list(queues []*workQueue, found []orphan) {
	t.docket = slices.DeleteFunc(t.docket, func(o orphan) bool { return slices.Contains(queues, o.q) })
	for _, o := range found {
		if !t.past[o.at(o.q)] {
			t.docket = append(t.docket, o)
		}
	}
	slices.SortStableFunc(t.docket, func(a, b orphan) int { return cmp.Compare(block.RankOf(a.line), block.RankOf(b.line)) })
	for _, q := range queues {
		for id := range t.past {
			if id.Queue == q.id {
				delete(t.past, id)
			}
		}
	}
	if len(t.docket) == 0 {
		return
	}
	if at := instant.Now(); t.called == 0 && at >= t.recess {
		t.called = at
	}
	signal(t.wake)
}

// take removes a job from the docket, to try it. mu is held.
func (t *loneTrials) take(o *orphan) {
	id := o.at(o.q)
	t.past[id] = true
	t.docket = slices.DeleteFunc(t.docket, func(other orphan) bool { return other.at(other.q) == id })
}

// only reports whether nothing but the job that is tried may begin. mu is held.
func (t *loneTrials) only() bool { return t.holds || t.d != nil }

// hold lets nothing else begin from now on. mu is held.
func (t *loneTrials) hold(at instant.Instant) {
	if t.holds {
		return
	}
	t.holds, t.since = true, at
	if t.called == 0 {
		t.called = at
	}
}

// tryAlone holds the sessions.
func (run *runner) tryAlone(ctx context.Context) {
	trouble := trouble.New(run.log, "trying jobs alone")
	for {
		again, err := run.tryNext(ctx)
		if ctx.Err() == nil {
			trouble.Note(err)
		}
		if err != nil {
			again = shareEvery
		}
		select {
		case <-ctx.Done():
			return
		case <-run.stopping:
			return
		case <-run.lone.wake:
		case <-time.After(again):
		}
	}
}

// tryNext takes the next step of a session, and returns when to take another one at the latest.
func (run *runner) tryNext(ctx context.Context) (again time.Duration, err error) {
	run.mu.Lock()
	at, name := instant.Now(), run.lease.node
	if t := &run.lone; t.ended != 0 && at.Sub(t.ended) >= run.proven {
		run.doneAlone(t.d)
	}
	if d := run.lone.d; d != nil {
		marks := run.marksAlone(d, at)
		run.mu.Unlock()
		if marks {
			err = run.record(ctx, finding{d, rowAlone}, name)
		}
		return 4 * loneEvery, err
	}
	o, b, again := run.nextTrial(at)
	if o == nil {
		run.mu.Unlock()
		return again, nil
	}
	next := *o
	run.lone.take(o)
	run.mu.Unlock()
	return 0, run.adopt(ctx, &next, b, name, accused, rowAlone, run.beginAlone)
}

// marksAlone reports whether the row of a job that waits to run alone is to say now that it does.
// mu is held.
func (run *runner) marksAlone(d *Delivery, at instant.Instant) bool {
	if run.lone.marked || run.lone.began || d.hasEnded() || d.state.Row != block.RowFree || d.ctx.over || !run.solitary(at) {
		return false
	}
	d.state.Row = block.RowUpdating
	return true
}

// nextTrial returns the job that may run alone now, and its block; or when to look again. mu is held.
func (run *runner) nextTrial(at instant.Instant) (o *orphan, b *tenure, again time.Duration) {
	t := &run.lone
	if run.closing || run.lease.node == "" {
		t.docket = nil
	}
	o, b = run.nextAccused()
	var parked *Delivery
	if o == nil {
		parked = run.nextParked()
	}
	switch {
	case o == nil && parked == nil:
		return nil, nil, run.nothingToTry(at)
	case t.first != 0 && at.Sub(t.first) >= run.proven:
		run.adjourn(at)
	case t.called == 0 && at >= t.recess:
		t.called = at
	}
	switch {
	case t.called == 0:
		return nil, nil, max(t.recess.Sub(at), time.Millisecond)
	case !t.holds && run.triesOthers() && at.Sub(t.called) < run.proven:
		return nil, nil, loneEvery
	}
	t.hold(at)
	if run.idle == 0 && !run.alone {
		return nil, nil, loneEvery
	}
	if t.costs == 0 {
		t.costs = at
	}
	if !run.solitary(at) || at >= run.lease.deadline {
		return nil, nil, loneEvery
	}
	if parked != nil {
		parked.b.Start(&parked.state)
		run.begins(parked.b, parked, at)
		run.holdBack(parked)
	}
	return o, b, 0
}

// nothingToTry returns when to look again for a job that may run alone. mu is held.
func (run *runner) nothingToTry(at instant.Instant) time.Duration {
	t := &run.lone
	if len(t.parked) > 0 && t.holds && at.Sub(t.last) < store.DrawFor && at.Sub(t.first) < run.proven {
		return time.Millisecond
	}
	run.adjourn(at)
	if len(t.parked) > 0 {
		return store.DrawFor
	}
	return seldomRound
}

// park has a job that was taken over, and is to run alone, wait for its limit. mu is held.
func (run *runner) park(d *Delivery) {
	run.parkAtLimit(&d.state)
	run.queueUp(d)
	d.b.Ask(&d.state)
	t := &run.lone
	at, _ := slices.BinarySearchFunc(t.parked, d, func(o, d *Delivery) int {
		return cmp.Or(cmp.Compare(block.RankOf(o.line()), block.RankOf(d.line())), -1)
	})
	t.parked = slices.Insert(t.parked, at, d)
	signal(t.wake)
}

// nextParked returns the first of the parked jobs that its limits let pass, or nil. mu is held.
func (run *runner) nextParked() *Delivery {
	t := &run.lone
	t.parked = slices.DeleteFunc(t.parked, func(d *Delivery) bool {
		return d.state.Phase != block.PhaseRead || d.trial.why != accused || d.ctx.over || d.b.Gone
	})
	for _, d := range t.parked {
		if q := d.b.q; d.b.Startable() && !d.state.Unloaded && run.choice.knows(d.Kind) && q.opens(q.limits.Own()) && d.b.Lets(&d.state) {
			return d
		}
	}
	return nil
}

// nextAccused returns the first job of the docket whose turn it is, and its block. mu is held.
func (run *runner) nextAccused() (*orphan, *tenure) {
	for i := range run.lone.docket {
		o := &run.lone.docket[i]
		if b := run.turnOf(o); b != nil && b.Startable() && run.passes(o) && !run.guilty(o.q, o.found()) {
			return o, b
		}
	}
	return nil, nil
}

// triesOthers reports whether jobs are on trial that have not begun. They would be suspected again
// if a job that runs alone ended the worker. mu is held.
func (run *runner) triesOthers() bool {
	n := run.onTrial[suspected] + run.onTrial[survivor]
	for _, d := range run.out {
		if (d.trial.why == suspected || d.trial.why == survivor) && !d.trial.atLimit && (d.state.Phase != block.PhaseRead || !d.b.Startable()) {
			n--
		}
	}
	return n > 0
}

// beginAlone begins a job whose row says that it runs alone. mu is held.
func (run *runner) beginAlone(d *Delivery) {
	t, at := &run.lone, instant.Now()
	if run.closing || t.d != nil || !t.holds {
		run.queueUp(d)
		return
	}
	if t.first == 0 {
		t.first = at
	}
	d.b.Engage(&d.state)
	run.begins(d.b, d, at)
	t.d, t.marked, t.began, t.ended = d, true, false, 0
	run.work.Broadcast()
}

// holdBack makes a job, and others with it, wait until it may run alone. It has passed the
// limiters of its limits. mu is held.
func (run *runner) holdBack(d *Delivery) {
	t, at := &run.lone, instant.Now()
	t.hold(at)
	if t.costs == 0 {
		t.costs = at
	}
	t.d, t.marked, t.began, t.ended = d, false, false, 0
	signal(t.wake)
}

// adjourn ends the session: others may begin, and come on trial. mu is held.
func (run *runner) adjourn(at instant.Instant) {
	t := &run.lone
	if t.called == 0 {
		return
	}
	if t.costs != 0 {
		t.recess = at.Add(at.Sub(t.costs))
	}
	t.called, t.holds, t.costs, t.first = 0, false, 0, 0
	run.work.Broadcast()
	run.admitMore()
}

// popLone returns the job that is to run alone when it may begin. mu is held.
func (run *runner) popLone() *Delivery {
	t, at := &run.lone, instant.Now()
	if t.d == nil || !t.marked || t.began || t.d.ctx.over || at >= run.lease.deadline || !run.choice.wanted.Takes(t.d.Kind) {
		return nil
	}
	t.began = true
	if t.first == 0 {
		t.first = at
	}
	if t.d.over != 0 {
		t.d.over = t.d.over.Add(at.Sub(t.d.began))
	}
	t.d.began = at
	return t.d
}

// doneAlone has the next job tried, or others begin, if a job was the one that ran alone. mu is held.
func (run *runner) doneAlone(d *Delivery) {
	t := &run.lone
	if t.d != d || d == nil {
		return
	}
	t.d, t.ended, t.last = nil, 0, instant.Now()
	signal(t.wake)
	if !t.holds {
		run.work.Broadcast()
	}
}

// written ends a trial that lasted until the job's end was written. mu is held.
func (run *runner) written(d *Delivery) { run.doneAlone(d) }

// heedLone gives up a job that waits to run alone and no longer belongs to this worker. mu is
// held.
func (run *runner) heedLone() {
	if d := run.lone.d; d != nil && !run.lone.began && d.ctx.over {
		d.trial.unbegun = true
		run.end(d, d.ctx.cause, "")
	}
}

// solitary reports whether everything that runs here is trusted, or has run for long enough to
// be. mu is held.
func (run *runner) solitary(at instant.Instant) bool {
	for _, unit := range run.slots {
		for _, d := range unit {
			from := d.began
			if h := run.handlerOf(d.Kind); h != nil && h.batch.Wait > 0 {
				from = max(from, run.lone.since) // it began to gather then, and to run at any time since
			}
			if at.Sub(from) < run.proven {
				return false
			}
		}
	}
	for d := range run.taken {
		if at.Sub(d.began) < run.proven {
			return false
		}
	}
	return true
}

// A finding is the new state for the row of a job on trial.
type finding struct {
	d     *Delivery
	state string
}

// findTrusted lists the jobs of a queue on trial that have run for long enough to be trusted, and
// keeps their rows where they are until that is recorded. mu is held.
func (run *runner) findTrusted(q *workQueue, at instant.Instant) (all []finding) {
	for _, d := range run.out {
		if d.b.q != q || d.trial.why == trusted || !d.state.Running() || d.state.Row != block.RowFree {
			continue
		}
		switch {
		case run.lone.d == d && !run.lone.began, at.Sub(d.began) < run.proven:
		case d.state.Tx != block.TxNone: // its transaction may have locked the row
			run.acquit(d)
		default:
			d.state.Row = block.RowUpdating
			all = append(all, finding{d, rowRunning})
		}
	}
	return all
}

// noteTrusted records which jobs of a queue have run long enough to be trusted. A job's place on
// trial is free only after that is committed, so that a crash is counted correctly.
func (run *runner) noteTrusted(ctx context.Context, q *workQueue, name string) (err error) {
	run.mu.Lock()
	all := run.findTrusted(q, instant.Now())
	run.mu.Unlock()
	for _, f := range all {
		err = errors.Join(err, run.record(ctx, f, name))
	}
	return err
}

// record writes a finding to the job's row, and notes what came of that.
func (run *runner) record(ctx context.Context, f finding, name string) error {
	n, err := run.db.Exec(ctx, store.SetTrial, sqlrun.Args{
		"queue": f.d.b.q.id, "divided": f.d.b.divided, "id": f.d.ID, "node": name, "state": f.state,
	})
	run.mu.Lock()
	defer run.mu.Unlock()
	run.found(f, n, err)
	return err
}

// found records what came of writing a finding, which changed n rows. After an error it is
// tried again. A job whose row is gone was cancelled: it proves nothing any more, whether its
// handler heeds that or not. mu is held.
func (run *runner) found(f finding, n int64, err error) {
	d := f.d
	switch {
	case err != nil:
	case f.state == rowRunning:
		run.acquit(d)
	case run.lone.d == d && n > 0:
		run.lone.marked = true
		run.work.Broadcast()
	}
	run.freed(d)
}
