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
func (run *runner) watch(ctx context.Context) {
	audited := instant.Now()
	for range pace.Ticks(ctx, watchEvery) {
		run.lines.ask()
		run.mu.Lock()
		at := instant.Now()
		late := run.lease.node != "" && at >= run.lease.deadline
		for _, unit := range run.slots {
			for _, d := range unit {
				run.look(d, at)
			}
		}
		for d := range run.taken {
			run.look(d, at)
			run.giveUpLost(d)
		}
		run.heedAllStuck(at)
		run.adapt(at)
		run.heedSteps()
		run.heedLone()
		for _, q := range run.runnable {
			q.recheck()
		}
		for b := range run.stirred {
			if b.Gone || b.still() {
				run.calm(b)
				continue
			}
			b.q.recheck()
			run.enlist(b) // what is read again periodically, and failures
		}
		for b := range run.remnants {
			run.enlist(b)
		}
		if at.Sub(audited) >= auditEvery {
			audited = at
			run.audit()
		}
		run.mu.Unlock()
		if late {
			run.lease.lost("it could not be renewed in time")
		}
	}
}

// look checks a running job. mu is held.
func (run *runner) look(d *Delivery, at instant.Instant) {
	if d.over != 0 && at >= d.over && !d.ctx.over {
		cause := fmt.Errorf("%w: %v", ErrTimeout, d.over.Sub(d.began))
		d.ctx.end(cause)
		d.late = at
		if run.taken[d] { // nobody will return from it
			delete(run.taken, d)
			run.end(d, cause, "")
		}
	}
	if stall := run.stallOf(d); stall > 0 && !d.ctx.over && d.began != 0 && at.Sub(max(d.began, d.progressed)) >= stall {
		d.ctx.end(fmt.Errorf("%w for %v", ErrStalled, stall))
		d.late = at
	}
	run.heedStuck(d, at)
	if d.state.Tx != block.TxNone {
		return
	}
	if at.Sub(d.began) >= run.slow && d.state.InPlace() && !d.b.Gone && !run.opt.AtMostOnce && d.b.mayLeave(d, at) {
		run.checkOut(d, d.Crashes)
	}
}

// stallOf returns how long a job may make no progress; 0 means any time. mu is held.
func (run *runner) stallOf(d *Delivery) time.Duration {
	if h := run.handlerOf(d.Kind); h != nil {
		return h.retry.Stall
	}
	return 0
}

// listen receives notifications of new jobs from other processes, where the database sends them.
// One worker of a process listens for all of them, with one connection.
func (run *runner) listen(ctx context.Context) {
	if run.db.Dialect.Listen == nil {
		return
	}
	if run.own == nil || cap(run.own.ears) == 0 {
		return // a small pool keeps all its connections
	}
	go run.c.bells.ping(ctx) // another one listens already, which this one must know
	select {
	case run.c.bells.ears <- struct{}{}:
		defer func() { <-run.c.bells.ears }()
	case <-ctx.Done():
		return
	}
	select {
	case run.own.ears <- struct{}{}:
		defer func() { <-run.own.ears }()
	case <-ctx.Done():
		return
	}
	for ctx.Err() == nil {
		ready := func() {
			run.c.bells.relisten()
			go func() { run.c.bells.ping(ctx) }() // behind a pooler nothing would arrive
		}
		err := run.c.db.Listen(ctx, run.c.bells.channel(), ready, func(payload string) {
			run.c.bells.notified(payload)
		})
		if err != nil && errors.Is(err, errors.ErrUnsupported) {
			return
		}
		pace.Sleep(ctx, time.Second)
	}
}
