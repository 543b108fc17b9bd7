package queue

import (
	"context"
	"database/sql"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
)

// Handlers that hold transactions on all connections that they can get keep their worker from
// nothing: it renews its lease, and checks long jobs out. Their transactions complete them.
func TestHandlersHoldThePool(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, impatient)
		far := dbtest.Open(t, db.URL, dialect.Options{MaxConns: 4})
		near, err := New(far.DB, Options{Logger: quiet()})
		must(t, err)
		const many = 6
		w := worker(t, near, WorkerOptions{Concurrency: many, Lease: 10 * time.Second})
		w.slow = 10 * time.Millisecond
		var waiting atomic.Int32
		goOn := make(chan bool)
		handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
			waiting.Add(1)
			tx, err := far.Pool().BeginTx(ctx, &sql.TxOptions{Isolation: far.Dialect.Isolation, ReadOnly: far.Dialect.SkipLocked == ""})
			if err != nil {
				return err
			}
			defer tx.Rollback() //nolint:errcheck // it was committed, or need not be
			if err := tx.QueryRowContext(ctx, "SELECT 1").Scan(new(int)); err != nil {
				return err
			}
			select {
			case <-goOn:
			case <-ctx.Done():
				return ctx.Err()
			}
			if far.Dialect.SkipLocked == "" { // one that has read cannot write: it would wait for itself
				return nil
			}
			if err := d.CompleteTx(ctx, tx); err != nil {
				return err
			}
			return tx.Commit()
		})
		start(t, w)
		var jobs []Job
		for range many {
			jobs = append(jobs, Job{Kind: "x"})
		}
		ids := enqueueMany(t, c, jobs)
		eventually(t, "all connections are taken", func() bool { return waiting.Load() >= many && far.Pool().Stats().WaitCount > 0 })
		for _, id := range ids {
			becomes(t, c, id, admin.StateRunning) // each has been checked out
		}
		beats := func() (n int) {
			db.Scan(t, `SELECT heartbeats FROM {prefix}node WHERE name = :name AND state = 'live'`, sqlrun.Args{"name": nameOf(w)}, &n)
			return n
		}
		before := beats()
		eventually(t, "the lease is renewed", func() bool { return beats() > before+1 })
		close(goOn)
		empty(t, db)
	})
}

// A worker refuses a pool in which nothing would be left for handlers, and says how many
// connections it needs. With that many it works.
func TestSmallPool(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		for size := 1; size <= smallestPool; size++ {
			c := client(t, dbtest.Open(t, db.URL, dialect.Options{MaxConns: size}), Options{})
			w := worker(t, c, WorkerOptions{})
			began := make(chan bool, 1)
			handle(t, w, "x", func(context.Context, *Delivery) error { began <- true; return nil })
			if size < smallestPool && db.Dialect.SkipLocked != "" {
				err := w.Run(t.Context())
				want(t, "too small", err, ErrInvalid)
				if !strings.Contains(err.Error(), "needs 3") {
					t.Errorf("the error is %v", err)
				}
				_, err = c.Receiver(t.Context(), WorkerOptions{})
				want(t, "a receiver", err, ErrInvalid)
				continue
			}
			stop := start(t, w)
			enqueue(t, c, Job{Kind: "x"})
			received(t, "it begins", began)
			stop()
			empty(t, db)
		}
	})
}

// Workers of several clients share their part of a pool, leave the other half to handlers, and
// give everything back.
func TestReserveIsShared(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		edit(t, client(t, db, Options{}), impatient) // makes the queue
		far := dbtest.Open(t, db.URL, dialect.Options{MaxConns: 8})
		var stops []func()
		for range 5 {
			w := worker(t, client(t, far, Options{}), WorkerOptions{})
			stops = append(stops, start(t, w))
		}
		var held []*sql.Conn
		for range 8 - 4 - 2 { // two may listen
			c, err := far.Pool().Conn(t.Context())
			must(t, err)
			held = append(held, c)
		}
		for _, c := range held {
			must(t, c.Close())
		}
		for _, stop := range stops {
			stop()
		}
		// Of a statement or transaction that was broken off, database/sql gives the connection
		// back a moment after it has returned.
		eventually(t, "all connections are given back", func() bool { return far.Pool().Stats().InUse == 0 })
		reserves.Lock()
		defer reserves.Unlock()
		if reserves.of[far.Pool()] != nil {
			t.Error("the reserve is still there")
		}
	})
}
