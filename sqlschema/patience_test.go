package sqlschema_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/sqlschema"
)

// A transaction that has used a table and stays open, such as a dump or a report, delays a change of the
// tables, but nobody else.
func TestAChangeThatWaitsLetsOthersGoOn(t *testing.T) {
	dbtest.SkipGated(t, "it ignores lock_wait_timeout")
	emptyHaving(t, dbtest.TableLocks, func(t *testing.T, db *dbtest.DB) {
		migrate(t, db)
		const touch = `INSERT INTO {prefix}queue (name) VALUES (:name)`
		upgrade := func(ctx context.Context, db *dialect.DB) error { return sqlschema.Migrate(ctx, dbtest.NextVersion(db)) }
		waits(t, db, `SELECT COUNT(*) FROM {prefix}queue`, touch, upgrade)
		if err := sqlschema.Check(t.Context(), next(db).DB); err != nil {
			t.Error(err)
		}
		if err := sqlschema.To(t.Context(), next(db).DB, sqlschema.Latest(db.Dialect)); err != nil {
			t.Fatal(err)
		}
		if !db.Dialect.DDLInTx {
			return // there it changes no table that is as it should be
		}
		waits(t, db, `INSERT INTO {prefix}schedule (name, spec, command) VALUES ('open', '@daily', 'true')`,
			`INSERT INTO {prefix}schedule (name, spec, command) VALUES (:name, '@daily', 'true')`, sqlschema.Prompt)
		hasPrompt(t, db, true)
	})
}

// waits runs change beside a transaction in which open has run, until change says that it waits. Others can run touch meanwhile,
// before and after; and change ends after the transaction.
func waits(t *testing.T, db *dbtest.DB, open, touch string, change func(context.Context, *dialect.DB) error) {
	t.Helper()
	other := with(t, db, dialect.Options{StatementTimeout: 20 * time.Second}) // the transaction outlasts it
	end := errors.New("the end")
	said, ended := make(chan string, 100), make(chan error, 1)
	err := db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
		if _, err := tx.ExecText(ctx, strings.ReplaceAll(open, "{prefix}", db.Prefix())); err != nil {
			return err
		}
		go func() { ended <- change(sqlschema.OnWait(t.Context(), func(text string) { said <- text }), other.DB) }()
		text, after := "", 0
		for i := 0; after < 3; i++ {
			other.Do(t, touch, sqlrun.Args{"name": strings.Repeat("x", i+1)})
			if text != "" {
				after++
				continue
			}
			select {
			case text = <-said:
			case err := <-ended:
				t.Fatalf("it did not wait: %v", err)
			case <-time.After(10 * time.Millisecond):
			}
		}
		if !strings.Contains(text, "tried again in 1s") || !strings.Contains(text, "transaction open") {
			t.Errorf("it says: %s", text)
		}
		return end
	})
	if !errors.Is(err, end) {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	db.Do(t, `DELETE FROM `+strings.Fields(touch)[2]+` WHERE name LIKE 'x%'`, nil)
}

// A connection that has changed tables goes back into the pool as it was.
func TestABoundOnLocksEndsWithItsTransaction(t *testing.T) {
	dbtest.SkipGated(t, "it ignores lock_wait_timeout")
	emptyHaving(t, dbtest.TableLocks, func(t *testing.T, db *dbtest.DB) {
		setting := `SELECT current_setting('lock_timeout')`
		if !db.Dialect.DDLInTx {
			setting = `SELECT @@SESSION.lock_wait_timeout`
		}
		narrow := with(t, db, dialect.Options{MaxConns: 2})
		before := narrow.List(t, setting, nil)[0]
		migrate(t, narrow)
		for _, commit := range []bool{true, false} {
			tx, err := narrow.Patient().BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var within string
			if err := tx.QueryRowContext(t.Context(), setting).Scan(&within); err != nil || within == before {
				t.Errorf("within a transaction it is %s, %v", within, err)
			}
			if commit {
				err = tx.Commit()
			} else {
				err = tx.Rollback()
			}
			if err != nil {
				t.Error(err)
			}
		}
		for range 2 {
			c, err := narrow.Pool().Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var after string
			if err := c.QueryRowContext(t.Context(), setting).Scan(&after); err != nil || after != before {
				t.Errorf("afterwards it is %s instead of %s, %v", after, before, err)
			}
		}
	})
}
