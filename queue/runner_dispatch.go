package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/block"
)

// handlerSlots are the goroutines that run handlers: the jobs they run, and where the next ones
// are.
type handlerSlots struct {
	work     sync.Cond    // wakes handlers that wait for jobs
	runnable []*workQueue // queues with ready jobs
	idle     int          // number of waiting handlers
	slots    [][]*Delivery
	unnoted  []*Delivery        // stuck jobs whose rows do not say so yet: see runner_stuck.go
	allStuck instant.Instant    // since when all slots are; 0: they are not
	taken    map[*Delivery]bool // by Receive
	begun    int                // jobs that have begun
	lately   beginnings
	group    sync.WaitGroup // handlers
}

// handleJobs processes one job, or batch, after the other.
func (run *runner) handleJobs(slot int) {
	var buffer [1]*Delivery
	var unit []*Delivery
	var last *Delivery // the job that has just ended: the start of the next one sets its end
	inside := false
	run.mu.Lock()
	defer func() {
		if !inside {
			run.mu.Unlock()
			return
		}
		// The handler has ended this goroutine. Another one continues.
		for _, d := range unit {
			run.finish(d, errors.New("the handler ended its goroutine"), "")
		}
		run.mu.Lock()
		run.slots[slot] = nil
		run.mu.Unlock()
		run.group.Go(func() { run.handleJobs(slot) })
	}()
	for {
		unit = run.next(buffer[:0], last)
		if unit == nil {
			return
		}
		run.slots[slot], last = unit, unit[0]
		run.mu.Unlock()
		inside = true
		run.do(unit)
		inside = false
		run.mu.Lock()
		run.slots[slot] = nil
		if unit[0].state.From == tableRunning && run.wasBusy() {
			run.nudge() // it is not any more
		}
		if run.opt.AckEach {
			run.mu.Unlock()
			for _, d := range unit {
				select {
				case <-d.acked:
				case <-run.ended:
				}
			}
			run.mu.Lock()
		}
	}
}

// wasBusy reports whether the others were told that this worker is busy. mu is held.
func (run *runner) wasBusy() bool {
	return slices.ContainsFunc(run.queues, func(q *workQueue) bool { return q.busy })
}

// next waits for the next job or batch, and returns nil when there are no more. It records when
// the previous one ended: asking for the time separately would cost as much as everything else.
// mu is held.
func (run *runner) next(unit []*Delivery, last *Delivery) []*Delivery {
	for {
		if run.stopped || run.closing && !run.owesRuns() {
			return nil
		}
		if unit := run.take(unit); len(unit) > 0 {
			if last != nil {
				last.stopped = max(last.began, unit[0].began)
			}
			return unit
		}
		if last != nil {
			last.stopped, last = instant.Now(), nil
		}
		run.await()
	}
}

// await waits for work. A job that waits for a limit may begin now, if the limit allows, and so may
// one that waits to run alone. mu is held.
func (run *runner) await() {
	if run.limits.Limited() {
		run.limits.Wake()
	}
	if run.lone.holds && run.lone.d == nil {
		signal(run.lone.wake)
	}
	run.idle++
	run.work.Wait()
	run.idle--
}

// owesRuns reports whether there are jobs whose rows are gone, or may be: a stopping worker still
// runs these. mu is held.
func (run *runner) owesRuns() bool {
	if !run.opt.AtMostOnce {
		return false
	}
	for _, q := range run.queues {
		for _, b := range q.blocks {
			if b.Known() > 0 || b.Serving {
				return true
			}
		}
	}
	return false
}

// take takes the next job or batch, if there is one. A batch that was left incomplete, because a job that is
// not of it came first, begins before others that are ready: as long as there are such, it would wait for
// ever, with the keys of its jobs. mu is held.
func (run *runner) take(unit []*Delivery) []*Delivery {
	if run.gathers > 0 && !run.lone.only() {
		if batch := run.ripeBatch(); len(batch) > 0 {
			return batch
		}
	}
	for {
		d := run.popReady()
		switch {
		case d == nil && run.lone.only():
			return nil
		case d == nil:
			return run.ripeBatch()
		}
		h := run.handlerOf(d.Kind)
		if h == nil || h.many == nil || d.trial.why != trusted { // a job that may have crashed a worker begins alone
			return append(unit, d)
		}
		if batch := run.gather(h, d); len(batch) > 0 {
			return batch
		}
	}
}

// begins records the start of a job that was taken out of its block.
func (run *runner) begins(b *tenure, d *Delivery, at instant.Instant) {
	d.began = at
	run.begun++
	run.passLimits(b.q, d)
	if run.announces(d) {
		run.checkOut(d, d.Crashes)
	}
	if limit := run.timeout(b, d); limit > 0 {
		d.over = at.Add(limit)
	}
	if run.opt.AckEach {
		d.acked = make(chan struct{})
	}
}

// timeout returns the timeout of an attempt: that of the job, its kind, or its queue. That of the job is cut to what the queue
// takes: the job may be older than the setting, or written by hand.
func (known *kindHandlers) timeout(b *tenure, d *Delivery) time.Duration {
	limit := d.Timeout
	if longest := b.q.set.LongestTimeout(); longest > 0 {
		limit = min(limit, longest)
	}
	if h := known.handlerOf(d.Kind); h != nil {
		limit = cmp.Or(limit, h.retry.Timeout)
	}
	return cmp.Or(limit, b.q.set.Timeout)
}

// do runs the handler of a unit, and records all outcomes at once: the failed jobs of a batch
// continue together.
func (run *runner) do(unit []*Delivery) {
	if unit = run.stillMine(run.announced(unit)); len(unit) == 0 {
		return
	}
	outcomes := run.try(unit)
	run.mu.Lock()
	defer run.mu.Unlock()
	run.heedHandBacks(outcomes)
	for i, out := range outcomes {
		unit[i].ctx.end(nil)
		run.tellReturned(unit[i])
		run.end(unit[i], out.err, out.stack)
	}
}

// stillMine returns the jobs of a unit that may begin. It is called last, because this process may have been
// paused since the jobs were taken out of their blocks. While the lease is in doubt it waits: either it is
// renewed, or the jobs are lost. Jobs whose rows are removed before they begin are nobody else's.
func (run *runner) stillMine(unit []*Delivery) []*Delivery {
	over := func(d *Delivery) bool { return d.ctx.ended() }
	if !slices.ContainsFunc(unit, over) && (!run.lease.surely.over() || run.opt.AtMostOnce) {
		return unit
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	goes := func(d *Delivery) bool { return !over(d) }
	for instant.Now() >= run.lease.deadline && !run.opt.AtMostOnce && !run.stopped && slices.ContainsFunc(unit, goes) {
		run.work.Wait()
	}
	var mine []*Delivery
	for _, d := range unit {
		switch {
		case over(d):
			run.end(d, d.ctx.cause, "")
		case run.stopped:
			run.end(d, ErrLost, "")
		default:
			mine = append(mine, d)
		}
	}
	return mine
}

// try runs the handler of a unit.
func (known *kindHandlers) try(unit []*Delivery) []tried {
	first := unit[0]
	h := known.handlerOf(first.Kind)
	switch {
	case h == nil:
		return []tried{{err: Bury(fmt.Errorf("no handler for kind %q in this worker", first.Kind))}}
	case h.one != nil:
		stack, err := barrier.Call(func() error { return h.one(&first.ctx, first) })
		return []tried{h.retry.tried(first, err, stack)}
	}
	ctx, cancel := context.WithCancelCause(first.ctx.base)
	stops := make([]func() bool, len(unit))
	for i, d := range unit { // a lost job ends the batch
		stops[i] = context.AfterFunc(&d.ctx, func() { cancel(context.Cause(&d.ctx)) })
	}
	stack, err := barrier.Call(func() error { return h.many(ctx, unit) })
	for _, stop := range stops {
		stop()
	}
	cancel(nil)
	each, _, _ := barrier.Find[Results](err)
	if each != nil && len(each) != len(unit) {
		text, _, _ := barrier.Text(err)
		err = fmt.Errorf("the handler returned %d results for %d jobs: %s", len(each), len(unit), text)
		each = nil
	}
	all := make([]tried, len(unit))
	for i := range unit {
		if each != nil {
			err = each[i]
		}
		all[i] = h.retry.tried(unit[i], err, stack)
	}
	return all
}

// finish records the outcome of a job. err was read.
func (run *runner) finish(d *Delivery, err error, detail string) {
	run.mu.Lock()
	defer run.mu.Unlock()
	d.ctx.end(nil)
	run.end(d, err, detail)
}

// end is finish with mu held. The first outcome counts.
func (run *runner) end(d *Delivery, err error, detail string) {
	switch {
	case d.hasEnded():
		return
	case d.state.Row != block.RowFree:
		d.ending = &ending{err, detail}
		return
	}
	inPlace := d.state.Running() && d.state.From != tableRunning
	d.state.Phase = block.PhaseEnded
	run.clears(d)
	run.exitLimits(d)
	b := d.b
	d.handBack()
	if inPlace {
		b.Active--
	}
	if run.out[d.at()] == d {
		delete(run.out, d.at())
	}
	run.acquit(d)
	err = d.explained(err)
	what, after := verdictOf(d, err)
	d.what = what
	isDone := what == done || what == discard
	removed := run.opt.AtMostOnce && d.state.From != tableRunning // its row, before it began
	if what == handed && !removed && (!b.Gone || d.state.From == tableRunning) {
		if m, ok := run.handsBack(d, err, after); ok {
			d.weigh()
			b.Move(m)
			run.enlist(b)
			run.tellClosing()
			return
		}
	}
	switch {
	case what == lost, what == handed, b.Gone && d.state.From != tableRunning && !isDone:
		run.endElsewhere(d, what, err)
		return
	case isDone:
		if !d.resultKept() {
			d.result = nil // nobody holds its memory until the end is written
		}
		run.endDone(d, what, err, removed)
	case removed:
		run.again.Log(slog.LevelWarn, repeatOf(d, err.Error()), "job failed, and is not tried again",
			"queue", d.Queue, "kind", d.Kind, "id", d.ID, "error", err)
		run.endRemoved(d, buried, err)
	default:
		d.weigh()
		b.Move(run.moveFor(d, what, after, err, detail))
	}
	run.enlist(b)
	run.tellClosing()
}

// endElsewhere ends a job here that another worker does again: it was taken from this worker, or its
// block was, or it is handed over. mu is held.
func (run *runner) endElsewhere(d *Delivery, what verdict, err error) {
	if what == handed {
		run.settled(d, ErrLost)
		if d.state.From == tableRunning {
			run.toHand = append(run.toHand, d)
		}
		return
	}
	run.conclude(d, run.c.clock.reading(), lost, err, 0)
	if !d.b.Gone && what == lost {
		forgetLost(d)
	}
}

// endDone ends a job that is done or discarded. Its row is deleted in a round, unless it is removed
// already. mu is held.
func (run *runner) endDone(d *Delivery, what verdict, err error, removed bool) {
	if what == discard {
		d.reason = limitText(err.Error(), 4000)
		run.again.Log(slog.LevelInfo, repeatOf(d, d.reason), "job discarded", "queue", d.Queue, "kind", d.Kind, "id", d.ID, "error", err)
	}
	if removed {
		run.endRemoved(d, what, err)
		return
	}
	d.weigh()
	d.b.Finish(&d.state)
	if !run.opt.AckEach { // otherwise its key is released when its end is committed
		run.release(d)
	}
}

// endRemoved ends a job whose row was deleted before it began. mu is held.
func (run *runner) endRemoved(d *Delivery, what verdict, err error) {
	d.b.ForgetNow(d.ID)
	run.conclude(d, run.c.clock.reading(), what, err, 0)
	run.release(d)
}

// explained adds to an error the timeout or stall that may have caused it.
func (d *Delivery) explained(err error) error {
	for _, cause := range []error{ErrTimeout, ErrStalled} {
		if err != nil && errors.Is(d.ctx.cause, cause) && !errors.Is(err, cause) {
			return &explanation{d.ctx.cause, err}
		}
	}
	return err
}

// tellClosing makes handlers check whether they are done. mu is held.
func (run *runner) tellClosing() {
	if run.closing {
		run.work.Broadcast()
	}
}

// verdictOf converts a handler's error to a verdict.
func verdictOf(d *Delivery, err error) (verdict, time.Duration) {
	var r *result
	handsOver := d.ctx.cause != nil && errors.Is(d.ctx.cause, errHandedOver)
	switch {
	case err == nil:
		return done, 0
	case errors.As(err, &r) && r.what == snoozed && handsOver: // because of that
		return handed, r.after
	case errors.As(err, &r):
		return r.what, r.after
	case d.ctx.cause != nil && errors.Is(d.ctx.cause, ErrLost):
		return lost, 0
	case handsOver:
		return handed, 0
	}
	return failed, 0
}
