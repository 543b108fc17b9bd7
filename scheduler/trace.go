package scheduler

import (
	"cmp"
	"context"
	"time"

	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/jobfield"
)

// A TracedRun describes a run that begins to [Options.Trace].
type TracedRun struct {
	ID       int64
	Schedule string
	Kind     string    // of the schedule: shell, argv, http, sql, func or job
	Due      time.Time // the slot, UTC
	Attempt  int
	Cause    string // slot, hand, backfill, chain or boot
}

// A Trace connects a run to its tracer. All fields are optional.
type Trace struct {
	// Parent is a W3C traceparent. Commands get it in the environment variable TRACEPARENT,
	// requests in the header traceparent, jobs in their Trace, and functions in [Running]. Empty:
	// a random one.
	Parent string

	// Context derives the context of a run's function or request from the one given.
	Context func(context.Context) context.Context

	// End is called when the run has ended, with its state and the reason for it. For a run that
	// enqueues a job, it is not called if the transaction is rolled back.
	End func(state, why string)
}

// traceOf asks Options.Trace about a run that begins.
func (s *Scheduler) traceOf(r *run) (t Trace) {
	if s.opt.Trace != nil {
		barrier.Tell(s.opt.Logger, "Trace", func() {
			t = s.opt.Trace(TracedRun{
				ID: r.id, Schedule: r.schedule, Kind: cmp.Or(r.what.Kind, "shell"), Due: r.due,
				Attempt: r.attempt, Cause: r.cause,
			})
		})
	}
	if !jobfield.ValidTrace(t.Parent) {
		t.Parent = jobfield.NewTrace()
	}
	return t
}

// tracedIn derives the context for the run's work.
func (s *Scheduler) tracedIn(ctx context.Context, t *Trace) context.Context {
	within := ctx
	if t.Context != nil {
		barrier.Tell(s.opt.Logger, "Trace.Context", func() { within = t.Context(ctx) })
	}
	if within == nil {
		return ctx
	}
	return within
}

func (s *Scheduler) endTrace(t *Trace, state, why string) {
	if t.End != nil {
		barrier.Tell(s.opt.Logger, "Trace.End", func() { t.End(state, why) })
	}
}
