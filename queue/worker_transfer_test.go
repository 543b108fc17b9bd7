package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// elsewhere makes a queue to move jobs to.
func elsewhere(t *testing.T, c *Client, name string, blocks int) {
	t.Helper()
	must(t, c.create(t.Context(), name, blocks))
}

// moveAll moves jobs from the default queue to another, and compares the outcomes.
func moveAll(t *testing.T, c *Client, opt MoveOptions, wanted Moved) {
	t.Helper()
	got, err := c.Move(t.Context(), "", "to", opt)
	if must(t, err); got != wanted {
		t.Errorf("moving: %+v, not %+v", got, wanted)
	}
}

// Moved jobs stay what they are, and workers find them at once.
func TestMove(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		at := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Millisecond) //nolint:forbidigo // any time that is far
		var jobs []Job
		for i, j := range []Job{
			{},
			{Key: "a"},
			{
				Priority: Urgent, Payload: []byte(`{"a":  1}`), MaxAttempts: 3, Timeout: time.Minute,
				Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Endpoint: "https://worker.example.org/?a=b",
			},
			{Payload: []byte("\xff\x00"), Binary: true, Priority: Idle},
			{Key: "a"},
			{Key: "b", RunAt: at},
			{RunAt: at, Unique: "u"},
			{Unique: "v", UniqueFor: time.Hour},
		} {
			j.Kind = []string{"x", "y"}[i%2]
			jobs = append(jobs, j)
			j.Kind, j.Key, j.Unique, j.UniqueFor = "stays", "", "", 0
			jobs = append(jobs, j)
		}
		ids := enqueueMany(t, c, jobs)
		elsewhere(t, c, "to", 3)
		was := map[int64]admin.Job{}
		for _, id := range ids {
			was[id], _ = adminOf(c).Job(t.Context(), "", id)
		}
		moveAll(t, c, MoveOptions{Kinds: []string{"x", "y"}, DryRun: true}, Moved{Jobs: 8})
		moveAll(t, c, MoveOptions{Kinds: []string{"x"}}, Moved{Jobs: 3, Behind: 1})
		moveAll(t, c, MoveOptions{Kinds: []string{"x", "y"}}, Moved{Jobs: 5})
		moveAll(t, c, MoveOptions{Kinds: []string{"x", "y"}}, Moved{})
		to, err := c.read(t.Context(), "to")
		must(t, err)
		for i, id := range ids {
			name := []string{"to", ""}[i%2]
			is, err := adminOf(c).Job(t.Context(), name, id)
			must(t, err)
			before := was[id]
			if name == "to" {
				before.Queue, before.Block = "to", to.Block(is.Key, id)
			}
			if !reflect.DeepEqual(is, before) {
				t.Errorf("it was\n%+v, and is\n%+v", before, is)
			}
		}
		if !to.Ordered {
			t.Error("nobody would know that the queue has keys")
		}
		wantRows(t, db, "unique keys", `SELECT q.name, u.unique_key, u.pending, CASE WHEN u.free_at > {now} THEN 1 ELSE 0 END
			FROM {prefix}job_unique AS u JOIN {prefix}queue AS q ON q.queue_id = u.queue_id ORDER BY u.unique_key`, "to u yes 0", "to v yes 1")
		var done record
		w := worker(t, other(t, db), WorkerOptions{Queues: []string{"to"}, Concurrency: 1})
		for _, kind := range []string{"x", "y"} {
			handle(t, w, kind, func(_ context.Context, d *Delivery) error { done.add("%d", d.ID); return nil })
		}
		must(t, w.RunOnce(t.Context()))
		if done.len() != 6 {
			t.Errorf("done were %v of %v", done.all(), ids)
		}
	})
}

// What cannot be moved is refused, before anything is.
func TestMoveRefused(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		enqueue(t, c, Job{Kind: "x"})
		elsewhere(t, c, "gone", 1)
		_, err := adminOf(c).Edit(t.Context(), "gone", func(q *admin.Queue) { q.State = "deleted" })
		must(t, err)
		for _, test := range []struct {
			from, to, kind string
			want           error
		}{
			{"", "", "x", ErrInvalid},
			{"", defaultQueue, "x", ErrInvalid},
			{"gone", "gone", "x", ErrInvalid},
			{"", "none", "x", ErrNotFound},
			{"none", "", "x", ErrNotFound},
			{"", "gone", "x", ErrDeleted},
			{"gone", "", "x ", ErrInvalid},
		} {
			_, err := c.Move(t.Context(), test.from, test.to, MoveOptions{Kinds: []string{test.kind}})
			want(t, fmt.Sprintf("%+v", test), err, test.want)
		}
		wantRows(t, db, "processes", `SELECT name FROM {prefix}node`)
	})
}

// Another worker may be quicker at a block that was free. Jobs are moved when it leaves that.
func TestMoveWaitsForAQuickerWorker(t *testing.T) {
	having(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		elsewhere(t, c, "to", 1)
		enqueue(t, c, Job{Kind: "x"})
		ghost(t, db, "quick", time.Hour)
		var mu sync.Mutex
		taken, left := false, false
		slow := db.Broken(t, &dbtest.Fault{Text: "queue_block", Stall: func(op string) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case !taken && strings.Contains(op, "b.fence = record.seen"):
				taken = true
				db.Do(t, `UPDATE {prefix}queue_block SET state = 'LEASED', lock_by = 'quick', fence = fence + 1`, nil)
			case taken && !left && strings.Contains(op, "SELECT"):
				left = true
				db.Do(t, `UPDATE {prefix}queue_block SET state = 'FREE' WHERE lock_by = 'quick'`, nil)
			}
		}})
		moveAll(t, client(t, slow, Options{}), MoveOptions{}, Moved{Jobs: 1})
		mu.Lock()
		defer mu.Unlock()
		if !left {
			t.Error("the block was not taken by the other")
		}
	})
}

// What runs stays, and the later jobs of its key with it. It ends as it would have.
func TestMoveBesideRunning(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		elsewhere(t, c, "to", 2)
		running, goOn := make(chan int64), make(chan struct{})
		var done record
		w := worker(t, other(t, db), WorkerOptions{Queues: []string{defaultQueue, "to"}, Concurrency: 1})
		handle(t, w, "x", func(_ context.Context, d *Delivery) error {
			if d.Queue == defaultQueue {
				running <- d.ID
				<-goOn
			}
			done.add("%s %d", d.Queue, d.ID)
			return nil
		})
		start(t, w)
		first := enqueue(t, c, Job{Kind: "x", Key: "k"})
		received(t, "it runs", running)
		must(t, adminOf(c).Pause(t.Context(), "to", ""))
		behind := enqueueMany(t, c, []Job{{Kind: "x", Key: "k"}, {Kind: "x", Key: "k", Delay: time.Hour}, {Kind: "y", Key: "k"}})
		moves := enqueueMany(t, c, []Job{{Kind: "x"}, {Kind: "x", Key: "l"}, {Kind: "x", Delay: time.Hour}})
		moveAll(t, other(t, db), MoveOptions{Kinds: []string{"x"}}, Moved{Jobs: 3, Running: 1, Behind: 2})
		info(t, c, first, admin.StateRunning)
		for _, id := range moves {
			_, err := adminOf(c).Job(t.Context(), "to", id)
			want(t, "it was moved", err, nil)
		}
		goOn <- struct{}{}
		if got := received(t, "the next of its key", running); got != behind[0] {
			t.Errorf("%d runs, not %d", got, behind[0])
		}
		goOn <- struct{}{}
		must(t, adminOf(c).Resume(t.Context(), "to"))
		eventually(t, "all are done that are due", func() bool { return done.len() == 4 })
	})
}

// A retry that holds its key still does so, after as many attempts as before.
func TestMoveRetries(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		elsewhere(t, c, "to", 3)
		edit(t, c, func(q *admin.Queue) { q.RetryDelay = time.Hour })
		w := worker(t, other(t, db), WorkerOptions{})
		handle(t, w, "x", func(context.Context, *Delivery) error { return errTest })
		stop := start(t, w)
		first := enqueue(t, c, Job{Kind: "x", Key: "k"})
		becomes(t, c, first, admin.StateDelayed)
		stop()
		next := enqueueMany(t, c, []Job{{Kind: "y", Key: "k"}, {Kind: "x", Key: "k"}, {Kind: "x"}})
		moveAll(t, c, MoveOptions{Kinds: []string{"y"}}, Moved{Behind: 1})
		moveAll(t, c, MoveOptions{Kinds: []string{"x"}}, Moved{Jobs: 2, Behind: 1})
		moveAll(t, c, MoveOptions{}, Moved{Jobs: 2})
		i, err := adminOf(c).Job(t.Context(), "to", first)
		if err != nil || i.Attempts != 1 || i.State != admin.StateDelayed || i.Error == "" {
			t.Errorf("the retry is %+v, %v", i, err)
		}
		var done record
		w = worker(t, other(t, db), WorkerOptions{Queues: []string{"to"}})
		for _, kind := range []string{"x", "y"} {
			handle(t, w, kind, func(_ context.Context, d *Delivery) error { done.add("%d %d", d.ID, d.Attempt); return nil })
		}
		start(t, w)
		done.wants(t, fmt.Sprintf("%d 1", next[2]))
		must(t, adminOf(c).Retry(t.Context(), "to", first))
		done.wants(t, fmt.Sprintf("%d 1", next[2]), fmt.Sprintf("%d 2", first), fmt.Sprintf("%d 1", next[0]), fmt.Sprintf("%d 1", next[1]))
	})
}

// A job stays whose unique key another one has there, and the later ones of its key.
func TestMoveUnique(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		elsewhere(t, c, "to", 1)
		holder := wantFresh(t, c, Job{Kind: "x", Unique: "taken", Queue: "to"})
		ids := enqueueMany(t, c, []Job{
			{Kind: "x", Key: "k", Unique: "free"},
			{Kind: "x", Key: "k", Unique: "taken"},
			{Kind: "x", Key: "k", Unique: "later"},
			{Kind: "x", Unique: "other"},
			{Kind: "x", Key: "l"},
		})
		moveAll(t, c, MoveOptions{}, Moved{Jobs: 3, Taken: 1, Behind: 1})
		wantHolder(t, c, Job{Kind: "x", Unique: "taken", Queue: "to"}, holder)
		wantHolder(t, c, Job{Kind: "x", Unique: "taken"}, ids[1])
		wantHolder(t, c, Job{Kind: "x", Unique: "later"}, ids[2])
		wantHolder(t, c, Job{Kind: "x", Unique: "free", Queue: "to"}, ids[0])
		wantHolder(t, c, Job{Kind: "x", Unique: "other", Queue: "to"}, ids[3])
		wantFresh(t, c, Job{Kind: "x", Unique: "other"})
		must(t, adminOf(c).Cancel(t.Context(), "to", holder))
		moveAll(t, c, MoveOptions{}, Moved{Jobs: 2, Taken: 1})
	})
}

// Jobs are moved while workers of both queues process them, and producers continue: each runs
// once, and those of a key in order.
func TestMoveUnderWay(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 4})
		elsewhere(t, c, "to", 3)
		for _, name := range []string{defaultQueue, "to"} {
			_, err := adminOf(c).Edit(t.Context(), name, func(q *admin.Queue) { impatient(q); q.MaxAttempts = 1000 })
			must(t, err)
		}
		s, numbers := newSequence(), map[string]int{}
		slowly := func(d *Delivery) error {
			if rand.IntN(20) == 0 {
				return errTest
			}
			select {
			case <-time.After(time.Duration(rand.IntN(5)) * time.Millisecond):
			case <-d.ctx.Done():
			}
			return nil
		}
		crew(t, db, 2, WorkerOptions{Queues: []string{defaultQueue, "to"}, Batch: 10, Concurrency: 4}, s.handler(t, slowly))
		var keys []string
		for i := range 40 {
			keys = append(keys, fmt.Sprint("k", i))
		}
		enqueueMany(t, c, s.jobs(numbers, 2000, keys...))
		var producer sync.WaitGroup
		producer.Go(func() { // of other keys: those of a key are in no order between queues
			for i := range 100 {
				_, err := c.Enqueue(t.Context(), Job{Kind: "x", Key: fmt.Sprint("new", i), Payload: []byte("0")})
				want(t, "enqueueing", err, nil)
			}
		})
		n, err := other(t, db).Move(t.Context(), "", "to", MoveOptions{})
		must(t, err)
		t.Logf("%+v", n)
		producer.Wait()
		empty(t, db)
		if s.done() != 2100 {
			t.Errorf("%d were done", s.done())
		}
	})
}

// Whatever breaks, each job is there once, with its unique key, and moving again moves
// the rest.
func TestMoveFaults(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		elsewhere(t, c, "to", 2)
		for call := 1; ; call++ {
			hit := false
			for _, after := range cuts(db) {
				key := fmt.Sprint(call, after)
				ids := enqueueMany(t, c, []Job{{Kind: "x"}, {Kind: "x", Delay: time.Hour}, {Kind: "x", Unique: key}, {Kind: "x", Priority: Low}})
				fault := &dbtest.Fault{Call: call, After: after}
				_, err := client(t, db.Broken(t, fault), Options{}).Move(t.Context(), "", "to", MoveOptions{})
				hit = hit || err != nil || fault.Reached()
				db.Do(t, `UPDATE {prefix}node SET expire_at = `+ago+` WHERE state = 'live'`, nil) // if it could not leave
				_, err = c.Move(t.Context(), "", "to", MoveOptions{})
				must(t, err)
				if n := rowsOf(t, db); n != len(ids) {
					t.Fatalf("call %d, after it: %v: there are %d jobs", call, after, n)
				}
				for _, id := range ids {
					_, err := adminOf(c).Job(t.Context(), "to", id)
					want(t, "it was moved", err, nil)
				}
				wantRows(t, db, "unique keys", `SELECT unique_key, job FROM {prefix}job_unique`, fmt.Sprint(key, " ", ids[2]))
				for _, id := range ids {
					must(t, adminOf(c).Cancel(t.Context(), "to", id))
				}
			}
			if !hit {
				break
			}
		}
	})
}

// When a process dies that moves jobs, workers take over when its lease has ended, and
// each job is done once.
func TestMoveKilled(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		elsewhere(t, c, "to", 1)
		var jobs []Job
		for i := range 2 * store.Chunk {
			jobs = append(jobs, Job{Kind: "x", Key: fmt.Sprint("k", i%7)})
		}
		enqueueMany(t, c, jobs)
		from, cut := severed(t, db)
		n, err := from.Move(t.Context(), "", "to", MoveOptions{Progress: func(Moved) { cut() }})
		if err == nil || n.Jobs != store.Chunk {
			t.Errorf("moved were %+v, and it ended with %v", n, err)
		}
		expire := `UPDATE {prefix}node SET expire_at = `
		db.Do(t, expire+ahead, nil)
		_, err = c.Move(t.Context(), "", "to", MoveOptions{})
		want(t, "beside the dead one", err, ErrState)
		db.Do(t, expire+`{now + 1000000}`, nil)
		var done record
		w := worker(t, other(t, db), WorkerOptions{Queues: []string{defaultQueue, "to"}})
		handle(t, w, "x", func(_ context.Context, d *Delivery) error { done.add("%d %s", d.ID, d.Queue); return nil })
		start(t, w)
		empty(t, db)
		lines := done.all()
		slices.Sort(lines)
		if got := len(slices.Compact(lines)); got != 2*store.Chunk || done.len() != got {
			t.Errorf("%d jobs were done, %d times", got, done.len())
		}
	})
}

// Nothing is moved from or to a block that somebody else has by now.
func TestMoveOfALostBlock(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for _, lost := range []string{defaultQueue, "to"} {
			void(t, db)
			c := client(t, db, Options{Blocks: 1})
			elsewhere(t, c, defaultQueue, 1)
			elsewhere(t, c, "to", 1)
			enqueueMany(t, c, slices.Repeat([]Job{{Kind: "x"}}, 2*store.Chunk))
			n, err := c.Move(t.Context(), "", "to", MoveOptions{Progress: func(n Moved) {
				if n.Jobs == store.Chunk {
					byHand(t, db, `UPDATE {prefix}queue_block SET fence = fence + 1 WHERE queue_id = (SELECT queue_id FROM {prefix}queue WHERE name = '`+lost+`')`)
				}
			}})
			want(t, lost+" was lost", err, ErrState)
			if n.Jobs != store.Chunk {
				t.Errorf("moved were %+v", n)
			}
			wantRows(t, db, "jobs", `SELECT COUNT(*) FROM {prefix}job GROUP BY queue_id`, fmt.Sprint(store.Chunk), fmt.Sprint(store.Chunk))
			moveAll(t, c, MoveOptions{}, Moved{Jobs: store.Chunk})
		}
	})
}

// Two who move to and fro at once do not wait for each other for ever: one gives up, or
// both.
func TestMoveAtOnce(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c, far := client(t, db, Options{Blocks: 2}), other(t, db)
		elsewhere(t, c, "to", 2)
		ids := enqueueMany(t, c, []Job{{Kind: "x"}, {Kind: "x"}, {Kind: "x", Queue: "to"}})
		for range 5 {
			var group sync.WaitGroup
			for c, queues := range map[*Client][2]string{c: {defaultQueue, "to"}, far: {"to", defaultQueue}} {
				group.Go(func() {
					if _, err := c.Move(t.Context(), queues[0], queues[1], MoveOptions{}); err != nil && !errors.Is(err, ErrState) {
						t.Errorf("from %s: %v", queues[0], err)
					}
				})
			}
			group.Wait()
			if n := rowsOf(t, db); n != len(ids) {
				t.Fatalf("there are %d jobs", n)
			}
		}
	})
}
