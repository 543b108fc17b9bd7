package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/queue"
)

// settingsOf are fixed settings of a worker, and its own choice.
var settingsOf = []queue.WorkerOptions{
	{Batch: 100, Connections: 2},
	{Batch: 1000, Connections: 2},
	{Batch: 1000, Connections: 4},
	{},
}

func settingName(o queue.WorkerOptions) string {
	if o.Batch == 0 {
		return "as it comes"
	}
	return fmt.Sprintf("batches of %d, %d connections", o.Batch, o.Connections)
}

// TestQueueSettings prints how many jobs a second one worker does with fixed settings and with the
// defaults, for handlers that take no time, 1 ms and 100 ms. It measures all settings in turns.
func TestQueueSettings(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		for _, takes := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond} {
			best, figures := 0.0, make([][]float64, len(settingsOf))
			for range 3 {
				for i, opt := range settingsOf {
					figures[i] = append(figures[i], paced(t, newOurs(t, b, settingName(opt), opt), takes))
				}
			}
			for i := range figures {
				slices.Sort(figures[i])
				if opt := settingsOf[i]; opt.Batch != 0 {
					best = max(best, figures[i][1])
				}
			}
			for i, opt := range settingsOf {
				t.Logf("%-8s handlers of %5v, %-30s %8.0f jobs/s (%.0f to %.0f); %.2f of the best fixed ones", b.Dialect.Name, takes,
					settingName(opt), figures[i][1], figures[i][0], figures[i][2], figures[i][1]/best)
			}
		}
	})
}

// paced returns how many jobs a second a worker does when each handler takes the given time.
func paced(t *testing.T, p *ours, takes time.Duration) float64 {
	t.Helper()
	n := *jobs
	if takes > 0 {
		n = min(n, int(16*time.Second/takes)) // about a second with 16 places
	}
	load(t, p, n)
	seen := newStarts(n)
	stop := p.work(t, func(ctx context.Context, id int64) {
		seen.note(ctx, id)
		if takes > 0 {
			time.Sleep(takes)
		}
	})
	finish(t, p, seen, n)
	took := time.Since(seen.at[0])
	stop()
	seen.check(t, p, n)
	p.wipe(t)
	return perSecond(int64(n), took)
}

// TestQueueSecond prints what a second worker gets of a backlog that a first one works on: the time
// from its start to its first job, and its share of the jobs in the two seconds after that.
func TestQueueSecond(t *testing.T) {
	queues(t, func(t *testing.T, b *bed) {
		for _, takes := range []time.Duration{time.Millisecond, 100 * time.Millisecond} {
			for _, opt := range []queue.WorkerOptions{settingsOf[0], settingsOf[2], {}} {
				const rounds = 3
				var first [rounds]time.Duration
				var shares [rounds]float64
				heap := uint64(0)
				for i := range rounds {
					var h uint64
					first[i], shares[i], h = second(t, newOurs(t, b, settingName(opt), opt), takes)
					heap = max(heap, h)
				}
				slices.Sort(first[:])
				slices.Sort(shares[:])
				t.Logf("%-8s handlers of %5v, %-30s the second's first job after %v (at most %v), its share %.2f (at least %.2f), heap %d MB",
					b.Dialect.Name, takes, settingName(opt), first[rounds/2].Round(time.Millisecond), first[rounds-1].Round(time.Millisecond),
					shares[rounds/2], shares[0], heap>>20)
			}
		}
	})
}

func second(t *testing.T, p *ours, takes time.Duration) (first time.Duration, share float64, heap uint64) {
	t.Helper()
	load(t, p, int(8*time.Second/takes*32))
	var counts [2]atomic.Int64
	var began atomic.Int64
	do := func(i int) func(context.Context, int64) {
		return func(context.Context, int64) {
			if counts[i].Add(1) == 1 && i == 1 {
				began.Store(time.Now().UnixNano())
			}
			time.Sleep(takes)
		}
	}
	stop := p.work(t, do(0))
	pause(t, time.Second)
	at := time.Now()
	stopSecond := p.work(t, do(1))
	for counts[1].Load() == 0 {
		pause(t, time.Millisecond)
		if time.Since(at) > stalled {
			t.Fatal("the second worker has no job")
		}
	}
	first = time.Unix(0, began.Load()).Sub(at)
	before := [2]int64{counts[0].Load(), counts[1].Load()}
	pause(t, 2*time.Second)
	one, two := counts[0].Load()-before[0], counts[1].Load()-before[1]
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	stop()
	stopSecond()
	p.wipe(t)
	return first, float64(two) / float64(one+two), m.HeapInuse
}
