package queue

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/share"
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

// Use adds middleware around all handlers that are set after the call, the first outermost.
func (w *Worker) Use(m ...Middleware) { w.middleware = append(w.middleware, m...) }

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

// Handle sets the handler of a kind. It returns an error if the kind has a handler already, or if
// the worker is running.
func (w *Worker) Handle(kind string, h Handler) error { return w.HandleWith(kind, RetryPolicy{}, h) }

// HandleWith is Handle with a retry policy for the kind.
func (w *Worker) HandleWith(kind string, p RetryPolicy, h Handler) error {
	one, err := w.wrapped(h)
	if err != nil {
		return err
	}
	return w.handle(kind, &kindHandler{one: one, retry: p})
}

// HandleOthers sets the handler of all kinds without a handler of their own. Without it the
// worker leaves such jobs alone (see [WorkerOptions.BuryUnknown]). It returns an error as Handle
// does.
func (w *Worker) HandleOthers(h Handler) error {
	one, err := w.wrapped(h)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.handleOthers(&kindHandler{one: one})
}

// handleOthers sets the handler of the other kinds. mu is held.
func (w *Worker) handleOthers(h *kindHandler) error {
	switch {
	case w.started:
		return invalid("kind", "the other kinds: the worker runs already")
	case w.others != nil:
		return invalid("kind", "the other kinds have a handler already")
	}
	w.others = h
	return nil
}

// handlerOf returns the handler of a kind, or nil if there is none.
func (known *kindHandlers) handlerOf(kind string) *kindHandler {
	if h := known.handlers[kind]; h != nil {
		return h
	}
	return known.others
}

func (w *Worker) handle(kind string, h *kindHandler) error {
	if err := sqlrun.CheckName(kind); err != nil {
		return invalid("kind", "%v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.started:
		return invalid("kind", "%q: the worker runs already", kind)
	case w.handlers[kind] != nil:
		return invalid("kind", "%q has a handler already", kind)
	}
	w.handlers[kind], w.kinds[kind] = h, kind
	return nil
}

// A Middleware wraps handlers: see [Worker.Use].
type Middleware func(next Handler) Handler

// pick sets which kinds a worker handles that has handlers for some only. mu is held.
func (w *Worker) pick() {
	if w.others == nil && !w.opt.BuryUnknown && w.unasked == nil && !w.alone {
		w.choice.selective, w.choice.handled = true, share.NewKindSet(slices.Collect(maps.Keys(w.handlers)))
	}
}
