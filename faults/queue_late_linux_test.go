package faults

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue"
)

// TestLateCommits enqueues a job in a transaction of three seconds, in queues with other traffic, and a job
// that is due before the commit. Nobody tells the worker of the commit. Both begin within twice that time,
// and not when the whole block is read, which it is once a minute. A slow machine is given as long again.
//
// It runs only with -minutes: see "make faults".
func TestLateCommits(t *testing.T) {
	if *minutes == 0 {
		t.Skip("it takes a minute: make faults")
	}
	const took = 3 * time.Second
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		if db.Dialect.SkipLocked == "" {
			t.Skip("nobody else writes while a transaction is open")
		}
		c, err := queue.New(db.DB, queue.Options{Blocks: 1})
		if err != nil {
			t.Fatal(err)
		}
		w, err := c.Worker(queue.WorkerOptions{Queues: []string{"busy", "quiet", "due"}})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		begun := map[int64]instant.Instant{}
		if err := w.HandleOthers(func(_ context.Context, d *queue.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			begun[d.ID] = instant.Now()
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer stop()
		all.Go(func() { _ = w.Run(ctx) })
		enqueue := func(jobs ...queue.Job) {
			if _, err := c.EnqueueMany(ctx, jobs); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
		all.Go(func() {
			for ctx.Err() == nil {
				enqueue(queue.Job{Kind: "x", Queue: "busy"}, queue.Job{Kind: "x", Queue: "due", Delay: 500 * time.Millisecond})
				_ = wait(ctx, 50*time.Millisecond)
			}
		})
		enqueue(queue.Job{Kind: "x", Queue: "quiet"})
		_ = wait(ctx, 5*time.Second)
		tx, err := db.Pool().BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
		jobs := []queue.Job{{Kind: "late", Queue: "busy"}, {Kind: "late", Queue: "quiet"}, {Kind: "late", Queue: "due", Delay: time.Second}}
		late, _, err := c.EnqueueTx(ctx, tx, jobs...)
		if err != nil {
			t.Fatal(err)
		}
		_ = wait(ctx, took/2)
		enqueue(queue.Job{Kind: "x", Queue: "quiet"})
		_ = wait(ctx, took/2)
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		committed := instant.Now()
		for len(late) > 0 && instant.Now().Sub(committed) < 2*time.Minute {
			mu.Lock()
			if at, ok := begun[late[0].ID]; ok {
				line := fmt.Sprintf("the job in %s began %v after its commit", late[0].Queue, at.Sub(committed))
				if late = late[1:]; at.Sub(committed) > 4*took {
					t.Error(line)
				} else {
					t.Log(line)
				}
			}
			mu.Unlock()
			_ = wait(ctx, 20*time.Millisecond)
		}
		if len(late) > 0 {
			t.Errorf("%d jobs have not begun", len(late))
		}
	})
}
