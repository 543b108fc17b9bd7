package queue

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// many are jobs of two kinds, every fifth with a key and every tenth of low priority.
func many(n int, more func(i int, j *Job)) []Job {
	jobs := make([]Job, n)
	for i := range jobs {
		jobs[i] = Job{Kind: []string{"a", "b"}[i%2], Payload: fmt.Appendf(nil, `{"n": %d}`, i)}
		if i%5 == 0 {
			jobs[i].Key = fmt.Sprint("key ", i%3)
		}
		if i%10 == 0 {
			jobs[i].Priority = Low
		}
		if more != nil {
			more(i, &jobs[i])
		}
	}
	return jobs
}

// die makes all ready jobs dead, as workers would have done.
func die(t *testing.T, db *dbtest.DB) {
	t.Helper()
	byHand(
		t, db,
		`INSERT INTO {prefix}job_dead (queue_id, divided, id, priority, attempt, crashes, error, died_at, `+store.BodyColumns+`)
			SELECT queue_id, divided, id, priority, 10, 1, 'why', {now}, `+store.BodyColumns+` FROM {prefix}job`,
		`DELETE FROM {prefix}job`, `DELETE FROM {prefix}job_unique`,
	)
}

// bulk does with jobs what must succeed.
func bulk(t *testing.T, c *Client, what admin.BulkAction, f admin.Filter, want admin.BulkResult) {
	t.Helper()
	r, err := adminOf(c).Bulk(t.Context(), what, f, admin.BulkOptions{})
	if goesOn := r.Next != nil; goesOn != (f.Limit > 0 && r.Done+r.Gone+r.InUse == f.Limit) {
		t.Errorf("%s %+v: where to continue: %+v", what, f, r.Next)
	}
	if r.Next = nil; err != nil || r != want {
		t.Errorf("%s %+v: got %+v, %v, want %+v", what, f, r, err, want)
	}
}

// wantCounts compares how many jobs of the default queue are in each state.
func wantCounts(t *testing.T, c *Client, ready, delayed, running, dead int) {
	t.Helper()
	got, err := adminOf(c).Count(t.Context(), "", 10_000)
	if want := countsOf(ready, delayed, running, dead, 10_000); err != nil || got != want {
		t.Errorf("there are %+v, %v, want %+v", got, err, want)
	}
}

// Dead jobs are tried anew in batches, those that the filter selects and no others; each
// is as a single retry has it.
func TestBulkRetry(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		ids := enqueueMany(t, c, many(2*200+50, nil))
		enqueue(t, c, Job{Queue: "other", Kind: "a"})
		die(t, db)
		n := len(ids)
		r, err := adminOf(c).Bulk(t.Context(), admin.BulkRetry, admin.Filter{}, admin.BulkOptions{DryRun: true})
		if err != nil || r != (admin.BulkResult{Done: n}) {
			t.Errorf("a dry run: %+v, %v", r, err)
		}
		wantCounts(t, c, 0, 0, 0, n)
		bulk(t, c, admin.BulkRetry, admin.Filter{Kind: "a", Limit: 10}, admin.BulkResult{Done: 10})
		bulk(t, c, admin.BulkRetry, admin.Filter{Where: "$.n = 301"}, admin.BulkResult{Done: 1})
		bulk(t, c, admin.BulkRetry, admin.Filter{Key: "key 1", After: ids[100]}, admin.BulkResult{Done: 23})
		bulk(t, c, admin.BulkRetry, admin.Filter{Kind: "none"}, admin.BulkResult{})
		wantCounts(t, c, 0, 34, 0, n-34)
		var last admin.BulkResult
		calls := 0
		r, err = adminOf(c).Bulk(t.Context(), admin.BulkRetry, admin.Filter{}, admin.BulkOptions{Progress: func(r admin.BulkResult) {
			if last = r; r.Done > calls*200+200 {
				t.Errorf("batch %d: %+v", calls, r)
			}
			calls++
		}})
		if err != nil || r != last || r.Done != n-34 || calls != 3 {
			t.Errorf("%+v, %v, and after %d batches it was told %+v", r, err, calls, last)
		}
		wantCounts(t, c, 0, n, 0, 0)
		if i := info(t, c, ids[10], admin.StateDelayed); i.Attempts != 0 || i.Crashes != 0 || i.Error != "" ||
			i.Key != "key 1" || i.Priority != Low || string(i.Payload) != `{"n": 10}` {
			t.Errorf("it is %+v", i)
		}
		wantRows(t, db, "the other queue's", `SELECT kind FROM {prefix}job_dead`, "a")
		var done record
		w := worker(t, other(t, db), WorkerOptions{Concurrency: 20})
		for _, kind := range []string{"a", "b"} {
			handle(t, w, kind, func(_ context.Context, d *Delivery) error { done.add("%d", d.ID); return nil })
		}
		start(t, w)
		empty(t, db)
		if done.len() != n {
			t.Errorf("%d jobs were done, of %d", done.len(), n)
		}
	})
}

// A bulk in parts continues where the last part ended, and processes each job once: a job that
// dies again between two parts stays dead. Match selects among all of them.
func TestBulkInParts(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 3})
		ids := enqueueMany(t, c, many(3*200+50, nil))
		match := func(i *admin.Job) bool { return i.Kind == "b" && i.Error == "why" && i.ID != ids[1] }
		parts := func(what admin.BulkAction, f admin.Filter, between func()) (n, total int) {
			t.Helper()
			for opt := (admin.BulkOptions{Most: 200}); ; n++ {
				r, err := adminOf(c).Bulk(t.Context(), what, f, opt)
				if err != nil || n > 20 {
					t.Fatalf("part %d: %+v, %v", n, r, err)
				}
				if total += r.Done; r.Next == nil {
					return n, total
				}
				if opt.From = *r.Next; between != nil {
					between()
				}
			}
		}
		die(t, db)
		later := 0
		again := func() { // what was retried dies again, and another job dies
			enqueueMany(t, c, []Job{{Kind: "b"}})
			later++
			die(t, db)
			byHand(t, db, `INSERT INTO {prefix}job_dead (queue_id, divided, id, priority, attempt, crashes, error, died_at, `+store.BodyColumns+`)
				SELECT queue_id, divided, id, priority, 10, 1, 'why', {now}, `+store.BodyColumns+` FROM {prefix}job_delayed`, `DELETE FROM {prefix}job_delayed`)
		}
		half := len(ids)/2 - 1
		if n, total := parts(admin.BulkRetry, admin.Filter{Match: match}, again); n < 3 || total != half {
			t.Errorf("%d jobs were retried in %d parts, want %d in 4", total, n, half)
		}
		again()
		there := len(ids) + later
		wantCounts(t, c, 0, 0, 0, there)
		if _, total := parts(admin.BulkRetry, admin.Filter{}, nil); total != there {
			t.Errorf("%d jobs were retried, want %d", total, there)
		}
		if n, total := parts(admin.BulkCancel, admin.Filter{State: admin.StateDelayed}, nil); n < 2 || total != there {
			t.Errorf("%d jobs were cancelled in %d parts, want %d", total, n, there)
		}
		wantCounts(t, c, 0, 0, 0, 0)
	})
}

// A delayed job is let go at once, unless it is due.
func TestBulkRetryOfDelayed(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		enqueueMany(t, c, many(200+50, func(_ int, j *Job) { j.Delay = time.Hour }))
		bulk(t, c, admin.BulkRetry, admin.Filter{State: admin.StateDelayed, Kind: "b"}, admin.BulkResult{Done: 200/2 + 25})
		bulk(t, c, admin.BulkRetry, admin.Filter{State: admin.StateDelayed}, admin.BulkResult{Done: 200/2 + 25})
		bulk(t, c, admin.BulkRetry, admin.Filter{State: admin.StateDelayed}, admin.BulkResult{})
		wantRows(t, db, "not due", `SELECT id FROM {prefix}job_delayed WHERE run_at > {now}`)
	})
}

// What is enqueued after a bulk began is left, so that it ends.
func TestBulkOfWhatComes(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		enqueueMany(t, c, many(4, nil))
		enqueueMany(t, c, many(4, func(_ int, j *Job) { j.Delay = time.Hour }))
		for _, table := range []string{"job", "job_delayed"} {
			byHand(t, db, `UPDATE {prefix}`+table+` SET id = id + 14745600000000 WHERE kind = 'b'`) // an hour later
		}
		bulk(t, c, admin.BulkRetry, admin.Filter{State: admin.StateDelayed}, admin.BulkResult{Done: 2})
		bulk(t, c, admin.BulkCancel, admin.Filter{State: admin.StateDelayed}, admin.BulkResult{Done: 2})
		bulk(t, c, admin.BulkCancel, admin.Filter{}, admin.BulkResult{Done: 2})
		wantCounts(t, c, 2, 2, 0, 0)
	})
}

// Jobs are removed from where they stand, with their unique keys, and others are left.
func TestBulkRemove(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		const n = 200 + 50
		unique := func(i int, j *Job) {
			if i%4 == 0 {
				j.Unique = fmt.Sprintf("k%s %v %d", j.Queue, j.Delay, i)
			}
		}
		enqueueMany(t, c, many(n, unique))
		enqueueMany(t, c, many(n, func(i int, j *Job) { j.Delay = time.Hour; unique(i, j) }))
		enqueueMany(t, c, many(8, func(i int, j *Job) { j.Queue = "other"; unique(i, j) }))
		byHand(t, db, `INSERT INTO {prefix}job_running (queue_id, divided, id, priority, lock_by, `+store.BodyColumns+`)
			SELECT queue_id, divided, id, priority, 'nobody', `+store.BodyColumns+` FROM {prefix}job WHERE kind = 'b' AND priority = 2 AND queue_id = 1 AND divided = 1`)
		byHand(t, db, `DELETE FROM {prefix}job WHERE id IN (SELECT id FROM {prefix}job_running)`)
		before, err := adminOf(c).Count(t.Context(), "", 10_000)
		must(t, err)
		running := before.Running
		if running == 0 {
			t.Fatal("none runs")
		}
		bulk(t, c, admin.BulkCancel, admin.Filter{Kind: "b"}, admin.BulkResult{Done: n/2 - running})
		wantCounts(t, c, n/2, n, running, 0)
		bulk(t, c, admin.BulkCancel, admin.Filter{}, admin.BulkResult{Done: n / 2})
		bulk(t, c, admin.BulkCancel, admin.Filter{State: admin.StateDelayed, Where: "$.n >= 10"}, admin.BulkResult{Done: n - 10})
		wantCounts(t, c, 0, 10, running, 0)
		bulk(t, c, admin.BulkCancel, admin.Filter{State: admin.StateRunning}, admin.BulkResult{Done: running})
		wantCounts(t, c, 0, 10, 0, 0)
		wantRows(t, db, "keys", `SELECT unique_key FROM {prefix}job_unique ORDER BY unique_key`, "k 1h0m0s 0",
			"k 1h0m0s 4", "k 1h0m0s 8", "kother 0s 0", "kother 0s 4")
		enqueueMany(t, c, many(n, nil))
		die(t, db)
		bulk(t, c, admin.BulkDelete, admin.Filter{Kind: "a"}, admin.BulkResult{Done: n / 2})
		bulk(t, c, admin.BulkDelete, admin.Filter{}, admin.BulkResult{Done: n / 2})
		wantCounts(t, c, 0, 10, 0, 0)
		wantRows(t, db, "the other queue's", `SELECT COUNT(*) FROM {prefix}job_dead`, "8")
	})
}

// What cannot be is refused before anything is done.
func TestBulkInvalid(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		enqueue(t, c, Job{Kind: "x"})
		enqueue(t, c, Job{Kind: "x", Delay: time.Hour})
		for _, bad := range []struct {
			what admin.BulkAction
			f    admin.Filter
		}{
			{"", admin.Filter{}},
			{"purge", admin.Filter{}},
			{admin.BulkRetry, admin.Filter{State: admin.StateReady}},
			{admin.BulkRetry, admin.Filter{State: admin.StateRunning}},
			{admin.BulkCancel, admin.Filter{State: admin.StateDead}},
			{admin.BulkCancel, admin.Filter{State: "all"}},
			{admin.BulkDelete, admin.Filter{State: admin.StateDelayed}},
			{admin.BulkCancel, admin.Filter{Where: "n = 1"}},
			{admin.BulkCancel, admin.Filter{Limit: -1}},
		} {
			_, err := adminOf(c).Bulk(t.Context(), bad.what, bad.f, admin.BulkOptions{})
			want(t, fmt.Sprintf("%s %+v", bad.what, bad.f), err, ErrInvalid)
		}
		_, err := adminOf(c).Bulk(t.Context(), admin.BulkCancel, admin.Filter{Queue: "none"}, admin.BulkOptions{})
		want(t, "no queue", err, ErrNotFound)
		wantCounts(t, c, 1, 1, 0, 0)
		die(t, db)
		edit(t, c, func(q *admin.Queue) { q.State = "deleted" })
		_, err = adminOf(c).Bulk(t.Context(), admin.BulkRetry, admin.Filter{}, admin.BulkOptions{})
		want(t, "a deleted queue", err, ErrDeleted)
		bulk(t, c, admin.BulkDelete, admin.Filter{}, admin.BulkResult{Done: 1})
		bulk(t, c, admin.BulkCancel, admin.Filter{State: admin.StateDelayed}, admin.BulkResult{Done: 1})
	})
}

// Of dead jobs with one unique key one is tried anew, unless another job has it.
func TestBulkRetryUnique(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		var ids []int64
		for _, key := range []string{"twice", "twice", "taken", "free", ""} {
			ids = append(ids, wantFresh(t, c, Job{Kind: "x", Unique: key}))
			die(t, db)
		}
		holder := wantFresh(t, c, Job{Kind: "x", Unique: "taken"})
		want(t, "one whose key is taken", adminOf(c).Retry(t.Context(), "", ids[2]), ErrState)
		bulk(t, c, admin.BulkRetry, admin.Filter{}, admin.BulkResult{Done: 3, InUse: 2})
		for i, state := range []admin.State{admin.StateDelayed, admin.StateDead, admin.StateDead, admin.StateDelayed, admin.StateDelayed} {
			info(t, c, ids[i], state)
		}
		wantHolder(t, c, Job{Kind: "x", Unique: "twice"}, ids[0])
		wantHolder(t, c, Job{Kind: "x", Unique: "taken"}, holder)
		wantHolder(t, c, Job{Kind: "x", Unique: "free"}, ids[3])
		bulk(t, c, admin.BulkRetry, admin.Filter{}, admin.BulkResult{InUse: 2})
		bulk(t, c, admin.BulkCancel, admin.Filter{State: admin.StateDelayed}, admin.BulkResult{Done: 3})
		bulk(t, c, admin.BulkRetry, admin.Filter{}, admin.BulkResult{Done: 1, InUse: 1})
		wantHolder(t, c, Job{Kind: "x", Unique: "twice"}, ids[1])
	})
}

// Jobs that die while others are retried are left: each has one more chance in a call.
func TestBulkRetryOfWhatDiesAgain(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { q.MaxAttempts = 1 })
		const n = 200 + 10
		enqueueMany(t, c, many(n, nil))
		die(t, db)
		var tried atomic.Int64
		w := worker(t, other(t, db), WorkerOptions{Concurrency: 20})
		for _, kind := range []string{"a", "b"} {
			handle(t, w, kind, func(context.Context, *Delivery) error { tried.Add(1); return errTest })
		}
		start(t, w)
		first := true
		r, err := adminOf(c).Bulk(t.Context(), admin.BulkRetry, admin.Filter{}, admin.BulkOptions{Progress: func(admin.BulkResult) {
			if first { // what dies now has ids before and behind those that are next
				enqueueMany(t, c, many(5, nil))
				empty(t, db)
			}
			first = false
		}})
		must(t, err)
		empty(t, db)
		if r != (admin.BulkResult{Done: n}) || tried.Load() != n+5 {
			t.Errorf("%+v, and %d attempts", r, tried.Load())
		}
		wantCounts(t, c, 0, 0, 0, n+5)
	})
}

// Concurrent bulks do everything once, and report what the others did.
func TestBulkAtOnce(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		const n, callers = 2*200 + 30, 3
		c := client(t, db, Options{})
		for _, step := range []struct {
			what admin.BulkAction
			f    admin.Filter
			left admin.Counts
		}{
			{admin.BulkRetry, admin.Filter{}, countsOf(0, n, 0, 0, 10_000)},
			{admin.BulkCancel, admin.Filter{State: admin.StateDelayed}, countsOf(0, 0, 0, 0, 10_000)},
			{admin.BulkCancel, admin.Filter{}, countsOf(0, 0, 0, 0, 10_000)},
			{admin.BulkDelete, admin.Filter{}, countsOf(0, 0, 0, 0, 10_000)},
		} {
			if step.f.State == "" {
				enqueueMany(t, c, many(n, func(i int, j *Job) {
					if i%3 == 0 {
						j.Unique = fmt.Sprint(i)
					}
				}))
			}
			if step.f.State == "" && step.what != admin.BulkCancel {
				die(t, db)
			}
			var done atomic.Int64
			var group sync.WaitGroup
			for range callers {
				from := other(t, db)
				group.Go(func() {
					r, err := adminOf(from).Bulk(t.Context(), step.what, step.f, admin.BulkOptions{})
					if err != nil || r.InUse > 0 {
						t.Errorf("%s: %+v, %v", step.what, r, err)
					}
					done.Add(int64(r.Done))
				})
			}
			group.Wait()
			if got, err := adminOf(c).Count(t.Context(), "", 10_000); err != nil || got != step.left || done.Load() != n {
				t.Errorf("%s %s: %d done, and left are %+v, %v", step.what, step.f.State, done.Load(), got, err)
			}
		}
		if k := keysOf(t, db); k != 0 {
			t.Errorf("%d keys are in use", k)
		}
	})
}

// Wherever the connection breaks, each job is in one place, with its key, and calling it
// again does the rest.
func TestBulkFaults(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		for _, step := range []struct {
			what admin.BulkAction
			f    admin.Filter
		}{{admin.BulkRetry, admin.Filter{}}, {admin.BulkCancel, admin.Filter{}}} {
			for call := 1; ; call++ {
				hit := false
				for _, after := range []bool{false, true} {
					enqueueMany(t, c, []Job{{Kind: "x", Unique: "a"}, {Kind: "x"}, {Kind: "x", Unique: "b", Priority: Low}})
					if step.what == admin.BulkRetry {
						die(t, db)
					}
					from := client(t, db.Broken(t, &dbtest.Fault{Call: call, After: after}), Options{})
					r, err := adminOf(from).Bulk(t.Context(), step.what, step.f, admin.BulkOptions{})
					hit = hit || err != nil
					again, err2 := adminOf(c).Bulk(t.Context(), step.what, step.f, admin.BulkOptions{})
					must(t, err2)
					if n := r.Done + again.Done; n > 3 || n < 3 && err == nil {
						t.Errorf("%s, call %d broken (%v): %+v, %v, and then %+v", step.what, call, after, r, err, again)
					}
					rows, keys := 0, 0
					if step.what == admin.BulkRetry {
						rows, keys = 3, 2
					}
					if n, k := rowsOf(t, db), keysOf(t, db); n != rows || k != keys {
						t.Errorf("%s, call %d broken (%v): %d jobs and %d keys are left: %v", step.what, call, after, n, k, left(t, db.DB))
					}
					if n := strings.Join(db.List(t, `SELECT COUNT(*) FROM {prefix}job_dead`, nil), ""); n != "0" {
						t.Errorf("%s, call %d broken (%v): %s are dead", step.what, call, after, n)
					}
					_, err = adminOf(c).Bulk(t.Context(), admin.BulkCancel, admin.Filter{State: admin.StateDelayed}, admin.BulkOptions{})
					must(t, err)
				}
				if !hit {
					break
				}
			}
		}
	})
}

// Jobs can be selected by their age, which is that of the database's clock.
func TestOlderThan(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		old := enqueueMany(t, c, many(5, func(i int, j *Job) { j.Priority = Urgent + i%4 }))
		// they were enqueued two hours before
		db.Do(t, `UPDATE {prefix}job SET id = id - :by`, sqlrun.Args{"by": store.TickOf(store.Epoch.Add(2 * time.Hour).UnixMicro())})
		fresh := enqueueMany(t, c, many(3, func(int, *Job) {}))
		for older, want := range map[time.Duration]int{0: 8, time.Hour: 5, 3 * time.Hour: 0, 99 * 365 * 24 * time.Hour: 0} {
			jobs, more, err := adminOf(c).Jobs(t.Context(), admin.Filter{OlderThan: older})
			if err != nil || len(jobs) != want || more != 0 {
				t.Errorf("older than %v there are %d, %d, %v", older, len(jobs), more, err)
			}
			r, err := adminOf(c).Bulk(t.Context(), admin.BulkCancel, admin.Filter{OlderThan: older}, admin.BulkOptions{DryRun: true})
			if err != nil || r.Done != want {
				t.Errorf("older than %v would be cancelled: %+v, %v", older, r, err)
			}
		}
		bulk(t, c, admin.BulkCancel, admin.Filter{OlderThan: time.Hour}, admin.BulkResult{Done: len(old)})
		for _, id := range fresh {
			info(t, c, id, admin.StateReady)
		}
		_, _, err := adminOf(c).Jobs(t.Context(), admin.Filter{OlderThan: -1})
		want(t, "a negative age", err, ErrInvalid)
		_, err = adminOf(c).Bulk(t.Context(), admin.BulkCancel, admin.Filter{OlderThan: -1}, admin.BulkOptions{})
		want(t, "a negative age", err, ErrInvalid)
	})
}

// Whose row is removed is done by nobody, also if a worker has read it.
func TestBulkCancelWhatWasRead(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		r := receiver(t, c, WorkerOptions{Grace: time.Second})
		r.w.mu.Lock()
		r.w.slow = longWait // they are to stay where they are
		r.w.mu.Unlock()
		ids := enqueueMany(t, c, []Job{{Kind: "x", Unique: "k"}, {Kind: "x"}})
		got, err := r.Receive(t.Context(), 5, longWait)
		must(t, err)
		bulk(t, c, admin.BulkCancel, admin.Filter{}, admin.BulkResult{Done: len(ids)})
		next := wantFresh(t, c, Job{Kind: "x", Unique: "k"})
		for _, d := range got {
			err := db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error { return d.CompleteTx(ctx, tx.Execer()) })
			want(t, "its end", err, ErrLost)
		}
		must(t, r.Close())
		info(t, c, next, admin.StateReady)
		wantHolder(t, c, Job{Kind: "x", Unique: "k"}, next)
	})
}

// Jobs that are cancelled or deleted go by as many in a transaction as one may lock: a commit may take long.
func TestBulkBatches(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		for _, test := range []struct {
			what  admin.BulkAction
			state admin.State
		}{{admin.BulkCancel, admin.StateReady}, {admin.BulkCancel, admin.StateDelayed}, {admin.BulkDelete, admin.StateDead}} {
			enqueueMany(t, c, many(store.Chunk, func(_ int, j *Job) {
				if test.state == admin.StateDelayed {
					j.Delay = time.Hour
				}
			}))
			if test.state == admin.StateDead {
				die(t, db)
			}
			batches := 0
			_, err := adminOf(c).Bulk(t.Context(), test.what, admin.Filter{State: test.state}, admin.BulkOptions{Progress: func(r admin.BulkResult) {
				if r.Done > 0 && r.Done <= store.Chunk {
					batches++
				}
			}})
			must(t, err)
			if empty(t, db); batches > 2 { // and what is left after a full one
				t.Errorf("%d %s jobs went in %d batches", store.Chunk, test.state, batches)
			}
		}
	})
}
