package dialect_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/dbtest/dbserver"
)

// A primary that is demoted becomes read-only and keeps its connections. The pool must not
// use them for ever: a new one may lead to the new primary.
func TestAPrimaryThatBecomesReadOnly(t *testing.T) {
	for _, e := range dbserver.Engines {
		if e.Name == "postgres" { // ends the connections of a server that is demoted
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			server, err := e.Start(t.Context(), dbserver.Options{})
			if err != nil {
				dbtest.Missing(t, err)
			}
			t.Cleanup(func() { _ = server.Stop() })
			admin := dbtest.Open(t, server.URL(), dialect.Options{})
			admin.Do(t, `CREATE TABLE x (n INTEGER)`, nil)
			admin.Do(t, `CREATE USER app@'%' IDENTIFIED BY 'x'`, nil)
			admin.Do(t, `GRANT ALL ON test.* TO app@'%'`, nil)
			_, host, _ := strings.Cut(server.URL(), "@")
			db := dbtest.Open(t, "mysql://app:x@"+host, dialect.Options{MaxConns: 1})
			insert := dialect.Unlisted(`INSERT INTO x VALUES (1)`)
			id := func() string { return db.List(t, `SELECT CONNECTION_ID()`, nil)[0] }

			before := id()
			admin.Do(t, `SET GLOBAL read_only = 1`, nil)
			err = refusal(t, server.URL(), dialect.Options{})
			if !errors.Is(err, dialect.ErrUnfit) || !strings.Contains(err.Error(), "connect to the primary") {
				t.Errorf("opened when it is read-only: %v, want the advice", err)
			}
			_, err = db.Exec(t.Context(), insert, nil)
			refused(t, "a statement", err)
			if id() == before {
				t.Error("after a statement that was refused, the pool uses the same connection")
			}
			before = id()
			refused(t, "a transaction", db.Tx(t.Context(), func(ctx context.Context, tx *dialect.Session) error {
				_, err := tx.Exec(ctx, insert, nil)
				return err
			}))
			if id() == before {
				t.Error("after a transaction that was refused, the pool uses the same connection")
			}
			before = id()
			admin.Do(t, `SET GLOBAL read_only = 0`, nil)
			err = db.Tx(t.Context(), func(ctx context.Context, tx *dialect.Session) error {
				if _, err := tx.Exec(ctx, insert, nil); err != nil {
					return err
				}
				_, err := admin.Exec(ctx, dialect.Unlisted(`SET GLOBAL read_only = 1`), nil)
				return err
			})
			if err != nil { // the server may wait for the transaction instead
				refused(t, "a commit", err)
				if id() == before {
					t.Error("after a commit that was refused, the pool uses the same connection")
				}
			}
			admin.Do(t, `SET GLOBAL read_only = 0`, nil)
			if n := db.Do(t, `INSERT INTO x VALUES (2)`, nil); n != 1 {
				t.Errorf("%d rows on the new primary", n)
			}
		})
	}
}

func refused(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "read-only") || !dialect.Unavailable(err) {
		t.Errorf("%s: got %v, want that the server is read-only, and unavailable", what, err)
	}
	if errors.Is(err, dialect.ErrUnfit) {
		t.Errorf("%s: got %v", what, err)
	}
}

// The server's default must not matter: with autocommit off no transaction can be begun.
func TestAServerWithoutAutocommit(t *testing.T) {
	dbtest.One(t, dialect.MySQL, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, `CREATE TABLE x (n INTEGER)`, nil)
		own := dbtest.Open(t, db.URL+"?autocommit=0", dialect.Options{}) // comes where the default would
		err := own.Tx(t.Context(), func(ctx context.Context, tx *dialect.Session) error {
			_, err := tx.Exec(ctx, dialect.Unlisted(`INSERT INTO x VALUES (1)`), nil)
			return err
		})
		if err != nil {
			t.Error(err)
		}
		own.Do(t, `INSERT INTO x VALUES (2)`, nil)
		if got := db.List(t, `SELECT COUNT(*) FROM x`, nil)[0]; got != "2" {
			t.Errorf("others see %s rows, want 2", got)
		}
		unfit(t, mysqlPool(t, db, "charset=utf8mb4&autocommit=0"), "autocommit", "autocommit=1")
	})
}
