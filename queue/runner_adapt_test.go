package queue

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A fast worker reads many jobs at once, divided among its blocks; one that is slower for long, few.
func TestBatchSize(t *testing.T) {
	r, at, begun := batchSize{adapts: true}, instant.Now(), 0
	goOn := func(d time.Duration, perSecond, blocks, want int) {
		t.Helper()
		for end := at.Add(d); at < end; {
			at = at.Add(adaptEvery)
			begun += int(float64(perSecond) * adaptEvery.Seconds())
			r.choose(at, begun, blocks)
		}
		if got := max(r.size, leastBatch); got != want {
			t.Errorf("after %v with %d jobs a second of %d blocks: %d at once, not %d", d, perSecond, blocks, got, want)
		}
	}
	goOn(time.Second, 160, 16, leastBatch)
	goOn(time.Second, 16_000, 16, leastBatch)
	goOn(time.Second, 64_000, 16, 400)
	goOn(time.Second, 200_000, 16, maxBatch)
	goOn(slowFor-time.Second, 16, 16, maxBatch) // a pause
	goOn(time.Second, 200_000, 16, maxBatch)
	goOn(slowFor+time.Second, 16, 16, leastBatch)
	goOn(time.Second, 16_000, 1, maxBatch)
	goOn(time.Second, 200_000, 100, maxBatch) // it was fast enough a moment ago
	goOn(slowFor+time.Second, 200_000, 100, 200)
}

// The row of a block says how many jobs its worker reads at once.
func TestBatchOfBlocks(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		w := worker(t, c, WorkerOptions{})
		w.reads.adapts = false
		handle(t, w, "x", func(context.Context, *Delivery) error { return nil })
		stop := start(t, w)
		defer stop()
		for _, size := range []int{300, 1000, leastBatch} {
			w.mu.Lock()
			w.reads.size = size
			w.mu.Unlock()
			eventually(t, "the rows say so", func() bool {
				for range 4 {
					enqueue(t, c, Job{Kind: "x"})
				}
				w.mu.Lock()
				blocks := slices.Collect(maps.Values(w.queues[0].blocks))
				reads := make([]int, len(blocks))
				for i, b := range blocks {
					reads[i] = b.AtOnce()
				}
				w.mu.Unlock()
				for i, b := range blocks {
					var says int
					db.Scan(t, `SELECT batch FROM {prefix}queue_block WHERE divided = :n`, sqlrun.Args{"n": b.divided}, &says)
					if says != size || reads[i] != size {
						return false
					}
				}
				return len(blocks) == 2
			})
		}
	})
}

// Settings that are given stay.
func TestBatchGiven(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		for _, opt := range []WorkerOptions{{Batch: 7}, {AtMostOnce: true}} {
			w := worker(t, client(t, db, Options{}), opt)
			at := instant.Now()
			w.mu.Lock()
			for range 10 {
				at = at.Add(time.Second)
				w.begun += 1_000_000
				w.adapt(at)
			}
			if w.reads.size != 0 {
				t.Errorf("%d jobs at once", w.reads.size)
			}
			w.mu.Unlock()
		}
	})
}
