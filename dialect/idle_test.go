package dialect_test

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Only short transactions are ended when idle; those of callers on the same connection are not.
func TestIdleTransactions(t *testing.T) {
	dbtest.SkipGated(t, "its own limit counts, of all transactions")
	t.Parallel()
	dbtest.Network.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		limit := map[string]string{
			postgres.Dialect.Name: "SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'",
			mysql.Dialect.Name:    "SHOW VARIABLES LIKE 'idle_transaction_timeout'",
		}[db.Dialect.Name]
		if db.Engine == "mysql" {
			limit = "SHOW VARIABLES LIKE 'wait_timeout'"
		}
		db.Pool().SetMaxOpenConns(1)
		read := func(x dialect.Execer) (seconds int) {
			rows, err := x.QueryContext(t.Context(), limit)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			if !rows.Next() {
				t.Fatal("no such setting", rows.Err())
			}
			dest := make([]any, 1, 2)
			var value, name string
			dest[0] = &value
			if strings.HasPrefix(limit, "SHOW") {
				dest = []any{&name, &value}
			}
			if err := rows.Scan(dest...); err != nil {
				t.Fatal(err)
			}
			if seconds, err = strconv.Atoi(value); err != nil {
				t.Fatal(err)
			}
			switch {
			case db.Engine == "mysql" && seconds == 8*60*60: // its default
				return 0
			case seconds >= 1000: // in ms on PostgreSQL
				return seconds / 1000
			}
			return seconds
		}
		in := func(run func(context.Context, func(context.Context, *sqlrun.Session) error) error) (seconds int) {
			err := run(t.Context(), func(_ context.Context, tx *sqlrun.Session) error {
				seconds = read(tx.Execer())
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return seconds
		}
		for range 2 {
			if db.Engine == "mysql" {
				var got int
				in(db.ShortTx)
				db.Scan(t, "SELECT GET_LOCK('idle', 0)", nil, &got)
				if s := read(db.Pool()); s != 0 {
					t.Errorf("a session that has a lock may be idle for %d s only", s)
				}
			}
			if s := in(db.ShortTx); s != 5 {
				t.Errorf("a short transaction may be idle for %d s", s)
			}
			if s := in(db.Tx); s != 0 {
				t.Errorf("a transaction may be idle for %d s only", s)
			}
			if s := in(db.ShortTx); s != 5 {
				t.Errorf("a short transaction may be idle for %d s", s)
			}
			tx, err := db.Pool().BeginTx(t.Context(), &sql.TxOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if s := read(tx); s != 0 {
				t.Errorf("a caller's transaction may be idle for %d s only", s)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
