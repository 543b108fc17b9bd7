package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/queue/internal/block"
)

// watchEvery is the interval between checks of running jobs; one timer serves all.
const watchEvery = 50 * time.Millisecond

// watch ends jobs whose timeout is over, checks out jobs that run long, and notices when the
// lease has ended without a renewal.
func (w *Worker) watch(ctx context.Context) {
	audited := instant.Now()
	for range pace.Ticks(ctx, watchEvery) {
		w.lines.ask()
		w.mu.Lock()
		at := instant.Now()
		late := w.lease.node != "" && at >= w.lease.deadline
		for _, unit := range w.slots {
			for _, d := range unit {
				w.look(d, at)
			}
		}
		for d := range w.taken {
			w.look(d, at)
			w.giveUpLost(d)
		}
		w.heedAllStuck(at)
		w.adapt(at)
		w.heedSteps()
		w.heedLone()
		for _, q := range w.runnable {
			q.recheck()
		}
		for b := range w.stirred {
			if b.Gone || b.still() {
				w.calm(b)
				continue
			}
			b.q.recheck()
			w.enlist(b) // what is read again periodically, and failures
		}
		for b := range w.remnants {
			w.enlist(b)
		}
		if at.Sub(audited) >= auditEvery {
			audited = at
			w.audit()
		}
		w.mu.Unlock()
		if late {
			w.lose("it could not be renewed in time")
		}
	}
}

// heedSteps schedules a read of all blocks after the database's clock was set: earlier ids and
// times cannot be compared with later ones. mu is held.
func (w *Worker) heedSteps() {
	n := w.c.clock.stepped()
	if n == w.steps {
		return
	}
	w.steps = n
	w.log.Warn("the database's clock was set; all blocks are read again")
	for _, q := range w.queues {
		for _, b := range q.blocks {
			b.Reads.Distrust()
			b.Dues.Anew()
		}
	}
}

// look checks a running job. mu is held.
func (w *Worker) look(d *Delivery, at instant.Instant) {
	if d.over != 0 && at >= d.over && !d.ctx.over {
		cause := fmt.Errorf("%w: %v", ErrTimeout, d.over.Sub(d.began))
		d.ctx.end(cause)
		d.late = at
		if w.taken[d] { // nobody will return from it
			delete(w.taken, d)
			w.end(d, cause, "")
		}
	}
	if stall := w.stallOf(d); stall > 0 && !d.ctx.over && d.began != 0 && at.Sub(max(d.began, d.progressed)) >= stall {
		d.ctx.end(fmt.Errorf("%w for %v", ErrStalled, stall))
		d.late = at
	}
	w.heedStuck(d, at)
	if d.state.Tx != block.TxNone {
		return
	}
	if at.Sub(d.began) >= w.slow && d.state.InPlace() && !d.b.Gone && !w.opt.AtMostOnce && d.b.mayLeave(d, at) {
		w.checkOut(d, d.Crashes)
	}
}

// stallOf returns how long a job may make no progress; 0 means any time. mu is held.
func (w *Worker) stallOf(d *Delivery) time.Duration {
	if h := w.handlerOf(d.Kind); h != nil {
		return h.retry.Stall
	}
	return 0
}

// listen receives notifications of new jobs from other processes, where the database sends them.
// One worker of a process listens for all of them, with one connection.
func (w *Worker) listen(ctx context.Context) {
	if w.db.Dialect.Listen == nil {
		return
	}
	if w.own == nil || cap(w.own.ears) == 0 {
		return // a small pool keeps all its connections
	}
	go w.c.bells.ping(ctx) // another one listens already, which this one must know
	select {
	case w.c.bells.ears <- struct{}{}:
		defer func() { <-w.c.bells.ears }()
	case <-ctx.Done():
		return
	}
	select {
	case w.own.ears <- struct{}{}:
		defer func() { <-w.own.ears }()
	case <-ctx.Done():
		return
	}
	for ctx.Err() == nil {
		ready := func() {
			w.c.bells.relisten()
			go func() { w.c.bells.ping(ctx) }() // behind a pooler nothing would arrive
		}
		err := w.c.db.Listen(ctx, w.c.bells.channel(), ready, func(payload string) {
			w.c.bells.notified(payload)
		})
		if err != nil && errors.Is(err, errors.ErrUnsupported) {
			return
		}
		pace.Sleep(ctx, time.Second)
	}
}
