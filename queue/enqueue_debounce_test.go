package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// debounced is a job that waits for an hour without changes.
func debounced(n int) Job {
	return Job{Kind: "x", Payload: fmt.Append(nil, n), Unique: "k", Delay: time.Hour, Debounce: 90 * time.Minute}
}

// wantGone fails the test unless a job is in no table.
func wantGone(t *testing.T, c *Client, id int64) {
	t.Helper()
	if i, err := adminOf(c).Job(t.Context(), "", id); !errors.Is(err, ErrNotFound) {
		t.Errorf("job %d: %+v, %v", id, i, err)
	}
}

// A job replaces the one that waits with its key, wherever that is, and starts no later than the first one's longest wait. Other jobs of
// the key are kept out.
func TestDebounce(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 4})
		first := wantFresh(t, c, debounced(1))
		second := wantFresh(t, c, debounced(2))
		wantGone(t, c, first)
		i := info(t, c, second, admin.StateDelayed)
		if string(i.Payload) != "2" || i.UniqueUntil != UntilBegin || i.At.Sub(i.Enqueued.Add(time.Hour)).Abs() > time.Millisecond {
			t.Errorf("it is %+v", i)
		}
		wantHolder(t, c, uniquely("x"), second)
		wantHolder(t, c, onceMore("x"), second)

		all, err := c.EnqueueMany(t.Context(), []Job{debounced(3), {Kind: "x"}, debounced(4), debounced(5), uniquely("x")})
		must(t, err)
		third := all[3].ID
		for at, existed := range []bool{true, false, true, false, true} {
			if all[at].Existed != existed || existed && all[at].ID != third {
				t.Errorf("of several jobs of a key number %d is %+v", at, all[at])
			}
		}
		wantGone(t, c, second)
		later := debounced(6) // elsewhere, and with less time
		later.Key, later.Delay = "key", 89*time.Minute+59*time.Second
		db.Do(t, "UPDATE {prefix}job_unique SET wait_until = {time :us}", sqlrun.Args{"us": store.TimeOf(third).Add(time.Hour).UnixMicro()})
		fourth := wantFresh(t, c, later)
		wantGone(t, c, third)
		if i := info(t, c, fourth, admin.StateDelayed); i.At.Sub(store.TimeOf(third).Add(time.Hour)).Abs() > time.Millisecond {
			t.Errorf("it starts at %v, and the first one waits since %v", i.At, store.TimeOf(third))
		}

		tx := db.Begin(t, nil)
		in, wake, err := c.EnqueueTx(t.Context(), tx, debounced(7))
		must(t, err)
		must(t, tx.Commit())
		wake()
		wantGone(t, c, fourth)
		must(t, adminOf(c).Cancel(t.Context(), "", in[0].ID))
		if n := keysOf(t, db); n != 0 {
			t.Errorf("%d keys are in use", n)
		}

		holder := wantFresh(t, c, uniquely("x"))
		wantHolder(t, c, debounced(8), holder)
	})
}

// A job that has waited for as long as it may stays, and so does one that waits no more; the new one has the key.
func TestDebounceDue(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		first := wantFresh(t, c, debounced(1))
		byHand(t, db, "UPDATE {prefix}job_unique SET wait_until = "+ago, "UPDATE {prefix}queue_block SET state = 'LEASED'")
		second := wantFresh(t, c, debounced(2))
		info(t, c, first, admin.StateDelayed)
		byHand(t, db, "DELETE FROM {prefix}job_delayed WHERE id = "+fmt.Sprint(second))
		third := wantFresh(t, c, debounced(3))
		fourth := wantFresh(t, c, debounced(4))
		wantGone(t, c, third)
		for _, id := range []int64{first, fourth} {
			must(t, adminOf(c).Cancel(t.Context(), "", id))
		}
		if n := keysOf(t, db); n != 0 {
			t.Errorf("%d keys are in use", n)
		}
	})
}

// Where no job begins, one whose longest wait is over is replaced, too, by one that is due at once: of all changes the newest is done.
func TestDebounceBehind(t *testing.T) {
	for name, behind := range map[string]string{
		"paused":    "UPDATE {prefix}queue SET state = 'paused'",
		"no worker": "UPDATE {prefix}queue_block SET state = 'FREE'",
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, db *dbtest.DB) {
				c := client(t, db, Options{Blocks: 2})
				edit(t, c, impatient)
				if name == "paused" {
					byHand(t, db, "UPDATE {prefix}queue_block SET state = 'LEASED'")
				}
				byHand(t, db, behind)
				for n := range 10 {
					wantFresh(t, c, debounced(n))
					byHand(t, db, "UPDATE {prefix}job_unique SET wait_until = "+ago)
				}
				wantRows(t, db, "behind", "SELECT COUNT(*) FROM {prefix}job_delayed WHERE run_at < {now}", "1")
				if t.Failed() {
					return
				}
				byHand(t, db, "UPDATE {prefix}queue SET state = 'active'", "UPDATE {prefix}queue_block SET state = 'FREE'")
				var done []string
				w := worker(t, c, WorkerOptions{Concurrency: 1})
				handle(t, w, "x", func(_ context.Context, d *Delivery) error {
					done = append(done, string(d.Payload))
					return nil
				})
				stop := start(t, w)
				empty(t, db)
				stop()
				if !slices.Equal(done, []string{"9"}) {
					t.Errorf("of ten changes those were done: %q", done)
				}
			})
		})
	}
}

// A job is replaced as well when it was moved to another block, or queue; another job with its id is not.
func TestDebounceElsewhere(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 4})
		first := wantFresh(t, c, debounced(1))
		at := info(t, c, first, admin.StateDelayed).Block
		byHand(t, db, fmt.Sprintf("UPDATE {prefix}job_delayed SET divided = %d WHERE id = %d", (at+1)%4, first))
		byHand(t, db, fmt.Sprintf("INSERT INTO {prefix}job_delayed (queue_id, divided, id, priority, kind, unique_key, error, run_at) VALUES (1, %d, %d, 2, 'other', 'other', '', %s), (1, %d, %d, 2, 'other', NULL, '', %s)",
			at, first, ahead, (at+2)%4, first, ahead))
		second := wantFresh(t, c, debounced(2))
		wantRows(t, db, "with one id", "SELECT kind, id FROM {prefix}job_delayed ORDER BY kind, id",
			fmt.Sprintf("other %d", first), fmt.Sprintf("other %d", first), fmt.Sprintf("x %d", second))

		elsewhere(t, c, "to", 3)
		moveAll(t, c, MoveOptions{Kinds: []string{"x"}}, Moved{Jobs: 1})
		there := debounced(3)
		there.Queue = "to"
		third := wantFresh(t, c, there)
		wantGone(t, c, second)
		wantFresh(t, c, debounced(4))
		wantRows(t, db, "in the other queue", "SELECT id FROM {prefix}job_delayed WHERE queue_id <> 1", fmt.Sprint(third))
	})
}

// What the statements reach that look for replaced jobs.
func TestDebounceStatements(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		elsewhere(t, c, defaultQueue, 2)
		elsewhere(t, c, "to", 2)
		for _, row := range []string{"1, 0, 7, 'a'", "1, 1, 7, 'a'", "1, 0, 8, 'a'", "2, 0, 7, 'a'", "2, 1, 9, 'b'", "1, 0, 9, 'b'"} {
			byHand(t, db, "INSERT INTO {prefix}job_delayed (queue_id, divided, id, unique_key, priority, kind, error, run_at) VALUES ("+row+", 2, 'x', '', "+ahead+")")
		}
		scan := func(rows *sql.Rows) (text string, err error) {
			var divided, id int
			err = rows.Scan(&divided, &id)
			return fmt.Sprint(divided, " ", id), err
		}
		for _, test := range []struct {
			stmt *sqlrun.Stmt
			args sqlrun.Args
			want []string
		}{
			{store.LockReplaced, sqlrun.Args{"places": []sqlrun.Args{{"queue": 1, "block": 0, "job": 7, "unique_key": "a"}}}, []string{"0 7"}},
			{store.WhereDelayed, sqlrun.Args{"queue": 1, "jobs": []sqlrun.Args{{"job": 7}, {"job": 9}}}, []string{"0 7", "0 9", "1 7"}},
		} {
			got, err := sqlrun.Select(t.Context(), &db.Session, test.stmt, test.args, scan)
			if slices.Sort(got); err != nil || !slices.Equal(got, test.want) {
				t.Errorf("%s: %q, %v", test.stmt.Name, got, err)
			}
		}
	})
}

// While jobs of a key are enqueued, replaced and done, the newest one is done in the end.
func TestDebounceUnderWay(t *testing.T) {
	for _, once := range []bool{false, true} {
		t.Run(map[bool]string{false: "at least once", true: "at most once"}[once], func(t *testing.T) {
			each(t, func(t *testing.T, db *dbtest.DB) {
				c := client(t, db, Options{Blocks: 2})
				edit(t, c, impatient)
				const keys, changes, writers = 2, 20, 3
				var mu sync.Mutex
				var newest, done [keys]int
				for range 2 {
					w := worker(t, other(t, db), WorkerOptions{Concurrency: 4, AtMostOnce: once})
					handle(t, w, "x", func(_ context.Context, d *Delivery) error {
						var change [2]int
						if err := d.Decode(&change); err != nil {
							return err
						}
						mu.Lock()
						defer mu.Unlock()
						done[change[0]] = max(done[change[0]], change[1])
						return nil
					})
					start(t, w)
				}
				var all sync.WaitGroup
				for range writers {
					all.Go(func() {
						for i := range changes {
							key := i % keys
							mu.Lock() // the order of the changes is that of their enqueueing
							newest[key]++
							_, err := c.Enqueue(t.Context(), Job{
								Kind: "x", Payload: fmt.Appendf(nil, "[%d, %d]", key, newest[key]), Unique: fmt.Sprint(key),
								Delay: time.Millisecond, Debounce: 20 * time.Millisecond,
							})
							mu.Unlock()
							if err != nil {
								t.Error(err)
							}
						}
					})
				}
				all.Wait()
				empty(t, db)
				eventually(t, "the newest changes are done", func() bool { // they begin after their rows were removed
					mu.Lock()
					defer mu.Unlock()
					return done == newest
				})
				if n := keysOf(t, db); n != 0 {
					t.Errorf("%d keys are in use", n)
				}
			})
		})
	}
}

// Concurrent callers replace each other's jobs, one after the other, also in transactions of their own; one job is left.
func TestDebounceOfMany(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		var all sync.WaitGroup
		for n := range 4 {
			all.Go(func() {
				for i := range 5 {
					if _, err := c.Enqueue(t.Context(), debounced(5*n+i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		wantRows(t, db, "left", "SELECT COUNT(*), MIN(u.job - j.id), MAX(u.job - j.id) FROM {prefix}job_delayed AS j, {prefix}job_unique AS u", "1 0 0")
	})
}

// What a Debounce needs.
func TestDebounceChecks(t *testing.T) {
	for field, change := range map[string]func(*Job){
		"no key": func(j *Job) { j.Unique = "" }, "no delay": func(j *Job) { j.Delay = 0 }, "a time": func(j *Job) { j.Delay, j.RunAt = 0, time.Unix(1, 0) },
		"shorter than the delay": func(j *Job) { j.Debounce = time.Minute }, "negative": func(j *Job) { j.Debounce = -1 },
		"longer than a year": func(j *Job) { j.Debounce = 367 * 24 * time.Hour }, "a key that lasts": func(j *Job) { j.UniqueFor = time.Hour },
		"until its end": func(j *Job) { j.UniqueUntil = UntilEnd }, "a group": func(j *Job) { j.Group = 1 },
	} {
		j := debounced(1)
		change(&j)
		var wrong *InvalidError
		if err := j.Check(); !errors.As(err, &wrong) || wrong.Field != "debounce" {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := debounced(1).Check(); err != nil {
		t.Error(err)
	}
}
