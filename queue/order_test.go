package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A sequence checks that the jobs of each key are done one at a time and in their
// order, each once. Its payloads are numbers that rise, of each key from 0.
type sequence struct {
	mu      sync.Mutex
	next    map[string]int
	busy    map[string]bool
	count   int
	tooLate bool // the order is not looked at any more
}

func newSequence() *sequence { return &sequence{next: map[string]int{}, busy: map[string]bool{}} }

// jobs returns the next jobs of keys, in turn.
func (s *sequence) jobs(numbers map[string]int, n int, keys ...string) (jobs []Job) {
	for i := range n {
		key := keys[i%len(keys)]
		jobs = append(jobs, Job{Kind: "x", Key: key, Payload: fmt.Append(nil, numbers[key])})
		numbers[key]++
	}
	return jobs
}

// handler does them; fails tells which attempts fail.
func (s *sequence) handler(t *testing.T, fails func(d *Delivery) error) Handler {
	return func(_ context.Context, d *Delivery) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.busy[d.Key] {
			t.Errorf("key %s: two at a time", d.Key)
		}
		if got, want := string(d.Payload), fmt.Sprint(s.next[d.Key]); got != want && !s.tooLate {
			t.Errorf("key %s: %s comes, and %s should", d.Key, got, want)
		}
		s.busy[d.Key] = true
		s.mu.Unlock()
		err := fails(d)
		s.mu.Lock()
		s.busy[d.Key] = false
		if err == nil || errors.Is(err, errSkipped) {
			s.next[d.Key]++
			s.count++
		}
		return err
	}
}

var errSkipped = errors.New("given up")

func never(*Delivery) error { return nil }

func (s *sequence) done() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// crew starts workers, each as in a process of its own, that let their jobs end when
// they are stopped.
func crew(t *testing.T, db *dbtest.DB, n int, opt WorkerOptions, h Handler) (stop []func()) {
	t.Helper()
	opt.Grace = cmp.Or(opt.Grace, longWait)
	for range n {
		w := worker(t, other(t, db), opt)
		handle(t, w, "x", h)
		stop = append(stop, start(t, w))
	}
	return stop
}

// The jobs of each key are done in order by two workers, whatever ways they come in,
// while some fail, and while the workers come and go.
func TestOrder(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 4})
		edit(t, c, func(q *admin.Queue) { impatient(q); q.MaxAttempts = 1000 })
		s, numbers := newSequence(), map[string]int{}
		sometimes := func(*Delivery) error {
			if rand.IntN(10) == 0 {
				return errTest
			}
			return nil
		}
		opt := WorkerOptions{Batch: 10, Concurrency: 4}
		crew(t, db, 1, opt, s.handler(t, sometimes))
		stop := crew(t, db, 1, opt, s.handler(t, sometimes))
		keys := []string{"a", "b", "c", "d", "e"}
		enqueueMany(t, c, s.jobs(numbers, 100, keys...))
		stop[0]()
		for _, job := range s.jobs(numbers, 25, keys...) {
			enqueue(t, c, job)
		}
		crew(t, db, 1, opt, s.handler(t, sometimes))
		enqueueMany(t, c, s.jobs(numbers, 75, keys...))
		empty(t, db)
		if s.done() != 200 {
			t.Errorf("%d were done", s.done())
		}
	})
}

// A job that waits for its retry holds its key, however many wait for it, or lets the
// others pass, as the queue says; dead, it holds nobody.
func TestOrderOfRetries(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, impatient)
		opt := WorkerOptions{Batch: 4, Concurrency: 2}
		t.Run("hold", func(t *testing.T) {
			s, numbers := newSequence(), map[string]int{}
			stop := crew(t, db, 1, opt, s.handler(t, func(d *Delivery) error {
				switch {
				case d.Attempt < 4:
					return errTest
				case string(d.Payload) == "3":
					return Bury(errSkipped)
				}
				return nil
			}))
			enqueueMany(t, c, s.jobs(numbers, 40, "a", "b"))
			empty(t, db)
			stop[0]()
			if s.done() != 40 {
				t.Errorf("%d were done", s.done())
			}
		})
		edit(t, c, func(q *admin.Queue) { q.KeyRetry = "pass" })
		t.Run("pass", func(t *testing.T) {
			var r record
			crew(t, db, 1, opt, func(_ context.Context, d *Delivery) error {
				r.add("%s", d.Payload)
				if string(d.Payload) == "1" && d.Attempt == 1 {
					return RetryAfter(time.Hour, errTest)
				}
				return nil
			})
			var jobs []Job
			for i := range 12 {
				jobs = append(jobs, Job{Kind: "x", Key: "a", Payload: fmt.Append(nil, i)})
			}
			ids := enqueueMany(t, c, jobs)
			r.wants(t, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11")
			must(t, adminOf(c).Retry(t.Context(), "", ids[1]))
			eventually(t, "it is done", func() bool { return r.len() == 13 })
			empty(t, db)
		})
	})
}

// Several jobs of a key that were checked out by a worker that died are done in their
// order, one at a time, and before those that wait.
func TestOrderOfTheAdopted(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, impatient)
		s, numbers := newSequence(), map[string]int{}
		ids := enqueueMany(t, c, s.jobs(numbers, 6, "a"))
		for _, id := range ids[:3] {
			db.Do(t, fmt.Sprintf(`INSERT INTO {prefix}job_running (queue_id, divided, id, kind, job_key, payload, lock_by)
				SELECT queue_id, divided, id, kind, job_key, payload, 'dead' FROM {prefix}job WHERE id = %d`, id), nil)
			db.Do(t, fmt.Sprintf(`DELETE FROM {prefix}job WHERE id = %d`, id), nil)
		}
		db.Do(t, `UPDATE {prefix}queue_block SET state = 'LEASED', lock_by = 'dead', fence = 1`, nil)
		crew(t, db, 1, WorkerOptions{}, s.handler(t, func(d *Delivery) error {
			if d.Attempt == 1 && string(d.Payload) == "1" {
				return errTest
			}
			return nil
		}))
		empty(t, db)
		if s.done() != 6 {
			t.Errorf("%d were done", s.done())
		}
	})
}

// A job whose transaction commits later than that of a later one comes before it as
// long as that has not begun, and is done in any case.
func TestOrderOfLateCommits(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		s, numbers := newSequence(), map[string]int{}
		enqueueMany(t, c, s.jobs(numbers, 2, "a", "b"))
		blocked, goOn := make(chan bool), make(chan bool)
		w := worker(t, other(t, db), WorkerOptions{})
		handle(t, w, "x", s.handler(t, func(d *Delivery) error {
			if d.Key == "a" && string(d.Payload) == "0" {
				blocked <- true
				<-goOn
			}
			return nil
		}))
		start(t, w)
		received(t, "the first begins", blocked)
		tx := db.Begin(t, nil)
		defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
		early := s.jobs(numbers, 4, "a", "b", "new", "new")
		early = append(early, Job{Kind: "x", Payload: []byte("0")})
		begun := instant.Now()
		_, wake, err := c.EnqueueTx(t.Context(), tx, early...)
		must(t, err)
		if db.Dialect.Name == "sqlite" { // has one writer at a time
			must(t, tx.Commit())
		}
		enqueueMany(t, c, s.jobs(numbers, 2, "a", "late"))
		eventually(t, "what was committed first is done", func() bool { return s.done() >= 2 })
		if db.Dialect.Name != "sqlite" {
			must(t, tx.Commit())
		}
		if took := instant.Now().Sub(begun); took > Window/2 && db.Dialect.Name != "sqlite" {
			t.Logf("this machine was too slow: the transaction took %v, and order is promised up to %v", took, Window)
			s.mu.Lock()
			s.tooLate = true
			s.mu.Unlock()
		}
		wake()
		eventually(t, "what holds nobody is done", func() bool { return s.done() == 6 })
		eventually(t, "the others were read", func() bool { return waiting(w, "a") == 2 })
		close(goOn)
		empty(t, db)
	})
}

// hasPutBack reports whether a worker has put jobs of a key back.
func hasPutBack(w *Worker, key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(slices.Collect(maps.Values(w.queues[0].blocks)), func(b *tenure) bool {
		return b.HasPutBack(key)
	})
}

// waiting counts the jobs of a key that a worker has read and that wait for another.
func waiting(w *Worker, key string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.queues[0].blocks {
		n += b.WaitingOf(key)
	}
	return n
}

// Delayed jobs of a key take their place when they are due; those that are due at
// once, in the order of their ids; and also if they are committed later than others
// that are due later.
func TestOrderOfDelays(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		s, numbers := newSequence(), map[string]int{}
		crew(t, db, 1, WorkerOptions{}, s.handler(t, never))
		jobs := s.jobs(numbers, 20, "a", "b")
		for i := range jobs {
			jobs[i].Delay = 200 * time.Millisecond
		}
		enqueueMany(t, c, jobs)
		first := s.jobs(map[string]int{}, 1, "c") // goes before those that wait
		enqueueMany(t, c, first)
		eventually(t, "all are done", func() bool { return s.done() == 21 })
		empty(t, db)

		if db.Dialect.Name == "sqlite" {
			return
		}
		away := other(t, db)
		tx := db.Begin(t, nil)
		defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
		_, _, err := away.EnqueueTx(t.Context(), tx, Job{Kind: "x", Key: "late", Payload: []byte("0"), Delay: time.Millisecond})
		must(t, err)
		enqueue(t, c, Job{Kind: "x", Key: "early", Payload: []byte("0"), Delay: 20 * time.Millisecond})
		eventually(t, "the other is done", func() bool { return s.done() == 22 })
		must(t, tx.Commit()) // and nobody is told
		eventually(t, "the late one is done", func() bool { return s.done() == 23 })
	})
}

// While jobs flow, the number of blocks is changed, up and down. No job is lost, and
// no key's order is broken.
func TestResize(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c, c2 := client(t, db, Options{Blocks: 3}), other(t, db)
		agree(t, db, c, c2)
		want(t, "of no queue", adminOf(c).Resize(t.Context(), defaultQueue, 5), ErrNotFound)
		s, numbers := newSequence(), map[string]int{}
		crew(t, db, 2, WorkerOptions{Batch: 10}, s.handler(t, never))
		keys := []string{"a", "b", "c", "d", "e", "f"}
		n := 0
		flow := func(from *Client) {
			enqueueMany(t, from, s.jobs(numbers, 30, keys...))
			delayed := s.jobs(map[string]int{}, 1, fmt.Sprint("delayed ", n))
			delayed[0].Delay = 300 * time.Millisecond
			enqueueMany(t, from, delayed)
			n += 31
		}
		flow(c2)
		year := enqueue(t, c, Job{Kind: "x", Key: "year", Delay: 365 * 24 * time.Hour})
		must(t, adminOf(c).Resize(t.Context(), defaultQueue, 5))
		flow(c)
		flow(c2) // which does not know yet
		must(t, adminOf(c).Resize(t.Context(), defaultQueue, 2))
		must(t, adminOf(c).Resize(t.Context(), defaultQueue, 2))
		begun := func() bool { // the new blocks
			q, err := c.read(t.Context(), defaultQueue)
			must(t, err)
			return q.Newest().From < c.clock.now()
		}
		for !begun() {
			flow(c)
			flow(c2)
		}
		for _, bad := range []int{0, -1, 1001} {
			want(t, fmt.Sprint(bad), adminOf(c).Resize(t.Context(), defaultQueue, bad), ErrInvalid)
		}
		eventually(t, "all are done", func() bool { return s.done() == n })
		eventually(t, "the old blocks are gone", func() bool {
			blocks, err := adminOf(c).Blocks(t.Context(), "")
			must(t, err)
			return len(blocks) == 2 && blocks[0].Generation == 3
		})
		flow(c2)
		eventually(t, "all are done", func() bool { return s.done() == n })
		info(t, c, year, admin.StateDelayed) // which looks for it in the new blocks
		must(t, adminOf(c).Cancel(t.Context(), defaultQueue, year))
		empty(t, db)
	})
}

// A job belongs to the generation of blocks that had begun when its id was made.
func TestGenerations(t *testing.T) {
	at := func(s int) int64 { return store.Epoch.Add(time.Duration(s) * time.Second).UnixMicro() }
	q := &store.Queue{Generations: []store.Generation{
		{Number: 3, First: 10, Blocks: 1, From: at(100)},
		{Number: 4, First: 11, Blocks: 1, From: at(200)},
		{Number: 5, First: 12, Blocks: 1, From: at(300)},
	}}
	for us, want := range map[int64]int{at(0): 10, at(100): 10, at(200) - 1: 10, at(200): 11, at(300) - 1: 11, at(300): 12, at(999): 12} {
		if got := q.Block("", store.TickOf(us)); got != want {
			t.Errorf("a job of %v goes to block %d, not %d", time.UnixMicro(us).UTC(), got, want)
		}
	}
}

// A key with more jobs than are kept in memory is processed completely, even if some fail, and
// so are the jobs after it.
func TestCrowded(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, impatient)
		s, numbers := newSequence(), map[string]int{}
		enqueueMany(t, c, append(s.jobs(numbers, 250, "a"), s.jobs(numbers, 5, "b")...))
		w := worker(t, other(t, db), WorkerOptions{Batch: 1, Concurrency: 1})
		w.slow = longWait // while it is checked out, what is behind it is put back
		handle(t, w, "x", s.handler(t, func(d *Delivery) error {
			if d.Attempt == 1 && d.Key == "a" && string(d.Payload) == "0" {
				eventually(t, "some are put back", func() bool { return hasPutBack(w, "a") })
				return errTest
			}
			return nil
		}))
		start(t, w)
		empty(t, db)
	})
}

// Jobs that come to a block that was removed, since their producer was asleep for
// long, are found.
func TestStrays(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		// One that is due in an hour does not hide those of the blocks after it.
		names := []string{"ready", "delayed", "hour"}
		for _, name := range names {
			if name == "hour" {
				enqueue(t, c, Job{Queue: name, Kind: "x", Delay: time.Hour})
				must(t, adminOf(c).Resize(t.Context(), name, 1))
			}
			enqueue(t, c, Job{Queue: name, Kind: "x", Delay: map[string]time.Duration{"delayed": time.Millisecond, "hour": time.Millisecond}[name]})
			must(t, adminOf(c).Resize(t.Context(), name, 3))
		}
		db.Do(t, `DELETE FROM {prefix}queue_block WHERE generation = 1`, nil)
		db.Do(t, `DELETE FROM {prefix}queue_block WHERE generation = 2 AND queue_id = (SELECT queue_id FROM {prefix}queue WHERE name = 'hour')`, nil)
		db.Do(t, `UPDATE {prefix}queue SET ordered = 'yes' WHERE name = 'hour'`, nil)
		var r record
		crew(t, db, 1, WorkerOptions{Queues: names}, func(_ context.Context, d *Delivery) error { r.add("%s", d.Queue); return nil })
		eventually(t, "all are done but one", func() bool { return rowsOf(t, db) == 1 })
		if r.len() != 3 {
			t.Errorf("done: %v", r.all())
		}
	})
}

// A queue that has no keys when it is resized may have one before the new blocks begin. Jobs of that key are in the old
// blocks then, and those of the new ones have to wait for them: so nobody takes a block of a generation that has not
// begun, as one that was taken is read. Nor is the old one retired, though it is empty, before all know of the next one, by
// clocks that they have read since it was set.
func TestResizeBeforeTheFirstKey(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		db.ShiftClock(t)
		c := client(t, db, Options{Blocks: 2})
		w := worker(t, c, WorkerOptions{})
		must(t, w.tryBegin(t.Context()))
		must(t, adminOf(c).Resize(t.Context(), defaultQueue, 3))
		rows := []store.BlockRow{{Divided: 0, Generation: 1}, {Divided: 1, Generation: 1}, {Divided: 2, Generation: 2}, {Divided: 4, Generation: 2}}
		takes := func(when string, want ...int) {
			t.Helper()
			some, err := w.current(t.Context(), w.queues[0], rows)
			must(t, err)
			var got []int
			for _, r := range some {
				got = append(got, r.Generation)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s it takes blocks of the generations %v, not %v", when, got, want)
			}
		}
		takes("before the new ones have begun", 1, 1)
		db.Shift(t, store.ResizeAfter+2*Window)
		must(t, c.clock.read(t.Context(), &db.Session))
		takes("while others may not have noticed that the clock was set forward", 1, 1)
		// From here on the old one is not empty: else it is retired as soon as this test has taken as long as clocks may differ.
		db.Do(t, `INSERT INTO {prefix}job_delayed (queue_id, divided, id, kind, run_at) VALUES (:queue, 0, 1, 'x', {now})`,
			sqlrun.Args{"queue": w.queues[0].id})
		c.clock.mu.Lock()
		c.clock.until = instant.Now()
		c.clock.mu.Unlock()
		takes("afterwards", 1, 1, 2, 2)
		must(t, w.c.bells.flush(t.Context()))
		_, err := c.Enqueue(t.Context(), Job{Kind: "x", Key: "k"})
		must(t, err)
		takes("of a queue with keys", 1, 1)
	})
}
