package queue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
)

// onceMore is a job that lets another one of its key be enqueued while it runs, which begins when it has ended.
func onceMore(kind string) Job {
	return Job{Kind: kind, Unique: "k", UniqueUntil: UntilBegin, Key: "k"}
}

// A job that has its key until it begins is joined by one more while it runs, which others are not. That one begins when the
// first has ended, and not while it waits for its retry.
func TestUniqueUntilBegin(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, impatient)
		first := wantFresh(t, c, onceMore("x"))
		wantHolder(t, c, onceMore("x"), first)
		wantHolder(t, c, uniquely("x"), first)
		w := worker(t, other(t, db), WorkerOptions{Concurrency: 4})
		running, goOn := make(chan int64), make(chan error)
		handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
			if d.Unique != "k" || d.UniqueUntil != UntilBegin {
				t.Errorf("a handler is given %+v", d.Job)
			}
			select {
			case running <- d.ID:
			case <-ctx.Done():
				return ctx.Err()
			}
			return <-goOn
		})
		start(t, w)
		begins := func(what string, id int64) {
			t.Helper()
			if got := received(t, what, running); got != id {
				t.Errorf("%s: %d begins, not %d", what, got, id)
			}
		}
		begins("the first", first)
		second := wantFresh(t, c, onceMore("x"))
		wantHolder(t, c, onceMore("x"), second)
		goOn <- errTest
		begins("its retry", first)
		wantHolder(t, c, onceMore("x"), second)
		goOn <- nil
		begins("the second", second)
		third := wantFresh(t, c, Job{Kind: "x", Unique: "k", UniqueUntil: UntilBegin, Key: "k", Delay: time.Millisecond})
		goOn <- Bury(errTest)
		begins("the third, which was delayed", third)
		if i := info(t, c, third, admin.StateRunning); i.Unique != "k" || i.UniqueUntil != UntilBegin {
			t.Errorf("it is %+v", i)
		}
		goOn <- nil
		empty(t, db)
		// The dead one began, and has its key no more.
		must(t, adminOf(c).Pause(t.Context(), defaultQueue, ""))
		knowsPause(t, w)
		must(t, adminOf(c).Retry(t.Context(), "", second))
		fourth := wantFresh(t, c, onceMore("x"))
		must(t, adminOf(c).Cancel(t.Context(), "", fourth))
		if n := keysOf(t, db); n != 0 {
			t.Errorf("%d keys are in use", n)
		}
		for _, bad := range []Job{{Kind: "x", UniqueUntil: UntilBegin}, {Kind: "x", Unique: "k", UniqueUntil: "start"}} {
			_, err := c.Enqueue(t.Context(), bad)
			want(t, fmt.Sprintf("%+v", bad), err, ErrInvalid)
		}
		if e, err := c.Enqueue(t.Context(), Job{Kind: "x", Unique: "k", UniqueUntil: UntilEnd}); err != nil || e.Existed {
			t.Errorf("until the end: %+v, %v", e, err)
		}
	})
}

// Whoever begins such a job frees its key: a batch, a Receiver, and a worker that removes jobs before they begin.
func TestUniqueUntilBeginOfOtherWorkers(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		r := receiver(t, c, WorkerOptions{})
		var ids []int64
		for i := range 3 {
			ids = append(ids, wantFresh(t, c, Job{Kind: "x", Unique: fmt.Sprint(i), UniqueUntil: UntilBegin}))
		}
		for i, d := range receive(t, r, 3) {
			wantFresh(t, c, Job{Kind: "y", Unique: d.Unique})
			must(t, r.Complete(t.Context(), d))
			if d.ID != ids[i] {
				t.Errorf("received %d, not %d", d.ID, ids[i])
			}
		}
		must(t, r.Close())
		if n := keysOf(t, db); n != 3 {
			t.Errorf("%d keys are in use, and those who came meanwhile have 3", n)
		}

		for name, opt := range map[string]WorkerOptions{"batch": {}, "at most once": {AtMostOnce: true}} {
			w := worker(t, other(t, db), opt)
			fresh := make(chan bool, 2)
			handle(t, w, "y", nothing)
			try := func(ctx context.Context, d *Delivery) {
				e, err := c.Enqueue(ctx, Job{Kind: "y", Unique: d.Unique})
				fresh <- err == nil && !e.Existed
			}
			if name == "batch" {
				must(t, w.HandleBatch(name, BatchOptions{Max: 2}, func(ctx context.Context, all []*Delivery) error {
					for _, d := range all {
						try(ctx, d)
					}
					return nil
				}))
			} else {
				handle(t, w, name, func(ctx context.Context, d *Delivery) error { try(ctx, d); return nil })
			}
			enqueueMany(t, c, []Job{{Kind: name, Unique: name, UniqueUntil: UntilBegin}, {Kind: name, Unique: name + "2", UniqueUntil: UntilBegin}})
			stop := start(t, w)
			for range 2 {
				if !received(t, name, fresh) {
					t.Errorf("%s: the key is in use while its job runs", name)
				}
			}
			empty(t, db)
			stop()
		}
		if n := keysOf(t, db); n != 0 {
			t.Errorf("%d keys are in use", n)
		}
	})
}

// A job does not begin with its key in use: if its check-out is refused, it waits.
func TestRefusedBegin(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		allow := refuse(t, db, "INSERT", "job_running")
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, impatient)
		w := worker(t, c, WorkerOptions{})
		var r record
		for _, kind := range []string{"bad", "good"} {
			handle(t, w, kind, func(_ context.Context, d *Delivery) error { r.add("%s %d", d.Kind, d.Attempt); return nil })
		}
		start(t, w)
		bad := wantFresh(t, c, onceMore("bad"))
		eventually(t, "it waits", func() bool {
			i, err := adminOf(c).Job(t.Context(), "", bad)
			return err == nil && i.State == admin.StateDelayed
		})
		wantHolder(t, c, onceMore("bad"), bad)
		enqueue(t, c, Job{Kind: "good"})
		eventually(t, "others go on", func() bool { return r.len() == 1 })
		r.wants(t, "good 1")
		allow()
		empty(t, db)
		r.wants(t, "good 1", "bad 1")
	})
}

// A job that was moved has its key in the other queue, unless it has begun.
func TestMoveUniqueUntilBegin(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		elsewhere(t, c, "to", 1)
		edit(t, c, func(q *admin.Queue) { q.RetryDelay, q.RetryMaxDelay = time.Hour, time.Hour })
		w := worker(t, other(t, db), WorkerOptions{})
		handle(t, w, "x", func(context.Context, *Delivery) error { return errTest })
		stop := start(t, w)
		begun := wantFresh(t, c, Job{Kind: "x", Unique: "k", UniqueUntil: UntilBegin})
		becomes(t, c, begun, admin.StateDelayed)
		stop()
		next := wantFresh(t, c, Job{Kind: "x", Unique: "k", UniqueUntil: UntilBegin})
		moveAll(t, c, MoveOptions{}, Moved{Jobs: 2})
		wantHolder(t, c, Job{Kind: "x", Unique: "k", Queue: "to"}, next)
		wantFresh(t, c, Job{Kind: "x", Unique: "k"})
		if n := keysOf(t, db); n != 2 {
			t.Errorf("%d keys are in use", n)
		}
	})
}

// While jobs run, what they are about changes: the last change is seen by a job that begins after
// it, and no two of a key run at once. Each job waits for a change of its document after it has looked, if one is to come.
func TestChangesUnderWay(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		edit(t, c, impatient)
		const docs, changes, writers = 3, 15, 3
		version, index, busy, enqueued, writing := make([]int, docs), make([]int, docs), make([]int, docs), make([]int, docs), writers
		var mu sync.Mutex
		changed := sync.NewCond(&mu)
		for range 2 {
			w := worker(t, other(t, db), WorkerOptions{Concurrency: 4})
			handle(t, w, "index", func(_ context.Context, d *Delivery) error {
				var doc int
				if err := d.Decode(&doc); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				saw, had := version[doc], enqueued[doc]
				busy[doc]++
				if busy[doc] > 1 {
					t.Errorf("two of a key run at once")
				}
				for enqueued[doc] == had && writing > 0 {
					changed.Wait()
				}
				busy[doc]--
				index[doc] = max(index[doc], saw)
				return nil
			})
			start(t, w)
		}
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				for i := range changes {
					doc := i % docs
					mu.Lock()
					version[doc]++
					mu.Unlock()
					key := fmt.Sprint("doc", doc)
					if _, err := c.Enqueue(t.Context(), Job{
						Kind: "index", Payload: []byte(fmt.Sprint(doc)), Unique: key, UniqueUntil: UntilBegin, Key: key,
					}); err != nil {
						t.Error(err)
					}
					mu.Lock()
					enqueued[doc]++
					changed.Broadcast()
					mu.Unlock()
				}
				mu.Lock()
				writing--
				changed.Broadcast()
				mu.Unlock()
			})
		}
		all.Wait()
		empty(t, db)
		mu.Lock()
		defer mu.Unlock()
		for doc := range docs {
			if index[doc] != version[doc] {
				t.Errorf("a document is at version %d, and its index at %d", version[doc], index[doc])
			}
		}
		if n := keysOf(t, db); n != 0 {
			t.Errorf("%d keys are in use", n)
		}
	})
}
