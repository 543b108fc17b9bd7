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

// A table is where a job's row stands.
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

	// Callback is the ended group whose callback the job is, or 0. [Client.Results] has the
	// results of its jobs.
	Callback int64

	b        *block
	order    int64 // its place among the jobs of its key
	from     table
	runAt    int64 // µs; of a row of delayed jobs
	holding  bool  // the jobs of its key wait for it, by its row
	began    instant.Instant
	over     instant.Instant // when its time is over; 0: never
	lively   instant.Instant // when its handler has last told of progress; 0: it has not
	stopped  instant.Instant // when its handler had ended
	counted  bool            // among its block's active ones
	limiters uint8           // that it has passed, and not left
	moving   bool            // it is being checked out
	bare     bool            // its payload was left in the table, and its last snapshot: see worker_ahead.go
	lacks    int             // how many bytes these have
	held     int             // how many bytes of it count as read ahead
	ending   *ending         // its outcome, which came meanwhile
	loose    bool            // it is of no table: see Worker.attempt
	pinned   bool            // it is being completed in a transaction of the handler's, and stays where it is
	inTx     bool            // CompleteTx has succeeded
	earlier  []*Delivery     // ended jobs of its key whose acks its transaction writes: see withhold
	trial    trial           // that it is on; trusted: none
	benched  bool            // it has given up its place there, and waits for a limit
	result   []byte          // of a job of a group
	saved    *Progress       // the last snapshot; nil: there is none
	saving   bool            // one is being stored: its row stays where it is
	dropped  bool            // it was not done, and need not be
	reason   string          // why it was dropped
	ended    bool            // it has its outcome
	settled  bool            // and that is committed, or given up
	refusal  *refusal        // nil: the database refuses nothing of it
	stays    instant.Instant // it is not checked out until then
	paused   []*refusal      // ends of its key that its transaction writes: see withhold
	acked    chan struct{}   // closed when its outcome is committed, or refused, for those who wait for that
	told     bool            // it is closed
	err      error           // what became of the outcome
	ctx      jobContext
}

// An ending is an outcome that waits for a check-out to be over.
type ending struct {
	err    error
	detail string
}

// at returns what no other job has.
func (d *Delivery) at() store.JobID { return store.JobID{BlockID: d.b.at(), ID: d.ID} }

// line names what the job goes one after the other with: its key, or the whole of a block that is
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

// moment lets others have mu for a moment. mu is held.
func (w *Worker) moment(ctx context.Context) error {
	w.mu.Unlock()
	defer w.mu.Lock()
	select {
	case <-ctx.Done():
	case <-time.After(time.Millisecond):
	}
	return ctx.Err()
}

// A jobContext is a job's context. Most handlers of small jobs never look at it,
// so what a context costs is spent when it is first used.
type jobContext struct {
	base context.Context

	mu     sync.Mutex
	std    context.Context
	cancel context.CancelCauseFunc
	cause  error
	over   bool
}

// real returns the context that does the work.
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
