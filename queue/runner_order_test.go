package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// One worker begins jobs in the order in which they were enqueued, over all of its blocks:
// the more urgent ones first.
func TestOldestFirst(t *testing.T) {
	for _, n := range []int{12, 2000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			memory(t, func(t *testing.T, db *dbtest.DB) {
				c := client(t, db, Options{Blocks: 16})
				jobs := make([]Job, n)
				for i := range jobs {
					jobs[i] = Job{Kind: "x", Priority: 1 + rand.IntN(Idle)} //nolint:gosec // any will do
				}
				var ids []int64
				if n < 100 {
					for _, j := range jobs {
						ids = append(ids, enqueue(t, c, j))
					}
				} else {
					ids = enqueueMany(t, c, jobs)
				}
				want := inTurn(jobs, ids)
				var got []int64
				w := worker(t, c, WorkerOptions{Concurrency: 1})
				w.patience = longWait
				done := make(chan bool)
				handle(t, w, "x", func(_ context.Context, d *Delivery) error {
					if got = append(got, d.ID); len(got) == n {
						close(done)
					}
					return nil
				})
				start(t, w)
				received(t, "all are done", done)
				if !slices.Equal(got, want) {
					t.Errorf("got  %v\nwant %v", got, want)
				}
				empty(t, db)
			})
		})
	}
}

// inTurn returns the ids of jobs by priority, and then in the order of enqueueing.
func inTurn(jobs []Job, ids []int64) (want []int64) {
	for p := Urgent; p <= Idle; p++ {
		for i := range jobs {
			if jobs[i].Priority == p {
				want = append(want, ids[i])
			}
		}
	}
	return want
}

// A block that cannot be read delays the others for a moment only, and one that was not read
// yet, or has more, until it was read.
func TestOlderUnread(t *testing.T) {
	w, q := bareWorker(WorkerOptions{}), &workQueue{set: &store.Queue{Settings: store.Settings{State: "active"}}, blocks: map[int]*tenure{}}
	w.patience = patience
	w.opt.Batch, w.queues, q.h = 100, []*workQueue{q}, &w.holder
	w.work.L, w.chores.L, w.lease.deadline = &w.mu, &w.mu, instant.Now().Add(longWait)
	for i := range 2 {
		b := newBlock(100)
		b.q, b.divided = q, i
		q.blocks[i] = b
	}
	other := q.blocks[1]
	for i := range 6 {
		q.blocks[0].Add(&ready(q.blocks[0], int64(10*i+10)).state)
	}
	w.offer(q.blocks[0], 0)
	for _, c := range []struct {
		name  string
		when  func()
		waits bool
	}{
		{"it was not read yet", func() { other.Reads.Unseen = true }, true},
		{"it cannot be read", func() { other.failures = 1 }, false},
		{"it has more, which may be older", func() {
			other.Reads.Unseen, other.failures, other.Reads.Full, other.Reads.ReadTo = false,
				0, true, block.Place{Priority: Normal, Order: 1}
		}, true},
		{"or is younger", func() { other.Reads.ReadTo = block.Place{Priority: Normal, Order: 1000} }, false},
		{"of a more urgent priority", func() { other.Reads.ReadTo = block.Place{Priority: Urgent, Order: 1000} }, true},
		{"it is to go", func() { other.Leaving = true }, false},
		{"it is read for long", func() { other.Leaving = false; q.waitsFrom = instant.Now().Add(-patience) }, false},
	} {
		c.when()
		q.recheck()
		if d := w.popReady(); (d == nil) != c.waits || q.waits != c.waits {
			t.Errorf("%s: %v begins, and the queue waits: %v", c.name, d, q.waits)
		}
	}
}

// A worker does the jobs of its queues by turns, however old those of one of them are.
func TestQueuesByTurns(t *testing.T) {
	w := bareWorker(WorkerOptions{})
	w.opt.Batch, w.lease.deadline = 100, instant.Now().Add(longWait)
	w.work.L, w.chores.L = &w.mu, &w.mu
	for i := range 2 {
		b := newBlock(100)
		b.q.h, b.q.name = &w.holder, fmt.Sprint(i)
		for n := range 3 {
			d := ready(b, int64(1000*i+n+1))
			d.Queue = b.q.name
			b.Add(&d.state)
		}
		w.offer(b, 0)
	}
	var got []string
	for d := w.popReady(); d != nil; d = w.popReady() {
		got = append(got, d.Queue)
	}
	if want := []string{"0", "1", "0", "1", "0", "1"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
