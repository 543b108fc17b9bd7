package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// guarded runs f in a transaction that the lease guards.
func guarded(t *testing.T, db *dbtest.DB, le *Lease, level sql.IsolationLevel, f func(tx *sql.Tx) error) error {
	t.Helper()
	tx, err := db.Pool().BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	if err := le.Guard(t.Context(), tx); err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func nothing(*sql.Tx) error { return nil }

func TestGuard(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Minute})
		first := l.mustTake(t, "x")
		must(t, guarded(t, db, first, sql.LevelDefault, nothing))
		must(t, guarded(t, db, first, sql.LevelDefault, nothing)) // as often as it likes
		db.Advance(t, time.Minute)
		second := l.mustTake(t, "x")
		want(t, "once another has it", guarded(t, db, first, sql.LevelDefault, nothing), ErrLost)
		want(t, "its context, too", ended(t, first.Context()), ErrLost)
		must(t, guarded(t, db, second, sql.LevelDefault, nothing))
		must(t, second.Release(t.Context()))
		want(t, "without a transaction", second.Guard(t.Context(), db.Pool()), ErrInvalid)
		want(t, "without anything", second.Guard(t.Context(), nil), ErrInvalid)
		want(t, "after release", guarded(t, db, second, sql.LevelDefault, nothing), ErrReleased)
	})
}

// As many transactions as there are connections can be guarded at once.
func TestGuardTakesNoSecondConnection(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		for _, n := range []int{1, 3} {
			if n > 1 && db.Dialect.SkipLocked == "" {
				continue // one writer at a time
			}
			small := dbtest.Open(t, db.URL, dialect.Options{MaxConns: n})
			l := lockerOn(t, small, Options{TTL: time.Minute})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var leases []*Lease
			var all []*sql.Tx
			for i := range n {
				leases = append(leases, l.mustTake(t, fmt.Sprint(n, " ", i)))
			}
			for range n {
				tx, err := small.Pool().BeginTx(ctx, nil)
				must(t, err)
				all = append(all, tx)
			}
			for i, tx := range all {
				must(t, leases[i].Guard(ctx, tx))
			}
			for _, tx := range all {
				must(t, tx.Commit())
			}
		}
	})
}

// A process that believes that it still has the lease, and whose transaction sees the lock's
// row as it was then, is refused once a later holder has passed.
func TestGuardOfAStaleSnapshot(t *testing.T) {
	clocked(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Minute})
		first := l.mustTake(t, "x")
		db.Advance(t, time.Minute)
		second := l.mustTake(t, "x")
		must(t, guarded(t, db, second, sql.LevelDefault, nothing))
		// The row has the same content again as when the first holder had it.
		db.Do(t, `UPDATE {prefix}lock SET lock_by = :by, fence = :fence, expire_at = {now + :us}`,
			sqlrun.Args{"by": first.Owner(), "fence": first.Fence(), "us": time.Hour.Microseconds()})
		want(t, "a late one", guarded(t, db, first, sql.LevelDefault, nothing), ErrLost)
	})
}

// A transaction does not keep its own lease from being renewed, nor others from
// seeing whose it is.
func TestGuardDoesNotStopTheHeartbeat(t *testing.T) {
	having(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
			l := locker(t, db, Options{})
			le := l.mustTake(t, "x")
			must(t, guarded(t, db, le, level, func(*sql.Tx) error {
				ctx, cancel := context.WithTimeout(t.Context(), longWait)
				defer cancel()
				_, err := l.TryAcquire(context.WithoutCancel(ctx), "x")
				want(t, "another's try", err, ErrHeld)
				return le.Extend(ctx)
			}))
			must(t, le.Release(t.Context()))
		}
	})
}

// The transactions of one lock come one after the other, whatever their level,
// and each sees what those before it have done: a counter that is read and
// written in them loses nothing, though several hold "the" lease.
func TestGuardedTransactionsAreSerial(t *testing.T) {
	for name, level := range map[string]sql.IsolationLevel{
		"default": sql.LevelDefault, "repeatable read": sql.LevelRepeatableRead, "serializable": sql.LevelSerializable,
	} {
		has := func(d *sqlrun.Dialect) bool { return level != sql.LevelRepeatableRead || dbtest.SeveralWriters(d) }
		t.Run(name, func(t *testing.T) {
			having(t, has, func(t *testing.T, db *dbtest.DB) {
				db.Do(t, `CREATE TABLE counter (n INTEGER)`, nil)
				db.Do(t, `INSERT INTO counter (n) VALUES (0)`, nil)
				le := locker(t, db, Options{}).mustTake(t, "x")
				const each = 10
				var group sync.WaitGroup
				for range 4 {
					group.Go(func() {
						for range each {
							for {
								err := guarded(t, db, le, level, func(tx *sql.Tx) error {
									var n int
									s := db.On(tx)
									err := s.Get(t.Context(), sqlrun.Unlisted(`SELECT n FROM counter`), nil, &n)
									if err == nil {
										_, err = s.Exec(t.Context(), sqlrun.Unlisted(`UPDATE counter SET n = :n`), sqlrun.Args{"n": n + 1})
									}
									return err
								})
								if err == nil {
									break
								}
								if !db.Dialect.Retryable(err) {
									t.Error(err)
									return
								}
							}
						}
					})
				}
				group.Wait()
				if got := db.List(t, `SELECT n FROM counter`, nil); strings.Join(got, "") != "40" {
					t.Errorf("counted to %v", got)
				}
			})
		})
	}
}

// A next holder's transaction waits for one of the last holder's that has
// passed, and sees its effect.
func TestGuardWaitsForTheHolderBefore(t *testing.T) {
	dbtest.SkipBare(t, "its transaction would have to be run again")
	t.Parallel()
	// With one writer at a time the clock of the test could not be moved meanwhile.
	dbtest.SeveralWriters.EachClock(t, func(t *testing.T, db *dbtest.DB) {
		l := locker(t, db, Options{TTL: time.Minute})
		db.Do(t, `CREATE TABLE effects (fence INTEGER)`, nil)
		first := l.mustTake(t, "x")
		done := make(chan error, 1)
		must(t, guarded(t, db, first, sql.LevelDefault, func(tx *sql.Tx) error {
			db.Advance(t, time.Minute)
			second := l.mustTake(t, "x")
			go func() {
				done <- guarded(t, db, second, sql.LevelDefault, func(tx *sql.Tx) error {
					var n int
					err := db.On(tx).Get(t.Context(), sqlrun.Unlisted(`SELECT COUNT(*) FROM effects`), nil, &n)
					if err == nil && n != 1 {
						err = errors.New("it does not see the effect of the one before")
					}
					return err
				})
			}()
			_, err := db.On(tx).Exec(t.Context(), sqlrun.Unlisted(`INSERT INTO effects (fence) VALUES (1)`), nil)
			return err
		}))
		must(t, result(t, done))
	})
}
