package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/block"
)

// numbered are jobs of a kind and a key whose payloads count from first.
func numbered(kind, key string, first, n int) (jobs []Job) {
	for i := range n {
		jobs = append(jobs, Job{Kind: kind, Key: key, Payload: fmt.Append(nil, first+i)})
	}
	return jobs
}

// shown is a batch as "key: payloads".
func shown(batch []*Delivery) string {
	words := []string{batch[0].Key + ":"}
	for _, d := range batch {
		words = append(words, string(d.Payload))
	}
	return strings.Join(words, " ")
}

// An incomplete batch does not wait until nothing else is ready, as long as that may take.
func TestBatchAmongOthers(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c, r := client(t, db, Options{Blocks: 1}), record{}
		enqueueMany(t, c, slices.Concat(numbered("x", "k", 0, 2), numbered("y", "", 0, 9)))
		w := worker(t, c, WorkerOptions{Concurrency: 1})
		must(t, w.HandleBatch("x", BatchOptions{}, func(_ context.Context, batch []*Delivery) error { r.add("%s", shown(batch)); return nil }))
		handle(t, w, "y", func(_ context.Context, d *Delivery) error { r.add("%s", shown([]*Delivery{d})); return nil })
		start(t, w)
		eventually(t, "all are done", func() bool { return r.len() == 11 })
		if got := r.all()[:4]; !slices.Equal(got, []string{": 0", "k: 0", ": 1", "k: 1"}) {
			t.Errorf("first came %q", got)
		}
	})
}

// Jobs that wait in an incomplete batch while their block goes to another worker are done by the one that has
// begun them, or end if they are cancelled.
func TestBatchOfAHandedBlock(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		const n = 20
		c, r := client(t, db, Options{Blocks: 2}), record{}
		w := worker(t, c, WorkerOptions{})
		must(t, w.HandleBatch("x", BatchOptions{Wait: time.Hour}, func(_ context.Context, batch []*Delivery) error {
			for _, d := range batch {
				r.add("%s", d.Payload)
			}
			return nil
		}))
		start(t, w)
		enqueueMany(t, c, numbered("x", "", 0, n))
		eventually(t, "they wait in a batch", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			all := w.handlers["x"].gathered
			return len(all) == 1 && len(all[0].jobs) == n
		})
		crew(t, db, 1, WorkerOptions{}, func(context.Context, *Delivery) error { return nil })
		eventually(t, "the other worker has a block", func() bool { return slices.Equal(shares(t, c), []int{1, 1}) })
		out := db.List(t, `SELECT id FROM {prefix}job_running`, nil)
		id, err := strconv.ParseInt(out[0], 10, 64)
		must(t, err)
		must(t, adminOf(c).Cancel(t.Context(), "", id))
		eventually(t, "the worker knows that it is cancelled", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.ContainsFunc(w.handlers["x"].gathered[0].jobs, func(d *Delivery) bool { return d.ID == id && d.ctx.over })
		})
		w.mu.Lock()
		w.handlers["x"].gathered[0].full = true
		w.handlers["x"].full++
		w.work.Broadcast()
		w.mu.Unlock()
		eventually(t, "the others are done", func() bool { return r.len() == n-1 })
		empty(t, db)
		eventually(t, "nothing is left in memory", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.out)+len(w.rows) == 0
		})
	})
}

// A batch by key has the jobs of one key that wait, in their order, up to the first of
// another kind; one that is to wait waits for the rest of them.
func TestBatchByKey(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c, r := client(t, db, Options{}), record{}
		note := func(_ context.Context, batch []*Delivery) error { r.add("%s", shown(batch)); return nil }
		w := worker(t, other(t, db), WorkerOptions{BuryUnknown: true})
		must(t, w.HandleBatch("x", BatchOptions{Max: 4, ByKey: true}, note))
		must(t, w.HandleBatch("waits", BatchOptions{Max: 3, Wait: time.Hour, ByKey: true}, note))
		must(t, w.HandleBatch("soon", BatchOptions{Wait: time.Millisecond, ByKey: true}, note))
		handle(t, w, "y", func(_ context.Context, d *Delivery) error { r.add("%s", shown([]*Delivery{d})); return nil })
		var jobs []Job
		for i := range 10 {
			jobs = append(jobs, numbered("x", "a", i, 1)...)
			jobs = append(jobs, numbered("x", "b", i, 1)...)
		}
		jobs = append(jobs, numbered("x", "", 0, 2)...)
		jobs = append(jobs, numbered("x", "c", 0, 2)...)
		jobs = append(jobs, numbered("y", "c", 2, 1)...)
		jobs = append(jobs, numbered("x", "c", 3, 1)...)
		jobs = append(jobs, numbered("soon", "d", 0, 1)...)
		jobs = append(jobs, numbered("waits", "e", 0, 2)...)
		enqueueMany(t, c, jobs)
		stop := start(t, w)
		eventually(t, "all but two are done", func() bool { return rowsOf(t, db) == 2 })
		got := r.all()
		of := func(key string) (mine []string) {
			for _, line := range got {
				if strings.HasPrefix(line, key+":") {
					mine = append(mine, strings.TrimPrefix(line, key+": "))
				}
			}
			return mine
		}
		for key, want := range map[string][]string{
			"a": {"0 1 2 3", "4 5 6 7", "8 9"}, "b": {"0 1 2 3", "4 5 6 7", "8 9"}, "c": {"0 1", "2", "3"}, "d": {"0"}, "e": nil,
		} {
			if got := of(key); !slices.Equal(got, want) {
				t.Errorf("of key %s: %q, not %q", key, got, want)
			}
		}
		if got := of(""); len(got) != 2 {
			t.Errorf("without keys: %q", got)
		}
		enqueueMany(t, c, numbered("waits", "e", 2, 1)) // which fills it
		empty(t, db)
		enqueueMany(t, c, slices.Concat(numbered("waits", "f", 0, 1), numbered("y", "f", 1, 1))) // which ends it
		empty(t, db)
		if got := r.all()[len(got):]; !slices.Equal(got, []string{"e: 0 1 2", "f: 0", "f: 1"}) {
			t.Errorf("those that waited: %q", got)
		}
		// Behind a job that keeps waiting, and one of a kind that nobody handles.
		n := r.len()
		for i, key := range []string{"h", "i"} {
			enqueueMany(t, c, numbered("waits", key, 0, 1))
			eventually(t, "it gathers", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return len(w.handlers["waits"].gathered) == i+1
			})
		}
		becomes(t, c, enqueueMany(t, c, numbered("nobody's", "i", 1, 1))[0], admin.StateDead)
		if got := r.all()[n:]; !slices.Equal(got, []string{"i: 0"}) {
			t.Errorf("behind one that waits: %q", got)
		}
		enqueueMany(t, c, numbered("waits", "h", 1, 2))
		empty(t, db)

		enqueueMany(t, c, numbered("waits", "g", 0, 2))
		eventually(t, "they gather", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.handlers["waits"].gathered) == 1
		})
		stop() // and others do them
		w2 := worker(t, other(t, db), WorkerOptions{BuryUnknown: true})
		must(t, w2.HandleBatch("waits", BatchOptions{ByKey: true}, note))
		start(t, w2)
		empty(t, db)
		if got := r.all(); got[len(got)-1] != "g: 0 1" {
			t.Errorf("after a change of workers: %q", got)
		}
	})
}

// Those of a batch by key that fail come back in their order, before those after them.
func TestBatchByKeyFails(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c, r := client(t, db, Options{}), record{}
		edit(t, c, impatient)
		w := worker(t, other(t, db), WorkerOptions{})
		must(t, w.HandleBatch("x", BatchOptions{Max: 5, ByKey: true}, func(_ context.Context, batch []*Delivery) error {
			r.add("%s", shown(batch))
			each := make(Results, len(batch))
			for i, d := range batch {
				if n, _ := strconv.Atoi(string(d.Payload)); d.Attempt == 1 && n%5 > 2 {
					each[i] = errTest
				}
			}
			return each
		}))
		enqueueMany(t, c, numbered("x", "a", 0, 12))
		start(t, w)
		empty(t, db)
		var order []string
		for _, line := range r.all() {
			order = append(order, strings.TrimPrefix(line, "a: "))
		}
		// 3 and 4 fail. They are due in any order, and go in theirs, with what may follow.
		all := strings.Fields(strings.Join(order, " "))
		if all[0] != "0" || strings.Join(all[:5], " ") != "0 1 2 3 4" || strings.Join(all[5:7], " ") != "3 4" || all[7] != "5" {
			t.Errorf("batches: %q", order)
		}
		if len(all) != 12+4 {
			t.Errorf("%d attempts: %q", len(all), order)
		}
	})
}

// The order of keys is kept by batches that fail as a whole, over workers, check-outs and
// hand-overs.
func TestBatchByKeyOrder(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 4})
		edit(t, c, impatient)
		edit(t, c, func(q *admin.Queue) { q.MaxAttempts = 1000 })
		var mu sync.Mutex
		last, tries := map[string]int{}, 0
		handler := func(ctx context.Context, batch []*Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			if tries++; tries%5 == 0 {
				mu.Unlock()
				select { // long enough to be checked out
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
				mu.Lock()
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
			if tries%3 == 0 {
				return errors.New("not this time")
			}
			for _, d := range batch {
				n, _ := strconv.Atoi(string(d.Payload))
				if n != last[d.Key]+1 {
					t.Errorf("key %s: %d after %d", d.Key, n, last[d.Key])
				}
				last[d.Key] = n
			}
			return nil
		}
		var stops []func()
		for range 2 {
			w := worker(t, other(t, db), WorkerOptions{Batch: 20, Grace: time.Minute})
			w.slow, w.rotate = 20*time.Millisecond, 500*time.Millisecond
			must(t, w.HandleBatch("x", BatchOptions{Max: 7, ByKey: true}, handler))
			stops = append(stops, start(t, w))
		}
		var jobs []Job
		for i := range 60 {
			for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
				jobs = append(jobs, numbered("x", key, i+1, 1)...)
			}
		}
		enqueueMany(t, c, jobs)
		empty(t, db)
		for _, stop := range stops {
			stop()
		}
		for key, n := range last {
			if n != 60 {
				t.Errorf("key %s: %d jobs", key, n)
			}
		}
	})
}

// After a batch that failed while its block changed hands, some jobs may still run in the old
// worker, and some wait for their retry: the block's new holder runs them in order.
func TestBatchInPieces(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, func(*admin.Queue) {})
		byHand(t, db, `INSERT INTO {prefix}job_running (queue_id, divided, id, kind, job_key, lock_by, state) VALUES (1, 0, 44, 'x', 'k', 'other', 'running'), (1, 0, 41, 'x', 'l', 'other', 'running')`)
		byHand(t, db, `INSERT INTO {prefix}job_delayed (queue_id, divided, id, run_at, kind, job_key, hold_key) VALUES (1, 0, 43, {now}, 'x', 'k', 'k'), (1, 0, 42, {now}, 'x', 'k', 'k')`)
		w := worker(t, c, WorkerOptions{})
		b := newTenure(&workQueue{h: &w.holder, id: 1})
		must(t, w.holdBusyKeys(t.Context(), []*tenure{b}))
		away := func(id int64) block.Turn { return block.Turn{ID: id, Away: true} }
		for line, want := range map[string][]block.Turn{"k": {away(42), away(43), away(44)}, "l": {away(41)}} {
			if got := b.Turns(line); !slices.Equal(got, want) {
				t.Errorf("line %s is %+v", line, got)
			}
		}
	})
}

// Jobs that hold their keys are read in parts of any size, each once, those of one key together.
func TestHeldInPages(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // of a loop that does not end
		defer cancel()
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, func(*admin.Queue) {})
		want := map[int64]string{}
		for i, key := range []string{"b", "a", "a", "c", "b", "", "b", "d"} {
			db.Do(t, `INSERT INTO {prefix}job_delayed (queue_id, divided, id, run_at, kind, job_key, hold_key)
				VALUES (1, 0, :id, {now}, 'x', :key, CASE WHEN :key = '' THEN NULL ELSE :key END)`, sqlrun.Args{"id": i + 1, "key": key})
			if key != "" {
				want[int64(i+1)] = key
			}
		}
		w := worker(t, c, WorkerOptions{})
		b := newTenure(&workQueue{h: &w.holder, id: 1})
		for limit := 1; limit < 9; limit++ {
			got := map[int64]string{}
			rows, err := w.readHeld(ctx, b, limit)
			must(t, err)
			for _, h := range rows {
				got[h.ID] = h.Line
			}
			if !maps.Equal(got, want) || len(rows) != len(want) {
				t.Errorf("with %d at a time it reads %v, not %v", limit, rows, want)
			}
		}
	})
}

// Jobs of a batch of a key may fail any number of times, together or not, and come back
// in any order: whenever one begins, those before it are done, or begin with it.
func TestBatchByKeyFailsAgain(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, impatient)
		var mu sync.Mutex
		done := map[string]bool{}
		w := worker(t, other(t, db), WorkerOptions{})
		must(t, w.HandleBatch("x", BatchOptions{Max: 6, ByKey: true}, func(_ context.Context, batch []*Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			begun := map[string]bool{}
			outcomes := make(Results, len(batch))
			for i, d := range batch {
				n, err := strconv.Atoi(string(d.Payload))
				must(t, err)
				for before := 1; before < n; before++ {
					if name := fmt.Sprint(d.Key, before); !done[name] && !begun[name] {
						t.Errorf("%s begins, and %d does not come before it", shown(batch), before)
					}
				}
				begun[fmt.Sprint(d.Key, n)] = true
				if d.Attempt < 2+n%4 {
					outcomes[i] = RetryAfter(time.Duration(rand.IntN(8))*time.Millisecond, errTest)
				}
			}
			for i, d := range batch {
				done[d.Key+string(d.Payload)] = outcomes[i] == nil
			}
			return outcomes
		}))
		var jobs []Job
		for _, key := range []string{"a", "b", "c"} {
			jobs = append(jobs, numbered("x", key, 1, 20)...)
		}
		enqueueMany(t, c, jobs)
		start(t, w)
		empty(t, db)
	})
}

// A batch of the kinds that have no handler of their own has jobs of any of them, and of any
// queue, and an outcome for each.
func TestOtherBatches(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, impatient)
		w := worker(t, c, WorkerOptions{Queues: []string{defaultQueue, "second"}})
		for _, bad := range []BatchOptions{{Max: -1}, {Wait: -1}, {ByKey: true}} {
			want(t, "bad options", w.HandleOtherBatches(bad, nil), ErrInvalid)
		}
		var mu sync.Mutex
		attempts, largest := map[string]int{}, 0
		must(t, w.HandleOtherBatches(BatchOptions{Max: 3}, func(_ context.Context, batch []*Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			largest = max(largest, len(batch))
			results := make(Results, len(batch))
			for i, d := range batch {
				if attempts[d.Queue+" "+d.Kind]++; d.Kind == "b" && d.Attempt == 1 {
					results[i] = errTest
				}
			}
			return results
		}))
		want(t, "twice", w.HandleOthers(nil), ErrInvalid)
		own := 0
		handle(t, w, "own", func(context.Context, *Delivery) error { own++; return nil })
		enqueueMany(t, c, []Job{{Kind: "a"}, {Kind: "b"}, {Kind: "c", Queue: "second"}, {Kind: "own"}})
		stop := start(t, w)
		eventually(t, "all are done", func() bool { return rowsOf(t, db) == 0 })
		stop()
		if own != 1 || largest > 3 || !maps.Equal(attempts, map[string]int{"default a": 1, "default b": 2, "second c": 1}) {
			t.Errorf("own %d, batches of up to %d, attempts %v", own, largest, attempts)
		}
	})
}
