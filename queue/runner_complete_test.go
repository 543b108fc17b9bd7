package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/block"
)

// A job's CompleteTx commits the ends of the jobs of its key before it, so that a crash
// cannot have them run again after its effects: wherever these jobs stood, and whatever
// else their ends entail.
func TestCompleteTxAfterOthersOfItsKey(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { impatient(q); keeps(q) })
		group, err := c.NewGroup(t.Context(), Group{Callback: end()})
		must(t, err)
		lost, cut := severed(t, db)
		w1 := worker(t, lost, WorkerOptions{Grace: -1})
		var r record
		committed := make(chan struct{})
		before := func(_ context.Context, d *Delivery) error {
			r.add("%s", d.Kind)
			switch {
			case d.Kind == "retried" && d.Attempt == 1:
				return errTest
			case d.Kind == "retried": // what follows is done in memory, and no ack gets through
				eventually(t, "the others were read", func() bool { return waiting(w1, "k") == 4 })
				cut()
			case d.Kind == "discarded":
				return Discard(errTest)
			}
			return nil
		}
		for _, kind := range []string{"retried", "plain", "unique", "discarded"} {
			handle(t, w1, kind, before)
		}
		handle(t, w1, "completed", func(ctx context.Context, d *Delivery) error {
			r.add("completed")
			defer close(committed)
			tx := db.Begin(t, nil)
			defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
			if err := d.CompleteTx(ctx, tx); err != nil {
				return err
			}
			return tx.Commit()
		})
		ids := enqueueMany(t, c, []Job{
			{Kind: "retried", Key: "k", Group: group},
			{Kind: "plain", Key: "k"},
			{Kind: "unique", Key: "k", Unique: "u"},
			{Kind: "discarded", Key: "k", Group: group},
			{Kind: "completed", Key: "k"},
		})
		must(t, c.Seal(t.Context(), group))
		stop := start(t, w1)
		received(t, "the last one is committed", committed)
		lapse(t, db, w1, 0)
		stop()

		w2 := worker(t, other(t, db), WorkerOptions{})
		must(t, w2.HandleOthers(func(_ context.Context, d *Delivery) error { r.add("%s", d.Kind); return nil }))
		start(t, w2)
		enqueue(t, c, Job{Kind: "after", Key: "k"})
		if enqueue(t, c, Job{Kind: "again", Unique: "u"}) == ids[2] {
			t.Error("the unique key is in use")
		}
		empty(t, db)
		want := []string{"retried", "retried", "plain", "unique", "discarded", "completed"}
		if got := r.all(); strings.Join(got[:min(len(got), 6)], " ") != strings.Join(want, " ") || r.count("after") != 1 ||
			r.count("end") != 1 || len(got) != 9 {
			t.Errorf("done: %q", got)
		}
		for i, id := range ids {
			if info := info(t, c, id, admin.StateDone); info.Discarded != (i == 3) {
				t.Errorf("kept: %+v", info)
			}
		}
		if got := counts(t, c, group); got != "done 0 1 0 1" {
			t.Errorf("the group: %s", got)
		}
	})
}

// What a handler's transaction has deleted and not committed is deleted by the worker, and
// is not done again.
func TestCompleteTxRolledBack(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, impatient)
		w := worker(t, other(t, db), WorkerOptions{})
		var r record
		handle(t, w, "first", func(context.Context, *Delivery) error {
			eventually(t, "the other was read", func() bool { return waiting(w, "k") == 1 })
			r.add("first")
			return nil
		})
		handle(t, w, "second", func(ctx context.Context, d *Delivery) error {
			r.add("second")
			tx := db.Begin(t, nil)
			defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
			if err := d.CompleteTx(ctx, tx); err != nil {
				return err
			}
			if d.Attempt == 1 {
				return errTest
			}
			return tx.Commit()
		})
		enqueueMany(t, c, []Job{{Kind: "first", Key: "k"}, {Kind: "second", Key: "k"}})
		start(t, w)
		empty(t, db)
		r.wants(t, "first", "second", "second")
	})
}

// A worker with AckEach begins the next job of a key when the end of the one before is
// committed: after a crash none is done again after a later one, with or without CompleteTx.
func TestOrderOfAckEach(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		lost, cut := severed(t, db)
		w1 := worker(t, lost, WorkerOptions{AckEach: true, Grace: -1})
		var r record
		handle(t, w1, "x", func(_ context.Context, d *Delivery) error {
			r.add("%s", d.Payload)
			eventually(t, "the others were read", func() bool { return waiting(w1, "k") == 3-r.len() })
			if r.len() == 2 {
				cut()
			}
			return nil
		})
		enqueueMany(t, c, numbered("x", "k", 1, 3))
		stop := start(t, w1)
		eventually(t, "the ack fails", func() bool {
			w1.mu.Lock()
			defer w1.mu.Unlock()
			for _, b := range w1.queues[0].blocks {
				if b.failures > 0 && len(b.Acks) > 0 {
					return true
				}
			}
			return false
		})
		lapse(t, db, w1, 0)
		stop()
		crew(t, db, 1, WorkerOptions{AckEach: true}, func(_ context.Context, d *Delivery) error { r.add("%s", d.Payload); return nil })
		empty(t, db)
		r.wants(t, "1", "2", "2", "3")
	})
}

// Jobs of a batch of a key are checked out together or not at all: when the worker dies
// while one of them is being completed, or has stored its progress, they go in their order.
func TestBatchByKeyAfterACrash(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		for _, completes := range []bool{true, false} {
			c := client(t, db, Options{})
			lost, cut := severed(t, db)
			w1 := worker(t, lost, WorkerOptions{Grace: -1})
			ready := make(chan struct{})
			must(t, w1.HandleBatch("x", BatchOptions{ByKey: true}, func(ctx context.Context, batch []*Delivery) error {
				if len(batch) != 3 {
					t.Errorf("%d jobs", len(batch))
				}
				if completes {
					tx := db.Begin(t, nil)
					defer tx.Rollback() //nolint:errcheck // it is not committed
					must(t, batch[0].CompleteTx(ctx, tx))
					w1.mu.Lock()
					for _, d := range batch { // as if it took long
						if w1.look(d, d.began.Add(time.Hour)); d.state.Row == block.RowLeaving {
							t.Errorf("%s is to be checked out", d.Payload)
						}
					}
					w1.mu.Unlock()
				} else {
					must(t, batch[1].SetProgress(ctx, Progress{Percent: 50}))
				}
				close(ready)
				<-ctx.Done()
				return ctx.Err()
			}))
			enqueueMany(t, c, numbered("x", "k", 1, 3))
			stop := start(t, w1)
			received(t, "it is half done", ready)
			cut()
			lapse(t, db, w1, 0)
			stop()
			var r record
			w2 := worker(t, other(t, db), WorkerOptions{})
			handle(t, w2, "x", func(_ context.Context, d *Delivery) error { r.add("%s", d.Payload); return nil })
			stop = start(t, w2)
			empty(t, db)
			stop()
			r.wants(t, "1", "2", "3")
		}
	})
}

// A job may take long before it is completed in its transaction, even if that transaction
// blocks all other writers: neither waits for the other then.
func TestCompleteTxOfASlowJob(t *testing.T) {
	dbtest.SkipBare(t, "its transaction does not see that the job was checked out")
	each(t, func(t *testing.T, db *dbtest.DB) {
		for _, key := range []string{"", "k"} {
			for _, commits := range []bool{true, false} {
				name := fmt.Sprintf("effects_%s_%v", key, commits)
				db.Do(t, "CREATE TABLE "+name+" (job BIGINT NOT NULL)", nil)
				c := client(t, db, Options{})
				edit(t, c, impatient)
				w := worker(t, c, WorkerOptions{Lease: longWait})
				w.slow = 1
				var r record
				handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
					tx := db.Begin(t, nil)
					defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
					r.add("attempt %d", d.Attempt)
					if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s VALUES (%d)", name, d.ID)); err != nil {
						return err
					}
					eventually(t, "it is to be checked out", func() bool {
						w.mu.Lock()
						defer w.mu.Unlock()
						return d.state.Row == block.RowLeaving || d.state.From == tableRunning
					})
					if err := d.CompleteTx(ctx, tx); err != nil {
						t.Logf("completing: %v", err)
						return err
					}
					if !commits && d.Attempt == 1 {
						return errTest
					}
					return tx.Commit()
				})
				handle(t, w, "next", func(context.Context, *Delivery) error { r.add("next"); return nil })
				stop := start(t, w)
				enqueue(t, c, Job{Kind: "x", Key: key})
				enqueue(t, c, Job{Kind: "next", Key: "k"})
				want := map[bool]int{true: 2, false: 3}[commits]
				eventually(t, fmt.Sprint("there are records: ", want), func() bool { return r.len() >= want })
				empty(t, db)
				stop()
				var effects int
				if db.Scan(t, "SELECT COUNT(*) FROM "+name, nil, &effects); effects != 1 || r.len() != want || key != "" && r.all()[want-1] != "next" {
					t.Errorf("key %q, %v: %d effects; %q", key, commits, effects, r.all())
				}
			}
		}
	})
}

// A transaction that completes a batch job by job does not get into a circle with the
// worker, which checks out what runs for long: InnoDB locks each row that a DELETE passes.
func TestCompleteTxOfASlowBatch(t *testing.T) {
	dbtest.SkipBare(t, "its transaction does not see that the job was checked out")
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		w := worker(t, c, WorkerOptions{Lease: longWait, Concurrency: 1})
		const n = 8
		batches := 0
		must(t, w.HandleBatch("x", BatchOptions{Max: n, Wait: longWait}, func(ctx context.Context, batch []*Delivery) error {
			batches++
			return db.Tx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
				for i, d := range batch {
					if err := d.CompleteTx(ctx, tx.Execer()); err != nil {
						return err
					}
					if i == n/2 { // the rest has run for long
						w.mu.Lock()
						for _, d := range batch {
							w.look(d, instant.Now().Add(w.slow))
						}
						w.mu.Unlock()
						eventually(t, "what is to be checked out is on its way", func() bool {
							w.mu.Lock()
							defer w.mu.Unlock()
							return !slices.ContainsFunc(w.queues, func(q *workQueue) bool {
								for _, b := range q.blocks {
									if len(b.Moves) > 0 {
										return true
									}
								}
								return false
							})
						})
					}
				}
				return nil
			})
		}))
		start(t, w)
		enqueueMany(t, c, slices.Repeat([]Job{{Kind: "x"}}, n))
		empty(t, db)
		if batches != 1 {
			t.Errorf("it took %d batches", batches)
		}
	})
}

// The locks of a handler's transaction may block its job's check-out. The job is completed all
// the same, or the server breaks the deadlock and it is retried.
func TestCompleteTxThatHoldsTheCheckOut(t *testing.T) {
	dbtest.SkipBare(t, "its transaction does not see that the job was checked out")
	having(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, impatient)
		w := worker(t, c, WorkerOptions{Lease: longWait})
		w.slow = longWait
		db.Do(t, "CREATE TABLE effects (job BIGINT NOT NULL)", nil)
		handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
			tx := db.Begin(t, nil)
			defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
			if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO effects VALUES (%d)", d.ID)); err != nil {
				return err
			}
			if d.Attempt == 1 { // a check-out looks at its block
				if _, err := db.On(tx).Exec(ctx, sqlrun.Unlisted(`UPDATE {prefix}queue_block SET suspects = suspects`), nil); err != nil {
					return err
				}
				eventually(t, "it is being checked out", func() bool {
					w.mu.Lock()
					defer w.mu.Unlock()
					w.look(d, instant.Now().Add(w.slow))
					return d.state.Row == block.RowLeaving && len(d.b.Moves) == 0
				})
			}
			if err := d.CompleteTx(ctx, tx); err != nil {
				return err
			}
			return tx.Commit()
		})
		start(t, w)
		enqueue(t, c, Job{Kind: "x"})
		empty(t, db)
		var effects int
		if db.Scan(t, "SELECT COUNT(*) FROM effects", nil, &effects); effects != 1 {
			t.Errorf("%d effects", effects)
		}
	})
}

// A stopping AtMostOnce worker runs the jobs that it has removed, and nothing more.
func TestAtMostOnceStopped(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		var jobs []Job
		for i := range 100 {
			jobs = append(jobs, Job{Kind: "x", Key: []string{"", "k"}[i%2]})
		}
		ids := enqueueMany(t, c, jobs)
		var r record
		began, goOn := make(chan bool, len(jobs)), make(chan bool)
		w := worker(t, c, WorkerOptions{AtMostOnce: true, Concurrency: 1, Batch: 10, Grace: longWait})
		handle(t, w, "x", func(_ context.Context, d *Delivery) error {
			r.add("%d", d.ID)
			began <- true
			<-goOn
			return nil
		})
		stop := start(t, w)
		received(t, "one begins", began)
		stopped := make(chan bool)
		go func() { stop(); close(stopped) }()
		eventually(t, "it is being stopped", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.closing
		})
		close(goOn)
		received(t, "it ends", stopped)
		if n := rowsOf(t, db); n+r.len() != len(jobs) || n == 0 {
			t.Errorf("%d jobs were done, and %d are left", r.len(), n)
		}
		crew(t, db, 1, WorkerOptions{AtMostOnce: true}, func(_ context.Context, d *Delivery) error { r.add("%d", d.ID); return nil })
		empty(t, db)
		eventually(t, "all are done", func() bool { return r.len() >= len(jobs) })
		for _, id := range ids {
			if n := r.count(fmt.Sprint(id)); n != 1 {
				t.Errorf("job %d was done %d times", id, n)
			}
		}
	})
}

// A worker that has lost its lease without knowing, as after a step of the database's clock,
// finds a job's row gone. It does not take that for the job's end: the next job of its key
// waits for the block's present holder.
func TestCompleteTxAfterAnUnnoticedLoss(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { impatient(q); q.MaxCrashes = 10 })
		var effects record
		begun, goOn := make(chan string, 10), map[string]chan struct{}{"first": make(chan struct{}), "second": make(chan struct{})}
		crew := func(name string) *Worker {
			w := worker(t, other(t, db), WorkerOptions{})
			w.slow = 1
			must(t, w.HandleOthers(func(ctx context.Context, d *Delivery) error {
				if d.Kind == "slow" {
					begun <- name
					received(t, name+" goes on", goOn[name])
				}
				tx := db.Begin(t, nil)
				defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
				if err := d.CompleteTx(context.WithoutCancel(ctx), tx); err != nil {
					return err
				}
				effects.add("%s", d.Kind)
				return tx.Commit()
			}))
			return w
		}
		w1 := crew("first")
		enqueueMany(t, c, []Job{{Kind: "slow", Key: "k"}, {Kind: "next", Key: "k"}})
		start(t, w1)
		received(t, "the first worker begins", begun)
		eventually(t, "the job is checked out, and the next one waits", func() bool {
			w1.mu.Lock()
			out := len(w1.out)
			w1.mu.Unlock()
			return out == 1 && waiting(w1, "k") == 1
		})
		// What another worker does that finds it late.
		if n := db.Do(t, `UPDATE {prefix}node SET state = 'lost' WHERE name = :name`, sqlrun.Args{"name": nameOf(w1)}); n != 1 {
			t.Fatalf("%d processes were declared lost", n)
		}
		start(t, crew("second"))
		received(t, "the second worker begins", begun)
		close(goOn["first"])
		eventually(t, "the first worker notices, or goes on", func() bool {
			w1.mu.Lock()
			defer w1.mu.Unlock()
			return len(w1.out) == 0 && len(w1.queues[0].blocks) == 0 || effects.len() > 0
		})
		close(goOn["second"])
		empty(t, db)
		effects.wants(t, "slow", "next")
	})
}
