package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// tenants is package queue as a peer whose jobs have tenants, in a queue that is fair or not.
type tenants struct {
	*ours
	n    int // how many
	fair bool
}

func (o *tenants) set(t *testing.T) {
	t.Helper()
	if _, err := operator(t, o.bed).Edit(t.Context(), "default", func(q *admin.Queue) { q.Fair = o.fair }); err != nil {
		t.Fatal(err)
	}
}

// operator returns an operator's client.
func operator(t *testing.T, b *bed) *admin.Client {
	t.Helper()
	a, err := admin.New(open(t, b.URL, 2), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (o *tenants) many(ctx context.Context, first, n int) error {
	batch := make([]queue.Job, n)
	for i := range batch {
		if batch[i] = job(first + i); o.n > 0 {
			batch[i].Tenant = fmt.Sprint("tenant-", (first+i)%o.n)
		}
	}
	_, err := o.c.EnqueueMany(ctx, batch)
	return err
}

// TestQueueFairDrain prints what it costs to do the jobs of a fair queue: of one tenant, and of ten thousand.
func TestQueueFairDrain(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		ways := []*tenants{
			{newOurs(t, b, "not fair, no tenants", queue.WorkerOptions{}), 0, false},
			{newOurs(t, b, "not fair, 10000 tenants", queue.WorkerOptions{}), 10_000, false},
			{newOurs(t, b, "fair, 1 tenant", queue.WorkerOptions{}), 1, true},
			{newOurs(t, b, "fair, 10000 tenants", queue.WorkerOptions{}), 10_000, true},
		}
		figures := make([]figure, len(ways))
		const rounds = 3
		for round := range rounds {
			for i := range ways {
				if round%2 == 1 {
					i = len(ways) - 1 - i
				}
				ways[i].set(t)
				v := drain(t, ways[i], *jobs)
				t.Logf("%s: %.0f", ways[i], v)
				figures[i] = figure{ways[i].String(), figures[i].value + v/rounds}
			}
		}
		report(t, b, fmt.Sprintf("drain of %d", *jobs), figures)
	})
}

// TestQueueFlood prints how long the jobs of small tenants wait that come while one tenant has a backlog, in a queue that is
// fair and in one that is not. A job takes two milliseconds, and there are 32 at a time.
func TestQueueFlood(t *testing.T) {
	const small, slots, takes = 100, 32, 2 * time.Millisecond
	queues(t, func(t *testing.T, b *bed) {
		for _, fair := range []bool{false, true} {
			o := &tenants{newOurs(t, b, "flood", queue.WorkerOptions{Concurrency: slots}), 1, fair}
			o.set(t)
			load(t, o, *jobs)
			var mu sync.Mutex
			since, waits := map[int64]time.Time{}, []time.Duration{}
			o.work(t, func(_ context.Context, id int64) {
				mu.Lock()
				if at, is := since[id]; is {
					waits = append(waits, time.Since(at))
				}
				mu.Unlock()
				time.Sleep(takes)
			})
			time.Sleep(time.Second)
			for i := range small {
				at := time.Now()
				mu.Lock()
				e, err := o.c.Enqueue(t.Context(), queue.Job{Kind: "noop", Payload: payload(i), Tenant: fmt.Sprint("small-", i)})
				since[e.ID] = at
				mu.Unlock()
				if err != nil {
					t.Fatal(err)
				}
			}
			for from := time.Now(); ; time.Sleep(10 * time.Millisecond) {
				mu.Lock()
				n := len(waits)
				mu.Unlock()
				if n == small || time.Since(from) > 5*time.Minute {
					break
				}
			}
			mu.Lock()
			slices.Sort(waits)
			t.Logf("%-8s fair=%-5t a flood of %d: %d of %d small tenants' jobs waited: median %v, longest %v",
				b.Dialect.Name, fair, *jobs, len(waits), small, waits[len(waits)/2].Round(time.Millisecond), waits[len(waits)-1].Round(time.Millisecond))
			mu.Unlock()
			o.wipe(t)
		}
	})
}
