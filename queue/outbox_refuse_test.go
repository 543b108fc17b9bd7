package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// refuse makes the database refuse a statement on rows of a table that are of kind bad.
func refuse(t *testing.T, db *dbtest.DB, verb, table string) (allow func()) {
	t.Helper()
	switch {
	case table == "job_refused":
		return db.Refuse(t, verb, table, `NEW.tries > 0`)
	case verb == "DELETE":
		return db.Refuse(t, verb, table, `OLD.kind = 'bad'`)
	}
	return db.Refuse(t, verb, table, `NEW.kind = 'bad'`)
}

// refusedNow lists the jobs whose ends a worker has set aside.
func refusedNow(w *Worker) (ids []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.book.all {
		ids = append(ids, id.ID)
	}
	return ids
}

// kindsLeft lists the kinds of the jobs that are left, in the order of their ids.
func kindsLeft(t *testing.T, db *dbtest.DB) []string {
	t.Helper()
	return db.List(t, `SELECT kind FROM (
		SELECT id, kind FROM {prefix}job UNION ALL SELECT id, kind FROM {prefix}job_delayed UNION ALL SELECT id, kind FROM {prefix}job_running
	) AS jobs ORDER BY id`, nil)
}

// One job whose end the database refuses keeps no other job of its block from being read, run
// and ended, except those of its key, which continue in order when it is no longer refused.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name, verb, table string
		set               func(*admin.Queue)
		opt               WorkerOptions
		bad               func(d *Delivery) error
		grouped, batches  bool
		want              []string // what is done of the key
	}{
		{name: "done", verb: "DELETE", table: "job"},
		{name: "each", verb: "DELETE", table: "job", opt: WorkerOptions{AckEach: true}},
		{name: "batch", verb: "DELETE", table: "job", batches: true},
		{name: "kept", verb: "INSERT", table: "job_done", set: keeps},
		{name: "group", verb: "UPDATE", table: "job_member", grouped: true},
		{name: "once", verb: "DELETE", table: "job", opt: WorkerOptions{AtMostOnce: true}},
		{name: "dead", verb: "INSERT", table: "job_dead", bad: func(*Delivery) error { return Bury(errTest) }},
		{
			name: "retry", verb: "INSERT", table: "job_delayed", want: []string{"bad 1", "bad 2", "after 1", "last 1"},
			bad: func(d *Delivery) error {
				if d.Attempt == 1 {
					return errTest
				}
				return nil
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, db *dbtest.DB) {
				allow := refuse(t, db, c.verb, c.table)
				cl := client(t, db, Options{Blocks: 1})
				edit(t, cl, func(q *admin.Queue) {
					impatient(q)
					if c.set != nil {
						c.set(q)
					}
				})
				group := int64(0)
				if c.grouped {
					var err error
					group, err = cl.NewGroup(t.Context(), Group{})
					must(t, err)
				}
				var r record
				did := func(d *Delivery) error {
					if d.Key == "k" {
						r.add("%s %d", d.Kind, d.Attempt)
					}
					if d.Kind == "bad" && c.bad != nil {
						return c.bad(d)
					}
					return nil
				}
				w := worker(t, cl, c.opt)
				for _, kind := range []string{"good", "bad", "after", "last"} {
					if c.batches {
						must(t, w.HandleBatch(kind, BatchOptions{Max: 10}, func(_ context.Context, all []*Delivery) error {
							for _, d := range all {
								_ = did(d)
							}
							return nil
						}))
						continue
					}
					handle(t, w, kind, func(_ context.Context, d *Delivery) error { return did(d) })
				}
				jobs := slices.Repeat([]Job{{Kind: "good", Group: group}}, 20)
				jobs[5], jobs[9] = Job{Kind: "bad", Key: "k", Group: group}, Job{Kind: "after", Key: "k", Group: group}
				jobs[7].Key, jobs[8].Key = "other", "other"
				enqueueMany(t, cl, jobs)
				start(t, w)
				eventually(t, "all others are done", func() bool { return slices.Equal(kindsLeft(t, db), []string{"bad", "after"}) })
				enqueueMany(t, cl, []Job{{Kind: "last", Key: "k"}, {Kind: "good"}, {Kind: "good", Key: "other"}})
				eventually(t, "what comes is done", func() bool { return slices.Equal(kindsLeft(t, db), []string{"bad", "after", "last"}) })
				if n := r.count("last"); n > 0 {
					t.Errorf("a job begins behind one of its key that has no end: %q", r.all())
				}
				if c.opt.AtMostOnce && r.len() > 0 {
					t.Errorf("a job begins that could not be removed before: %q", r.all())
				}
				allow()
				empty(t, db)
				want := c.want
				if want == nil {
					want = []string{"bad 1", "after 1", "last 1"}
				}
				r.wants(t, want...)
				eventually(t, "nothing is refused any more", func() bool { return len(refusedNow(w)) == 0 })
			})
		})
	}
}

// A running job continues in place if the database refuses to check it out. One on trial does
// not begin until it has been checked out.
func TestRefusedCheckOut(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		allow := refuse(t, db, "INSERT", "job_running")
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, impatient)
		w := worker(t, c, WorkerOptions{})
		w.slow = 0
		var r record
		hold := make(chan struct{})
		for _, kind := range []string{"good", "bad"} {
			handle(t, w, kind, func(_ context.Context, d *Delivery) error {
				r.add("%s", d.Kind)
				<-hold
				return nil
			})
		}
		handle(t, w, "quick", nothing)
		start(t, w)
		bad := enqueue(t, c, Job{Kind: "bad"})
		good := enqueueMany(t, c, []Job{{Kind: "good"}, {Kind: "good"}, {Kind: "good"}})
		for _, id := range good {
			becomes(t, c, id, admin.StateRunning)
		}
		quick := enqueue(t, c, Job{Kind: "quick"})
		eventually(t, "what comes is done", func() bool { return !slices.Contains(kindsLeft(t, db), "quick") })
		if i := info(t, c, bad, admin.StateReady); i.ID == quick {
			t.Errorf("it is %+v", i)
		}
		close(hold)
		empty(t, db)
		if n := r.count("bad"); n != 1 {
			t.Errorf("it began %d times", n)
		}
		allow()
	})
}

// See above.
func TestRefusedTrial(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		allow := refuse(t, db, "INSERT", "job_running")
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, impatient)
		enqueueMany(t, c, []Job{{Kind: "good"}, {Kind: "bad", Key: "k"}, {Kind: "good"}, {Kind: "good", Key: "k"}})
		ghost(t, db, "dead", time.Hour)
		db.Do(t, `UPDATE {prefix}queue_block SET state = 'LEASED', lock_by = 'dead', fence = fence + 1, batch = 100`, nil)
		db.Do(t, `UPDATE {prefix}node SET state = 'lost' WHERE name = 'dead'`, nil)
		w := worker(t, c, WorkerOptions{})
		var r record
		for _, kind := range []string{"good", "bad"} {
			handle(t, w, kind, func(_ context.Context, d *Delivery) error { r.add("%s%s", d.Kind, d.Key); return nil })
		}
		start(t, w)
		eventually(t, "the others are done", func() bool { return slices.Equal(kindsLeft(t, db), []string{"bad", "good"}) })
		enqueue(t, c, Job{Kind: "good"})
		eventually(t, "what comes is done", func() bool { return r.count("good") == 3 && rowsOf(t, db) == 2 })
		if r.count("bad") > 0 {
			t.Errorf("a job on trial begins without its row: %q", r.all())
		}
		allow()
		empty(t, db)
		r.wants(t, "good", "good", "good", "badk", "goodk")
	})
}

// A caller that reports the outcome of a received job is told that the database refuses it.
func TestRefusedReceived(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, impatient)
		r := receiver(t, c, WorkerOptions{Grace: time.Millisecond})
		for _, of := range []struct {
			verb, table string
			err         error
		}{{"DELETE", "job", nil}, {"INSERT", "job_dead", Bury(errTest)}, {"INSERT", "job_delayed", Snooze(time.Hour)}} {
			allow := refuse(t, db, of.verb, of.table)
			enqueueMany(t, c, []Job{{Kind: "good"}, {Kind: "bad"}, {Kind: "good"}})
			var all []Outcome
			for _, d := range receive(t, r, 3) {
				all = append(all, Outcome{d, of.err})
			}
			for i, err := range r.Settle(t.Context(), all) {
				target := error(nil)
				if all[i].Delivery.Kind == "bad" {
					target = ErrRefused
				}
				want(t, of.table+" "+all[i].Delivery.Kind, err, target)
			}
			allow()
			eventually(t, "it ends", func() bool { return len(refusedNow(r.w)) == 0 })
			byHand(t, db, `DELETE FROM {prefix}job_delayed`)
			empty(t, db)
		}
	})
}

// The same for jobs that another process has given out: the others end.
func TestRefusedClaims(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		allow := refuse(t, db, "DELETE", "job")
		c, elsewhere := client(t, db, Options{Blocks: 1}), client(t, db, Options{Blocks: 1})
		edit(t, c, impatient)
		r := receiver(t, c, WorkerOptions{Grace: -1})
		checksOut(r.w, time.Hour)
		enqueueMany(t, c, []Job{{Kind: "good"}, {Kind: "bad"}, {Kind: "good"}, {Kind: "good"}, {Kind: "good"}})
		var all []ClaimOutcome
		var bad Claim
		for i, d := range receive(t, r, 5) {
			o := ClaimOutcome{Claim: d.Claim()}
			if d.Kind == "bad" {
				bad = o.Claim
			}
			if i == 4 {
				o.Err = Bury(errTest)
			}
			all = append(all, o)
		}
		for i, err := range elsewhere.SettleClaims(t.Context(), all) {
			target := error(nil)
			if all[i].Claim == bad {
				target = ErrRefused
			}
			want(t, fmt.Sprint("job ", i), err, target)
		}
		wantRows(t, db, "left", `SELECT kind FROM {prefix}job`, "bad")
		wantRows(t, db, "dead", `SELECT kind FROM {prefix}job_dead`, "good")
		allow()
		must(t, settle(t, elsewhere, bad, nil))
		empty(t, db)
	})
}

// People see which jobs are refused, by a row that goes when the job is refused no more. A worker
// that cannot write such rows does without.
func TestRefusedIsShown(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		w := worker(t, c, WorkerOptions{})
		handle(t, w, "good", nothing)
		handle(t, w, "bad", nothing)
		start(t, w)
		allow := refuse(t, db, "DELETE", "job")
		bad := enqueue(t, c, Job{Kind: "bad"})
		eventually(t, "there is a row", func() bool { return info(t, c, bad, admin.StateReady).Refused != nil })
		got := *info(t, c, bad, admin.StateReady).Refused
		if got.Job != bad || got.Queue != defaultQueue || got.Kind != "bad" || got.What != "done" ||
			!strings.Contains(got.Error, "not this one") ||
			got.Worker != nameOf(w) || got.Tries < 1 || got.Since.IsZero() || got.Last.Before(got.Since) {
			t.Errorf("it says %+v", got)
		}
		for _, list := range []func() ([]admin.Refusal, error){
			func() ([]admin.Refusal, error) { return adminOf(c).Refusals(t.Context(), "", 10) },
			func() ([]admin.Refusal, error) { return adminOf(c).AllRefusals(t.Context(), 10) },
		} {
			if all, err := list(); err != nil || !slices.Equal(all, []admin.Refusal{got}) {
				t.Errorf("listed are %+v, %v", all, err)
			}
		}
		db.Do(t, `UPDATE {prefix}job_refused SET last_at = {now + -60000000}`, nil)
		must(t, c.sweepRefusals(t.Context()))
		wantRows(t, db, "rows that are not stale", `SELECT kind FROM {prefix}job_refused`, "bad")
		db.Do(t, `UPDATE {prefix}job_refused SET last_at = {now + -600000000}, worker = 'gone'`, nil)
		must(t, c.sweepRefusals(t.Context()))
		wantRows(t, db, "stale rows", `SELECT kind FROM {prefix}job_refused`)
		w.mu.Lock()
		for _, r := range w.book.all { // a minute later
			r.told = 1
		}
		w.mu.Unlock()
		must(t, w.book.writeBook(t.Context()))
		wantRows(t, db, "rows", `SELECT kind FROM {prefix}job_refused`, "bad")
		allow()
		empty(t, db)
		eventually(t, "the row is gone", func() bool { all, err := adminOf(c).AllRefusals(t.Context(), 10); return err == nil && len(all) == 0 })

		allowRows := refuse(t, db, "INSERT", "job_refused")
		allow = refuse(t, db, "DELETE", "job")
		enqueue(t, c, Job{Kind: "bad"})
		eventually(t, "it is refused", func() bool { return len(refusedNow(w)) == 1 })
		enqueue(t, c, Job{Kind: "good"})
		eventually(t, "the other is done", func() bool { return slices.Equal(kindsLeft(t, db), []string{"bad"}) })
		wantRows(t, db, "rows", `SELECT kind FROM {prefix}job_refused`)
		byHand(t, db, `DROP TABLE {prefix}job_refused`)
		if _, err := adminOf(c).Find(t.Context(), 1); err == nil {
			t.Error("there is a job 1")
		}
		allow()
		empty(t, db)
		_ = allowRows
	})
}

// A stopping worker does not wait for refused outcomes: it says so, and the block's next holder
// runs the job again.
func TestRefusedAtTheEnd(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		allow := refuse(t, db, "DELETE", "job")
		c := client(t, db, Options{Blocks: 1})
		var r record
		begin := func() (*Worker, func()) {
			w := worker(t, c, WorkerOptions{Grace: 2 * longWait})
			for _, kind := range []string{"bad", "next"} {
				handle(t, w, kind, func(_ context.Context, d *Delivery) error { r.add("%s", d.Kind); return nil })
			}
			return w, start(t, w)
		}
		w, stop := begin()
		enqueueMany(t, c, []Job{{Kind: "bad", Key: "k"}, {Kind: "next", Key: "k"}})
		eventually(t, "it is refused", func() bool { return len(refusedNow(w)) > 0 })
		stop()
		wantRows(t, db, "rows of what is refused", `SELECT kind FROM {prefix}job_refused`)
		if got := kindsLeft(t, db); !slices.Equal(got, []string{"bad", "next"}) {
			t.Errorf("left are %q", got)
		}
		before := r.count("bad")
		_, _ = begin()
		eventually(t, "it is done again", func() bool { return r.count("bad") > before })
		allow()
		empty(t, db)
	})
}

// A delayed job that cannot be moved to a new block stays in its old one, and keeps no other there.
func TestRefusedForward(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		w := worker(t, client(t, db, Options{}), WorkerOptions{})
		world(t, db)
		byHand(t, db, `DELETE FROM {prefix}job_delayed`, `INSERT INTO {prefix}job_delayed (queue_id, divided, id, kind, run_at) VALUES
			(1, 3, 21, 'x', `+ahead+`), (1, 3, 22, 'bad', `+ahead+`), (1, 3, 23, 'x', `+ahead+`), (1, 3, 24, 'x', `+ahead+`)`)
		allow := refuse(t, db, "INSERT", "job_delayed")
		b := blockThree(w)
		b.q.blocks = map[int]*tenure{3: b}
		w.lease.node = "me"
		forward := func() {
			t.Helper()
			must(t, w.forward(t.Context(), b.q, store.Generation{Number: 2, First: 5, Blocks: 1}, []store.BlockRow{{Divided: 3}}))
		}
		where := func(want ...string) {
			t.Helper()
			wantRows(t, db, "jobs", `SELECT id, divided FROM {prefix}job_delayed ORDER BY id`, want...)
		}
		forward()
		where("21 5", "22 3", "23 5", "24 5")
		must(t, w.book.writeBook(t.Context()))
		wantRows(t, db, "refused", `SELECT id, divided, kind, what, worker FROM {prefix}job_refused`, "22 3 bad forward me")
		byHand(t, db, `INSERT INTO {prefix}job_delayed (queue_id, divided, id, kind, run_at) VALUES (1, 3, 25, 'x', `+ahead+`)`)
		forward()
		where("21 5", "22 3", "23 5", "24 5", "25 5")
		allow()
		w.mu.Lock()
		w.book.stuck[b][22].Next = 0
		w.mu.Unlock()
		forward()
		where("21 5", "22 5", "23 5", "24 5", "25 5")
		must(t, w.book.writeBook(t.Context()))
		wantRows(t, db, "refused", `SELECT id FROM {prefix}job_refused`)
	})
}

// Of two delayed jobs with one id that belong to one block since the number of blocks was changed, the second
// stays where it is. That is told, until it has moved.
func TestTwinsAreTold(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		w := worker(t, client(t, db, Options{}), WorkerOptions{})
		world(t, db)
		byHand(t, db, `DELETE FROM {prefix}job_delayed`, `INSERT INTO {prefix}job_delayed (queue_id, divided, id, kind, run_at) VALUES
			(1, 3, 21, 'x', `+ahead+`), (1, 3, 22, 'second', `+ahead+`), (1, 5, 22, 'first', `+ahead+`)`)
		b := blockThree(w)
		b.q.blocks = map[int]*tenure{3: b}
		w.lease.node = "me"
		forward := func(want ...string) {
			t.Helper()
			must(t, w.forward(t.Context(), b.q, store.Generation{Number: 2, First: 5, Blocks: 1}, []store.BlockRow{{Divided: 3}}))
			must(t, w.book.writeBook(t.Context()))
			wantRows(t, db, "told", `SELECT id, divided, kind, what FROM {prefix}job_refused`, want...)
		}
		forward("22 3 second forward")
		wantRows(t, db, "why", `SELECT id FROM {prefix}job_refused WHERE error LIKE 'a delayed job has the same id, 22, in block 5%'`, "22")
		byHand(t, db, `DELETE FROM {prefix}job_delayed WHERE divided = 5 AND id = 22`)
		w.mu.Lock()
		w.book.stuck[b][22].Next = 0
		w.mu.Unlock()
		forward()
		wantRows(t, db, "jobs", `SELECT id, divided FROM {prefix}job_delayed ORDER BY id`, "21 5", "22 5")
	})
}

// A group that cannot be ended does not block others, even if nobody attends to it.
func TestRefusedGroupEnd(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		allow := refuse(t, db, "INSERT", "job")
		c := client(t, db, Options{})
		for _, kind := range []string{"bad", "good"} {
			id, err := c.NewGroup(t.Context(), Group{Callback: &Job{Kind: kind}})
			must(t, err)
			db.Do(t, `UPDATE {prefix}job_group SET state = 'sealed' WHERE id = :id`, sqlrun.Args{"id": id})
		}
		if err := c.concludeAny(t.Context()); err == nil {
			t.Error("it is not refused")
		}
		wantRows(t, db, "callbacks", `SELECT kind FROM {prefix}job`, "good")
		allow()
		must(t, c.concludeAny(t.Context()))
		wantRows(t, db, "callbacks", `SELECT kind FROM {prefix}job ORDER BY kind`, "bad", "good")
	})
}
