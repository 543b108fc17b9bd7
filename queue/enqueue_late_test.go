package queue

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A job that is committed long after its id was drawn, and after others were read, is done
// before one of its key that is enqueued after it.
func TestOrderOfStalledCommits(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		quick := client(t, db, Options{Blocks: 1})
		enqueue(t, quick, Job{Kind: "x", Key: "other", Payload: []byte("0")})
		var slow atomic.Bool
		stands, goes := make(chan struct{}), make(chan struct{})
		c := client(t, db.Broken(t, &dbtest.Fault{Random: func() (bool, bool) {
			if slow.CompareAndSwap(true, false) {
				close(stands)
				<-goes
			}
			return false, false
		}}), Options{})
		enqueue(t, c, Job{Kind: "x", Key: "other", Payload: []byte("1")}) // all that has to be known is
		agree(t, db, quick, c)
		w := worker(t, quick, WorkerOptions{Concurrency: 1})
		var r record
		handle(t, w, "x", func(_ context.Context, d *Delivery) error { r.add("%s", d.Payload); return nil })
		start(t, w)
		r.wants(t, "0", "1")
		slow.Store(true)
		errs := make(chan error, 1)
		go func() {
			_, err := c.Enqueue(t.Context(), Job{Kind: "x", Key: "k", Payload: []byte("2")})
			errs <- err
		}()
		received(t, "the statement stands", stands)
		began := instant.Now()
		enqueue(t, quick, Job{Kind: "x", Key: "other", Payload: []byte("3")})
		r.wants(t, "0", "1", "3")
		eventually(t, "the window is over, and the block is quiet", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			b := w.queues[0].blocks[0]
			return since(began) > Window+Window/2 && b.Reads.Level()
		})
		close(goes)
		must(t, received(t, "it is committed", errs))
		_, err := c.Enqueue(t.Context(), Job{Kind: "x", Key: "k", Payload: []byte("4")})
		must(t, err)
		r.wants(t, "0", "1", "3", "2", "4")
		c.late.mu.Lock()
		defer c.late.mu.Unlock()
		if len(c.late.blocks) != 0 {
			t.Errorf("still late: %v", c.late.blocks)
		}
	})
}

// A job that says that one before it may be late is done, however many jobs before it in its
// block were put back.
func TestFollowerBehindABacklog(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		w, b := idleWorker(t, db)
		w.terms.Batch = 1
		w.mu.Lock()
		b.Hold("k", 1) // as if one of the key waited for its retry
		w.mu.Unlock()
		enqueueMany(t, w.c, slices.Repeat([]Job{{Kind: "x", Key: "k"}}, 150)) // more than the 100 that are kept
		elapse(w, 2*Window)
		flushDry(t, w, b)
		w.c.late.mark([]jobRow{{Job: &Job{Key: "other"}, queue: b.q.id, divided: b.divided}})
		if id := enqueue(t, w.c, Job{Kind: "x", Key: "other", Payload: []byte("1")}); id&store.Follower != store.Follower {
			t.Fatalf("its id is %x", id)
		}
		w.ring(b.q.id, b.divided)
		for turns := 0; toServe(w); turns++ {
			if turns > 2000 {
				t.Fatal("the block is read again and again")
			}
			flushOnce(t, w, b, func() {})
		}
		if got := begun(t, w, b); got != "1" {
			t.Errorf("%s begins", got)
		}
	})
}
