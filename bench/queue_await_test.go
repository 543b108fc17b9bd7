package bench

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// TestQueueAwait prints the time from the call that enqueues a job which takes no time to its result, one job after the
// other: with the worker in the same process, and in another.
func TestQueueAwait(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		for _, same := range []bool{true, false} {
			c, as := client(t, b), "another process"
			of := client(t, b)
			if same {
				of, as = c, "the same process"
			}
			a, err := admin.New(c.DB(), admin.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.Edit(t.Context(), "default", func(q *admin.Queue) { q.KeepDone = time.Hour }); err != nil {
				t.Fatal(err)
			}
			w, err := of.Worker(queue.WorkerOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Handle("noop", func(_ context.Context, d *queue.Delivery) error { return d.SetResult(d.ID) }); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- w.Run(ctx) }()
			var all []time.Duration
			for i := range 250 {
				began := time.Now()
				e, err := c.Enqueue(t.Context(), job(i))
				if err != nil {
					t.Fatal(err)
				}
				r, err := c.Await(t.Context(), e.Queue, e.ID)
				if err != nil || r.State != queue.ResultDone {
					t.Fatalf("%+v, %v", r, err)
				}
				if i >= 50 { // warm
					all = append(all, time.Since(began))
				}
			}
			slices.Sort(all)
			t.Logf("%-8s a worker in %-16s p50 %8v, p99 %8v of %d", b.Dialect.Name, as, all[len(all)/2], all[len(all)*99/100], len(all))
			stop()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		}
	})
}
