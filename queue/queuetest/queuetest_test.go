package queuetest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/queuetest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

var errTest = errors.New("it failed")

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// each runs a test on each engine, with a client and a worker of the queue default.
func each(t *testing.T, f func(t *testing.T, db *dbtest.DB, c *queue.Client, w *queue.Worker)) {
	t.Helper()
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		c := queuetest.Client(t, db.DB)
		w, err := c.Worker(queue.WorkerOptions{})
		must(t, err)
		f(t, db, c, w)
	}, (*testing.T).Parallel)
}

func enqueue(t *testing.T, c *queue.Client, jobs ...queue.Job) (ids []int64) {
	t.Helper()
	all, err := c.EnqueueMany(t.Context(), jobs)
	must(t, err)
	for _, e := range all {
		ids = append(ids, e.ID)
	}
	return ids
}

// A failing is a *testing.T that notes with what it has failed.
type failing struct {
	testing.TB
	said string
}

func (t *failing) Helper() {}

func (t *failing) Fatalf(format string, args ...any) {
	t.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// fails runs what must end the test, saying some texts.
func fails(t *testing.T, f func(t testing.TB), texts ...string) {
	t.Helper()
	with := &failing{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(with)
	}()
	<-ended
	for _, text := range texts {
		if !strings.Contains(with.said, text) {
			t.Errorf("%q does not say %q", with.said, text)
		}
	}
	if with.said == "" {
		t.Error("it does not end the test")
	}
}

// What a handler returns becomes an outcome, with its middleware and by its policy.
func TestDo(t *testing.T) {
	w := queuetest.Worker(t)
	wrapped := 0
	w.Use(func(next queue.Handler) queue.Handler {
		return func(ctx context.Context, d *queue.Delivery) error { wrapped++; return next(ctx, d) }
	})
	for kind, err := range map[string]error{
		"done": nil, "fails": errTest, "later": queue.RetryAfter(time.Minute, errTest), "snooze": queue.Snooze(time.Hour),
		"discard": queue.Discard(errTest), "bury": fmt.Errorf("so: %w", queue.Bury(errTest)),
	} {
		must(t, w.Handle(kind, func(context.Context, *queue.Delivery) error { return err }))
	}
	must(t, w.HandleWith("twice", queue.RetryPolicy{MaxAttempts: 2}, func(_ context.Context, d *queue.Delivery) error {
		return fmt.Errorf("attempt %d: %w", d.Attempt, errTest)
	}))
	must(t, w.Handle("panics", func(context.Context, *queue.Delivery) error { panic("oh") }))
	must(t, w.Handle("waits", func(ctx context.Context, d *queue.Delivery) error { <-ctx.Done(); return ctx.Err() }))
	must(t, w.Handle("asks", func(ctx context.Context, d *queue.Delivery) error {
		if d.Left() <= 0 || ctx.Err() != nil || d.Key != "k" || string(d.Payload) != `[1]` || time.Since(d.Enqueued()).Abs() > time.Hour {
			return fmt.Errorf("%+v, left %v", d.Job, d.Left())
		}
		d.Extend(time.Hour)
		if err := queue.Checkpoint(ctx, d, 7); err != nil {
			return err
		}
		return d.CompleteTx(ctx, nil)
	}))
	must(t, queue.HandleKind(w, welcome, func(context.Context, user, *queue.Delivery) error { return nil }))
	must(t, w.HandleBatch("batch", queue.BatchOptions{Max: 2}, func(_ context.Context, batch []*queue.Delivery) error {
		results := make(queue.Results, len(batch))
		results[len(batch)-1] = errTest
		return results
	}))
	for _, c := range []struct {
		kind    string
		attempt int
		want    queuetest.Verdict
		after   time.Duration
	}{
		{"done", 1, queuetest.Done, 0},
		{"fails", 1, queuetest.Retried, 0},
		{"fails", 9, queuetest.Retried, 0},
		{"fails", 10, queuetest.Dead, 0},
		{"later", 1, queuetest.Retried, time.Minute},
		{"later", 10, queuetest.Dead, 0},
		{"snooze", 10, queuetest.Snoozed, time.Hour},
		{"discard", 1, queuetest.Discarded, 0},
		{"bury", 1, queuetest.Dead, 0},
		{"twice", 1, queuetest.Retried, 0},
		{"twice", 2, queuetest.Dead, 0},
		{"panics", 1, queuetest.Retried, 0},
		{"nobody", 1, queuetest.Dead, 0},
		{"batch", 1, queuetest.Retried, 0},
	} {
		o := queuetest.DoAttempt(t, w, c.attempt, queue.Job{Kind: c.kind})
		if o.Verdict != c.want || o.After != c.after || o.Attempt != c.attempt || (o.Err == nil) != (c.want == queuetest.Done) {
			t.Errorf("got %v, want %s", o, c.want)
		}
	}
	if o := queuetest.Do(t, w, queue.Job{Kind: "fails", MaxAttempts: 1}); o.Verdict != queuetest.Dead || !errors.Is(o.Err, errTest) {
		t.Errorf("got %v", o)
	}
	if o := queuetest.Do(t, w, queue.Job{Kind: "panics"}); !strings.Contains(o.Stack, "queuetest_test.go") ||
		!strings.Contains(o.String(), "panic: oh") {
		t.Errorf("got %v", o)
	}
	if o := queuetest.Do(t, w, queue.Job{Kind: "waits", Timeout: time.Millisecond}); o.Verdict != queuetest.Retried ||
		!errors.Is(o.Err, queue.ErrTimeout) {
		t.Errorf("got %v", o)
	}
	if o := queuetest.Do(t, w, queue.Job{Kind: "asks", Key: "k", Payload: []byte(`[1]`)}); o.Verdict != queuetest.Done ||
		!o.Completed || string(o.Progress.State) != "7" {
		t.Errorf("got %v", o)
	}
	if o := queuetest.Do(t, w, queue.Job{Kind: "welcome", Payload: []byte(`[1]`)}); o.Verdict != queuetest.Dead {
		t.Errorf("got %v", o)
	}
	if all := queuetest.DoBatch(t, w, queue.Job{Kind: "batch"}, queue.Job{Kind: "batch"}); all[0].Verdict != queuetest.Done ||
		all[1].Verdict != queuetest.Retried {
		t.Errorf("got %v", all)
	}
	if wrapped != 17 {
		t.Errorf("the middleware was there %d times", wrapped)
	}
	fails(t, func(t testing.TB) { queuetest.Do(t, w, queue.Job{Kind: "done", Payload: []byte("no")}) }, "it is not JSON")
	fails(t, func(t testing.TB) { queuetest.DoBatch(t, w, make([]queue.Job, 3)...) }, "kind: name")
	fails(t, func(t testing.TB) { queuetest.DoBatch(t, w, queue.Job{Kind: "batch"}, queue.Job{Kind: "done"}) }, "jobs of one kind")
	fails(t, func(t testing.TB) {
		queuetest.DoBatch(t, w, queue.Job{Kind: "batch"}, queue.Job{Kind: "batch"}, queue.Job{Kind: "batch"})
	}, "up to 2 jobs")
	fails(t, func(t testing.TB) { queuetest.DoAttempt(t, w, 0, queue.Job{Kind: "done"}) }, "attempts count from 1")
}

// Jobs are found by an example; the message says what there is instead.
func TestEnqueued(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB, c *queue.Client, _ *queue.Worker) {
		fails(t, func(t testing.TB) { queuetest.Enqueued(t, c, queue.Job{Kind: "x"}) }, "0 jobs are like kind \"x\", want 1", "queues: none")
		at := time.Date(2050, 1, 2, 3, 4, 5, 0, time.UTC)
		ids := enqueue(
			t, c,
			queue.Job{Kind: "x", Payload: []byte(`{"b": 12345678901234567890, "a": [1, "ü"]}`), Key: "k"},
			queue.Job{
				Kind: "x", Payload: []byte(`{"a": 2}`), Priority: queue.Urgent, MaxAttempts: 3, Timeout: time.Second,
				Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			},
			queue.Job{Kind: "bytes", Payload: []byte{0, 255}, Binary: true},
			queue.Job{Kind: "y", Delay: 24 * time.Hour},
			queue.Job{Kind: "y", RunAt: at},
			queue.Job{Kind: "y"},
		)
		for i, like := range []queue.Job{
			{Kind: "x", Payload: []byte(`{"a":[1,"\u00fc"],"b":12345678901234567890}`)},
			{
				Kind: "x", Priority: queue.Urgent, MaxAttempts: 3, Timeout: time.Second,
				Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			},
			{Payload: []byte{0, 255}, Binary: true},
			{Kind: "y", Delay: 24 * time.Hour},
			{RunAt: at},
		} {
			if found := queuetest.Enqueued(t, c, like); found.ID != ids[i] {
				t.Errorf("the %dth example finds %+v", i, found)
			}
		}
		for _, like := range []queue.Job{
			{Kind: "X"},
			{Kind: "x", Payload: []byte(`{"b": 12345678901234567891, "a": [1, "ü"]}`)},
			{Kind: "x", Key: "K"},
			{Kind: "x", Priority: queue.Low},
			{Kind: "x", MaxAttempts: 4},
			{Kind: "x", Timeout: time.Minute},
			{Kind: "x", Trace: "00-0af7651916cd43dd8448eb211c80319d-b7ad6b7169203331-01"},
			{Kind: "x", Binary: true},
			{Kind: "y", Delay: time.Hour},
			{RunAt: at.Add(time.Minute)},
			{Kind: "x", Queue: "other"},
		} {
			queuetest.NotEnqueued(t, c, like)
		}
		fails(t, func(t testing.TB) { queuetest.Enqueued(t, c, queue.Job{Kind: "x"}) }, "2 jobs are like kind \"x\", want 1", `payload {"a": 2}`)
		fails(t, func(t testing.TB) { queuetest.NotEnqueued(t, c, queue.Job{Kind: "bytes"}) }, "want none", `delayed `, `"\x00\xff"`)
		fails(t, func(t testing.TB) { queuetest.Enqueued(t, c, queue.Job{Kind: "x", Queue: "mistyped"}) }, "the queue is empty", `"default"`)
		fails(t, func(t testing.TB) { queuetest.Enqueued(t, c, queue.Job{Payload: []byte("no")}) }, "is not JSON")
		if all := queuetest.Jobs(t, c, ""); len(all) != 6 || all[5].State != admin.StateReady || all[3].State != admin.StateDelayed {
			t.Errorf("got %+v", all)
		}
	})
}

// What is due is done in order, in the test's goroutine, with what it enqueues; what is
// due later is done when time has been let pass.
func TestDrain(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB, c *queue.Client, w *queue.Worker) {
		me := goroutine()
		var done []string
		note := func(_ context.Context, d *queue.Delivery) (err error) {
			done = append(done, fmt.Sprintf("%s %s", d.Kind, d.Payload))
			if goroutine() != me {
				err = errors.New("another goroutine")
			}
			return err
		}
		must(t, w.HandleOthers(note))
		must(t, w.Handle("more", func(ctx context.Context, d *queue.Delivery) error {
			_, err := c.Enqueue(ctx, queue.Job{Kind: "last"})
			return errors.Join(err, note(ctx, d))
		}))
		must(t, w.HandleBatch("batch", queue.BatchOptions{Wait: time.Hour}, func(_ context.Context, batch []*queue.Delivery) error {
			done = append(done, fmt.Sprintf("batch of %d", len(batch)))
			return nil
		}))
		if got := queuetest.Drain(t, w); len(got) != 0 {
			t.Errorf("of an empty queue: %v", got)
		}
		jobs := []queue.Job{
			{Kind: "more"},
			{Kind: "later", Delay: 2 * time.Hour},
			{Kind: "sooner", Delay: time.Hour},
			{Kind: "urgent", Priority: queue.Urgent},
		}
		for i := range 300 {
			jobs = append(jobs, queue.Job{Kind: "n", Payload: fmt.Append(nil, i), Key: []string{"", "k"}[i%2]})
		}
		enqueue(t, c, jobs...)
		got := queuetest.Drain(t, w)
		want := []string{"urgent ", "more "}
		for i := range 300 {
			want = append(want, fmt.Sprint("n ", i))
		}
		want = append(want, "last ")
		if len(got) != len(want) || !slices.Equal(done, want) {
			t.Errorf("done %q", done)
		}
		for _, o := range got {
			if o.Verdict != queuetest.Done || o.Attempt != 1 {
				t.Errorf("got %v", o)
			}
		}
		done = nil
		queuetest.Advance(t, c, 59*time.Minute)
		if got := queuetest.Drain(t, w); len(got) != 0 {
			t.Errorf("too early: %v", got)
		}
		queuetest.Advance(t, c, 3*time.Hour)
		enqueue(t, c, queue.Job{Kind: "batch"}, queue.Job{Kind: "batch"})
		queuetest.Drain(t, w)
		if want := []string{"sooner ", "later ", "batch of 2"}; !slices.Equal(done, want) {
			t.Errorf("done %q, not %q", done, want)
		}
		if all := queuetest.Jobs(t, c, ""); len(all) != 0 {
			t.Errorf("left %+v", all)
		}
		if blocks, err := adminOf(c).Blocks(t.Context(), ""); err != nil || blocks[0].Leased {
			t.Errorf("%+v, %v", blocks, err)
		}
	})
}

// With several blocks, too.
func TestDrainBlocks(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB, _ *queue.Client, _ *queue.Worker) {
		c, err := queue.New(db.DB, queue.Options{Blocks: 5})
		must(t, err)
		w, err := c.Worker(queue.WorkerOptions{Batch: 10})
		must(t, err)
		must(t, w.HandleOthers(func(context.Context, *queue.Delivery) error { return nil }))
		ids := enqueue(t, c, threeHundred()...)
		var got []int64
		for _, o := range queuetest.Drain(t, w) {
			got = append(got, o.ID)
		}
		if !slices.Equal(got, ids) {
			t.Errorf("done %v, not %v", got, ids)
		}
		must(t, c.Flush(t.Context()))
	})
}

func threeHundred() []queue.Job {
	jobs := make([]queue.Job, 300)
	for i := range jobs {
		jobs[i] = queue.Job{Kind: "n", Key: []string{"", "k", "l"}[i%3]}
	}
	return jobs
}

// goroutine names the one that calls it.
func goroutine() string {
	var text [64]byte
	return strings.Fields(string(text[:runtime.Stack(text[:], false)]))[1]
}

// A failure ends the test, unless it is told to go on; retries come with time.
func TestDrainFailures(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB, c *queue.Client, w *queue.Worker) {
		_, err := adminOf(c).Edit(t.Context(), "default", func(q *admin.Queue) { q.MaxAttempts = 2 })
		must(t, err)
		must(t, w.Handle("ok", func(context.Context, *queue.Delivery) error { return nil }))
		must(t, w.Handle("fails", func(context.Context, *queue.Delivery) error { return errTest }))
		must(t, w.Handle("snoozes", func(context.Context, *queue.Delivery) error { return queue.Snooze(0) }))
		enqueue(t, c, queue.Job{Kind: "fails"}, queue.Job{Kind: "ok"})
		fails(t, func(t testing.TB) { queuetest.Drain(t, w) }, "after 1 attempts one did not end well",
			`kind "fails"`, "attempt 1: retried: it failed")
		if i := queuetest.Enqueued(t, c, queue.Job{Kind: "fails"}); i.State != admin.StateDelayed || i.Attempts != 1 {
			t.Errorf("%+v", i)
		}
		enqueue(t, c, queue.Job{Kind: "fails"})
		got := queuetest.DrainAll(t, w)
		if len(got) != 2 || got[0].Verdict != queuetest.Done || got[1].Verdict != queuetest.Retried {
			t.Errorf("got %v", got)
		}
		queuetest.Advance(t, c, time.Hour)
		got = queuetest.DrainAll(t, w)
		if len(got) != 2 || got[0].Verdict != queuetest.Dead || got[1].Attempt != 2 {
			t.Errorf("got %v", got)
		}
		for _, i := range queuetest.Jobs(t, c, "") {
			if i.State != admin.StateDead || i.Error != errTest.Error() {
				t.Errorf("%+v", i)
			}
		}
		// A handler that ends the test hands over what there is.
		must(t, w.Handle("ends", func(context.Context, *queue.Delivery) error { runtime.Goexit(); return nil }))
		enqueue(t, c, queue.Job{Kind: "ends", MaxAttempts: 1}, queue.Job{Kind: "ok"})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			queuetest.DrainAll(t, w)
			t.Error("it goes on")
		}()
		<-ended
		if i := queuetest.Enqueued(t, c, queue.Job{Kind: "ends"}); i.State != admin.StateDead {
			t.Errorf("%+v", i)
		}
		if got := queuetest.Drain(t, w); len(got) != 1 {
			t.Errorf("got %v", got)
		}
		fails(t, func(t testing.TB) { queuetest.Advance(t, c, -time.Hour) }, "time does not go back")
	})
}

// A job goes on from what its handler has stored at the attempt before.
func TestDrainProgress(t *testing.T) {
	each(t, func(t *testing.T, _ *dbtest.DB, c *queue.Client, w *queue.Worker) {
		must(t, w.Handle("pages", func(ctx context.Context, d *queue.Delivery) error {
			page, _, err := queue.Resume[int](d)
			if err != nil || page == 2 {
				return err
			}
			if err := d.SetProgress(ctx, queue.Progress{State: fmt.Append(nil, page+1), Percent: 50}); err != nil {
				return err
			}
			return queue.RetryAfter(0, errTest)
		}))
		enqueue(t, c, queue.Job{Kind: "pages", Key: "k"})
		var pages []string
		for _, o := range queuetest.DrainAll(t, w) {
			pages = append(pages, fmt.Sprintf("%d %s %s", o.Attempt, o.Verdict, o.Progress.State))
		}
		if got := strings.Join(pages, ", "); got != "1 retried 1, 2 retried 2, 3 done 2" {
			t.Errorf("got %s", got)
		}
	})
}

// CompleteTx, and a job that is checked out because it takes long.
func TestDrainComplete(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB, c *queue.Client, w *queue.Worker) {
		must(t, w.Handle("tx", func(ctx context.Context, d *queue.Delivery) error {
			tx, err := db.Pool().BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if err := d.CompleteTx(ctx, tx); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		}))
		must(t, w.Handle("slow", func(ctx context.Context, d *queue.Delivery) error {
			d.Extend(time.Millisecond)
			<-ctx.Done()
			return queue.Discard(context.Cause(ctx))
		}))
		enqueue(t, c, queue.Job{Kind: "tx"}, queue.Job{Kind: "slow", Timeout: 1200 * time.Millisecond})
		got := queuetest.Drain(t, w)
		if len(got) != 2 || !got[0].Completed || got[1].Completed || got[1].Verdict != queuetest.Discarded ||
			!errors.Is(got[1].Err, queue.ErrTimeout) {
			t.Errorf("got %v", got)
		}
		if all := queuetest.Jobs(t, c, ""); len(all) != 0 {
			t.Errorf("left %+v", all)
		}
	})
}

// adminOf returns what looks after the queues of a client's database.
func adminOf(c *queue.Client) *admin.Client {
	a, err := admin.New(c.DB(), admin.Options{})
	if err != nil {
		panic(err)
	}
	return a
}
