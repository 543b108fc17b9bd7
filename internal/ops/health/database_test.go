package health

import (
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// Who has locked a table for which others wait comes before what has to wait for it.
func TestTableLocks(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		if locks := db.Dialect.TableLocks; locks == nil || locks.Waits.Query == "" {
			return
		}
		found := func() string {
			all, err := db.TableLockWaits(t.Context())
			dbtest.Must(t, err)
			if len(all) == 0 {
				return ""
			}
			return all[0].Detail + "; " + all[0].Advice
		}
		if got := found(); got != "" {
			t.Errorf("nobody waits, and it finds %q", got)
		}
		tx := db.Begin(t, nil)
		_, err := tx.ExecContext(t.Context(), "LOCK TABLE "+db.Prefix()+"run IN ACCESS EXCLUSIVE MODE")
		dbtest.Must(t, err)
		waited := make(chan error, 1)
		go func() {
			var n int
			waited <- db.Pool().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+db.Prefix()+"run").Scan(&n)
		}()
		got := ""
		for got == "" && t.Context().Err() == nil {
			got = found()
		}
		if !strings.Contains(got, ") has locked dbcron_run, in a transaction open for ") ||
			!strings.Contains(got, "; sessions that wait for it: 1; have its program end the transaction") {
			t.Errorf("it finds %q", got)
		}
		dbtest.Must(t, tx.Rollback())
		dbtest.Must(t, <-waited)
		if got := found(); got != "" {
			t.Errorf("it still finds %q", got)
		}
	})
}
