package dialect_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// The lock of a migration stays for longer than a transaction may take, though its connection does nothing else.
func TestAGateKeepsTheLockOfAMigration(t *testing.T) {
	if !dbtest.Gated() {
		t.Skip("make compat SERVERS=vitess")
	}
	dbtest.One(t, mysql.Dialect, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, `CREATE TABLE x (id INTEGER PRIMARY KEY, n INTEGER)`, nil)
		db.Do(t, `INSERT INTO x VALUES (1, 0)`, nil)
		own := dbtest.Open(t, db.URL+"?transaction_timeout=8000", dialect.Options{})
		unlock, err := own.Exclusive(t.Context(), "work", nil)
		dbtest.Must(t, err)
		defer unlock()
		tx := own.Begin(t, nil) // later than the lock, so that the lock's time is over when this one's is
		_, err = tx.ExecContext(t.Context(), "UPDATE x SET n = 1 WHERE id = 1")
		dbtest.Must(t, err)
		changes(t, db)
		for held := false; !held; { // a try may also end before there is an answer
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			again, err := db.Exclusive(ctx, "work", nil)
			cancel()
			if err == nil {
				again()
				t.Fatal("another had the lock at the same time")
			}
			held = strings.Contains(err.Error(), "holds it")
		}
	})
}

// changes changes the row of x when it is free.
func changes(t *testing.T, db *dbtest.DB) {
	t.Helper()
	for {
		_, err := db.Exec(t.Context(), sqlrun.Unlisted(`UPDATE x SET n = n + 10 WHERE id = 1`), nil)
		if err == nil {
			return
		}
		if !db.Dialect.LockTimeout(err) {
			t.Fatal(err)
		}
	}
}

// A gate ends a transaction that takes longer than its limit, here a second, and rolls it back. Whoever had it runs it again.
func TestAGateEndsLongTransactions(t *testing.T) {
	if !dbtest.Gated() {
		t.Skip("make compat SERVERS=vitess")
	}
	dbtest.One(t, mysql.Dialect, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, `CREATE TABLE x (id INTEGER PRIMARY KEY, n INTEGER)`, nil)
		db.Do(t, `INSERT INTO x VALUES (1, 0)`, nil)
		c := db.Conn(t)
		_, err := c.ExecContext(t.Context(), "SET transaction_timeout = 1000")
		dbtest.Must(t, err)
		tx, err := c.BeginTx(t.Context(), nil)
		dbtest.Must(t, err)
		defer tx.Rollback() //nolint:errcheck // the gate has ended it
		_, err = tx.ExecContext(t.Context(), "UPDATE x SET n = 1 WHERE id = 1")
		dbtest.Must(t, err)
		changes(t, db)
		if _, err = tx.ExecContext(t.Context(), "UPDATE x SET n = 2 WHERE id = 1"); !db.Dialect.Retryable(err) {
			t.Errorf("the transaction that was ended gets %v, after which it would not be run again", err)
		}
		if got := db.List(t, `SELECT n FROM x`, nil)[0]; got != "10" {
			t.Errorf("n is %s, and not the 10 of who came after it", got)
		}
	})
}
