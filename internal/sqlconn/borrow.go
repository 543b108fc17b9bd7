package sqlconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// Borrow returns a pool of up to n connections taken from another pool. They return to it when the borrowed
// pool is closed. So its user never waits for other users of the original pool, except to replace a broken
// connection. prepare is called with each connection that is taken, and what it returns before that
// connection goes back; nil: nothing has to be done.
func Borrow(pool *sql.DB, n int, prepare func(context.Context, driver.Conn) (restore func() error, err error)) *sql.DB {
	borrowed := sql.OpenDB(lender{pool, prepare})
	borrowed.SetMaxOpenConns(n)
	borrowed.SetMaxIdleConns(n)
	return borrowed
}

// BorrowThrough is Borrow for a pool whose connections pass each round trip through an Around, as those of
// Intercept do. Its limits are database/sql's.
func BorrowThrough(pool *sql.DB, opened func(context.Context, driver.Conn) (Around, error)) *sql.DB {
	return sql.OpenDB(Intercept(lender{pool: pool}, opened))
}

// Fill makes a pool open all the connections it may have, so that none is missing later.
func Fill(ctx context.Context, pool *sql.DB) (err error) {
	for range pool.Stats().MaxOpenConnections {
		var c *sql.Conn
		if c, err = pool.Conn(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	return nil
}

// A lender connects by taking connections from a pool.
type lender struct {
	pool    *sql.DB
	prepare func(context.Context, driver.Conn) (restore func() error, err error)
}

func (l lender) Driver() driver.Driver { return l.pool.Driver() }

// Connect keeps the pool's connection to itself until the returned one is closed. The pool gives it to
// nobody meanwhile, so it can be used outside of Raw.
func (l lender) Connect(ctx context.Context) (driver.Conn, error) {
	lent, err := l.pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var own driver.Conn
	err = lent.Raw(func(driverConn any) error {
		var ok bool
		if own, ok = driverConn.(driver.Conn); !ok {
			return fmt.Errorf("driver connection %T: %w", driverConn, errors.ErrUnsupported)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, lent.Close())
	}
	c := &conn{Conn: own, around: direct, lent: lent}
	if l.prepare != nil {
		if c.restore, err = l.prepare(ctx, own); err != nil {
			return nil, errors.Join(err, lent.Close())
		}
	}
	return c, nil
}

// lentKey marks the contexts in which connections of a borrowed pool are reset before their next use.
type lentKey struct{}

// Lent marks the context in which a connection of a borrowed pool is reset.
func Lent(ctx context.Context) context.Context { return context.WithValue(ctx, lentKey{}, true) }

// IsLent reports whether a connection that is reset in this context belongs to a borrowed pool.
func IsLent(ctx context.Context) bool { return ctx.Value(lentKey{}) != nil }

// direct is an Around that only makes the call.
func direct(_ context.Context, _ string, call func() error) error { return call() }
