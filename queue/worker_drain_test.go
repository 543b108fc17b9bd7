package queue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
)

// once runs a worker until nothing is left.
func once(t *testing.T, w *Worker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longWait)
	defer cancel()
	must(t, w.RunOnce(ctx))
	if ctx.Err() != nil {
		t.Fatal("it did not end by itself")
	}
}

// RunOnce does everything that is ready or due, and what that enqueues; it leaves jobs that are
// due later, wait for a retry, or are behind such jobs.
func TestRunOnce(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { q.RetryDelay = time.Hour })
		w := worker(t, c, WorkerOptions{Concurrency: 3})
		var r record
		handle(t, w, "plain", func(context.Context, *Delivery) error { r.add("plain"); return nil })
		handle(t, w, "more", func(ctx context.Context, _ *Delivery) error {
			r.add("more")
			_, err := c.Enqueue(ctx, Job{Kind: "plain"})
			return err
		})
		handle(t, w, "fails", func(_ context.Context, d *Delivery) error { r.add("fails"); return errTest })
		handle(t, w, "slow", func(ctx context.Context, d *Delivery) error {
			eventually(t, "it is checked out", func() bool { return d.isOut() })
			r.add("slow")
			return nil
		})
		enqueueMany(t, c, []Job{{Kind: "plain"}, {Kind: "more"}, {Kind: "slow"}})
		enqueue(t, c, Job{Kind: "plain", Key: "other"})
		failing := enqueue(t, c, Job{Kind: "fails", Key: "k"})
		behind := enqueue(t, c, Job{Kind: "plain", Key: "k"})
		due := enqueue(t, c, Job{Kind: "plain", Key: "k", Delay: time.Millisecond})
		later := enqueue(t, c, Job{Kind: "plain", Delay: time.Hour})
		once(t, w)
		for kind, n := range map[string]int{"plain": 3, "more": 1, "slow": 1, "fails": 1} {
			if got := r.count(kind); got != n {
				t.Errorf("%d of %s, not %d: %q", got, kind, n, r.all())
			}
		}
		info(t, c, failing, admin.StateDelayed)
		info(t, c, behind, admin.StateReady)
		info(t, c, due, admin.StateDelayed)
		info(t, c, later, admin.StateDelayed)
		if n := rowsOf(t, db); n != 4 {
			t.Errorf("%d jobs are left: %q", n, left(t, db.DB))
		}
		must(t, adminOf(c).Retry(t.Context(), "", failing))
		must(t, adminOf(c).Pause(t.Context(), "default", "test"))
		w = worker(t, c, WorkerOptions{})
		once(t, w) // of a queue that is paused nothing is to be done
		must(t, adminOf(c).Resume(t.Context(), "default"))
		w = worker(t, other(t, db), WorkerOptions{}) // which knows nothing of the pause
		must(t, w.HandleOthers(func(context.Context, *Delivery) error { return nil }))
		once(t, w)
		if n := rowsOf(t, db); n != 1 {
			t.Errorf("%d jobs are left: %q", n, left(t, db.DB))
		}
	})
}

// isOut reports whether a job has a row of its own.
func (d *Delivery) isOut() bool {
	d.runner().mu.Lock()
	defer d.runner().mu.Unlock()
	return d.state.From == tableRunning
}

// A worker that ends by itself waits for the jobs of a worker that has died, and for those that
// a live one has read and not begun; not for jobs that the latter runs for long.
func TestRunOnceBesideOthers(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c, cut := severed(t, db)
		first := worker(t, c, WorkerOptions{Grace: -1, Concurrency: 1})
		begun := make(chan bool, 1)
		handle(t, first, "x", func(ctx context.Context, _ *Delivery) error {
			begun <- true
			<-ctx.Done()
			return context.Cause(ctx)
		})
		enqueueMany(t, c, []Job{{Kind: "x"}, {Kind: "x"}, {Kind: "x"}})
		stop := start(t, first)
		received(t, "the first worker has begun", begun)
		cut()
		lapse(t, db, first, time.Second)
		w := worker(t, client(t, db, Options{}), WorkerOptions{})
		handle(t, w, "x", func(context.Context, *Delivery) error { return nil })
		once(t, w)
		if n := rowsOf(t, db); n != 0 {
			t.Errorf("%d jobs are left: %q", n, left(t, db.DB))
		}
		stop()
	})
}

func TestRunOnceIsStopped(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		w := worker(t, c, WorkerOptions{Grace: -1})
		ctx, cancel := context.WithCancel(t.Context())
		handle(t, w, "x", func(ctx context.Context, _ *Delivery) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		id := enqueue(t, c, Job{Kind: "x"})
		must(t, w.RunOnce(ctx))
		if i, err := adminOf(c).Job(t.Context(), "", id); err != nil || i.Attempts > 1 {
			t.Errorf("%+v, %v", i, err)
		}
	})
}

// The handler of the others does the jobs of kinds that have none, in the middleware,
// and by the queue's policy.
func TestHandleOthers(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { impatient(q); q.MaxAttempts = 2 })
		w := worker(t, c, WorkerOptions{Concurrency: 1})
		var r record
		w.Use(func(next Handler) Handler {
			return func(ctx context.Context, d *Delivery) error { r.add("in"); return next(ctx, d) }
		})
		handle(t, w, "own", func(context.Context, *Delivery) error { r.add("own"); return nil })
		must(t, w.HandleOthers(func(_ context.Context, d *Delivery) error {
			r.add("%s %d", d.Kind, d.Attempt)
			if d.Kind == "fails" {
				return errTest
			}
			return nil
		}))
		want(t, "a second one", w.HandleOthers(func(context.Context, *Delivery) error { return nil }), ErrInvalid)
		enqueueMany(t, c, []Job{{Kind: "own", Key: "k"}, {Kind: "*", Key: "k"}, {Kind: "fails", Key: "k"}})
		start(t, w)
		want(t, "one while it runs", w.HandleOthers(func(context.Context, *Delivery) error { return nil }), ErrInvalid)
		r.wants(t, "in", "own", "in", "* 1", "in", "fails 1", "in", "fails 2")
		eventually(t, "it is dead", func() bool {
			dead, _, err := adminOf(c).Jobs(t.Context(), admin.Filter{State: admin.StateDead})
			must(t, err)
			return len(dead) == 1 && dead[0].Kind == "fails" && dead[0].Attempts == 2
		})
	})
}

// A job's handler knows how long the job is its worker's: longer again after each
// renewal, and no more when the worker is cut off for longer than its lease.
func TestLeft(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c, cut := severed(t, db)
		const lease = 6 * time.Second // less would be over before the handler has asked, on a slow machine
		w := worker(t, c, WorkerOptions{Lease: lease})
		over := make(chan error, 1)
		handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
			last := d.Left()
			if last <= 0 || last >= lease {
				over <- fmt.Errorf("%v are left at first", last)
				return nil
			}
			eventually(t, "the lease is renewed", func() bool {
				now := d.Left()
				renewed := now > last
				last = now
				return renewed
			})
			cut()
			<-ctx.Done()
			var err error
			if d.Left() != 0 || !errors.Is(context.Cause(ctx), ErrLost) {
				err = fmt.Errorf("%v are left, after %w", d.Left(), context.Cause(ctx))
			}
			over <- err
			return err
		})
		enqueue(t, c, Job{Kind: "x"})
		start(t, w)
		must(t, received(t, "the lease is lost", over))
	})
}
