package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/guardian"
)

// A Running is a run that a function is called for. What is written to it
// becomes the run's output; its methods may be called by several goroutines.
type Running struct {
	ID       int64
	Schedule string
	Due      time.Time // the slot, UTC
	Attempt  int       // 1, or more after a crash or a failure
	Fence    int64     // larger than that of every attempt of the schedule that began before
	Input    string    // the column stdin of the schedule, or else the output of the run that started it
	By       *Cause    // the run that started it, by OnSuccess or OnFailure; nil: none
	Trace    string    // a W3C traceparent

	out io.Writer
}

// Write adds to the run's output, of which head and tail are kept.
func (r *Running) Write(p []byte) (int, error) { return r.out.Write(p) }

// A Func is the work of a schedule of the kind func. Its context ends when the
// lease cannot be renewed, the run is cancelled, takes longer than the
// schedule's timeout, or the daemon stops: it must return then, for another
// daemon will begin the next attempt. An error is a failure, and so is a panic.
type Func func(ctx context.Context, run *Running) error

// Handle gives schedules of the kind func their work: those whose command is
// this name. Only processes that handle it claim their slots. Handle must be
// called before Run. It returns ErrInvalid for a name that cannot be, or that
// is handled already.
func (s *Scheduler) Handle(name string, f Func) error {
	if err := CheckName(name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f == nil || s.handlers[name] != nil {
		return fmt.Errorf("%w: function %q is nil, or handled already", ErrInvalid, name)
	}
	s.handlers[name] = f
	return nil
}

// call calls the function that a schedule names.
func (s *Scheduler) call(e *execution) (effort, error) {
	s.mu.Lock()
	f := s.handlers[e.what.Command]
	s.mu.Unlock()
	if f == nil {
		return nil, fmt.Errorf("this program has no function %q", e.what.Command)
	}
	return start(e.deadline, s.opt.KillGrace, s.opt.MaxOutput, func(ctx context.Context, out *guardian.Output) guardian.Result {
		run := &Running{
			ID: e.id, Schedule: e.schedule, Due: e.due, Attempt: e.attempt, Fence: e.fence, Input: e.input(),
			By: e.by, Trace: e.trace.Parent, out: out,
		}
		return guardian.Result{Cause: guardian.Exited, ExitCode: -1, Err: f(e.trace.in(ctx), run)}
	}), nil
}

// errElsewhere rolls a statement back whose run is no longer this daemon's.
var errElsewhere = errors.New("the lease had ended; the statement was rolled back")

// statement runs a schedule's SQL and records its outcome in one transaction:
// its effect is there exactly when the run is recorded as ok, once per slot.
func (s *Scheduler) statement(e *execution) effort {
	return start(e.deadline, s.opt.KillGrace, s.opt.MaxOutput, func(ctx context.Context, out *guardian.Output) guardian.Result {
		r := guardian.Result{Cause: guardian.Exited, ExitCode: -1}
		r.Err = s.db.Tx(ctx, func(ctx context.Context, tx *dialect.Session) error {
			n, err := tx.ExecText(ctx, e.what.Command)
			if err != nil {
				return err
			}
			ok := r
			ok.Output = fmt.Sprintf("%d rows\n", n)
			recorded, err := s.conclude(ctx, tx, e, outcome{state: "ok"}, ok)
			if err == nil && !recorded {
				err = errElsewhere
			}
			return err
		})
		e.mu.Lock()
		e.recorded = r.Err == nil
		e.mu.Unlock()
		return r
	})
}
