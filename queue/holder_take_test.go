package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Workers that begin at once make each queue once, with its blocks, and take each block once, however
// many queues they have.
func TestCreateMany(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		first := client(t, db, Options{Blocks: 3})
		must(t, first.create(t.Context(), "q7", 2))
		names := make([]string, 2*maxMade+5)
		for i := range names {
			names[i] = fmt.Sprint("q", i)
		}
		var all [3]*Worker
		var begun sync.WaitGroup
		for i := range all {
			w := worker(t, client(t, db, Options{Blocks: 3}), WorkerOptions{Queues: append(slices.Clone(names), "q0"), Lease: longWait})
			all[i] = w
			begun.Go(func() {
				if err := w.tryBegin(context.Background()); err != nil {
					t.Error(err)
				}
				if err := w.shareQueues(context.Background(), w.queues, w.lease.node); err != nil {
					t.Error(err)
				}
			})
		}
		begun.Wait()
		wantRows(t, db, "queues", `SELECT COUNT(*) FROM {prefix}queue WHERE name LIKE 'q%'`, fmt.Sprint(len(names)))
		wantRows(t, db, "queues with other blocks",
			`SELECT q.name, COUNT(*) FROM {prefix}queue AS q JOIN {prefix}queue_block AS b ON b.queue_id = q.queue_id
			WHERE q.name LIKE 'q%' GROUP BY q.name HAVING COUNT(*) <> 3`, "q7 2")
		total := 0
		for _, w := range all {
			held := map[store.BlockID]bool{}
			for _, q := range w.queues {
				for _, b := range q.blocks {
					held[b.at()] = true
				}
			}
			if len(w.queues) != len(names) {
				t.Errorf("a worker has %d queues", len(w.queues))
			}
			total += len(held)
			wantRows(t, db, "blocks of a worker", fmt.Sprintf(`SELECT COUNT(*) FROM {prefix}queue_block WHERE state = 'LEASED' AND lock_by = '%s' AND fence = 1`, w.lease.node),
				fmt.Sprint(len(held)))
		}
		if want := 3*len(names) - 1; total != want {
			t.Errorf("of %d blocks %d are taken", want, total)
		}
	})
}

// A worker that takes many blocks at once does the jobs that wait in them: those that are ready or
// due, and none that is behind another of its key that waits for its retry, until that is done.
func TestTakeMany(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		var names []string
		for i := range fewBlocks {
			names = append(names, fmt.Sprint("q", i))
		}
		enqueue(t, c, Job{Queue: "q3", Kind: "x", Payload: []byte(`"ready"`)})
		enqueue(t, c, Job{Queue: "q5", Kind: "x", Payload: []byte(`"due"`), Delay: time.Hour})
		held := enqueue(t, c, Job{Queue: "q9", Kind: "x", Key: "k", Payload: []byte(`"first"`), Delay: time.Hour})
		byHand(t, db, `UPDATE {prefix}job_delayed SET run_at = `+ago+` WHERE id <> `+fmt.Sprint(held),
			`UPDATE {prefix}job_delayed SET hold_key = 'k' WHERE id = `+fmt.Sprint(held))
		enqueue(t, c, Job{Queue: "q9", Kind: "x", Key: "k", Payload: []byte(`"second"`)})
		w := worker(t, other(t, db), WorkerOptions{Queues: names, Lease: longWait})
		var r record
		handle(t, w, "x", func(_ context.Context, d *Delivery) error { r.add("%s", d.Payload); return nil })
		start(t, w)
		eventually(t, "what is ready and due is done, and all blocks are read", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			n := 0
			for _, q := range w.queues {
				for _, b := range q.blocks {
					if b.Reads.Whole != 0 && !b.Reads.Dirty && !b.Serving {
						n++
					}
				}
			}
			return n == 2*fewBlocks && r.len() >= 2
		})
		all := r.all()
		slices.Sort(all)
		if !slices.Equal(all, []string{`"due"`, `"ready"`}) {
			t.Errorf("done are %v", all)
		}
		if err := adminOf(c).RunNow(t.Context(), "q9", held); err != nil {
			t.Error(err)
		}
		eventually(t, "all are done", func() bool { return r.len() == 4 })
		if all := r.all(); !slices.Equal(all[2:], []string{`"first"`, `"second"`}) {
			t.Errorf("done are %v", all)
		}
	})
}

// A job that comes while a worker looks into the blocks that it has taken is done, whether the look
// sees it or not.
func TestRungWhileTaken(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: fewBlocks + 1})
		edit(t, c, func(*admin.Queue) {})
		w := worker(t, c, WorkerOptions{Lease: longWait})
		must(t, w.tryBegin(t.Context()))
		q := w.queues[0]
		rows, err := c.blocks(t.Context(), q.id)
		must(t, err)
		var all []*tenure
		for i := range rows {
			b := w.newBlock(&candidate{of: &allotment{q: q}, row: rows[i]}, 0)
			b.Serving, b.Dues.Ripe, q.blocks[b.divided] = true, false, b
			all = append(all, b)
		}
		w.ring(q.id, 3)
		w.lookInto(t.Context(), all)
		for _, b := range all {
			if rung := b.divided == 3; b.Serving || b.Reads.Dirty != rung || b.queued != rung || b.still() == rung {
				t.Errorf("block %d: serving %v, dirty %v, queued %v, still %v", b.divided, b.Serving, b.Reads.Dirty, b.queued, b.still())
			}
		}
		for _, b := range all {
			b.Serving, b.Reads, b.Dues.Ripe = true, block.Reads{Dirty: true, Unseen: true}, false
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		w.lookInto(ended, all) // it cannot look
		for _, b := range all {
			if b.Serving || !b.Reads.Dirty || !b.Dues.Ripe || !b.queued {
				t.Errorf("block %d is not read: serving %v, dirty %v, ripe %v, queued %v", b.divided, b.Serving, b.Reads.Dirty, b.Dues.Ripe, b.queued)
			}
		}
	})
}

// Of several blocks only those are asked for their keys in which a job waits for its retry.
func TestHolding(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 4})
		edit(t, c, func(*admin.Queue) {})
		w := worker(t, c, WorkerOptions{Lease: longWait})
		must(t, w.tryBegin(t.Context()))
		q := w.queues[0]
		byHand(t, db, fmt.Sprintf(`INSERT INTO {prefix}job_delayed (queue_id, divided, id, kind, run_at, hold_key) VALUES
			(%d, 1, 1, 'x', {now}, NULL), (%[1]d, 2, 2, 'x', {now}, 'k'), (%[1]d, 2, 3, 'x', {now}, 'l')`, q.id))
		var all []*tenure
		for i := range 4 {
			b := newTenure(q)
			b.divided = i
			all = append(all, b)
		}
		some, err := w.holding(t.Context(), all)
		if err != nil || len(some) != 1 || some[0] != all[2] {
			t.Errorf("%v, %v", some, err)
		}
	})
}
