package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue"
)

func TestSmoke(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		c, err := queue.New(db.DB, queue.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w, err := c.Worker(queue.WorkerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		seen := map[int64]int{}
		all := make(chan struct{})
		if err := w.Handle("hello", func(ctx context.Context, d *queue.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			seen[d.ID]++
			if len(seen) == 1010 {
				close(all)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- w.Run(ctx) }()
		jobs := make([]queue.Job, 1000)
		for i := range jobs {
			jobs[i] = queue.Job{Kind: "hello", Payload: fmt.Appendf(nil, `{"n": %d}`, i)}
		}
		if _, err := c.EnqueueMany(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if _, err := c.Enqueue(t.Context(), queue.Job{
				Kind: "hello", Key: fmt.Sprint(i % 2),
				Delay: time.Duration(i%3) * 50 * time.Millisecond,
			}); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-all:
		case <-time.After(2 * time.Minute):
			t.Error("not all jobs were done")
		}
		cancel()
		if err := <-ran; err != nil {
			t.Fatal(err)
		}
		var left int
		db.Scan(t, `SELECT (SELECT COUNT(*) FROM {prefix}job WHERE id > 0) + (SELECT COUNT(*) FROM {prefix}job_delayed WHERE id > 0) + (SELECT COUNT(*) FROM {prefix}queue_block WHERE state <> 'FREE')`, nil, &left)
		for id, n := range seen {
			if n != 1 {
				t.Errorf("job %d was done %d times", id, n)
			}
		}
		if left != 0 || len(seen) != 1010 {
			t.Errorf("%d rows are left, %d jobs were done", left, len(seen))
		}
	})
}
