package sqlrun

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/internal/engine"
)

// SessionLocks is how an engine's connections hold locks that end with them.
// Each function works on one connection; names are hashed.
type SessionLocks struct {
	// Key converts a lock's name for the other functions; home is the database of the tables. nil: it stays
	// the same.
	Key    func(home, name string) string
	Refuse func(ctx context.Context, c *sql.Conn) error // why this connection's locks cannot be trusted
	Try    func(ctx context.Context, c *sql.Conn, name string) (got bool, err error)
	Held   func(ctx context.Context, c *sql.Conn, name string) (held bool, err error)
	Free   func(ctx context.Context, c *sql.Conn, name string) (freed bool, err error)

	// Keep is called every few seconds while a lock of Take is held; nil: its connection may be idle.
	Keep func(ctx context.Context, c *sql.Conn, name string)
}

var (
	// ErrSessionHeld means that another connection holds the session lock.
	ErrSessionHeld = errors.New("another session holds it")

	// ErrSessionLost means that the session no longer has its lock.
	ErrSessionLost = errors.New("the session has lost its lock")

	// ErrNoSessions means that the database has no session locks, or none that can be trusted. The error's
	// text says why.
	ErrNoSessions = errors.New("no session locks here")
)

// A SessionLock is a lock that one connection holds until the connection ends, however it ends. The
// connection stays out of the pool. A SessionLock is not safe for concurrent use.
type SessionLock struct {
	conn  *sql.Conn
	locks *SessionLocks
	name  string
}

// SessionLock takes the session lock called name, or returns ErrSessionHeld. It returns ErrNoSessions
// if the engine has none, and behind a connection pooler, on a standby and in a Galera cluster, where
// they would be granted but protect nothing.
func (db *DB) SessionLock(ctx context.Context, name string) (*SessionLock, error) {
	locks := db.Dialect.Session
	if why, lacks := db.Lacks(Sessions); lacks {
		return nil, fmt.Errorf("%w: %s", ErrNoSessions, why)
	}
	if locks == nil {
		return nil, fmt.Errorf("%w: %s has none", ErrNoSessions, db.Dialect.Name)
	}
	if db.pool.Stats().MaxOpenConnections == 1 {
		return nil, fmt.Errorf("%w: the pool's only connection would be taken; raise MaxConns or SetMaxOpenConns", ErrNoSessions)
	}
	ctx, cancel := context.WithTimeout(ctx, db.timeout)
	defer cancel()
	return trySession(ctx, db.pool, locks, db.home, db.name+" "+name)
}

func trySession(ctx context.Context, pool *sql.DB, locks *SessionLocks, home, name string) (*SessionLock, error) {
	if locks.Key != nil {
		name = locks.Key(home, name)
	}
	c, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	got, err := locks.Try(ctx, c, name)
	if err == nil && got {
		err = locks.Refuse(ctx, c)
	}
	switch {
	case err != nil:
		engine.Discard(c) // it may hold the lock
		return nil, err
	case !got:
		return nil, errors.Join(ErrSessionHeld, c.Close())
	}
	return &SessionLock{c, locks, name}, nil
}

// Probe asks the server whether the session still holds its lock, and returns ErrSessionLost if not.
// After any error, treat the lock as lost.
func (s *SessionLock) Probe(ctx context.Context) error {
	held, err := s.locks.Held(ctx, s.conn, s.name)
	if err == nil && !held {
		err = ErrSessionLost
	}
	return err
}

// Free releases the lock. The connection returns to the pool only after the server has confirmed the
// release. Otherwise it is closed, which ends its session and with it the lock.
func (s *SessionLock) Free() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if freed, err := s.locks.Free(ctx, s.conn, s.name); err != nil || !freed {
		s.Drop()
		return
	}
	_ = s.conn.Close() // back to the pool, unlocked
}

// Drop closes the connection without notifying the server.
func (s *SessionLock) Drop() { engine.Discard(s.conn) }
