package queue

import (
	"context"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/bell"
	"github.com/dbcron/dbcron/queue/internal/block"
)

// drawEarly draws the ids of jobs of the default queue, and returns a function that
// commits them.
func drawEarly(t *testing.T, c *Client, jobs ...Job) (commit func()) {
	t.Helper()
	rows := make([]jobRow, len(jobs))
	must(t, c.prepare(t.Context(), jobs, rows))
	must(t, c.name(t.Context(), &c.db.Session, rows))
	return func() {
		t.Helper()
		must(t, c.db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error { return c.insertAll(ctx, tx, rows) }))
	}
}

// flushDry does rounds of a block until there is nothing to do.
func flushDry(t *testing.T, w *Worker, b *tenure) {
	t.Helper()
	for toServe(w) {
		flushOnce(t, w, b, func() {})
	}
}

// elapse has a worker's process believe that time has passed, for the time of a test.
func elapse(w *Worker, by time.Duration) {
	c := &w.c.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead.low += by.Microseconds()
	c.ahead.high += by.Microseconds()
	c.at = instant.Now().Add(time.Hour) // it is not read again
}

// begun pops a job and ends it.
func begun(t *testing.T, w *Worker, b *tenure) string {
	t.Helper()
	w.mu.Lock()
	j := b.Pop()
	w.mu.Unlock()
	if j == nil {
		return "none"
	}
	d := deliveryOf(j)
	w.finish(d, nil, "")
	return string(d.Payload)
}

// However long a worker could not read a block, and for whatever reason: a job that was
// committed in time meanwhile, below what was read before, is found by the first reads
// afterwards, in its place in the order of its key.
func TestLookBackAfterAPause(t *testing.T) {
	const long = 10 * Window
	interruptions := map[string]func(t *testing.T, w *Worker, b *tenure, commit func()){
		"pause": func(t *testing.T, w *Worker, b *tenure, commit func()) {
			meet := func(state string) {
				edit(t, w.c, func(q *admin.Queue) { q.State = state })
				set, err := w.c.read(t.Context(), defaultQueue)
				must(t, err)
				w.meet(b.q, set)
			}
			meet("paused")
			commit()
			elapse(w, long)
			flushDry(t, w, b)
			meet("active")
		},
		"full": func(t *testing.T, w *Worker, b *tenure, commit func()) {
			w.terms.Batch = 1
			enqueue(t, w.c, Job{Kind: "x", Payload: []byte(`"filler"`)})
			flushDry(t, w, b)
			commit()
			elapse(w, long)
			w.ring(b.q.id, b.divided)
			if toServe(w) {
				t.Fatal("a block is read that is full")
			}
			if got := begun(t, w, b); got != `"filler"` {
				t.Fatalf("%s begins", got)
			}
			w.terms.Batch = 100
			w.ring(b.q.id, b.divided)
		},
		"errors": func(t *testing.T, w *Worker, b *tenure, commit func()) {
			over, cancel := context.WithCancel(t.Context())
			cancel()
			w.ring(b.q.id, b.divided)
			w.mu.Lock()
			if err := w.serveNext(over); err == nil {
				t.Error("a read succeeds whose context is over")
			}
			w.mu.Unlock()
			commit()
			elapse(w, long)
			eventually(t, "it is tried again", func() bool {
				w.mu.Lock()
				w.enlist(b) // as its watch does
				w.mu.Unlock()
				return toServe(w)
			})
		},
		"a stalled pump": func(t *testing.T, w *Worker, b *tenure, commit func()) {
			w.ring(b.q.id, b.divided)
			flushOnce(t, w, b, func() {
				commit()
				elapse(w, long)
			})
			w.ring(b.q.id, b.divided)
		},
	}
	for name, interrupt := range interruptions {
		t.Run(name, func(t *testing.T) {
			locks(t, func(t *testing.T, db *dbtest.DB) {
				w, b := idleWorker(t, db)
				w.terms.Whole = time.Hour
				flushDry(t, w, b)
				commit := drawEarly(t, w.c, Job{Kind: "x", Key: "k", Payload: []byte("1")}, Job{Kind: "x", Payload: []byte("2")})
				enqueue(t, w.c, Job{Kind: "x", Key: "other", Payload: []byte("0")})
				flushDry(t, w, b)
				if got := begun(t, w, b); got != "0" {
					t.Fatalf("%s begins", got)
				}
				flushDry(t, w, b)
				interrupt(t, w, b, commit)
				enqueue(t, w.c, Job{Kind: "x", Key: "k", Payload: []byte("3")})
				flushDry(t, w, b)
				if got := begun(t, w, b) + " " + begun(t, w, b); got != "1 2" {
					t.Errorf("%s begin, of the late 1 and 2", got)
				}
				if got := begun(t, w, b); got != "3" {
					t.Errorf("%s begins after its predecessor", got)
				}
			})
		})
	}
}

// A job that is committed a moment after the worker has looked is found by the next look,
// however short the time is that is left of its window.
func TestLookBackOverAWholeWindow(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		w, b := idleWorker(t, db)
		w.terms.Whole = time.Hour
		flushDry(t, w, b)
		drawn := instant.Now()
		commit := drawEarly(t, w.c, Job{Kind: "x", Payload: []byte("1")})
		enqueue(t, w.c, Job{Kind: "x", Payload: []byte("0")})
		flushDry(t, w, b)
		if got := begun(t, w, b); got != "0" {
			t.Fatalf("%s begins", got)
		}
		elapse(w, Window-block.LookEvery/2-instant.Now().Sub(drawn)) // a busy machine has taken some of it
		w.ring(b.q.id, b.divided)
		flushDry(t, w, b) // the last look before it is committed
		elapse(w, block.LookEvery/2)
		commit()
		elapse(w, block.LookEvery) // and nobody rings
		w.mu.Lock()
		b.Reads.Looked = b.Reads.Looked.Add(-block.LookEvery)
		w.enlist(b)
		w.mu.Unlock()
		flushDry(t, w, b)
		if got := begun(t, w, b); got != "1" {
			t.Errorf("%s begins, and a job is left", got)
		}
	})
}

// A job of a transaction that took longer than its window is found when a look goes back that far, in a
// block that is quiet and in one that is not, and is counted. It is found at once if its producer says so:
// to workers here, and to those of other processes by a bell.
func TestLookBackBeyondTheWindow(t *testing.T) {
	const took = Window + Window/2
	deepLook := func(w *Worker, b *tenure) {
		w.mu.Lock()
		b.Reads.Depths = block.Depths{} // the time of each look has come
		w.mu.Unlock()
	}
	finds := map[string]func(t *testing.T, w *Worker, b *tenure, rows []jobRow) (counted string){
		"by a read": func(t *testing.T, w *Worker, b *tenure, _ []jobRow) string {
			deepLook(w, b)
			w.mu.Lock()
			w.enlist(b)
			w.mu.Unlock()
			return "1"
		},
		"by a look": func(t *testing.T, w *Worker, b *tenure, _ []jobRow) string {
			deepLook(w, b)
			w.lookSoon()
			if n, err := w.lookForNew(t.Context(), false); n != 1 || err != nil {
				t.Errorf("a look into a quiet block found %d, %v", n, err)
			}
			return "1"
		},
		"by its producer": func(_ *testing.T, w *Worker, b *tenure, rows []jobRow) string {
			rows[0].drawn = instant.Now().Add(-took)
			w.c.bells.ring(rows)
			return "0"
		},
		"by a bell": func(_ *testing.T, w *Worker, b *tenure, rows []jobRow) string {
			w.heard(bell.Blocks(b.q.id, map[int]bool{b.divided: true}) + bell.From(b.q.id, rows[0].id))
			return "0"
		},
	}
	for name, find := range finds {
		t.Run(name, func(t *testing.T) {
			locks(t, func(t *testing.T, db *dbtest.DB) {
				w, b := idleWorker(t, db)
				w.terms.Whole = time.Hour
				flushDry(t, w, b)
				jobs := []Job{{Kind: "x", Payload: []byte("1")}}
				rows := make([]jobRow, 1)
				must(t, w.c.prepare(t.Context(), jobs, rows))
				must(t, w.c.name(t.Context(), &w.c.db.Session, rows))
				enqueue(t, w.c, Job{Kind: "x", Payload: []byte("0")})
				flushDry(t, w, b)
				if got := begun(t, w, b); got != "0" {
					t.Fatalf("%s begins", got)
				}
				elapse(w, took)
				w.ring(b.q.id, b.divided)
				flushDry(t, w, b)
				must(t, w.c.db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error { return w.c.insertAll(ctx, tx, rows) }))
				w.ring(b.q.id, b.divided)
				flushDry(t, w, b)
				if got := begun(t, w, b); got != "none" {
					t.Fatalf("%s begins: it was not missed", got)
				}
				counted := find(t, w, b, rows)
				flushDry(t, w, b)
				if got := begun(t, w, b); got != "1" {
					t.Errorf("%s begins, and a job is left", got)
				}
				must(t, w.tally.addCounts(t.Context()))
				if got := db.List(t, `SELECT COALESCE(SUM(late), 0) FROM {prefix}job_count`, nil); len(got) != 1 || got[0] != counted {
					t.Errorf("late jobs counted: %q, want %s", got, counted)
				}
			})
		})
	}
}
