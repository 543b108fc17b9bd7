package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

// A process that is stopped after it has taken jobs out of their blocks, and goes on when its lease has ended,
// begins none of them: they begin when the lease turns out to last, and are lost otherwise. A job whose context
// has ended does not begin either. Jobs that are removed before they begin are nobody else's, and begin.
func TestNoJobBeginsWithoutTheLease(t *testing.T) {
	for _, c := range []struct {
		name       string
		batch      int // 0: one job
		atMostOnce bool
		then       func(w *runner, unit []*Delivery) // after the stop
		begin      int
	}{
		{"the lease lasts", 0, false, func(w *runner, _ []*Delivery) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lease.lasts(instant.Now().Add(time.Hour))
			w.lease.resumed()
		}, 1},
		{"it is lost", 0, false, func(w *runner, _ []*Delivery) { w.lease.lost("test") }, 0},
		{"a batch is lost", 3, false, func(w *runner, _ []*Delivery) { w.lease.lost("test") }, 0},
		{"a job of a batch was cancelled", 3, false, func(w *runner, unit []*Delivery) {
			w.mu.Lock()
			defer w.mu.Unlock()
			unit[1].ctx.end(errCancelled)
			w.lease.lasts(instant.Now().Add(time.Hour))
			w.lease.resumed()
		}, 2},
		{"removed before they begin", 0, true, nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBlock(100)
			w := runnerOf(b)
			w.log, w.base = quiet(), t.Context()
			b.q.blocks = map[int]*tenure{0: b}
			w.tally.counts = map[countKey]*count{}
			w.queues, w.lease.node = []*workQueue{b.q}, "me"
			w.terms.AtMostOnce, w.opt.AtMostOnce = c.atMostOnce, c.atMostOnce
			begun, calls := 0, make(chan int, 1)
			handler := &kindHandler{one: func(context.Context, *Delivery) error { begun++; return nil }}
			if c.batch > 0 {
				handler = &kindHandler{batch: BatchOptions{Max: c.batch}, many: func(_ context.Context, all []*Delivery) error {
					begun += len(all)
					return nil
				}}
			}
			w.others = handler
			for i := range max(1, c.batch) {
				d := ready(b, int64(i+1))
				d.ctx.base = t.Context()
				b.Add(&d.state)
			}
			w.lease.lasts(instant.Now().Add(time.Hour))
			w.mu.Lock()
			w.offer(b, 1)
			unit := w.take(nil)
			w.lease.lasts(instant.Now()) // it is stopped, and goes on
			w.mu.Unlock()
			if len(unit) != max(1, c.batch) {
				t.Fatalf("%d jobs were taken out", len(unit))
			}
			go func() {
				w.do(unit)
				calls <- begun
			}()
			if c.then != nil {
				select {
				case n := <-calls:
					t.Fatalf("%d jobs have begun, and the lease is over", n)
				case <-time.After(50 * time.Millisecond): // too short a time only misses the fault
				}
				c.then(w, unit)
			}
			if n := <-calls; n != c.begin {
				t.Errorf("%d jobs have begun, want %d", n, c.begin)
			}
			for _, d := range unit {
				if c.begin == 0 && (!d.hasEnded() || !errors.Is(d.ctx.cause, ErrLost)) {
					t.Errorf("job %d: ended %v, %v", d.ID, d.hasEnded(), d.ctx.cause)
				}
			}
		})
	}
}
