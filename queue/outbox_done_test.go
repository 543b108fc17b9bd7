package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/rig"
)

// keeps makes the default queue keep done jobs.
func keeps(q *admin.Queue) { q.KeepDone = time.Hour }

// kept lists the jobs that are kept.
func kept(t *testing.T, db *dbtest.DB) []string {
	t.Helper()
	return db.List(t, `SELECT id, kind, outcome, attempt FROM {prefix}job_done ORDER BY id`, nil)
}

// A queue that keeps done jobs has each job once, however it ended, with all its fields; other
// queues keep nothing.
func TestKeepDone(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { impatient(q); keeps(q) })
		group, err := c.NewGroup(t.Context(), Group{})
		must(t, err)
		w := worker(t, c, WorkerOptions{})
		handle(t, w, "plain", func(_ context.Context, d *Delivery) error { return d.SetResult(fmt.Sprint("of ", d.ID)) })
		handle(t, w, "slow", func(ctx context.Context, d *Delivery) error {
			must(t, d.SetProgress(ctx, Progress{State: []byte("out"), Percent: 100}))
			return d.SetResult(fmt.Sprint("of ", d.ID))
		})
		handle(t, w, "second", func(_ context.Context, d *Delivery) error {
			if d.Attempt == 1 {
				must(t, d.SetResult("of an attempt that fails"))
				return errTest
			}
			return nil
		})
		handle(t, w, "discarded", func(_ context.Context, d *Delivery) error {
			must(t, d.SetResult("of a job that is not done"))
			return Discard(errTest)
		})
		handle(t, w, "dead", func(context.Context, *Delivery) error { return Bury(errTest) })
		handle(t, w, "tx", func(ctx context.Context, d *Delivery) error {
			must(t, d.SetResult(fmt.Sprint("of ", d.ID)))
			return inTx(ctx, db, d)
		})
		handle(t, w, "slow tx", func(ctx context.Context, d *Delivery) error {
			must(t, d.SetResult(fmt.Sprint("of ", d.ID)))
			must(t, d.SetProgress(ctx, Progress{Percent: 100}))
			return inTx(ctx, db, d)
		})
		must(t, w.HandleBatch("batch", BatchOptions{Max: 2}, func(context.Context, []*Delivery) error { return nil }))
		must(t, w.HandleOthers(func(context.Context, *Delivery) error { return nil }))
		outcomes := map[string]string{"discarded": "discarded 1", "second": "done 2"}
		var jobs []Job
		for _, kind := range []string{"plain", "slow", "second", "discarded", "tx", "slow tx", "batch", "batch", "delayed"} {
			for _, more := range []Job{
				{},
				{Key: "k"},
				{Unique: "u" + fmt.Sprint(len(jobs))},
				{Group: group, Priority: Urgent},
				{Payload: []byte("\xff"), Binary: true},
			} {
				more.Kind = kind
				if kind == "delayed" {
					more.Delay = time.Millisecond
				}
				if more.Payload == nil {
					more.Payload = []byte(`{"n":  1}`)
				}
				jobs = append(jobs, more)
			}
		}
		jobs = append(jobs, Job{Kind: "dead"})
		ids := enqueueMany(t, c, jobs)
		stop := start(t, w)
		empty(t, db)
		stop()
		var want []string
		for i, id := range ids[:len(ids)-1] {
			outcome := outcomes[jobs[i].Kind]
			if outcome == "" {
				outcome = "done 1"
			}
			want = append(want, fmt.Sprintf("%d %s %s", id, jobs[i].Kind, outcome))
			got := info(t, c, id, admin.StateDone)
			if string(got.Payload) != string(jobs[i].Payload) || got.Binary != jobs[i].Binary || got.Key != jobs[i].Key ||
				got.Unique != jobs[i].Unique || got.Group != jobs[i].Group {
				t.Errorf("%s: %+v is kept as %+v", jobs[i].Kind, jobs[i], got)
			}
			if got.Worker == "" || got.Started.After(got.At) || got.At.Sub(got.Enqueued) < -time.Second ||
				got.Discarded != (got.Error == limitText(errTest.Error(), 100)) {
				t.Errorf("%s: %+v", jobs[i].Kind, got)
			}
			if jobs[i].Kind == "slow" && (string(got.Progress.State) != "out" || got.Progress.Percent != 100) {
				t.Errorf("its progress is %+v", got.Progress)
			}
			result := ""
			if slices.Contains([]string{"plain", "slow", "tx", "slow tx"}, jobs[i].Kind) {
				result = fmt.Sprintf(`"of %d"`, id)
			}
			if string(got.Result) != result {
				t.Errorf("%s: its result is %q, not %q", jobs[i].Kind, got.Result, result)
			}
		}
		if got := kept(t, db); !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		n, err := adminOf(c).Count(t.Context(), "", 1000)
		must(t, err)
		if stats, err := adminOf(c).Stats(t.Context(), "", 1000); n.Done != len(want) || err != nil || len(stats) != 9 {
			t.Errorf("counted: %+v; %+v, %v", n, stats, err)
		}

		if dbtest.Gated() {
			return // migrations leave views out there
		}
		seen := db.List(t, `SELECT id, kind, state, attempt FROM {prefix}v_job WHERE queue = 'default' AND state = 'done' AND worker <> '' AND started_at <= since`, nil)
		if total := db.List(t, `SELECT done_jobs FROM {prefix}v_queue`, nil); len(seen) != len(want) ||
			!slices.Equal(total, []string{fmt.Sprint(len(want))}) {
			t.Errorf("in the views there are %d and %v", len(seen), total)
		}

		edit(t, c, func(q *admin.Queue) { q.KeepDone = 0 })
		enqueueMany(t, c, jobs[:1])
		w = worker(t, c, WorkerOptions{})
		handle(t, w, "plain", func(context.Context, *Delivery) error { return nil })
		must(t, w.RunOnce(t.Context()))
		if got := kept(t, db); len(got) != len(want) {
			t.Errorf("kept, although it was not said: %q", got)
		}
	})
}

// A cancelled job is kept as such, from whatever state, and only in queues that keep jobs.
func TestKeepCancelled(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, keeps)
		runs, ended := make(chan struct{}), make(chan struct{})
		w := worker(t, c, WorkerOptions{})
		handle(t, w, "running", func(ctx context.Context, d *Delivery) error {
			must(t, d.SetProgress(ctx, Progress{Percent: 50}))
			must(t, d.SetResult("of a job that is not done"))
			close(runs)
			<-ctx.Done()
			close(ended)
			return nil
		})
		ids := enqueueMany(t, c, []Job{
			{Kind: "running"},
			{Kind: "ready", Unique: "u", Payload: []byte("1")},
			{Kind: "ready", Priority: Urgent},
			{Kind: "delayed", Delay: time.Hour, Key: "k"},
		})
		stop := start(t, w)
		<-runs
		for _, id := range ids {
			must(t, adminOf(c).Cancel(t.Context(), "", id))
		}
		<-ended
		stop()
		if got, want := kept(t, db), []string{
			fmt.Sprint(ids[0], " running cancelled 1"), fmt.Sprint(ids[1], " ready cancelled 0"),
			fmt.Sprint(ids[2], " ready cancelled 0"), fmt.Sprint(ids[3], " delayed cancelled 0"),
		}; !slices.Equal(got, want) {
			t.Errorf("kept are %q, not %q", got, want)
		}
		for _, id := range ids {
			got := info(t, c, id, admin.StateDone)
			if !got.Cancelled || got.Discarded || !got.Started.IsZero() || got.Result != nil || got.At.IsZero() {
				t.Errorf("%+v", got)
			}
		}
		if got := info(t, c, ids[1], admin.StateDone); got.Unique != "u" || string(got.Payload) != "1" {
			t.Errorf("%+v", got)
		}
		edit(t, c, func(q *admin.Queue) { q.KeepDone = 0 })
		gone := enqueue(t, c, Job{Kind: "ready", Unique: "u"})
		must(t, adminOf(c).Cancel(t.Context(), "", gone))
		if got := kept(t, db); len(got) != len(ids) {
			t.Errorf("kept, although it was not said: %q", got)
		}
	})
}

// Jobs done by other kinds of workers are kept as well: those received and completed, and those
// removed before they run, which are kept from then on.
func TestKeepDoneOfOthers(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, keeps)
		r, err := c.Receiver(t.Context(), WorkerOptions{})
		must(t, err)
		t.Cleanup(func() { _ = r.Close() })
		first := enqueue(t, c, Job{Kind: "x"})
		got, err := r.Receive(t.Context(), 1, longWait)
		must(t, err)
		must(t, r.Complete(t.Context(), got[0]))
		info(t, c, first, admin.StateDone)
		must(t, r.Close())

		w := worker(t, c, WorkerOptions{AtMostOnce: true})
		handle(t, w, "x", func(_ context.Context, d *Delivery) error {
			info(t, c, d.ID, admin.StateDone)
			return errTest
		})
		second := enqueue(t, c, Job{Kind: "x", Unique: "u"})
		must(t, w.RunOnce(t.Context()))
		if got, want := kept(t, db), []string{fmt.Sprint(first, " x done 1"), fmt.Sprint(second, " x done 1")}; !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

// What is kept can be removed, and neither cancelled nor tried again.
func TestDeleteDone(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, keeps)
		ids := enqueueMany(t, c, []Job{{Kind: "x"}, {Kind: "x", Unique: "u"}, {Kind: "y"}, {Kind: "x"}})
		w := worker(t, c, WorkerOptions{})
		must(t, w.HandleOthers(func(context.Context, *Delivery) error { return nil }))
		must(t, w.RunOnce(t.Context()))
		again := enqueue(t, c, Job{Kind: "x", Unique: "u"}) // whose key what is kept does not have
		want(t, "cancelling", adminOf(c).Cancel(t.Context(), "", ids[0]), ErrState)
		want(t, "retrying", adminOf(c).Retry(t.Context(), "", ids[0]), ErrState)
		for _, what := range []admin.BulkAction{admin.BulkRetry, admin.BulkCancel} {
			_, err := adminOf(c).Bulk(t.Context(), what, admin.Filter{State: admin.StateDone}, admin.BulkOptions{})
			want(t, string(what), err, ErrInvalid)
		}
		must(t, adminOf(c).Delete(t.Context(), "", ids[0]))
		want(t, "deleting again", adminOf(c).Delete(t.Context(), "", ids[0]), ErrNotFound)
		bulk(t, c, admin.BulkDelete, admin.Filter{State: admin.StateDone, Kind: "x"}, admin.BulkResult{Done: 2})
		if got := kept(t, db); len(got) != 1 || !strings.Contains(got[0], " y ") {
			t.Errorf("left: %q", got)
		}
		info(t, c, again, admin.StateReady)
		if n := keysOf(t, db); n != 1 {
			t.Errorf("%d keys are in use", n)
		}
	})
}

// Wherever the connection breaks, a job is done and kept once, or is not done yet: never
// neither, and never both.
func TestKeepDoneFaults(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		db.Do(t, "CREATE TABLE kept_effects (job BIGINT NOT NULL)", nil)
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, func(q *admin.Queue) { impatient(q); keeps(q) })
		var fault snag
		broken := fault.over(t, db)
		for call := 1; ; call++ {
			hit := false
			for _, after := range cuts(db) {
				fault.set(call, after)
				handlers := func(on *dbtest.DB) func(w *Worker) {
					return func(w *Worker) {
						handle(t, w, "x", func(context.Context, *Delivery) error { fault.arm(); return nil })
						handle(t, w, "slow", func(ctx context.Context, d *Delivery) error {
							must(t, d.SetResult(d.ID))
							return d.SetProgress(ctx, Progress{Percent: 1})
						})
						handle(t, w, "tx", func(ctx context.Context, d *Delivery) error {
							must(t, d.SetResult(d.ID))
							return withEffect(ctx, on, d)
						})
					}
				}
				ids := enqueueMany(t, c, []Job{{Kind: "x", Unique: "u"}, {Kind: "slow"}, {Kind: "tx", Key: "k"}})
				w := worker(t, client(t, broken, Options{}), WorkerOptions{Lease: 5 * time.Second})
				handlers(broken)(w)
				n := 0
				if err := w.inline(t.Context(), func([]rig.Outcome) bool {
					if n++; n == len(ids) {
						fault.disarm()
					}
					return true
				}); err != nil {
					t.Logf("call %d (%v): %v", call, after, err)
				}
				hit = hit || fault.reached()
				both := db.List(t, `SELECT d.id FROM {prefix}job_done AS d WHERE EXISTS (SELECT 1 FROM {prefix}job AS j WHERE j.id = d.id)
					OR EXISTS (SELECT 1 FROM {prefix}job_running AS j WHERE j.id = d.id) OR EXISTS (SELECT 1 FROM {prefix}job_delayed AS j WHERE j.id = d.id)`, nil)
				if len(both) > 0 {
					t.Errorf("call %d (%v): done, and not done: %v", call, after, both)
				}
				proceed(t, c, handlers(db), func() bool { return rowsOf(t, db) == 0 })
				for i, id := range ids {
					if got := info(t, c, id, admin.StateDone); i > 0 && string(got.Result) != fmt.Sprint(id) {
						t.Errorf("call %d (%v): the result of %s is %q", call, after, got.Kind, got.Result)
					}
				}
				if n := db.List(t, "SELECT COUNT(*) FROM kept_effects", nil); n[0] != "1" {
					t.Errorf("call %d (%v): %s effects", call, after, n[0])
				}
				byHand(t, db, "DELETE FROM {prefix}job_done", "DELETE FROM kept_effects")
			}
			if !hit {
				break
			}
		}
	})
}

// withEffect completes a job in a transaction that does something else, too.
func withEffect(ctx context.Context, db *dbtest.DB, d *Delivery) error {
	tx, err := db.Pool().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO kept_effects VALUES (%d)", d.ID)); err != nil {
		return err
	}
	if err := d.CompleteTx(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}
