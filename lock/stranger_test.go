package lock

import (
	"context"
	"database/sql"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A stranger's transaction may hold any row of ours for hours. A lock is a row: while somebody else holds that, nobody
// takes, renews or releases the lock, and its lease ends by the database's clock. No other lock waits for it: each lease
// is renewed by a statement of its own, in a goroutine of its own, and so asks the first waiter of each line; statements for
// many locks pass over such rows. These are the statements of the package that lock rows. A new one belongs into one of the lists.
var (
	// passes has statements that pass over rows that others have locked.
	passes = []*sqlrun.Stmt{takeSlot, takeMany, releaseMany, settle, idle, freeFences, purge, purgeFence}

	// mayWait has statements that wait, for a reason.
	mayWait = map[string][]*sqlrun.Stmt{
		"one lock, for who takes, has, or waits for it": {
			take, usurp, extend, release, keep, abandon, describe, guard, force, enqueue, dequeue, passOver,
		},
		"one pool, for who changes its size": {pool, open, closeSlots},
		"new rows":                           {create, createFence},
		"the floor, which who makes a lock shares, and who purges has alone, for a transaction without other waits": {floor, raise},
	}

	rowLocks = regexp.MustCompile(`\b(UPDATE|DELETE|INSERT|LOCK IN SHARE MODE|FOR SHARE)\b`)
)

// Each statement of the package that locks rows is in one of the lists.
func TestWhoWaits(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		listed := map[*sqlrun.Stmt]int{}
		for _, stmt := range passes {
			listed[stmt]++
			if db.Dialect.SkipLocked != "" && stmt.Text(db.Dialect) != "SELECT 1" && !strings.Contains(stmt.Text(db.Dialect), "SKIP LOCKED") {
				t.Errorf("%s passes over no row", stmt.Name)
			}
		}
		for _, list := range mayWait {
			for _, stmt := range list {
				listed[stmt]++
			}
		}
		seen := 0
		for _, stmt := range sqlrun.Statements() {
			if !strings.HasPrefix(stmt.Name, "lock.") || !rowLocks.MatchString(stmt.Text(db.Dialect)) {
				continue
			}
			seen++
			if n := listed[stmt]; n != 1 {
				t.Errorf("%s locks rows, and is in %d lists: say who runs it, and whether it may wait for a stranger's transaction", stmt.Name, n)
			}
		}
		if seen < 18 {
			t.Errorf("only %d statements were found that lock rows", seen)
		}
	})
}

// A guarded transaction goes on long after its lease, and a stranger holds the row of another lock that nobody uses. Purge
// passes over both and over neither of the others, and new locks can be made meanwhile.
func TestPurgeBesideAStranger(t *testing.T) {
	t.Parallel()
	dbtest.SeveralWriters.EachClock(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Minute})
		for _, name := range []string{"a", "guarded", "held", "z"} {
			must(t, l.mustTake(t, name).Release(t.Context()))
		}
		tx := db.Begin(t, &sql.TxOptions{Isolation: db.Dialect.Isolation})
		le, err := l.TryAcquire(t.Context(), "guarded")
		must(t, err)
		must(t, le.Guard(t.Context(), tx))
		must(t, le.Release(t.Context()))
		_, err = sqlrun.Select(t.Context(), db.On(tx), sqlrun.Unlisted(`SELECT * FROM {prefix}lock WHERE name = 'held' {locked}`), nil,
			func(*sql.Rows) (none struct{}, err error) { return none, nil })
		must(t, err)
		db.Advance(t, time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), longWait)
		defer cancel()
		n, err := l.Purge(ctx, time.Minute)
		if n != 2 || err != nil {
			t.Errorf("purged %d beside the stranger: %v", n, err)
		}
		l.mustTake(t, "new")
		must(t, tx.Rollback())
		if n, err := l.Purge(t.Context(), time.Minute); n != 2 || err != nil {
			t.Errorf("purged %d when it has ended: %v", n, err)
		}
	}, (*testing.T).Parallel)
}
