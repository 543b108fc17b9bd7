package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
)

// collect waits until an event of each job has come, and returns them as "kind outcome", in the
// order of jobs and attempts.
func collect(t *testing.T, e *Events, n int) (all []Event) {
	t.Helper()
	timeout := time.After(longWait)
	for len(all) < n {
		select {
		case event := <-e.C:
			all = append(all, event)
		case <-timeout:
			t.Fatalf("%d of %d events", len(all), n)
		}
	}
	slices.SortFunc(all, func(a, b Event) int { return int(a.ID+int64(a.Attempt)-b.ID) - b.Attempt })
	return all
}

// Each end of an attempt is an event, for those who want that kind and outcome. Whoever does
// not receive them keeps no worker waiting.
func TestEvents(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		all, err := c.Events(EventOptions{})
		must(t, err)
		dead, err := c.Events(EventOptions{Kinds: []string{"bury", "fail"}, Outcomes: []string{EventDead}})
		must(t, err)
		deaf, err := c.Events(EventOptions{Buffer: 1})
		must(t, err)
		_, err = c.Events(EventOptions{Outcomes: []string{"well"}})
		want(t, "an unknown outcome", err, ErrInvalid)
		w := worker(t, c, WorkerOptions{})
		w.slow = time.Millisecond
		handle(t, w, "ok", func(context.Context, *Delivery) error { return nil })
		handle(t, w, "discard", func(context.Context, *Delivery) error { return Discard(errTest) })
		handle(t, w, "bury", func(context.Context, *Delivery) error { return Bury(errTest) })
		handle(t, w, "snooze", func(_ context.Context, d *Delivery) error { return Snooze(time.Hour) })
		handle(t, w, "cancel", func(ctx context.Context, d *Delivery) error { <-ctx.Done(); return ctx.Err() })
		must(t, w.HandleWith("fail", RetryPolicy{MaxAttempts: 2, Backoff: func(int, error) time.Duration { return time.Millisecond }},
			func(context.Context, *Delivery) error { return errTest }))
		handle(t, w, "panic", func(context.Context, *Delivery) error { panic("no") })
		var jobs []Job
		for _, kind := range []string{"ok", "discard", "bury", "snooze", "fail", "panic", "cancel"} {
			jobs = append(jobs, Job{Kind: kind, Payload: []byte(`"` + kind + `"`)})
		}
		ids := enqueueMany(t, c, jobs)
		start(t, w)
		becomes(t, c, ids[6], admin.StateRunning)
		must(t, adminOf(c).Cancel(t.Context(), "", ids[6]))
		var got []string
		for _, e := range collect(t, all, 8) {
			got = append(got, fmt.Sprintf("%s %d %s %s %v", e.Kind, e.Attempt, e.Outcome, e.Payload, e.After))
			if good := e.Err == nil; good != (e.Outcome == EventDone) || !good && e.Kind != "panic" && e.Kind != "discard" &&
				e.Kind != "snooze" && e.Kind != "cancel" && e.Err.Error() != errTest.Error() {
				t.Errorf("%s: error %v", e.Kind, e.Err)
			}
		}
		slices.Sort(got)
		for i, is := range []string{
			`bury 1 dead "bury" 0s`, `cancel 1 cancelled "cancel" 0s`, `discard 1 discarded "discard" 0s`, `fail 1 failed "fail" 1ms`,
			`fail 2 dead "fail" 0s`, `ok 1 done "ok" 0s`, `panic 1 failed "panic" `, `snooze 1 snoozed "snooze" 1h0m0s`,
		} {
			if len(got[i]) < len(is) || got[i][:len(is)] != is {
				t.Errorf("got %q, want %q", got[i], is)
			}
		}
		if events := collect(t, dead, 2); events[0].Kind != "bury" || events[1].Kind != "fail" || dead.Dropped() != 0 {
			t.Errorf("got %+v", events)
		}
		// Subscriptions hear of an event one after another, so deaf may hear of the last one after all does.
		eventually(t, "who does not receive misses seven events", func() bool { return deaf.Dropped() == 7 })
		if n := len(deaf.C); n != 1 {
			t.Errorf("nobody receives, yet %d events are kept, want 1", n)
		}
		all.Close()
		all.Close()
		if _, ok := <-all.C; ok {
			t.Error("it is not closed")
		}
		enqueue(t, c, Job{Kind: "bury"})
		collect(t, dead, 1)
	})
}

// A kind's own retry policy says how long to wait, by attempt and error, and how long an attempt
// may take. A Backoff that panics leaves both to the queue.
func TestRetryPolicy(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c, r := client(t, db, Options{}), record{}
		w := worker(t, c, WorkerOptions{})
		type args struct{ N int }
		kind := Kind[args]{Name: "typed"}
		soon := func(attempt int, err error) time.Duration {
			r.add("%d %v", attempt, err)
			return -1
		}
		must(t, HandleKindWith(w, kind, RetryPolicy{MaxAttempts: 4, Backoff: soon}, func(_ context.Context, a args, d *Delivery) error {
			switch d.Attempt {
			case 1:
				return errTest
			case 2:
				panic("no")
			case 3:
				return RetryAfter(0, errTest) // which Backoff is not asked about
			}
			return nil
		}))
		must(t, w.HandleWith("slow", RetryPolicy{MaxAttempts: 1, Timeout: time.Millisecond}, func(ctx context.Context, _ *Delivery) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		must(t, w.HandleWith("bad", RetryPolicy{Backoff: func(int, error) time.Duration { panic("no") }},
			func(context.Context, *Delivery) error { return errTest }))
		must(t, w.HandleBatch("batch", BatchOptions{Retry: RetryPolicy{Backoff: func(_ int, err error) time.Duration {
			if errors.Is(err, errTest) {
				return time.Hour
			}
			return 2 * time.Hour
		}}}, func(context.Context, []*Delivery) error { return errTest }))
		start(t, w)
		one := enqueue(t, c, kind.Job(args{1}))
		late := enqueue(t, c, Job{Kind: "slow"})
		bad := enqueue(t, c, Job{Kind: "bad"})
		if i := becomes(t, c, enqueue(t, c, Job{Kind: "batch"}), admin.StateDelayed); i.At.Sub(i.Enqueued) < time.Hour ||
			i.At.Sub(i.Enqueued) > 100*time.Minute {
			t.Errorf("of the batch: %+v", i)
		}
		if i := becomes(t, c, late, admin.StateDead); !strings.Contains(i.Error, ErrTimeout.Error()) {
			t.Errorf("of the slow one: %q", i.Error)
		}
		becomes(t, c, bad, admin.StateDelayed)
		eventually(t, "the first is done", func() bool {
			_, err := adminOf(c).Job(t.Context(), "", one)
			return errors.Is(err, ErrNotFound)
		})
		if got := r.all(); !slices.Equal(got, []string{"1 " + errTest.Error(), "2 panic: no"}) {
			t.Errorf("got %q", got)
		}
	})
}

// Batches of a typed kind get the payloads that fit, and outcomes of their own.
func TestHandleKindBatch(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c, r := client(t, db, Options{Blocks: 1}), record{}
		kind := Kind[int]{Name: "n"}
		w := worker(t, c, WorkerOptions{Concurrency: 1})
		must(t, HandleKindBatch(w, kind, BatchOptions{Max: 10}, func(_ context.Context, batch []TypedDelivery[int]) error {
			out := make(Results, len(batch))
			for i, d := range batch {
				r.add("%d %s", d.Args, d.Payload)
				if d.Args == 3 {
					out[i] = Bury(errTest)
				}
			}
			return out
		}))
		bad := kind.Job(2)
		bad.Payload = []byte(`"two"`)
		ids := enqueueMany(t, c, []Job{kind.Job(1), bad, kind.Job(3), kind.Job(4)})
		worse := enqueue(t, c, bad)
		start(t, w)
		for _, id := range []int64{ids[1], ids[2], worse} {
			becomes(t, c, id, admin.StateDead)
		}
		eventually(t, "the others are done", func() bool { return len(db.List(t, `SELECT id FROM {prefix}job`, nil)) == 0 })
		got := r.all()
		slices.Sort(got)
		if !slices.Equal(got, []string{"1 1", "3 3", "4 4"}) {
			t.Errorf("got %q", got)
		}
	})
}

// Middleware of a client is around all that enqueues, once.
func TestEnqueueMiddleware(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		const traced = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		c, r := client(t, db, Options{}), record{}
		c.Use(func(next Enqueuer) Enqueuer {
			return func(ctx context.Context, jobs []Job) ([]Enqueued, error) {
				r.add("outer %d", len(jobs))
				jobs = slices.Clone(jobs)
				for i := range jobs {
					jobs[i].Trace = traced
				}
				return next(ctx, jobs)
			}
		}, func(next Enqueuer) Enqueuer {
			return func(ctx context.Context, jobs []Job) ([]Enqueued, error) {
				if jobs[0].Kind == "no" {
					return nil, errTest
				}
				if jobs[0].Kind == "none" {
					return nil, nil
				}
				return next(ctx, jobs)
			}
		})
		must(t, c.Subscribe(t.Context(), "news", "a"))
		job := Job{Kind: "x"}
		enqueue(t, c, job)
		enqueue(t, c, Job{Kind: "x", Unique: "u"})
		enqueueMany(t, c, []Job{job, job})
		tx := db.Begin(t, nil)
		_, wake, err := c.EnqueueTx(t.Context(), tx, job)
		must(t, err)
		must(t, tx.Commit())
		wake()
		_, _, err = c.EnqueueGroup(t.Context(), Group{}, job)
		must(t, err)
		_, err = c.Publish(t.Context(), "news", job)
		must(t, err)
		if got := r.all(); !slices.Equal(got, []string{"outer 1", "outer 1", "outer 2", "outer 1", "outer 1", "outer 1"}) {
			t.Errorf("got %q", got)
		}
		if n := len(db.List(t, `SELECT id FROM {prefix}job WHERE trace = :traced`, sqlrun.Args{"traced": traced})); n != 7 ||
			rowsOf(t, db) != 7 {
			t.Errorf("%d jobs were changed, of %d", n, rowsOf(t, db))
		}
		for _, kind := range []string{"no", "none"} {
			_, err = c.Enqueue(t.Context(), Job{Kind: kind})
			if err == nil || kind == "no" && !errors.Is(err, errTest) {
				t.Errorf("%s: got %v", kind, err)
			}
		}
		if rowsOf(t, db) != 7 {
			t.Error("a refused job was enqueued")
		}
	})
}
