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
	"github.com/dbcron/dbcron/queue/internal/store"
)

// keyIn returns a key that belongs to a block.
func keyIn(block, blocks int, name string) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint(name, i); store.Divided(key, 0, blocks) == block {
			return key
		}
	}
}

// sameID writes jobs of one id by hand, one to each block of the default queue, which has two.
// Each has the key and the unique key that are returned.
func sameID(t *testing.T, db *dbtest.DB, c *Client, state admin.State) (id int64, keys []string) {
	t.Helper()
	edit(t, c, func(*admin.Queue) {})
	q, err := c.queue(t.Context(), defaultQueue)
	must(t, err)
	db.Do(t, `UPDATE {prefix}queue SET ordered = 'yes'`, nil)
	var now int64
	must(t, db.Get(t.Context(), store.ReadClock, nil, &now))
	id = store.TickOf(now) + 5
	for block := range 2 {
		key := keyIn(block, 2, "k")
		keys = append(keys, key)
		args := sqlrun.Args{"queue": q.ID, "block": block, "id": id, "kind": "x", "key": key}
		columns, values := "queue_id, divided, priority, id, kind, job_key, unique_key", ":queue, :block, 2, :id, :kind, :key, :key"
		table := "job"
		switch state {
		case admin.StateDelayed:
			table, columns, values = "job_delayed", columns+", run_at", values+", {now}"
		case admin.StateRunning: // of a worker that has left
			table, columns, values = "job_running", columns+", attempt, state, lock_by, started_at", values+", 1, 'handed', 'gone', {now}"
		case admin.StateDead:
			table, columns, values = "job_dead", columns+", attempt", values+", 1"
		}
		db.Do(t, "INSERT INTO {prefix}"+table+" ("+columns+") VALUES ("+values+")", args)
		if state != admin.StateDead {
			db.Do(t, "INSERT INTO {prefix}job_unique (queue_id, unique_key, job) VALUES (:queue, :key, :id)", args)
		}
	}
	return id, keys
}

// endedWith lists the jobs with an id that are dead or done, by their keys.
func endedWith(t *testing.T, db *dbtest.DB, id int64) []string {
	t.Helper()
	return db.List(t, `SELECT 'dead', job_key FROM {prefix}job_dead WHERE id = :id UNION ALL SELECT outcome, job_key FROM {prefix}job_done WHERE id = :id ORDER BY 1, 2`, sqlrun.Args{"id": id})
}

// Two jobs with the same id in two blocks are processed like any others, from whichever table
// and with any outcome: each once, its own unique key is free afterwards, and the next jobs of
// their blocks continue.
func TestSameID(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		for _, from := range []admin.State{admin.StateReady, admin.StateDelayed, admin.StateRunning} {
			for _, how := range []string{"done", "second", "slow", "dead", "tx", "exact", "once"} {
				if how == "once" && from == admin.StateRunning || how == "exact" && from == admin.StateRunning {
					continue // such a worker takes over none, and a receiver is not told of those
				}
				t.Run(fmt.Sprint(from, " ", how), func(t *testing.T) {
					void(t, db)
					byHand(t, db, "DELETE FROM {prefix}job_unique")
					testSameID(t, db, from, how)
				})
			}
		}
	})
}

func testSameID(t *testing.T, db *dbtest.DB, from admin.State, how string) {
	t.Helper()
	c := client(t, db, Options{})
	edit(t, c, func(q *admin.Queue) { impatient(q); keeps(q) })
	id, keys := sameID(t, db, c, from)
	for _, key := range keys {
		enqueue(t, c, Job{Kind: "next", Key: key})
	}
	var did record
	if how == "exact" {
		testSameIDReceived(t, db, c, id, keys)
		return
	}
	w := worker(t, c, WorkerOptions{AtMostOnce: how == "once"})
	if how == "slow" {
		w.slow = 0
	}
	begun := make(chan string, 2)
	handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
		did.add("%s %d", d.Key, d.ID)
		switch {
		case how == "second" && did.count(d.Key) == 1:
			return errTest
		case how == "slow": // until both are checked out
			begun <- d.Key
			eventually(t, "both are checked out", func() bool {
				running, _, err := adminOf(c).Jobs(ctx, admin.Filter{State: admin.StateRunning})
				return err == nil && (len(running) == 2 || did.count("next") > 0)
			})
			return nil
		case how == "dead":
			return Bury(errTest)
		case how == "tx":
			return inTx(ctx, db, d)
		}
		return nil
	})
	handle(t, w, "next", func(_ context.Context, d *Delivery) error { did.add("next %s", d.Key); return nil })
	stop := start(t, w)
	if how == "slow" {
		first, second := received(t, "a job begins", begun), received(t, "the other begins", begun)
		if first == second {
			t.Errorf("%s begins twice", first)
		}
	}
	empty(t, db)
	stop()
	outcome, times := "done", 1
	switch how {
	case "dead":
		outcome = "dead"
	case "second":
		times = 2
	}
	var want []string
	for _, key := range slices.Sorted(slices.Values(keys)) {
		want = append(want, outcome+" "+key)
		if n := did.count(fmt.Sprintf("%s %d", key, id)); n != times {
			t.Errorf("the job of key %s was tried %d times, not %d", key, n, times)
		}
		if n := did.count("next " + key); n != 1 {
			t.Errorf("the job after that of key %s was done %d times", key, n)
		}
	}
	if got := endedWith(t, db, id); !slices.Equal(got, want) {
		t.Errorf("ended are %q, not %q", got, want)
	}
	wantRows(t, db, "unique keys", `SELECT unique_key FROM {prefix}job_unique`)
}

func testSameIDReceived(t *testing.T, db *dbtest.DB, c *Client, id int64, keys []string) {
	t.Helper()
	r := receiver(t, c, WorkerOptions{})
	defer r.Close()
	var did []string
	for len(did) < 2*len(keys) {
		got, err := r.Receive(t.Context(), 4, longWait)
		must(t, err)
		for _, d := range got {
			did = append(did, d.Kind+" "+d.Key)
			must(t, r.Complete(t.Context(), d))
		}
	}
	empty(t, db)
	slices.Sort(did)
	if want := []string{"next " + keys[0], "next " + keys[1], "x " + keys[0], "x " + keys[1]}; !slices.Equal(did,
		slices.Sorted(slices.Values(want))) {
		t.Errorf("received were %q, not %q", did, want)
	}
	if got := endedWith(t, db, id); len(got) != 2 {
		t.Errorf("ended are %q", got)
	}
}

// The end of a job frees no unique key of another that has its id.
func TestSameIDUnique(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		id, keys := sameID(t, db, c, admin.StateReady)
		w := worker(t, c, WorkerOptions{})
		hold := make(chan struct{})
		handle(t, w, "x", func(_ context.Context, d *Delivery) error {
			if d.Key == keys[1] {
				<-hold
			}
			return nil
		})
		start(t, w)
		eventually(t, "one is done", func() bool { return rowsOf(t, db) == 1 })
		e, err := c.Enqueue(t.Context(), Job{Kind: "x", Unique: keys[1]})
		must(t, err)
		if !e.Existed || e.ID != id {
			t.Errorf("the key is free while its job runs: %+v", e)
		}
		e, err = c.Enqueue(t.Context(), Job{Kind: "x", Unique: keys[0]})
		must(t, err)
		if e.Existed {
			t.Errorf("the key of the one that is done is not free: %+v", e)
		}
		close(hold)
		empty(t, db)
	})
}

// What people do with one of two jobs that have one id does nothing to the other: alone its id
// does not select it.
func TestSameIDAdmin(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for _, test := range []struct {
			state admin.State
			what  admin.BulkAction
		}{
			{admin.StateReady, admin.BulkCancel},
			{admin.StateDelayed, admin.BulkCancel},
			{admin.StateRunning, admin.BulkCancel},
			{admin.StateDead, admin.BulkDelete},
			{admin.StateDead, admin.BulkRetry},
		} {
			t.Run(fmt.Sprint(test.state, " ", test.what), func(t *testing.T) {
				void(t, db)
				byHand(t, db, "DELETE FROM {prefix}job_unique")
				c := client(t, db, Options{})
				id, keys := sameID(t, db, c, test.state)
				for what, do := range map[string]func() error{
					"get":    func() error { _, err := adminOf(c).Job(t.Context(), "", id); return err },
					"cancel": func() error { return adminOf(c).Cancel(t.Context(), "", id) },
					"delete": func() error { return adminOf(c).Delete(t.Context(), "", id) },
					"retry":  func() error { return adminOf(c).Retry(t.Context(), "", id) },
				} {
					err := do()
					for block, key := range keys {
						if !errors.Is(err, admin.ErrAmbiguous) || !strings.Contains(err.Error(), fmt.Sprintf("block %d", block)) ||
							!strings.Contains(err.Error(), key) {
							t.Errorf("%s: %v", what, err)
						}
					}
				}
				r, err := adminOf(c).Bulk(t.Context(), test.what, admin.Filter{State: test.state, Key: keys[0]}, admin.BulkOptions{})
				must(t, err)
				if r.Done != 1 {
					t.Errorf("it was done with %+v", r)
				}
				left, _, err := adminOf(c).Jobs(t.Context(), admin.Filter{State: test.state})
				must(t, err)
				if len(left) != 1 || left[0].Key != keys[1] || left[0].Block != 1 {
					t.Fatalf("left are %+v", left)
				}
				if test.what != admin.BulkCancel {
					return
				}
				wantRows(t, db, "unique keys", `SELECT unique_key FROM {prefix}job_unique`, keys[1])
			})
		}
	})
}

// Two jobs of one id that are dead are tried anew together, also where there is one block by
// now, in which one has to wait for the other.
func TestSameIDRetry(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for _, blocks := range []int{2, 1} {
			t.Run(fmt.Sprint(blocks), func(t *testing.T) {
				void(t, db)
				byHand(t, db, "DELETE FROM {prefix}job_unique")
				c := client(t, db, Options{})
				id, keys := sameID(t, db, c, admin.StateDead)
				must(t, adminOf(c).Resize(t.Context(), defaultQueue, blocks))
				byHand(t, db, `UPDATE {prefix}queue_block SET insert_time = `+ago)
				c = client(t, db, Options{}) // which knows it
				r, err := adminOf(c).Bulk(t.Context(), admin.BulkRetry, admin.Filter{}, admin.BulkOptions{})
				must(t, err)
				if r.Done != blocks || r.InUse != 2-blocks {
					t.Errorf("it was done with %+v", r)
				}
				var did record
				for range 3 - blocks {
					w := worker(t, c, WorkerOptions{})
					handle(t, w, "x", func(_ context.Context, d *Delivery) error { did.add("%s %d", d.Key, d.ID); return nil })
					stop := start(t, w)
					empty(t, db)
					stop()
					_, err := adminOf(c).Bulk(t.Context(), admin.BulkRetry, admin.Filter{}, admin.BulkOptions{})
					must(t, err)
				}
				got := slices.Sorted(slices.Values(did.all()))
				if want := []string{fmt.Sprint(keys[0], " ", id), fmt.Sprint(keys[1], " ", id)}; !slices.Equal(got,
					slices.Sorted(slices.Values(want))) {
					t.Errorf("done were %q, not %q", got, want)
				}
				wantRows(t, db, "dead jobs", `SELECT id FROM {prefix}job_dead`)
			})
		}
	})
}

// No page of a list ends between two jobs that have one id.
func TestSameIDPages(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for _, state := range []admin.State{admin.StateReady, admin.StateDelayed, admin.StateRunning, admin.StateDead} {
			t.Run(string(state), func(t *testing.T) {
				void(t, db)
				byHand(t, db, "DELETE FROM {prefix}job_unique")
				c := client(t, db, Options{})
				id, keys := sameID(t, db, c, state)
				for _, limit := range []int{1, 2, 3} {
					var got []string
					for f := (admin.Filter{State: state, Limit: limit}); ; {
						part, more, err := adminOf(c).Jobs(t.Context(), f)
						must(t, err)
						for _, i := range part {
							got = append(got, i.Key)
						}
						if f.After = more; more == 0 {
							break
						}
					}
					if !slices.Equal(got, keys) {
						t.Errorf("by %d: %q, not %q, of id %d", limit, got, keys, id)
					}
				}
			})
		}
	})
}

// When the time of a dead job is over, another that has its id stays.
func TestSameIDPurge(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		_, keys := sameID(t, db, c, admin.StateDead)
		byHand(t, db, `UPDATE {prefix}job_dead SET purge_at = `+ago+` WHERE divided = 0`)
		w := worker(t, c, WorkerOptions{})
		must(t, w.sweeper.purge(t.Context(), store.OutdatedDead, sqlrun.Args{}, store.PurgeDead))
		wantRows(t, db, "dead jobs", `SELECT job_key FROM {prefix}job_dead`, keys[1])
	})
}

// A process draws the ids of a moment by bits that others have not, and other ones when one of
// them is taken.
func TestSalt(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c, twin := client(t, db, Options{Blocks: 1}), client(t, db, Options{Blocks: 1})
		enqueue(t, c, Job{Kind: "x"})
		enqueue(t, twin, Job{Kind: "x"})
		twin.salt.Bits.Store(c.salt.Bits.Load())
		first, _ := c.clock.take(1)
		twin.clock.mu.Lock()
		twin.clock.last = first + time.Hour.Microseconds()
		tick := twin.clock.last + 1
		twin.clock.mu.Unlock()
		db.Do(t, `INSERT INTO {prefix}job (queue_id, divided, priority, id, kind) SELECT queue_id, 0, 2, :id, 'x' FROM {prefix}queue`,
			sqlrun.Args{"id": c.salt.ID(tick)})
		id := enqueue(t, twin, Job{Kind: "x"})
		if id>>store.IdBits <= tick || twin.salt.Bits.Load() == c.salt.Bits.Load() {
			t.Errorf("id %d of tick %d, bits %d", id, tick, twin.salt.Bits.Load())
		}
	})
}

// A move takes along a job's unique key, for as long as it has to be in use, and leaves that of
// another job with its id.
func TestSameIDMove(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		for block := range 2 {
			void(t, db)
			byHand(t, db, "DELETE FROM {prefix}job_unique")
			c := client(t, db, Options{})
			elsewhere(t, c, "to", 2)
			_, keys := sameID(t, db, c, admin.StateReady)
			byHand(t, db, fmt.Sprintf(`UPDATE {prefix}job SET kind = 'y' WHERE divided = %d`, block),
				fmt.Sprintf(`UPDATE {prefix}job_unique SET free_at = `+ahead+` WHERE unique_key = '%s'`, keys[1-block]))
			m, err := c.Move(t.Context(), "", "to", MoveOptions{Kinds: []string{"y"}})
			must(t, err)
			if m.Jobs != 1 {
				t.Errorf("it has moved %+v", m)
			}
			want := []string{"default " + keys[1-block] + " 1", "to " + keys[block] + " 0"}
			wantRows(t, db, "unique keys", `SELECT q.name, u.unique_key, CASE WHEN u.free_at > {now} THEN 1 ELSE 0 END
				FROM {prefix}job_unique AS u JOIN {prefix}queue AS q ON q.queue_id = u.queue_id ORDER BY q.name`, want...)
			wantRows(t, db, "jobs", `SELECT q.name, j.job_key FROM {prefix}job AS j JOIN {prefix}queue AS q ON q.queue_id = j.queue_id ORDER BY q.name`,
				"default "+keys[1-block], "to "+keys[block])
			// Nor does it take a key that another job has by now.
			byHand(t, db, `UPDATE {prefix}job_unique SET job = 1, free_at = NULL`,
				`DELETE FROM {prefix}job_unique WHERE unique_key = '`+keys[block]+`'`)
			_, err = c.Move(t.Context(), "", "to", MoveOptions{})
			must(t, err)
			wantRows(t, db, "unique keys", `SELECT q.name, u.unique_key FROM {prefix}job_unique AS u JOIN {prefix}queue AS q ON q.queue_id = u.queue_id ORDER BY q.name`,
				"default "+keys[1-block], "to "+keys[1-block])
		}
	})
}
