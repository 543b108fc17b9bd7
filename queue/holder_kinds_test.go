package queue

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A doing counts processed jobs, and checks that their workers handle the kind.
type doing struct {
	mu   sync.Mutex
	done map[int64]int
}

// worker returns a worker of some kinds that does not run yet.
func (p *doing) worker(t *testing.T, c *Client, opt WorkerOptions, kinds ...string) *Worker {
	t.Helper()
	w := worker(t, c, opt)
	w.rotate = time.Hour
	for _, kind := range kinds {
		handle(t, w, kind, func(_ context.Context, d *Delivery) error {
			if d.Kind != kind {
				t.Errorf("a job of kind %s comes to who does %s", d.Kind, kind)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.done[d.ID]++
			return nil
		})
	}
	return w
}

// timesTaken returns how often blocks were taken.
func timesTaken(t *testing.T, db *dbtest.DB) (n int) {
	t.Helper()
	db.Scan(t, `SELECT SUM(fence) FROM {prefix}queue_block`, nil, &n)
	return n
}

// buriedOf counts dead letters.
func buriedOf(t *testing.T, db *dbtest.DB) (n int) {
	t.Helper()
	db.Scan(t, `SELECT COUNT(*) FROM {prefix}job_dead`, nil, &n)
	return n
}

// mixed makes jobs of two kinds, some of which have keys.
func mixed(n int) (jobs []Job) {
	for range n {
		jobs = append(jobs, Job{Kind: []string{"a", "b"}[rand.IntN(2)], Key: []string{"", "", "k", "l"}[rand.IntN(4)]})
	}
	return jobs
}

// Workers for different kinds share one queue: each job runs once, in a worker for its kind,
// and none is dead. A block changes hands at most once per job that then runs.
func TestKinds(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 4})
		p := doing{done: map[int64]int{}}
		for _, kinds := range [][]string{{"a"}, {"b"}, {"a", "b"}} {
			start(t, p.worker(t, other(t, db), WorkerOptions{Batch: 5, Concurrency: 2}, kinds...))
		}
		const jobs = 60
		var ids []int64
		for part := range slices.Chunk(mixed(jobs), 20) {
			ids = append(ids, enqueueMany(t, c, part)...)
		}
		empty(t, db)
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, id := range ids {
			if p.done[id] != 1 {
				t.Errorf("job %d was done %d times", id, p.done[id])
			}
		}
		if n := timesTaken(t, db); n > jobs+3*4 {
			t.Errorf("blocks were taken %d times for %d jobs", n, jobs)
		}
		if n := buriedOf(t, db); n > 0 {
			t.Errorf("%d jobs are dead", n)
		}
	})
}

// A worker counts no jobs of kinds that it does not handle when it gets permits for a queue.
func TestKindsBehindALimit(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		p := doing{done: map[int64]int{}}
		enqueueMany(t, c, []Job{{Kind: "b"}, {Kind: "b"}, {Kind: "b"}})
		limitTo(t, c, "", 2)
		w := p.worker(t, c, WorkerOptions{}, "a")
		start(t, w)
		ids := enqueueMany(t, c, []Job{{Kind: "a"}, {Kind: "a"}, {Kind: "a"}})
		eventually(t, "what it handles is done", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.done[ids[0]]+p.done[ids[1]]+p.done[ids[2]] == 3
		})
		own := limitsOf(w).Own()
		if d := (limited{&w.runner}).Demand(own); own == nil || d.Ready != 0 || len(d.Aside) != 0 {
			t.Error("it needs permits for jobs of others")
		}
	})
}

// So do they if some of them die.
func TestKindsDie(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 4})
		p := doing{done: map[int64]int{}}
		opt := WorkerOptions{Batch: 5, Concurrency: 2, AckEach: true}
		start(t, p.worker(t, other(t, db), opt, "a"))
		start(t, p.worker(t, other(t, db), opt, "b"))
		ids := enqueueMany(t, c, mixed(30))
		for _, kind := range []string{"a", "b"} {
			dying, cut := severed(t, db)
			w := p.worker(t, dying, opt, kind)
			start(t, w)
			eventually(t, "it has its share", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.sharings > 1
			})
			ids = append(ids, enqueueMany(t, c, mixed(20))...)
			cut()
			lapse(t, db, w, 0)
		}
		empty(t, db)
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, id := range ids {
			if p.done[id] == 0 {
				t.Errorf("job %d was not done", id)
			}
		}
		if n := buriedOf(t, db); n > 0 {
			t.Errorf("%d jobs are dead", n)
		}
	})
}

// The jobs of a key, and those of a queue that is FIFO, are done in their order, however their
// kinds alternate.
func TestKindsInOrder(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		for _, fifo := range []bool{false, true} {
			c := client(t, db, Options{Blocks: 1})
			edit(t, c, func(q *admin.Queue) { q.FIFO = fifo })
			var r record
			var stops []func()
			for _, kind := range []string{"a", "b"} {
				w := worker(t, other(t, db), WorkerOptions{})
				handle(t, w, kind, func(_ context.Context, d *Delivery) error { r.add("%s", d.Payload); return nil })
				stops = append(stops, start(t, w))
			}
			var jobs []Job
			var want []string
			for i, kind := range []string{"a", "b", "b", "a", "b", "a"} {
				want = append(want, fmt.Sprint(i))
				jobs = append(jobs, Job{Kind: kind, Key: "k", Payload: []byte(want[i])})
			}
			enqueueMany(t, c, jobs)
			r.wants(t, want...)
			empty(t, db)
			for _, stop := range stops {
				stop()
			}
		}
	})
}

// A job that nobody handles stays ready, and blocks no other; it is logged once. A worker that
// handles it later finds it, and BuryUnknown makes it a dead letter.
func TestUnknownKind(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		var out lockedBuffer
		p := doing{done: map[int64]int{}}
		w := p.worker(t, other(t, db), WorkerOptions{Batch: 2, Logger: slog.New(slog.NewTextHandler(&out, nil))}, "a")
		start(t, w)
		var strange []int64
		for range 3 { // more than Batch, and delayed ones that are due
			strange = append(strange, enqueueMany(t, c, slices.Repeat([]Job{{Kind: "strange"}}, 50))...)
			strange = append(strange, enqueue(t, c, Job{Kind: "strange", Delay: time.Millisecond}))
			enqueueMany(t, c, []Job{{Kind: "a"}, {Kind: "a", Delay: time.Millisecond}})
		}
		eventually(t, "the others are done", func() bool { return rowsOf(t, db) == len(strange) })
		info(t, c, strange[0], admin.StateReady)
		eventually(t, "it is logged", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			for at, from := range w.choice.unknown {
				if from > 1 {
					w.choice.unknown[at] = 1
				}
			}
			return out.count("because no worker of their queue") > 0
		})
		must(t, adminOf(c).Cancel(t.Context(), "", strange[1]))
		start(t, p.worker(t, other(t, db), WorkerOptions{}, "strange"))
		empty(t, db)
		if n := out.count("because no worker of their queue"); n != 1 || buriedOf(t, db) > 0 {
			t.Errorf("it was logged %d times, and %d are dead", n, buriedOf(t, db))
		}
		start(t, p.worker(t, other(t, db), WorkerOptions{BuryUnknown: true}, "a"))
		becomes(t, c, enqueue(t, c, Job{Kind: "odd"}), admin.StateDead)
	})
}

// A lockedBuffer can be written by several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Count(b.buf.Bytes(), []byte(text))
}

// RunOnce ends when only jobs are left that others do, or that are behind such.
func TestKindsOnce(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		for _, fifo := range []bool{false, true} {
			for _, atMostOnce := range []bool{false, true} {
				c := client(t, db, Options{})
				edit(t, c, func(q *admin.Queue) { q.FIFO = fifo })
				enqueueMany(t, c, []Job{
					{Kind: "a"}, {Kind: "a", Delay: time.Millisecond}, {Kind: "a", Key: "k"}, {Kind: "b", Key: "k"}, {Kind: "a", Key: "k"}, {Kind: "b"},
				})
				left := 3
				if fifo {
					left = 0 // at least
				}
				once := func(kind string) {
					var r record
					w := worker(t, other(t, db), WorkerOptions{AtMostOnce: atMostOnce})
					handle(t, w, kind, func(context.Context, *Delivery) error { r.add("%s", kind); return nil })
					must(t, w.RunOnce(t.Context()))
					t.Log(kind, fifo, atMostOnce, r.len(), rowsOf(t, db))
				}
				once("a")
				if n := rowsOf(t, db); n < left || !fifo && n != left {
					t.Errorf("%d jobs are left, not %d (fifo %v, at most once %v)", n, left, fifo, atMostOnce)
				}
				for range 3 {
					once("b")
					once("a")
				}
				if n := rowsOf(t, db); n != 0 || buriedOf(t, db) != 0 {
					t.Errorf("%d jobs are left at the end, and %d are dead", n, buriedOf(t, db))
				}
			}
		}
	})
}

// A worker without handlers does nothing, and RunOnce ends at once.
func TestKindsOnceWithoutHandlers(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		enqueueMany(t, client(t, db, Options{}), []Job{{Kind: "a"}, {Kind: "b", Key: "k"}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must(t, worker(t, other(t, db), WorkerOptions{}).RunOnce(ctx))
		if n := rowsOf(t, db); n != 2 || ctx.Err() != nil {
			t.Errorf("%d jobs are left, want 2; %v", n, ctx.Err())
		}
	})
}

// Who asks for some kinds gets as many as there are, whatever is before them; others get the
// rest, and a worker that does not do a kind leaves its block to who asks for it.
func TestReceiveKinds(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		p := doing{done: map[int64]int{}}
		start(t, p.worker(t, other(t, db), WorkerOptions{}, "c"))
		r := receiver(t, c, WorkerOptions{Grace: time.Millisecond, Batch: 40})
		r.w.patience = longWait
		jobs := slices.Repeat([]Job{{Kind: "b"}}, 2500) // more than are kept
		jobs = append(jobs, slices.Repeat([]Job{{Kind: "a"}}, 30)...)
		enqueueMany(t, c, append(jobs, Job{Kind: "c"}))
		receive := func(n int, kinds ...string) (all []*Delivery) {
			t.Helper()
			for n > len(all) { // a block may come, and be read, after others
				got, err := r.ReceiveKinds(t.Context(), n-len(all), longWait, kinds)
				must(t, err)
				if len(got) == 0 {
					t.Fatalf("received %d of %d jobs of kinds %q", len(all), n, kinds)
				}
				all = append(all, got...)
			}
			return all
		}
		first := receive(1, "a")
		must(t, r.Settle(t.Context(), []Outcome{{Delivery: first[0]}})[0])
		eventually(t, "the other does what is left to it, and all blocks come here", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			r.w.mu.Lock()
			defer r.w.mu.Unlock()
			return len(p.done) == 1 && len(r.w.queues[0].blocks) == 2
		})
		for _, d := range append(first, receive(29, "a")...) {
			if d.Kind != "a" {
				t.Errorf("received one of kind %s, not a", d.Kind)
			}
		}
		if none, err := r.ReceiveKinds(t.Context(), 1, time.Millisecond, []string{"none", "a"}); err != nil || len(none) > 0 {
			t.Errorf("received %v, %v", none, err)
		}
		for _, d := range append(receive(2000, "b"), receive(500)...) {
			if d.Kind != "b" {
				t.Errorf("received one of kind %s, not b", d.Kind)
			}
		}
		_, err := r.ReceiveKinds(t.Context(), 1, 0, []string{" no name"})
		want(t, "no name", err, ErrInvalid)
	})
}

// What is behind a job of another kind by its key, or in a queue that is FIFO, is not pending; and
// kinds that nobody does are counted.
func TestPendingKinds(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		for _, part := range []struct {
			stmt *sqlrun.Stmt
			fifo bool
			jobs []Job
			want map[string]bool
		}{
			{store.PendingKinds, false, []Job{{Kind: "a", Key: "k"}, {Kind: "b", Key: "k"}}, map[string]bool{"a": true, "b": false}},
			{store.PendingKinds, false, []Job{{Kind: "a", Key: "k"}, {Kind: "b", Key: "l"}}, map[string]bool{"a": true, "b": true}},
			{store.PendingKinds, false, []Job{{Kind: "a"}, {Kind: "b"}}, map[string]bool{"a": true, "b": true}},
			{store.PendingFIFOKinds, true, []Job{{Kind: "a"}, {Kind: "b"}}, map[string]bool{"a": true, "b": false}},
			{store.PendingFIFOKinds, true, []Job{{Kind: "a", Delay: time.Microsecond}}, map[string]bool{"a": true, "b": false}},
		} {
			edit(t, c, func(q *admin.Queue) { q.FIFO = part.fifo })
			q, err := c.queue(t.Context(), defaultQueue)
			must(t, err)
			ids := enqueueMany(t, c, part.jobs)
			byHand(t, db, `UPDATE {prefix}job_delayed SET run_at = `+ago)
			for kind, want := range part.want {
				if n := reached(t, db, part.stmt, sqlrun.Args{"queue": q.ID, "kinds": []string{kind, "z"}}); (n > 0) != want {
					t.Errorf("%s of %+v: %d blocks, want %t", kind, part.jobs, n, want)
				}
			}
			for _, id := range ids {
				must(t, adminOf(c).Cancel(t.Context(), "", id))
			}
		}
	})
}

// Unknown counts the jobs that wait and that no worker of their queue does.
func TestUnknown(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		enqueueMany(t, c, []Job{{Kind: "a"}, {Kind: "b"}, {Kind: "b"}, {Kind: "b", Delay: time.Microsecond}, {Kind: "c", Delay: time.Hour}, {Queue: "none", Kind: "a"}})
		unknown := func(want ...admin.UnknownKind) {
			t.Helper()
			if got, err := adminOf(c).Unknown(t.Context(), 10); err != nil || !slices.Equal(got, want) {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
		}
		unknown()
		byHand(t, db, `UPDATE {prefix}job_delayed SET run_at = `+ago+` WHERE kind = 'b'`)
		byHand(t, db, `INSERT INTO {prefix}node (name, state, expire_at) VALUES ('me', 'live', `+ahead+`), ('left', 'gone', `+ahead+`)`)
		for _, row := range []struct {
			node, kinds string
			want        []admin.UnknownKind
		}{
			{"left", `'["b"]'`, nil},
			{"me", `'["a"]'`, []admin.UnknownKind{{Queue: "default", Kind: "b", Jobs: 3}}},
			{"me", `'[]'`, []admin.UnknownKind{{Queue: "default", Kind: "a", Jobs: 1}, {Queue: "default", Kind: "b", Jobs: 3}}},
			{"me", `'["c", "b"]'`, []admin.UnknownKind{{Queue: "default", Kind: "a", Jobs: 1}}},
			{"me", "NULL", nil},
			{"me", "'by hand'", nil},
		} {
			byHand(
				t, db, `DELETE FROM {prefix}queue_worker`,
				`INSERT INTO {prefix}queue_worker (queue_id, node, kinds) SELECT queue_id, '`+row.node+`', `+row.kinds+` FROM {prefix}queue WHERE name = 'default'`,
			)
			unknown(row.want...)
		}
	})
}
