package dialect_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/sqlite"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

var addRow = sqlrun.Unlisted(`INSERT INTO written (x) VALUES (:x)`)

// writing creates a table, and returns a function that writes to it and one that counts its rows.
func writing(t *testing.T, db *dbtest.DB) (write func(ctx context.Context, db *dialect.DB) error, rows func() int) {
	t.Helper()
	db.Do(t, `CREATE TABLE written (x INTEGER NOT NULL)`, nil)
	return func(ctx context.Context, db *dialect.DB) error {
			_, err := db.Exec(ctx, addRow, sqlrun.Args{"x": 1})
			return err
		}, func() (n int) {
			db.Scan(t, `SELECT COUNT(*) FROM written`, nil, &n)
			return n
		}
}

// A long transaction delays the writers of other DBs. It does not stop a waiter from leaving, and
// no write is lost.
func TestWritersBesideALongTransaction(t *testing.T) {
	dbtest.One(t, sqlite.Dialect, func(t *testing.T, db *dbtest.DB) {
		write, rows := writing(t, db)
		other := db.Another(t, dialect.Options{MaxConns: 1})
		for name, transaction := range map[string]func(f func(tx *sqlrun.Session) error) error{
			"ours": func(f func(tx *sqlrun.Session) error) error {
				return db.Tx(t.Context(), func(_ context.Context, tx *sqlrun.Session) error { return f(tx) })
			},
			"the caller's own": func(f func(tx *sqlrun.Session) error) error {
				tx, err := db.Pool().BeginTx(t.Context(), nil)
				if err != nil {
					return err
				}
				return errors.Join(f(db.On(tx)), tx.Commit())
			},
		} {
			before := rows()
			var group sync.WaitGroup
			err := transaction(func(tx *sqlrun.Session) error {
				if _, err := tx.Exec(t.Context(), addRow, sqlrun.Args{"x": 1}); err != nil {
					return err
				}
				leaving, leave := context.WithCancel(t.Context())
				gone := make(chan error, 1)
				go func() { gone <- write(leaving, other.DB) }()
				leave()
				if err := <-gone; !errors.Is(err, context.Canceled) {
					t.Errorf("%s: a writer that left returns %v", name, err)
				}
				for range 3 { // they wait for the connection and the permits
					group.Go(func() {
						if err := write(t.Context(), other.DB); err != nil {
							t.Errorf("%s: a writer beside it: %v", name, err)
						}
					})
				}
				_, err := tx.Exec(t.Context(), addRow, sqlrun.Args{"x": 1})
				return err
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			group.Wait()
			if n := rows() - before; n != 5 {
				t.Errorf("%s: %d rows, want 5", name, n)
			}
		}
	})
}

// DBs with pools of one connection write at the same time, in transactions and outside.
func TestWritersOfPoolsOfOne(t *testing.T) {
	dbtest.One(t, sqlite.Dialect, func(t *testing.T, db *dbtest.DB) {
		write, rows := writing(t, db)
		var group sync.WaitGroup
		for range 3 {
			one := db.Another(t, dialect.Options{MaxConns: 1})
			for range 3 {
				group.Go(func() {
					for range 5 {
						err := one.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
							_, err := tx.Exec(ctx, addRow, sqlrun.Args{"x": 1})
							return err
						})
						if err := errors.Join(err, write(t.Context(), one.DB)); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		group.Wait()
		if n := rows(); n != 90 {
			t.Errorf("%d rows, want 90", n)
		}
	})
}
