package scheduler

import (
	"cmp"
	"context"
	"time"

	"github.com/dbcron/dbcron/internal/traceparent"
)

// A TracedRun is a run that begins, as those who trace it see it.
type TracedRun struct {
	ID       int64
	Schedule string
	Kind     string    // of the schedule: shell, argv, http, sql, func or job
	Due      time.Time // the slot, UTC
	Attempt  int
	Cause    string // slot, hand, backfill or chain
}

// A Trace ties a run to those who trace it. All of it may be left out.
type Trace struct {
	// Parent is a W3C traceparent: commands get it as TRACEPARENT in their environment, requests
	// as the header traceparent, jobs as their Trace, and functions in [Running]. Empty: a random one.
	Parent string

	// Context returns the context of a run's function or request, made of the one that it is given.
	Context func(context.Context) context.Context

	// End is called when the run has ended: with its state, and why it is that. It is not called
	// for a run that enqueues a job if its transaction is rolled back.
	End func(state, why string)
}

// traceOf asks whoever traces runs about one that begins.
func (s *Scheduler) traceOf(r *run) (t Trace) {
	if s.opt.Trace != nil {
		t = s.opt.Trace(TracedRun{
			ID: r.id, Schedule: r.schedule, Kind: cmp.Or(r.what.Kind, "shell"), Due: r.due,
			Attempt: r.attempt, Cause: r.cause,
		})
	}
	if !traceparent.Valid(t.Parent) {
		t.Parent = traceparent.New()
	}
	return t
}

// in is a context of the run's work.
func (t *Trace) in(ctx context.Context) context.Context {
	if t.Context == nil {
		return ctx
	}
	return t.Context(ctx)
}

func (t *Trace) end(state, why string) {
	if t.End != nil {
		t.End(state, why)
	}
}
