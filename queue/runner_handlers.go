package queue

import (
	"context"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/instant"
)

// A Handler processes a job. Its return value is the job's outcome: nil, an error, or the result
// of RetryAfter, Snooze, Discard or Bury. ctx ends when the job's timeout is over, when the job
// no longer belongs to this worker, and when the worker has been stopped and its grace is over;
// its cause says which.
type Handler func(ctx context.Context, d *Delivery) error

// A kindHandler processes the jobs of a kind.
type kindHandler struct {
	one   Handler
	many  BatchHandler
	batch BatchOptions
	retry RetryPolicy

	gathered []*gathering // incomplete batches
	full     int          // number of batches that need not wait
}

// A RetryPolicy overrides the queue's policy for a kind. Zero fields keep the queue's settings.
type RetryPolicy struct {
	MaxAttempts int           // failed attempts after which a job is dead
	Delay       time.Duration // delay before the second attempt; doubles with each further one
	MaxDelay    time.Duration // maximum delay between two attempts
	Timeout     time.Duration // of an attempt, unless the job has one of its own; the handler has to heed its context

	// Stall is how long an attempt may go without progress. Its context then ends with
	// [ErrStalled], and whatever the handler returns after that counts as a failure, so the job
	// is retried. Each call of [Delivery.SetProgress] or [Checkpoint] is progress. Zero means no
	// limit.
	Stall time.Duration

	// Backoff, if set, returns the delay after a failed attempt (from 1) that ended with err,
	// instead of Delay and MaxDelay. It may be called concurrently. It is not called where the
	// handler has decided itself: see [RetryAfter].
	Backoff func(attempt int, err error) time.Duration
}

// kindHandlers has the handlers by kind. They do not change once the worker runs.
type kindHandlers struct {
	handlers   map[string]*kindHandler
	others     *kindHandler // for all other kinds; nil: see BuryUnknown
	middleware []Middleware
	kinds      kindNames
	gathers    int // number of incomplete batches
}

// A Middleware wraps handlers: see [Worker.Use].
type Middleware func(next Handler) Handler

// wrapped wraps a handler in the middleware. The worker's mutex is not held.
func (known *kindHandlers) wrapped(h Handler) (Handler, error) {
	_, bad := barrier.Do(func() {
		for _, m := range slices.Backward(known.middleware) {
			h = m(h)
		}
	})
	if bad != nil {
		return nil, invalid("middleware", "%v", bad)
	}
	return h, nil
}

// handlerOf returns the handler of a kind, or nil if there is none.
func (known *kindHandlers) handlerOf(kind string) *kindHandler {
	if h := known.handlers[kind]; h != nil {
		return h
	}
	return known.others
}

// A BatchHandler processes several jobs of a kind at once. It returns nil if all are done, a
// Results with an error or nil for each, or another error, which then applies to all of them.
type BatchHandler func(ctx context.Context, batch []*Delivery) error

// BatchOptions adjust a handler of batches.
type BatchOptions struct {
	Max  int           // maximum number of jobs in a batch; default: 100
	Wait time.Duration // how long an incomplete batch waits for more jobs

	// ByKey makes each batch consist of the waiting jobs of one ordering key, in order, so that
	// many changes to one thing can be handled at once. A job without a key is a batch of its
	// own.
	ByKey bool

	Retry RetryPolicy // for each job; the zero value uses the queue's settings
}

// A gathering is an incomplete batch. With ByKey it has the first job of a key: the others wait
// in the key's queue.
type gathering struct {
	jobs  []*Delivery
	since instant.Instant // when the first of them came
	full  bool            // it need not wait any longer
}
