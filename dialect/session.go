package dialect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/dialect/internal/engine"
)

// SessionLocks is how an engine's connections hold locks that end with them.
// Each function works on one connection; names are hashed.
type SessionLocks struct {
	// Key turns a lock's name into the one that the other functions get; nil: it is the same.
	Key    func(ctx context.Context, c *sql.Conn, name string) (string, error)
	Refuse func(ctx context.Context, c *sql.Conn) error // why this connection cannot be relied on for them
	Try    func(ctx context.Context, c *sql.Conn, name string) (got bool, err error)
	Held   func(ctx context.Context, c *sql.Conn, name string) (held bool, err error)
	Free   func(ctx context.Context, c *sql.Conn, name string) (freed bool, err error)
}

var (
	// ErrSessionHeld means that another connection has the session lock.
	ErrSessionHeld = errors.New("another session holds it")

	// ErrSessionLost means that the session no longer has its lock.
	ErrSessionLost = errors.New("the session has lost its lock")

	// ErrNoSessions means that locks of a session are not to be had here, or
	// not to be relied on. The error's text says why.
	ErrNoSessions = errors.New("no session locks here")
)

// A SessionLock is a lock that one connection holds until it ends, however it
// ends. It keeps that connection out of the pool. It is not safe for concurrent
// use.
type SessionLock struct {
	conn  *sql.Conn
	locks *SessionLocks
	name  string
}

// SessionLock takes the session lock called name, or returns ErrSessionHeld.
// It returns ErrNoSessions where the engine has none, behind a connection
// pooler, on a standby and in a Galera cluster, where they would be granted and
// yet protect nothing.
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
	return trySession(ctx, db.pool, locks, db.prefix+" "+name)
}

func trySession(ctx context.Context, pool *sql.DB, locks *SessionLocks, name string) (*SessionLock, error) {
	c, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if locks.Key != nil {
		if name, err = locks.Key(ctx, c, name); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	got, err := locks.Try(ctx, c, name)
	if err == nil && got {
		err = locks.Refuse(ctx, c)
	}
	switch {
	case err != nil:
		engine.Discard(c) // it may have the lock
		return nil, err
	case !got:
		return nil, errors.Join(ErrSessionHeld, c.Close())
	}
	return &SessionLock{c, locks, name}, nil
}

// Probe asks the server whether the session still has its lock, and returns
// ErrSessionLost if not. After any error the lock must be taken for lost.
func (s *SessionLock) Probe(ctx context.Context) error {
	held, err := s.locks.Held(ctx, s.conn, s.name)
	if err == nil && !held {
		err = ErrSessionLost
	}
	return err
}

// Free gives the lock up. The connection goes back to the pool only after the
// server has said that the lock is free; in doubt it is closed, which ends its
// session and with it the lock.
func (s *SessionLock) Free() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if freed, err := s.locks.Free(ctx, s.conn, s.name); err != nil || !freed {
		s.Drop()
		return
	}
	_ = s.conn.Close() // back to the pool, unlocked
}

// Drop closes the connection without a word to the server.
func (s *SessionLock) Drop() { engine.Discard(s.conn) }
