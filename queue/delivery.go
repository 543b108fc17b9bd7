package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/block"
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

	b        *tenure
	state    block.Job // what its block knows of it: where it is, and how far it has come
	what     verdict   // of an ended job
	limiters uint8     // limiters that it has passed and not left
	trial    trialState
	times
	ctx jobContext

	stuck    error     // why it has failed though its handler has not returned; nil: not so
	ending   *ending   // its outcome, which arrived while something was under way with its row
	result   []byte    // what its handler has made of it: see SetResult; nil: none
	saved    *Progress // the last snapshot; nil: there is none
	reason   string    // why it was discarded
	refusal  *refusal  // the refusal of one of its steps; nil: none
	withheld *withheld // from its block, for a transaction that completes it; nil: nothing
	waiter
}

// withheld are the earlier jobs of a job's key whose ends its transaction writes: see [Delivery.withhold].
type withheld struct {
	acks   []*block.Job
	paused []*block.Refusal
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

// A waiter is who waits for the fate of a job's outcome.
type waiter struct {
	acked chan struct{} // closed when the outcome is committed or refused; nil: nobody waits
	told  bool          // the fate is known
	fate  error
}

// hasEnded reports whether the job has an outcome, or was given up.
func (d *Delivery) hasEnded() bool { return d.state.HasEnded() }

// unique returns the unique key that the job has; "": none, or not any more.
func (d *Delivery) unique() string {
	if d.UniqueUntil == UntilBegin && d.state.From == tableRunning {
		return ""
	}
	return d.Unique
}

// tied reports whether other tables refer to the job.
func (d *Delivery) tied() bool { return d.unique() != "" || d.Group != 0 }

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
func (d *Delivery) line() string { return d.state.Line }

// comesFrom puts the job, whose public fields are known, into a block; nil: into none.
func (d *Delivery) comesFrom(b *tenure) {
	line := d.Key
	if b != nil {
		line = b.lineOf(d.Key)
	}
	d.b = b
	d.state = block.Job{
		ID: d.ID, Priority: d.Priority, Kind: d.Kind, Line: line, Order: d.ID, Tenant: d.Tenant, Cost: max(1, d.Cost), Of: d, Size: d.bytes(),
	}
}

// weigh tells the block the size of what the job carries now: a handler may have dropped its payload, or saved its
// progress. Handlers that have not returned may still write the payload.
func (d *Delivery) weigh() { d.state.Size = d.bytes() }

// bytes returns the size of the job's payload and its last snapshot.
func (d *Delivery) bytes() int {
	n := len(d.Payload)
	if d.saved != nil {
		n += len(d.saved.State)
	}
	return n
}

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

// deliveryOf returns the worker's view of a job of its blocks.
func deliveryOf(j *block.Job) *Delivery {
	d, _ := j.Of.(*Delivery)
	return d
}

// deliveriesOf does so for a list.
func deliveriesOf(list []*block.Job) []*Delivery {
	all := make([]*Delivery, len(list))
	for i, j := range list {
		all[i] = deliveryOf(j)
	}
	return all
}

// jobsOf returns the blocks' view of jobs.
func jobsOf(list []*Delivery) []*block.Job {
	all := make([]*block.Job, len(list))
	for i, d := range list {
		all[i] = &d.state
	}
	return all
}

// A Progress is a snapshot of a job's progress.
type Progress struct {
	State   []byte // what the next attempt needs to continue from here: any bytes, up to 1 MiB
	Percent int    // how much is done, 1 to 100; 0: unknown
	Message string // for people; cut after about 1000 bytes
}

// progressOf returns the stored progress of a job; nil: none.
func progressOf(j *store.Job) *Progress {
	if j.Progress == nil {
		return nil
	}
	return &Progress{State: j.Progress.State, Percent: j.Progress.Percent, Message: j.Progress.Message}
}

// A trialState is how a job stands on trial.
type trialState struct {
	why     trial
	atLimit bool // it has given up its place, and waits for a limit
	unbegun bool // it had a slot, waited there to run alone, and ended without
}

// A trial says why a job must prove itself.
type trial uint8

const (
	trusted   trial = iota // no trial, or a passed one
	suspected              // a worker that died may have read it
	survivor               // it had been running for long when its worker died
	accused                // it was on trial when its worker died
	trials
)

// The states of a checked out job's row.
const (
	rowRunning = "running" // and trusted
	rowSuspect = "suspect" // on trial
	rowAlone   = "alone"   // on trial, and nothing else on trial or unproven runs in its worker
	rowHanded  = "handed"  // its worker has ended, and has left it to others
	rowStuck   = "stuck"   // trusted, and its handler has not returned in time: see runner_stuck.go
)

// state returns the state for the row of a job that is about to run.
func (t trial) state() string {
	if t == trusted {
		return rowRunning
	}
	return rowSuspect
}

func lostJob(d *Delivery) error { return fmt.Errorf("%w: job %d", ErrLost, d.ID) }
