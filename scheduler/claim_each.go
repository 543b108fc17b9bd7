package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A takeFunc takes up to limit due rows of a lane: see claim and takeOver.
type takeFunc func(ctx context.Context, lane string, limit int) (runs []run, done int, err error)

// A loneError is the error of a transaction that handled a single schedule or run.
type loneError struct {
	error
	id    int64
	name  string
	off   *sqlrun.Stmt // the statement that puts it off
	after time.Duration
}

func (e *loneError) Unwrap() error { return e.error }

// separable reports whether a failed transaction should be retried row by row. It should not if
// every row would fail, because the database is unreachable or the daemon is stopping.
func (s *Scheduler) separable(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !s.db.Dialect.Unavailable(err) && !errors.Is(err, sqlconn.ErrCut)
}

// takeEach takes the due rows of a lane one by one, after taking them together has failed. It
// puts off each row that still fails and records why, so that it blocks no other row. It returns
// the number of rows handled.
func (s *Scheduler) takeEach(ctx, working context.Context, lane string, limit int, take takeFunc) (done int, err error) {
	for done < limit {
		claimed, n, err := take(ctx, lane, 1)
		s.start(working, claimed)
		var lone *loneError
		switch {
		case errors.As(err, &lone) && s.separable(ctx, err):
			if n, err = s.putOff(ctx, lone); err != nil {
				return done, err
			}
		case err != nil:
			return done, err
		}
		if n == 0 {
			break
		}
		done += n
	}
	return done, nil
}

// putOff postpones a row that could not be taken.
func (s *Scheduler) putOff(ctx context.Context, lone *loneError) (int, error) {
	why := reason("could not be claimed: " + lone.Error())
	if tooLong := s.db.Dialect.LockTimeout; tooLong != nil && tooLong(lone) {
		lone.after = min(lone.after, putOffHeld)
	}
	n, err := s.db.Exec(ctx, lone.off, sqlrun.Args{"id": lone.id, "after": lone.after.Microseconds(), "reason": why})
	if err != nil {
		return 0, errors.Join(lone.error, err)
	}
	if n > 0 {
		s.opt.Logger.Warn("a schedule could not be claimed; it is tried again", "schedule", lone.name, "after", lone.after, "err", lone.error)
	}
	return int(max(n, 1)), nil // if no row changed, somebody else has handled it
}

// putOffHeld is the longest such delay if another transaction has held a row for too long.
const putOffHeld = 5 * time.Second

// putOffFor is the delay before a schedule that could not be claimed is tried again. It grows
// with the slot's lateness, so that a lasting failure costs little.
func putOffFor(c *candidate) time.Duration {
	return min(max(c.now.Sub(c.Due)/2, time.Second), time.Minute)
}
