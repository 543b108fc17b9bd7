package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/rig"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// perform does a task of package queuetest: jobs run in the caller's goroutine, by the same code and
// with the same outcomes as usual.
func (w *Worker) perform(ctx context.Context, task *rig.Task) error {
	ctx = rig.With(ctx, nil) // handlers may run other workers
	if jobs, ok := task.Jobs.([]Job); ok {
		all, err := w.attempt(ctx, jobs, task.Number)
		task.Done(all)
		return err
	}
	t, err := w.twin()
	if err != nil {
		return err
	}
	return t.inline(ctx, task.Done)
}

// attempt makes attempts at jobs that are in no table.
func (w *Worker) attempt(ctx context.Context, jobs []Job, number int) (all []rig.Outcome, err error) {
	var unit []*Delivery
	for i := range jobs {
		j := jobs[i]
		if err := j.check(); err != nil {
			return nil, ofMany(i, len(jobs), err)
		}
		j.Queue = cmpName(j.Queue)
		set := store.Queue{Settings: store.Defaults(j.Queue)}
		// The host's clock: there is no other one, and nothing is compared with it.
		id := store.TickOf(time.Now().UnixMicro()) + int64(i) //nolint:forbidigo // see above
		d := &Delivery{
			Job: j, ID: id, Attempt: number, times: times{began: instant.Now()},
		}
		d.comesFrom(newTenure(&workQueue{h: &w.holder, name: j.Queue, set: &set}))
		d.state.From, d.state.Phase = tableNone, block.PhaseRunning
		d.ctx.base = ctx
		if limit := w.timeout(d.b, d); limit > 0 {
			d.over = d.began.Add(limit)
		}
		if d.over != 0 || w.stallOf(d) > 0 {
			defer w.endInTime(d)()
		}
		unit = append(unit, d)
	}
	h := w.handlerOf(jobs[0].Kind)
	size := 1
	if h != nil && h.many != nil {
		size = len(unit)
		if size > h.batch.Max {
			return nil, invalid("batch", "the handler takes up to %d jobs at a time, not %d", h.batch.Max, size)
		}
	}
	for ; len(unit) > 0; unit = unit[size:] {
		all = append(all, w.outcomes(unit[:size], w.try(unit[:size]))...)
		for _, d := range unit[:size] {
			d.ctx.end(nil)
		}
	}
	return all, nil
}

// endInTime ends the context of a job in no table when its timeout is over.
func (w *Worker) endInTime(d *Delivery) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for range pace.Ticks(ctx, watchEvery) {
			w.mu.Lock()
			w.look(d, instant.Now())
			w.mu.Unlock()
		}
	}()
	return cancel
}

// outcomes reports the outcomes of jobs.
func (w *Worker) outcomes(unit []*Delivery, results []tried) []rig.Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]rig.Outcome, len(unit))
	for i, d := range unit {
		err := d.explained(results[i].err)
		what, after := verdictOf(d, err)
		if (what == failed || what == retryIn) && d.Attempt >= w.policy(d).MaxAttempts {
			what, after = buried, 0
		}
		all[i] = rig.Outcome{
			Delivery: d, Verdict: words[what], Err: asReturned(err), After: after, Stack: results[i].stack, Completed: d.state.Tx != block.TxNone,
		}
	}
	return all
}

// words has the names of verdicts. A lost job has not failed: it will be
// retried.
var words = [...]string{
	done: "done", failed: "failed", retryIn: "retry", snoozed: "snoozed", discard: "discarded", buried: "dead",
	lost: "failed", handed: "snoozed",
}

// twin returns a worker with the same handlers that has not begun.
func (w *Worker) twin() (*Worker, error) {
	t, err := w.c.Worker(w.opt)
	if err != nil {
		return nil, err
	}
	for kind, h := range w.handlers {
		t.handlers[kind], t.kinds[kind] = &kindHandler{one: h.one, many: h.many, batch: h.batch, retry: h.retry}, kind
		t.handlers[kind].batch.Wait = 0 // nobody else adds to them
	}
	t.others = w.others
	return t, nil
}

// inline processes ready and due jobs, one job or batch after the other. However it ends, it
// hands over what it has: even if a handler ends this goroutine.
func (w *Worker) inline(ctx context.Context, done func([]rig.Outcome) bool) error {
	base, cancelJobs := context.WithCancelCause(ctx)
	defer cancelJobs(nil)
	w.mu.Lock()
	w.started, w.alone, w.base = true, true, base
	w.seat(1)
	w.mu.Unlock()
	if err := w.tryBegin(ctx); err != nil {
		return err
	}
	w.c.bells.add(w)
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	var helpers sync.WaitGroup
	helpers.Go(func() { w.lease.keep(working) })
	helpers.Go(func() { w.watch(working) })
	defer func() {
		w.c.bells.remove(w)
		w.leaveInline(working)
		stop()
		helpers.Wait()
	}()
	for {
		n, err := w.doDue(ctx, done)
		if err != nil || n < 0 {
			return err
		}
		if n > 0 {
			continue // there may be new jobs by now
		}
		left, err := w.left(ctx)
		if err != nil || !left {
			return err
		}
		w.lookAnew()
		if !pace.Sleep(ctx, 10*time.Millisecond) { // the job, or the lease, may end
			return fmt.Errorf("jobs are left that another worker has: %w", context.Cause(ctx))
		}
	}
}

// doDue processes the jobs it finds, and returns the number of units; -1: stop.
func (w *Worker) doDue(ctx context.Context, done func([]rig.Outcome) bool) (n int, err error) {
	w.mu.Lock()
	queues, name := w.queues, w.lease.node
	w.mu.Unlock()
	if name == "" { // the lease was lost, and a new one is coming
		return 0, nil
	}
	for _, q := range queues {
		if err := w.shareQueue(ctx, q, name); err != nil {
			return n, err
		}
	}
	if _, err := w.tryNext(ctx); err != nil {
		return n, err
	}
	for ; ; n++ {
		if err := w.serveAll(ctx); err != nil {
			return n, err
		}
		if err := w.ends.concludeEnds(ctx); err != nil {
			return n, err
		}
		w.mu.Lock()
		unit := w.take(nil)
		w.slots[0] = unit
		w.mu.Unlock()
		if len(unit) == 0 {
			return n, nil
		}
		if slices.ContainsFunc(unit, w.announces) {
			if err := w.serveAll(ctx); err != nil {
				return n, err
			}
			if unit = w.announced(unit); len(unit) == 0 {
				continue
			}
		}
		outcomes := w.doInline(unit)
		if err := w.serveAll(ctx); err != nil {
			return n, err
		}
		if !done(outcomes) {
			return -1, nil
		}
	}
}

func (w *Worker) doInline(unit []*Delivery) (all []rig.Outcome) {
	results := make([]tried, len(unit))
	for i := range results {
		results[i].err = errors.New("the handler ended its goroutine") // in case it does not return
	}
	defer func() {
		all = w.outcomes(unit, results)
		for i, d := range unit {
			w.finish(d, results[i].err, results[i].stack)
		}
		w.mu.Lock()
		w.slots[0] = nil
		w.mu.Unlock()
	}()
	results = w.try(unit)
	return nil
}

// lookAnew schedules a read of all blocks from the beginning.
func (w *Worker) lookAnew() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		for _, b := range q.blocks {
			b.Reads.Anew()
			b.Dues.Ripe = true
			w.enlist(b)
		}
	}
}

// leaveInline hands over what is left.
func (w *Worker) leaveInline(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	w.mu.Lock()
	w.closing = true
	w.ungather()
	for _, q := range w.queues {
		for _, b := range q.blocks {
			w.leave(b)
		}
	}
	w.mu.Unlock()
	if err := w.serveAll(ctx); err != nil {
		w.log.Warn("finished jobs could not be recorded; they will be done again", "err", err)
	}
	w.handOverAll(ctx)
	w.abandon(ctx)
	w.again.Flush()
}
