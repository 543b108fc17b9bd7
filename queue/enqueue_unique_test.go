package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// uniquely is a job of a kind with the unique key k.
func uniquely(kind string) Job { return Job{Kind: kind, Unique: "k"} }

// wantHolder fails the test unless a job is not enqueued, since another has its key.
func wantHolder(t *testing.T, c *Client, job Job, holder int64) {
	t.Helper()
	e, err := c.Enqueue(t.Context(), job)
	if err != nil || !e.Existed || e.ID != holder {
		t.Errorf("got %+v, %v, and the key is that of %d", e, err, holder)
	}
	all, err := c.EnqueueMany(t.Context(), []Job{job})
	if err != nil || !all[0].Existed || all[0].ID != holder {
		t.Errorf("EnqueueMany: got %+v, %v, and the key is that of %d", all, err, holder)
	}
}

// wantFresh fails the test unless a job is enqueued.
func wantFresh(t *testing.T, c *Client, job Job) int64 {
	t.Helper()
	e, err := c.Enqueue(t.Context(), job)
	if err != nil || e.Existed {
		t.Errorf("got %+v, %v, and the key is free", e, err)
	}
	return e.ID
}

// A job is not enqueued if another job of its queue has its unique key, in whatever way it is
// enqueued. The result names the holder.
func TestUnique(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		first := wantFresh(t, c, uniquely("x"))
		wantHolder(t, c, uniquely("y"), first)
		wantHolder(t, c, Job{Kind: "x", Unique: "k", Delay: time.Hour, Key: "a"}, first)
		other := wantFresh(t, c, Job{Kind: "x", Unique: "k", Queue: "other"})
		delayed := wantFresh(t, c, Job{Kind: "x", Unique: "K", Delay: time.Hour})
		all, err := c.EnqueueMany(t.Context(), []Job{
			{Kind: "x", Unique: "new"},
			uniquely("x"),
			{Kind: "x"},
			{Kind: "x", Unique: "new"},
			{Kind: "x", Unique: "k", Queue: "other"},
			{Kind: "x", Unique: "K"},
			{Kind: "x", Unique: "ä'\\\""},
			{Kind: "x"},
		})
		must(t, err)
		for i, holder := range map[int]int64{1: first, 3: all[0].ID, 4: other, 5: delayed} {
			if !all[i].Existed || all[i].ID != holder {
				t.Errorf("of many, the one at %d is %+v, and the key is that of %d", i, all[i], holder)
			}
		}
		for _, i := range []int{0, 2, 6, 7} {
			if all[i].Existed {
				t.Errorf("of many, the one at %d is %+v", i, all[i])
			}
		}
		for _, end := range []string{"rolled back", "committed"} {
			tx := db.Begin(t, nil)
			all, wake, err := c.EnqueueTx(t.Context(), tx, Job{Kind: "x", Unique: "tx"}, uniquely("x"), Job{Kind: "x", Unique: "tx"})
			must(t, err)
			if all[0].Existed || !all[1].Existed || all[1].ID != first || !all[2].Existed || all[2].ID != all[0].ID {
				t.Errorf("in a transaction: %+v", all)
			}
			if end == "committed" {
				must(t, tx.Commit())
				wake()
				wantHolder(t, c, Job{Kind: "x", Unique: "tx"}, all[0].ID)
				continue
			}
			must(t, tx.Rollback())
		}
		if n := rowsOf(t, db); n != 8 {
			t.Errorf("there are %d jobs", n)
		}
		for _, bad := range []Job{
			{Kind: "x", Unique: "a\nb"},
			{Kind: "x", UniqueFor: time.Hour},
			{Kind: "x", Unique: "a", UniqueFor: -1},
			{Kind: "x", Unique: "a", UniqueFor: 3 * 366 * 24 * time.Hour},
		} {
			_, err := c.Enqueue(t.Context(), bad)
			want(t, fmt.Sprintf("%+v", bad), err, ErrInvalid)
		}
	})
}

// However a job ends, its unique key is free then, and not before.
func TestUniqueUntilTheEnd(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, func(q *admin.Queue) { impatient(q); q.MaxAttempts = 2 })
		w := worker(t, other(t, db), WorkerOptions{})
		w.slow = 10 * time.Millisecond
		running, goOn := make(chan int64), make(chan error)
		for _, kind := range []string{"done", "discarded", "retried", "dead", "buried", "slow", "slow and dead", "completed", "cancelled"} {
			handle(t, w, kind, func(ctx context.Context, d *Delivery) error {
				running <- d.ID
				if d.Unique != "k" {
					t.Errorf("a handler is told that the key is %q", d.Unique)
				}
				if d.Kind == "slow" || d.Kind == "slow and dead" {
					becomes(t, c, d.ID, admin.StateRunning)
				}
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case err := <-goOn:
					if d.Kind == "completed" && err == nil {
						err = inTx(ctx, db, d)
					}
					return err
				}
			})
		}
		start(t, w)
		for kind, results := range map[string][]error{
			"done": {nil}, "discarded": {Discard(errTest)}, "retried": {errTest, nil}, "dead": {errTest, errTest}, "buried": {Bury(errTest)},
			"slow": {nil}, "slow and dead": {errTest, errTest}, "completed": {nil},
		} {
			id := wantFresh(t, c, uniquely(kind))
			for _, result := range results {
				received(t, "it runs", running)
				wantHolder(t, c, uniquely("done"), id)
				goOn <- result
			}
			empty(t, db)
			next := wantFresh(t, c, uniquely("done"))
			if got := received(t, "the next one runs", running); got != next {
				t.Errorf("%d runs, not %d", got, next)
			}
			goOn <- nil
			empty(t, db)
			if n := keysOf(t, db); n != 0 {
				t.Errorf("after one that was %s, %d keys are in use", kind, n)
			}
		}
		for _, delay := range []time.Duration{0, time.Hour} {
			job := uniquely("cancelled")
			job.Delay = delay
			id := wantFresh(t, c, job)
			if delay == 0 {
				received(t, "it runs", running)
			}
			becomes(t, c, id, map[bool]admin.State{true: admin.StateRunning, false: admin.StateDelayed}[delay == 0])
			must(t, adminOf(c).Cancel(t.Context(), "", id))
			empty(t, db)
		}
		if n := keysOf(t, db); n != 0 {
			t.Errorf("%d keys are in use", n)
		}
	})
}

func inTx(ctx context.Context, db *dbtest.DB, d *Delivery) error {
	return db.Tx(ctx, func(ctx context.Context, tx *sqlrun.Session) error { return d.CompleteTx(ctx, tx.Execer()) })
}

// keysOf counts the unique keys that are in use.
func keysOf(t *testing.T, db *dbtest.DB) (n int) {
	t.Helper()
	db.Scan(t, `SELECT COUNT(*) FROM {prefix}job_unique`, nil, &n)
	return n
}

// Jobs that are removed before they run, and those that are received, free their keys.
func TestUniqueOfOtherWorkers(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		r, err := c.Receiver(t.Context(), WorkerOptions{})
		must(t, err)
		id := wantFresh(t, c, uniquely("x"))
		got, err := r.Receive(t.Context(), 5, longWait)
		must(t, err)
		wantHolder(t, c, uniquely("x"), id)
		must(t, r.Complete(t.Context(), got[0]))
		must(t, r.Close())

		w := worker(t, c, WorkerOptions{AtMostOnce: true})
		var done record
		handle(t, w, "x", func(_ context.Context, d *Delivery) error { done.add("%d", d.ID); return errTest })
		start(t, w)
		wantFresh(t, c, uniquely("x"))
		eventually(t, "it is done", func() bool { return done.len() == 1 && keysOf(t, db) == 0 })
	})
}

// A key can be kept in use for some time after its job has ended, but no longer.
func TestUniqueFor(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		var done record
		w := worker(t, other(t, db), WorkerOptions{})
		handle(t, w, "x", func(_ context.Context, d *Delivery) error { done.add("%d", d.ID); return nil })
		start(t, w)
		long := wantFresh(t, c, Job{Kind: "x", Unique: "long", UniqueFor: time.Hour})
		id := wantFresh(t, c, Job{Kind: "x", Unique: "k", UniqueFor: time.Millisecond})
		empty(t, db)
		wantHolder(t, c, Job{Kind: "x", Unique: "long"}, long)
		next := wantFresh(t, c, Job{Kind: "x", Unique: "k", UniqueFor: time.Hour}) // whether the other's row is there or not
		empty(t, db)
		wantHolder(t, c, Job{Kind: "x", Unique: "k"}, next)
		if next <= id || done.len() != 3 {
			t.Errorf("%d after %d, and done were %v", next, id, done.all())
		}
		// One that has yet to run keeps its key for longer than it asked for.
		must(t, adminOf(c).Pause(t.Context(), defaultQueue, ""))
		knowsPause(t, w)
		waits := wantFresh(t, c, Job{Kind: "x", Unique: "w", UniqueFor: time.Nanosecond})
		wantHolder(t, c, Job{Kind: "x", Unique: "w"}, waits)
		db.Do(t, `UPDATE {prefix}job_unique SET free_at = `+ago, nil)
		must(t, worker(t, c, WorkerOptions{}).sweeper.sweep(t.Context()))
		wantRows(t, db, "keys", `SELECT unique_key, pending FROM {prefix}job_unique`, "w yes")
	})
}

// A dead job that is to be tried anew takes its key again, unless another job has it.
func TestUniqueOfTheDead(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		w := worker(t, other(t, db), WorkerOptions{})
		fail := atomic.Bool{}
		fail.Store(true)
		handle(t, w, "x", func(context.Context, *Delivery) error {
			if fail.Load() {
				return Bury(errTest)
			}
			return nil
		})
		stop := start(t, w)
		dead := wantFresh(t, c, uniquely("x"))
		becomes(t, c, dead, admin.StateDead)
		stop()
		next := wantFresh(t, c, uniquely("x"))
		want(t, "a retry while the key is in use", adminOf(c).Retry(t.Context(), "", dead), ErrState)
		info(t, c, dead, admin.StateDead)
		must(t, adminOf(c).Cancel(t.Context(), "", next))
		must(t, adminOf(c).Retry(t.Context(), "", dead))
		if i := info(t, c, dead, admin.StateDelayed); i.Unique != "k" {
			t.Errorf("it is %+v", i)
		}
		wantHolder(t, c, uniquely("x"), dead)
		fail.Store(false)
		w = worker(t, other(t, db), WorkerOptions{})
		handle(t, w, "x", func(context.Context, *Delivery) error { return nil })
		start(t, w)
		empty(t, db)
		if n := keysOf(t, db); n != 0 {
			t.Errorf("%d keys are in use", n)
		}
	})
}

// A caller's transaction that began before a key was taken still finds that out, or has to
// begin anew.
func TestUniqueOfOldSnapshots(t *testing.T) {
	having(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		enqueue(t, c, Job{Kind: "x"})
		tx := db.Begin(t, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
		if hasSnapshotIsolation(t, db) {
			_, err := tx.ExecContext(t.Context(), "SET SESSION innodb_snapshot_isolation = OFF")
			must(t, err)
		}
		var n int
		must(t, tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM dbcron_job_unique").Scan(&n))
		holder := wantFresh(t, c, uniquely("x"))
		all, _, err := c.EnqueueTx(t.Context(), tx, uniquely("x"))
		if !db.Dialect.Retryable(err) && (err != nil || !all[0].Existed || all[0].ID != holder) {
			t.Errorf("got %+v, %v, and the key is that of %d", all, err, holder)
		}
	})
}

// A dead job that has kept its key for a while, and is tried anew, has it again until it
// has ended, however long that takes.
func TestUniqueOfTheDeadForAWhile(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		w := worker(t, other(t, db), WorkerOptions{})
		handle(t, w, "x", func(context.Context, *Delivery) error { return Bury(errTest) })
		stop := start(t, w)
		job := uniquely("x")
		job.UniqueFor = time.Hour
		dead := wantFresh(t, c, job)
		becomes(t, c, dead, admin.StateDead)
		wantHolder(t, c, uniquely("x"), dead)
		stop()
		must(t, adminOf(c).Retry(t.Context(), "", dead))
		db.Do(t, `UPDATE {prefix}job_unique SET free_at = `+ago, nil)
		must(t, worker(t, c, WorkerOptions{}).sweeper.sweep(t.Context()))
		wantHolder(t, c, uniquely("x"), dead)
		must(t, adminOf(c).Cancel(t.Context(), "", dead))
		wantFresh(t, c, uniquely("x"))
	})
}

// Whoever enqueues again until there is no error has enqueued once, wherever the
// connection was cut, and also if the job was done meanwhile.
func TestUniqueAfterUnknownOutcomes(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, impatient)
		var done record
		w := worker(t, other(t, db), WorkerOptions{})
		handle(t, w, "x", func(_ context.Context, d *Delivery) error { done.add("%s", d.Unique); return nil })
		start(t, w)
		keys := 0
		for call := 1; ; call++ {
			hit := false
			for _, after := range []bool{false, true} {
				fault := &dbtest.Fault{Call: call, After: after}
				from := client(t, db.Broken(t, fault), Options{})
				keys++
				job := Job{Kind: "x", Unique: fmt.Sprint("key ", keys), UniqueFor: time.Hour}
				_, err := from.Enqueue(t.Context(), job)
				hit = hit || err != nil
				for range 2 {
					empty(t, db)
					_, err = c.Enqueue(t.Context(), job)
					must(t, err)
				}
			}
			if !hit {
				break
			}
		}
		empty(t, db)
		if done.len() != keys {
			t.Errorf("%d keys, and %d jobs were done: %v", keys, done.len(), done.all())
		}
	})
}

// While many enqueue jobs of few keys, and workers end them on connections that break,
// no key has two jobs at a time, and in the end none is in use.
func TestUniqueUnderWay(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		edit(t, client(t, db, Options{Blocks: 2}), func(q *admin.Queue) { impatient(q); q.MaxAttempts = 3 })
		var off atomic.Bool
		broken := func() *Client {
			b := db.Broken(t, &dbtest.Fault{Random: func() (bool, bool) { return !off.Load() && rand.IntN(30) == 0, rand.IntN(2) == 0 }})
			b.Pool().SetMaxOpenConns(5)
			return client(t, b, Options{})
		}
		var mu sync.Mutex
		alive := map[string]*Delivery{} // the job of a key that has begun, and not ended for good
		var made, ended atomic.Int64
		for range 2 {
			w := worker(t, broken(), WorkerOptions{Lease: 10 * time.Second, Concurrency: 3, Batch: 5})
			w.slow = 5 * time.Millisecond
			handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
				mu.Lock()
				if o := alive[d.Unique]; o != nil && o.ID != d.ID && ctx.Err() == nil && o.Context().Err() == nil {
					t.Errorf("key %s: %d runs, and so does %d", d.Unique, d.ID, o.ID)
				}
				alive[d.Unique] = d
				mu.Unlock()
				if rand.IntN(4) == 0 {
					<-time.After(10 * time.Millisecond) // to be checked out
				}
				mu.Lock()
				if alive[d.Unique] == d {
					delete(alive, d.Unique)
				}
				mu.Unlock()
				ended.Add(1)
				switch rand.IntN(8) {
				case 0:
					return errTest
				case 1:
					return Discard(errTest)
				}
				return nil
			})
			start(t, w)
		}
		var group sync.WaitGroup
		for range 4 {
			from := broken()
			group.Go(func() {
				for range 60 {
					jobs := make([]Job, 1+rand.IntN(4))
					for i := range jobs {
						jobs[i] = Job{Kind: "x", Unique: fmt.Sprint(rand.IntN(6)), UniqueFor: time.Duration(rand.IntN(2)) * time.Millisecond}
					}
					all, err := from.EnqueueMany(t.Context(), jobs)
					if err != nil && (errors.Is(err, ErrInvalid) || t.Context().Err() != nil) {
						t.Error(err)
					}
					for _, e := range all {
						if err == nil && !e.Existed { // else it may not have been made
							made.Add(1)
						}
					}
				}
			})
		}
		group.Wait()
		off.Store(true)
		empty(t, db)
		if made.Load() == 0 || ended.Load() < made.Load() {
			t.Errorf("%d jobs were made, and %d attempts ended", made.Load(), ended.Load())
		}
		pending := 0
		db.Scan(t, `SELECT COUNT(*) FROM {prefix}job_unique WHERE pending = 'yes'`, nil, &pending)
		if pending != 0 {
			t.Errorf("%d keys are in use by jobs that are no more", pending)
		}
	})
}

// What the statements about unique keys reach: those of a queue and its ended jobs.
func TestKeyStatements(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		all := []string{
			"1 a 7 yes", "1 b 8 yes", "1 c 9 no", "1 d 10 no", "1 e 11 yes", "1 f 12 no", "1 g 7 no",
			"1 h 11 yes", "1 i 12 yes", "2 a 7 yes", "2 c 9 no",
		}
		without := func(gone ...string) (left []string) {
			return slices.DeleteFunc(slices.Clone(all), func(row string) bool { return slices.Contains(gone, row) })
		}
		ids := store.JobArgs(1, 0, 0, []int64{7, 9, 10, 11})
		ids["uniques"] = []string{"a", "c", "d", "e", "f", "i"}
		take := sqlrun.Args{"queue": 1, "unique_key": "c", "holder": 9, "job": 99, "until_us": nil, "wait_us": nil}
		not := func(name string, value any) sqlrun.Args {
			args := maps.Clone(take)
			args[name] = value
			return args
		}
		for _, test := range []struct {
			stmt *sqlrun.Stmt
			args sqlrun.Args
			want []string
		}{
			{store.FreeKeys, ids, without("1 a 7 yes", "1 c 9 no", "1 e 11 yes")},
			{store.PartingKeys, ids, append(without("1 a 7 yes", "1 e 11 yes"), "1 a 7 no", "1 e 11 no")},
			{store.PassKeys, ids, without("1 a 7 yes", "1 c 9 no", "1 d 10 no", "1 e 11 yes")},
			{store.KeepKeys, ids, append(without("1 c 9 no", "1 d 10 no"), "1 c 9 yes", "1 d 10 yes")},
			{store.TakeOverKeys, sqlrun.Args{"rows": []sqlrun.Args{take}}, append(without("1 c 9 no"), "1 c 99 yes")},
			{store.PassOnKeys, sqlrun.Args{"rows": []sqlrun.Args{
				{"queue": 1, "unique_key": "a", "holder": 7, "job": 99, "wait_us": 1}, {"queue": 1, "unique_key": "b", "holder": 9, "job": 98, "wait_us": 1},
			}}, append(without("1 a 7 yes"), "1 a 99 yes")},
			{store.TakeOverKeys, sqlrun.Args{"rows": []sqlrun.Args{not("queue", 3)}}, all},
			{store.TakeOverKeys, sqlrun.Args{"rows": []sqlrun.Args{not("holder", 8)}}, all},
			{store.TakeOverKeys, sqlrun.Args{"rows": []sqlrun.Args{not("unique_key", "d")}}, all},
			{store.TakeOverKeys, sqlrun.Args{"rows": []sqlrun.Args{{"queue": 1, "unique_key": "d", "holder": 10, "job": 99, "until_us": nil, "wait_us": nil}}}, all}, // not yet
			{store.TakeOverKeys, sqlrun.Args{"rows": []sqlrun.Args{{"queue": 1, "unique_key": "e", "holder": 11, "job": 99, "until_us": nil, "wait_us": nil}}}, all}, // it has yet to end
		} {
			db.Do(t, `DELETE FROM {prefix}job_unique`, nil)
			byHand(t, db, `INSERT INTO {prefix}job_unique (queue_id, unique_key, job, pending, free_at) VALUES
				(1, 'a', 7, 'yes', NULL), (1, 'b', 8, 'yes', NULL), (1, 'c', 9, 'no', `+ago+`), (1, 'd', 10, 'no', `+ahead+`),
				(1, 'e', 11, 'yes', `+ago+`), (1, 'f', 12, 'no', `+ago+`), (1, 'g', 7, 'no', `+ahead+`), (1, 'h', 11, 'yes', NULL), (1, 'i', 12, 'yes', NULL), (2, 'a', 7, 'yes', NULL), (2, 'c', 9, 'no', `+ago+`)`)
			old, err := sqlrun.Select(t.Context(), &db.Session, store.OldKeys, sqlrun.Args{"limit": 10}, func(rows *sql.Rows) (text string, err error) {
				var queue, none, job int
				var key string
				err = rows.Scan(&queue, &none, &job, &key)
				return fmt.Sprint(queue, job, key), err
			})
			must(t, err)
			if slices.Sort(old); !slices.Equal(old, []string{"1 12f", "1 9c", "2 9c"}) {
				t.Errorf("old are %q", old)
			}
			for _, stmt := range []*sqlrun.Stmt{store.KeyHolders, store.SeenKeyHolders} {
				holders, err := sqlrun.Select(t.Context(), &db.Session, stmt, sqlrun.Args{"rows": []sqlrun.Args{
					{"at": 1, "queue": 1, "unique_key": "a"},
					{"at": 2, "queue": 2, "unique_key": "c"},
					{"at": 3, "queue": 1, "unique_key": "d"},
					{"at": 4, "queue": 1, "unique_key": "x"},
				}}, func(rows *sql.Rows) (text string, err error) {
					var at, job, free, wait int
					err = rows.Scan(&at, &job, &free, &wait)
					return fmt.Sprint(at, job, free), err
				})
				must(t, err)
				if slices.Sort(holders); !slices.Equal(holders, []string{"1 7 0", "2 9 1", "3 10 0"}) {
					t.Errorf("%s: holders are %q", stmt.Name, holders)
				}
			}
			_, err = db.Exec(t.Context(), test.stmt, test.args)
			must(t, err)
			slices.Sort(test.want)
			wantRows(t, db, test.stmt.Name, `SELECT queue_id, unique_key, job, pending FROM {prefix}job_unique ORDER BY queue_id, unique_key`,
				test.want...)
		}
	})
}

// Callers whose jobs are written together wait for none of their keys that another transaction holds: whoever wants that one waits alone,
// and those who come later do as well. So it is when the transaction has taken the key, and on some engines when it has freed it: on the others
// the key is in use until it commits.
func TestUniqueBesideAStranger(t *testing.T) {
	keyed := func(key string) Job { return Job{Kind: "x", Unique: key} }
	having(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		for name, hold := range map[string]func(t *testing.T, c *Client, tx *sql.Tx) (holder int64){
			"taken": func(t *testing.T, c *Client, tx *sql.Tx) int64 {
				all, _, err := c.EnqueueTx(t.Context(), tx, keyed("taken"))
				must(t, err)
				return all[0].ID
			},
			"freed": func(t *testing.T, c *Client, tx *sql.Tx) int64 {
				id := wantFresh(t, c, keyed("freed"))
				_, err := tx.ExecContext(t.Context(), `DELETE FROM `+db.Prefix()+`job_unique WHERE unique_key = 'freed'`)
				must(t, err)
				if db.Dialect.LockedNow != "" {
					return id
				}
				return 0
			},
		} {
			metered, meter := db.Metered(t, ``)
			metered.Pool().SetMaxOpenConns(20)
			c := client(t, metered, Options{Blocks: 1})
			enqueue(t, c, keyed("before "+name))
			tx := db.Begin(t, nil)
			holder := hold(t, client(t, db, Options{Blocks: 1}), tx)

			results := make(chan Enqueued)
			await := func() {
				e, err := c.Enqueue(t.Context(), keyed(name))
				if err != nil {
					t.Error(err)
				}
				results <- e
			}
			jobs := plainJobs("", func(i int, j *Job) { j.Unique = fmt.Sprint(name, i) })[:20]
			jobs[7].Unique = "before " + name // one that is in use
			alone := func() (n int) {
				c.lone.mu.Lock()
				defer c.lone.mu.Unlock()
				for key, callers := range c.lone.keys {
					if key.unique == name {
						n += callers
					}
				}
				return n
			}
			enqueueWith(t, c, meter, jobs, func() { go await() })
			waits := name == "taken" || holder == 0
			if waits {
				eventually(t, "the one with the held key waits alone", func() bool { return alone() == 1 })
				go await()
				eventually(t, "so does the next one", func() bool { return alone() == 2 })
			} else {
				go await()
			}
			wantFresh(t, c, keyed("beside "+name))
			if waits {
				must(t, tx.Commit())
			}
			one, two := received(t, "an outcome", results), received(t, "an outcome", results)
			_ = tx.Rollback() // if it has not committed
			if one.ID != two.ID || (one.Existed && two.Existed) != (holder != 0) || holder != 0 && one.ID != holder {
				t.Errorf("%s by %d: got %+v and %+v", name, holder, one, two)
			}
			eventually(t, "nobody waits any more", func() bool { return alone() == 0 })
			wantFresh(t, c, keyed("after "+name))
		}
	})
}
