package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlconn"
)

// A taking takes up to limit of what is due in a lane: see claim and takeOver.
type taking func(ctx context.Context, lane string, limit int) (runs []run, done int, err error)

// A loneError is an error of a transaction that dealt with one schedule, or one run, alone.
type loneError struct {
	error
	id    int64
	name  string
	off   *dialect.Stmt // puts it off
	after time.Duration
}

func (e *loneError) Unwrap() error { return e.error }

// separable tells whether a transaction that failed is worth trying for each of its rows:
// not if it would fail for all, since the database cannot be reached or the daemon stops.
func (s *Scheduler) separable(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !s.db.Dialect.Unavailable(err) && !errors.Is(err, sqlconn.ErrCut)
}

// takeEach takes what is due in a lane one by one, after it could not be taken together.
// What cannot be taken even so is put off, and says why: so it is in nobody's way. It returns how
// many rows it has dealt with.
func (s *Scheduler) takeEach(ctx, working context.Context, lane string, limit int, take taking) (done int, err error) {
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

// putOff has daemons try again later what could not be taken.
func (s *Scheduler) putOff(ctx context.Context, lone *loneError) (int, error) {
	why := reason("could not be claimed: " + lone.Error())
	n, err := s.db.Exec(ctx, lone.off, dialect.Args{"id": lone.id, "after": lone.after.Microseconds(), "reason": why})
	if err != nil {
		return 0, errors.Join(lone.error, err)
	}
	if n > 0 {
		s.opt.Logger.Warn("a schedule could not be claimed; it is tried again", "schedule", lone.name, "after", lone.after, "err", lone.error)
	}
	return int(max(n, 1)), nil // whoever has changed it meanwhile has dealt with it
}

// putOffFor is how long a schedule waits that could not be claimed: the later its slot is, the
// longer, so that one that fails for long costs little.
func putOffFor(c *candidate) time.Duration {
	return min(max(c.now.Sub(c.Due)/2, time.Second), time.Minute)
}
