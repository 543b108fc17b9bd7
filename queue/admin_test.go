package queue

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Settings come back as they were set, and invalid ones are not stored.
func TestEdit(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c, far := client(t, db, Options{Blocks: 3}), other(t, db)
		_, err := adminOf(c).Queue(t.Context(), "q")
		want(t, "none", err, ErrNotFound)
		want(t, "pausing none", adminOf(c).Pause(t.Context(), "q", ""), ErrNotFound)
		want(t, "resuming none", adminOf(c).Resume(t.Context(), "q"), ErrNotFound)
		if all, err := adminOf(c).Queues(t.Context(), "", 10); err != nil || len(all) != 0 {
			t.Errorf("queues: %v, %v", all, err)
		}
		for name, bad := range map[string]func(*admin.Queue){
			"state":            func(q *admin.Queue) { q.State = "Active" },
			"no state":         func(q *admin.Queue) { q.State = "" },
			"key_retry":        func(q *admin.Queue) { q.KeyRetry = "" },
			"attempts":         func(q *admin.Queue) { q.MaxAttempts = 0 },
			"many attempts":    func(q *admin.Queue) { q.MaxAttempts = 1_000_001 },
			"crashes":          func(q *admin.Queue) { q.MaxCrashes = 0 },
			"payload":          func(q *admin.Queue) { q.MaxPayload = 0 },
			"large payload":    func(q *admin.Queue) { q.MaxPayload = 1<<30 + 1 },
			"delay":            func(q *admin.Queue) { q.RetryDelay = -1 },
			"long delay":       func(q *admin.Queue) { q.RetryDelay, q.RetryMaxDelay = plain.LongestDuration+1, plain.LongestDuration+1 },
			"max below delay":  func(q *admin.Queue) { q.RetryDelay, q.RetryMaxDelay = 2, 1 },
			"timeout":          func(q *admin.Queue) { q.Timeout = -1 },
			"long timeout":     func(q *admin.Queue) { q.Timeout = plain.LongestDuration + 1 },
			"longest timeout":  func(q *admin.Queue) { q.MaxTimeout = -1 },
			"no share":         func(q *admin.Queue) { q.OriginShare = 0 },
			"large share":      func(q *admin.Queue) { q.OriginShare = 101 },
			"keep":             func(q *admin.Queue) { q.KeepDead = plain.LongestDuration + 1 },
			"keep max":         func(q *admin.Queue) { q.KeepDeadMax = -1 },
			"keep too many":    func(q *admin.Queue) { q.KeepDeadMax = 1_000_001 },
			"poll_min":         func(q *admin.Queue) { q.PollMin = 0 },
			"poll_max":         func(q *admin.Queue) { q.PollMax = q.PollMin - 1 },
			"poll_max, a year": func(q *admin.Queue) { q.PollMax = 365 * 24 * time.Hour },
			"notify":           func(q *admin.Queue) { q.Notify = "somebody" },
			"notify, command":  func(q *admin.Queue) { q.Notify = "command:true" },
			"notify, password": func(q *admin.Queue) { q.Notify = "https://ada:secret@example.org/" },
			"notify, bytes":    func(q *admin.Queue) { q.Notify = "https://example.org/\xff" },
			"notify, long":     func(q *admin.Queue) { q.Notify = strings.Repeat(" ", 16_001) },
		} {
			_, err := adminOf(c).Edit(t.Context(), "q", bad)
			want(t, name, err, ErrInvalid)
		}
		_, err = adminOf(c).Edit(t.Context(), "q ", impatient)
		want(t, "a name with a blank", err, ErrInvalid)
		_, err = adminOf(c).Queue(t.Context(), "q")
		want(t, "made by that", err, ErrNotFound)
		was, err := adminOf(c).Edit(t.Context(), "q", func(*admin.Queue) {})
		must(t, err)
		if was.State != "active" || was.MaxAttempts != 10 || was.Blocks != 3 || was.KeepDead != 90*24*time.Hour {
			t.Errorf("as it is made: %+v", was)
		}
		for _, set := range []func(*admin.Queue){
			func(q *admin.Queue) {
				q.State, q.Reason, q.KeyRetry, q.MaxAttempts, q.MaxCrashes, q.MaxPayload = "paused", "it's \\ \"so\" 😀", "pass", 7, 8, 9
				q.RetryDelay, q.RetryMaxDelay, q.Timeout, q.KeepDead = 1, plain.LongestDuration, time.Hour+time.Nanosecond, 0
				q.PollMin, q.PollMax, q.KeepDeadMax, q.MaxTimeout, q.OriginShare = time.Millisecond, time.Hour, 5, 0, 20
				q.Notify = "ada@example.org, https://example.org/in?a='b'"
			},
			func(q *admin.Queue) { q.RetryDelay, q.RetryMaxDelay, q.Timeout, q.KeepDead = 0, 0, 0, -1 },
			func(q *admin.Queue) { q.KeepDead, q.State, q.Reason = 25*time.Hour+time.Second, "deleted", "" },
			func(q *admin.Queue) { q.State, q.Notify = "active", "" },
		} {
			expect := was
			set(&expect)
			got, err := adminOf(c).Edit(t.Context(), "q", set)
			must(t, err)
			read, err := adminOf(far).Queue(t.Context(), "q")
			must(t, err)
			was = read
			if !reflect.DeepEqual(got, expect) || !reflect.DeepEqual(read, expect) {
				t.Errorf("set   %+v\ngot   %+v\nthere %+v", expect, got, read)
			}
		}
		for _, name := range []string{"b", "ä", "a", "B"} {
			_, err := adminOf(c).Edit(t.Context(), name, impatient)
			must(t, err)
		}
		var names []string
		for after := ""; ; {
			part, err := adminOf(c).Queues(t.Context(), after, 2)
			must(t, err)
			for _, q := range part {
				names = append(names, q.Name)
			}
			if len(part) < 2 {
				break
			}
			after = names[len(names)-1]
		}
		if !slices.Equal(names, []string{"B", "a", "b", "q", "ä"}) { // by bytes
			t.Errorf("queues: %q", names)
		}
	})
}

// Paging through the jobs of each state shows each once, whatever their priorities
// and blocks.
func TestJobs(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		_, _, err := adminOf(c).Jobs(t.Context(), admin.Filter{})
		want(t, "no queue", err, ErrNotFound)
		var jobs []Job
		for i := range 60 {
			j := Job{Kind: fmt.Sprint("kind ", i%3), Priority: Low, Key: []string{"", "a", "b"}[i/5%3], Payload: fmt.Append(nil, i)}
			if i >= 15 {
				j.Priority = Urgent + i%2
			}
			jobs = append(jobs, j)
		}
		ids := enqueueMany(t, c, jobs)
		for i := range jobs {
			jobs[i].Delay = time.Hour
		}
		delayed := enqueueMany(t, c, jobs)
		list := func(f admin.Filter) (all []int64) {
			t.Helper()
			for range 200 {
				part, more, err := adminOf(c).Jobs(t.Context(), f)
				must(t, err)
				for _, i := range part {
					all = append(all, i.ID)
					if i.Queue != defaultQueue || len(i.Payload) == 0 || f.State != "" && i.State != f.State {
						t.Errorf("%+v: listed %+v", f, i)
					}
				}
				if more == 0 {
					return all
				}
				f.After = more
			}
			t.Fatalf("%+v: there is no end", f)
			return nil
		}
		for _, limit := range []int{1, 2, 7, 60, 100} {
			if got := list(admin.Filter{Limit: limit}); !slices.Equal(got, ids) {
				t.Errorf("limit %d: listed %d of %d: %v", limit, len(got), len(ids), got)
			}
			if got := list(admin.Filter{Limit: limit, State: admin.StateDelayed}); !slices.Equal(got, delayed) {
				t.Errorf("limit %d: delayed: %v", limit, got)
			}
			if got := list(admin.Filter{Limit: limit, Kind: "kind 1"}); len(got) != 20 {
				t.Errorf("limit %d: by kind: %v", limit, got)
			}
			if got := list(admin.Filter{Limit: limit, Key: "a", Kind: "kind 1"}); len(got) == 0 || len(got) >= 20 {
				t.Errorf("limit %d: by key and kind: %v", limit, got)
			}
		}
		if got := list(admin.Filter{State: admin.StateDead}); got != nil {
			t.Errorf("dead: %v", got)
		}
		for _, f := range []admin.Filter{{Limit: -1}, {Limit: 10_001}, {State: "ended"}} {
			_, _, err := adminOf(c).Jobs(t.Context(), f)
			want(t, fmt.Sprintf("%+v", f), err, ErrInvalid)
		}
		for _, limit := range []int{1, 60, 61} {
			n, err := adminOf(c).Count(t.Context(), "", limit)
			must(t, err)
			if n != (admin.Counts{Ready: min(limit, 60), Delayed: min(limit, 60), Limit: limit}) {
				t.Errorf("counted %+v", n)
			}
		}
	})
}

// Each state of a job: how it gets there, and what can be done with it there.
func TestStates(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		_, err := adminOf(c).Job(t.Context(), "", 7)
		want(t, "no queue", err, ErrNotFound)
		goOn := make(chan bool)
		defer close(goOn)
		w := worker(t, other(t, db), WorkerOptions{Grace: -1})
		handle(t, w, "waits", func(ctx context.Context, _ *Delivery) error {
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			return ctx.Err()
		})
		handle(t, w, "dies", func(context.Context, *Delivery) error { return Bury(errTest) })
		running := enqueue(t, c, Job{Kind: "waits", Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
		dead := enqueue(t, c, Job{Kind: "dies", Payload: []byte("1")})
		stop := start(t, w)
		if i := becomes(t, c, running, admin.StateRunning); i.Worker != nameOf(w) || i.Attempts != 1 || i.Trace == "" || i.At.Before(i.Enqueued) {
			t.Errorf("%+v", i)
		}
		if i := becomes(t, c, dead, admin.StateDead); i.Error == "" || i.Attempts != 1 || string(i.Payload) != "1" || i.At.Before(i.Enqueued) {
			t.Errorf("%+v", i)
		}
		for _, f := range []admin.State{admin.StateRunning, admin.StateDead} {
			if all, _, err := adminOf(c).Jobs(t.Context(), admin.Filter{State: f}); err != nil || len(all) != 1 || f == admin.StateRunning && all[0].Worker != nameOf(w) {
				t.Errorf("%s: %+v, %v", f, all, err)
			}
		}
		at := dbtest.Start.AddDate(100, 0, 0)
		delayed := enqueue(t, c, Job{Kind: "waits", RunAt: at})
		if i := info(t, c, delayed, admin.StateDelayed); !i.At.Equal(at) || i.Attempts != 0 {
			t.Errorf("%+v", i)
		}
		must(t, adminOf(c).Pause(t.Context(), defaultQueue, ""))
		knowsPause(t, w)
		ready := enqueue(t, c, Job{Kind: "none", Priority: Idle})
		if i := info(t, c, ready, admin.StateReady); i.Priority != Idle || i.Attempts != 0 || !i.Enqueued.Equal(store.TimeOf(ready)) {
			t.Errorf("%+v", i)
		}
		if n, err := adminOf(c).Count(t.Context(), "", 10); err != nil || n != countsOf(1, 1, 1, 1, 10) {
			t.Errorf("%+v, %v", n, err)
		}
		b, err := adminOf(c).Backlog(t.Context(), "", admin.BacklogOptions{Limit: 10, Since: store.TimeOf(ready)})
		if err != nil || b.Counts != countsOf(1, 1, 1, 1, 10) || b.Due != 0 || b.Recent != 1 || !b.Oldest.Equal(store.TimeOf(ready)) {
			t.Errorf("%+v, %v", b, err)
		}
		type do = func(context.Context, string, int64) error
		for what, try := range map[string]struct {
			do   do
			id   int64
			want error
		}{
			"cancel a dead one": {adminOf(c).Cancel, dead, ErrState}, "delete a ready one": {adminOf(c).Delete, ready, ErrState},
			"delete a delayed one": {adminOf(c).Delete, delayed, ErrState},
			"delete a running one": {adminOf(c).Delete, running, ErrState}, "retry a ready one": {adminOf(c).Retry, ready, ErrState},
			"retry a running one": {adminOf(c).Retry, running, ErrState},
			"cancel none":         {adminOf(c).Cancel, 7, ErrNotFound}, "delete none": {adminOf(c).Delete, 7, ErrNotFound}, "retry none": {adminOf(c).Retry, 7, ErrNotFound},
		} {
			want(t, what, try.do(t.Context(), "", try.id), try.want)
			want(t, what+" in no queue", try.do(t.Context(), "no", try.id), ErrNotFound)
		}
		for _, id := range []int64{ready, delayed, running} {
			must(t, adminOf(c).Cancel(t.Context(), "", id))
			want(t, "twice", adminOf(c).Cancel(t.Context(), "", id), ErrNotFound)
		}
		must(t, adminOf(c).Delete(t.Context(), "", dead))
		want(t, "twice", adminOf(c).Delete(t.Context(), "", dead), ErrNotFound)
		stop()
		if n := rowsOf(t, db); n > 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// A dead job that is retried is done soon, with all its attempts before it, however
// old it is; one that waits is done at once.
func TestRetry(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		var r record
		crew(t, db, 1, WorkerOptions{}, func(_ context.Context, d *Delivery) error {
			r.add("%d %s %d %d", d.ID, d.Key, d.Attempt, d.Crashes)
			if d.ID > 1<<20 && d.Attempt == 1 {
				return RetryAfter(time.Hour, errTest)
			}
			return nil
		})
		later := enqueue(t, c, Job{Kind: "x", Key: "k"})
		r.wants(t, fmt.Sprintf("%d k 1 0", later))
		becomes(t, c, later, admin.StateDelayed)
		db.Do(t, `INSERT INTO {prefix}job_dead (queue_id, divided, id, priority, attempt, crashes, kind, job_key, error) VALUES ((SELECT MIN(queue_id) FROM {prefix}queue), 900, 5, 2, 10, 3, 'x', 'k2', 'old')`, nil)
		must(t, adminOf(c).Retry(t.Context(), "", 5))
		want(t, "twice", orErr(adminOf(c).Retry(t.Context(), "", 5)), ErrState)
		r.wants(t, fmt.Sprintf("%d k 1 0", later), "5 k2 1 0")
		must(t, adminOf(c).Retry(t.Context(), "", later))
		r.wants(t, fmt.Sprintf("%d k 1 0", later), "5 k2 1 0", fmt.Sprintf("%d k 2 0", later))
		empty(t, db)
	})
}

// orErr converts an equivalent outcome to an ErrState: the job is done, or delayed and due.
func orErr(err error) error {
	if err == nil || errors.Is(err, ErrNotFound) {
		return ErrState
	}
	return err
}

// A job that waits in a worker's memory, and is cancelled, is not done.
func TestCancelWhatWaits(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		began, goOn := make(chan bool), make(chan bool)
		var r record
		w := worker(t, other(t, db), WorkerOptions{Concurrency: 1})
		handle(t, w, "x", func(_ context.Context, d *Delivery) error {
			if string(d.Payload) == "0" {
				began <- true
				<-goOn
			}
			r.add("%s", d.Payload)
			return nil
		})
		start(t, w)
		first := enqueue(t, c, Job{Kind: "x", Key: "k", Payload: []byte("0")})
		received(t, "the first begins", began)
		ids := enqueueMany(t, c, []Job{
			{Kind: "x", Key: "k", Payload: []byte("1")},
			{Kind: "x", Payload: []byte("2")},
			{Kind: "x", Key: "k", Payload: []byte("3")},
		})
		becomes(t, c, first, admin.StateRunning) // a second later
		eventually(t, "all wait", func() bool { return slices.Equal(waitFor(w), ids) })
		must(t, adminOf(c).Cancel(t.Context(), "", ids[0]))
		must(t, adminOf(c).Cancel(t.Context(), "", ids[1]))
		eventually(t, "the worker has looked", func() bool { return slices.Equal(waitFor(w), ids[2:]) })
		close(goOn)
		eventually(t, "the last is done", func() bool { return slices.Contains(r.all(), "3") })
		if got := strings.Join(r.all(), " "); got != "0 3" {
			t.Errorf("done: %s", got)
		}
	})
}

// waitFor are the jobs of a worker's first queue that it has read and not begun.
func waitFor(w *Worker) (ids []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.queues[0].blocks {
		for _, j := range b.Waits() {
			ids = append(ids, j.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// A queue keeps as many dead jobs as it is set to, those enqueued last.
func TestKeepDeadMax(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		const n = store.Chunk + 5
		ids := enqueueMany(t, c, many(n, nil))
		keep := map[string]int{"all": 0, "enough": 6, "few": 2}
		for name, most := range keep {
			enqueueMany(t, c, many(6, func(_ int, j *Job) { j.Queue = name }))
			_, err := adminOf(c).Edit(t.Context(), name, func(q *admin.Queue) { q.KeepDeadMax = most })
			must(t, err)
		}
		die(t, db)
		w := worker(t, c, WorkerOptions{Queues: []string{"all", "enough", "few"}})
		q, err := c.queue(t.Context(), defaultQueue)
		must(t, err)
		must(t, w.sweeper.purgeSurplus(t.Context(), q.ID, 3))
		if left := db.List(t, `SELECT id FROM {prefix}job_dead WHERE queue_id = :queue ORDER BY id`,
			sqlrun.Args{"queue": q.ID}); len(left) != 3 || left[0] != fmt.Sprint(ids[n-3]) {
			t.Fatalf("left are %q", left)
		}
		start(t, w) // sweeps when it starts
		for name, left := range map[string]int{"few": 2, "all": 6, "enough": 6} {
			eventually(t, "the rest is removed", func() bool {
				counts, err := adminOf(c).Count(t.Context(), name, n)
				must(t, err)
				return counts.Dead <= left
			})
			if counts, err := adminOf(c).Count(t.Context(), name, n); err != nil || counts.Dead != left {
				t.Errorf("%s: %+v, %v", name, counts, err)
			}
		}
	})
}

// What died long ago is removed, unless the queue keeps it for ever.
func TestPurge(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		for name, keep := range map[string]time.Duration{"soon": 0, "ever": -1, "later": time.Hour} {
			_, err := adminOf(c).Edit(t.Context(), name, func(q *admin.Queue) { q.KeepDead = keep })
			must(t, err)
			enqueue(t, c, Job{Queue: name, Kind: "unknown"})
		}
		stop := start(t, worker(t, c, WorkerOptions{Queues: []string{"soon", "ever", "later"}, BuryUnknown: true}))
		empty(t, db)
		stop()
		start(t, worker(t, c, WorkerOptions{Queues: []string{"later"}, BuryUnknown: true})) // sweeps when it starts
		eventually(t, "one is gone", func() bool {
			var n int
			db.Scan(t, `SELECT COUNT(*) FROM {prefix}job_dead`, sqlrun.Args{}, &n)
			return n == 2
		})
		for name, n := range map[string]int{"soon": 0, "ever": 1, "later": 1} {
			if counts, err := adminOf(c).Count(t.Context(), name, 9); err != nil || counts.Dead != n {
				t.Errorf("%s: %+v, %v", name, counts, err)
			}
		}
	})
}

// A queue in use is not deleted. A deleted one keeps its settings, accepts no jobs, and can be
// reactivated; jobs enqueued nevertheless wait.
func TestDeleteQueue(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c, far := client(t, db, Options{}), other(t, db)
		want(t, "none", adminOf(c).DeleteQueue(t.Context(), "q"), ErrNotFound)
		for _, name := range []string{"q", "beside"} {
			_, err := adminOf(c).Edit(t.Context(), name, func(q *admin.Queue) { q.MaxAttempts = 7 })
			must(t, err)
		}
		must(t, adminOf(c).SetRoute(t.Context(), "x", "beside"))
		enqueue(t, c, Job{Queue: "beside", Kind: "x"})
		enqueue(t, c, Job{Queue: "beside", Kind: "x", Delay: time.Hour})
		db.Do(t, `INSERT INTO {prefix}job_dead (queue_id, divided, id, priority, kind)
			SELECT queue_id, 0, 1, 2, 'x' FROM {prefix}queue WHERE name = 'beside'`, nil)
		db.Do(t, `INSERT INTO {prefix}job_running (queue_id, divided, id, priority, kind, lock_by)
			SELECT queue_id, 0, 3, 2, 'x', 'nobody' FROM {prefix}queue WHERE name = 'beside'`, nil)

		ready := enqueue(t, c, Job{Queue: "q", Kind: "x"})
		want(t, "it has a job", adminOf(c).DeleteQueue(t.Context(), "q"), admin.ErrInUse)
		must(t, adminOf(c).Cancel(t.Context(), "q", ready))
		delayed := enqueue(t, c, Job{Queue: "q", Kind: "x", Delay: time.Hour})
		want(t, "it has a delayed job", adminOf(c).DeleteQueue(t.Context(), "q"), admin.ErrInUse)
		must(t, adminOf(c).Cancel(t.Context(), "q", delayed))
		db.Do(t, `INSERT INTO {prefix}job_dead (queue_id, divided, id, priority, kind)
			SELECT queue_id, 0, 2, 2, 'x' FROM {prefix}queue WHERE name = 'q'`, nil)
		want(t, "it has a dead job", adminOf(c).DeleteQueue(t.Context(), "q"), admin.ErrInUse)
		must(t, adminOf(c).Delete(t.Context(), "q", 2))
		db.Do(t, `INSERT INTO {prefix}job_running (queue_id, divided, id, priority, kind, lock_by)
			SELECT queue_id, 0, 4, 2, 'x', 'nobody' FROM {prefix}queue WHERE name = 'q'`, nil)
		want(t, "it has a running job", adminOf(c).DeleteQueue(t.Context(), "q"), admin.ErrInUse)
		db.Do(t, `DELETE FROM {prefix}job_running WHERE id = 4`, nil)
		must(t, adminOf(c).SetRoute(t.Context(), "y", "q"))
		want(t, "a route leads to it", adminOf(c).DeleteQueue(t.Context(), "q"), admin.ErrInUse)
		must(t, adminOf(c).DeleteRoute(t.Context(), "y"))

		must(t, adminOf(c).DeleteQueue(t.Context(), "q"))
		must(t, adminOf(c).DeleteQueue(t.Context(), "q")) // again
		_, err := far.Enqueue(t.Context(), Job{Queue: "q", Kind: "x"})
		want(t, "a job for it", err, ErrDeleted)
		want(t, "a route to it", adminOf(far).SetRoute(t.Context(), "y", "q"), ErrDeleted)
		want(t, "a pause", adminOf(far).Pause(t.Context(), "q", ""), ErrDeleted)
		q, err := adminOf(c).Edit(t.Context(), "q", func(q *admin.Queue) { q.State = "active" })
		if err != nil || q.MaxAttempts != 7 {
			t.Errorf("it is back as %+v, %v", q, err)
		}
		if q, err := adminOf(c).Queue(t.Context(), "beside"); err != nil || q.State != "active" {
			t.Errorf("the other one is %+v, %v", q, err)
		}
	})
}

// A route is not set to a queue that is being deleted, and no queue is deleted to which a
// route is being set.
func TestDeleteQueueBesideRoutes(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c, far := other(t, db), other(t, db)
		for i := range 10 {
			_, err := adminOf(c).Edit(t.Context(), "q", func(q *admin.Queue) { q.State = "active" })
			must(t, err)
			routed := make(chan error, 1)
			go func() { routed <- adminOf(far).SetRoute(context.WithoutCancel(t.Context()), "y", "q") }()
			deleted := adminOf(c).DeleteQueue(t.Context(), "q")
			set := received(t, "the route", routed)
			switch {
			case set == nil && errors.Is(deleted, admin.ErrInUse):
				must(t, adminOf(c).DeleteRoute(t.Context(), "y"))
			case deleted == nil && errors.Is(set, ErrDeleted):
			default:
				t.Fatalf("round %d: the route: %v; the queue: %v", i, set, deleted)
			}
		}
	})
}

// RunNow lets a delayed job go, and none that is in another state.
func TestRunNow(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		want(t, "no queue", adminOf(c).RunNow(t.Context(), "", 1), ErrNotFound)
		ready, delayed := enqueue(t, c, Job{Kind: "x"}), enqueue(t, c, Job{Kind: "x", Delay: time.Hour})
		db.Do(t, `INSERT INTO {prefix}job_dead (queue_id, divided, id, priority, kind) SELECT queue_id, 0, 2, 2, 'x' FROM {prefix}queue`, nil)
		want(t, "no job", adminOf(c).RunNow(t.Context(), "", 1), ErrNotFound)
		want(t, "a ready one", adminOf(c).RunNow(t.Context(), "", ready), ErrState)
		want(t, "a dead one", adminOf(c).RunNow(t.Context(), "", 2), ErrState)
		before := info(t, c, delayed, admin.StateDelayed)
		for range 2 {
			must(t, adminOf(c).RunNow(t.Context(), "", delayed))
			if now := info(t, c, delayed, admin.StateDelayed); now.At.After(before.At.Add(-30 * time.Minute)) {
				t.Errorf("it is due at %v", now.At)
			}
		}
		info(t, c, 2, admin.StateDead)
	})
}
