// Clicks counts the clicks on pages, many at a time: a batch handler gets up to 100 jobs, adds
// them up, and writes each page once. One transaction writes the counts and completes all jobs
// of the batch, so each click counts once.
//
//	clicks --url postgres://user:password@host/database --clicks 1000
//
// It ends when all of its clicks are counted. Start as many as you like: they share the
// work, and any of them may be killed.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/sqlschema"
)

var (
	table = dialect.SQL("clicks.table", `
		CREATE TABLE IF NOT EXISTS example_page (name VARCHAR(100) NOT NULL PRIMARY KEY, clicks BIGINT NOT NULL)`)
	page   = dialect.SQL("clicks.page", `INSERT INTO example_page (name, clicks) VALUES (:name, 0)`)
	add    = dialect.SQL("clicks.add", `UPDATE example_page SET clicks = clicks + :clicks WHERE name = :name`)
	counts = dialect.SQL("clicks.counts", `SELECT COALESCE(SUM(clicks), 0) FROM example_page WHERE name IN (:first, :second, :third)`)
)

var clicked = queue.Kind[click]{Name: "clicked", Queue: "clicks"}

type click struct {
	Page string `json:"page"`
}

func main() {
	url := flag.String("url", os.Getenv("DBCRON_DATABASE_URL"), "the database")
	clicks := flag.Int("clicks", 1000, "how many clicks to count")
	flag.Parse()
	if err := run(context.Background(), *url, *clicks); err != nil {
		fmt.Fprintln(os.Stderr, "clicks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, clicks int) error {
	db, err := engines.Open(ctx, url, dialect.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	if err := makeTables(ctx, db); err != nil {
		return err
	}
	c, err := queue.New(db, queue.Options{})
	if err != nil {
		return err
	}
	w, err := c.Worker(queue.WorkerOptions{Queues: []string{"clicks"}, Concurrency: 2})
	if err != nil {
		return err
	}
	// A batch that is not full waits briefly for more jobs.
	err = w.HandleBatch(clicked.Name, queue.BatchOptions{Max: 100, Wait: 20 * time.Millisecond},
		func(ctx context.Context, batch []*queue.Delivery) error {
			return count(ctx, db, batch)
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
	pages := make([]string, 3) // of this process
	for i := range pages {
		pages[i] = fmt.Sprintf("page %d of %d", i+1, os.Getpid())
		if _, err := db.Exec(ctx, page, dialect.Args{"name": pages[i]}); err != nil {
			return err
		}
	}
	jobs := make([]queue.Job, clicks)
	for i := range jobs {
		jobs[i] = clicked.Job(click{pages[i%3]})
	}
	if _, err := c.EnqueueMany(ctx, jobs); err != nil {
		return err
	}
	if err := counted(ctx, db, pages, clicks); err != nil {
		return err
	}
	stop(nil)
	fmt.Println("all clicks are counted")
	return <-worked
}

func makeTables(ctx context.Context, db *dialect.DB) error {
	if err := sqlschema.Migrate(ctx, db); err != nil { // makes the queue's tables
		return err
	}
	locker, err := lock.New(db, lock.Options{})
	if err != nil {
		return err
	}
	// Under a lock, because concurrent CREATE TABLE statements can fail.
	return locker.Do(ctx, "clicks table", func(ctx context.Context, _ *lock.Lease) error {
		_, err := db.Exec(ctx, table, nil)
		return err
	})
}

// count counts a batch and returns the outcome of each of its jobs.
func count(ctx context.Context, db *dialect.DB, batch []*queue.Delivery) error {
	results, sums := make(queue.Results, len(batch)), map[string]int{}
	for i, d := range batch {
		var c click
		if results[i] = d.Decode(&c); results[i] == nil { // else it becomes a dead letter, and the others are counted
			sums[c.Page]++
		}
	}
	err := db.Tx(ctx, func(ctx context.Context, tx *dialect.Session) error {
		for _, name := range slices.Sorted(maps.Keys(sums)) { // in one order, so that nobody waits in a circle
			if _, err := tx.Exec(ctx, add, dialect.Args{"name": name, "clicks": sums[name]}); err != nil {
				return err
			}
		}
		for i, d := range batch {
			if results[i] != nil {
				continue
			}
			if err := d.CompleteTx(ctx, tx.Execer()); err != nil { // one that is lost takes all back
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err // of all
	}
	if slices.ContainsFunc(results, func(err error) bool { return err != nil }) {
		return results
	}
	return nil
}

// counted waits until the given number of clicks on some pages is counted.
func counted(ctx context.Context, db *dialect.DB, pages []string, clicks int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var n int
		err := db.Get(ctx, counts, dialect.Args{"first": pages[0], "second": pages[1], "third": pages[2]}, &n)
		if err != nil || n >= clicks {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
