package dialect_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A liar is a driver's connection that changes what is sent and what comes back.
type liar struct {
	driver.Conn
	ask   func(text string) string
	count func(text string, n int64) int64
	last  func(n int64) int64
}

type lie struct {
	driver.Result
	c    *liar
	text string
}

func (l lie) RowsAffected() (int64, error) {
	n, err := l.Result.RowsAffected()
	return l.c.count(l.text, n), err
}

func (l lie) LastInsertId() (int64, error) {
	n, err := l.Result.LastInsertId()
	return l.c.last(n), err
}

func (c *liar) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	r, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, c.ask(text), args)
	if err != nil {
		return nil, err
	}
	return lie{r, c, text}, nil
}

func (c *liar) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, c.ask(text), args)
}

func (c *liar) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	return lyingTx{tx, c}, err
}

func (c *liar) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type lyingTx struct {
	driver.Tx
	c *liar
}

func (t lyingTx) Rollback() error {
	if t.c.ask("ROLLBACK") != "ROLLBACK" {
		return t.Commit()
	}
	return t.Tx.Rollback()
}

type lyingConnector struct {
	driver.Connector
	lies liar
}

func (c lyingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	own, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	one := c.lies
	one.Conn = own
	return &one, nil
}

// openThrough wraps a pool of liars.
func openThrough(t *testing.T, db *dbtest.DB, lies liar) (*dialect.DB, error) {
	t.Helper()
	u, err := url.Parse(db.URL)
	dbtest.Must(t, err)
	base, err := db.Dialect.Connector(u, sqlrun.Options{})
	dbtest.Must(t, err)
	pool := sql.OpenDB(lyingConnector{base, lies})
	t.Cleanup(func() { dbtest.Must(t, pool.Close()) })
	return sqlrun.Wrap(t.Context(), []*sqlrun.Dialect{db.Dialect}, pool, sqlrun.Options{})
}

// A driver or a server that counts rows otherwise, knows no locking reads, accepts a key twice or does not roll back is refused when a
// program opens it, with what was seen. One that tells the truth is not.
func TestAServerThatLiesIsRefused(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		honest := liar{
			ask:   func(text string) string { return text },
			count: func(_ string, n int64) int64 { return n },
			last:  func(n int64) int64 { return n },
		}
		if _, err := openThrough(t, db, honest); err != nil {
			t.Fatal(err)
		}
		refused := func(what, want string, change func(*liar)) {
			t.Helper()
			lies := honest
			change(&lies)
			_, err := openThrough(t, db, lies)
			if !errors.Is(err, dialect.ErrUnfit) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", what, err, want)
			}
			var n int
			db.Scan(t, `SELECT COUNT(*) FROM {prefix}lock_fence`, nil, &n)
			if n != 1 {
				t.Errorf("%s: %d rows are left behind", what, n-1)
			}
		}
		rewriting := func(old, text string) func(*liar) {
			return func(l *liar) { l.ask = func(sent string) string { return strings.ReplaceAll(sent, old, text) } }
		}
		counting := func(verb string, to int64) func(*liar) {
			return func(l *liar) {
				l.count = func(text string, n int64) int64 {
					if strings.HasPrefix(text, verb) {
						return to
					}
					return n
				}
			}
		}
		refused("a driver that counts nothing", "says that it inserted 0", counting("INSERT", 0))
		refused("a driver that counts statements", "meets 2 rows of 3 and changes 1 says 3", counting("UPDATE", 3))
		refused("a driver that counts no rows of an UPDATE", "meets 2 rows of 3 and changes 1 says 0", counting("UPDATE", 0))
		refused("no rollback", "3 rows of a transaction that was rolled back are still there", rewriting("ROLLBACK", "COMMIT"))
		if db.Dialect.Returning == nil {
			refused("an id of its own", "comes back as 0", func(l *liar) { l.last = func(int64) int64 { return 0 } })
		} else {
			refused("the old value", "comes back as 2", rewriting("RETURNING fence", "RETURNING fence - 1"))
		}
		if skip := db.Dialect.SkipLocked; skip != "" {
			refused("a lock that is not known", "proof-lock", rewriting(skip, "FOR UPDATE IF YOU LIKE"))
		}
	})
}

// So is one whose tables are of an engine without transactions, or have lost their keys.
func TestTablesThatDoNotKeepTheirWordAreRefused(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		refused := func(want string) {
			t.Helper()
			own, err := sqlrun.Open(t.Context(), []*sqlrun.Dialect{db.Dialect}, db.URL, sqlrun.Options{})
			if err == nil {
				_ = own.Close()
			}
			if !errors.Is(err, dialect.ErrUnfit) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		switch {
		case db.Dialect.Schema:
			db.Do(t, `ALTER TABLE {prefix}lock_fence DROP CONSTRAINT dbcron_lock_fence_key`, nil)
		case db.Dialect.Routines:
			db.Do(t, `ALTER TABLE {prefix}lock_fence ENGINE = MyISAM`, nil)
			refused("rolled back are still there")
			db.Do(t, `ALTER TABLE {prefix}lock_fence ENGINE = InnoDB`, nil)
			db.Do(t, `ALTER TABLE {prefix}lock_fence DROP PRIMARY KEY`, nil)
		default:
			db.Do(t, `DROP TABLE {prefix}lock_fence`, nil)
			db.Do(t, `CREATE TABLE {prefix}lock_fence (name TEXT, slot INTEGER, fence INTEGER, guards INTEGER DEFAULT 0)`, nil)
		}
		refused("accepts a row twice")
	})
}
