package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/internal/duration"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Limits bound the jobs of a queue, or of one of its kinds, over all workers: how many run
// at a time (see worker_permit.go), and how many begin in a time (see worker_rate.go). What waits for a
// limit waits in the worker that has its block (see worker_limiter.go).

// A Limit bounds the jobs of a queue, or those of one of its kinds, across all workers.
//
// A running job counts from the beginning of its handler until it returns, so no more than
// Running handlers are active at a time, except for those of a worker that could not renew its
// lease: their contexts have ended by then, and they are expected to return. Each attempt counts,
// and each job of a batch.
//
// Workers apply a change within three seconds. Jobs that are running then are not stopped.
type Limit struct {
	Queue string
	Kind  string // empty: all jobs of the queue together

	Running int // maximum number that run at a time; 0: unlimited

	Rate  int           // maximum number that begin in Per; 0: unlimited
	Per   time.Duration // default: 1s
	Burst int           // maximum number that begin at once after a pause; default and minimum: those of 0.1s
}

// A LimitInfo is a limit and its current use.
type LimitInfo struct {
	Limit
	Permits int  // number of permits that workers hold
	Waiting bool // some worker waits for one
}

// The most that limits may be.
const (
	maxRunning = 10_000
	maxRate    = 100_000
	maxPer     = 366 * 24 * time.Hour
)

func (l *Limit) check() error {
	if err := sqlrun.CheckName(l.Queue); err != nil {
		return invalid("queue", "%v", err)
	}
	if err := sqlrun.CheckName(l.Kind); l.Kind != "" && err != nil {
		return invalid("kind", "%v", err)
	}
	switch {
	case l.Running < 0 || l.Running > maxRunning:
		return invalid("running", "%d is not 1 to %d jobs at a time, or 0 for any number; to have none begin, pause the queue",
			l.Running, maxRunning)
	case l.Rate < 0 || l.Rate > maxRate:
		return invalid("rate", "%d is not 1 to %d jobs, or 0 for any number; to have none begin, pause the queue", l.Rate, maxRate)
	case l.Running == 0 && l.Rate == 0:
		return invalid("limit", "it limits nothing: say how many jobs may run at a time, or begin in a time, or delete it")
	case l.Per < time.Millisecond || l.Per > maxPer:
		return invalid("per", "%v is not 1ms to 366 days", l.Per)
	case l.Burst < 1 || l.Burst > maxRate:
		return invalid("burst", "%d is not 1 to %d", l.Burst, maxRate)
	}
	return nil
}

// args are what is stored.
func (l *Limit) args(queue int) sqlrun.Args {
	a := sqlrun.Args{"queue": queue, "kind": l.Kind, "running": nil, "rate": nil, "per": duration.Format(l.Per), "burst": l.Burst}
	if l.Running > 0 {
		a["running"] = l.Running
	}
	if l.Rate > 0 {
		a["rate"] = l.Rate
	}
	return a
}

// EditLimit changes a limit of an existing queue, or creates it. change gets the current limit,
// or an empty one, and may be called more than once. It returns [ErrNotFound] if there is no such
// queue, and ErrInvalid if the result limits nothing.
func (c *Client) EditLimit(ctx context.Context, queue, kind string, change func(*Limit)) (Limit, error) {
	var after Limit
	err := c.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		var id, n int
		if err := tx.Get(ctx, store.LockQueue, sqlrun.Args{"name": queue}, &id, &n); err != nil {
			return orNone(err, queue)
		}
		all, err := readLimits(ctx, tx, id, queue)
		if err != nil {
			return err
		}
		stmt := store.InsertLimit
		after = Limit{Per: time.Second, Burst: 1}
		for _, l := range all {
			if l.Kind == kind {
				after, stmt = l.Limit, store.UpdateLimit
			}
		}
		change(&after)
		after.Queue, after.Kind = queue, kind
		if err := after.check(); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, stmt, after.args(id))
		return err
	})
	if err != nil {
		return Limit{}, err
	}
	c.bells.announce(ctx)
	return after, nil
}

// DeleteLimit removes a limit. It returns [ErrNotFound] if there is none.
func (c *Client) DeleteLimit(ctx context.Context, queue, kind string) error {
	err := c.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		var id, n int
		if err := tx.Get(ctx, store.LockQueue, sqlrun.Args{"name": queue}, &id, &n); err != nil {
			return orNone(err, queue)
		}
		gone, err := tx.Exec(ctx, store.DeleteLimit, sqlrun.Args{"queue": id, "kind": kind})
		if err == nil && gone == 0 {
			err = fmt.Errorf("%w: limit of queue %q and kind %q", ErrNotFound, queue, kind)
		}
		return err
	})
	if err == nil {
		c.bells.announce(ctx)
	}
	return err
}

// Limits lists limits, ordered by queue and kind, after a given queue and kind.
func (c *Client) Limits(ctx context.Context, afterQueue, afterKind string, limit int) ([]LimitInfo, error) {
	args := sqlrun.Args{"after": afterQueue, "kind": afterKind, "limit": limit}
	return sqlrun.Select(ctx, &c.db.Session, store.ListLimits, args, scanLimit)
}

// LimitsOf lists the limits of a queue by kind, the one for all its jobs first. A queue that does
// not exist has none.
func (c *Client) LimitsOf(ctx context.Context, queue string) ([]LimitInfo, error) {
	return sqlrun.Select(ctx, &c.db.Session, store.LimitsNamed, sqlrun.Args{"name": queue}, scanLimit)
}

func scanLimit(rows *sql.Rows) (l LimitInfo, err error) {
	var per, by string
	err = rows.Scan(&l.Queue, &l.Kind, &l.Running, &l.Rate, &per, &l.Burst, &by, &l.Waiting, &l.Permits)
	return l, errors.Join(err, l.parse(per))
}

// A limitRow is a limit as the table has it.
type limitRow struct {
	Limit
	waitingBy string // who waits for a permit; "": nobody
}

func readLimits(ctx context.Context, on *sqlrun.Session, queue int, name string) ([]limitRow, error) {
	return sqlrun.Select(ctx, on, store.LimitsOf, sqlrun.Args{"queue": queue}, func(rows *sql.Rows) (l limitRow, err error) {
		var per string
		var waits bool
		l.Queue = name
		if err = rows.Scan(&l.Kind, &l.Running, &l.Rate, &per, &l.Burst, &l.waitingBy, &waits); !waits {
			l.waitingBy = ""
		}
		return l, errors.Join(err, l.parse(per))
	})
}

// parse reads rate_per, which may have been written by hand.
func (l *Limit) parse(per string) (err error) {
	if l.Per, err = duration.Parse(per); err == nil && l.Rate > 0 && l.Per < time.Millisecond {
		err = invalid("rate_per", "%q is shorter than 1ms", per)
	}
	if err != nil {
		err = fmt.Errorf("limit of queue %q and kind %q: %w", l.Queue, l.Kind, err)
	}
	l.Rate, l.Burst, l.Per = min(l.Rate, maxRate), min(max(l.Burst, 1), maxRate), min(l.Per, maxPer)
	return err
}
