package queue

import (
	"context"
	"errors"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/pace"
)

// Extend gives the attempt more time: from now on its timeout is more, whatever the job, its kind
// or its queue say, and even if it had none. A handler that is about to do something that takes
// long may call it repeatedly. It writes nothing, so the next attempt in another worker has the
// usual timeout. It does not revive a context that has ended: call it in time. It is not
// progress: see [RetryPolicy.Stall].
func (d *Delivery) Extend(more time.Duration) {
	run := d.runner()
	run.mu.Lock()
	defer run.mu.Unlock()
	d.over = instant.Now().Add(more)
}

// Left returns how long the job is sure to remain this worker's, even if the worker cannot reach
// the database any more: what the job has started outside of this process should end within that
// time. It grows again with each renewal of the worker's lease, and is 0 when the job was lost.
func (d *Delivery) Left() time.Duration {
	run := d.runner()
	run.mu.Lock()
	defer run.mu.Unlock()
	switch {
	case d.state.From == tableNone:
		return run.opt.Lease
	case errors.Is(d.ctx.cause, ErrLost), d.b.Gone && d.state.From != tableRunning:
		return 0
	}
	return max(0, run.lease.deadline.Sub(instant.Now()))
}

// runner returns who runs the job.
func (d *Delivery) runner() *runner {
	run, _ := d.b.q.h.occupants.(*runner)
	return run
}

// isStored reports whether the job is in a table: see Worker.attempt. It takes mu.
func (d *Delivery) isStored() bool {
	run := d.runner()
	run.mu.Lock()
	defer run.mu.Unlock()
	return d.state.From != tableNone
}

// SetResult sets the job's result, as JSON of up to 1 MiB. It is stored when the job is done, and in the same transaction:
// in its group, for the callback, and in its queue, if that keeps done jobs, for [Client.Await]. A job of neither has none.
// The last call counts.
func (d *Delivery) SetResult(v any) error {
	text, err := jobfield.EncodeResult(v)
	if err != nil {
		return invalid("result", "%v", err)
	}
	run := d.runner()
	run.mu.Lock()
	defer run.mu.Unlock()
	d.result = text
	return nil
}

// KeepsResult reports whether a result of the job would be stored: its group or its queue keeps it. It spares handlers
// the making of one that nobody reads.
func (d *Delivery) KeepsResult() bool {
	run := d.runner()
	run.mu.Lock()
	defer run.mu.Unlock()
	return d.resultKept()
}

// resultKept is KeepsResult with mu held.
func (d *Delivery) resultKept() bool { return d.Group != 0 || d.b != nil && d.b.q.set.KeepDone > 0 }

// moment releases mu for a moment. mu is held.
func (run *runner) moment(ctx context.Context) error {
	run.mu.Unlock()
	defer run.mu.Lock()
	pace.Sleep(ctx, time.Millisecond)
	return ctx.Err()
}
