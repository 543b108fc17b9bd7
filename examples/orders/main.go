// Orders takes orders and confirms them later. One transaction writes an order and the job
// that will confirm it, so neither exists without the other. Another confirms the order and
// completes the job, so it is confirmed once.
//
//	orders --url postgres://user:password@host/database --orders 100
//
// It ends when all of its orders are confirmed. Start as many as you like: they share
// the work, and any of them may be killed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/sqlschema"
)

// A program's own statements can be written once for all engines, too.
var (
	table = dialect.SQL("orders.table", `
		CREATE TABLE IF NOT EXISTS example_order (id BIGINT NOT NULL PRIMARY KEY, customer VARCHAR(200) NOT NULL, confirmed INT NOT NULL)`)
	insert  = dialect.SQL("orders.insert", `INSERT INTO example_order (id, customer, confirmed) VALUES (:id, :customer, 0)`)
	confirm = dialect.SQL("orders.confirm", `UPDATE example_order SET confirmed = confirmed + 1 WHERE id = :id`)
	open    = dialect.SQL("orders.open", `SELECT COUNT(*) FROM example_order WHERE confirmed = 0`)
)

// confirmOrder is the job. The jobs of one customer are done in order.
var confirmOrder = queue.Kind[order]{Name: "confirm-order", Queue: "orders"}

type order struct {
	ID       int64  `json:"id"`
	Customer string `json:"customer"`
}

func main() {
	url := flag.String("url", os.Getenv("DBCRON_DATABASE_URL"), "the database")
	orders := flag.Int("orders", 100, "how many orders to take")
	flag.Parse()
	if err := run(context.Background(), *url, *orders); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, orders int) error {
	db, err := engines.Open(ctx, url, dialect.Options{}) // for a pool that you have already: sqlrun.Wrap
	if err != nil {
		return err
	}
	defer db.Close()
	if err := sqlschema.Migrate(ctx, db); err != nil { // makes the queue's tables
		return err
	}
	locker, err := lock.New(db, lock.Options{})
	if err != nil {
		return err
	}
	// Under a lock, because concurrent CREATE TABLE statements can fail.
	err = locker.Do(ctx, "orders table", func(ctx context.Context, _ *lock.Lease) error {
		_, err := db.Exec(ctx, table, nil)
		return err
	})
	if err != nil {
		return err
	}
	c, err := queue.New(db, queue.Options{})
	if err != nil {
		return err
	}
	w, err := c.Worker(queue.WorkerOptions{Queues: []string{"orders"}, Concurrency: 4})
	if err != nil {
		return err
	}
	err = queue.HandleKind(w, confirmOrder, func(ctx context.Context, o order, d *queue.Delivery) error {
		return confirmOne(ctx, db, o, d)
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	worked := make(chan error, 1)
	go func() {
		err := w.Run(ctx)
		stop(err) // if it could not begin, nothing waits for it
		worked <- err
	}()
	for i := range orders {
		// An id that no other process uses; a shop would have its own scheme.
		id := int64(os.Getpid())*1_000_000 + int64(i)
		if err := take(ctx, db, c, order{id, fmt.Sprintf("customer-%d", i%7)}); err != nil {
			return err
		}
	}
	if err := confirmed(ctx, db); err != nil {
		return err
	}
	stop(nil)
	fmt.Println("all orders are confirmed")
	return <-worked
}

// take writes an order and the job that will confirm it.
func take(ctx context.Context, db *dialect.DB, c *queue.Client, o order) error {
	job := confirmOrder.Job(o)
	job.Key = o.Customer
	var wake func()
	// Tx retries the whole function after a deadlock. With a *sql.Tx or pgx.Tx of your own it
	// is EnqueueTx(ctx, tx, job), or EnqueueTx(ctx, postgres.Tx(tx), job).
	err := db.Tx(ctx, func(ctx context.Context, tx *dialect.Session) (err error) {
		if _, err := tx.Exec(ctx, insert, dialect.Args{"id": o.ID, "customer": o.Customer}); err != nil {
			return err
		}
		_, wake, err = c.EnqueueTx(ctx, tx.Execer(), job)
		return err
	})
	if err == nil {
		wake() // workers notice at once
	}
	return err
}

// confirmOne confirms an order and completes its job.
func confirmOne(ctx context.Context, db *dialect.DB, o order, d *queue.Delivery) error {
	return db.Tx(ctx, func(ctx context.Context, tx *dialect.Session) error {
		if _, err := tx.Exec(ctx, confirm, dialect.Args{"id": o.ID}); err != nil {
			return err
		}
		return d.CompleteTx(ctx, tx.Execer())
	})
}

// confirmed waits until no order is open.
func confirmed(ctx context.Context, db *dialect.DB) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var n int64
		if err := db.Get(ctx, open, nil, &n); err != nil || n == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
