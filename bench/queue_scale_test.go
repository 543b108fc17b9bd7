package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/queue"
)

// share lets goroutines call f for each number below n.
func share(t *testing.T, n, workers int, f func(ctx context.Context, n int) error) {
	t.Helper()
	var next atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				if err := f(t.Context(), i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// settled is the time after which workers should have equal shares.
const settled = 2 * time.Second

// TestQueueScale prints how many jobs a second some workers do, each with its own client and pool,
// and how evenly they share the blocks and the jobs after two seconds. In the first part jobs do
// nothing. In the second every other one takes two seconds, so that the workers' places are full
// most of the time.
func TestQueueScale(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		alone := 0.0
		for _, workers := range []int{1, 2, 4} {
			rate, shares := scale(t, b, workers, *jobs, queue.WorkerOptions{}, nothing)
			if workers == 1 {
				alone = rate
			}
			t.Logf("%-8s %d workers: %8.0f jobs/s, %.2f of one's; %s", b.Dialect.Name, workers, rate, rate/alone, shares)
		}
		const places = 50 // per worker
		for _, workers := range []int{1, 2, 4} {
			n := max(1, int((2*settled+*span).Seconds())) * places * workers
			rate, shares := scale(t, b, workers, n, queue.WorkerOptions{Concurrency: places}, slowly())
			most := float64(places * workers)
			t.Logf("%-8s %d workers, half of %d jobs take 2 s: %8.1f jobs/s, ratio to the %.0f that their places allow %.2f; %s",
				b.Dialect.Name, workers, n, rate, most, rate/most, shares)
		}
	})
}

func nothing(context.Context) {}

// slowly takes two seconds every other time.
func slowly() func(ctx context.Context) {
	var n atomic.Int64
	return func(ctx context.Context) {
		if n.Add(1)%2 == 0 {
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Second):
			}
		}
	}
}

// scale lets workers that start at once do n jobs. The rate counts from the first start to the last
// end.
func scale(t *testing.T, b *bed, workers, n int, opt queue.WorkerOptions, do func(ctx context.Context)) (rate float64, shares string) {
	t.Helper()
	p := newOurs(t, b, "dbcron", opt)
	load(t, p, n)
	all := newStarts(n)
	each := make([]atomic.Int64, workers)
	stops := make([]func(), workers)
	for i := range workers {
		stops[i] = p.work(t, func(ctx context.Context, id int64) {
			all.note(ctx, id)
			each[i].Add(1)
			do(ctx)
		})
	}
	counts := func() []int64 {
		list := make([]int64, workers)
		for i := range each {
			list[i] = each[i].Load()
		}
		return list
	}
	for over := time.Now().Add(settled); time.Now().Before(over) && all.count.Load() < int64(n); {
		pause(t, 5*time.Millisecond)
	}
	early := counts()
	leased := p.leased(t)
	finish(t, p, all, n)
	took := time.Since(all.at[0])
	late := counts()
	for i := range late {
		late[i] -= early[i]
	}
	for _, stop := range stops {
		stop()
	}
	all.check(t, p, n)
	p.wipe(t)
	return perSecond(int64(n), took), fmt.Sprintf("blocks %v; jobs in the first %v %v, then %v (least/most %s)",
		leased, settled, early, late, evenly(late))
}

// leased returns the number of blocks of each worker that has any.
func (o *ours) leased(t *testing.T) []string {
	t.Helper()
	return o.List(t, `SELECT COUNT(*) FROM {prefix}queue_block WHERE state = 'LEASED' GROUP BY lock_by ORDER BY 1`, nil)
}

func evenly(counts []int64) string {
	if slices.Max(counts) == 0 {
		return "all were done before"
	}
	return fmt.Sprintf("%.2f", float64(slices.Min(counts))/float64(slices.Max(counts)))
}
