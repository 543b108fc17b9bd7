package dialect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// exclusive takes a lock of the session, for Dialect.Exclusive. It tries until
// the lock is had or ctx ends. Who waits holds no connection meanwhile: the
// holder may need it, if it shares the pool.
func exclusive(ctx context.Context, pool *sql.DB, locks *SessionLocks, name string) (unlock func(), err error) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 20*time.Millisecond, 500*time.Millisecond
	for {
		lock, err := trySession(ctx, pool, locks, name)
		if err == nil {
			return lock.Free, nil
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
