package queue

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
)

// A signal that is lost delays a ready job by a moment, and no more: each case breaks one,
// and the job that is enqueued then begins all the same.
func TestLostSignals(t *testing.T) {
	type broken struct {
		name  string
		loses func(w *Worker, b *tenure) (restore func())
	}
	nothing := func() {}
	for _, c := range []broken{
		{"handlers are not woken", func(w *Worker, _ *tenure) func() {
			idle := w.idle
			w.idle = 0
			return func() { w.idle += idle }
		}},
		{"pumps are not woken", func(w *Worker, b *tenure) func() {
			b.Reads.Dirty, b.queued = true, true
			w.serve = append(w.serve, b)
			return nothing
		}},
		{"a block counts as listed", func(_ *Worker, b *tenure) func() { b.spot.Listed = true; return nothing }},
		{"a block counts as queued", func(_ *Worker, b *tenure) func() { b.queued = true; return nothing }},
		{"a block counts as failed", func(_ *Worker, b *tenure) func() { b.failures = 1; return nothing }},
		{"a block is to go, for whatever reason", func(w *Worker, b *tenure) func() {
			w.leave(b)
			b.Active++ // so it is never idle
			return func() { b.Active-- }
		}},
		{"a block has too many ready jobs", func(w *Worker, b *tenure) func() { b.Count += w.opt.Batch; return nothing }},
	} {
		t.Run(c.name, func(t *testing.T) {
			locks(t, func(t *testing.T, db *dbtest.DB) {
				cl := client(t, db, Options{Blocks: 1})
				began := make(chan bool)
				w := worker(t, cl, WorkerOptions{Concurrency: 2})
				w.miscounted = func(int, int) {} // one case does that
				handle(t, w, "x", func(context.Context, *Delivery) error { began <- true; return nil })
				start(t, w)
				var b *tenure
				eventually(t, "it waits for jobs", func() bool {
					w.mu.Lock()
					defer w.mu.Unlock()
					b = w.queues[0].blocks[0]
					return w.idle == 2 && b != nil && !b.Serving && !b.queued && !b.spot.Listed
				})
				w.mu.Lock()
				restore := c.loses(w, b)
				w.mu.Unlock()
				enqueue(t, cl, Job{Kind: "x"})
				received(t, "it begins", began)
				w.mu.Lock()
				restore()
				w.mu.Unlock()
				empty(t, db)
			})
		})
	}
}

// A job is found without any bell, in each of a worker's queues.
func TestNoBells(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		began := make(chan string)
		w := worker(t, c, WorkerOptions{Queues: []string{"first", "second"}})
		handle(t, w, "x", func(_ context.Context, d *Delivery) error { began <- d.Queue; return nil })
		start(t, w)
		eventually(t, "it has blocks of both", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.queues[0].blocks) > 0 && len(w.queues[1].blocks) > 0
		})
		c.bells.remove(w)
		w.mu.Lock()
		for _, q := range w.queues { // long after all was read
			for _, b := range q.blocks {
				b.Reads.Whole, b.Reads.Again, b.Reads.Shaken = instant.Now().Add(time.Hour), 0, false
			}
		}
		w.mu.Unlock()
		for _, name := range []string{"second", "first"} {
			enqueue(t, c, Job{Queue: name, Kind: "x"})
			if got := received(t, "it begins", began); got != name {
				t.Errorf("one of %s begins", got)
			}
		}
	})
}

// ghost adds a process to those that work on the default queue that does nothing: it may be
// dead, unable to take blocks, or a row that outlives its process.
func ghost(t *testing.T, db *dbtest.DB, name string, lives time.Duration) {
	t.Helper()
	db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at, under) VALUES (:name, 'live', {now + :us}, '')`,
		sqlrun.Args{"name": name, "us": lives.Microseconds()})
	db.Do(t, `INSERT INTO {prefix}queue_worker (queue_id, node, busy) SELECT queue_id, :name, 0 FROM {prefix}queue`,
		sqlrun.Args{"name": name})
}

// begins enqueues a job for each block of the default queue, and waits until all are done.
func allBegin(t *testing.T, c *Client, r *record) {
	t.Helper()
	blocks, err := adminOf(c).Blocks(t.Context(), "")
	must(t, err)
	had := map[int]bool{}
	q, err := c.read(t.Context(), defaultQueue)
	must(t, err)
	for n := 0; len(had) < len(blocks); n++ {
		id := enqueue(t, c, Job{Kind: "x", Key: fmt.Sprint("key ", n)})
		had[q.Block(fmt.Sprint("key ", n), id)] = true
	}
	eventually(t, "a job of each block is done", func() bool { return rowsOf(t, &dbtest.DB{DB: c.db}) == 0 && r.len() > 0 })
}

// No block is kept for a worker that does not take it: neither those that were free when it
// came, nor those of a worker whose lease has ended.
func TestShareOfTheDead(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 4})
		edit(t, c, impatient) // makes the queue
		ghost(t, db, "dead for long", time.Minute)
		db.Do(t, `UPDATE {prefix}queue_block SET state = 'LEASED', lock_by = 'dead for long', fence = fence + 1 WHERE divided < 2`, nil)
		for i := range 3 {
			ghost(t, db, fmt.Sprint("dead of late ", i), time.Hour)
		}
		var r record
		crew(t, db, 1, WorkerOptions{}, func(_ context.Context, d *Delivery) error { r.add("%d", d.ID); return nil })
		shared(t, c, 2, 2) // the free ones
		db.Do(t, `UPDATE {prefix}node SET expire_at = {now} WHERE name = 'dead for long'`, nil)
		shared(t, c, 4)
		allBegin(t, c, &r)
	})
}

// A Receiver that nobody has asked for a while takes its blocks back when it is asked,
// whichever other workers exist.
func TestReceiverBesideTheDead(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		edit(t, c, impatient) // makes the queue
		r := receiver(t, c, WorkerOptions{Grace: time.Millisecond})
		ghost(t, db, "dead", time.Hour)
		r.w.mu.Lock()
		r.asked = r.asked.Add(-time.Hour)
		r.w.mu.Unlock()
		eventually(t, "it has left its blocks", func() bool { return len(shares(t, c)) == 0 })
		enqueueMany(t, c, []Job{{Kind: "x"}, {Kind: "x"}, {Kind: "x"}, {Kind: "x"}})
		for _, d := range receive(t, r, 4) {
			must(t, r.Complete(t.Context(), d))
		}
		empty(t, db)
	})
}

// A worker whose registration is lost, such as by a failover, registers again.
func TestForgottenWorker(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		var r record
		crew(t, db, 1, WorkerOptions{}, func(_ context.Context, d *Delivery) error { r.add("%d", d.ID); return nil })
		shared(t, c, 2)
		db.Do(t, `DELETE FROM {prefix}queue_worker`, nil)
		eventually(t, "it is registered again", func() bool {
			return len(db.List(t, `SELECT node FROM {prefix}queue_worker`, nil)) == 1
		})
		shared(t, c, 2)
		allBegin(t, c, &r)
	})
}

// A worker takes blocks again once settings that could not be read are repaired.
func TestUnreadableSettings(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		w := worker(t, c, WorkerOptions{})
		handle(t, w, "x", nothing)
		start(t, w)
		shared(t, c, 2)
		db.Do(t, `UPDATE {prefix}queue SET retry_delay = '99999999d'`, nil)
		eventually(t, "the worker knows that they mean nothing", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.queues[0].set.Wrong != ""
		})
		db.Do(t, `UPDATE {prefix}queue_block SET state = 'FREE', lock_by = '', fence = fence + 1`, nil)
		db.Do(t, `UPDATE {prefix}queue SET retry_delay = '10s'`, nil)
		eventually(t, "they are taken", func() bool {
			return len(db.List(t, `SELECT divided FROM {prefix}queue_block WHERE state = 'LEASED'`, nil)) == 2
		})
	})
}

// A worker that stops repeats its farewell until it is recorded: others would have to wait for
// its lease to end.
func TestLeavingInsists(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		var cuts atomic.Int32
		broken := db.Broken(t, &dbtest.Fault{Text: "'gone', expire_at", Random: func() (bool, bool) { return cuts.Add(1) <= 3, false }})
		broken.Pool().SetMaxOpenConns(5)
		w := worker(t, client(t, broken, Options{}), WorkerOptions{})
		handle(t, w, "x", nothing)
		stop := start(t, w)
		shared(t, c, 2)
		name := nameOf(w)
		stop()
		if got := db.List(t, `SELECT name, state FROM {prefix}node WHERE name = :name`, sqlrun.Args{"name": name}); len(got) != 1 ||
			got[0] != name+" gone" {
			t.Errorf("it stands there as %q", got)
		}
		if cuts.Load() != 4 {
			t.Errorf("it has said so %d times", cuts.Load())
		}
	})
}

// The end of a job that was checked out, and whose block the worker has handed over, is
// written after an outage: the next job of its key waits for that.
func TestEndAfterItsBlockIsGone(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		var failing atomic.Bool
		broken := db.Broken(t, &dbtest.Fault{Random: func() (bool, bool) { return failing.Load(), false }})
		broken.Pool().SetMaxOpenConns(5)
		w := worker(t, client(t, broken, Options{}), WorkerOptions{Lease: longWait, Concurrency: 2})
		w.slow = time.Millisecond
		release := make(chan struct{})
		var r record
		handle(t, w, "x", func(_ context.Context, d *Delivery) error { r.add("%d", d.ID); <-release; return nil })
		start(t, w)
		first := enqueue(t, c, Job{Kind: "x", Key: "k"})
		second := enqueue(t, c, Job{Kind: "x", Key: "k"})
		becomes(t, c, first, admin.StateRunning)
		w.mu.Lock()
		b := w.queues[0].blocks[0]
		w.leave(b)
		w.mu.Unlock()
		inWorker := func(what string, is func() bool) {
			eventually(t, what, func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return is()
			})
		}
		inWorker("the block is handed over, and taken again", func() bool { return b.Gone && w.queues[0].blocks[0] != nil })
		failing.Store(true)
		close(release)
		inWorker("the end could not be written", func() bool { return b.failures > 0 && !b.Serving })
		failing.Store(false)
		empty(t, db)
		r.wants(t, fmt.Sprint(first), fmt.Sprint(second))
		inWorker("nothing is left of the block", func() bool { return len(w.remnants) == 0 })
	})
}

// With the default lease, another worker has a killed worker's jobs within ten seconds, and a
// process that is paused for five seconds keeps its jobs.
func TestDefaultLease(t *testing.T) {
	if most := DefaultLease + 2*shareEvery; most > 10*time.Second {
		t.Errorf("a killed worker's jobs wait for up to %v", most)
	}
	if pause := usable(DefaultLease) - DefaultLease/renewals; pause < 5*time.Second+time.Second {
		t.Errorf("a process may stand still for %v, which leaves no time to renew its lease after five seconds", pause)
	}
}
