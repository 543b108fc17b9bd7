package sqlconn_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A borrowed connection is the pool's, is kept out of it, and goes back. In the place of one
// that has broken another is taken.
func TestBorrow(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		fault := &dbtest.Fault{Text: "broken"}
		fault.Random = func() (bool, bool) { return true, false }
		from := db.Broken(t, fault)
		from.Pool().SetMaxOpenConns(3)
		pool := sqlconn.Borrow(from.Pool(), 2, nil)
		over := from.Over(pool)
		if err := sqlconn.Fill(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		inUse := func(want int) {
			t.Helper()
			if n := from.Pool().Stats().InUse; n != want {
				t.Errorf("%d connections are out of the pool, not %d", n, want)
			}
		}
		inUse(2)
		one := sqlrun.Unlisted(`SELECT 1 AS n`)
		for range 3 {
			var n int
			if err := over.Get(t.Context(), one, nil, &n); err != nil || n != 1 {
				t.Fatalf("got %d, %v", n, err)
			}
			if err := over.Pipeline(t.Context(), &sqlrun.Step{
				Stmt: one,
				Scan: func(row *sqlrun.Row) error { n = int(row.Int(0)); return nil },
			}); err != nil || n != 1 {
				t.Fatalf("in a pipeline: got %d, %v", n, err)
			}
			err := over.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error { return tx.Get(ctx, one, nil, &n) })
			if err != nil {
				t.Fatal(err)
			}
			if err := over.Get(t.Context(), sqlrun.Unlisted(`SELECT 1 AS broken`), nil, &n); !errors.Is(err, dbtest.ErrBroken) {
				t.Fatalf("got %v", err)
			}
		}
		if err := sqlconn.Fill(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		inUse(2)
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
		inUse(0)
		if from.MaxConns() != 3 {
			t.Errorf("%d connections", from.MaxConns())
		}
	})
}
