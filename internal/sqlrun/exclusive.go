package sqlrun

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Exclusive waits for the lock called name, for migrations. It excludes all other callers with that
// name, and ends with the process that holds it at the latest. On engines with [Dialect.RowLocked],
// it also locks the row that row returns, unless row is nil. A waiter holds no connection.
func (db *DB) Exclusive(ctx context.Context, name string, row *Stmt) (unlock func(), err error) {
	query := ""
	if row != nil {
		if query, _, err = db.render(row, nil); err != nil {
			return nil, err
		}
	}
	return db.Dialect.Exclusive(ctx, db, name, query)
}

// Take takes a lock of the session for tables in a schema or database, trying until it succeeds or ctx ends. A waiter holds no
// connection between tries: the holder may need it, if they share the pool.
func (locks *SessionLocks) Take(ctx context.Context, pool *sql.DB, home, name string) (unlock func(), err error) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 20*time.Millisecond, 500*time.Millisecond
	for {
		lock, err := trySession(ctx, pool, locks, home, name)
		if err == nil {
			return lock.keep(), nil
		}
		if !errors.Is(err, ErrSessionHeld) {
			if ended := context.Cause(ctx); ended != nil && !errors.Is(err, ended) {
				err = fmt.Errorf("%w: %w", ended, err) // the driver may only say that the connection is bad
			}
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: another process holds it: %w", name, context.Cause(ctx))
		case <-time.After(wait.NextBackOff()):
		}
	}
}

// keepEvery is how often who has a lock of Take asks for it.
const keepEvery = 5 * time.Second

// keep has the lock's connection do something from time to time, if the engine wants that. It returns what releases the lock.
func (s *SessionLock) keep() (free func()) {
	if s.locks.Keep == nil {
		return s.Free
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(keepEvery):
			}
			ctx, cancel := context.WithTimeout(context.Background(), keepEvery)
			s.locks.Keep(ctx, s.conn, s.name)
			cancel()
		}
	}()
	return func() {
		close(stop)
		<-ended
		s.Free()
	}
}
