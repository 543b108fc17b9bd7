package dialect_test

import (
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

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
		for { // until the row is free
			_, err := db.Exec(t.Context(), sqlrun.Unlisted(`UPDATE x SET n = n + 10 WHERE id = 1`), nil)
			if err == nil {
				break
			}
			if !db.Dialect.LockTimeout(err) {
				t.Fatal(err)
			}
		}
		if _, err = tx.ExecContext(t.Context(), "UPDATE x SET n = 2 WHERE id = 1"); !db.Dialect.Retryable(err) {
			t.Errorf("the transaction that was ended gets %v, after which it would not be run again", err)
		}
		if got := db.List(t, `SELECT n FROM x`, nil)[0]; got != "10" {
			t.Errorf("n is %s, and not the 10 of who came after it", got)
		}
	})
}
