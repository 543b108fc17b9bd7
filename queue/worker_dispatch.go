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
	unnoted  []*Delivery        // stuck jobs whose rows do not say so yet: see worker_stuck.go
	allStuck instant.Instant    // since when all slots are; 0: they are not
	taken    map[*Delivery]bool // by Receive
	begun    int                // jobs that have begun
	group    sync.WaitGroup     // handlers
}

// handleJobs processes one job, or batch, after the other.
func (w *Worker) handleJobs(slot int) {
	var buffer [1]*Delivery
	var unit []*Delivery
	var last *Delivery // the job that has just ended: the start of the next one sets its end
	inside := false
	w.mu.Lock()
	defer func() {
		if !inside {
			w.mu.Unlock()
			return
		}
		// The handler has ended this goroutine. Another one continues.
		for _, d := range unit {
			w.finish(d, errors.New("the handler ended its goroutine"), "")
		}
		w.mu.Lock()
		w.slots[slot] = nil
		w.mu.Unlock()
		w.group.Go(func() { w.handleJobs(slot) })
	}()
	for {
		unit = w.next(buffer[:0], last)
		if unit == nil {
			return
		}
		w.slots[slot], last = unit, unit[0]
		w.mu.Unlock()
		inside = true
		w.do(unit)
		inside = false
		w.mu.Lock()
		w.slots[slot] = nil
		if unit[0].state.From == tableRunning && w.wasBusy() {
			w.nudge() // it is not any more
		}
		if w.opt.AckEach {
			w.mu.Unlock()
			for _, d := range unit {
				select {
				case <-d.acked:
				case <-w.ended:
				}
			}
			w.mu.Lock()
		}
	}
}

// wasBusy reports whether the others were told that this worker is busy. mu is held.
func (w *Worker) wasBusy() bool {
	return slices.ContainsFunc(w.queues, func(q *workQueue) bool { return q.busy })
}

// next waits for the next job or batch, and returns nil when there are no more. It records when
// the previous one ended: asking for the time separately would cost as much as everything else.
// mu is held.
func (w *Worker) next(unit []*Delivery, last *Delivery) []*Delivery {
	for {
		if w.stopped || w.closing && !w.owesRuns() {
			return nil
		}
		if unit := w.take(unit); len(unit) > 0 {
			if last != nil {
				last.stopped = max(last.began, unit[0].began)
			}
			return unit
		}
		if last != nil {
			last.stopped, last = instant.Now(), nil
		}
		w.await()
	}
}

// await waits for work. A job that waits for a limit may begin now, if the limit allows, and so may
// one that waits to run alone. mu is held.
func (w *Worker) await() {
	if w.limits.Limited() {
		w.limits.Wake()
	}
	if w.lone.holds && w.lone.d == nil {
		signal(w.lone.wake)
	}
	w.idle++
	w.work.Wait()
	w.idle--
}

// claims reports whether there are jobs whose rows are gone, or may be: a stopping worker still
// runs these. mu is held.
func (w *Worker) owesRuns() bool {
	if !w.opt.AtMostOnce {
		return false
	}
	for _, q := range w.queues {
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
func (w *Worker) take(unit []*Delivery) []*Delivery {
	if w.gathers > 0 && !w.lone.only() {
		if batch := w.ripeBatch(); len(batch) > 0 {
			return batch
		}
	}
	for {
		d := w.popReady()
		switch {
		case d == nil && w.lone.only():
			return nil
		case d == nil:
			return w.ripeBatch()
		}
		h := w.handlerOf(d.Kind)
		if h == nil || h.many == nil || d.trial.why != trusted { // a job that may have crashed a worker begins alone
			return append(unit, d)
		}
		if batch := w.gather(h, d); len(batch) > 0 {
			return batch
		}
	}
}

// begins records the start of a job that was taken out of its block.
func (w *Worker) begins(b *tenure, d *Delivery, at instant.Instant) {
	d.began = at
	w.begun++
	w.passLimits(b.q, d)
	if limit := w.timeout(b, d); limit > 0 {
		d.over = at.Add(limit)
	}
	if w.opt.AckEach {
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

// A tried is the result of running a handler on a job. Its error was read: see answerOf.
type tried struct {
	err   error
	stack string
}

// do runs the handler of a unit, and records all outcomes at once: the failed jobs of a batch
// continue together.
func (w *Worker) do(unit []*Delivery) {
	if unit = w.stillMine(unit); len(unit) == 0 {
		return
	}
	outcomes := w.try(unit)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heedHandBacks(outcomes)
	for i, out := range outcomes {
		unit[i].ctx.end(nil)
		w.tellReturned(unit[i])
		w.end(unit[i], out.err, out.stack)
	}
}

// stillMine returns the jobs of a unit that may begin. It is called last, because this process may have been
// paused since the jobs were taken out of their blocks. While the lease is in doubt it waits: either it is
// renewed, or the jobs are lost. Jobs whose rows are removed before they begin are nobody else's.
func (w *Worker) stillMine(unit []*Delivery) []*Delivery {
	over := func(d *Delivery) bool { return d.ctx.ended() }
	if !slices.ContainsFunc(unit, over) && (!w.lease.surely.over() || w.opt.AtMostOnce) {
		return unit
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	goes := func(d *Delivery) bool { return !over(d) }
	for instant.Now() >= w.lease.deadline && !w.opt.AtMostOnce && !w.stopped && slices.ContainsFunc(unit, goes) {
		w.work.Wait()
	}
	var mine []*Delivery
	for _, d := range unit {
		switch {
		case over(d):
			w.end(d, d.ctx.cause, "")
		case w.stopped:
			w.end(d, ErrLost, "")
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
func (w *Worker) finish(d *Delivery, err error, detail string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d.ctx.end(nil)
	w.end(d, err, detail)
}

// end is finish with mu held. The first outcome counts.
func (w *Worker) end(d *Delivery, err error, detail string) {
	switch {
	case d.hasEnded():
		return
	case d.state.Row != block.RowFree:
		d.ending = &ending{err, detail}
		return
	}
	inPlace := d.state.Running() && d.state.From != tableRunning
	d.state.Phase = block.PhaseEnded
	w.clears(d)
	w.exitLimits(d)
	b := d.b
	d.handBack()
	if inPlace {
		b.Active--
	}
	if w.out[d.at()] == d {
		delete(w.out, d.at())
	}
	w.acquit(d)
	err = d.explained(err)
	what, after := verdictOf(d, err)
	d.what = what
	isDone := what == done || what == discard
	removed := w.opt.AtMostOnce && d.state.From != tableRunning // its row, before it began
	if what == handed && !removed && (!b.Gone || d.state.From == tableRunning) {
		if m, ok := w.handsBack(d, err, after); ok {
			d.weigh()
			b.Move(m)
			w.enlist(b)
			w.tellClosing()
			return
		}
	}
	switch {
	case what == lost, what == handed, b.Gone && d.state.From != tableRunning && !isDone:
		w.endElsewhere(d, what, err)
		return
	case isDone:
		w.endDone(d, what, err, removed)
	case removed:
		w.again.Log(slog.LevelWarn, repeatOf(d, err.Error()), "job failed, and is not tried again",
			"queue", d.Queue, "kind", d.Kind, "id", d.ID, "error", err)
		w.endRemoved(d, buried, err)
	default:
		d.weigh()
		b.Move(w.moveFor(d, what, after, err, detail))
	}
	w.enlist(b)
	w.tellClosing()
}

// endElsewhere ends a job here that another worker does again: it was taken from this worker, or its
// block was, or it is handed over. mu is held.
func (w *Worker) endElsewhere(d *Delivery, what verdict, err error) {
	if what == handed {
		w.settled(d, ErrLost)
		if d.state.From == tableRunning {
			w.toHand = append(w.toHand, d)
		}
		return
	}
	w.conclude(d, w.c.clock.reading(), lost, err, 0)
	if !d.b.Gone && what == lost {
		forgetLost(d)
	}
}

// endDone ends a job that is done or discarded. Its row is deleted in a round, unless it is removed
// already. mu is held.
func (w *Worker) endDone(d *Delivery, what verdict, err error, removed bool) {
	if what == discard {
		d.reason = limitText(err.Error(), 4000)
		w.again.Log(slog.LevelInfo, repeatOf(d, d.reason), "job discarded", "queue", d.Queue, "kind", d.Kind, "id", d.ID, "error", err)
	}
	if removed {
		w.endRemoved(d, what, err)
		return
	}
	d.weigh()
	d.b.Finish(&d.state)
	if !w.opt.AckEach { // otherwise its key is released when its end is committed
		w.release(d)
	}
}

// endRemoved ends a job whose row was deleted before it began. mu is held.
func (w *Worker) endRemoved(d *Delivery, what verdict, err error) {
	d.b.ForgetNow(d.ID)
	w.conclude(d, w.c.clock.reading(), what, err, 0)
	w.release(d)
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
func (w *Worker) tellClosing() {
	if w.closing {
		w.work.Broadcast()
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
