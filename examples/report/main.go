// Report counts the words of texts in parallel, and adds up the counts when all are known: a
// group of jobs, whose callback reads their results. No handler needs a lock or a table of
// its own.
//
//	report --url postgres://user:password@host/database README.md docs/*.md
//
// It ends when its report is printed. Start as many as you like: they share the work,
// and any of them may print the report of another.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/sqlschema"
)

var (
	countWords = queue.Kind[string]{Name: "count-words", Queue: "report"}
	addUp      = queue.Kind[struct{}]{Name: "add-up", Queue: "report"}
)

func main() {
	url := flag.String("url", os.Getenv("DBCRON_DATABASE_URL"), "the database")
	flag.Parse()
	if err := run(context.Background(), *url, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, files []string) error {
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
	id, err := enqueue(ctx, c, files)
	if err != nil {
		return err
	}
	w, err := newWorker(c)
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
	if err := reported(ctx, c, id); err != nil {
		return err
	}
	stop(nil)
	return <-worked
}

// enqueue creates a group with a job for each file.
func enqueue(ctx context.Context, c *queue.Client, files []string) (int64, error) {
	var jobs []queue.Job
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return 0, err
		}
		jobs = append(jobs, countWords.Job(string(text)))
	}
	callback := addUp.Job(struct{}{})
	id, _, err := c.EnqueueGroup(ctx, queue.Group{Callback: &callback}, jobs...)
	return id, err
}

func newWorker(c *queue.Client) (*queue.Worker, error) {
	w, err := c.Worker(queue.WorkerOptions{Queues: []string{"report"}, Concurrency: 4})
	if err != nil {
		return nil, err
	}
	err = queue.HandleKind(w, countWords, func(_ context.Context, text string, d *queue.Delivery) error {
		return d.SetResult(len(bytes.Fields([]byte(text))))
	})
	if err != nil {
		return nil, err
	}
	return w, queue.HandleKind(w, addUp, func(ctx context.Context, _ struct{}, d *queue.Delivery) error {
		sum, texts := 0, 0
		for r, err := range c.Results(ctx, d.Callback) {
			if err != nil {
				return err
			}
			if r.Result == nil {
				continue // it is dead: r.Error says why
			}
			var n int
			if err := json.Unmarshal(r.Result, &n); err != nil {
				return err
			}
			sum, texts = sum+n, texts+1
		}
		fmt.Printf("group %d: %d words in %d texts\n", d.Callback, sum, texts)
		return nil
	})
}

// reported waits until a group has ended and its report is printed.
func reported(ctx context.Context, c *queue.Client, id int64) error {
	a, err := admin.New(c.DB(), admin.Options{})
	if err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		g, err := c.Group(ctx, id)
		if err != nil {
			return err
		}
		if g.State == queue.GroupDone {
			left, err := a.Count(ctx, "report", 1)
			if err != nil || left.Ready+left.Delayed+left.Running == 0 {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
