// River is what docs/coming-from-river.md shows of dbcron: typed jobs, workers, insertion in a pgx
// transaction, unique and periodic jobs, cancellation. It runs for a moment on the PostgreSQL
// database that --url names, where it creates dbcron's tables.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/sqlschema"
)

type sortArgs struct {
	Strings []string `json:"strings"`
}

var sortKind = queue.Kind[sortArgs]{Name: "sort", Queue: "river"}

var errBusy = errors.New("busy")

func main() {
	url := flag.String("url", "postgres://localhost/app", "the database")
	flag.Parse()
	if err := run(context.Background(), *url); err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	db, err := postgres.Wrap(ctx, pool, dialect.Options{}) // the pool that the program has
	if err != nil {
		return err
	}
	defer db.Close()
	if err := sqlschema.Migrate(ctx, db); err != nil {
		return err
	}
	c, err := queue.New(db, queue.Options{})
	if err != nil {
		return err
	}
	if err := place(ctx, pool, c); err != nil {
		return err
	}
	if err := insert(ctx, c); err != nil {
		return err
	}
	return work(ctx, db, c)
}

// place inserts a job in a transaction: the job exists if and when that commits.
func place(ctx context.Context, pool *pgxpool.Pool, c *queue.Client) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, _, err := c.EnqueueTx(ctx, postgres.Tx(tx), sortKind.Job(sortArgs{[]string{"whale", "bear"}}))
		return err
	})
}

// insert inserts jobs with options, a unique one, and one that it cancels.
func insert(ctx context.Context, c *queue.Client) error {
	job := sortKind.Job(sortArgs{[]string{"tiger", "ant"}})
	job.Priority, job.MaxAttempts, job.Key = queue.Low, 3, "account-42"
	job.Unique, job.UniqueFor = "sort-account-42", time.Hour
	for range 2 {
		e, err := c.Enqueue(ctx, job)
		if err != nil {
			return err
		}
		fmt.Println("inserted:", !e.Existed)
	}
	later := sortKind.Job(sortArgs{})
	later.Delay = time.Hour
	e, err := c.Enqueue(ctx, later)
	if err != nil {
		return err
	}
	a, err := admin.New(c.DB(), admin.Options{})
	if err != nil {
		return err
	}
	return a.Cancel(ctx, "river", e.ID)
}

// handle registers a worker's handlers. Tests use it, too.
func handle(w *queue.Worker, sorted func(sortArgs)) error {
	policy := queue.RetryPolicy{MaxAttempts: 25, Timeout: time.Minute, Backoff: func(attempt int, err error) time.Duration {
		if errors.Is(err, errBusy) {
			return 30 * time.Second
		}
		return time.Duration(attempt*attempt*attempt*attempt) * time.Second
	}}
	return queue.HandleKindWith(w, sortKind, policy, func(ctx context.Context, args sortArgs, d *queue.Delivery) error {
		if len(args.Strings) == 0 {
			return queue.Bury(errors.New("there is nothing to sort"))
		}
		sorted(args)
		return nil
	})
}

func work(ctx context.Context, db *dialect.DB, c *queue.Client) error {
	often := sortKind.Job(sortArgs{[]string{"z", "a"}})
	often.Unique = "sort often" // while the last one waits or runs, the next due time enqueues nothing
	every := scheduler.PeriodicJob("sort often", "@every 1s", often)
	if err := scheduler.Put(ctx, db, every); err != nil {
		return err
	}
	s, err := scheduler.New(db, scheduler.Options{Kinds: []string{scheduler.Jobs}})
	if err != nil {
		return err
	}
	w, err := c.Worker(queue.WorkerOptions{Queues: []string{"river"}, Concurrency: 100})
	if err != nil {
		return err
	}
	events, err := c.Events(queue.EventOptions{Kinds: []string{"sort"}, Outcomes: []string{queue.EventFailed, queue.EventDead}})
	if err != nil {
		return err
	}
	defer events.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop() // a program would go on
	if err := handle(w, func(args sortArgs) {
		fmt.Println("sorted", args.Strings)
		if args.Strings[0] == "z" {
			stop()
		}
	}); err != nil {
		return err
	}
	var all sync.WaitGroup
	all.Go(func() { _ = s.Run(ctx) })
	defer all.Wait()
	return w.Run(ctx)
}
