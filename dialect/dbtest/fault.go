package dbtest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// ErrBroken is the error of a call broken by a Fault.
var ErrBroken = sqlconn.ErrCut

// A Fault cuts the connection at one round trip to the server.
type Fault struct {
	Call  int  // which round trip, counted from 1 over all connections
	After bool // the server does the work, and its answer is lost

	// Text limits the fault to round trips whose statement contains it. Others are neither
	// counted nor passed to Random.
	Text string

	// Says, if set, is what something before the server answers in place of the cut: see Unanswered.
	Says error

	// Random, if set, replaces Call and After and is called at each round trip. It must be safe for
	// concurrent use.
	Random func() (broken, after bool)

	// Stall, if set, is called before each round trip with its SQL, or the name of the operation.
	// It may block, and must be safe for concurrent use.
	Stall func(op string)

	calls atomic.Int64
}

// Reached reports whether the call was made and broken.
func (f *Fault) Reached() bool { return f.calls.Load() >= int64(f.Call) }

// next returns what to do with a round trip.
func (f *Fault) next() (broken, after bool) {
	if f.Random != nil {
		return f.Random()
	}
	return f.calls.Add(1) == int64(f.Call), f.After
}

// Broken connects to the same database, with the same clock, through a driver
// that has the fault. Checks at opening are not counted.
func (db *DB) Broken(t *testing.T, f *Fault) *DB {
	t.Helper()
	return db.through(t, func(c driver.Conn) sqlconn.Around {
		return func(_ context.Context, op string, call func() error) error {
			if op == "rollback" || !strings.Contains(op, f.Text) {
				return call()
			}
			if f.Stall != nil {
				f.Stall(op)
			}
			broken, after := f.next()
			if !broken {
				return call()
			}
			var err error
			if after {
				err = call()
			}
			if f.Says != nil { // of what was not committed, the server knows nothing any more
				_ = c.Close()
				return f.Says
			}
			// The pool closes the connection, and what was not committed ends with it.
			return errors.Join(ErrBroken, err)
		}
	})
}

// Unanswered returns how gates, routers, proxies and poolers say that they have no answer of the server, each with what says so. The
// statement may have been executed. There is nothing of the kind for SQLite.
func Unanswered(d *sqlrun.Dialect) map[string]error {
	switch d.Name {
	case "mysql":
		said := func(number uint16, text string) error { return &mysql.MySQLError{Number: number, Message: text} }
		return map[string]error{
			"Vitess 24, its server's process is killed": said(2013, "target: app.0.primary: vttablet: Lost connection to MySQL server during query (errno 2013) (sqlstate HY000)"),
			"Vitess 24, its tablet is gone":             said(1105, "target: app.0.primary: vttablet: rpc error: code = Unavailable desc = error reading from server: EOF"),
			"ProxySQL, MySQL Router":                    said(2013, "Lost connection to MySQL server during query"),
			"ProxySQL, from its pool":                   said(2006, "MySQL server has gone away"),
			"ProxySQL, no server in time":               said(9001, "Max connect timeout reached while reaching hostgroup 10 after 10000ms"),
			"MySQL Router, MaxScale":                    said(2003, "Can't connect to remote MySQL server on '10.0.0.1:3306' (111)"),
			"MaxScale":                                  said(1927, "Lost connection to backend server: connection closed by peer"),
			"any client's library":                      said(2055, "Lost connection to MySQL server at 'reading initial communication packet', system error: 104"),
		}
	case "postgres":
		said := func(code, text string) error { return &pgconn.PgError{Severity: "FATAL", Code: code, Message: text} }
		return map[string]error{
			"PgBouncer":                      said("08P01", "server conn crashed?"),
			"PgBouncer, no server in time":   said("08P01", "query_wait_timeout"),
			"Odyssey":                        said("08006", "odyssey: c1: remote server read/write error s2"),
			"pgcat":                          said("58000", "error receiving data from server: SocketError"),
			"pgcat, no server in time":       said("58000", "could not get connection from the pool - AllServersDown"),
			"Supavisor":                      said("XX000", "(EDBHANDLEREXITED) connection to database closed. Check logs for more information"),
			"a server that is being stopped": said("57P01", "terminating connection due to administrator command"),
		}
	}
	return nil
}

// through connects to the same database, with the same clock. Each connection passes its round trips through an Around of its own,
// except for the checks at opening.
func (db *DB) through(t *testing.T, around func(driver.Conn) sqlconn.Around) *DB {
	t.Helper()
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	base, err := db.Dialect.Connector(u, sqlrun.Options{ApplicationName: "dbcron"})
	if err != nil {
		t.Fatal(err)
	}
	var armed atomic.Bool
	pool := sql.OpenDB(sqlconn.Intercept(base, func(_ context.Context, c driver.Conn) (sqlconn.Around, error) {
		own := around(c)
		return func(ctx context.Context, op string, call func() error) error {
			if !armed.Load() {
				return call()
			}
			return own(ctx, op, call)
		}, nil
	}))
	t.Cleanup(func() {
		_ = pool.Close()
		drained(t, pool)
	})
	other, err := engines.Wrap(t.Context(), pool, db.options)
	if err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	return &DB{DB: other.WithNow(db.Dialect.Now), Engine: db.Engine, URL: db.URL, options: db.options}
}
