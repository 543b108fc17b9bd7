package dialect

import (
	"context"
	"database/sql"
	"database/sql/driver"
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

// pinnedOn tries until the lock is had or ctx ends. Who waits holds no
// connection meanwhile: the holder may need it, if it shares the pool. The
// holder's connection goes back to the pool only after the server has said
// that the lock is free; in doubt it is closed, which ends its session and with
// it the lock.
func pinnedOn(ctx context.Context, pool *sql.DB, name string, try, free attempt) (unlock func(), err error) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 20*time.Millisecond, 500*time.Millisecond
	var c *sql.Conn
	for c == nil {
		if c, err = tryOn(ctx, pool, try); err != nil {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		if c != nil {
			break
		}
		select {
		case <-ctx.Done():
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

// tryOn returns the connection that has the lock, or nil if another has it.
func tryOn(ctx context.Context, pool *sql.DB, try attempt) (*sql.Conn, error) {
	c, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	got, err := try(ctx, c)
	switch {
	case err != nil:
		discard(c) // it may have the lock
		return nil, err
	case !got:
		return nil, c.Close()
	}
	return c, nil
}

// discard closes the connection itself instead of handing it back.
func discard(c *sql.Conn) {
	_ = c.Raw(func(any) error { return driver.ErrBadConn })
	_ = c.Close() // it is gone already
}

// lockKey hashes a name to the 64 bits that PostgreSQL's advisory locks take.
func lockKey(name string) int64 {
	h := fnv.New64a()
	h.Write([]byte("dbcron:" + name))
	return int64(h.Sum64())
}
