// Topic publishes placed orders: each queue that has subscribed to the topic gets a copy of
// each publication, all of them or none, and the publisher can see how many are done.
//
//	topic --url postgres://user:password@host/database --orders 10
//
// It ends when its copies are done. Start as many as you like: they share the work, and any
// of them may be killed. Mail and warehouse would be programs of their own, with workers
// of their own queues; the publisher need not know them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/sqlschema"
)

const topic = "order-placed"

var placed = queue.Kind[order]{Name: "order"}

type order struct {
	ID int `json:"id"`
}

func main() {
	url := flag.String("url", os.Getenv("DBCRON_DATABASE_URL"), "the database")
	orders := flag.Int("orders", 10, "how many orders to place")
	flag.Parse()
	if err := run(context.Background(), *url, *orders); err != nil {
		fmt.Fprintln(os.Stderr, "topic:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, orders int) error {
	db, err := engines.Open(ctx, url, dialect.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	if err := sqlschema.Migrate(ctx, db); err != nil { // makes the queue's tables
		return err
	}
	c, err := queue.New(db, queue.Options{})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	worked := make(chan error, 2)
	for _, name := range []string{"mail", "warehouse"} {
		if err := c.Subscribe(ctx, topic, name); err != nil { // to do so again does nothing
			return err
		}
		w, err := newWorker(c, name)
		if err != nil {
			return err
		}
		go func() {
			err := w.Run(ctx)
			stop(err) // if it could not begin, nothing waits for it
			worked <- err
		}()
	}
	copies := 0
	for i := range orders {
		// To publish in the transaction that writes the order, use PublishTx.
		p, err := c.Publish(ctx, topic, placed.Job(order{i}))
		if err != nil {
			return err
		}
		if err := ended(ctx, c, p.ID); err != nil {
			return err
		}
		copies += len(p.Copies)
	}
	fmt.Printf("%d orders, and %d copies are done\n", orders, copies)
	stop(nil)
	if err := <-worked; err != nil {
		return err
	}
	return <-worked
}

// newWorker returns a worker of one subscriber.
func newWorker(c *queue.Client, name string) (*queue.Worker, error) {
	w, err := c.Worker(queue.WorkerOptions{Queues: []string{name}, Concurrency: 2})
	if err != nil {
		return nil, err
	}
	return w, queue.HandleKind(w, placed, func(_ context.Context, o order, d *queue.Delivery) error {
		fmt.Printf("%s: order %d\n", d.Queue, o.ID)
		return nil
	})
}

// ended waits until all copies of a publication are done.
func ended(ctx context.Context, c *queue.Client, id int64) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		g, err := c.Group(ctx, id)
		if err != nil || g.State == queue.GroupDone {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
