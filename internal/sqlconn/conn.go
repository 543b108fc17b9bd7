// Package sqlconn stands between database/sql and a driver: it passes each round trip of a connection
// through an interceptor, and lends connections of a pool. It knows no engine.
package sqlconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// Around performs one round trip to the server: call, and what an interceptor does before and after it. op
// is the statement's text, or one of "begin", "commit", "rollback", "ping".
type Around func(ctx context.Context, op string, call func() error) error

// ErrCut in the error of an Around means that the connection is no longer usable: all further calls fail,
// and the pool closes it.
var ErrCut = errors.New("connection cut")

// Intercept returns a connector whose connections pass each round trip through an Around made by opened.
// It ends cancelled statements on MySQL, and breaks calls in tests.
func Intercept(c driver.Connector, opened func(context.Context, driver.Conn) (Around, error)) driver.Connector {
	return &interceptor{Connector: c, opened: opened}
}

type interceptor struct {
	driver.Connector
	opened func(context.Context, driver.Conn) (Around, error)
}

func (i *interceptor) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := i.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	around, err := i.opened(ctx, c)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &conn{Conn: c, around: around}, nil
}

// Unwrap returns the driver's own connection, for use inside sql.Conn.Raw.
func Unwrap(driverConn any) any {
	for {
		c, ok := driverConn.(*conn)
		if !ok {
			return driverConn
		}
		driverConn = c.Conn
	}
}

// A conn forwards everything that database/sql may ask of a connection.
type conn struct {
	driver.Conn
	around Around
	cut    bool      // not shared, like all of a driver.Conn
	lent   *sql.Conn // keeps the connection out of its pool; nil: not from a pool

	restore func() error // called before it goes back to that pool; nil: nothing
}

// Close closes the connection or returns it to the pool that lent it, which closes it if it is no longer
// usable.
func (c *conn) Close() error {
	if c.lent == nil {
		return c.Conn.Close()
	}
	usable := c.IsValid()
	if usable && c.restore != nil {
		usable = c.restore() == nil
	}
	if !usable { // nobody may get it as it is
		Discard(c.lent)
	}
	return c.lent.Close()
}

// Discard has a pool close a connection, and give it to nobody any more, also where another pool has lent it. The session
// ends with whatever was done to it.
func Discard(c *sql.Conn) {
	_ = c.Raw(func(driverConn any) error {
		if own, ok := driverConn.(*conn); ok {
			own.cut = true
		}
		return driver.ErrBadConn
	})
}

func (c *conn) call(ctx context.Context, op string, f func() error) error {
	if c.cut {
		return driver.ErrBadConn
	}
	err := c.around(ctx, op, f)
	c.cut = errors.Is(err, ErrCut) || errors.Is(err, driver.ErrBadConn)
	return err
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Result, err error) {
	e, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	err = c.call(ctx, query, func() error { r, err = e.ExecContext(ctx, query, args); return err })
	return r, err
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Rows, err error) {
	q, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	err = c.call(ctx, query, func() error { r, err = q.QueryContext(ctx, query, args); return err })
	if err != nil && r != nil { // the call succeeded, and its answer is dropped
		err = errors.Join(err, r.Close())
		r = nil
	}
	return r, err
}

func (c *conn) PrepareContext(ctx context.Context, query string) (s driver.Stmt, err error) {
	p, ok := c.Conn.(driver.ConnPrepareContext)
	if !ok {
		return c.Prepare(query)
	}
	err = c.call(ctx, query, func() error { s, err = p.PrepareContext(ctx, query); return err })
	return s, err
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (t driver.Tx, err error) {
	b, ok := c.Conn.(driver.ConnBeginTx)
	if !ok {
		return nil, fmt.Errorf("driver %T has no BeginTx", c.Conn)
	}
	err = c.call(ctx, "begin", func() error { t, err = b.BeginTx(ctx, opts); return err })
	if err != nil {
		return nil, err
	}
	return &transaction{t, c}, nil
}

func (c *conn) Ping(ctx context.Context) error {
	p, ok := c.Conn.(driver.Pinger)
	if !ok {
		return nil
	}
	return c.call(ctx, "ping", func() error { return p.Ping(ctx) })
}

func (c *conn) ResetSession(ctx context.Context) error {
	if c.lent != nil {
		ctx = Lent(ctx)
	}
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *conn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !c.cut && (!ok || v.IsValid())
}

func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.Conn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type transaction struct {
	driver.Tx
	c *conn
}

func (t *transaction) Commit() error {
	return t.c.call(context.Background(), "commit", t.Tx.Commit)
}

func (t *transaction) Rollback() error {
	return t.c.call(context.Background(), "rollback", t.Tx.Rollback)
}

// Through calls f with the driver's own connection, through the interceptors.
func Through(ctx context.Context, driverConn any, op string, f func(own any) error) error {
	c, ok := driverConn.(*conn)
	if !ok {
		return f(driverConn)
	}
	return c.call(ctx, op, func() error { return Through(ctx, c.Conn, op, f) })
}

// Exec runs a statement on a driver's connection that is not in a pool yet.
func Exec(ctx context.Context, c driver.Conn, query string) error {
	e, ok := c.(driver.ExecerContext)
	if !ok {
		return fmt.Errorf("driver %T has no ExecContext", c)
	}
	_, err := e.ExecContext(ctx, query, nil)
	return err
}

// Int is Exec for a query of one integer.
func Int(ctx context.Context, c driver.Conn, query string) (int64, error) {
	q, ok := c.(driver.QueryerContext)
	if !ok {
		return 0, fmt.Errorf("driver %T has no QueryContext", c)
	}
	rows, err := q.QueryContext(ctx, query, nil)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	row := make([]driver.Value, 1)
	if err := rows.Next(row); err != nil {
		return 0, err
	}
	switch v := row[0].(type) {
	case int64:
		return v, nil
	case uint64:
		return int64(v), nil
	case []byte:
		var n int64
		_, err := fmt.Sscan(string(v), &n)
		return n, err
	}
	return 0, fmt.Errorf("%s: got %T", query, row[0])
}
