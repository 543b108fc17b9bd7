package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A Running is the run for which a function is called. What is written to it becomes the run's
// output. It is safe for concurrent use.
type Running struct {
	ID       int64
	Schedule string
	Due      time.Time // the slot, UTC
	Attempt  int       // 1 at first; more after a crash or failure
	Fence    int64     // larger than the fence of every earlier attempt of the schedule
	Input    string    // the schedule's Stdin, or else the output of the run that started it
	By       *Cause    // the run that started it through OnSuccess or OnFailure; nil: none
	Trace    string    // a W3C traceparent

	out io.Writer
}

// Write appends to the run's output, of which the head and the tail are kept.
func (r *Running) Write(p []byte) (int, error) { return r.out.Write(p) }

// A Func is the work of a schedule of kind func. Its context ends when the lease cannot be
// renewed, when the run is cancelled or exceeds the schedule's timeout, or when the daemon stops.
// The function must return then: after a timeout or a cancellation its run, its place and the next
// slot wait until it does, and after a lost lease another daemon begins the next attempt beside it.
// An error or a panic fails the attempt.
type Func func(ctx context.Context, run *Running) error

// Handle registers f as the work of schedules of kind func whose command is name. Only processes
// that handle a name claim its slots. Call Handle before Run. It returns ErrInvalid if the name is
// malformed or registered already.
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

// call calls the function that the schedule names.
func (s *Scheduler) call(e *execution, until instant.Instant) (activity, error) {
	s.mu.Lock()
	f := s.handlers[e.what.Command]
	s.mu.Unlock()
	if f == nil {
		return nil, fmt.Errorf("this program has no function %q", e.what.Command)
	}
	return start(until, s.opt.KillGrace, s.opt.MaxOutput, func(ctx context.Context, out *guardian.Output) guardian.Result {
		run := &Running{
			ID: e.id, Schedule: e.schedule, Due: e.due, Attempt: e.attempt, Fence: e.fence, Input: e.input(),
			By: e.by, Trace: e.trace.Parent, out: out,
		}
		return guardian.Result{Cause: guardian.Exited, ExitCode: -1, Err: textOf(f(s.tracedIn(ctx, &e.trace), run), out)}
	}), nil
}

// textOf returns a function's error as a text: its methods are called here, in the function's own
// goroutine, and nowhere else.
func textOf(err error, out io.Writer) error {
	if err == nil {
		return nil
	}
	text, stack, bad := barrier.Text(err)
	if bad != nil {
		_, _ = fmt.Fprintf(out, "\n%v\n\n%s", bad, stack)
	}
	return errors.New(text)
}

// errElsewhere rolls back a statement whose run belongs to another daemon by now.
var errElsewhere = errors.New("the lease had ended; the statement was rolled back")

// concludeHere is conclude for the transaction of the work itself. It waits for the rows of its run and its schedule, since the work
// would have to be done anew.
func (s *Scheduler) concludeHere(ctx context.Context, tx *sqlrun.Session, e *execution, r guardian.Result, left *leftovers) (bool, error) {
	c, err := lock(ctx, tx, e.schedule)
	gone := errors.Is(err, ErrNotFound)
	if err != nil && !gone {
		return false, err
	}
	if _, err := runByID(ctx, tx, getRun, e.id); err != nil && !errors.Is(err, ErrNoRun) {
		return false, err
	}
	return s.conclude(ctx, tx, e, &c, gone, outcome{state: "ok"}, r, left)
}

// statement executes a schedule's SQL and records its outcome in one transaction. So its effect
// is committed if and only if the run is recorded as ok, once per slot. The session is a guest's.
func (s *Scheduler) statement(e *execution, until instant.Instant) activity {
	return start(until, s.opt.KillGrace, s.opt.MaxOutput, func(ctx context.Context, out *guardian.Output) guardian.Result {
		r := guardian.Result{Cause: guardian.Exited, ExitCode: -1}
		var left leftovers
		r.Err = s.db.GuestTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
			left = leftovers{}
			n, err := tx.ExecGuest(ctx, e.what.Command)
			if err != nil {
				return err
			}
			ok := r
			ok.Output = fmt.Sprintf("%d rows\n", n)
			recorded, err := s.concludeHere(ctx, tx, e, ok, &left)
			if err == nil && !recorded {
				err = errElsewhere
			}
			return err
		})
		if r.Err == nil {
			s.doLater(left)
		}
		e.mu.Lock()
		e.recorded = r.Err == nil
		e.mu.Unlock()
		return r
	})
}
