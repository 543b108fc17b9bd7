package dialect_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

func TestInstantsComeBackToTheMillisecond(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		for _, us := range []int64{0, 1_000, 1_700_000_000_999_000, 4_102_444_800_000_000, 253_402_300_799_999_000, -1_000_000} {
			var back, later int64
			db.Scan(t, `SELECT {us {time :us}}`, sqlrun.Args{"us": us}, &back)
			if back != us {
				t.Errorf("%d µs came back as %d", us, back)
			}
			if us == 253_402_300_799_999_000 {
				continue // one second later is beyond some engines' calendars
			}
			db.Do(t, `CREATE TABLE x AS SELECT {time :us} AS at`, sqlrun.Args{"us": us})
			db.Scan(t, `SELECT `+db.Dialect.ToMicros(db.Dialect.Add("at", "1234000"))+` FROM x`, nil, &later)
			if later != us+1234000 {
				t.Errorf("%d µs and 1.234 s make %d", us, later)
			}
			db.Do(t, `DROP TABLE x`, nil)
		}
	})
}

// A fragment is one operand, whatever surrounds it.
func TestFragmentsStandInExpressions(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		var us, rest int64
		d := db.Dialect
		db.Scan(t, `SELECT 5000000 - {us {time :a}}, 7000 % {us {time :b}}`, sqlrun.Args{"a": 1_000_000, "b": 4_000}, &us, &rest)
		if us != 4_000_000 || rest != 3000 {
			t.Errorf("5 s - 1 s make %d µs, and 7 %% 4 ms %d µs", us, rest)
		}
		db.Scan(t, `SELECT `+d.ToMicros(d.Add(d.FromMicros("1000000"), "2000000")), nil, &us)
		if us != 3_000_000 {
			t.Errorf("1 s and 2 s make %d µs", us)
		}
	})
}

// The suite's servers have a time zone other than UTC, so the session's clock would be hours off.
func TestNowIsUTC(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		var now int64
		db.Scan(t, `SELECT {us {now}}`, nil, &now)
		here := time.Now().UnixMicro() //nolint:forbidigo // the test compares the two clocks of one host
		if d := time.Duration(now-here) * time.Microsecond; d.Abs() > time.Minute {
			t.Errorf("the database's clock is %v off this host's", d)
		}
	})
}

func TestAClockThatATestMoves(t *testing.T) {
	dbtest.EachClock(t, func(t *testing.T, db *dbtest.DB) {
		read := func() (us int64) {
			db.Scan(t, `SELECT {us {now}}`, nil, &us)
			return us
		}
		if got := read(); got != dbtest.Start.UnixMicro() {
			t.Errorf("the clock stands at %d, want %d", got, dbtest.Start.UnixMicro())
		}
		db.Advance(t, 90*time.Second)
		if got := read(); got != dbtest.Start.Add(90*time.Second).UnixMicro() {
			t.Errorf("the clock stands at %d after 90 s", got)
		}
	})
}

func TestArgumentsListsAndRows(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, `CREATE TABLE x (id INTEGER PRIMARY KEY, name VARCHAR(20))`, nil)
		db.Do(t, `INSERT INTO x (id, name) VALUES {values rows: (:id, :name)}`, sqlrun.Args{
			"name": "shared",
			"rows": []sqlrun.Args{{"id": 1}, {"id": 2, "name": "it's :id"}, {"id": 3}},
		})
		got := strings.Join(db.List(t, `SELECT id, name, ':id' FROM x WHERE id IN (:ids) AND name <> :none ORDER BY id`,
			sqlrun.Args{"ids": []int64{1, 2}, "none": ""}), "; ")
		if want := "1 shared :id; 2 it's :id :id"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := db.List(t, `SELECT id FROM x WHERE id IN (:ids)`, sqlrun.Args{"ids": []int64{}}); len(got) != 0 {
			t.Errorf("an empty list selects %v", got)
		}
		changed := db.Do(t, db.Dialect.UpdateFrom("x", []string{"id"}, "name = picked.new", "",
			`{union rows: SELECT {int :id} AS id, :name AS new}`), sqlrun.Args{
			"rows": []sqlrun.Args{{"id": 1, "name": "one"}, {"id": 3, "name": "three"}, {"id": 9, "name": "none"}},
		})
		if changed != 2 {
			t.Errorf("%d rows changed, want 2", changed)
		}
		if _, err := db.Exec(t.Context(), sqlrun.Unlisted(`SELECT :x`), nil); err == nil || !strings.Contains(err.Error(), ":x has no value") {
			t.Errorf("a missing argument gives %v", err)
		}
	})
}

func TestIgnoreDuplicateKeepsTheFirst(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, `CREATE TABLE x (id INTEGER PRIMARY KEY, name VARCHAR(5))`, nil)
		insert := sqlrun.Unlisted(`INSERT INTO x (id, name) VALUES (:id, :name) {ignore_duplicate id}`)
		plain := sqlrun.Unlisted(`INSERT INTO x (id, name) VALUES (:id, :name)`)
		for _, name := range []string{"first", "late"} {
			if _, err := db.Exec(t.Context(), insert, sqlrun.Args{"id": 1, "name": name}); err != nil {
				t.Fatal(err)
			}
		}
		if got := db.List(t, `SELECT name FROM x`, nil); len(got) != 1 || got[0] != "first" {
			t.Errorf("got %v, want first", got)
		}
		_, err := db.Exec(t.Context(), plain, sqlrun.Args{"id": 1, "name": "late"})
		if !db.Dialect.Duplicate(err) {
			t.Errorf("a duplicate is reported as %v", err)
		}
		_, err = db.Exec(t.Context(), sqlrun.Unlisted(`SELECT 1 FROM no_such_table`), nil)
		if !db.Dialect.Missing(err) {
			t.Errorf("a missing table is reported as %v", err)
		}
	})
}

// Two transactions lock two rows in opposite order, and neither takes its second before both have
// their first. Where the engine locks rows, that is a deadlock, and Tx repeats the whole of the
// loser.
func TestTxRetriesTheWhole(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, `CREATE TABLE x (id INTEGER PRIMARY KEY, n INTEGER)`, nil)
		db.Do(t, `INSERT INTO x VALUES (1, 0), (2, 0)`, nil)
		add := sqlrun.Unlisted(`UPDATE x SET n = n + 1 WHERE id = :id`)
		locked := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
		var attempts atomic.Int32
		patience := 300 * time.Millisecond // the other waits for this one to end
		if db.Dialect.SkipLocked != "" {
			patience = time.Minute // it does not
		}
		together(t, 2, func(i int) error {
			once := sync.OnceFunc(func() { close(locked[i]) })
			return db.Tx(context.Background(), func(ctx context.Context, tx *sqlrun.Session) error {
				attempts.Add(1)
				if _, err := tx.Exec(ctx, add, sqlrun.Args{"id": 1 + i}); err != nil {
					return err
				}
				once()
				select {
				case <-locked[1-i]:
				case <-time.After(patience):
				}
				_, err := tx.Exec(ctx, add, sqlrun.Args{"id": 2 - i})
				return err
			})
		})
		if got := strings.Join(db.List(t, `SELECT n FROM x ORDER BY id`, nil), " "); got != "2 2" {
			t.Errorf("the counters are %s, want 2 2", got)
		}
		if db.Dialect.SkipLocked != "" && attempts.Load() < 3 { // a busy server may refuse one more
			t.Errorf("%d attempts, want 3 at least: there was no deadlock", attempts.Load())
		}
	})
}

// Transactions also get through more contention than one deadlock.
func TestTxUnderContention(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, `CREATE TABLE x (n INTEGER)`, nil)
		db.Do(t, `INSERT INTO x VALUES (0)`, nil)
		add := sqlrun.Unlisted(`UPDATE x SET n = n + 1`)
		together(t, 8, func(int) error {
			for range 10 {
				err := db.Tx(context.Background(), func(ctx context.Context, tx *sqlrun.Session) error {
					_, err := tx.Exec(ctx, add, nil)
					return err
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if got := db.List(t, `SELECT n FROM x`, nil)[0]; got != "80" {
			t.Errorf("n = %s, want 80", got)
		}
	})
}

func TestTxRollsBack(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, `CREATE TABLE x (id INTEGER PRIMARY KEY)`, nil)
		insert := sqlrun.Unlisted(`INSERT INTO x VALUES (1)`)
		failure := errors.New("no")
		err := db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
			if _, err := tx.Exec(ctx, insert, nil); err != nil {
				return err
			}
			return failure
		})
		if !errors.Is(err, failure) {
			t.Errorf("got %v, want the function's own error", err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
				if _, err := tx.Exec(ctx, insert, nil); err != nil {
					return err
				}
				panic("no")
			})
		}()
		if got := db.List(t, `SELECT id FROM x`, nil); len(got) != 0 {
			t.Errorf("rows were left: %v", got)
		}
	})
}

// A statement whose context ends must end in the server, too: the server must not grant what it
// waited for to nobody.
func TestACancelledStatementLeavesNoGhost(t *testing.T) {
	dbtest.SkipGated(t, "it does not permit KILL")
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, `CREATE TABLE x (id INTEGER PRIMARY KEY, n INTEGER)`, nil)
		db.Do(t, `INSERT INTO x VALUES (1, 0)`, nil)
		update := sqlrun.Unlisted(`UPDATE x SET n = n + 1 WHERE id = 1`)
		holder, err := db.Pool().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.On(holder).Exec(t.Context(), update, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := db.Exec(ctx, update, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
		if err := holder.Commit(); err != nil {
			t.Fatal(err)
		}
		db.Do(t, `UPDATE x SET n = n + 10 WHERE id = 1`, nil)
		if got := db.List(t, `SELECT n FROM x`, nil); got[0] != "11" {
			t.Errorf("n = %s: the cancelled statement did its work", got[0])
		}
	})
}

func TestEachCallCanBeBroken(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, `CREATE TABLE x (id INTEGER PRIMARY KEY)`, nil)
		insert := sqlrun.Unlisted(`INSERT INTO x VALUES (:id)`)
		write := func(db *dbtest.DB, id int) error {
			return db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
				_, err := tx.Exec(ctx, insert, sqlrun.Args{"id": id})
				return err
			})
		}
		id, commits := 0, 0
		for call := 1; ; call++ {
			var err error
			for _, after := range []bool{false, true} {
				fault := &dbtest.Fault{Call: call, After: after}
				id++
				err = write(db.Broken(t, fault), id)
				if !fault.Reached() {
					if err != nil {
						t.Errorf("call %d was not reached, and yet: %v", call, err)
					}
					break
				}
				if !errors.Is(err, dbtest.ErrBroken) {
					t.Errorf("call %d: got %v, want ErrBroken", call, err)
				}
				var there int
				db.Scan(t, `SELECT COUNT(*) FROM x WHERE id = :id`, sqlrun.Args{"id": id}, &there)
				commits += there
				if there == 1 && !after {
					t.Errorf("call %d was broken before the server saw it, and yet the row is there", call)
				}
			}
			if err == nil {
				break
			}
		}
		if commits != 1 {
			t.Errorf("%d of the broken transactions are there, want one: that whose commit's answer was lost", commits)
		}
	})
}

func TestWrapRecognizesEngines(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		wrapped, err := engines.Wrap(t.Context(), db.Pool(), dialect.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if wrapped.Dialect.Name != db.Dialect.Name {
			t.Errorf("recognized as %s", wrapped.Dialect.Name)
		}
		if err := wrapped.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Pool().PingContext(t.Context()); err != nil {
			t.Errorf("Close closed the caller's pool: %v", err)
		}
	})
}

func TestGetWithoutARow(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		var n int
		err := db.Get(t.Context(), sqlrun.Unlisted(`SELECT 1 FROM (SELECT 1 AS one) AS x WHERE one = 2`), nil, &n)
		if !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("got %v, want sql.ErrNoRows", err)
		}
	})
}

// The process that holds a lock is stopped. Its transaction must not keep the lock for as long as
// the process stays stopped.
func TestAnIdleTransactionIsEnded(t *testing.T) {
	dbtest.SkipGated(t, "its own limit is longer")
	dbtest.SeveralWriters.EachEmpty(t, func(t *testing.T, db *dbtest.DB) { // else the lock is that of the file, and ends with the process
		db.Do(t, `CREATE TABLE x (id INTEGER PRIMARY KEY, n INTEGER)`, nil)
		db.Do(t, `INSERT INTO x VALUES (1, 0)`, nil)
		update := sqlrun.Unlisted(`UPDATE x SET n = n + 1 WHERE id = 1`)
		err := db.ShortTx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
			if _, err := tx.Exec(ctx, update, nil); err != nil {
				return err
			}
			// Others wait for the row and get it while this transaction idles.
			for {
				if _, err := db.Exec(ctx, update, nil); err == nil {
					return nil
				} else if ctx.Err() != nil {
					return ctx.Err()
				}
			}
		})
		switch {
		case err == nil:
			t.Error("the transaction was committed after it had been ended")
		case !db.Dialect.Unavailable(err) || db.Dialect.Refused(err): // it says nothing about what the transaction was for
			t.Errorf("it is no error of the connection: %v", err)
		}
		if got := db.List(t, `SELECT n FROM x`, nil); got[0] != "1" {
			t.Errorf("n = %s, want 1: only the other's change", got[0])
		}
	})
}
