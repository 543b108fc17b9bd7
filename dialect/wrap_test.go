package dialect_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/dialect/sqlite"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// mysqlPool opens db as a program would that does not know dbcron.
func mysqlPool(t *testing.T, db *dbtest.DB, parameters string) *sql.DB {
	t.Helper()
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	cfg := mysqldriver.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr, cfg.DBName = u.User.Username(), password, "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	return opened(t, "mysql", cfg.FormatDSN()+"?"+parameters)
}

func opened(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	pool, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

func wrapped(t *testing.T, db *dbtest.DB, pool *sql.DB) *dbtest.DB {
	t.Helper()
	w, err := engines.Wrap(t.Context(), pool, dialect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &dbtest.DB{DB: w, URL: db.URL}
}

func TestPoolsOfOtherProgramsOnMySQL(t *testing.T) {
	dbtest.One(t, mysql.Dialect, func(t *testing.T, db *dbtest.DB) {
		unfit(t, mysqlPool(t, db, "charset=utf8mb4&sql_mode='NO_ENGINE_SUBSTITUTION'"), "sql_mode", "STRICT_TRANS_TABLES")
		if !dbtest.Gated() { // where texts are UTF-8 in any case
			unfit(t, mysqlPool(t, db, "charset=latin1"), "charset", "charset=utf8mb4")
		}

		// Another time zone, parsed times, changed instead of matched rows, prepared statements.
		w := wrapped(t, db, mysqlPool(t, db, "charset=utf8mb4&time_zone='%2B09:00'&parseTime=true&loc=Asia%2FTokyo"))
		w.Do(t, `CREATE TABLE x (id INTEGER PRIMARY KEY, at DATETIME(6), n INTEGER NOT NULL)`, nil)
		const us = 1_700_000_000_123_456
		w.Do(t, `INSERT INTO x VALUES (1, {time :us}, 0), (2, {now}, 0)`, sqlrun.Args{"us": us})
		for _, reader := range []*dbtest.DB{w, db} {
			var at, age int64
			var text string
			reader.Scan(t, `SELECT {us at}, CAST(at AS CHAR), {us {now}} - (SELECT {us at} FROM x WHERE id = 2) FROM x WHERE id = 1`,
				nil, &at, &text, &age)
			if at != us || text != "2023-11-14 22:13:20.123456" {
				t.Errorf("the instant came back as %d, and stands as %s", at, text)
			}
			if d := time.Duration(age) * time.Microsecond; d < 0 || d > time.Minute {
				t.Errorf("now was %v ago", d)
			}
		}
		guarded := `UPDATE x SET n = n + 1 WHERE id = 1 AND n = :n AND at < {now + :ttl}`
		for want := range []int64{1, 0} {
			if got := w.Do(t, guarded, sqlrun.Args{"n": 0, "ttl": time.Second.Microseconds()}); got != []int64{1, 0}[want] {
				t.Errorf("the guarded update changed %d rows in round %d", got, want)
			}
		}
	})
}

func TestPoolsOfOtherProgramsOnPostgres(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		w := wrapped(t, db, opened(t, "pgx", db.URL+"&timezone=Asia/Tokyo&default_query_exec_mode=simple_protocol"))
		var back int64
		var text string
		w.Scan(t, `SELECT {us {time :us}}, CAST({time :us} AT TIME ZONE 'UTC' AS TEXT)`, sqlrun.Args{"us": 1_700_000_000_123_456}, &back, &text)
		if back != 1_700_000_000_123_456 || text != "2023-11-14 22:13:20.123456" {
			t.Errorf("the instant came back as %d, and stands as %s", back, text)
		}
		unfit(t, opened(t, "pgx", db.URL+"&default_transaction_read_only=on"), "writable", "target_session_attrs")
	})
}

func TestPoolsOfOtherProgramsOnSQLite(t *testing.T) {
	dbtest.One(t, sqlite.Dialect, func(t *testing.T, db *dbtest.DB) {
		file := "file:" + strings.TrimPrefix(db.URL, "sqlite:")
		unfit(t, opened(t, "sqlite", file), "busy timeout", "busy_timeout(10000)")
		unfit(t, opened(t, "sqlite", file+"-other?_pragma=busy_timeout(10)"), "journal", "journal_mode(WAL)")

		// Transactions begin as readers: when two of them meet, they are refused at their first write and
		// repeated.
		w := wrapped(t, db, opened(t, "sqlite", file+"?_pragma=busy_timeout(1000)"))
		w.Do(t, `CREATE TABLE x (n INTEGER)`, nil)
		w.Do(t, `INSERT INTO x VALUES (0)`, nil)
		read, write := sqlrun.Unlisted(`SELECT n FROM x`), sqlrun.Unlisted(`UPDATE x SET n = :n`)
		const workers, rounds = 4, 5
		together(t, workers, func(int) error {
			for range rounds {
				err := w.Tx(context.Background(), func(ctx context.Context, tx *sqlrun.Session) error {
					var n int
					if err := tx.Get(ctx, read, nil, &n); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, write, sqlrun.Args{"n": n + 1})
					return err
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if got := w.List(t, `SELECT n FROM x`, nil)[0]; got != "20" {
			t.Errorf("n = %s, want 20: a claim was lost", got)
		}
	})
}

// together runs f in n goroutines and fails the test for each error.
func together(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// Whatever the session's default, a second read in one of our transactions sees what others have
// committed since the first: claims and guards rely on it.
func TestTransactionsAreReadCommitted(t *testing.T) {
	for name, pool := range map[string]func(t *testing.T, db *dbtest.DB) *sql.DB{
		"as opened":       func(_ *testing.T, db *dbtest.DB) *sql.DB { return db.Pool() },
		"repeatable read": func(t *testing.T, db *dbtest.DB) *sql.DB { return strict(t, db, "repeatable read") },
		"serializable":    func(t *testing.T, db *dbtest.DB) *sql.DB { return strict(t, db, "serializable") },
	} {
		t.Run(name, func(t *testing.T) {
			dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
				if db.Dialect.SkipLocked == "" {
					return // a writer is alone: nobody commits meanwhile
				}
				db.Do(t, `CREATE TABLE x (n INTEGER)`, nil)
				db.Do(t, `INSERT INTO x VALUES (1)`, nil)
				w := wrapped(t, db, pool(t, db))
				read := sqlrun.Unlisted(`SELECT n FROM x`)
				err := w.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
					for _, want := range []int{1, 2} {
						var n int
						if err := tx.Get(ctx, read, nil, &n); err != nil || n != want {
							t.Errorf("got n = %d, %v; want %d", n, err, want)
						}
						db.Do(t, `UPDATE x SET n = 2`, nil)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// strict opens a pool whose sessions have another default isolation.
func strict(t *testing.T, db *dbtest.DB, isolation string) *sql.DB {
	t.Helper()
	if db.Dialect.Name != mysql.Dialect.Name { // it may be a copy
		return opened(t, "pgx", db.URL+"&default_transaction_isolation="+url.PathEscape(isolation))
	}
	pool := mysqlPool(t, db, "charset=utf8mb4")
	pool.SetMaxOpenConns(1) // MySQL and MariaDB have no parameter in common
	if _, err := pool.ExecContext(t.Context(), "SET SESSION TRANSACTION ISOLATION LEVEL "+isolation); err != nil {
		t.Fatal(err)
	}
	return pool
}

func TestWrapPgx(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		pool, err := pgxpool.New(t.Context(), db.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		w, err := postgres.Wrap(t.Context(), pool, dialect.Options{Prefix: "other_"})
		if err != nil {
			t.Fatal(err)
		}
		if w.Dialect != postgres.Dialect || w.Prefix() != "public.other_" {
			t.Errorf("got %s with prefix %s", w.Dialect.Name, w.Prefix())
		}
		if err := w.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
			var n int
			return tx.Get(ctx, sqlrun.Unlisted(`SELECT {int :n}`), sqlrun.Args{"n": 1}, &n)
		}); err != nil {
			t.Error(err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if err := pool.Ping(t.Context()); err != nil {
			t.Errorf("Close closed the caller's pool: %v", err)
		}
		if got := pool.Stat().AcquiredConns(); got != 0 {
			t.Errorf("%d connections did not come back", got)
		}
	})
}

func TestUnwrap(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		for _, pool := range []*sql.DB{db.Pool(), db.Broken(t, &dbtest.Fault{Call: 1000}).Pool()} {
			c, err := pool.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			err = c.Raw(func(c any) error {
				own := sqlconn.Unwrap(c)
				switch db.Dialect {
				case postgres.Dialect:
					if p, ok := own.(interface{ Conn() *pgx.Conn }); !ok || p.Conn() == nil {
						t.Errorf("got %T", own)
					}
				case mysql.Dialect:
					if _, ok := own.(interface{ IsValid() bool }); !ok || own == c {
						t.Errorf("got %T", own)
					}
				}
				if sqlconn.Unwrap(own) != own {
					t.Error("there was more to unwrap")
				}
				return nil
			})
			if err := errors.Join(err, c.Close()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestNothingIsLeftRunning(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		defer goleak.VerifyNone(t, goleak.IgnoreCurrent()) // the fixture's own are still open
		own, err := engines.Open(t.Context(), db.URL, dialect.Options{})
		if err != nil {
			t.Fatal(err)
		}
		slow, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, _ = own.Exec(slow, sqlrun.Unlisted(sleep(own)), nil) // either cancelled or quick
		unlock, err := own.Exclusive(t.Context(), "leak", nil)
		if err != nil {
			t.Fatal(err)
		}
		unlock()
		if err := own.Close(); err != nil {
			t.Error(err)
		}
		_, err = engines.Open(t.Context(), strings.Replace(db.URL, "://", "://nobody:x@", 1)+"/no/such", dialect.Options{})
		if err == nil {
			t.Error("a database that is not there was opened")
		}
	})
}

// sleep returns a statement that takes half a minute unless it is cancelled.
func sleep(db *dialect.DB) string {
	switch db.Dialect.Name {
	case postgres.Dialect.Name:
		return `SELECT pg_sleep(30)`
	case mysql.Dialect.Name:
		return `SELECT SLEEP(30)`
	default:
		return `SELECT COUNT(*) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000000) SELECT i FROM n)`
	}
}
