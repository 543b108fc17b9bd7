package queue

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A table is one of the tables of jobs.
type table = store.JobTable

const (
	tableReady   = store.AmongReady
	tableDelayed = store.AmongDelayed
	tableRunning = store.AmongRunning
	tableNone    = store.Nowhere // see Worker.attempt
)

// A phase is how far a worker has come with a job. It never goes back: an attempt that begins anew is
// another Delivery.
type phase uint8

const (
	phaseRead    phase = iota // in memory: it may begin, or waits for others
	phaseRunning              // a handler has it, or waits to run it
	phaseEnded                // it has an outcome, which is not committed
	phaseWritten              // its outcome is committed, or was given up
)

// A rowWork is what is under way with a job's row. An outcome that comes meanwhile waits for its end.
type rowWork uint8

const (
	rowFree     rowWork = iota
	rowLeaving          // it is being checked out of its block: it is not in the table of running jobs yet
	rowUpdating         // it is in that table, and a statement changes it there
)

// A txWork is what a handler's own transaction has done with its job.
type txWork uint8

const (
	txNone      txWork = iota
	txPinned           // it is about to complete the job, or others of its batch: the job stays in its table
	txCompleted        // CompleteTx has succeeded
)

// A Delivery is a job that a worker has been given to process.
type Delivery struct {
	Job
	ID      int64
	Attempt int // from 1
	Crashes int // how many workers have died while running it
	Stops   int // how many workers in a row were stopped soon after they had begun it: see [HandBack]

	// Callback is the ended group whose callback the job is, or 0. [Client.Results] has the
	// results of its jobs.
	Callback int64

	b     *block
	order int64 // its order among the jobs of its key
	from  table
	runAt int64 // in µs; of a delayed job

	phase phase
	row   rowWork
	tx    txWork
	what  verdict // of an ended job
	times
	footprint
	trial    trialState
	limiters uint8 // limiters that it has passed and not left
	ctx      jobContext

	stuck   error       // why it has failed though its handler has not returned; nil: not so
	ending  *ending     // its outcome, which arrived while something was under way with its row
	result  []byte      // of a job of a group
	saved   *Progress   // the last snapshot; nil: there is none
	reason  string      // why it was discarded
	refusal *refusal    // the refusal of one of its steps; nil: none
	earlier []*Delivery // ended jobs of its key whose acks its transaction writes: see withhold
	paused  []*refusal  // completions whose transactions write its end: see withhold
	waiter
}

// times are the instants of an attempt; 0: not yet, or never.
type times struct {
	began        instant.Instant
	over         instant.Instant // end of its timeout
	progressed   instant.Instant // last progress of its handler
	late         instant.Instant // when its context ended because of its timeout or Stall
	stopped      instant.Instant // when its handler returned
	inPlaceUntil instant.Instant // do not check it out until then
}

// footprint is what a job takes of the room for reading ahead: see worker_ahead.go.
type footprint struct {
	unloaded     bool // payload and last snapshot were left in the table
	unloadedSize int  // their size
	held         int  // its size as counted
}

// A waiter is who waits for the fate of a job's outcome.
type waiter struct {
	acked chan struct{} // closed when the outcome is committed or refused; nil: nobody waits
	told  bool          // the fate is known
	fate  error
}

// isStored reports whether the job is in a table: see Worker.attempt. It takes mu.
func (d *Delivery) isStored() bool {
	w := d.b.q.w
	w.mu.Lock()
	defer w.mu.Unlock()
	return d.from != tableNone
}

// running reports whether the job has begun and not ended.
func (d *Delivery) running() bool { return d.phase == phaseRunning }

// hasEnded reports whether the job has an outcome, or was given up.
func (d *Delivery) hasEnded() bool { return d.phase >= phaseEnded }

// waits reports whether the job was read, has not begun, and has no row of its own.
func (d *Delivery) waits() bool {
	return d.phase == phaseRead && d.row == rowFree && d.from != tableRunning
}

// inPlace reports whether the job runs without a row of its own, and may get one.
func (d *Delivery) inPlace() bool {
	return d.running() && d.row == rowFree && d.from != tableRunning && d.tx == txNone
}

// discarded reports whether the job's verdict was that it need not be done.
func (d *Delivery) discarded() bool { return d.hasEnded() && d.what == discard }

// An ending is an outcome that waits for the end of a check-out.
type ending struct {
	err    error
	detail string
}

// at returns the job's unique identification.
func (d *Delivery) at() store.JobID { return store.JobID{BlockID: d.b.at(), ID: d.ID} }

// line identifies the sequence in which the job runs: its key, or the whole block if that is
// FIFO.
func (d *Delivery) line() string {
	if d.b != nil && d.b.fifo {
		return fifoLine
	}
	return d.Key
}

func (d *Delivery) hasKey() bool { return d.line() != "" }

// Enqueued returns when the job was enqueued, by the database's clock.
func (d *Delivery) Enqueued() time.Time { return store.TimeOf(d.ID) }

// Decode decodes the JSON payload into v. A further attempt would not cure its error, which marks
// the job as dead: handlers may return it as it is.
func (d *Delivery) Decode(v any) error {
	if err := json.Unmarshal(d.Payload, v); err != nil {
		return Bury(invalid("payload", "%v", err))
	}
	return nil
}

// Extend gives the attempt more time: from now on its timeout is more, whatever the job, its kind
// or its queue say, and even if it had none. A handler that is about to do something that takes
// long may call it repeatedly. It writes nothing, so the next attempt in another worker has the
// usual timeout. It does not revive a context that has ended: call it in time. It is not
// progress: see [RetryPolicy.Stall].
func (d *Delivery) Extend(more time.Duration) {
	w := d.b.q.w
	w.mu.Lock()
	defer w.mu.Unlock()
	d.over = instant.Now().Add(more)
}

// Left returns how long the job is sure to remain this worker's, even if the worker cannot reach
// the database any more: what the job has started outside of this process should end within that
// time. It grows again with each renewal of the worker's lease, and is 0 when the job was lost.
func (d *Delivery) Left() time.Duration {
	w := d.b.q.w
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case d.from == tableNone:
		return w.opt.Lease
	case errors.Is(d.ctx.cause, ErrLost), d.b.gone && d.from != tableRunning:
		return 0
	}
	return max(0, w.lease.deadline.Sub(instant.Now()))
}

// moment releases mu for a moment. mu is held.
func (w *Worker) moment(ctx context.Context) error {
	w.mu.Unlock()
	defer w.mu.Lock()
	pace.Sleep(ctx, time.Millisecond)
	return ctx.Err()
}

// A jobContext is a job's context. It creates a real context on first use, since most handlers
// of small jobs never use theirs.
type jobContext struct {
	base context.Context

	mu     sync.Mutex
	std    context.Context
	cancel context.CancelCauseFunc
	cause  error
	over   bool
}

// real returns the real context.
func (c *jobContext) real() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.std == nil {
		c.std, c.cancel = context.WithCancelCause(c.base)
		if c.over {
			c.cancel(c.cause)
		}
	}
	return c.std
}

// end cancels the context, at the latest when the handler has returned.
func (c *jobContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over, c.cause = true, cause
	if c.cancel != nil {
		c.cancel(cause)
	}
}

// ended reports whether the context was cancelled.
func (c *jobContext) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

func (c *jobContext) Deadline() (time.Time, bool) { return c.base.Deadline() }
func (c *jobContext) Done() <-chan struct{}       { return c.real().Done() }
func (c *jobContext) Value(key any) any           { return c.real().Value(key) }

func (c *jobContext) Err() error {
	c.mu.Lock()
	if c.std == nil && !c.over {
		c.mu.Unlock()
		return c.base.Err()
	}
	c.mu.Unlock()
	return c.real().Err()
}
