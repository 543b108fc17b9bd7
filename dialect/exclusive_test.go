package dialect_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Pools stand for processes. The goroutines of one share its connections, which are fewer than
// the goroutines. The holder still finds one to work on.
func TestExclusiveIsOneAtATime(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		pools := make([]*dbtest.DB, 3)
		for i := range pools {
			pools[i] = dbtest.Open(t, db.URL, dialect.Options{MaxConns: 2})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		var holders, most, times atomic.Int32
		together(t, 3*len(pools), func(i int) error {
			own := pools[i%len(pools)].DB
			unlock, err := own.Exclusive(ctx, "work", nil)
			if err != nil {
				return err
			}
			defer unlock()
			if now := holders.Add(1); now > most.Load() {
				most.Store(now)
			}
			defer holders.Add(-1)
			times.Add(1)
			for range 3 {
				var one int
				if err := own.Get(ctx, sqlrun.Unlisted(`SELECT 1`), nil, &one); err != nil {
					return err
				}
			}
			return nil
		})
		if most.Load() != 1 || times.Load() != 9 {
			t.Errorf("%d held the lock at once, %d times in all; want 1 and 9", most.Load(), times.Load())
		}
	})
}

func TestExclusiveEndsWithTheContext(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		unlock, err := db.Exclusive(t.Context(), "work", nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		began := time.Now() //nolint:forbidigo // measures how long it takes
		_, err = db.Exclusive(ctx, "work", nil)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it waited %v", took)
		}
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "lock work") {
			t.Errorf("got %v, want the deadline, and what was waited for", err)
		}
		unlock()
		again, err := db.Exclusive(t.Context(), "work", nil)
		if err != nil {
			t.Fatalf("after it was released: %v", err)
		}
		again()
	})
}

// A driver that is interrupted in the middle of a statement may not say why the statement ended.
func TestExclusiveSaysThatTheContextHasEnded(t *testing.T) {
	dbtest.SeveralWriters.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := errors.New("ended")
		pool, _ := interceptedPool(t, db, func(int, func() error) error {
			cancel(ended)
			return driver.ErrBadConn
		})
		if _, err := pool.Exclusive(ctx, "work", nil); !errors.Is(err, ended) {
			t.Errorf("got %v, want %v", err, ended)
		}
	})
}

// A connection must not take a session lock into the pool, even when nobody knows whether the lock
// was taken or released.
func TestExclusiveLeavesNoLockInThePool(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		unclear := errors.New("unclear")
		for _, c := range []struct {
			name string
			call int // the call that fails although the connection is good
			done bool
		}{
			{"nothing fails", 0, false},
			{"the lock is taken, and the answer lost", 1, true},
			{"the lock is not released", 2, false},
			{"the lock is released, and the answer lost", 2, true},
		} {
			pool, calls := interceptedPool(t, db, func(n int, call func() error) error {
				switch {
				case n != c.call:
					return call()
				case c.done:
					return errors.Join(call(), unclear)
				}
				return unclear
			})
			unlock, err := pool.Exclusive(t.Context(), "work", nil)
			if err == nil {
				unlock()
			}
			if calls() == 0 && db.Dialect.SkipLocked != "" {
				t.Fatal("no call was seen")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			unlock, err = db.Exclusive(ctx, "work", nil)
			cancel()
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			unlock()
			if n := pool.Pool().Stats().InUse; n != 0 {
				t.Errorf("%s: %d connections did not come back", c.name, n)
			}
		}
	})
}

// interceptedPool opens a pool on the same database whose calls go through around, except the
// checks at the start. On SQLite the lock is not in the pool.
func interceptedPool(t *testing.T, db *dbtest.DB, around func(n int, call func() error) error) (pool *dbtest.DB, calls func() int) {
	t.Helper()
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	base, err := db.Dialect.Connector(u, sqlrun.Options{})
	if err != nil {
		t.Fatal(err)
	}
	armed, n := false, 0
	std := sql.OpenDB(sqlconn.Intercept(base, func(context.Context, driver.Conn) (sqlconn.Around, error) {
		return func(_ context.Context, _ string, call func() error) error {
			if !armed {
				return call()
			}
			n++
			return around(n, call)
		}, nil
	}))
	t.Cleanup(func() { _ = std.Close() })
	pool = wrapped(t, db, std)
	armed = true
	return pool, func() int { return n }
}
