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
