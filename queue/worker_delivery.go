package queue

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A table is one of the tables of jobs.
type table uint8

const (
	tableReady table = iota
	tableDelayed
	tableRunning
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

	b        *block
	order    int64 // its order among the jobs of its key
	from     table
	runAt    int64 // in µs; of a delayed job
	holding  bool  // the jobs of its key wait for it, according to its row
	began    instant.Instant
	over     instant.Instant // end of its timeout; 0: none
	lively   instant.Instant // last progress of its handler; 0: none
	late     instant.Instant // when its context ended because of its timeout or Stall; 0: it did not
	stuck    error           // why it has failed though its handler has not returned; nil: not so
	stopped  instant.Instant // when its handler returned
	counted  bool            // in its block's active jobs
	limiters uint8           // limiters that it has passed and not left
	moving   bool            // it is being checked out
	bare     bool            // payload and last snapshot were left in the table: see worker_ahead.go
	lacks    int             // their size
	held     int             // its size as counted for reading ahead
	ending   *ending         // its outcome, which arrived during the check-out
	loose    bool            // it is in no table: see Worker.attempt
	pinned   bool            // a handler's transaction is completing it, so it stays where it is
	inTx     bool            // CompleteTx has succeeded
	earlier  []*Delivery     // ended jobs of its key whose acks that transaction writes: see withhold
	trial    trial           // its trial; trusted: none
	unbegun  bool            // it had a slot, waited there to run alone, and ended without
	benched  bool            // it has given up its trial place, and waits for a limit
	result   []byte          // result of a job of a group
	saved    *Progress       // the last snapshot; nil: there is none
	saving   bool            // a snapshot is being stored: its row must stay where it is
	dropped  bool            // it was discarded
	reason   string          // why it was dropped
	ended    bool            // it has an outcome
	settled  bool            // the outcome is committed, or was given up
	refusal  *refusal        // the refusal of one of its steps; nil: none
	stays    instant.Instant // do not check it out until then
	paused   []*refusal      // completions whose transactions write its end: see withhold
	acked    chan struct{}   // closed when its outcome is committed or refused, for waiters
	told     bool            // done is closed
	err      error           // the fate of the outcome
	ctx      jobContext
}

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
	case d.loose:
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
	select {
	case <-ctx.Done():
	case <-time.After(time.Millisecond):
	}
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
