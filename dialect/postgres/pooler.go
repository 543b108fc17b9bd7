package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlconn"
)

// A transaction pooler, such as PgBouncer, gives each transaction another session of the
// server. What belongs to a session is lost or another's then: prepared statements,
// notifications, session locks. A pooler is told by the process number that it makes up for
// its clients: that of the server's process is another. One that pools whole sessions looks
// the same, and is treated as if it did not.

// A poolerConnector connects with prepared statements, or without them behind a pooler.
type poolerConnector struct {
	driver.Connector // prepares statements
	behind           driver.Connector
}

func newPoolerConnector(cfg *pgx.ConnConfig) driver.Connector {
	cfg.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler { return &watcher{conn: c} }
	direct := stdlib.GetConnector(*cfg)
	// What parameters a statement has is remembered. It is parsed anew each time, in the
	// same round trip.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	// PgBouncer up to 1.20, and so Debian 12's, can end when it is asked to cancel a statement
	// (its issues 801 and 904).
	// So a statement whose context ends loses its connection instead.
	cfg.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn()}
	}
	return &poolerConnector{direct, stdlib.GetConnector(*cfg)}
}

// leadsToServer is set in a connection's own data once it is known that no pooler is in between.
const leadsToServer = "dbcron: no pooler"

// A watcher ends a statement whose context ends: it asks the server to cancel the statement, if
// the connection is known to lead to the server. Else it ends the connection: while it is asked
// whether a pooler is in between, none may be asked to cancel anything (see newPoolerConnector).
type watcher struct {
	conn             *pgconn.PgConn
	ctxwatch.Handler // of the statement that is being ended
}

func (w *watcher) HandleCancel(ctx context.Context) {
	if w.conn.CustomData()[leadsToServer] == true {
		w.Handler = &pgconn.CancelRequestContextWatcherHandler{Conn: w.conn, DeadlineDelay: time.Second}
	} else {
		w.Handler = &pgconn.DeadlineContextWatcherHandler{Conn: w.conn.Conn()}
	}
	w.Handler.HandleCancel(ctx)
}

func (c *poolerConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	own, ok := conn.(*stdlib.Conn)
	if !ok {
		return conn, nil
	}
	pooled, err := pooled(ctx, own)
	if err == nil && !pooled {
		own.Conn().PgConn().CustomData()[leadsToServer] = true
		return conn, nil
	}
	if e := conn.Close(); err != nil {
		return nil, errors.Join(err, e)
	}
	return c.behind.Connect(ctx)
}

// pooled tells whether a pooler is between a connection and the server. It prepares nothing.
func pooled(ctx context.Context, own *stdlib.Conn) (bool, error) {
	c := own.Conn().PgConn()
	results, err := c.Exec(ctx, "SELECT pg_backend_pid()").ReadAll()
	if err != nil {
		return false, err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return false, errors.New("the server does not tell its process number")
	}
	pid, err := strconv.ParseUint(string(results[0].Rows[0][0]), 10, 32)
	return err == nil && uint32(pid) != c.PID(), err
}

// behindPooler is pooled for any driver; false: it is not, or that cannot be told.
func behindPooler(ctx context.Context, c *sql.Conn) (is, prepares bool, err error) {
	err = c.Raw(func(driverConn any) (err error) {
		own, ok := sqlconn.Unwrap(driverConn).(*stdlib.Conn)
		if !ok {
			return nil
		}
		is, err = pooled(ctx, own)
		prepares = own.Conn().Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
		return err
	})
	return is, prepares, err
}

// poolerFinding tells what does not work behind a pooler.
func poolerFinding(ctx context.Context, pool *sql.DB) (all []dialect.Finding, err error) {
	c, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	is, prepares, err := behindPooler(ctx, c)
	if err != nil || !is {
		return nil, err
	}
	f := dialect.Finding{
		Subject: "pooler", OK: true,
		Detail: "a pooler is between this program and the server: notifications and session locks do not work, so jobs and locks are looked for instead of being told of, and elections rest on their leases alone",
	}
	if prepares {
		f.Detail += "; the pool prepares statements, which fails if the pooler gives sessions to others after each transaction: set default_query_exec_mode=cache_describe then"
	}
	return []dialect.Finding{f}, nil
}
