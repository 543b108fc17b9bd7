package queue

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/postgres"
)

// More handlers than the pool has connections hold transactions, and enqueue jobs beside them: one by one,
// several at once, and to a queue that there is not yet. All go on, since that needs no connection of theirs,
// in a pool that the program made, too, whose other users database/sql does not see. The class: what holds a
// resource waits for another one of the same kind.
func TestEnqueueBesideTransactions(t *testing.T) {
	t.Parallel()
	dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) {
		const handlers, jobs = 8, 24
		beside := func(ctx context.Context, c *Client, d *Delivery) error {
			if _, err := c.Enqueue(ctx, Job{Kind: "next", Queue: "next"}); err != nil {
				return err
			}
			_, err := c.EnqueueMany(ctx, []Job{{Kind: "next", Queue: "next of " + string(d.Payload)}, {Kind: "next", Queue: "next", Unique: string(d.Payload)}})
			return err
		}
		run := func(t *testing.T, near *dialect.DB, handler func(c *Client) Handler) {
			c, err := New(near, Options{Logger: quiet(), Blocks: 2})
			must(t, err)
			edit(t, c, impatient)
			w := worker(t, c, WorkerOptions{Concurrency: handlers})
			handle(t, w, "x", handler(c))
			stop := start(t, w)
			defer stop()
			var all []Job
			for i := range jobs {
				all = append(all, Job{Kind: "x", Payload: []byte{'1' + byte(i/9), '1' + byte(i%9)}})
			}
			other := client(t, db, Options{})
			enqueueMany(t, other, all)
			eventually(t, "all are done", func() bool {
				n, err := adminOf(other).Count(t.Context(), defaultQueue, 100)
				return err == nil && n.Ready+n.Delayed+n.Running == 0
			})
		}
		t.Run("a pool of database/sql", func(t *testing.T) {
			far := dbtest.Open(t, db.URL, dialect.Options{MaxConns: 6})
			run(t, far.DB, func(c *Client) Handler {
				return func(ctx context.Context, d *Delivery) error {
					tx, err := far.Pool().BeginTx(ctx, &sql.TxOptions{Isolation: far.Dialect.Isolation})
					if err != nil {
						return err
					}
					defer tx.Rollback() //nolint:errcheck // it was committed, or need not be
					if err := beside(ctx, c, d); err != nil {
						return err
					}
					if err := d.CompleteTx(ctx, tx); err != nil {
						return err
					}
					return tx.Commit()
				}
			})
		})
		if db.Engine != "postgres" {
			return
		}
		t.Run("pgxpool", func(t *testing.T) {
			config, err := pgxpool.ParseConfig(db.URL)
			must(t, err)
			config.MaxConns = 4
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			must(t, err)
			defer pool.Close()
			near, err := postgres.Wrap(t.Context(), pool, dialect.Options{})
			must(t, err)
			defer near.Close()
			run(t, near, func(c *Client) Handler {
				return func(ctx context.Context, d *Delivery) error {
					tx, err := pool.Begin(ctx)
					if err != nil {
						return err
					}
					defer tx.Rollback(ctx) //nolint:errcheck // it was committed, or need not be
					if err := beside(ctx, c, d); err != nil {
						return err
					}
					if err := d.CompleteTx(ctx, postgres.Tx(tx)); err != nil {
						return err
					}
					return tx.Commit(ctx)
				}
			})
		})
	}, (*testing.T).Parallel)
}

// Handlers that hold connections and wait for others of the pool are noticed: in the log, with the size that
// the pool should have, and by other processes. That ends when they go on. Handlers that only take long are
// not.
func TestStarvedHandlers(t *testing.T) {
	t.Parallel()
	dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) {
		var log bytes.Buffer
		far := dbtest.Open(t, db.URL, dialect.Options{MaxConns: 8})
		c := client(t, far, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		edit(t, c, impatient)
		w := worker(t, c, WorkerOptions{Concurrency: 6})
		w.starves = time.Second
		goOn, slow := make(chan struct{}), make(chan struct{})
		handle(t, w, "greedy", func(ctx context.Context, _ *Delivery) error {
			first, err := far.Pool().Conn(ctx)
			if err != nil {
				return err
			}
			defer first.Close()
			for !far.Full() { // else one of them might get a second
				select {
				case <-goOn:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Millisecond):
				}
			}
			wait, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() {
				select {
				case <-goOn:
					cancel()
				case <-wait.Done():
				}
			}()
			if second, err := far.Pool().Conn(wait); err == nil {
				return second.Close()
			}
			return nil
		})
		handle(t, w, "slow", func(context.Context, *Delivery) error { <-slow; return nil })
		stop := start(t, w)
		other := client(t, db, Options{})
		send := func(kind string) {
			for range 6 {
				enqueue(t, other, Job{Kind: kind})
			}
		}
		starved := func() int {
			n, err := adminOf(other).Starved(t.Context())
			must(t, err)
			return n[defaultQueue]
		}
		send("slow")
		eventually(t, "it was asked for a connection", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.starved.begun == 6 && w.starved.taken == 6 && since(w.starved.since) >= w.starves/4
		})
		eventually(t, "they only take long", func() bool { return starved() == 0 })
		close(slow)
		send("greedy")
		eventually(t, "others see that they starve", func() bool { return starved() == 1 })
		close(goOn)
		eventually(t, "and that they do not", func() bool { return starved() == 0 })
		empty(t, db)
		stop()
		for _, line := range []string{"no connection of the pool was free", "pool=8 pool_needed=12", "handlers get connections again"} {
			if !strings.Contains(log.String(), line) {
				t.Errorf("no line %q in %s", line, log.String())
			}
		}
	}, (*testing.T).Parallel)
}

// A pool of one connection, as SQLite may have, is noticed as well: the log tells.
func TestStarvedByItself(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		if db.Dialect.SkipLocked != "" {
			t.Skip("a worker refuses so small a pool there")
		}
		var log bytes.Buffer
		far := dbtest.Open(t, db.URL, dialect.Options{MaxConns: 1})
		c := client(t, far, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		w := worker(t, c, WorkerOptions{Concurrency: 1})
		w.starves = 100 * time.Millisecond
		tells := func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.starved.is
		}
		handle(t, w, "x", func(ctx context.Context, _ *Delivery) error {
			held, err := far.Pool().Conn(ctx)
			if err != nil {
				return err
			}
			defer held.Close()
			eventually(t, "it is noticed", tells)
			return nil
		})
		stop := start(t, w)
		enqueue(t, client(t, db, Options{}), Job{Kind: "x"})
		empty(t, db)
		stop()
		if !strings.Contains(log.String(), "no connection of the pool was free") {
			t.Errorf("the log says %s", log.String())
		}
	})
}
