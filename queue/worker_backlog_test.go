package queue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
)

// However many jobs of a block wait for one of their key, which waits for its retry or runs
// for long, others begin, and few are kept in memory. When that one has ended, they follow in
// their order.
func TestBacklogOfAKey(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		const batch, many = 2, 260 // more than the 200 that are kept
		for _, long := range []bool{false, true} {
			c := client(t, db, Options{Blocks: 1})
			edit(t, c, func(q *admin.Queue) { q.RetryDelay, q.RetryMaxDelay = time.Hour, time.Hour })
			s, numbers := newSequence(), map[string]int{}
			goOn := make(chan struct{})
			w := worker(t, other(t, db), WorkerOptions{Batch: batch})
			w.slow = 10 * time.Millisecond
			handle(t, w, "x", s.handler(t, func(d *Delivery) error {
				switch {
				case d.Key != "k" || string(d.Payload) != "0":
				case long:
					<-goOn
				case d.Attempt == 1:
					return errTest
				}
				return nil
			}))
			first := enqueueMany(t, c, s.jobs(numbers, 1, "k"))[0]
			stop := start(t, w)
			becomes(t, c, first, map[bool]admin.State{false: admin.StateDelayed, true: admin.StateRunning}[long])
			enqueueMany(t, c, s.jobs(numbers, many, "k"))
			enqueueMany(t, c, append(s.jobs(numbers, 20, "a", "b"), Job{Kind: "x", Payload: []byte("0")}))
			eventually(t, "the others are done", func() bool { return s.done() == 21 })
			enqueueMany(t, c, s.jobs(numbers, many, "k"))
			enqueueMany(t, c, s.jobs(numbers, 20, "a", "c"))
			eventually(t, "those behind still more are done", func() bool { return s.done() == 41 })
			w.mu.Lock()
			for _, b := range w.queues[0].blocks {
				if n := b.Known(); n > 100*batch+batch {
					t.Errorf("%d jobs are in memory", n)
				}
			}
			w.mu.Unlock()
			if close(goOn); !long {
				must(t, adminOf(c).Retry(t.Context(), "", first))
			}
			empty(t, db)
			if n := s.done(); n != 42+2*many {
				t.Errorf("%d were done", n)
			}
			stop()
		}
	})
}

// However many jobs of a kind wait for its limit, those of others begin; and all are done
// when it lets them.
func TestBacklogOfAKind(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		const batch, many = 2, 140 // more than the 40 that are set aside
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, func(*admin.Queue) {})
		limitTo(t, c, "slow", 1)
		w := worker(t, other(t, db), WorkerOptions{Batch: batch})
		var slow, quick crowd
		goOn := make(chan struct{})
		handle(t, w, "slow", func(context.Context, *Delivery) error {
			slow.Enter()
			defer slow.Leave()
			<-goOn
			return nil
		})
		handle(t, w, "quick", quick.pass)
		for i := range 2 {
			enqueueMany(t, c, slices.Repeat([]Job{{Kind: "slow"}}, many))
			enqueueMany(t, c, slices.Repeat([]Job{{Kind: "quick"}, {Kind: "quick", Key: "k"}}, 10))
			if i == 0 {
				start(t, w)
			}
			eventually(t, fmt.Sprint("the others are done: ", i), func() bool { _, _, n := quick.Counts(); return n == 20*(i+1) })
		}
		inMemory(t, w, 30*batch)
		close(goOn)
		empty(t, db)
		if _, most, all := slow.Counts(); most != 1 || all != 2*many {
			t.Errorf("%d at a time, %d in all", most, all)
		}
	})
}

// However many jobs of a key wait for those before them, which end one after the other, others
// of its block begin, and few are kept in memory. All of the key are done in their order.
func TestBacklogOfASteadyKey(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		const batch, many, most = 2, 260, 100
		c := client(t, db, Options{Blocks: 1})
		s, numbers := newSequence(), map[string]int{}
		enqueueMany(t, c, s.jobs(numbers, many, "k"))
		enqueueMany(t, c, s.jobs(numbers, 100, strings.Split("abcdefghij", "")...))
		w := worker(t, other(t, db), WorkerOptions{Batch: batch})
		w.slow = time.Hour // no job of the key is checked out: it does not stand still
		goOn := make(chan struct{})
		handle(t, w, "x", s.handler(t, func(d *Delivery) error {
			if n, _ := strconv.Atoi(string(d.Payload)); d.Key == "k" && n == most {
				<-goOn
			}
			return nil
		}))
		start(t, w)
		eventually(t, fmt.Sprintf("the others are done when %d of the key are", most), func() bool { return s.done() == most+100 })
		enqueueMany(t, c, s.jobs(numbers, many, "k"))
		enqueueMany(t, c, s.jobs(numbers, 20, "b", "new"))
		eventually(t, "those behind still more are done", func() bool { return s.done() == most+120 })
		w.mu.Lock()
		for _, b := range w.queues[0].blocks {
			if n := b.Known(); n > 100*batch+batch {
				t.Errorf("%d jobs are in memory", n)
			}
		}
		w.mu.Unlock()
		close(goOn)
		empty(t, db)
		if n := s.done(); n != 2*many+120 {
			t.Errorf("%d were done", n)
		}
	})
}

// However many keys have a job first that waits for the limit of its kind, others of the block
// begin; and each key's jobs are done in their order when the limit lets them.
func TestBacklogOfAKindWithKeys(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		const batch, many = 2, 140 // more than the 40 that are set aside
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, func(*admin.Queue) {})
		limitTo(t, c, "slow", 1)
		s, numbers := newSequence(), map[string]int{}
		var jobs []Job
		for i := range many {
			of := s.jobs(numbers, 2, fmt.Sprint("key ", i)) // of which the second has no limit
			of[0].Kind = "slow"
			jobs = append(jobs, of...)
		}
		w := worker(t, other(t, db), WorkerOptions{Batch: batch})
		w.slow = time.Hour
		goOn := make(chan struct{})
		handle(t, w, "slow", s.handler(t, func(*Delivery) error { <-goOn; return nil }))
		handle(t, w, "x", s.handler(t, never))
		enqueueMany(t, c, jobs)
		enqueueMany(t, c, s.jobs(numbers, 20, "a", "b"))
		start(t, w)
		eventually(t, "the others are done", func() bool { return s.done() == 20 })
		enqueueMany(t, c, s.jobs(numbers, 20, "a", "c"))
		eventually(t, "later ones are done", func() bool { return s.done() == 40 })
		inMemory(t, w, 50*batch)
		close(goOn)
		empty(t, db)
		if n := s.done(); n != 2*many+40 {
			t.Errorf("%d were done", n)
		}
		eventually(t, "no key is left in memory", func() bool { // which the next whole read tells
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, b := range w.queues[0].blocks {
				if len(b.Lines()) > 0 {
					return false
				}
			}
			return true
		})
	})
}

// inMemory fails if a worker keeps more jobs of a block in memory.
func inMemory(t *testing.T, w *Worker, most int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.queues[0].blocks {
		if n := b.Known(); n > most {
			t.Errorf("%d jobs are in memory, more than %d", n, most)
		}
	}
}
