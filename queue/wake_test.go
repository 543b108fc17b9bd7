package queue

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// idleWorker returns a worker that does nothing by itself, and has the only block of
// the default queue.
func idleWorker(t *testing.T, db *dbtest.DB) (*Worker, *tenure) {
	t.Helper()
	c := client(t, db, Options{Blocks: 1})
	edit(t, c, impatient)
	w := worker(t, c, WorkerOptions{})
	must(t, w.tryBegin(t.Context()))
	must(t, w.shareQueue(t.Context(), w.queues[0], w.lease.node))
	w.noteShare(w.queues)
	c.bells.add(w)
	b := w.queues[0].blocks[0]
	if b == nil {
		t.Fatal("the block was not taken")
	}
	return w, b
}

// flushOnce runs a round for a block, with a hook between reading and applying the result.
func flushOnce(t *testing.T, w *Worker, b *tenure, between func()) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serve, b.queued, b.Serving = nil, false, true
	round := w.planTrip(b)
	w.mu.Unlock()
	err := w.flush.makeTrip(t.Context(), round)
	between()
	w.mu.Lock()
	b.Serving = false
	must(t, err)
	w.apply(round, nil)
}

// A job that is enqueued after a worker has looked, and before it waits, is not left
// until the next look: its bell is remembered.
func TestWakeBetweenLookingAndWaiting(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		w, b := idleWorker(t, db)
		for toServe(w) {
			flushOnce(t, w, b, func() {})
		}
		for late := range 2 { // a worker looks twice before it waits: at its cursor, and back
			w.mu.Lock()
			b.Reads.Looked = instant.Now().Add(time.Hour) // else it may be time to look back first, on a slow machine
			w.mu.Unlock()
			w.ring(b.q.id, b.divided)
			looks := 0
			for ; toServe(w); looks++ {
				flushOnce(t, w, b, func() {
					if looks == late {
						enqueue(t, w.c, Job{Kind: "x"})
					}
				})
			}
			w.mu.Lock()
			d := b.Pop()
			w.mu.Unlock()
			if d == nil || looks < 3 {
				t.Fatalf("after %d looks the worker waits, and has read %v", looks, d)
			}
		}
	})
}

// Whoever looks into the database is not told that there is nothing by a read that was
// sent before.
func TestLookDuringARead(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		w, b := idleWorker(t, db)
		flushDry(t, w, b)
		w.ring(b.q.id, b.divided)
		flushOnce(t, w, b, func() {
			enqueue(t, other(t, db), Job{Kind: "x"}) // whose bells are not heard here
			w.mu.Lock()
			w.readAgain()
			w.mu.Unlock()
			_, err := w.lookForNew(t.Context(), false)
			must(t, err)
		})
		w.mu.Lock()
		read := w.hasRead()
		w.mu.Unlock()
		if read {
			t.Error("it is said that all was read")
		}
		flushDry(t, w, b)
		if w.mu.Lock(); b.Pop() == nil {
			t.Error("the job was not read")
		}
		w.mu.Unlock()
	})
}

// When the bells of several jobs come as one, as many waiters wake as there are jobs.
func TestWakeOfMergedBells(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		t.Run("handlers", func(t *testing.T) {
			begin, end := make(chan bool), make(chan bool)
			w := worker(t, c, WorkerOptions{Concurrency: 4})
			handle(t, w, "x", func(context.Context, *Delivery) error {
				begin <- true
				<-end
				return nil
			})
			stop := start(t, w)
			for round := range 30 {
				n := 1 + round%4
				eventually(t, "all handlers wait", func() bool { return waiters(w) == 4 })
				jobs := make([]Job, n)
				for i := range jobs {
					jobs[i].Kind = "x"
				}
				enqueueMany(t, c, jobs)
				for range n {
					received(t, "one more begins, while the others run", begin)
				}
				for range n {
					end <- true
				}
			}
			stop()
		})
		t.Run("receivers", func(t *testing.T) {
			r, err := c.Receiver(t.Context(), WorkerOptions{})
			must(t, err)
			defer r.Close()
			for range 30 {
				got := make(chan int, 2)
				for range 2 {
					go func() {
						list, err := r.Receive(t.Context(), 1, time.Hour)
						for _, d := range list {
							err = r.Complete(t.Context(), d)
						}
						if err != nil {
							t.Error(err)
						}
						got <- len(list)
					}()
				}
				waitAt(t, r, 2)
				enqueueMany(t, c, []Job{{Kind: "x"}, {Kind: "x"}})
				for range 2 {
					if n := received(t, "one more gets a job", got); n != 1 {
						t.Errorf("got %d jobs", n)
					}
				}
			}
			must(t, r.Close())
		})
	})
}

// toServe reports whether a worker has a block to serve.
func toServe(w *Worker) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.serve) > 0
}

// waiters counts the handlers that wait for jobs of a worker.
func waiters(w *Worker) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.idle
}

// A transaction of a caller's notifies the worker that has a job's block if that has said that it
// waits, and nobody otherwise.
func TestTellsWhoWaits(t *testing.T) {
	dbtest.SkipBare(t, "it has no notifications")
	having(t, dbtest.Notifications, func(t *testing.T, db *dbtest.DB) {
		w, b := idleWorker(t, db)
		heard, ready := make(chan string, 100), make(chan bool)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() {
			defer close(ended)
			_ = w.c.db.Listen(ctx, w.c.bells.channel(), func() { close(ready) }, func(payload string) { heard <- payload })
		}()
		<-ready
		place := func(jobs ...Job) string {
			w.c.askWhoWaits() // what it knows may be old
			tx := db.Begin(t, nil)
			_, _, err := w.c.EnqueueTx(t.Context(), tx, jobs...)
			must(t, err)
			must(t, tx.Commit())
			w.c.bells.say(t.Context(), "end")
			for got := ""; ; {
				payload := received(t, "a notification", heard)
				if payload == "end" {
					return got
				}
				got += payload + ";"
			}
		}
		two := []Job{{Kind: "x"}, {Kind: "x"}}
		if got := place(two...); got != "" {
			t.Errorf("nobody waits: %q", got)
		}
		_, err := db.Exec(t.Context(), store.PutBell, sqlrun.Args{"node": w.lease.node, "at": store.WaitsAt, "key": ""})
		must(t, err)
		want := fmt.Sprintf("%d:%d;", b.q.id, b.divided)
		for what, jobs := range map[string][]Job{
			"two": two, "one with more": {{Kind: "x", MaxAttempts: 2, Key: "k"}},
			"unique": {{Kind: "x", Unique: "u"}},
		} {
			if got := place(jobs...); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		if got := place(Job{Kind: "x", Delay: time.Hour}, Job{Queue: "other", Kind: "x"}); got != "" {
			t.Errorf("none of them is for a worker that waits: %q", got)
		}
		tx := db.Begin(t, nil)
		_, _, err = w.c.EnqueueTx(t.Context(), tx, two...)
		must(t, err)
		must(t, tx.Rollback())
		db.Do(t, `UPDATE {prefix}node SET state = 'lost'`, nil)
		if got := place(two...); got != "" {
			t.Errorf("the worker is gone: %q", got)
		}
		cancel()
		<-ended
	})
}

// Jobs are told to workers of their queue, and to nobody while it has none; those that came meanwhile are told once it has one.
func TestTellsWhoLives(t *testing.T) {
	dbtest.SkipBare(t, "it has no notifications")
	having(t, dbtest.Notifications, func(t *testing.T, db *dbtest.DB) {
		heard, ready := make(chan string, 100), make(chan bool)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		producer := client(t, db, Options{Blocks: 1})
		go func() {
			defer close(ended)
			_ = producer.db.Listen(ctx, producer.bells.channel(), func() { close(ready) }, func(payload string) { heard <- payload })
		}()
		<-ready
		place := func(queue string) (all string) {
			producer.bells.mu.Lock()
			clear(producer.bells.staffed) // what it knows may be old
			producer.bells.mu.Unlock()
			enqueue(t, producer, Job{Queue: queue, Kind: "x"})
			must(t, producer.bells.flush(t.Context()))
			producer.bells.say(t.Context(), "end")
			for payload := received(t, "a notification", heard); payload != "end"; payload = received(t, "a notification", heard) {
				all += payload
			}
			return all
		}
		if got := place("") + place("other"); got != "" {
			t.Errorf("nobody lives: %q", got)
		}
		enqueue(t, producer, Job{Kind: "x"})
		eventually(t, "the queue is known to have no worker", func() bool {
			producer.bells.mu.Lock()
			defer producer.bells.mu.Unlock()
			return len(producer.bells.staffed) > 0
		})
		w, b := idleWorker(t, db)
		want := fmt.Sprintf("%d:%d,;", b.q.id, b.divided)
		enqueue(t, producer, Job{Kind: "x"})
		for payload := ""; payload != want; payload = received(t, "the notification of a job that came since nobody lived", heard) {
		}
		if got := place(""); got != want {
			t.Errorf("a worker lives: %q, want %q", got, want)
		}
		if got := place("other"); got != "" {
			t.Errorf("it is another queue's: %q", got)
		}
		for _, change := range []string{`state = 'lost'`, `state = 'live', expire_at = {now + :hour}`} {
			db.Do(t, `UPDATE {prefix}node SET `+change, sqlrun.Args{"hour": -time.Hour.Microseconds()})
			if got := place(""); got != "" {
				t.Errorf("%s: %q", change, got)
			}
		}
		db.Do(t, `UPDATE {prefix}node SET expire_at = {now + :hour}`, sqlrun.Args{"hour": time.Hour.Microseconds()})
		if got := place(""); got != want {
			t.Errorf("%s lives again: %q, want %q", w.lease.node, got, want)
		}
		cancel()
		<-ended
	})
}

// A worker says that it waits when nothing has come for a while, and that it does not when it has
// something to do; so nobody need call wake.
func TestSaysThatItWaits(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		w := worker(t, other(t, db), WorkerOptions{})
		hold := make(chan bool)
		handle(t, w, "x", func(context.Context, *Delivery) error { <-hold; return nil })
		start(t, w)
		mark := func(is string) {
			if db.Dialect.Notify == nil {
				return
			}
			eventually(t, "the worker's mark is "+is, func() bool {
				return strings.Join(db.List(t, `SELECT bell_at FROM {prefix}node WHERE state = 'live'`, nil), "") == is
			})
		}
		for range 3 {
			mark(store.WaitsAt)
			tx := db.Begin(t, nil)
			_, _, err := c.EnqueueTx(t.Context(), tx, Job{Kind: "x"}, Job{Kind: "x"})
			must(t, err)
			must(t, tx.Commit())
			hold <- true
			hold <- true
			eventually(t, "they are done", func() bool { return rowsOf(t, db) == 0 })
		}
	})
}
