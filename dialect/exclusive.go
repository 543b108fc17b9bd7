package dialect

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// attempt tries something on a connection and says whether it came about.
type attempt func(context.Context, *sql.Conn) (bool, error)

// pinned takes a lock of the session on a connection of its own from db's pool.
func pinned(ctx context.Context, db *DB, name string, try, free attempt) (func(), error) {
	return pinnedOn(ctx, db.pool, name, try, free)
}

// pinnedOn tries until the lock is had or ctx ends. The connection goes back
// to the pool only after the server has said that the lock is free; in doubt
// it is closed, which ends its session and with it the lock.
func pinnedOn(ctx context.Context, pool *sql.DB, name string, try, free attempt) (unlock func(), err error) {
	c, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 20*time.Millisecond, 500*time.Millisecond
	for {
		got, err := try(ctx, c)
		if err != nil {
			discard(c)
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		if got {
			break
		}
		select {
		case <-ctx.Done():
			discard(c)
			return nil, fmt.Errorf("lock %s: another process holds it: %w", name, context.Cause(ctx))
		case <-time.After(wait.NextBackOff()):
		}
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if freed, err := free(ctx, c); err != nil || !freed {
			discard(c)
			return
		}
		_ = c.Close() // back to the pool, unlocked
	}, nil
}

// discard closes the connection itself instead of handing it back.
func discard(c *sql.Conn) {
	_ = c.Raw(func(any) error { return driver.ErrBadConn })
	if err := c.Close(); err != nil && !errors.Is(err, sql.ErrConnDone) {
		return // it is gone either way
	}
}

// lockKey hashes a name to the 64 bits that PostgreSQL's advisory locks take.
func lockKey(name string) int64 {
	h := fnv.New64a()
	h.Write([]byte("dbcron:" + name))
	return int64(h.Sum64())
}
