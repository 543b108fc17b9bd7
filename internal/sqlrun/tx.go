package sqlrun

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/dbcron/dbcron/internal/sqlconn"
)

// Tx runs f in a transaction at READ COMMITTED and commits it. On a deadlock, a serialization
// failure or a lock timeout it rolls back and runs f again, so f must have no effects outside the
// transaction. (It rolls back explicitly because a lock timeout on MySQL leaves the transaction
// open, with its earlier writes.) An error of f, or a panic, rolls back.
//
// If the commit itself fails, for example because the connection was cut, it may or may not have
// happened: see [Dialect.Uncertain].
func (db *DB) Tx(ctx context.Context, f func(ctx context.Context, tx *Session) error) error {
	return db.retrying(ctx, func() error { return db.once(ctx, f) })
}

// ShortTx is Tx for a transaction that waits only for the database. Where the server can, it ends
// the transaction after five idle seconds, so that a process that is stopped in the middle does not
// keep its locks.
func (db *DB) ShortTx(ctx context.Context, f func(ctx context.Context, tx *Session) error) error {
	return db.Tx(sqlconn.Short(ctx), f)
}

// FreeTx is ShortTx without retries. If the pool has no free connection within wait, it returns an
// error that is Unavailable.
func (db *DB) FreeTx(ctx context.Context, wait time.Duration, f func(ctx context.Context, tx *Session) error) error {
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	c, err := db.pool.Conn(bounded)
	if err != nil {
		return db.unconnected(ctx, fmt.Errorf("connect: %w", err))
	}
	defer c.Close()
	return db.begin(sqlconn.Short(ctx), c, f)
}

// GuestTx is Tx for SQL that somebody else has written (see [Session.ExecGuest]): its connection is closed afterwards, and
// nobody else gets it. So settings, temporary tables, prepared statements and locks of the session end with it.
func (db *DB) GuestTx(ctx context.Context, f func(ctx context.Context, tx *Session) error) error {
	return db.retrying(ctx, func() error {
		c, err := db.pool.Conn(ctx)
		if err != nil {
			return db.unconnected(ctx, fmt.Errorf("begin: %w", err))
		}
		defer c.Close()
		defer sqlconn.Discard(c)
		if db.writing != nil {
			defer db.write(ctx)()
		}
		return db.begin(ctx, c, f)
	})
}

func (db *DB) once(ctx context.Context, f func(context.Context, *Session) error) error {
	if db.writing == nil {
		return db.begin(ctx, db.pool, f)
	}
	c, err := db.pool.Conn(ctx)
	if err != nil {
		return db.unconnected(ctx, fmt.Errorf("begin: %w", err))
	}
	defer c.Close()
	defer db.write(ctx)()
	return db.begin(ctx, c, f)
}

// begin runs f in a transaction on a pool or a connection.
func (db *DB) begin(ctx context.Context, where interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}, f func(context.Context, *Session) error,
) error {
	tx, err := where.BeginTx(ctx, &sql.TxOptions{Isolation: db.isolation})
	if err != nil {
		return db.unconnected(ctx, fmt.Errorf("begin: %w", err))
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing; before, the error that led here says more
	onBegin := db.Dialect.OnBegin
	if sqlconn.IsShort(ctx) {
		onBegin = cmp.Or(db.Dialect.OnBeginShort, onBegin)
	}
	if db.brief {
		onBegin = cmp.Or(db.Dialect.OnBeginBrief, onBegin)
	}
	if db.hasty {
		onBegin = cmp.Or(db.Dialect.OnBeginHasty, onBegin)
	}
	if onBegin != "" {
		if _, err := tx.ExecContext(ctx, onBegin); err != nil {
			return db.unconnected(ctx, fmt.Errorf("begin: %w", err))
		}
	}
	if err := f(ctx, db.On(tx)); err != nil {
		return db.Undone(err)
	}
	if err := tx.Commit(); err != nil {
		return &commitError{err}
	}
	return nil
}

// WithConn runs f with a session on one connection of the pool. What f sends waits for no
// connection and, on engines with one writer, for no other writer of this process. Like Tx it may
// run f again, so only the last statement of f may change anything.
func (db *DB) WithConn(ctx context.Context, f func(ctx context.Context, on *Session) error) error {
	return db.retrying(ctx, func() error {
		bounded, cancel := context.WithTimeout(ctx, db.timeout)
		defer cancel()
		c, err := db.pool.Conn(bounded)
		if err != nil {
			return db.unconnected(ctx, fmt.Errorf("connect: %w", err))
		}
		defer c.Close()
		defer db.write(ctx)()
		return f(ctx, db.On(c))
	})
}

// A commitError is an error of a commit.
type commitError struct{ error }

func (e *commitError) Error() string { return "commit: " + e.error.Error() }
func (e *commitError) Unwrap() error { return e.error }

// An undoneError is an error that left no changes behind, even though the server gave no answer:
// nothing was sent, or it was rolled back.
type undoneError struct{ error }

func (e *undoneError) Unwrap() error { return e.error }

// Undone marks an error of a step that changes nothing or precedes the commit. Without an answer
// from the server, such an error is still certain to have changed nothing.
func (db *DB) Undone(err error) error {
	if err != nil && db.Dialect.lost(err) {
		return &undoneError{err}
	}
	return err
}

// unconnected marks an error in getting a connection.
func (db *DB) unconnected(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errNoAnswer, err) // the timeout for connecting is over, not the caller's
	}
	return db.Undone(err)
}

// Unreachable reports whether err is a connection error, or says that the server is not ready or
// takes no writes, so that a later retry makes sense.
func (d *Dialect) Unreachable(err error) bool { return ConnectionError(err) || d.Unavailable(err) }

// lost reports whether err only means that there was no answer.
func (d *Dialect) lost(err error) bool {
	return d.Unavailable(err) || errors.Is(err, sqlconn.ErrCut) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Uncertain reports whether, after err, a statement or transaction may or may not have been
// committed. It is certain not to be if nothing was sent, or if the connection was lost before the
// commit.
func (d *Dialect) Uncertain(err error) bool {
	var commit *commitError
	return err != nil && !d.Retryable(err) && !d.ReadOnly(err) && !isUndone(err) && (d.lost(err) || errors.As(err, &commit))
}

// Unsent reports whether the server could not be reached and nothing was changed, so that the whole
// operation can be retried later.
func (d *Dialect) Unsent(err error) bool {
	return err != nil && (isUndone(err) || d.ReadOnly(err)) && d.Unavailable(err)
}

// isUndone reports whether the failed operation left no changes. Drivers return ErrBadConn only for
// what they have not sent.
func isUndone(err error) bool {
	var undone *undoneError
	return errors.As(err, &undone) || errors.Is(err, driver.ErrBadConn)
}

// retrying runs f, and runs it again while the engine asks for that, ten times at most: contention
// in tests never needed more than four.
func (s *Session) retrying(ctx context.Context, f func() error) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 5*time.Millisecond, time.Second
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := f()
		if held := s.heldTooLong(err); held != nil {
			err = backoff.Permanent(held)
		} else if err != nil && !s.Dialect.Retryable(err) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(wait), backoff.WithMaxTries(10))
	return err
}
