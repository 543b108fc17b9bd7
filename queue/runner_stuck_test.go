package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
)

// unheeding returns a handler that ignores its context until it is let go.
func unheeding(r *record, goOn <-chan struct{}) Handler {
	return func(ctx context.Context, d *Delivery) error {
		r.add("%s %d", d.Key, d.Attempt)
		if d.Attempt == 1 {
			<-goOn
		}
		return context.Cause(ctx)
	}
}

// A handler that ignores its timeout: the failure is shown while it runs on, what waits for the job waits,
// its other slot goes on, and the next attempt follows when it has returned. The class: a failure that is
// only told when somebody returns who need not.
func TestStuckHandler(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		var log bytes.Buffer
		c := client(t, db, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		edit(t, c, impatient)
		w := worker(t, c, WorkerOptions{Concurrency: 2})
		w.returns = 10 * time.Millisecond
		var r record
		goOn := make(chan struct{})
		must(t, w.HandleWith("deaf", RetryPolicy{Timeout: 20 * time.Millisecond}, unheeding(&r, goOn)))
		handle(t, w, "next", func(_ context.Context, d *Delivery) error { r.add("next %s", d.Key); return nil })
		stop := start(t, w)
		id := enqueue(t, c, Job{Kind: "deaf", Key: "k", Unique: "u"})
		enqueue(t, c, Job{Kind: "next", Key: "k"})
		eventually(t, "its failure is shown", func() bool {
			i, err := adminOf(c).Job(t.Context(), "", id)
			return err == nil && i.State == admin.StateRunning && strings.Contains(i.Error, ErrTimeout.Error()+": 20ms; its handler has not returned")
		})
		if n, err := adminOf(c).Stuck(t.Context()); err != nil || len(n) != 1 || n[defaultQueue] != 1 {
			t.Errorf("stuck are %v, %v", n, err)
		}
		for range 3 { // others go on, beside it
			enqueue(t, c, Job{Kind: "next", Key: "other"})
		}
		eventually(t, "the others are done", func() bool { return r.count("next other") == 3 })
		if e, err := c.Enqueue(t.Context(), Job{Kind: "deaf", Unique: "u"}); err != nil || e.ID != id {
			t.Errorf("its unique key is free: %+v, %v", e, err)
		}
		if r.count("next k") > 0 || r.count("k ") != 1 {
			t.Errorf("begun meanwhile: %q", r.all())
		}
		close(goOn)
		empty(t, db)
		if n, err := adminOf(c).Stuck(t.Context()); err != nil || len(n) != 0 {
			t.Errorf("stuck are %v, %v", n, err)
		}
		stop()
		if got := slices.DeleteFunc(r.all(), func(s string) bool { return s == "next other" }); !slices.Equal(got, []string{"k 1", "k 2", "next k"}) {
			t.Errorf("got %q", got)
		}
		for _, line := range []string{"a handler does not return though its job's time is over", "stuck=1 slots=2", "a handler that was stuck has returned"} {
			if !strings.Contains(log.String(), line) {
				t.Errorf("no line %q in %s", line, log.String())
			}
		}
	})
}

// What waits for a stuck job's place in a FIFO queue, or for its permit, waits until its handler returns, in
// its own process and in another.
func TestWhatWaitsForAStuckHandler(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, c *Client){
		"fifo":   func(t *testing.T, c *Client) { edit(t, c, func(q *admin.Queue) { impatient(q); fifo(q) }) },
		"permit": func(t *testing.T, c *Client) { edit(t, c, impatient); limitTo(t, c, "deaf", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			memory(t, func(t *testing.T, db *dbtest.DB) {
				c := client(t, db, Options{})
				prepare(t, c)
				var r record
				goOn := make(chan struct{})
				for range 2 {
					w := worker(t, c, WorkerOptions{Concurrency: 2})
					w.returns = 10 * time.Millisecond
					must(t, w.HandleWith("deaf", RetryPolicy{Timeout: 20 * time.Millisecond}, func(ctx context.Context, d *Delivery) error {
						if d.Key != "first" {
							r.add("%s", d.Key)
							return nil
						}
						return unheeding(&r, goOn)(ctx, d)
					}))
					start(t, w)
				}
				id := enqueue(t, c, Job{Kind: "deaf", Key: "first"})
				enqueue(t, c, Job{Kind: "deaf", Key: "second"})
				eventually(t, "its failure is shown", func() bool {
					i, err := adminOf(c).Job(t.Context(), "", id)
					return err == nil && strings.Contains(i.Error, "its handler has not returned")
				})
				if got := r.all(); !slices.Equal(got, []string{"first 1"}) {
					t.Errorf("begun meanwhile: %q", got)
				}
				close(goOn)
				empty(t, db)
				if r.count("second") != 1 || r.count("first 2") != 1 {
					t.Errorf("got %q", r.all())
				}
			})
		})
	}
}

// A worker that is stopped has not handed over a stuck job as if it had not been tried: the attempt counts.
func TestStuckHandlerOfTheStopped(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		w := worker(t, c, WorkerOptions{Grace: -1})
		w.returns = 10 * time.Millisecond
		var r record
		goOn := make(chan struct{})
		must(t, w.HandleWith("deaf", RetryPolicy{Timeout: 20 * time.Millisecond, MaxAttempts: 1}, unheeding(&r, goOn)))
		stop := start(t, w)
		id := enqueue(t, c, Job{Kind: "deaf"})
		eventually(t, "it is stuck", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.stuck() == 1
		})
		stop()
		if i := info(t, c, id, admin.StateDead); i.Attempts != 1 || !strings.Contains(i.Error, "its handler has not returned") {
			t.Errorf("%+v", i)
		}
		close(goOn)
		w.group.Wait()
	})
}

// A worker whose slots are all stuck ends with an error, so that its process does: at once, though its grace is long. The stuck jobs
// have failed once, what has not begun is anybody's, and nobody is charged with a death.
func TestAllStuck(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, impatient)
		w := worker(t, c, WorkerOptions{Concurrency: 2, Grace: time.Hour, EndStuck: 20 * time.Millisecond})
		w.returns = 10 * time.Millisecond
		var r record
		goOn := make(chan struct{})
		must(t, w.HandleWith("deaf", RetryPolicy{Timeout: 20 * time.Millisecond}, unheeding(&r, goOn)))
		handle(t, w, "next", func(_ context.Context, d *Delivery) error { r.add("next %s", d.Key); return nil })
		ended := make(chan error, 1)
		go func() { ended <- w.Run(t.Context()) }()
		stuck := []int64{enqueue(t, c, Job{Kind: "deaf", Key: "a"})}
		eventually(t, "one is stuck", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.stuck() == 1
		})
		for i := range 5 { // beside it
			enqueue(t, c, Job{Kind: "next", Key: "free"})
			eventually(t, "another is done", func() bool { return r.count("next free") == i+1 })
		}
		stuck = append(stuck, enqueue(t, c, Job{Kind: "deaf", Key: "b"}))
		next := enqueue(t, c, Job{Kind: "next", Key: "b"})
		want(t, "it ends with", received(t, "its end", ended), ErrStuck)
		for _, id := range stuck {
			if i := info(t, c, id, admin.StateDelayed); i.Attempts != 1 || i.Crashes != 0 || !strings.Contains(i.Error, "its handler has not returned") {
				t.Errorf("%+v", i)
			}
		}
		info(t, c, next, admin.StateReady)

		other := worker(t, c, WorkerOptions{})
		must(t, other.HandleWith("deaf", RetryPolicy{}, unheeding(&r, nil)))
		handle(t, other, "next", func(_ context.Context, d *Delivery) error { r.add("next %s", d.Key); return nil })
		start(t, other)
		empty(t, db)
		if r.count("a ") != 2 || r.count("b ") != 2 || r.count("next b") != 1 {
			t.Errorf("got %q", r.all())
		}
		close(goOn)
		w.group.Wait()
	})
}

// A worker does not write what it thinks of a job that is another's by now.
func TestStuckHandlerOfTheLost(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		for _, lost := range []string{"lock_by = 'you'", "attempt = 2", "state = 'handed', started_at = {now}"} {
			c := client(t, db, Options{Blocks: 1})
			w := worker(t, c, WorkerOptions{Grace: -1})
			outcome := make(chan error, 1)
			handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
				if d.Progress().Percent > 0 {
					return nil // which is another's turn
				}
				must(t, d.SetProgress(ctx, Progress{Percent: 1}))
				byHand(t, db, "UPDATE {prefix}job_running SET "+lost)
				w.mu.Lock()
				d.stuck = errTest
				w.unnoted = []*Delivery{d}
				name := w.lease.node
				w.mu.Unlock()
				must(t, w.noteStuck(t.Context(), d.b.q, name))
				var wrong error
				if n := db.List(t, `SELECT error FROM {prefix}job_running WHERE error <> '' OR state = 'stuck'`, sqlrun.Args{}); len(n) > 0 {
					wrong = fmt.Errorf("%s: %q was stored", lost, n)
				}
				outcome <- wrong
				return errors.New("done with it")
			})
			stop := start(t, w)
			enqueue(t, c, Job{Kind: "x"})
			if err := received(t, "the outcome", outcome); err != nil {
				t.Error(err)
			}
			stop()
			void(t, db)
		}
	})
}
