package queue

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// results returns the outcomes of a group's jobs, by id.
func results(t *testing.T, c *Client, group int64) (all []string) {
	t.Helper()
	for r, err := range c.Results(t.Context(), group) {
		must(t, err)
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Kind, r.State, r.Result)))
	}
	return all
}

// counts returns how many of a group's jobs are pending, done, dead and cancelled.
func counts(t *testing.T, c *Client, group int64) string {
	t.Helper()
	g, err := c.Group(t.Context(), group)
	must(t, err)
	return fmt.Sprintf("%s %d %d %d %d", g.State, g.Pending, g.Done, g.Dead, g.Cancelled)
}

// callback is a callback of the kind end.
func end() *Job { return &Job{Kind: "end", Payload: []byte(`{"a":  1}`), Priority: Low} }

// members are jobs of some kinds.
func members(kinds ...string) (jobs []Job) {
	for _, kind := range kinds {
		jobs = append(jobs, Job{Kind: kind})
	}
	return jobs
}

// However the jobs of a group end, it ends after the last one, and its callback is done
// once, and finds what they have made.
func TestGroup(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { impatient(q); q.MaxAttempts = 2 })
		w := worker(t, other(t, db), WorkerOptions{BuryUnknown: true})
		w.slow = 10 * time.Millisecond
		var begun, done record
		hold := make(chan struct{})
		handle(t, w, "done", func(_ context.Context, d *Delivery) error { return d.SetResult(map[string]int{"n": d.Attempt}) })
		handle(t, w, "retried", func(_ context.Context, d *Delivery) error {
			must(t, d.SetResult(d.Attempt))
			if d.Attempt == 1 {
				return errTest
			}
			return nil
		})
		handle(t, w, "dead", func(_ context.Context, d *Delivery) error { return errTest })
		handle(t, w, "discarded", func(context.Context, *Delivery) error { return Discard(errTest) })
		handle(t, w, "completed", func(ctx context.Context, d *Delivery) error {
			must(t, d.SetResult("tx"))
			return inTx(ctx, db, d)
		})
		handle(t, w, "slow", func(ctx context.Context, d *Delivery) error {
			becomes(t, c, d.ID, admin.StateRunning)
			begun.add("slow")
			<-hold
			return nil
		})
		handle(t, w, "end", func(ctx context.Context, d *Delivery) error {
			done.add("%d %s %d %v", d.Callback, d.Payload, d.Priority, results(t, c, d.Callback))
			return errTest
		})
		start(t, w)
		id, all, err := c.EnqueueGroup(t.Context(), Group{Name: "all", Callback: end()},
			members("done", "retried", "dead", "discarded", "completed", "slow", "nobody", "later", "later")...)
		must(t, err)
		if len(all) != 9 || all[0].ID <= id {
			t.Errorf("got %+v", all)
		}
		begun.wants(t, "slow")
		becomes(t, c, all[2].ID, admin.StateDead)
		becomes(t, c, all[6].ID, admin.StateDead)
		for i := 7; i < 9; i++ { // nobody does these either; one is retried and cancelled
			becomes(t, c, all[i].ID, admin.StateDead)
		}
		eventually(t, "all but one have ended", func() bool { return counts(t, c, id) == "sealed 1 3 4 1" })
		must(t, adminOf(c).Pause(t.Context(), defaultQueue, ""))
		knowsPause(t, w)
		must(t, adminOf(c).Retry(t.Context(), "", all[7].ID))
		if got := counts(t, c, id); got != "sealed 2 3 3 1" {
			t.Errorf("with one retried: %s", got)
		}
		must(t, adminOf(c).Cancel(t.Context(), "", all[7].ID))
		if got := counts(t, c, id); got != "sealed 1 3 3 2" || done.len() > 0 {
			t.Errorf("with one cancelled: %s, %v", got, done.all())
		}
		must(t, adminOf(c).Delete(t.Context(), "", all[8].ID))
		close(hold)
		eventually(t, "the group has ended", func() bool { return counts(t, c, id) == "done 0 4 3 2" })
		must(t, adminOf(c).Resume(t.Context(), defaultQueue))
		empty(t, db)
		made := []string{
			`done done {"n":1}`, "retried done 2", "dead dead", "discarded cancelled", `completed done "tx"`,
			"slow done", "nobody dead", "later cancelled", "later dead",
		}
		if got := results(t, c, id); !slices.Equal(got, made) {
			t.Errorf("results:\ngot  %q\nwant %q", got, made)
		}
		eventually(t, "the callback is dead", func() bool { return done.len() >= 2 })
		want := fmt.Sprintf(`%d {"a":  1} %d %v`, id, Low, made)
		if got := done.all(); got[0] != want || got[1] != want {
			t.Errorf("callback:\ngot  %q\nwant %q", got, want)
		}
		g, err := c.Group(t.Context(), id)
		must(t, err)
		if g.Name != "all" || g.Callback == nil || g.Callback.Kind != "end" || string(g.Callback.Payload) != `{"a":  1}` ||
			g.Ended.Before(g.Created) || g.Keep != keepGroup {
			t.Errorf("got %+v", g)
		}
		must(t, c.Seal(t.Context(), id)) // again
		must(t, adminOf(c).Retry(t.Context(), "", all[6].ID))
		becomes(t, c, all[6].ID, admin.StateDead)
		if got := counts(t, c, id); got != "done 0 4 3 2" || done.len() != 2 {
			t.Errorf("after one was retried that had ended: %s, %v", got, done.all())
		}
	})
}

// A group that is open does not end; one that is sealed takes jobs until it has ended,
// and so do its own jobs' handlers.
func TestSeal(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c, callbacks := client(t, db, Options{}), record{}
		w := worker(t, other(t, db), WorkerOptions{})
		handle(t, w, "more", func(ctx context.Context, d *Delivery) error {
			var n int
			must(t, d.Decode(&n))
			if n > 0 {
				_, err := c.Enqueue(ctx, Job{Kind: "more", Payload: fmt.Append(nil, n-1), Group: d.Group})
				return err
			}
			return nil
		})
		handle(t, w, "end", func(_ context.Context, d *Delivery) error { callbacks.add("%s", counts(t, c, d.Callback)); return nil })
		stop := start(t, w)
		id, err := c.NewGroup(t.Context(), Group{Callback: end()})
		must(t, err)
		enqueue(t, c, Job{Kind: "more", Payload: []byte("2"), Group: id})
		eventually(t, "they are done", func() bool { return counts(t, c, id) == "open 0 3 0 0" })
		must(t, c.Seal(t.Context(), id))
		callbacks.wants(t, "done 0 3 0 0")
		_, err = c.Enqueue(t.Context(), Job{Kind: "more", Group: id})
		want(t, "into one that has ended", err, ErrState)
		empty(t, db)
		stop()

		id, err = c.NewGroup(t.Context(), Group{Callback: end()})
		must(t, err)
		enqueueMany(t, c, []Job{
			{Kind: "more", Payload: []byte("10"), Group: id, Delay: time.Millisecond},
			{Kind: "more", Payload: []byte("10"), Group: id, Key: "k"},
		})
		must(t, c.Seal(t.Context(), id))
		enqueue(t, c, Job{Kind: "more", Payload: []byte("0"), Group: id})
		tx := db.Begin(t, nil)
		_, wake, err := c.EnqueueTx(t.Context(), tx, Job{Kind: "more", Payload: []byte("3"), Group: id})
		must(t, err)
		must(t, tx.Commit())
		wake()
		stop = start(t, worker2(t, db, w))
		callbacks.wants(t, "done 0 3 0 0", "done 0 27 0 0")
		stop()

		for _, jobs := range [][]Job{nil, {{Kind: "x", Unique: "u"}}} { // those that have nothing to wait for
			if jobs != nil {
				enqueue(t, c, jobs[0])
			}
			id, _, err := c.EnqueueGroup(t.Context(), Group{Keep: -1}, jobs...)
			must(t, err)
			if got := counts(t, c, id); got != "done 0 0 0 0" {
				t.Errorf("without jobs: %s", got)
			}
		}
	})
}

// worker2 is another worker with the handlers of the first.
func worker2(t *testing.T, db *dbtest.DB, w *Worker) *Worker {
	t.Helper()
	w2 := worker(t, other(t, db), w.opt)
	for kind, h := range w.handlers {
		handle(t, w2, kind, h.one)
	}
	return w2
}

// What cannot be is refused, and leaves nothing behind.
func TestBadGroups(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		for name, g := range map[string]Group{
			"name":            {Name: "a\nb"},
			"keep":            {Keep: 101 * 366 * 24 * time.Hour},
			"callback kind":   {Callback: &Job{}},
			"callback unique": {Callback: &Job{Kind: "x", Unique: "u"}},
			"callback group":  {Callback: &Job{Kind: "x", Group: 7}},
			"callback time":   {Callback: &Job{Kind: "x", RunAt: store.Epoch}},
		} {
			_, err := c.NewGroup(t.Context(), g)
			want(t, name, err, ErrInvalid)
			_, _, err = c.EnqueueGroup(t.Context(), g, Job{Kind: "x"})
			want(t, name, err, ErrInvalid)
		}
		for _, job := range []Job{{Kind: "x", Group: 7}, {Kind: ""}, {Kind: "x", Group: -1}} {
			_, _, err := c.EnqueueGroup(t.Context(), Group{}, Job{Kind: "x"}, job)
			want(t, "a bad job", err, ErrInvalid)
		}
		for _, id := range []int64{7, 1 << 60} {
			_, err := c.Enqueue(t.Context(), Job{Kind: "x", Group: id})
			want(t, "no such group", err, ErrNotFound)
			_, err = c.Group(t.Context(), id)
			want(t, "no such group", err, ErrNotFound)
			want(t, "no such group", c.Seal(t.Context(), id), ErrNotFound)
			want(t, "no such group", c.DeleteGroup(t.Context(), id), ErrNotFound)
		}
		_, err := c.Groups(t.Context(), "old", 0, 10)
		want(t, "state", err, ErrInvalid)
		_, err = c.Groups(t.Context(), GroupOpen, 0, 0)
		want(t, "limit", err, ErrInvalid)
		var n int
		db.Scan(t, `SELECT (SELECT COUNT(*) FROM {prefix}job_group) + (SELECT COUNT(*) FROM {prefix}job_member)`, nil, &n)
		if n += rowsOf(t, db); n != 0 {
			t.Errorf("%d rows are there", n)
		}
	})
}

// A callback that its queue no longer accepts is reported, and the group ends.
func TestCallbackOfADeletedQueue(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		id, err := c.NewGroup(t.Context(), Group{Callback: &Job{Queue: "gone", Kind: "x"}})
		must(t, err)
		enqueue(t, c, Job{Queue: "gone", Kind: "x"})
		db.Do(t, `UPDATE {prefix}queue SET state = 'deleted' WHERE name = 'gone'`, nil)
		must(t, c.Seal(t.Context(), id))
		g, err := c.Group(t.Context(), id)
		must(t, err)
		if g.State != GroupDone || !strings.Contains(g.Error, `"gone"`) || rowsOf(t, db) != 1 {
			t.Errorf("got %+v", g)
		}
	})
}

// Groups are removed when their time is over, and those that were deleted at once, with
// all that belongs to them and nothing else.
func TestOldGroups(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		w := worker(t, c, WorkerOptions{BuryUnknown: true})
		var ids []int64
		for range 4 {
			id, _, err := c.EnqueueGroup(t.Context(), Group{Callback: end()}, members("x", "x")...)
			must(t, err)
			ids = append(ids, id)
		}
		byHand(t, db, fmt.Sprintf(`UPDATE {prefix}job_group SET state = 'done', purge_at = CASE WHEN id = %d THEN %s ELSE %s END WHERE id < %d`, ids[0], ago, ahead, ids[2]))
		must(t, c.DeleteGroup(t.Context(), ids[3]))
		must(t, w.sweeper.sweep(t.Context()))
		left := db.List(t, `SELECT g.id, (SELECT COUNT(*) FROM {prefix}job_member AS m WHERE m.group_id = g.id) FROM {prefix}job_group AS g ORDER BY g.id`, nil)
		if want := []string{fmt.Sprint(ids[1], " 2"), fmt.Sprint(ids[2], " 2")}; !slices.Equal(left, want) {
			t.Errorf("got %q, want %q", left, want)
		}
		wantRows(t, db, "members", `SELECT COUNT(*) FROM {prefix}job_member`, "4")
		handle(t, w, "x", func(_ context.Context, d *Delivery) error { return d.SetResult(1) })
		start(t, w)
		eventually(t, "all are done but the callback", func() bool { return rowsOf(t, db) == 0 })
		_, err := c.Group(t.Context(), ids[3])
		want(t, "a deleted group", err, ErrNotFound)
	})
}

// Wherever the connection of those breaks who make a group, fill and seal it, or of the
// worker that ends it: its callback is enqueued once, after its jobs.
func TestGroupFaults(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, impatient)
		var mu sync.Mutex
		ended := map[int64]map[int64]bool{} // the callbacks, each of which may be done more than once
		callbacks := func(group int64) int {
			mu.Lock()
			defer mu.Unlock()
			return len(ended[group])
		}
		others := other(t, db)
		callback := func(_ context.Context, d *Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			if ended[d.Callback] == nil {
				ended[d.Callback] = map[int64]bool{}
			}
			ended[d.Callback][d.ID] = true
			if got := counts(t, c, d.Callback); got != "done 0 2 0 0" {
				t.Errorf("at its end the group is %s", got)
			}
			return nil
		}
		for call := 1; ; call++ {
			hit := false
			for _, after := range []bool{false, true} {
				fault := &dbtest.Fault{Call: call, After: after}
				broken := db.Broken(t, fault)
				broken.Pool().SetMaxOpenConns(2)
				from := client(t, broken, Options{})
				id, err := from.NewGroup(t.Context(), Group{Callback: end()})
				if hit = hit || err != nil; err != nil {
					continue
				}
				for n := range 2 { // a unique key makes it safe to repeat
					job := Job{Kind: "x", Group: id, Unique: fmt.Sprint(id, n), UniqueFor: time.Hour}
					if _, err := from.Enqueue(t.Context(), job); err != nil {
						hit = true
						_, err = c.Enqueue(t.Context(), job)
						must(t, err)
					}
				}
				if err := from.Seal(t.Context(), id); err != nil {
					hit = true
					must(t, c.Seal(t.Context(), id))
				}
				eventually(t, "its callback is done", func() bool { // what was sent before the cut may be committed late
					w := worker(t, others, WorkerOptions{})
					handle(t, w, "x", func(context.Context, *Delivery) error { return nil })
					handle(t, w, "end", callback)
					must(t, w.RunOnce(t.Context()))
					return callbacks(id) > 0
				})
				if n := callbacks(id); n != 1 {
					t.Errorf("call %d (%v): %d callbacks", call, after, n)
				}
			}
			if !hit {
				break
			}
		}
		// And the worker's own connection.
		var breaks atomic.Bool
		id, _, err := c.EnqueueGroup(t.Context(), Group{Callback: end()}, members("x", "x")...)
		must(t, err)
		for round := 1; ; round++ {
			fault := &dbtest.Fault{Random: func() (bool, bool) { return breaks.Load() && rand.IntN(10) == 0, rand.IntN(2) == 0 }}
			broken := db.Broken(t, fault)
			broken.Pool().SetMaxOpenConns(5)
			w := worker(t, client(t, broken, Options{}), WorkerOptions{Lease: 2 * time.Second})
			handle(t, w, "x", func(context.Context, *Delivery) error { return nil })
			handle(t, w, "end", callback)
			stop := start(t, w)
			breaks.Store(true)
			eventually(t, "the callback is done", func() bool { return callbacks(id) > 0 })
			breaks.Store(false)
			stop()
			if round == 5 {
				break
			}
			if id, _, err = c.EnqueueGroup(t.Context(), Group{Callback: end()}, members("x", "x")...); err != nil {
				t.Fatal(err)
			}
		}
		empty(t, db)
		mu.Lock()
		defer mu.Unlock()
		for id, all := range ended {
			if len(all) != 1 {
				t.Errorf("group %d: %d callbacks", id, len(all))
			}
		}
	})
}

// While many processes add jobs to the same groups, seal and finish them, each callback is
// enqueued once, when no job is pending; and a process that is told that a group has ended has
// added nothing.
func TestGroupsUnderWay(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		var mu sync.Mutex
		var ids []int64
		added, callbacks := map[int64]int{}, map[int64]int{}
		for range 3 {
			w := worker(t, other(t, db), WorkerOptions{})
			handle(t, w, "x", func(context.Context, *Delivery) error { return nil })
			handle(t, w, "end", func(_ context.Context, d *Delivery) error {
				g, err := c.Group(t.Context(), d.Callback)
				mu.Lock()
				defer mu.Unlock()
				if callbacks[d.Callback]++; err != nil || g.Pending != 0 {
					t.Errorf("at its end: %+v, %v", g, err)
				}
				return nil
			})
			start(t, w)
		}
		for range 40 {
			id, err := c.NewGroup(t.Context(), Group{Callback: end()})
			must(t, err)
			ids = append(ids, id)
		}
		var group sync.WaitGroup
		for range 4 {
			from := other(t, db)
			group.Go(func() {
				for i := range ids {
					for range 3 {
						id := ids[max(0, i-rand.IntN(3))]
						_, err := from.EnqueueMany(t.Context(), []Job{{Kind: "x", Group: id}, {Kind: "x", Group: id}})
						switch {
						case err == nil:
							mu.Lock()
							added[id] += 2
							mu.Unlock()
						case !errors.Is(err, ErrState):
							t.Error(err)
						}
					}
					if err := from.Seal(t.Context(), ids[i]); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		empty(t, db)
		eventually(t, "all have ended", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(callbacks) == len(ids)
		})
		empty(t, db)
		mu.Lock()
		defer mu.Unlock()
		for _, id := range ids {
			if got, want := counts(t, c, id), fmt.Sprintf("done 0 %d 0 0", added[id]); got != want || callbacks[id] != 1 {
				t.Errorf("group %d is %s, want %s; %d callbacks", id, got, want, callbacks[id])
			}
		}
	})
}

// A group whose last job's process died before it looked is ended by another.
func TestGroupOfTheDead(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		id, _, err := c.EnqueueGroup(t.Context(), Group{Callback: end()}, members("x")...)
		must(t, err)
		db.Do(t, `DELETE FROM {prefix}job`, nil)
		byHand(t, db, `UPDATE {prefix}job_member SET state = 'done'`)
		var done record
		w := worker(t, other(t, db), WorkerOptions{})
		handle(t, w, "end", func(_ context.Context, d *Delivery) error { done.add("%d", d.Callback); return nil })
		start(t, w)
		done.wants(t, fmt.Sprint(id))
		all, err := c.Groups(t.Context(), GroupDone, 0, 10)
		must(t, err)
		if more, err := c.Groups(t.Context(), GroupDone, id, 10); len(all) != 1 || all[0].ID != id || len(more) != 0 || err != nil {
			t.Errorf("got %+v, %+v, %v", all, more, err)
		}
	})
}

// Large results of many jobs are written, and read again.
func TestLargeResults(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		w := worker(t, other(t, db), WorkerOptions{})
		handle(t, w, "x", func(_ context.Context, d *Delivery) error {
			if err := d.SetResult(strings.Repeat("x", jobfield.LongestResult-1)); !errors.Is(err, ErrInvalid) {
				t.Errorf("too large: %v", err)
			}
			if err := d.SetResult(func() {}); !errors.Is(err, ErrInvalid) {
				t.Errorf("what is no JSON: %v", err)
			}
			if err := d.SetResult(json.RawMessage("\"\xff\"")); !errors.Is(err, ErrInvalid) {
				t.Errorf("what no database takes: %v", err)
			}
			return d.SetResult(strings.Repeat("ä", 400_000/2))
		})
		id, _, err := c.EnqueueGroup(t.Context(), Group{}, members(strings.Split(strings.Repeat("x ", 29)+"x", " ")...)...)
		must(t, err)
		must(t, w.RunOnce(t.Context()))
		n := 0
		for r, err := range c.Results(t.Context(), id) {
			must(t, err)
			if r.State != "done" {
				t.Fatalf("job %d is %s: %s", r.Job, r.State, r.Error)
			}
			var text string
			if must(t, json.Unmarshal(r.Result, &text)); len(text) != 400_000 {
				t.Errorf("%d bytes", len(text))
			}
			if n++; n == 25 {
				break
			}
		}
		if n != 25 {
			t.Errorf("%d results", n)
		}
	})
}

// Jobs that are removed before they are done count as done.
func TestGroupAtMostOnce(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		w := worker(t, other(t, db), WorkerOptions{AtMostOnce: true})
		handle(t, w, "x", func(context.Context, *Delivery) error { return errTest })
		start(t, w)
		id, _, err := c.EnqueueGroup(t.Context(), Group{}, members("x", "x")...)
		must(t, err)
		eventually(t, "it has ended", func() bool { return counts(t, c, id) == "done 0 2 0 0" })
	})
}

// Jobs of groups that are cancelled or retried in bulk count like any.
func TestGroupsInBulk(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		id, _, err := c.EnqueueGroup(t.Context(), Group{Callback: &Job{Queue: "other", Kind: "end"}}, members("dead", "dead", "left", "left")...)
		must(t, err)
		w := worker(t, other(t, db), WorkerOptions{})
		handle(t, w, "dead", func(context.Context, *Delivery) error { return Bury(errTest) })
		handle(t, w, "left", func(context.Context, *Delivery) error { return Snooze(time.Hour) })
		must(t, w.RunOnce(t.Context()))
		if got := counts(t, c, id); got != "sealed 2 0 2 0" {
			t.Errorf("two are dead: %s", got)
		}
		r, err := adminOf(c).Bulk(t.Context(), admin.BulkRetry, admin.Filter{State: admin.StateDead}, admin.BulkOptions{})
		if got := counts(t, c, id); got != "sealed 4 0 0 0" || err != nil {
			t.Errorf("retried: %s, %+v, %v", got, r, err)
		}
		_, err = adminOf(c).Bulk(t.Context(), admin.BulkCancel, admin.Filter{State: admin.StateDelayed}, admin.BulkOptions{})
		must(t, err)
		eventually(t, "all are cancelled", func() bool {
			_ = c.concludeAny(t.Context()) // as workers do, if somebody has held the group's row for a moment
			return counts(t, c, id) == "done 0 0 0 4"
		})
		if n := rowsOf(t, db); n != 1 { // the callback
			t.Errorf("%d jobs are left", n)
		}
	})
}

// In a transaction of the caller's, a group is there if and when that commits.
func TestGroupTx(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		enqueue(t, c, Job{Kind: "x"}) // so that the queue is there
		for _, commits := range []bool{false, true} {
			var id int64
			var wake func()
			err := db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) (err error) {
				if id, _, wake, err = c.EnqueueGroupTx(ctx, tx.Execer(), Group{Callback: end()}, members("x", "x")...); err == nil && !commits {
					err = errTest
				}
				return err
			})
			if !commits {
				want(t, "rolled back", err, errTest)
				_, err = c.Group(t.Context(), id)
				want(t, "rolled back", err, ErrNotFound)
				continue
			}
			must(t, err)
			wake()
			if got := counts(t, c, id); got != "sealed 2 0 0 0" {
				t.Errorf("got %s", got)
			}
		}
	})
}

// What the statements about groups reach.
func TestGroupStatements(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		groups := []string{"1 sealed", "2 sealed", "3 open", "4 done", "5 done", "6 sealed"}
		jobs := []string{"1 11 pending", "1 12 done", "2 21 done", "2 22 dead", "3 31 done", "4 41 done", "4 42 pending", "5 51 done"}
		group := func(id int) sqlrun.Args { return sqlrun.Args{"group": id, "error": "because"} }
		change := func(all []string, from, to string) (changed []string) {
			for _, row := range all {
				if row == from {
					row = to
				}
				if row != "" {
					changed = append(changed, row)
				}
			}
			return changed
		}
		finished := sqlrun.Args{"rows": []sqlrun.Args{{"group_id": 1, "job": 11, "became": "dead", "made": nil, "why": "x"}}}
		for _, test := range []struct {
			name   string
			stmt   *sqlrun.Stmt
			args   sqlrun.Args
			groups []string
			jobs   []string
		}{
			{"finish", store.FinishMembers, finished, groups, change(jobs, "1 11 pending", "1 11 dead x")},
			{
				"finish in another group", store.FinishMembers,
				sqlrun.Args{"rows": []sqlrun.Args{{"group_id": 2, "job": 11, "became": "dead", "made": nil, "why": "x"}}},
				groups, jobs,
			},
			{"seal", store.SealGroup, group(3), change(groups, "3 open", "3 sealed"), jobs},
			{"seal what has ended", store.SealGroup, group(4), groups, jobs},
			{"end with one pending", store.EndGroup, group(1), groups, jobs},
			{"end", store.EndGroup, group(2), change(groups, "2 sealed", "2 done"), jobs},
			{"end what is open", store.EndGroup, group(3), groups, jobs},
			{"end what is empty", store.EndGroup, group(6), change(groups, "6 sealed", "6 done"), jobs},
			{"drop", store.DropGroup, group(1), change(groups, "1 sealed", "1 done"), jobs},
			{"accuse", store.AccuseGroup, group(5), change(groups, "5 done", "5 done because"), jobs},
			{"purge members", store.PurgeMembers, sqlrun.Args{"group": 4, "ids": []int64{41, 51}, "n": 2}, groups, change(jobs, "4 41 done", "")},
			{"purge", store.PurgeGroup, group(4), change(groups, "4 done", ""), jobs},
			{"purge early", store.PurgeGroup, group(5), groups, jobs},
		} {
			db.Do(t, `DELETE FROM {prefix}job_group`, nil)
			db.Do(t, `DELETE FROM {prefix}job_member`, nil)
			byHand(t, db, `INSERT INTO {prefix}job_group (id, state, purge_at) VALUES
				(1, 'sealed', NULL), (2, 'sealed', NULL), (3, 'open', NULL), (4, 'done', `+ago+`), (5, 'done', `+ahead+`), (6, 'sealed', NULL)`,
				`INSERT INTO {prefix}job_member (group_id, job, queue_id, kind, state) VALUES
				(1, 11, 1, 'x', 'pending'), (1, 12, 1, 'x', 'done'), (2, 21, 1, 'x', 'done'), (2, 22, 1, 'x', 'dead'), (3, 31, 1, 'x', 'done'),
				(4, 41, 1, 'x', 'done'), (4, 42, 1, 'x', 'pending'), (5, 51, 1, 'x', 'done')`)
			crew := sqlrun.Args{"rows": []sqlrun.Args{{"group_id": 1}, {"group_id": 2}, {"group_id": 3}, {"group_id": 4}}, "limit": 10}
			for stmt, want := range map[*sqlrun.Stmt][]int64{store.RipeGroups: {2}, store.RipeAny: {2, 6}} {
				ripe, err := sqlrun.Select(t.Context(), &db.Session, stmt, crew, store.ScanID)
				must(t, err)
				if !slices.Equal(ripe, want) {
					t.Errorf("%s: %v, not %v", stmt.Name, ripe, want)
				}
			}
			_, err := db.Exec(t.Context(), test.stmt, test.args)
			must(t, err)
			got := db.List(t, `SELECT id, state, error FROM {prefix}job_group ORDER BY id`, nil)
			if trim(got); !slices.Equal(got, test.groups) {
				t.Errorf("%s: groups %q, not %q", test.name, got, test.groups)
			}
			got = db.List(t, `SELECT group_id, job, state, error FROM {prefix}job_member ORDER BY group_id, job`, nil)
			if trim(got); !slices.Equal(got, test.jobs) {
				t.Errorf("%s: members %q, not %q", test.name, got, test.jobs)
			}
			for id, n := range map[int]int{2: 1, 3: 0, 5: 0} {
				if test.name == "finish" && len(lockOf(t, db, id)) != n {
					t.Errorf("group %d may end: %d", id, n)
				}
			}
		}
	})
}

func trim(all []string) {
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
}

func lockOf(t *testing.T, db *dbtest.DB, group int) []string {
	t.Helper()
	all, err := sqlrun.Select(t.Context(), &db.Session, store.LockGroup, sqlrun.Args{"group": group},
		func(rows *sql.Rows) (text string, err error) {
			var callback sql.NullString
			return "", rows.Scan(&callback)
		})
	must(t, err)
	return all
}

// Those who add to a group and those who end it wait for each other.
func TestGroupLocks(t *testing.T) {
	having(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		byHand(t, db, `INSERT INTO {prefix}job_group (id, state) VALUES (1, 'sealed'), (2, 'sealed')`)
		for _, stmt := range []*sqlrun.Stmt{store.EnterGroup, store.LockGroup} {
			must(t, db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
				var text sql.NullString
				if err := tx.Get(ctx, stmt, sqlrun.Args{"group": 1}, &text); err != nil {
					return err
				}
				wantRows(t, db, stmt.Name, `SELECT id FROM {prefix}job_group WHERE id = 2 {skip_locked}`, "2")
				wantRows(t, db, stmt.Name, `SELECT id FROM {prefix}job_group WHERE id = 1 {skip_locked}`)
				return nil
			}))
		}
	})
}

// A worker, of whatever queue, ends a group as soon as its last job is cancelled by a process that
// has no client: it need not wait for its next look, which is a minute away.
func TestCancelledGroupEnds(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Doorbell: "127.0.0.1:0"})
		w := worker(t, c, WorkerOptions{Queues: []string{"another"}})
		handle(t, w, "end", func(context.Context, *Delivery) error { return nil })
		start(t, w)
		far := client(t, db, Options{Doorbell: "127.0.0.1:0"})
		eventually(t, "the worker hears", func() bool {
			if db.Dialect.Notify == nil {
				return len(known(t, far)) == 1
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.hears != 0
		})
		id, jobs, err := c.EnqueueGroup(t.Context(), Group{Callback: &Job{Queue: "another", Kind: "end"}}, members("x")...)
		must(t, err)
		a, err := admin.New(db.Another(t, dialect.Options{}).DB, admin.Options{})
		must(t, err)
		must(t, a.Cancel(t.Context(), "", jobs[0].ID))
		eventually(t, "the group has ended", func() bool { return counts(t, c, id) == "done 0 0 0 1" })
	})
}
