// First is what README.md shows: a lock, a schedule, and a job that is enqueued in a transaction
// of the program's own. It runs for a moment, on an SQLite file unless --url names a database.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/sqlschema"
)

func main() {
	url := flag.String("url", "sqlite:first.db", "the database")
	flag.Parse()
	if err := run(context.Background(), *url); err != nil {
		fmt.Fprintln(os.Stderr, "first:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	db, err := engines.Open(ctx, url, dialect.Options{}) // for a pool that you have already: postgres.Wrap, mysql.Wrap
	if err != nil {
		return err
	}
	defer db.Close()
	if err := sqlschema.Migrate(ctx, db); err != nil { // as "dbcron migrate up"
		return err
	}
	if err := once(ctx, db); err != nil {
		return err
	}
	if err := onTime(ctx, db); err != nil {
		return err
	}
	return later(ctx, db)
}

func once(ctx context.Context, db *dialect.DB) error {
	locker, err := lock.New(db, lock.Options{TTL: 10 * time.Second})
	if err != nil {
		return err
	}
	return locker.Do(ctx, "report", func(ctx context.Context, lease *lock.Lease) error {
		return makeReport(ctx, lease.Fence()) // ctx ends before anybody else can have the lock
	})
}

func makeReport(_ context.Context, fence int64) error {
	fmt.Println("once: the report, fence", fence)
	return nil
}

func onTime(ctx context.Context, db *dialect.DB) error {
	err := scheduler.Add(ctx, db, scheduler.Schedule{
		Name: "clean-up", Spec: "@every 1s", Zone: "Europe/Berlin", Kind: "func", Command: "clean-up",
	})
	if err != nil && !errors.Is(err, scheduler.ErrExists) {
		return err
	}
	s, err := scheduler.New(db, scheduler.Options{Kinds: []string{scheduler.Functions}})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop() // a program would go on
	err = s.Handle("clean-up", func(ctx context.Context, run *scheduler.Running) error {
		defer stop()
		return cleanUp(ctx)
	})
	if err != nil {
		return err
	}
	return s.Run(ctx) // in each of your processes: one of them runs each due time
}

func cleanUp(context.Context) error {
	fmt.Println("on time: cleaned up")
	return nil
}

type order struct{ Number int }

var confirm = queue.Kind[order]{Name: "confirm", Queue: "mail"}

func later(ctx context.Context, db *dialect.DB) error {
	c, err := queue.New(db, queue.Options{})
	if err != nil {
		return err
	}
	if err := place(ctx, db.Pool(), c, order{1815}); err != nil {
		return err
	}
	return work(ctx, c)
}

// place stores an order, and enqueues its confirmation: both or none.
func place(ctx context.Context, pool *sql.DB, c *queue.Client, o order) error {
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()                              //nolint:errcheck // after a commit it does nothing
	_, _, err = c.EnqueueTx(ctx, tx, confirm.Job(o)) // beside your own statements
	if err != nil {
		return err
	}
	return tx.Commit()
}

func work(ctx context.Context, c *queue.Client) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w, err := c.Worker(queue.WorkerOptions{Queues: []string{"mail"}})
	if err != nil {
		return err
	}
	err = queue.HandleKind(w, confirm, func(ctx context.Context, o order, d *queue.Delivery) error {
		defer stop() // a program would go on
		fmt.Println("later: confirmed order", o.Number)
		return nil // an error: it is tried again, with backoff
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}
