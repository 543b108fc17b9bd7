package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Progress is stored in the job's row, and moves with it: to the delayed jobs, to another
// worker, and to the dead ones and back. A ready job has none, since it has not begun: a job
// that stores progress is checked out first.

// longestState is the maximum size of a state in bytes.
const longestState = 1 << 20

// SetProgress stores the job's progress. When it returns nil, the progress is committed in place
// of what was stored before, and the next attempt finds it with [Delivery.Progress], whether this
// one fails, is handed over or dies. An [ErrLost] means that the job no longer belongs to this
// worker, and nothing was stored. After another error the outcome is unknown, and it may be
// called again.
//
// A call is progress for a handler whose RetryPolicy has a Stall, even if nothing could be
// stored.
//
// Each call is a statement and a commit of its own. The first one of an attempt checks the job
// out, which takes one more transaction, and from then on its crashes are counted. So store every
// second or so, not with each record. On SQLite do not call it while a transaction of the
// handler's is open, because it would wait for that.
func (d *Delivery) SetProgress(ctx context.Context, p Progress) error {
	run := d.runner()
	run.mu.Lock()
	d.progressed = instant.Now() // whatever happens: the handler makes progress
	run.mu.Unlock()
	switch {
	case len(p.State) > longestState:
		return invalid("state", "it has %d bytes, and up to %d are kept; store it elsewhere and set its name", len(p.State), longestState)
	case p.Percent < 0 || p.Percent > 100:
		return invalid("percent", "%d is not 0 to 100", p.Percent)
	case run.opt.AtMostOnce:
		return invalid("progress", "a worker that removes jobs before they are done has nowhere to store it")
	}
	p.State, p.Message = bytes.Clone(p.State), limitText(p.Message, 1000)
	if !d.isStored() {
		run.mu.Lock()
		defer run.mu.Unlock()
		d.saved = &p
		return nil
	}
	node, err := run.claimRow(ctx, d)
	if err != nil {
		return orLost(ctx, err)
	}
	n, err := run.db.Exec(ctx, store.SaveProgress, sqlrun.Args{
		"queue": d.b.q.id, "divided": d.b.divided, "id": d.ID, "node": node, "attempt": d.Attempt,
		"snapshot": orNil(p.State), "percent": orNull(p.Percent), "message": orNull(p.Message),
	})
	if err == nil && n == 0 {
		err = lostJob(d)
	}
	if errors.Is(err, sqlrun.ErrTooLong) {
		err = fmt.Errorf("%w: state: %w", ErrTooLarge, err)
	}
	err = orLost(ctx, err)
	run.mu.Lock()
	defer run.mu.Unlock()
	switch {
	case err == nil:
		d.saved = &p
	case errors.Is(err, ErrLost):
		d.ctx.end(err)
	}
	run.freed(d)
	return err
}

// orLost returns the loss of the job, if that has interrupted a call.
func orLost(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrLost) {
		return cause
	}
	return err
}

// Progress returns the progress that was stored last, in this attempt or an earlier one; it is
// zero if nothing was stored.
func (d *Delivery) Progress() Progress {
	run := d.runner()
	run.mu.Lock()
	defer run.mu.Unlock()
	if d.saved == nil {
		return Progress{}
	}
	return *d.saved
}

// Checkpoint stores v as JSON in the state of a job, and leaves percent and message unchanged.
// Otherwise it is [Delivery.SetProgress].
func Checkpoint[T any](ctx context.Context, d *Delivery, v T) error {
	state, err := json.Marshal(v)
	if err != nil {
		return invalid("state", "%v", err)
	}
	p := d.Progress()
	p.State = state
	return d.SetProgress(ctx, p)
}

// Resume returns the state that [Checkpoint] stored last; ok is false if there is none.
func Resume[T any](d *Delivery) (v T, ok bool, err error) {
	state := d.Progress().State
	if len(state) == 0 {
		return v, false, nil
	}
	if err := json.Unmarshal(state, &v); err != nil {
		return v, false, invalid("state", "%v", err)
	}
	return v, true, nil
}

// claimRow makes sure that a job is checked out, and keeps its row this worker's until saving
// is over. It returns the worker's name.
func (run *runner) claimRow(ctx context.Context, d *Delivery) (node string, err error) {
	run.mu.Lock()
	defer run.mu.Unlock()
	for {
		switch {
		case run.stopped, d.hasEnded(), d.ending != nil, d.ctx.over && errors.Is(d.ctx.cause, ErrLost),
			d.b.Gone && d.state.From != tableRunning && d.state.Row != block.RowLeaving:
			return "", lostJob(d)
		case d.state.Tx != block.TxNone:
			return "", invalid("progress", "the job is being completed, and has no next attempt")
		case d.state.Row != block.RowFree: // wait
		case d.state.From == tableRunning:
			d.state.Row = block.RowUpdating
			return run.lease.node, nil
		default: // with the jobs of its key in the same batch: see pin
			for _, m := range run.mates(d) {
				if m.state.From != tableRunning && m.state.Row == block.RowFree && !m.hasEnded() {
					run.checkOut(m, m.Crashes)
				}
			}
		}
		if run.alone {
			run.mu.Unlock()
			err = run.serveAll(ctx)
			run.mu.Lock()
		}
		if err == nil {
			err = run.moment(ctx)
		}
		if err != nil {
			return "", err
		}
	}
}

// orNil returns NULL for no bytes.
func orNil(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}
