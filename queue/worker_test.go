package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
)

var errTest = errors.New("it \x00failed")

// What becomes of jobs, by what their handlers return.
func TestOutcomes(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { impatient(q); q.MaxAttempts = 4 })
		w := worker(t, c, WorkerOptions{BuryUnknown: true})
		var r record
		outcomes := map[string]Handler{
			"done":    func(context.Context, *Delivery) error { return nil },
			"fails":   func(context.Context, *Delivery) error { return errTest },
			"later":   func(context.Context, *Delivery) error { return RetryAfter(time.Millisecond, errTest) },
			"hour":    func(context.Context, *Delivery) error { return RetryAfter(time.Hour, errTest) },
			"discard": func(context.Context, *Delivery) error { return fmt.Errorf("so: %w", Discard(errTest)) },
			"bury":    func(context.Context, *Delivery) error { return Bury(errTest) },
			"no text": func(context.Context, *Delivery) error { return Bury(nil) },
			"panic":   func(context.Context, *Delivery) error { panic("oh\x00\xff") },
			"once": func(_ context.Context, d *Delivery) error {
				if d.Attempt == 1 {
					return errTest
				}
				return nil
			},
		}
		noted := func(h Handler) Handler {
			return func(ctx context.Context, d *Delivery) error {
				r.add("%s %d.", d.Kind, d.Attempt)
				return h(ctx, d)
			}
		}
		for kind, h := range outcomes {
			handle(t, w, kind, noted(h))
		}
		must(t, w.HandleWith("by kind", RetryPolicy{MaxAttempts: 2}, noted(outcomes["fails"])))
		snoozes := 0
		handle(t, w, "snooze", noted(func(context.Context, *Delivery) error {
			if snoozes++; snoozes <= 5 {
				return Snooze(time.Millisecond)
			}
			return errTest
		}))
		typed := Kind[int]{Name: "typed"}
		must(t, HandleKind(w, typed, func(_ context.Context, n int, d *Delivery) error { r.add("typed %d.", n); return nil }))
		want(t, "a second handler", w.Handle("done", outcomes["done"]), ErrInvalid)
		want(t, "a handler of nothing", w.Handle("", outcomes["done"]), ErrInvalid)
		ids := map[string]int64{}
		for _, kind := range []string{
			"done", "fails", "later", "hour", "discard", "bury", "no text", "panic",
			"once", "by kind", "snooze", "unknown",
		} {
			ids[kind] = enqueue(t, c, Job{Kind: kind})
		}
		ids["by job"] = enqueue(t, c, Job{Kind: "fails", MaxAttempts: 1})
		ids["by job, not kind"] = enqueue(t, c, Job{Kind: "by kind", MaxAttempts: 3})
		ids["typed"] = enqueue(t, c, typed.Job(7))
		ids["not typed"] = enqueue(t, c, Job{Kind: "typed", Payload: []byte(`"x"`)})
		start(t, w)
		want(t, "a handler while it runs", w.Handle("late", outcomes["done"]), ErrInvalid)
		want(t, "running twice", w.Run(t.Context()), ErrClosed)

		failed := "it \ufffdfailed"
		for name, dead := range map[string]struct {
			attempts int
			err      string
		}{
			"fails": {4, failed}, "later": {4, failed}, "bury": {1, failed}, "no text": {1, "buried"},
			"panic": {4, "panic: oh\ufffd\ufffd"}, "by kind": {2, failed},
			"unknown": {1, `no handler for kind "unknown"`}, "by job": {1, failed}, "by job, not kind": {3, failed},
			"not typed": {1, "payload"}, "snooze": {4, failed},
		} {
			i := becomes(t, c, ids[name], admin.StateDead)
			if i.Attempts != dead.attempts || !strings.Contains(i.Error, dead.err) || i.Crashes != 0 {
				t.Errorf("%s: dead after %d attempts: %q", name, i.Attempts, i.Error)
			}
			if stack := strings.Contains(i.Detail, "worker_test.go"); stack != (name == "panic") {
				t.Errorf("%s: the detail is %q", name, i.Detail)
			}
		}
		if i := becomes(t, c, ids["hour"], admin.StateDelayed); i.Attempts != 1 || i.Error != failed || i.At.Sub(i.Enqueued) < 59*time.Minute {
			t.Errorf("hour: %+v", i)
		}
		eventually(t, "the others are gone", func() bool { return rowsOf(t, db) == 1 })
		for line, n := range map[string]int{
			"done 1.": 1, "fails 4.": 1, "once 1.": 1, "once 2.": 1, "once 3.": 0,
			"discard": 1, "snooze 1.": 6, "snooze": 9, "by kind 2.": 2, "hour": 1, "typed 7.": 1,
		} {
			if got := r.count(line); got != n {
				t.Errorf("%q: %d times, not %d", line, got, n)
			}
		}
	})
}

// A handler that ends its goroutine has failed, and neither its worker nor its place
// in it goes with it.
func TestGoexit(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, impatient)
		w := worker(t, c, WorkerOptions{Concurrency: 1})
		var r record
		handle(t, w, "x", func(_ context.Context, d *Delivery) error {
			r.add("x %d", d.Attempt)
			if d.Attempt < 3 {
				runtime.Goexit()
			}
			return nil
		})
		must(t, w.HandleBatch("many", BatchOptions{}, func(context.Context, []*Delivery) error { runtime.Goexit(); return nil }))
		stop := start(t, w)
		enqueue(t, c, Job{Kind: "x"})
		id := enqueue(t, c, Job{Kind: "many", MaxAttempts: 2})
		if i := becomes(t, c, id, admin.StateDead); !strings.Contains(i.Error, "goroutine") {
			t.Errorf("it failed with %q", i.Error)
		}
		r.wants(t, "x 1", "x 2", "x 3")
		empty(t, db)
		stop()
	})
}

// The context of a job ends with its timeout, which is the job's or the queue's; the handler's
// reaction is its outcome. Extend gives more time.
func TestTimeout(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { impatient(q); q.Timeout = 100 * time.Millisecond; q.MaxAttempts = 1 })
		w := worker(t, c, WorkerOptions{})
		until := func(ctx context.Context, _ *Delivery) error {
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, ErrTimeout) {
				t.Errorf("it ends with %v", cause)
			}
			return ctx.Err()
		}
		handle(t, w, "waits", until)
		handle(t, w, "waits, and is done", func(ctx context.Context, d *Delivery) error { _ = until(ctx, d); return nil })
		handle(t, w, "extended", func(ctx context.Context, d *Delivery) error {
			if d.Extend(time.Hour); ctx.Err() != nil {
				return ctx.Err() // that came too late, on a slow machine: once more
			}
			select {
			case <-ctx.Done():
				t.Errorf("it had an hour, and ends with %v", context.Cause(ctx))
			case <-time.After(300 * time.Millisecond): // longer than it had
			}
			return nil
		})
		must(t, w.HandleBatch("batch", BatchOptions{}, func(ctx context.Context, _ []*Delivery) error { return until(ctx, nil) }))
		start(t, w)
		dead := []int64{
			enqueue(t, c, Job{Kind: "waits"}), enqueue(t, c, Job{Kind: "waits", Timeout: time.Millisecond}),
			enqueue(t, c, Job{Kind: "waits", Timeout: 1500 * time.Millisecond}), // has a row of its own by then
			enqueue(t, c, Job{Kind: "batch"}),
		}
		enqueue(t, c, Job{Kind: "waits, and is done"})
		enqueue(t, c, Job{Kind: "extended", MaxAttempts: 1000})
		for _, id := range dead {
			if i := becomes(t, c, id, admin.StateDead); !strings.Contains(i.Error, ErrTimeout.Error()) {
				t.Errorf("it failed with %q", i.Error)
			}
		}
		empty(t, db)
		if n, err := adminOf(c).Count(t.Context(), "", 100); err != nil || n.Dead != len(dead) {
			t.Errorf("%+v: %v", n, err)
		}
	})
}

// The timeout that a stored job has brought is no longer than what its queue takes now.
func TestStoredTimeoutIsCut(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { impatient(q); q.MaxAttempts = 1 })
		id := enqueue(t, c, Job{Kind: "waits", Timeout: time.Hour})
		edit(t, c, func(q *admin.Queue) { q.MaxTimeout = 10 * time.Millisecond })
		w := worker(t, c, WorkerOptions{})
		handle(t, w, "waits", func(ctx context.Context, _ *Delivery) error { <-ctx.Done(); return ctx.Err() })
		start(t, w)
		if i := becomes(t, c, id, admin.StateDead); !strings.Contains(i.Error, ErrTimeout.Error()+": 10ms") || i.Timeout != time.Hour {
			t.Errorf("it failed with %q, and has a timeout of %v", i.Error, i.Timeout)
		}
	})
}

// Batches have all jobs that are there up to their most, and each job its outcome.
func TestBatches(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { impatient(q); q.MaxAttempts = 2 })
		w := worker(t, c, WorkerOptions{Concurrency: 2, Batch: 20})
		var r record
		for kind, h := range map[string]BatchHandler{
			"all":    func(context.Context, []*Delivery) error { return nil },
			"fail":   func(context.Context, []*Delivery) error { return errTest },
			"panics": func(context.Context, []*Delivery) error { panic("oh") },
			"short":  func(_ context.Context, batch []*Delivery) error { return make(Results, len(batch)+1) },
			"some": func(_ context.Context, batch []*Delivery) error {
				each := make(Results, len(batch))
				for i, d := range batch {
					switch string(d.Payload) {
					case "1":
						each[i] = errTest
					case "2":
						each[i] = Bury(errTest)
					case "3":
						each[i] = Discard(errTest)
					}
				}
				return fmt.Errorf("some: %w", each)
			},
		} {
			must(t, w.HandleBatch(kind, BatchOptions{Max: 3}, func(ctx context.Context, batch []*Delivery) error {
				if len(batch) > 3 || len(batch) < 1 || slices.ContainsFunc(batch, func(d *Delivery) bool { return d.Kind != kind }) {
					t.Errorf("%s: a batch of %d", kind, len(batch))
				}
				r.add("%s", kind)
				return h(ctx, batch)
			}))
		}
		must(t, w.HandleBatch("waits", BatchOptions{Max: 7, Wait: time.Hour}, func(_ context.Context, batch []*Delivery) error {
			r.add("waits for %d", len(batch))
			return nil
		}))
		must(t, w.HandleBatch("waits a little", BatchOptions{Wait: 50 * time.Millisecond}, func(context.Context, []*Delivery) error {
			r.add("waited")
			return nil
		}))
		want(t, "a batch of none", w.HandleBatch("none", BatchOptions{Max: -1}, nil), ErrInvalid)
		start(t, w)
		var jobs []Job
		for i := range 6 {
			for _, kind := range []string{"all", "fail", "panics", "short", "some", "waits"} {
				jobs = append(jobs, Job{Kind: kind, Payload: fmt.Append(nil, i)})
			}
		}
		ids := enqueueMany(t, c, append(jobs, Job{Kind: "waits a little"}))
		for i, job := range jobs {
			switch text := string(job.Payload); {
			case job.Kind == "fail", job.Kind == "panics", job.Kind == "short", job.Kind == "some" && text == "1":
				if dead := becomes(t, c, ids[i], admin.StateDead); dead.Attempts != 2 {
					t.Errorf("%s: %+v", job.Kind, dead)
				}
			case job.Kind == "some" && text == "2":
				becomes(t, c, ids[i], admin.StateDead)
			}
		}
		eventually(t, "those that wait are left", func() bool { return rowsOf(t, db) == 6 })
		if n := r.count("waits"); n != 0 {
			t.Error("a batch that is not full has not waited")
		}
		enqueue(t, c, Job{Kind: "waits"})
		empty(t, db)
		if r.count("waits for 7") != 1 || r.count("waited") != 1 {
			t.Errorf("%v", r.all())
		}
	})
}

// Middleware is around all handlers that are set after it, the first outermost.
func TestMiddleware(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		w := worker(t, c, WorkerOptions{})
		var r record
		around := func(name string) Middleware {
			return func(next Handler) Handler {
				return func(ctx context.Context, d *Delivery) error {
					r.add("%s", name)
					defer r.add("end of %s", name)
					return next(ctx, d)
				}
			}
		}
		plain := func(_ context.Context, d *Delivery) error { r.add("%s", d.Kind); return nil }
		handle(t, w, "before", plain)
		w.Use(around("1"), around("2"))
		w.Use(around("3"))
		handle(t, w, "after", plain)
		start(t, w)
		enqueue(t, c, Job{Kind: "before"})
		r.wants(t, "before")
		enqueue(t, c, Job{Kind: "after"})
		r.wants(t, "before", "1", "2", "3", "after", "end of 3", "end of 2", "end of 1")
	})
}

// A paused queue starts nothing, not even jobs read before; running jobs continue. Once
// resumed, it continues where it was.
func TestPause(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		w := worker(t, c, WorkerOptions{Concurrency: 1})
		var r record
		began, goOn := make(chan bool, 100), make(chan bool)
		handle(t, w, "x", func(_ context.Context, d *Delivery) error {
			began <- true
			<-goOn
			r.add("%s", d.Payload)
			return nil
		})
		start(t, w)
		var jobs []Job
		for i := range 9 {
			jobs = append(jobs, Job{Kind: "x", Key: "k", Payload: fmt.Append(nil, i)})
		}
		enqueueMany(t, c, jobs)
		received(t, "the first begins", began)
		must(t, adminOf(c).Pause(t.Context(), defaultQueue, "test"))
		knowsPause(t, w)
		enqueue(t, c, Job{Kind: "x", Key: "k", Payload: []byte("9")})
		goOn <- true
		r.wants(t, "0")
		eventually(t, "the first is written", func() bool { return rowsOf(t, db) == 9 })
		if len(began) > 0 {
			t.Error("another one begins")
		}
		must(t, adminOf(c).Resume(t.Context(), defaultQueue))
		close(goOn)
		r.wants(t, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
		empty(t, db)
	})
}

// With AckEach a place does its next job when the end of the last one is committed;
// a worker AtMostOnce has removed jobs before they begin, and does not repeat them.
func TestPromises(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		for name, opt := range map[string]WorkerOptions{"each": {AckEach: true, Concurrency: 1}, "once": {AtMostOnce: true, Concurrency: 2}} {
			c := client(t, db, Options{})
			w := worker(t, c, opt)
			var r record
			var mu sync.Mutex
			var before int64
			handle(t, w, "x", func(_ context.Context, d *Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				for _, id := range []int64{before, d.ID} {
					if _, err := adminOf(c).Job(t.Context(), "", id); errors.Is(err, ErrNotFound) == (opt.AckEach && id == d.ID) {
						t.Errorf("%s: job %d: %v, while %d runs", name, id, err, d.ID)
					}
				}
				r.add("%s", d.Payload)
				before = d.ID
				if opt.AtMostOnce {
					return errTest
				}
				return nil
			})
			stop := start(t, w)
			var jobs []Job
			for i := range 20 {
				jobs = append(jobs, Job{Kind: "x", Payload: fmt.Append(nil, i), Delay: time.Duration(i%2) * time.Millisecond})
			}
			enqueueMany(t, c, jobs)
			eventually(t, "all are done", func() bool { return r.len() >= 20 })
			empty(t, db)
			stop()
			if r.len() != 20 {
				t.Errorf("%s: %v", name, r.all())
			}
		}
	})
}

// Delayed jobs are done by a worker that reads one job at a time, too.
func TestBatchOfOne(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, impatient)
		w := worker(t, c, WorkerOptions{Batch: 1, Concurrency: 1})
		var r record
		handle(t, w, "x", func(_ context.Context, d *Delivery) error {
			r.add("x")
			if d.Attempt == 1 {
				return errTest
			}
			return nil
		})
		start(t, w)
		for i := range 5 {
			enqueue(t, c, Job{Kind: "x", Delay: time.Duration(i) * time.Millisecond})
		}
		empty(t, db)
		if r.len() != 10 {
			t.Errorf("%d attempts", r.len())
		}
	})
}
