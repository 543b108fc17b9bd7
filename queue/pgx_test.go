package queue

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/sqlschema"
)

// Transactions of pgx's own enqueue and complete jobs as others do.
func TestPgxTransactions(t *testing.T) {
	t.Parallel()
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		must(t, sqlschema.Migrate(t.Context(), db.DB))
		c := client(t, db, Options{})
		conn, err := pgx.Connect(t.Context(), db.URL)
		must(t, err)
		t.Cleanup(func() { must(t, conn.Close(context.Background())) }) // after the end of the worker
		in := func(ctx context.Context, commit bool, f func(tx dialect.Execer) error) error {
			tx, err := conn.Begin(ctx)
			if err != nil {
				return err
			}
			defer tx.Rollback(ctx) //nolint:errcheck // after a commit it does nothing
			if err := f(postgres.Tx(tx)); err != nil || !commit {
				return err
			}
			return tx.Commit(ctx)
		}
		for _, commit := range []bool{false, true} {
			for range 2 { // the first one makes the queue
				var wake func()
				must(t, in(t.Context(), commit, func(tx dialect.Execer) (err error) {
					_, wake, err = c.EnqueueTx(t.Context(), tx, Job{Kind: "x", Key: "k"},
						Job{Kind: "x", Priority: Idle, Payload: []byte(`{"a": "\u0000é'"}`)})
					return err
				}))
				wake()
			}
		}
		must(t, c.Subscribe(t.Context(), "topic", defaultQueue))
		for _, commit := range []bool{false, true} {
			must(t, in(t.Context(), commit, func(tx dialect.Execer) error {
				if all, _, err := c.EnqueueTx(t.Context(), tx, Job{Kind: "y", Unique: "u"}, Job{Kind: "y", Unique: "u"}); err != nil ||
					all[0].Existed || !all[1].Existed {
					t.Errorf("unique: %v, %v", all, err)
				}
				id, _, _, err := c.EnqueueGroupTx(t.Context(), tx, Group{Callback: &Job{Kind: "y"}},
					Job{Kind: "y", Payload: []byte("\x00\xff"), Binary: true})
				must(t, err)
				if _, _, err := c.EnqueueTx(t.Context(), tx, Job{Kind: "y", Group: id, Delay: time.Hour}); err != nil {
					t.Errorf("group: %v", err)
				}
				p, _, err := c.PublishTx(t.Context(), tx, "topic", Job{Kind: "y"})
				if err != nil || len(p.Copies) != 1 {
					t.Errorf("topic: %v, %v", p, err)
				}
				return err
			}))
		}
		if all, _, err := adminOf(c).Jobs(t.Context(), admin.Filter{Kind: "y"}); err != nil || len(all) != 3 {
			t.Errorf("%v, %v", all, err)
		}
		db.Do(t, `DELETE FROM {prefix}job WHERE kind = 'y'`, nil)
		db.Do(t, `DELETE FROM {prefix}job_delayed WHERE kind = 'y'`, nil)
		w := worker(t, c, WorkerOptions{Concurrency: 1})
		edit(t, c, impatient)
		var r record
		handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
			r.add("%d", d.Attempt)
			err := in(ctx, d.Attempt > 1, func(tx dialect.Execer) error { return d.CompleteTx(ctx, tx) })
			if err == nil && d.Attempt == 1 {
				return errTest // it was rolled back
			}
			return err
		})
		start(t, w)
		empty(t, db)
		if r.count("1") != 4 || r.count("2") != 4 || r.len() != 8 {
			t.Errorf("attempts: %q", r.all())
		}
	})
}
