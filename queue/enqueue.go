package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Enqueue enqueues a job and returns its id. When it returns without an error the job is
// committed, and nothing loses it. Concurrent calls share statements: jobs that arrive while a
// statement is under way are sent together by the next one, so a single caller never waits for
// others, and many callers cost little each.
//
// While the database cannot be reached, Enqueue retries until ctx ends, or for a minute if ctx
// has no deadline. If ctx ends before the job was sent, it is not enqueued. An error that is an
// ErrUnknownOutcome leaves open whether it was, and comes with the id that it would have. Jobs with
// unique keys share transactions in the same way, but one whose key another transaction holds has its
// own, and waits alone. So has a job with a group or a Debounce.
func (c *Client) Enqueue(ctx context.Context, job Job) (Enqueued, error) {
	if len(c.middleware) > 0 {
		return c.aroundOne(ctx, job, c.enqueueOne, c.enqueueMany)
	}
	return c.enqueueOne(ctx, job)
}

func (c *Client) enqueueOne(ctx context.Context, job Job) (Enqueued, error) {
	if err := ctx.Err(); err != nil {
		return Enqueued{}, err
	}
	if job.Group != 0 || job.Debounce != 0 {
		return c.enqueueAlone(ctx, job)
	}
	one := &sending{jobs: [1]Job{job}, done: make(chan struct{})}
	_, one.bounded = ctx.Deadline()
	if err := c.prepare(ctx, one.jobs[:], one.rows[:]); err != nil {
		return Enqueued{}, err
	}
	if job.Unique != "" {
		return c.enqueueUnique(ctx, one)
	}
	name := one.rows[0].of.Name // before a writer sets the row's fields
	id, err := c.out.send(ctx, one)
	if id == 0 {
		return Enqueued{}, err
	}
	return Enqueued{ID: id, Queue: name}, err
}

// enqueueAlone enqueues a job in a transaction of its own.
func (c *Client) enqueueAlone(ctx context.Context, job Job) (Enqueued, error) {
	all, err := c.enqueueMany(ctx, []Job{job})
	if len(all) == 0 {
		return Enqueued{}, err
	}
	return all[0], err
}

// EnqueueMany enqueues jobs, all or none except for those whose unique keys are in use, and
// returns the outcome of each. Jobs of one ordering key keep the order of the slice. It is much
// cheaper than calling Enqueue for each. It waits for the database as Enqueue does, and with an
// ErrUnknownOutcome it returns the ids that the jobs would have.
func (c *Client) EnqueueMany(ctx context.Context, jobs []Job) (all []Enqueued, err error) {
	return c.around(ctx, jobs, c.enqueueMany)
}

func (c *Client) enqueueMany(ctx context.Context, jobs []Job) (all []Enqueued, err error) {
	if len(jobs) == 0 || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	rows := make([]jobRow, len(jobs))
	if err := c.prepare(ctx, jobs, rows); err != nil {
		return nil, err
	}
	err = c.insist(ctx, func() error {
		ctx, end := c.spared(ctx)
		defer end()
		return c.writeAnew(ctx, rows)
	})
	switch err = uncertain(c.db.Dialect, err); {
	case errors.Is(err, ErrUnknownOutcome):
		c.late.mark(rows)
		return enqueued(rows), err
	case err != nil:
		return nil, err
	}
	c.late.note(rows)
	c.bells.ring(rows)
	return enqueued(rows), nil
}

// EnqueueTx enqueues jobs in a transaction of the caller's, on the same database: they exist if
// and when it commits. tx is a *sql.Tx, a *sql.Conn, or a pgx.Tx adapted by postgres.Tx.
//
// On PostgreSQL the commit itself notifies waiting workers: see docs/queue-internals.md. wake may be called
// after the commit, but not after a rollback: then workers of this process notice at once on each
// engine, and on PostgreSQL those of other processes a little sooner. Without it they find the
// jobs by polling, within PollMax.
//
// It needs no connection but the transaction's. A queue that is used for the first time is
// created outside of the transaction if a connection is free, or else inside it: then other
// creators of that queue wait for its end.
//
// The caller has to handle a deadlock or another error of a statement, by running the whole
// transaction again. Jobs of one key that two transactions enqueue concurrently are in no
// particular order, and of two with the same unique key the second waits for the end of the
// first. See the package's documentation for long transactions.
func (c *Client) EnqueueTx(ctx context.Context, tx dialect.Execer, jobs ...Job) (all []Enqueued, wake func(), err error) {
	return c.enqueueIn(ctx, c.callers(tx), jobs)
}

// EnqueueIn is [Client.EnqueueTx] for a short transaction of [sqlrun.DB.Tx]: all its statements
// run there, including the creation of a queue. After an [ErrInvalid] or [ErrDeleted] nothing was
// enqueued, and the transaction can continue.
func (c *Client) EnqueueIn(ctx context.Context, tx *dialect.Session, jobs ...Job) (all []Enqueued, wake func(), err error) {
	return c.enqueueIn(ctx, c.own(tx), jobs)
}

// enqueueIn inserts jobs in a transaction, with the middleware around that.
func (c *Client) enqueueIn(ctx context.Context, in *source, jobs []Job) (all []Enqueued, wake func(), err error) {
	if len(c.middleware) == 0 {
		return c.insertIn(ctx, in, jobs)
	}
	wake = func() {}
	all, err = c.around(ctx, jobs, func(ctx context.Context, jobs []Job) (all []Enqueued, err error) {
		before := wake
		all, tell, err := c.insertIn(ctx, in, jobs)
		if err == nil {
			wake = func() { before(); tell() }
		}
		return all, err
	})
	if err != nil {
		return nil, nil, err
	}
	return all, wake, nil
}

func (c *Client) insertIn(ctx context.Context, in *source, jobs []Job) (all []Enqueued, wake func(), err error) {
	if len(jobs) == 0 {
		return nil, func() {}, nil
	}
	rows := make([]jobRow, len(jobs))
	if err := checkAll(jobs); err != nil {
		return nil, nil, err
	}
	if err := in.address(ctx, jobs, rows); err != nil {
		return nil, nil, err
	}
	if err := c.name(ctx, in.tx, rows); err != nil {
		return nil, nil, err
	}
	of := store.Insertion
	if in.foreign && c.db.Dialect.Notify != nil && c.someWait() { // the caller commits, and need not tell us
		of = store.TellingInsertion
	}
	if err := c.insertBy(ctx, in.tx, rows, of); err != nil {
		c.taken(err) // so that a retry by the caller draws other ids
		return nil, nil, err
	}
	return enqueued(rows), func() {
		c.late.note(rows)
		c.bells.ring(rows)
	}, nil
}

// prepare checks jobs and makes rows of them, which have no ids yet. The rows refer to the jobs, which
// stay as they are.
func (c *Client) prepare(ctx context.Context, jobs []Job, rows []jobRow) error {
	if err := checkAll(jobs); err != nil {
		return err
	}
	return c.insist(ctx, func() error {
		ctx, end := c.spared(ctx)
		defer end()
		return c.db.Undone((&source{c: c, at: instant.Now()}).address(ctx, jobs, rows))
	})
}

func checkAll(jobs []Job) error {
	for i := range jobs {
		if err := jobs[i].valid(); err != nil {
			return ofMany(i, len(jobs), err)
		}
	}
	return nil
}

// insist repeats do while the database cannot be reached, and so nothing has changed. It gives up
// when ctx ends, or by Options.RetryFor.
func (c *Client) insist(ctx context.Context, do func() error) error {
	began := instant.Now()
	_, bounded := ctx.Deadline()
	var last error
	for failures := 1; ; failures++ {
		err := do()
		switch {
		case err == nil:
			return nil
		case !c.db.Dialect.Unsent(err):
			if last != nil && ctx.Err() != nil && !c.db.Dialect.Uncertain(err) {
				err = notSent(fmt.Errorf("%w: %w", err, last))
			}
			return err
		case c.opt.gaveUp(bounded, since(began)):
			return notSent(err)
		}
		if last == nil || ctx.Err() == nil { // otherwise err only says that the caller has left
			last = err
		}
		if !pace.Sleep(ctx, pauseAfter(failures)) {
			return notSent(fmt.Errorf("%w: %w", ctx.Err(), last))
		}
	}
}

// gaveUp reports whether a call that has failed for so long is not tried again. bounded is whether its context has a deadline.
func (o *Options) gaveUp(bounded bool, failed time.Duration) bool {
	return o.RetryFor < 0 || !bounded && failed >= o.RetryFor
}

// pauseAfter returns how long to wait before asking the database again after so many failures to
// reach it. The first failure may only be a connection that was cut long ago.
func pauseAfter(failures int) time.Duration {
	if failures == 1 {
		return 0
	}
	return pace.Delay(10*time.Millisecond, time.Second, failures-1, rand.Float64())
}

func notSent(err error) error { return fmt.Errorf("queue: nothing was enqueued: %w", err) }

// uncertain marks errors that leave open whether the commit happened.
func uncertain(d *sqlrun.Dialect, err error) error {
	if d.Uncertain(err) {
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return err
}
