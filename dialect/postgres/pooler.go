package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"strconv"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dbcron/dbcron/internal/pattern"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A transaction pooler, such as PgBouncer, gives each transaction another session of the server. State
// of a session is then lost or belongs to somebody else: prepared statements, notifications, session
// locks. A pooler gives its clients an invented process number, which differs from that of the
// server's process; that reveals it. A pooler of whole sessions looks the same, and is treated the
// same.

// A poolerConnector connects with prepared statements, or without them behind a pooler.
type poolerConnector struct {
	driver.Connector // with prepared statements
	behind           driver.Connector
	leads            atomic.Bool // to the server, when it was last known: statements can be cancelled
}

// connecting is the key of a context in which a connection is made. pgx dials also to ask for a statement's end.
type connecting struct{}

// newPoolerConnector returns the connector of a configuration. chosen: the URL says how statements are sent.
func newPoolerConnector(cfg *pgx.ConnConfig, chosen bool) driver.Connector {
	// PgBouncer 1.18 to 1.20, of which Debian 12 has the first, can crash when asked to cancel a statement (its issues 801
	// and 904), and pgx asks that also as it closes a connection.
	c, dial := &poolerConnector{}, cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if ctx.Value(connecting{}) == nil && !c.leads.Load() {
			return nil, errors.New("statements are not cancelled through a pooler")
		}
		return dial(ctx, network, address)
	}
	cfg.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler { return &watcher{conn: c, cancel: newCanceller(c)} }
	direct := stdlib.GetConnector(*cfg, pings)
	// The parameters of a statement are cached. The statement is parsed anew each time, in the same
	// round trip.
	if !chosen {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	// A statement whose context ends loses its connection.
	cfg.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn()}
	}
	c.Connector, c.behind = direct, stdlib.GetConnector(*cfg, pings)
	return c
}

// leadsToServer marks a connection's custom data once it is known that no pooler is in between.
const leadsToServer = "dbcron: no pooler"

// A watcher ends a statement whose context ends. It asks the server to cancel the statement if the
// connection is known to lead to the server. Otherwise it closes the connection: until it is known
// whether a pooler is in between, nothing may be cancelled (see newPoolerConnector).
type watcher struct {
	conn             *pgconn.PgConn
	cancel           *canceller
	ctxwatch.Handler // of the statement being ended
}

func (w *watcher) HandleCancel(ctx context.Context) {
	if w.conn.CustomData()[leadsToServer] == true {
		w.Handler = w.cancel
	} else {
		w.Handler = &pgconn.DeadlineContextWatcherHandler{Conn: w.conn.Conn()}
	}
	w.Handler.HandleCancel(ctx)
}

func (c *poolerConnector) Connect(ctx context.Context) (driver.Conn, error) {
	ctx = context.WithValue(ctx, connecting{}, true)
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	own, ok := conn.(*stdlib.Conn)
	if !ok {
		return conn, nil
	}
	pooled, err := pooled(ctx, own)
	if err == nil {
		c.leads.Store(!pooled)
	}
	if err == nil && !pooled {
		own.Conn().PgConn().CustomData()[leadsToServer] = true
		return conn, nil
	}
	if e := conn.Close(); err != nil {
		return nil, errors.Join(err, e)
	}
	return c.behind.Connect(ctx)
}

// pooled reports whether a pooler is between a connection and the server. It prepares nothing.
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

// behindPooler is pooled for any driver. It returns false if it cannot tell.
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

// poolerFinding reports what does not work behind a pooler.
func poolerFinding(ctx context.Context, pool *sql.DB) (all []sqlrun.Finding, err error) {
	c, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	is, prepares, err := behindPooler(ctx, c)
	if err != nil || !is {
		return nil, err
	}
	f := sqlrun.Finding{
		Subject: "pooler", OK: true,
		Detail: "a pooler is between this program and the server: notifications and session locks do not work, so jobs and locks are looked for instead of being told of, and elections rest on their leases alone",
	}
	if prepares {
		f.Detail += "; the pool prepares statements, which fails if the pooler gives sessions to others after each transaction: set default_query_exec_mode=cache_describe then"
	}
	return []sqlrun.Finding{f}, nil
}

// unanswered reports a lost answer in words of a pooler that are none of class 08, which most of them use. pgcat says 58000 of
// a server that it has not reached, or whose answer it has not got. Supavisor says XX000 with a word of its own. The statement
// may have been executed.
func unanswered(err error) bool {
	return sqlState("58000")(err) || sqlState("XX000")(err) && supavisor().MatchString(err.Error())
}

var supavisor = pattern.Lazy(`EDBHANDLEREXITED|ECHECKOUTTIMEOUT|DbHandler exited|connection to database closed|db_termination`)
