package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue"
)

func init() {
	roles["queue worker"] = func(ctx context.Context, db *dialect.DB) error {
		c, err := queue.New(db, queue.Options{})
		if err != nil {
			return err
		}
		w, err := c.Worker(queue.WorkerOptions{})
		if err != nil {
			return err
		}
		if err := w.HandleOthers(func(_ context.Context, d *queue.Delivery) error {
			say(fmt.Sprint("job-", d.ID))
			return nil
		}); err != nil {
			return err
		}
		return w.Run(ctx)
	}
}

const recoveryRate = 500 // jobs a second

// A waited has the times at which a job was sent and began.
type waited struct {
	sent, begun instant.Instant
}

// TestQueueRecovery prints how long jobs wait after SIGKILL of one of two workers with default
// options: the longest wait, and how late a job could be enqueued that still waited for longer than
// a second.
func TestQueueRecovery(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		c := client(t, b)
		var mu sync.Mutex
		sent, begun := map[string]instant.Instant{}, map[string]instant.Instant{}
		var readers sync.WaitGroup
		workers := []*child{start(t, "queue worker", b.URL), start(t, "queue worker", b.URL)}
		for _, w := range workers {
			readers.Go(func() {
				for w.lines.Scan() {
					var job string
					var at instant.Instant
					if _, err := fmt.Sscan(w.lines.Text(), &job, &at); err != nil {
						t.Error(err)
					}
					mu.Lock()
					if begun[job] == 0 {
						begun[job] = at
					}
					mu.Unlock()
				}
			})
		}
		var producers sync.WaitGroup
		var killed instant.Instant
		at := time.Now()
		for n := range 35 * recoveryRate {
			at = at.Add(time.Second / recoveryRate)
			pause(t, max(0, time.Until(at)))
			if n == 10*recoveryRate {
				killed = instant.Now()
				_ = workers[0].cmd.Process.Kill()
			}
			producers.Go(func() {
				before := instant.Now()
				e, err := c.Enqueue(t.Context(), job(n))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				sent[fmt.Sprint("job-", e.ID)] = before
			})
		}
		producers.Wait()
		for empty := false; !empty; pause(t, 10*time.Millisecond) {
			var err error
			if empty, err = (&ours{bed: b}).empty(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		workers[1].kill()
		workers[0].kill()
		readers.Wait()
		var all []waited
		for job, at := range sent {
			if begun[job] == 0 {
				t.Errorf("%s did not begin", job)
			}
			if at > killed.Add(-time.Second) {
				all = append(all, waited{at, begun[job]})
			}
		}
		slices.SortFunc(all, func(a, b waited) int { return cmp.Compare(a.begun.Sub(a.sent), b.begun.Sub(b.sent)) })
		last, slow := killed, 0
		for _, j := range all {
			if j.begun.Sub(j.sent) > time.Second {
				last, slow = max(last, j.sent), slow+1
			}
		}
		n := len(all)
		t.Logf("%-8s after the kill: p50 %v, p99 %v, most %v of %d jobs; %d waited for longer than 1s, the last one enqueued %v after the kill",
			b.Dialect.Name, all[n/2].begun.Sub(all[n/2].sent), all[n*99/100].begun.Sub(all[n*99/100].sent),
			all[n-1].begun.Sub(all[n-1].sent), n, slow, last.Sub(killed))
	})
}
