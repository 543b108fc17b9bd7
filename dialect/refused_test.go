package dialect_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/sqlite"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// The engine refuses a statement because of its text or its rows. Faults of the server, the
// connection, other transactions or the time are no refusal: the same statement may succeed later.
func TestRefused(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, `CREATE TABLE {prefix}x (n INTEGER NOT NULL PRIMARY KEY, small INTEGER NOT NULL CHECK (small < 10))`, nil)
		db.Do(t, `INSERT INTO {prefix}x VALUES (1, 1)`, nil)
		db.Refuse(t, "UPDATE", "x", `NEW.n = 2`)
		exec := func(db *sqlrun.Session, text string) error {
			_, err := db.Exec(t.Context(), sqlrun.Unlisted(text), nil)
			return err
		}
		for what, text := range map[string]string{
			"a missing value":   `INSERT INTO {prefix}x VALUES (2, NULL)`,
			"a CHECK":           `INSERT INTO {prefix}x VALUES (2, 10)`,
			"a key twice":       `INSERT INTO {prefix}x VALUES (1, 1)`,
			"a trigger":         `UPDATE {prefix}x SET n = 2`,
			"an unknown column": `UPDATE {prefix}x SET nothing = 2`,
			"nonsense":          `UPDATE UPDATE {prefix}x`,
		} {
			if err := exec(&db.Session, text); err == nil || !db.Dialect.Refused(err) {
				t.Errorf("%s: %v is not a refusal", what, err)
			} else if db.Dialect.Temporary(err) {
				t.Errorf("%s: %v is temporary", what, err)
			}
		}
		not := func(what string, err error) {
			t.Helper()
			if err == nil || db.Dialect.Refused(err) {
				t.Errorf("%s: %v is a refusal", what, err)
			}
		}
		not("no row", db.Get(t.Context(), sqlrun.Unlisted(`SELECT n FROM {prefix}x WHERE n = 9`), nil, new(int)))
		readOnly := `SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY`
		switch {
		case db.Dialect.Name == sqlite.Dialect.Name:
			readOnly = `PRAGMA query_only = 1`
		case db.Dialect.Delimiter:
			readOnly = `SET SESSION TRANSACTION READ ONLY`
		}
		if !dbtest.Gated() { // which ignores it
			one := db.Another(t, dialect.Options{MaxConns: 1})
			one.Do(t, readOnly, nil)
			not("a session that only reads", exec(&one.Session, `UPDATE {prefix}x SET small = 2`))
		}

		short := db.Another(t, dialect.Options{StatementTimeout: 200 * time.Millisecond})
		if err := db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
			if err := exec(tx, `UPDATE {prefix}x SET small = 2`); err != nil {
				return err
			}
			err := exec(&short.Session, `UPDATE {prefix}x SET small = 3`)
			not("a row that another transaction has locked", err)
			if !db.Dialect.Temporary(err) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a row that another transaction has locked: %v is not temporary", err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		not("a context that has ended", db.Tx(over, func(context.Context, *sqlrun.Session) error { return nil }))
		closed := db.Another(t, dialect.Options{})
		_ = closed.Close()
		not("a pool that is closed", exec(&closed.Session, `UPDATE {prefix}x SET small = 3`))
	})
}
