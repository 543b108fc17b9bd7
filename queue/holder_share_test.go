package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
)

// shares lists how many blocks of the default queue each live worker has, the
// smallest first.
func shares(t *testing.T, c *Client) (counts []int) {
	t.Helper()
	blocks, err := adminOf(c).Blocks(t.Context(), "")
	must(t, err)
	by := map[string]int{}
	for _, b := range blocks {
		if b.Leased && b.Live {
			by[b.Worker]++
		}
	}
	for _, n := range by {
		counts = append(counts, n)
	}
	slices.Sort(counts)
	return counts
}

func shared(t *testing.T, c *Client, want ...int) {
	t.Helper()
	eventually(t, fmt.Sprintf("shares are %v", want), func() bool { return slices.Equal(shares(t, c), want) })
}

func nothing(context.Context, *Delivery) error { return nil }

// Workers share a queue's blocks equally; a stopping one hands over at once, and a lost one
// loses them when its lease ends.
func TestShares(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 8})
		edit(t, c, impatient) // makes the queue
		var stops []func()
		for _, want := range [][]int{{8}, {4, 4}, {2, 3, 3}} {
			stops = append(stops, crew(t, db, 1, WorkerOptions{Lease: longWait}, nothing)...)
			shared(t, c, want...)
		}
		stops[1]()
		if got := shares(t, c); slices.Contains(got, 0) || len(got) > 2 {
			t.Errorf("shares are %v", got)
		}
		shared(t, c, 4, 4) // long before the lease of the other would be over
		severed, cut := severed(t, db)
		w := worker(t, severed, WorkerOptions{Grace: -1})
		handle(t, w, "x", nothing)
		start(t, w)
		shared(t, c, 2, 3, 3)
		cut()
		lapse(t, db, w, time.Second)
		shared(t, c, 4, 4)
		stops[0]()
		stops[2]()
		if got := shares(t, c); len(got) != 0 {
			t.Errorf("shares are %v", got)
		}
		if left := db.List(t, `SELECT name, state FROM {prefix}node WHERE state = 'live'`, nil); len(left) > 0 {
			t.Errorf("there are still %v", left)
		}
	})
}

// Where blocks do not divide evenly, workers have the odd one in turns, and each block
// comes to each of them; no job is done twice for that.
func TestTurns(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 3})
		edit(t, c, impatient) // makes the queue
		var r record
		var names []string
		for range 2 {
			w := worker(t, other(t, db), WorkerOptions{Lease: longWait})
			w.rotate = 1500 * time.Millisecond // some looks long
			handle(t, w, "x", func(_ context.Context, d *Delivery) error { r.add("%d", d.ID); return nil })
			start(t, w)
			names = append(names, nameOf(w))
		}
		had := map[int]map[string]bool{0: {}, 1: {}, 2: {}}
		n := 0
		eventually(t, "each block has been with each worker", func() bool {
			n += len(enqueueMany(t, c, []Job{{Kind: "x"}, {Kind: "x"}, {Kind: "x"}}))
			blocks, err := adminOf(c).Blocks(t.Context(), "")
			must(t, err)
			whole := true
			for _, b := range blocks {
				if b.Leased {
					had[b.Number][b.Worker] = true
				}
				whole = whole && len(had[b.Number]) == len(names)
			}
			return whole
		})
		empty(t, db)
		done := r.all()
		slices.Sort(done)
		if len(slices.Compact(done)) != n || r.len() != n {
			t.Errorf("%d jobs were done %d times", n, r.len())
		}
	})
}

// A worker that is stopped while it takes blocks leaves none leased.
func TestStopAtOnce(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 8})
		for range 10 {
			start(t, worker(t, c, WorkerOptions{}))()
			if left := db.List(t, `SELECT divided, suspects FROM {prefix}queue_block WHERE state <> 'FREE' OR suspects > 0`, nil); len(left) > 0 {
				t.Fatalf("blocks are left: %v", left)
			}
		}
	})
}

// A worker that is stopped gives a running job its grace, and the rest to others at
// once. Then the job's context ends, and another worker does it, not as a crash.
func TestGrace(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		edit(t, c, func(q *admin.Queue) { q.MaxCrashes = 1 })
		began := make(chan *Delivery, 1)
		first := worker(t, other(t, db), WorkerOptions{Grace: 1500 * time.Millisecond, Lease: longWait})
		causes := make(chan error, 1)
		handle(t, first, "x", func(ctx context.Context, d *Delivery) error {
			began <- d
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		})
		stop := start(t, first)
		id := enqueue(t, c, Job{Kind: "x", Key: "k"})
		received(t, "it begins", began)
		next := enqueue(t, c, Job{Kind: "x", Key: "k"})
		var r record
		crew(t, db, 1, WorkerOptions{}, func(_ context.Context, d *Delivery) error {
			r.add("%d %d %d", d.ID, d.Attempt, d.Crashes)
			return nil
		})
		go stop()
		eventually(t, "all blocks are the other's", func() bool {
			blocks, err := adminOf(c).Blocks(t.Context(), "")
			must(t, err)
			return !slices.ContainsFunc(blocks, func(b admin.Block) bool { return !b.Leased || b.Worker == nameOf(first) })
		})
		enqueue(t, c, Job{Kind: "x"}) // is done meanwhile
		cause := received(t, "the context ends", causes)
		if cause == nil || errors.Is(cause, ErrLost) || errors.Is(cause, context.Canceled) {
			t.Errorf("the cause is %v", cause)
		}
		stop()
		empty(t, db)
		got := r.all()
		at := slices.Index(got, fmt.Sprintf("%d 1 0", id))
		if len(got) != 3 || at < 0 || at > slices.Index(got, fmt.Sprintf("%d 1 0", next)) {
			t.Errorf("done: %v, and it should be %d before %d", got, id, next)
		}
	})
}

// A job that is done in its grace, when its block is another's already, is not done
// again.
func TestGraceIsEnough(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		for range 10 {
			began, goOn := make(chan bool), make(chan bool)
			w := worker(t, c, WorkerOptions{Grace: time.Hour})
			handle(t, w, "x", func(context.Context, *Delivery) error { began <- true; <-goOn; return nil })
			stop := start(t, w)
			enqueue(t, c, Job{Kind: "x"})
			received(t, "it begins", began)
			stopped := make(chan bool)
			go func() { stop(); close(stopped) }()
			eventually(t, "the block is handed over", func() bool { return len(shares(t, c)) == 0 })
			close(goOn)
			received(t, "it ends", stopped)
			if rowsOf(t, db) > 0 {
				t.Fatalf("there is still %v", left(t, db.DB))
			}
		}
	})
}

// A batch that waits for more does not keep a worker from stopping.
func TestStopWhileGathering(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		w := worker(t, c, WorkerOptions{Grace: time.Hour})
		must(t, w.HandleBatch("x", BatchOptions{Wait: time.Hour},
			func(context.Context, []*Delivery) error { t.Error("it was done"); return nil }))
		stop := start(t, w)
		for range 3 {
			enqueue(t, c, Job{Kind: "x"})
		}
		eventually(t, "they gather", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			g := w.handlers["x"].gathered
			return len(g) == 1 && len(g[0].jobs) == 3
		})
		stop()
		var r record
		crew(t, db, 1, WorkerOptions{}, func(_ context.Context, d *Delivery) error { r.add("%d", d.Crashes); return nil })
		r.wants(t, "0", "0", "0")
		empty(t, db)
	})
}

// A worker all of whose places are taken by long jobs leaves its blocks to others,
// and the keys of those jobs stay held there. Cancelled, the context of one ends.
func TestBusy(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 4})
		edit(t, c, impatient) // makes the queue
		var r record
		began, goOn, causes := make(chan int64, 2), make(chan bool), make(chan error, 1)
		long := worker(t, other(t, db), WorkerOptions{Concurrency: 2})
		handle(t, long, "x", func(ctx context.Context, d *Delivery) error {
			if len(d.Payload) == 0 { // it has a place for these again by then
				r.add("%d", d.ID)
				return nil
			}
			began <- d.ID
			select {
			case <-goOn:
				r.add("%d", d.ID)
				return nil
			case <-ctx.Done():
				causes <- context.Cause(ctx)
				return ctx.Err()
			}
		})
		start(t, long)
		held := enqueue(t, c, Job{Kind: "x", Key: "held", Payload: []byte(`"long"`)})
		cancelled := enqueue(t, c, Job{Kind: "x", Key: "cancelled", Payload: []byte(`"long"`)})
		received(t, "they begin", began)
		received(t, "they begin", began)
		crew(t, db, 1, WorkerOptions{}, func(_ context.Context, d *Delivery) error { r.add("%d", d.ID); return nil })
		eventually(t, "the other has all blocks", func() bool {
			blocks, err := adminOf(c).Blocks(t.Context(), "")
			must(t, err)
			return !slices.ContainsFunc(blocks, func(b admin.Block) bool { return !b.Leased || b.Worker == nameOf(long) })
		})
		becomes(t, c, held, admin.StateRunning)
		becomes(t, c, cancelled, admin.StateRunning)
		second := enqueue(t, c, Job{Kind: "x", Key: "held"})
		after := enqueue(t, c, Job{Kind: "x", Key: "cancelled"})
		free := enqueue(t, c, Job{Kind: "x"})
		r.wants(t, fmt.Sprint(free))
		must(t, adminOf(c).Cancel(t.Context(), "", cancelled))
		want(t, "the cause", received(t, "the context ends", causes), ErrLost)
		r.wants(t, fmt.Sprint(free), fmt.Sprint(after))
		close(goOn)
		r.wants(t, fmt.Sprint(free), fmt.Sprint(after), fmt.Sprint(held), fmt.Sprint(second))
		empty(t, db)
		shared(t, c, 2, 2)
	})
}

// Whoever wants to know hears that a worker has lost its lease.
func TestLeaseLost(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		lost := make(chan string, 10)
		c := client(t, db, Options{Version: "1.2.3", LeaseLost: func(why string) { lost <- why }})
		w := worker(t, c, WorkerOptions{Lease: 4 * time.Second})
		start(t, w)
		if n := db.Do(t, `UPDATE {prefix}node SET state = 'lost' WHERE version = '1.2.3'`, nil); n != 1 {
			t.Errorf("%d rows say the version", n)
		}
		received(t, "the loss", lost)
	})
}

// A renewal that was under way while its worker left finds no lease. That is no loss.
func TestNoLeaseIsLostByLeaving(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{LeaseLost: func(why string) { t.Errorf("a lease was lost: %s", why) }})
		w := worker(t, c, WorkerOptions{})
		stop := start(t, w)
		w.mu.Lock()
		name := w.lease.node
		w.mu.Unlock()
		stop()
		n, err := c.renewSome(t.Context(), DefaultLease, []string{name})
		if must(t, err); n != 0 {
			t.Error("the lease of a worker that has left was renewed")
		}
		w.lose("the lease had ended")
	})
}

// What harmless workers have left that vanished is done again at once, all of it at the same
// time, and nothing is dead for it.
func TestIsolated(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		const many = 2 * doubtful
		c := client(t, db, Options{Blocks: 2})
		edit(t, c, func(q *admin.Queue) { q.MaxCrashes = 1 })
		var ids []int64
		for range many {
			ids = append(ids, enqueue(t, c, Job{Kind: "x"}))
		}
		harmless := WorkerOptions{Isolated: true, Concurrency: many, Grace: -1}
		doomed, cut := severed(t, db)
		w := worker(t, doomed, harmless)
		handle(t, w, "x", func(ctx context.Context, _ *Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		})
		start(t, w)
		for _, id := range ids {
			becomes(t, c, id, admin.StateRunning)
		}
		cut()
		lapse(t, db, w, 0)
		began, goOn := make(chan int, many), make(chan bool)
		crew(t, db, 1, harmless, func(ctx context.Context, d *Delivery) error {
			began <- d.Crashes
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			return ctx.Err()
		})
		for range many {
			if crashes := received(t, "another begins", began); crashes != 1 {
				t.Errorf("%d crashes", crashes)
			}
		}
		close(goOn)
		empty(t, db)
	})
}

// A job that ran in a process that vanished is run by another, which counts the crash; after
// MaxCrashes it is dead, and jobs beside it are done.
func TestCrashes(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		edit(t, c, func(q *admin.Queue) { q.MaxCrashes = 3 })
		began, goOn := make(chan string, 10), make(chan bool)
		var r record
		var id atomic.Int64
		h := func(ctx context.Context, d *Delivery) error {
			if string(d.Payload) == `"fatal"` {
				began <- fmt.Sprintf("%d %d", d.Attempt, d.Crashes)
				select {
				case <-goOn:
				case <-ctx.Done():
				}
				return ctx.Err()
			}
			r.add("%s %d", d.Payload, d.Attempt)
			return nil
		}
		id.Store(enqueue(t, c, Job{Kind: "x", Key: "k", Payload: []byte(`"fatal"`)}))
		enqueue(t, c, Job{Kind: "x", Key: "k", Payload: []byte(`"after"`)})
		defer close(goOn)
		for crashes := range 3 {
			doomed, cut := severed(t, db)
			w := worker(t, doomed, WorkerOptions{Grace: -1})
			w.proven = longWait
			handle(t, w, "x", h)
			start(t, w)
			if got, want := received(t, "it begins", began), fmt.Sprint("1 ", crashes); got != want {
				t.Errorf("attempt and crashes are %s, not %s", got, want)
			}
			becomes(t, c, id.Load(), admin.StateRunning)
			cut()
			lapse(t, db, w, 0)
			if got := shares(t, c); len(got) > 0 {
				t.Errorf("its lease is over, and shares are %v", got)
			}
		}
		for i := range 10 {
			enqueue(t, c, Job{Kind: "x", Payload: fmt.Append(nil, i)})
		}
		crew(t, db, 1, WorkerOptions{}, h)
		if i := becomes(t, c, id.Load(), admin.StateDead); i.Crashes != 3 || !strings.Contains(i.Error, "3 workers died") {
			t.Errorf("it is %+v", i)
		}
		empty(t, db)
		if r.len() != 11 {
			t.Errorf("the others are done %d times: %q", r.len(), r.all())
		}
		eventually(t, "nothing is under suspicion", func() bool {
			blocks, err := adminOf(c).Blocks(t.Context(), "")
			must(t, err)
			return !slices.ContainsFunc(blocks, func(b admin.Block) bool { return b.Crashes > 0 })
		})
	})
}

// Statements that fail while blocks are shared leave none in nobody's hands.
func TestShareFaults(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 12})
		enqueue(t, c, Job{Kind: "x"})
		var off atomic.Bool
		broken := db.Broken(t, &dbtest.Fault{Random: func() (bool, bool) { return !off.Load() && rand.IntN(6) == 0, rand.IntN(2) == 0 }})
		broken.Pool().SetMaxOpenConns(5)
		var r record
		w := worker(t, client(t, broken, Options{}), WorkerOptions{Lease: longWait})
		handle(t, w, "x", func(context.Context, *Delivery) error { r.add("x"); return nil })
		start(t, w)
		eventually(t, "it has some blocks", func() bool { return len(shares(t, c)) == 1 })
		stops := crew(t, db, 1, WorkerOptions{Lease: longWait}, func(context.Context, *Delivery) error { r.add("x"); return nil })
		shared(t, c, 6, 6)
		stops[0]()
		shared(t, c, 12)
		off.Store(true)
		var jobs []Job
		for range 100 {
			jobs = append(jobs, Job{Kind: "x"})
		}
		enqueueMany(t, c, jobs)
		empty(t, db)
	})
}

// A job handed to a worker without a free slot moves on with its block.
func TestHandedOn(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		began, goOn := make(chan bool), make(chan bool)
		defer close(goOn)
		blocked := func(ctx context.Context, _ *Delivery) error {
			began <- true
			select {
			case <-ctx.Done():
			case <-goOn:
			}
			return nil
		}
		crew(t, db, 1, WorkerOptions{Concurrency: 1, Grace: -1}, blocked)
		enqueue(t, c, Job{Kind: "x"})
		received(t, "the long one begins", began)
		// A job handed over by a third worker: it is adopted, and waits.
		id := enqueue(t, c, Job{Kind: "x", Delay: time.Hour})
		db.Do(t, `INSERT INTO {prefix}job_running (queue_id, divided, id, priority, attempt, state, kind, lock_by)
			SELECT queue_id, divided, id, priority, 1, 'handed', kind, 'nobody' FROM {prefix}job_delayed`, nil)
		db.Do(t, `DELETE FROM {prefix}job_delayed`, nil)
		adopted := func() (yes bool) {
			db.Scan(t, `SELECT COUNT(*) FROM {prefix}job_running WHERE id = :id AND state = 'running'`, sqlrun.Args{"id": id}, &yes)
			return yes
		}
		eventually(t, "it is adopted", adopted)
		var r record
		crew(t, db, 1, WorkerOptions{}, func(_ context.Context, d *Delivery) error { r.add("%d %d", d.ID, d.Crashes); return nil })
		r.wants(t, fmt.Sprint(id, " 0"))
	})
}

// A drained worker hands its blocks over, finishes what it has begun and takes nothing, even
// under the new name that it has after a loss; others do its part. Then it shares again. If all
// are drained, jobs wait.
func TestDrainedNodes(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 8})
		edit(t, c, impatient) // makes the queue
		change := func(drained string, of ...string) {
			t.Helper()
			for _, name := range of {
				if n := db.Do(t, `UPDATE {prefix}node SET drained_at = CASE WHEN :drained = 'yes' THEN {now} END, drained_by = :drained WHERE name = :name AND state = 'live'`,
					sqlrun.Args{"drained": drained, "name": name}); n != 1 {
					t.Fatalf("no row of %s", name)
				}
			}
		}
		name := func(w *Worker) string { w.mu.Lock(); defer w.mu.Unlock(); return w.lease.node }
		begun, end := make(chan struct{}), make(chan struct{})
		var done atomic.Int64
		first := worker(t, c, WorkerOptions{Lease: 24 * time.Second})
		handle(t, first, "slow", func(context.Context, *Delivery) error { close(begun); <-end; done.Add(1); return nil })
		handle(t, first, "x", func(context.Context, *Delivery) error { done.Add(1); return nil })
		start(t, first)
		enqueue(t, c, Job{Kind: "slow"})
		<-begun
		second := worker(t, other(t, db), WorkerOptions{Lease: 24 * time.Second})
		handle(t, second, "x", func(context.Context, *Delivery) error { done.Add(1); return nil })
		start(t, second)
		change("yes", name(first))
		eventually(t, "the other has all blocks", func() bool {
			blocks, err := adminOf(c).Blocks(t.Context(), "")
			must(t, err)
			return !slices.ContainsFunc(blocks, func(b admin.Block) bool { return b.Worker != name(second) })
		})
		for range 20 {
			enqueue(t, c, Job{Kind: "x"})
		}
		eventually(t, "the other does the jobs", func() bool { return done.Load() == 20 })
		close(end)
		eventually(t, "what it has begun ends", func() bool { return done.Load() == 21 })

		lost := name(first) // under a new name it is drained as well
		db.Do(t, `UPDATE {prefix}node SET state = 'lost' WHERE name = :name`, sqlrun.Args{"name": lost})
		eventually(t, "it joins again", func() bool { n := name(first); return n != "" && n != lost })
		if got := db.List(t, `SELECT drained_by FROM {prefix}node WHERE name = :name AND drained_at IS NOT NULL`,
			sqlrun.Args{"name": name(first)}); !slices.Equal(got, []string{"yes"}) {
			t.Errorf("under its new name it is drained by %q", got)
		}
		change("yes", name(second))
		shared(t, c)
		change("no", name(first), name(second))
		shared(t, c, 4, 4)
	})
}

// drainNode has a worker drained, and waits until it has no blocks of its first queue.
func drainNode(t *testing.T, db *dbtest.DB, w *Worker) {
	t.Helper()
	db.Do(t, `UPDATE {prefix}node SET drained_at = {now}, drained_by = 'me' WHERE name = :name`, sqlrun.Args{"name": nameOf(w)})
	eventually(t, "it is drained", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.lease.drained != nil && len(w.queues[0].blocks) == 0
	})
}

// A drained worker takes no blocks either that nobody else takes.
func TestDrainedLeavesVacantBlocks(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		w := worker(t, client(t, db, Options{}), WorkerOptions{})
		handle(t, w, "x", func(context.Context, *Delivery) error { return nil })
		start(t, w)
		drainNode(t, db, w)
		fences := db.List(t, `SELECT SUM(fence) FROM {prefix}queue_block`, nil)
		rounds := 0
		eventually(t, "blocks have been free for long", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			rounds = w.sharings
			w.queues[0].vacant = w.queues[0].vacant.Earlier(2 * vacantAfter)
			return len(w.queues[0].vacant) > 0
		})
		eventually(t, "it has looked at them", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.sharings >= rounds+2
		})
		if now := db.List(t, `SELECT SUM(fence) FROM {prefix}queue_block`, nil); !slices.Equal(now, fences) {
			t.Errorf("the blocks' fences were %q, and are %q", fences, now)
		}
	})
}

// A worker says once that its queue has more workers than blocks, and not of a queue of dbcron's own, of which each daemon is a worker.
func TestSurplusIsLogged(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		const own = "dbcron.own"
		queues := []string{own, "default"}
		for _, name := range queues {
			enqueue(t, client(t, db, Options{Blocks: 1}), Job{Kind: "noop", Queue: name})
		}
		var out lockedBuffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		one := worker(t, other(t, db), WorkerOptions{Logger: log, Queues: queues})
		handle(t, one, "noop", func(context.Context, *Delivery) error { return nil })
		start(t, one)
		empty(t, db)
		if n := out.count("more workers than blocks"); n != 0 {
			t.Errorf("logged %d times, with one worker", n)
		}
		two := worker(t, other(t, db), WorkerOptions{Queues: queues})
		handle(t, two, "noop", func(context.Context, *Delivery) error { return nil })
		start(t, two)
		eventually(t, "it is logged", func() bool { return out.count("queue=default workers=2") > 0 })
		if n := out.count("workers=2 blocks=1"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, out.buf.String())
		}
	})
}
